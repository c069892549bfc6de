"""What `render()` of an environment gives, as the picture of a film.

Environments draw in many forms: grey, with an alpha channel, as floats from 0 to 1, as a list. All
that has one meaning becomes uint8 [height, width, 3].
"""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image, ImageOps


class NoImages(Exception):
    """The environment gave no picture. The message says what it gave."""


def picture(rendered: Any) -> np.ndarray:
    """A picture uint8 [H, W, 3] from grey [H, W] or [H, W, 1], RGB, or RGBA, of any type of number;
    floats of which none exceeds 1 are shares of the brightest. Of a list of pictures the last one.
    Raises `NoImages`.
    """
    try:
        values = np.asarray(rendered)
    except ValueError:
        values = np.asarray(None)
    if values.dtype.kind not in "buif":
        raise NoImages(f"render() returned {type(rendered).__name__}, no array of numbers")
    if values.ndim == 4 and len(values):
        values = values[-1]
    if values.ndim == 2:
        values = values[:, :, None]
    if values.ndim != 3 or values.shape[2] not in (1, 3, 4) or values.size == 0:
        shape = np.shape(rendered)
        raise NoImages(f"render() returned an array of shape {shape}, not [height, width, 3]")
    in_bytes = _as_bytes(values[:, :, :3])
    return np.repeat(in_bytes, 3, axis=2) if in_bytes.shape[2] == 1 else in_bytes


def _as_bytes(values: np.ndarray) -> np.ndarray:
    if values.dtype == np.uint8:
        return values
    if values.dtype == np.bool_:
        return values.astype(np.uint8) * 255
    numbers = np.nan_to_num(values.astype(np.float64))
    if values.dtype.kind == "f" and numbers.max() <= 1:
        numbers *= 255
    return numbers.clip(0, 255).round().astype(np.uint8)


def fitted(frame: np.ndarray, height: int, width: int) -> np.ndarray:
    """A picture in another size [height, width, 3]: as large as fits, in the middle of black."""
    if frame.shape[:2] == (height, width):
        return frame
    whole = ImageOps.pad(Image.fromarray(frame), (width, height), Image.Resampling.NEAREST)
    return np.asarray(whole)
