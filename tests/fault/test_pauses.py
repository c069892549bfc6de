"""A training that pauses, also twice, also killed around its pauses, ends with the bytes of one that never
paused; where experience comes from other processes, every epoch comes once and all members end well."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from config.algorithms import ALGORITHMS
from config.algorithms.descriptor import SINGLE
from config.described import parameters
from config.games import USUAL
from config.resolved import Resolved
from steps import prepare as prepare_step
from steps import train as train_step
from steps.directory.checkpoints import trained_epochs
from steps.directory.experiment import read_experiment
from steps.directory.layout import ExperimentDirectory, RunDirectory
from steps.directory.status import Status, read_status
from steps.directory.tables import read_rows
from steps.directory.usable import usability
from tests.fault.conftest import Start, snapshot
from tests.fault.test_kills import products
from tests.fault.test_kills_of_algorithms import contents

LENGTH = 11
SMALL = {
    "epochs": str(LENGTH), "checkpoint_interval": "3", "log_interval": "2", "evaluations": "4",
    "num_envs": "2", "rollout_length": "32", "minibatches": "2", "update_epochs": "1",
    "epoch_steps": "64", "learning_starts": "64", "train_every": "4", "batch_size": "16",
    "hidden_sizes": "16", "epoch_updates": "4", "unroll_length": "5", "burn_in": "2", "actors": "2",
    "envs_per_actor": "2", "workers": "2", "games_per_worker": "8", "blocks": "0", "channels": "4",
    "simulations": "10", "cheap_simulations": "4", "generation_positions": "200", "window": "1000",
    # What depends on the length, which a pause must not be mistaken for.
    "anneal_learning_rate": "true", "anneal_clip": "true", "exploration_fraction": "0.5",
}  # fmt: skip
"""As far as an algorithm has them."""
OF_ONE = {
    **{name: (name, {}) for name, one in ALGORITHMS.items() if one.topology == SINGLE},
    "ppo-normalised": ("ppo", {"normalise_rewards": "true", "normalise_observations": "true"}),
    "qr-dqn": ("dqn", {"quantiles": "8", "prioritised": "true", "n_step": "3"}),
}
OF_SEVERAL = {
    **{name: (name, {}) for name, one in ALGORITHMS.items() if one.topology != SINGLE},
    "impala-central": ("impala", {"inference": "learner"}),
    "impala-learners": ("impala", {"learners": "2"}),
}
CLOCK = ("wall_s", "resources_csv")
"""What a checkpoint records of the time that the training took."""


def arguments(outdir: Path, training: str, **more: str) -> list[str]:
    """Of prepare."""
    algorithm, given = (OF_ONE | OF_SEVERAL)[training]
    known = {info.name for info in parameters(algorithm)}
    chosen = {name: text for name, text in {**SMALL, **more, **given}.items() if name in known}
    games = [USUAL[family] for family in ALGORITHMS[algorithm].families if family in USUAL]
    chosen |= {"game": games[0], "outdir": str(outdir)}
    return ["--algorithm", algorithm, *(f"-p={name}={value}" for name, value in chosen.items())]


def prepare(start: Start, outdir: Path, training: str, **more: str) -> RunDirectory:
    step = start("steps.prepare", arguments(outdir, training, **more))
    assert step.end() == 0, step.text
    return ExperimentDirectory(outdir).run(0)


def resolved_of(run: RunDirectory) -> Resolved:
    return read_experiment(ExperimentDirectory(run.root.parent.parent)).resolved


def train(start: Start, outdir: Path, until: object = "", fault: str = "") -> tuple[str, str]:
    """What the step printed, and how many epochs it says that the run has; a fault kills it."""
    outputs = outdir.parent / "outputs"
    environment = {"OUTPUTS": str(outputs)} | ({"EXPERIMENT_FAULT": fault} if fault else {})
    step = start(
        "steps.train", ["--outdir", str(outdir), "--run", "0", f"--until={until}"], environment
    )
    assert step.end() == (-signal.SIGKILL if fault else 0), step.text
    return step.text, "" if fault else (outputs / "reached").read_text()


def status_of(run: RunDirectory) -> Status:
    status = read_status(run.status / "train.json")
    assert status is not None
    return status


def left(run: RunDirectory) -> tuple[Any, ...]:
    """What must be equal: `train.csv`, weights, state, snapshots, the rows of the streams, and what the
    checkpoint records, but for the time."""
    final = run.checkpoint(run.checkpoint_steps()[-1])
    record = json.loads((final / "state.json").read_bytes())["record"]
    told = {name: value for name, value in record.items() if name not in CLOCK}
    return *products(run), contents(run, final), told


def assert_paused(run: RunDirectory, epoch: int) -> None:
    status = status_of(run)
    assert trained_epochs(run) == epoch
    assert (status.state, status.exit_code) == ("paused", 0)
    usable = usability(run, resolved_of(run))
    assert (usable.state, usable.reason) == ("paused", f"paused at epoch {epoch} of {LENGTH}")
    assert not usable


_WHOLE: dict[str, tuple[Any, ...]] = {}


def of_a_whole(start: Start, folder: Path, training: str) -> tuple[Any, ...]:
    """What a training leaves that never paused."""
    if training not in _WHOLE:
        run = prepare(start, folder / "whole", training)
        assert train(start, folder / "whole")[1] == str(LENGTH)
        _WHOLE[training] = left(run)
    return _WHOLE[training]


def test_ppo_pauses_in_this_process_and_ends_with_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTPUTS", str(tmp_path / "outputs"))
    found = []
    for name, pauses in (("whole", []), ("paused", ["2"])):
        outdir = tmp_path / name
        assert prepare_step.main(arguments(outdir, "ppo", epochs="4", evaluations="2")) == 0
        for until, reached in [*((one, one) for one in pauses), ("", "4")]:
            one = ["--outdir", str(outdir), "--run", "0", f"--until={until}"]
            assert train_step.main(one) == 0
            assert trained_epochs(ExperimentDirectory(outdir).run(0)) == int(reached)
            said = {path.name: path.read_text() for path in (tmp_path / "outputs").iterdir()}
            assert said["reached"] == reached
            assert said["evaluate"] == ("false" if until else "true")
            assert (said["snapshot-parts"] == "[]") == bool(until)
        found.append(left(ExperimentDirectory(outdir).run(0)))
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "training",
    [pytest.param(name, marks=pytest.mark.soak) if name == "qr-dqn" else name for name in OF_ONE],
)
def test_a_training_ends_with_the_bytes_of_one_that_never_paused(
    start: Start, tmp_path: Path, training: str
) -> None:
    whole = of_a_whole(start, tmp_path, training)
    outdir = tmp_path / "x"
    run = prepare(start, outdir, training)
    # Every third epoch has a checkpoint, every second one a row.
    for pause, fault in ((1, ""), (5, ""), (7, "mid_row:1:train.csv")):
        if fault:
            train(start, outdir, pause, fault)
        said, reached = train(start, outdir, pause)
        assert f"paused at epoch {pause} of {LENGTH}" in said and reached == str(pause)
        assert_paused(run, pause)
    assert train(start, outdir, LENGTH + 1)[1] == str(LENGTH)
    assert left(run) == whole


@pytest.mark.slow
@pytest.mark.parametrize("place", ["before_rename:2:checkpoints", "after_rename:2:checkpoints"])
@pytest.mark.parametrize("again", [5, 8, ""])
def test_killed_while_it_saves_at_its_pause(
    start: Start, tmp_path: Path, place: str, again: int | str
) -> None:
    """Then it is asked for the same pause, another one, or none."""
    whole = of_a_whole(start, tmp_path, "ppo")
    outdir = tmp_path / "x"
    run = prepare(start, outdir, "ppo")
    train(start, outdir, 5, place)
    assert status_of(run).state == "running"
    assert train(start, outdir, again)[1] == str(again or LENGTH)
    if again:
        assert_paused(run, int(again))
        train(start, outdir)
    assert left(run) == whole


@pytest.mark.slow
def test_what_is_reached_is_not_trained_again(start: Start, tmp_path: Path) -> None:
    outdir = tmp_path / "x"
    run = prepare(start, outdir, "ppo")
    train(start, outdir, 5)
    before = snapshot(run.root)
    for until in (5, 1):
        said, reached = train(start, outdir, until)
        assert reached == "5" and "nothing to do" in said
    assert snapshot(run.root) == before
    # As after a kill between the checkpoint and the status.
    expected = status_of(run).details
    (run.status / "train.json").unlink()
    said, reached = train(start, outdir, 4)
    assert reached == "5" and "epoch 6" not in said
    assert_paused(run, 5)
    assert without_clock(status_of(run).details) == without_clock(expected)
    # A pause with a damaged checkpoint was never reached.
    newest = run.checkpoint(run.checkpoint_steps()[-1])
    (newest / "tensors.safetensors").write_bytes(b"")
    said, reached = train(start, outdir, 5)
    assert reached == "5" and "from step 192 until epoch 5" in said
    assert train(start, outdir)[1] == str(LENGTH)
    assert train(start, outdir, 3)[1] == str(LENGTH)
    assert left(run) == of_a_whole(start, tmp_path, "ppo")


def without_clock(details: Mapping[str, Any]) -> dict[str, Any]:
    changing = ("wall_s", "steps_per_second", "guard", "resumed_from")
    return {name: value for name, value in details.items() if name not in changing}


def why_ended(path: Path) -> str:
    status = read_status(path)
    assert status is not None
    return str(status.details["ended"])


def members(resolved: Resolved) -> list[list[str]]:
    """The arguments of each process of a training, of the one that answers for it first."""
    if resolved.descriptor.has_workers:
        return [["--role=trainer"], *(["--role=worker", f"--member={one}"] for one in range(2))]
    return [
        *(["--role=learner", f"--member={one}"] for one in range(resolved.actors.learners)),
        *(["--role=actor", f"--member={one}"] for one in range(2)),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("training", OF_SEVERAL)
def test_every_epoch_comes_once_and_all_members_end_well(
    start: Start, tmp_path: Path, training: str
) -> None:
    outdir = tmp_path / "x"
    run = prepare(start, outdir, training, log_interval="1")
    told: list[str] = []
    for until, last, fault in (
        ("5", 5, ""),
        ("7", 7, "after_rename:2:checkpoints"),  # that of the pause, after the scheduled one
        ("", LENGTH, ""),
    ):
        one = ["--outdir", str(outdir), "--run", "0", f"--until={until}"]
        first, *others = members(resolved_of(run))
        environment = {"EXPERIMENT_FAULT": fault} if fault else {}
        answering = start("steps.train", [*one, *first], environment)
        started = [start("steps.train", [*one, *other]) for other in others]
        if fault:
            assert answering.end() == -signal.SIGKILL, answering.text
            answering = start("steps.train", [*one, *first])
        for step in (answering, *started):
            # A further learner may have lost the one that was killed.
            assert step.end() in ((0, 75) if fault else (0,)), step.text
        if until:
            assert_paused(run, last)
            told += list(map(why_ended, run.status.glob("train-actor-*.json")))
        assert status_of(run).details["epoch"] == last
        rows = read_rows(run.train_csv)
        assert [int(row["epoch"]) for row in rows] == list(range(1, last + 1))
    assert status_of(run).state == "succeeded"
    # Those that the learner did not reach any more have read it in its status.
    assert not told or "the learner has all that it needs" in told
    steps = [int(row["step"]) for row in rows]
    assert steps == sorted(set(steps))


def test_a_pause_that_cannot_be_is_refused_in_one_line(
    start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = prepare(start, tmp_path / "x", "ppo")
    before = snapshot(tmp_path / "x")
    for until in ("0", "-1", "half", "1.5"):
        given = ["--outdir", str(run.root.parent.parent), "--run", "0", f"--until={until}"]
        assert train_step.main(given) == 2
        error = capsys.readouterr().err
        assert f"--until cannot be '{until}'" in error and error.count("\n") == 1
    assert snapshot(tmp_path / "x") == before
