"""Typed parameters and their presets. Knows no torch, and imports quickly."""
