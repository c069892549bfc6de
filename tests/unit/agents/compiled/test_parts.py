"""Machine code is kept for later processes until a file that it comes from changes, and nothing is left of
what compiling does to Python."""

from __future__ import annotations

import gc
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from agents.compiled.parts import collection_paused, compiled_from

INNER = """
from agents.compiled.parts import part

@part
def more(number):
    return number + {}
"""
OUTER = """
import inner
from agents.compiled.parts import compiled_from
from inner import more

@compiled_from(inner)
def of(number):
    return more(number)
"""


def loaded(folder: Path, name: str) -> ModuleType:
    """The module of this file, as a new process would have it."""
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_machine_code_is_made_anew_when_the_file_of_a_part_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outer.py").write_text(OUTER)

    def answer() -> tuple[int, bool]:
        """What the function says of 5, and whether its machine code was there already."""
        monkeypatch.setitem(sys.modules, "inner", loaded(tmp_path, "inner"))
        of: Any = loaded(tmp_path, "outer").of
        return of(5), bool(of.stats.cache_hits)

    (tmp_path / "inner.py").write_text(INNER.format(1))
    assert answer() == (6, False)
    assert answer() == (6, True)
    (tmp_path / "inner.py").write_text(INNER.format(20))
    assert answer() == (25, False)


def test_where_nothing_can_be_kept_it_is_compiled_all_the_same() -> None:
    written = dict[str, Any]()
    exec("def twice(number):\n    return 2 * number", written)  # noqa: S102 - of no file
    assert compiled_from()(written["twice"])(21) == 42


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_is_collected_again_after_a_failure(enabled: bool) -> None:
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        with pytest.raises(ValueError, match="fails"), collection_paused():
            assert not gc.isenabled()
            raise ValueError("fails")
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()
