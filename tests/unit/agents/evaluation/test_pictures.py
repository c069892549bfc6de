from __future__ import annotations

import numpy as np
import pytest

from agents.evaluation.pictures import NoImages, fitted, picture

GREY = np.array([[0, 100], [200, 255], [7, 8]], np.uint8)
RGB = np.repeat(GREY[:, :, None], 3, axis=2)
ALPHA = np.concatenate([RGB, np.full((3, 2, 1), 9, np.uint8)], axis=2)


@pytest.mark.parametrize(
    "rendered",
    [
        RGB,
        GREY,
        GREY[:, :, None],
        ALPHA,
        RGB.tolist(),
        [RGB * 0, RGB],
        RGB.astype(np.int64),
        RGB.astype(np.float64),
        RGB.astype(np.float64) / 255,
        RGB.astype(np.float32) / 255,
    ],
)
def test_all_that_has_one_meaning_is_shown(rendered: object) -> None:
    shown = picture(rendered)
    assert shown.dtype == np.uint8
    assert np.array_equal(shown, RGB)


def test_numbers_beyond_a_byte_are_cut() -> None:
    values = np.array([[-5.0, 300.0, np.nan, np.inf]])
    assert picture(values)[0, :, 0].tolist() == [0, 255, 0, 255]
    assert picture(np.array([[True, False]]))[0, :, 0].tolist() == [255, 0]


@pytest.mark.parametrize(
    ("rendered", "says"),
    [
        (None, "NoneType, no array"),
        ("a text", "str, no array"),
        ([RGB, GREY], "list, no array"),
        (np.zeros((4, 4, 2)), "shape (4, 4, 2)"),
        (np.zeros((0, 4, 3)), "shape (0, 4, 3)"),
        (np.zeros(7), "shape (7,)"),
        ([], "shape (0,)"),
    ],
)
def test_what_is_no_picture_is_named(rendered: object, says: str) -> None:
    with pytest.raises(NoImages) as caught:
        picture(rendered)
    assert says in str(caught.value)


def test_another_size_is_fitted_into_black() -> None:
    white = np.full((2, 4, 3), 255, np.uint8)
    shown = fitted(white, 8, 8)
    assert shown.shape == (8, 8, 3)
    assert shown[2:6].min() == 255
    assert shown[:2].max() == shown[6:].max() == 0
