"""Typed parameters and their presets. Knows no torch, and imports quickly."""

VERSION = "0.1.0"
"""The version of the package and of the container images that `gpu_image` and `cpu_image` name by
default.
"""
