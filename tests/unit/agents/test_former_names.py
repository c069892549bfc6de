from __future__ import annotations

import importlib

import pytest

from agents.former_names import FORMER_NAMES


@pytest.mark.parametrize("former", FORMER_NAMES)
def test_former_name(former: str) -> None:
    then, today = importlib.import_module(former), importlib.import_module(FORMER_NAMES[former])
    public = {name for name in vars(today) if not name.startswith("_")}
    assert public
    assert all(getattr(then, name) is getattr(today, name) for name in public)
    assert then.__name__ == former


def test_a_name_that_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("agents.games.never")
