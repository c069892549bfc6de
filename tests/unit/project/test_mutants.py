"""What `make mutants` must tell apart: noticed, survived, explained, hung; on a project of one
module."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.mutants.__main__ import (
    FOLDER,
    ROOT,
    all_mutants,
    mutants_of_meaning,
    quick_tests_of,
    read_explained,
    sampled,
)
from tests.mutants.operators import mutant_by_replacing, mutants_of

MODULE = '''
def sum_to(count: int) -> int:
    """The sum of 1, 2, 3 and so on."""
    number, total = 0, 0
    while number < count:
        number += 1
        total += number
    return total
'''
WEAK_TEST = """
from sums import sum_to


def test_of_two():
    assert sum_to(2) > 1
"""
TARGETS = """
preload = ["pytest"]
[tests]
"sums.py" = ["test_sums.py"]
[meaning]
"""
OF_MEANING = """
[[mutant]]
meaning = "zeros are summed"
file = "sums.py"
before = "total += number"
after = "total += 0"
"""
STEP = "sums.py sum_to: number += 1 => number += 2"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / FOLDER).mkdir(parents=True)
    (folder / "sums.py").write_text(MODULE)
    (folder / "test_sums.py").write_text(WEAK_TEST)
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / FOLDER / "targets.toml").write_text(TARGETS)
    (folder / FOLDER / "explained.txt").write_text("# change # why\n")
    (folder / FOLDER / "meaning.toml").write_text(OF_MEANING)
    return folder


def tool(project: Path, only: str, *options: str) -> tuple[int, str]:
    """Exit code and what was printed about the mutants whose change holds this text."""
    root = ["--root", str(project)]
    command = [sys.executable, "-m", "tests.mutants", *root, "--only", only, *options]
    ended = subprocess.run(
        [*command, "--processes", "1"], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    return ended.returncode, ended.stdout + ended.stderr


def test_a_noticed_mutant_is_killed(project: Path) -> None:
    code, printed = tool(project, "total += number => total -= number")
    assert (code, "| sums.py | 1 | 1 | 0 | 0 | 0 |" in printed) == (0, True), printed
    assert (project / "sums.py").read_text() == MODULE, "only copies are changed"


@pytest.mark.slow
def test_a_survivor_fails_until_it_is_explained_or_an_assertion_kills_it(project: Path) -> None:
    code, printed = tool(project, STEP)
    assert (code, f"survived, unexplained: {STEP}\n" in printed) == (1, True), printed
    explanations = project / FOLDER / "explained.txt"
    explanations.write_text(f"{STEP} # two at once are as good\n")
    code, printed = tool(project, STEP)
    assert (code, "| sums.py | 1 | 0 | 0 | 1 | 0 |" in printed) == (0, True), printed
    explanations.write_text("sums.py sum_to: a => b # of a line that is gone\n")
    (project / "test_sums.py").write_text(WEAK_TEST.replace("> 1", "== 3"))
    code, printed = tool(project, STEP)
    assert (code, "| sums.py | 1 | 1 | 0 | 0 | 0 |" in printed) == (1, True), printed
    assert "explained, but no mutant: sums.py sum_to: a => b\n" in printed


@pytest.mark.slow
def test_a_mutant_of_meaning_is_killed_by_its_file_s_tests(project: Path) -> None:
    code, printed = tool(project, "", "--meaning")
    assert (code, "| sums.py | 1 | 1 | 0 | 0 | 0 |" in printed) == (0, True), printed
    assert "killed: sums.py zeros are summed: total += number => total += 0\n" in printed


@pytest.mark.slow
def test_a_hanging_mutant_is_ended_and_counts_as_noticed(project: Path) -> None:
    code, printed = tool(project, "number += 1 => pass")
    assert (code, "| sums.py | 1 | 0 | 1 | 0 | 0 |" in printed) == (0, True), printed


def test_tests_that_fail_anyway_say_nothing(project: Path) -> None:
    (project / "test_sums.py").write_text(WEAK_TEST.replace("> 1", "> 9"))
    code, printed = tool(project, STEP)
    assert (code, "sums.py: its tests fail without a mutant" in printed) == (2, True), printed


@pytest.mark.parametrize(
    ("line", "changes"),
    [
        ("y = a - b", ["a - b => a + b"]),
        ("y = a < b", ["a < b => a <= b", "a < b => a >= b"]),
        ("y = a and not b", ["a and (not b) => a or not b", "a and (not b) => a and b"]),
        ("y = c[a:-1]", [f"c[a:-1] => c[{part}]" for part in (":-1", "a:", "a:1", "a:-2", "a:-0")]),
        ("y = f(a, b)", ["y = f(a, b) => y = f(b, a)"]),
        ("y = sum(c, axis=a)", ["y = sum(c, axis=a) => y = sum(c)", "y = sum(c, axis=a) => y = mean(c, axis=a)"]),
        ("y = 0.5", ["y = 0.5 => y = 1.5", "y = 0.5 => y = -0.5", "y = 0.5 => y = 1.0"]),
        ("max(a, b)", ["max(a, b) => pass", "max(a, b) => min(a, b)"]),
        ("while a < b: f()", ["a < b => a <= b", "a < b => a >= b", "f() => pass"]),
        ("y = a if b else 0", ["y = a if b else 0 => y = a if not b else 0",
                               "a if b else 0 => a if b else 1", "a if b else 0 => a if b else -1"]),
        ("c[a] = max(c)", ["c[a] = max(c) => pass", "c[a] = max(c) => c[a] = min(c)"]),
        ("return a", ["return a => return -a"]),
        ("raise ValueError(1 + 1)", ["raise ValueError(1 + 1) => pass"]),
        ("y: float = a", []),
        ("mean, y = f(a, a)", []),
        ("import torch", []),
        ("'''1 + 1'''", []),
    ],
)  # fmt: skip
def test_operators(line: str, changes: list[str]) -> None:
    found = mutants_of("m.py", f"def f():\n    {line}\n")
    assert sorted(one.change for one in found) == sorted(f"m.py f: {change}" for change in changes)
    assert len({one.source for one in found}) == len(found)


def test_a_long_line_is_cut_down_to_what_differs() -> None:
    terms = " + ".join(f"term_{number}" for number in range(30))
    (mutant,) = mutants_of("m.py", f"def f():\n    y = ({terms}) * 2 ** x\n")[-1:]
    assert len(mutant.before) < 80 and mutant.before != mutant.after


def test_a_sample_is_drawn_with_its_seed_and_keeps_to_itself() -> None:
    lines = [f"    y{number} = a + {number}.5\n" for number in range(40)]
    first = mutants_of("first.py", "def f():\n" + "".join(lines))
    second = mutants_of("second.py", "def f():\n" + "".join(lines[:30]))
    drawn = sampled([*first, *second], 0, 60)
    assert len(drawn) == 60 and drawn == [one for one in [*first, *second] if one in drawn]
    assert drawn == sampled([*first, *second], 0, 60) != sampled([*first, *second], 1, 60)
    without = [one for one in drawn if one.path == "first.py"]
    assert without == sampled(first, 0, len(without)), "the other module changes nothing here"


def test_every_target_and_test_is_there() -> None:
    targets = tomllib.loads((ROOT / FOLDER / "targets.toml").read_text("utf-8"))
    tables = [targets["tests"], targets["meaning"]]
    named = [path for table in tables for path in table]
    named += [test for table in tables for tests in table.values() for test in tests]
    assert [path for path in named if not (ROOT / path.partition("::")[0]).is_file()] == []
    assert all(why for why in read_explained(ROOT / FOLDER / "explained.txt").values())


@pytest.mark.slow  # 5 s: all mutants are written
def test_every_explanation_fits_a_mutant() -> None:
    targets = tomllib.loads((ROOT / FOLDER / "targets.toml").read_text("utf-8"))
    mutants = [*all_mutants(ROOT, list(targets["tests"])), *mutants_of_meaning(ROOT)]
    explained = read_explained(ROOT / FOLDER / "explained.txt")
    assert explained.keys() - {mutant.change for mutant in mutants} == set()


def test_every_mutant_of_meaning_fits_its_file_once_and_has_tests() -> None:
    """Otherwise the table rots: a text that is gone is a mistake that no test is asked about."""
    mutants = mutants_of_meaning(ROOT)
    assert len({mutant.change for mutant in mutants}) == len(mutants) >= 30
    targets = tomllib.loads((ROOT / FOLDER / "targets.toml").read_text("utf-8"))
    assert {mutant.path for mutant in mutants} <= quick_tests_of(targets).keys()
    for mutant in mutants:
        assert mutant.source != (ROOT / mutant.path).read_text("utf-8"), mutant.change
        compile(mutant.source, mutant.path, "exec")


@pytest.mark.parametrize(("before", "count"), [("gone", 0), ("y", 2)])
def test_a_text_that_is_not_there_once_is_refused(before: str, count: int) -> None:
    with pytest.raises(ValueError, match=f"'all are one' occurs {count} times, not once"):
        mutant_by_replacing("m.py", "y = x\ny = 2\n", before, "z", "all are one")
