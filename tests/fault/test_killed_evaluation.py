"""An evaluation that is killed while it writes leaves nothing half, and the next one ends with the
bytes of an undisturbed one."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from steps.directory.layout import ExperimentDirectory
from tests.fault.conftest import Start, assignments

WANTED = {
    "epochs": 2,
    "checkpoint_interval": 1,
    "evaluation_policy": "sample",
    "evaluation_episodes": 4,
    "video_episodes": 2,
    "evaluations": 3,
    "snapshot_episodes": 2,
}


def written(outdir: Path) -> dict[str, bytes]:
    """The files of the evaluation, temporaries included."""
    return {path.name: path.read_bytes() for path in outdir.glob("runs/0/*evaluation*")}


def evaluate(outdir: Path) -> tuple[str, list[str]]:
    return "steps.evaluate", ["--outdir", str(outdir), "--run", "0"]


@pytest.fixture
def trained(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained run; made once."""
    if not _TRAINED:
        outdir = tmp_path_factory.mktemp("trained") / "x"
        for step, arguments in (
            ("prepare", assignments(outdir, **WANTED)),
            ("train", ["--outdir", str(outdir), "--run", "0"]),
        ):
            one = start(f"steps.{step}", arguments)
            assert one.end() == 0, one.text
        _TRAINED.append(outdir)
    return _TRAINED[0]


_TRAINED: list[Path] = []


def undisturbed(trained: Path, start: Start) -> dict[str, bytes]:
    """What an evaluation of it leaves; played once."""
    if not _UNDISTURBED:
        outdir = shutil.copytree(trained, trained.parent / "undisturbed")
        assert start(*evaluate(outdir)).end() == 0
        _UNDISTURBED.update(written(outdir))
    return _UNDISTURBED


_UNDISTURBED: dict[str, bytes] = {}


@pytest.mark.parametrize(
    ("point", "file"),
    [
        ("after_temporary", "evaluation-actions.safetensors"),
        pytest.param("after_rename", "evaluation-actions.safetensors", marks=pytest.mark.slow),
        pytest.param("after_temporary", "evaluation.csv", marks=pytest.mark.slow),
        ("after_rename", "evaluation.csv"),
    ],
)
def test_a_killed_evaluation_ends_with_the_same_bytes(
    point: str, file: str, trained: Path, start: Start, tmp_path: Path
) -> None:
    outdir = shutil.copytree(trained, tmp_path / "x")
    assert (
        start(*evaluate(outdir), {"EXPERIMENT_FAULT": f"{point}:1:{file}"}).end() == -signal.SIGKILL
    )
    left = written(outdir)
    assert "evaluation.csv" not in left or "evaluation-actions.safetensors" in left, (
        "whoever sees the table finds the actions"
    )
    assert start(*evaluate(outdir)).end() == 0
    assert written(outdir) == undisturbed(trained, start)
    assert sorted(written(outdir)) == ["evaluation-actions.safetensors", "evaluation.csv"]


@pytest.mark.parametrize(
    "damage", [Path.unlink, lambda path: path.write_bytes(b"damaged")], ids=["lost", "damaged"]
)
def test_actions_that_are_lost_are_made_again(
    damage: Callable[[Path], object], trained: Path, start: Start, tmp_path: Path
) -> None:
    """Else `play` would ask for ever for what `evaluate` says it has done."""
    outdir = shutil.copytree(trained, tmp_path / "x")
    assert start(*evaluate(outdir)).end() == 0
    damage(ExperimentDirectory(outdir).run(0).evaluation_actions)
    assert start(*evaluate(outdir)).end() == 0
    assert written(outdir) == undisturbed(trained, start)


@pytest.mark.slow
def test_an_evaluation_whose_episodes_never_end_is_cut_or_stopped(
    start: Start, tmp_path: Path
) -> None:
    """The greedy policy of a beginner in a game without an end: it says what it plays, ends at SIGTERM,
    and at `evaluation_steps`."""
    outdir = tmp_path / "x"
    game = {"game": "tests.own_games:Unending", "video_episodes": 0}
    for steps, code, says in (
        (10**8, 75, ""),
        (2000, 0, "was cut after 2000 steps, evaluation_steps"),
    ):
        given = assignments(outdir / str(steps), **{**WANTED, **game, "evaluation_steps": steps})
        assert start("steps.prepare", given).end() == 0
        trained = start("steps.train", ["--outdir", str(outdir / str(steps)), "--run", "0"])
        assert trained.end() == 0, trained.text
        step = start(*evaluate(outdir / str(steps)))
        if code == 75:
            step.wait_for_text("evaluate of run 0, attempt 1")
            time.sleep(1)
            step.kill(signal.SIGTERM)
        assert (step.end(), says in step.text) == (code, True), step.text


def snapshots_of(outdir: Path) -> tuple[str, list[str]]:
    return "steps.evaluate_snapshots", ["--outdir", str(outdir), "--run", "0"]


def tables(outdir: Path) -> dict[str, tuple[int, bytes]]:
    """The evaluations of snapshots: (inode, content) of each file, temporaries included."""
    found = sorted((outdir / "runs/0/snapshot-evaluations").iterdir())
    return {path.name: (path.stat().st_ino, path.read_bytes()) for path in found}


def test_killed_evaluations_of_snapshots_go_on_with_the_next_one(
    trained: Path, start: Start, tmp_path: Path
) -> None:
    """Each is evaluated once, by whichever process, and damaged ones are named."""
    outdir, undisturbed_one = (shutil.copytree(trained, tmp_path / name) for name in "xy")
    assert start(*snapshots_of(undisturbed_one)).end() == 0
    expected = {name: content for name, (_, content) in tables(undisturbed_one).items()}
    assert len(expected) == 2 * 3, "a table and the actions of each"
    fault = {"EXPERIMENT_FAULT": "after_temporary:4:snapshot-evaluations"}
    assert start(*snapshots_of(outdir), fault).end() == -signal.SIGKILL
    before = {name: one for name, one in tables(outdir).items() if not name.startswith(".")}
    assert len(before) == 3, "the first snapshot, and the actions of the second"
    again = start(*snapshots_of(outdir))
    assert again.end() == 0 and "snapshot 2 of 2" in again.text
    after = tables(outdir)
    assert {name: content for name, (_, content) in after.items()} == expected
    first = min(before)
    assert after[first] == before[first], "nobody plays it again"
    run = ExperimentDirectory(outdir).run(0)
    (run.snapshot(run.snapshot_steps()[1]) / "tensors.safetensors").write_bytes(b"damaged")
    (run.snapshot_evaluations / f"{run.snapshot(run.snapshot_steps()[1]).name}.csv").unlink()
    damaged = start(*snapshots_of(outdir))
    assert damaged.end() == 4
    assert "is damaged" in damaged.text and "delete it, and the curve" in damaged.text
