"""`tests/fault/cases.md` is true: every case has a row, and every test that it names exists."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

TESTS = Path(__file__).parents[2]
TABLE = (TESTS / "fault" / "cases.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (\d+) \| ([^|]+) \| (.+) \|$", flags=re.MULTILINE)
NAMED = re.compile(r"`([^`]+\.py)::([^`]+)`")
DEFECT = re.compile(r"[Dd]efect ([A-D][0-9]+)")
SECTION = TABLE.partition("## Between a learner and its actors\n")[2]
FAULTS = (
    "learner dies", "actor dies", "an unroll is sent again after a lost acknowledgement", "straggler",
    "slow or half-open network", "two learners of one run",
    "NaN, wrong shape, too large, wrong identity", "no experience for `no_data_timeout`",
)  # fmt: skip
"""The table in `docs/faults.md` of what may happen between a learner and its actors."""


@functools.cache
def names_in(file: str) -> frozenset[str]:
    """Names of the test functions of a file, from its source alone."""
    path = TESTS / file
    if not path.is_file():
        return frozenset()
    functions = [
        one
        for one in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(one, ast.FunctionDef)
    ]
    return frozenset(one.name for one in functions if one.name.startswith("test_"))


def missing(table: str) -> list[str]:
    """The named tests that do not exist."""
    return [f"{file}::{name}" for file, name in NAMED.findall(table) if name not in names_in(file)]


def test_every_case_has_one_row_in_order() -> None:
    assert [int(number) for number, _, _ in ROW.findall(TABLE)] == list(range(1, 69))


def test_the_documentation_has_the_same_cases() -> None:
    page = (TESTS.parent / "docs" / "faults.md").read_text(encoding="utf-8")
    assert [int(number) for number, _, _ in ROW.findall(page)] == list(range(1, 69))


def test_every_defect_that_a_test_names_is_in_the_documentation() -> None:
    page = (TESTS.parent / "docs" / "faults.md").read_text(encoding="utf-8")
    texts = [path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py")]
    named = {name for text in texts for name in DEFECT.findall(text)}
    assert len(named) > 10
    assert named <= set(re.findall(r"^\| ([A-D]\d+) \|", page, flags=re.MULTILINE))


def test_every_named_test_exists() -> None:
    assert len(NAMED.findall(TABLE)) > 100
    assert missing(TABLE) == []


def test_a_row_names_tests_or_says_that_there_are_none() -> None:
    for number, fault, cell in ROW.findall(TABLE):
        assert NAMED.search(cell) or cell.startswith("no test"), f"{number}: {fault}"


def test_every_fault_between_a_learner_and_its_actors_has_a_test_with_real_processes() -> None:
    rows = dict(re.findall(r"^\| (.+?) \| (`.+) \|$", SECTION, flags=re.MULTILINE))
    assert tuple(rows) == FAULTS
    for fault, cell in rows.items():
        assert any(file.startswith("fault/") for file, _ in NAMED.findall(cell)), fault


def test_negative_a_test_that_was_renamed_is_missed() -> None:
    known = "fault/test_kills.py::test_full_disk_while_saving"
    assert missing(f"| 15 | x | `{known}` |") == []
    assert missing(f"| 15 | x | `{known}_once` |") == [f"{known}_once"]
    assert missing("| 15 | x | `fault/test_gone.py::test_x` |") == ["fault/test_gone.py::test_x"]
