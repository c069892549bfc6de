"""Typed parameters and their presets. Knows no torch, and imports quickly."""

VERSION = "0.1.0"
"""Of the package, and of the images that are the default of `gpu_image` and `cpu_image`."""
