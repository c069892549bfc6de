"""An experiment that is submitted again with more: a longer training ends with the bytes of one that
was that long from the start, also if it is killed on its way; other evaluations leave the training
as it is; what cannot be is refused before anything is written."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from config import pipeline
from steps import prepare as prepare_step
from steps.directory.experiment import read_experiment
from steps.directory.layout import ExperimentDirectory, RunDirectory
from steps.directory.usable import usability
from tests.fault.conftest import Start, snapshot
from tests.fault.test_kills_of_algorithms import products

PPO = {
    "game": "cartpole", "num_envs": "2", "rollout_length": "32", "minibatches": "2",
    "update_epochs": "1", "anneal_learning_rate": "false", "anneal_clip": "false",
}  # fmt: skip
OFF_POLICY = {
    "epoch_steps": "100", "learning_starts": "100", "batch_size": "16", "hidden_sizes": "16",
    "train_every": "4",
}  # fmt: skip
TRAININGS = {
    "ppo": ("ppo", PPO),
    # A row covers two epochs, and the shorter training ends in the middle of one.
    "ppo-rows": ("ppo", {**PPO, "log_interval": "2"}),
    "sac": ("sac", {"game": "pendulum", **OFF_POLICY}),
    "dqn": (
        "dqn",
        {
            "game": "cartpole", **OFF_POLICY, "exploration_fraction": "0", "prioritised": "true",
            "importance_exponent": "1", "anneal_learning_rate": "false", "target_every": "100", "updates": "2",
            "log_interval": "3",
        },
    ),
}  # fmt: skip
SHORT, LONG = 5, 11


def arguments(outdir: Path, algorithm: str, given: dict[str, str]) -> list[str]:
    words = [f"-p={name}={value}" for name, value in {**given, "outdir": str(outdir)}.items()]
    return ["--algorithm", algorithm, *words]


def prepare(start: Start, outdir: Path, training: str, **more: str) -> dict[str, str]:
    """The outputs of the step."""
    algorithm, given = TRAININGS[training]
    outputs = outdir.parent / "outputs"
    step = start(
        "steps.prepare",
        arguments(outdir, algorithm, given | more),
        {"OUTPUTS": str(outputs)},
    )
    assert step.end() == 0, step.text
    return {path.name: path.read_text() for path in outputs.iterdir()}


def train(start: Start, outdir: Path, fault: str = "") -> tuple[RunDirectory, str]:
    """The run, and what the step printed; a fault kills it."""
    environment = {"EXPERIMENT_FAULT": fault} if fault else {}
    environment["OUTPUTS"] = str(outdir.parent / "outputs")
    step = start("steps.train", ["--outdir", str(outdir), "--run", "0"], environment)
    assert step.end() == (-signal.SIGKILL if fault else 0), step.text
    return ExperimentDirectory(outdir).run(0), step.text


@pytest.mark.parametrize(
    "training",
    [
        "dqn",
        "ppo-rows",
        pytest.param("ppo", marks=pytest.mark.slow),
        pytest.param("sac", marks=pytest.mark.slow),
    ],
)
def test_a_longer_training_ends_as_one_that_was_that_long(
    start: Start, tmp_path: Path, training: str
) -> None:
    grown, whole = tmp_path / "grown", tmp_path / "whole"
    assert prepare(start, grown, training, epochs=str(SHORT))[pipeline.TRAINED] == ","
    train(start, grown)
    assert prepare(start, grown, training, epochs=str(SHORT))[pipeline.TRAINED] == ",0,"
    assert prepare(start, grown, training, epochs=str(LONG))[pipeline.TRAINED] == ","
    # Killed while it writes a row, before the first checkpoint of its new part, and once later.
    train(start, grown, fault="mid_row:1:train.csv")
    train(start, grown, fault="after_rename:2:checkpoints")
    run, said = train(start, grown)
    assert f"training {LONG} epochs from step" in said
    assert prepare(start, grown, training, epochs=str(LONG))[pipeline.TRAINED] == ",0,"
    prepare(start, whole, training, epochs=str(LONG))
    undisturbed, _ = train(start, whole)
    assert products(run) == products(undisturbed)


def test_a_longer_training_keeps_its_spacing_of_checkpoints(start: Start, tmp_path: Path) -> None:
    outdir = tmp_path / "x"
    prepare(start, outdir, "ppo", epochs="150")
    prepare(start, outdir, "ppo", epochs="5000")
    record = read_experiment(ExperimentDirectory(outdir))
    assert (record.resolved.epochs, record.resolved.checkpoint_interval) == (5000, 2)
    assert record.history[0]["changed"] == {"parameters.experiment.epochs": [150, 5000]}


def test_a_length_in_steps_grows_the_same(start: Start, tmp_path: Path) -> None:
    outdir = tmp_path / "x"
    prepare(start, outdir, "sac", steps="5e2")
    prepare(start, outdir, "sac", steps="1.05e3")
    assert read_experiment(ExperimentDirectory(outdir)).resolved.epochs == 11


def test_another_evaluation_leaves_the_training_as_it_is(start: Start, tmp_path: Path) -> None:
    outdir = tmp_path / "x"
    prepare(start, outdir, "ppo", epochs="2", evaluation_episodes="1")
    run, _ = train(start, outdir)
    evaluate = ["--outdir", str(outdir), "--run", "0"]
    assert start("steps.evaluate", evaluate).end() == 0
    before = snapshot(run.root)
    more = {"evaluation_episodes": "3", "evaluation_policy": "sample", "checkpoint_interval": "1"}
    outputs = prepare(start, outdir, "ppo", epochs="2", **more)
    assert outputs[pipeline.TRAINED] == ",0,"
    _, said = train(start, outdir)
    assert "nothing to do" in said
    assert snapshot(run.root) == before
    assert start("steps.evaluate", evaluate).end() == 0
    after = snapshot(run.root)
    changed = {name for name in after if after[name] != before.get(name)}
    assert "evaluation.csv" in changed
    assert all("evaluat" in name for name in changed), changed
    assert len((run.root / "evaluation.csv").read_text().splitlines()) == 4


@pytest.mark.parametrize(("threshold", "evaluate"), [("", "true"), ("1e6", "false"), ("1", "true")])
def test_another_threshold_decides_again_what_is_evaluated(
    start: Start, tmp_path: Path, threshold: str, evaluate: str
) -> None:
    outdir = tmp_path / "x"
    prepare(start, outdir, "ppo", epochs="2", evaluate_above="1e5")
    train(start, outdir)
    outputs = outdir.parent / "outputs"
    assert (outputs / "evaluate").read_text() == "false"
    before = snapshot(outdir / "runs")
    prepare(start, outdir, "ppo", epochs="2", evaluate_above=threshold)
    run, said = train(start, outdir)
    assert "nothing to do" in said
    assert (outputs / "evaluate").read_text() == evaluate
    assert snapshot(outdir / "runs") == before
    resolved = read_experiment(ExperimentDirectory(outdir)).resolved
    state, reason = {"true": ("unfinished", "evaluate"), "false": ("skipped", "is 1000000")}[
        evaluate
    ]
    usable = usability(run, resolved)
    assert usable.state == state and reason in (usable.reason or "")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"epochs": "1"}, "run 0 is trained for 2; allowed: 2 or more"),
        ({"steps": "64"}, "parameter 'epochs' cannot be 1 in"),
        (
            {"epochs": "4", "anneal_clip": "true"},
            "hyperparameters.anneal_clip: False in the directory, True now",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    start: Start,
    tmp_path: Path,
    more: dict[str, str],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    outdir = tmp_path / "x"
    prepare(start, outdir, "ppo", epochs="2")
    train(start, outdir)
    before = snapshot(outdir)
    code = prepare_step.main(arguments(outdir, *TRAININGS["ppo"][:1], TRAININGS["ppo"][1] | more))
    error = capsys.readouterr().err
    assert code == (4 if "anneal_clip" in more else 2)
    assert said in error and error.count("\n") == 1
    assert snapshot(outdir) == before
