"""What has the name of one of our packages is named in one line, before anything else."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from config import own_packages
from config.errors import BadInput
from config.own_packages import ROOT, refuse_foreign, refuse_hidden
from config.resolve import resolve


@pytest.fixture(autouse=True)
def looks_again() -> Iterator[None]:
    refuse_foreign.cache_clear()
    yield
    refuse_foreign.cache_clear()


@pytest.mark.parametrize("own", ["config.py", "agents/__init__.py", "agents/envs.py"])
def test_a_module_of_a_person_that_ours_hides(
    own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    top = own.partition("/")[0].removesuffix(".py")
    path = f"{top}:Env"
    refuse_hidden([path, "numpy:array", "tests.own_games:Bandit"])
    (tmp_path / own).parent.mkdir(exist_ok=True)
    (tmp_path / own).touch()
    for call in (lambda: refuse_hidden([path]), lambda: resolve("ppo", {"game": path})):
        with pytest.raises(BadInput) as caught:
            call()
        assert str(caught.value).startswith(f"{path!r} cannot be imported: {tmp_path / top}")
        assert f"is hidden by {ROOT / top}" in str(caught.value)
    refuse_hidden(["numpy:array"])


def test_a_foreign_package_before_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_foreign()
    refuse_foreign.cache_clear()
    foreign = SimpleNamespace(origin="/site/agents/__init__.py")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: foreign)
    with pytest.raises(BadInput, match="is hidden by /site/agents"):
        refuse_foreign()


def test_a_foreign_package_in_place_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = own_packages._sum(ROOT / "agents/__init__.py")
    monkeypatch.setattr(own_packages, "_recorded", lambda: {"agents/__init__.py": ours})
    refuse_foreign()
    refuse_foreign.cache_clear()
    monkeypatch.setattr(own_packages, "_recorded", lambda: {"agents/__init__.py": "other"})
    with pytest.raises(BadInput, match="was overwritten by another package"):
        refuse_foreign()
