"""The evaluation of self-play, killed between and within its matches: it goes on with those that are
missing, and ends with the bytes of an undisturbed one.
"""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from tests import arena_runs
from tests.fault.conftest import Start

MATCHES = 25


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return arena_runs.experiment(
        tmp_path_factory.mktemp("trained") / "x", evaluation_episodes=2
    ).root


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, bytes]:
    """Filled by the first test."""
    return {}


def evaluate(outdir: Path) -> tuple[str, list[str]]:
    return "steps.evaluate", ["--outdir", str(outdir), "--run", "0"]


def written(outdir: Path) -> dict[str, bytes]:
    """The tables of games, unfinished ones and temporaries included."""
    names = ("*evaluation*", "*arena*")
    return {
        path.name: path.read_bytes() for name in names for path in outdir.glob(f"runs/0/{name}")
    }


def expected(trained: Path, start: Start, undisturbed: dict[str, bytes]) -> dict[str, bytes]:
    """What an evaluation of it leaves; played once."""
    if not undisturbed:
        outdir = shutil.copytree(trained, trained.parent / "undisturbed")
        assert start(*evaluate(outdir)).end() == 0
        undisturbed.update(written(outdir))
        assert sorted(undisturbed) == ["arena.csv", "evaluation.csv"]
    return undisturbed


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("after_rename:9:.arena-", marks=pytest.mark.slow),
        *(
            pytest.param(late, marks=[pytest.mark.slow, pytest.mark.soak])
            for late in (
                "after_temporary:9:.arena-",
                "after_rename:1:arena.csv",
                "after_temporary:1:evaluation.csv",
                "after_rename:1:evaluation.csv",
            )
        ),
    ],
)
def test_a_killed_arena_ends_with_the_same_bytes(
    fault: str, trained: Path, start: Start, tmp_path: Path, undisturbed: dict[str, bytes]
) -> None:
    outdir = shutil.copytree(trained, tmp_path / "x")
    assert start(*evaluate(outdir), {"EXPERIMENT_FAULT": fault}).end() == -signal.SIGKILL
    left = written(outdir)
    assert any(name.startswith(".arena-") for name in left), "what was played stays"
    assert "evaluation.csv" not in left or "arena.csv" in left
    assert start(*evaluate(outdir)).end() == 0
    assert written(outdir) == expected(trained, start, undisturbed)


@pytest.mark.slow
def test_a_stop_comes_within_a_match(
    trained: Path, start: Start, tmp_path: Path, undisturbed: dict[str, bytes]
) -> None:
    outdir = shutil.copytree(trained, tmp_path / "x")
    stopped = start(*evaluate(outdir))
    stopped.wait_for_text("match 5 of 25")
    stopped.kill(signal.SIGTERM)
    assert stopped.end(20) == 75 and f"match {MATCHES} of" not in stopped.text
    again = start(*evaluate(outdir))
    assert again.end() == 0 and f"match {MATCHES} of" in again.text
    assert written(outdir) == expected(trained, start, undisturbed)
