"""Labels for figures, and the names of directories that are made from them."""

from __future__ import annotations

import unicodedata

from config.errors import BadInput, shown

LONGEST_LABEL = 60
REPLACED = ("{{", "$(", "$$")
"""What Argo or Kubernetes would replace by something else."""
NUMBERS = str.maketrans({".": "p", ",": "x", "-": "m", "+": None})
"""How the characters of numbers are written in names: 0.5 -> 0p5, 64,64 -> 64x64, -1 -> m1."""


def check_label(label: str) -> str:
    """Return a label that figures can show and directories can be named after. Raises `BadInput`."""
    if not label.isprintable() or label != label.strip() or not 1 <= len(label) <= LONGEST_LABEL:
        raise BadInput(
            f"label cannot be {shown(label)}; allowed: 1 to {LONGEST_LABEL} printable characters, "
            "without spaces around them"
        )
    for found in REPLACED:
        if found in label:
            raise BadInput(f"label cannot be {shown(label)}: {found!r} is not allowed in it")
    if not slug(label):
        raise BadInput(
            f"label cannot be {shown(label)}: directories are named after it; allowed: a label "
            "with at least one of a-z and 0-9"
        )
    return label


def slug(text: str) -> str:
    """The letters and digits of a text with hyphens between: `PPO, λ = 1` -> `ppo-1`. Accents are
    removed; other letters than Latin ones are left out.
    """
    plain = unicodedata.normalize("NFKD", text).lower()
    kept = [
        one if one.isascii() and one.isalnum() else "" if unicodedata.combining(one) else " "
        for one in plain
    ]
    return "-".join("".join(kept).split())


def value_slug(text: str) -> str:
    """The part of a directory's name for a grid's value: `0.0003` -> `0p0003`, `-0.5` -> `m0p5`,
    `64,64` -> `64x64`, of a path the last part: `results/a` -> `a`. Different numbers have different
    ones.
    """
    if text == "":
        return "preset"
    is_number = text[-1].isdigit() and set(text) <= set("0123456789.,+-e")
    return text.translate(NUMBERS) if is_number else slug(text.rstrip("/").rpartition("/")[2])
