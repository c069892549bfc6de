"""Names of directories that are made from labels and from values of a grid."""

from __future__ import annotations

import pytest

from config.study.labels import slug, value_slug


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("PPO, λ = 1", "ppo-1"),
        ("Résumé—α", "resume"),
        ("my_lab.crowd:ALGORITHM", "my-lab-crowd-algorithm"),
        ("²", "2"),
        ("基线", ""),
    ],
)
def test_slugs(text: str, name: str) -> None:
    assert slug(text) == name


def test_different_numbers_have_different_names() -> None:
    numbers = ["0.5", "-0.5", "5", "0,5", "1e-05", "1e+20", "1e-20", "-1e-20", "64,64", "6464"]
    assert len({value_slug(text) for text in numbers}) == len(numbers)
    for text in numbers:
        assert set(value_slug(text)) <= set("abcdefghijklmnopqrstuvwxyz0123456789")
