"""What can happen between a learner and its actors, as real processes with their exit codes: the
table in docs/faults.md (`cases.md` names every test of it)."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from steps.directory.layout import ExperimentDirectory, RunDirectory
from steps.directory.tables import read_rows
from tests.fault.conftest import Start, Step

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
SMALL = {
    "game": "tests.odd_games:Odd", "epochs": "1000000", "checkpoint_interval": "5", "actors": "2",
    "envs_per_actor": "1", "unroll_length": "5", "batch_size": "2", "epoch_updates": "4",
    "hidden_sizes": "8", "normalise_observations": "false", "vectorisation": "sync",
    "max_lag": "1000000", "anneal_learning_rate": "false",
}  # fmt: skip
OWNER = {"EXPERIMENT_OWNER": "uid", "EXPERIMENT_WORKFLOW": "impala-x"}
LONGEST_S = 240.0


class Run:
    """The first run of a small experiment."""

    def __init__(
        self, start: Start, outdir: Path, environment: dict[str, str] | None = None, **given: str
    ) -> None:
        self._start, self._environment = start, environment or {}
        values = SMALL | given | {"outdir": str(outdir)}
        words = [word for name, value in values.items() for word in ("-p", f"{name}={value}")]
        step = start("steps.prepare", ["--algorithm", "impala", *words], self._environment)
        assert step.end() == 0, step.text
        self.files: RunDirectory = ExperimentDirectory(outdir).run(0)
        self._run = ["--outdir", str(outdir), "--run", "0"]

    def learner(self, **options: Any) -> Step:
        return self._start("steps.train", self._run, self._environment, **options)

    def actor(self, member: int, odd: str = "", **options: Any) -> Step:
        words = [*self._run, "--role", "actor", "--member", str(member)]
        return self._start("steps.train", words, self._environment | {"ODD": odd}, **options)

    def rows(self, file: str = "train.csv") -> list[dict[str, str]]:
        path = self.files.root / file
        return read_rows(path) if path.exists() else []

    def goes_on(self, learner: Step, epochs: int = 5) -> None:
        """Wait for so many more."""
        reached = len(self.rows())
        learner.wait_for(lambda: len(self.rows()) >= reached + epochs, LONGEST_S)


def stop(*steps: Step) -> None:
    """As Argo does; each ends as preempted."""
    for step in steps:
        step.kill(signal.SIGTERM)
    for step in steps:
        assert step.end() == 75, step.text


def test_an_actor_whose_learner_does_not_come_back_exits_with_75(
    start: Start, tmp_path: Path
) -> None:
    run = Run(start, tmp_path / "x", reconnect_timeout="2")
    alone = run.actor(1)
    assert alone.end() == 75 and "no learner for 2 s" in alone.text, alone.text
    learner, actor = run.learner(), run.actor(0)
    run.goes_on(learner)
    learner.kill()
    assert actor.end() == 75, actor.text
    assert "Connection refused" in actor.text


def test_a_straggler_is_not_waited_for_and_its_lag_is_told(start: Start, tmp_path: Path) -> None:
    """An actor stands still in the middle of an unroll; the other one's are enough for a batch. What it
    sends afterwards is by weights that are as old as it stood still."""
    run = Run(start, tmp_path / "x")
    learner, actor, straggler = run.learner(), run.actor(0), run.actor(1)
    learner.wait_for(lambda: _connected(run) == ["2"], LONGEST_S)
    run.goes_on(learner, 20)
    straggler.kill(signal.SIGSTOP)
    run.goes_on(learner, 3)  # what was under way is learnt
    before = len(run.rows())
    run.goes_on(learner, 60)
    missed = 4 * (len(run.rows()) - before)
    usual = max(float(row["policy_lag_max"]) for row in run.rows()[before:])
    straggler.kill(signal.SIGCONT)

    def lags() -> list[float]:
        return [float(row["policy_lag_max"]) for row in run.rows()[before:]]

    assert usual < missed, "or the others had waited"
    learner.wait_for(lambda: max(lags()) >= missed, LONGEST_S)
    stop(learner, actor, straggler)


@pytest.mark.parametrize("stopped", [False, True], ids=["alive", "stopped and woken"])
def test_of_two_learners_of_one_run_the_older_ends_with_4_and_actors_follow_the_other(
    start: Start, tmp_path: Path, stopped: bool
) -> None:
    run = Run(start, tmp_path / "x", OWNER)
    first, actor = run.learner(hostname="node1"), run.actor(0, hostname="node3")
    run.goes_on(first)
    if stopped:
        first.kill(signal.SIGSTOP)
    second = run.learner(hostname="node2")
    second.wait_for(lambda: "learner 2 waits for 2 actors" in second.text, LONGEST_S)
    address = run.files.learner_json.read_bytes()
    other = run.actor(1, hostname="node4")
    if stopped:
        run.goes_on(second)
        first.kill(signal.SIGCONT)
    assert first.end() == 4, first.text
    assert "another attempt" in first.text
    assert run.files.learner_json.read_bytes() == address, "the older one took it away"
    second.wait_for(lambda: _connected(run) == ["2"], LONGEST_S)
    run.goes_on(second)
    stop(second, actor, other)
    told = [int(row["epoch"]) for row in run.rows()]
    assert told == list(range(1, len(told) + 1))


def test_what_does_not_belong_here_is_refused_with_its_exit_code_and_nobody_else_notices(
    start: Start, tmp_path: Path
) -> None:
    run = Run(start, tmp_path / "x")
    learner, actor = run.learner(), run.actor(0)
    run.goes_on(learner)
    for odd, code, why in (("nan", 3, "reward"), ("shape", 2, "refused by the learner")):
        one = run.actor(1, odd)
        assert one.end() == code, one.text
        assert why in one.text
    other = Run(start, tmp_path / "other", learning_rate="0.25")
    other.files.root.mkdir(parents=True, exist_ok=True)
    shutil.copy(run.files.learner_json, other.files.learner_json)
    stranger = other.actor(0)
    assert stranger.end() == 2, stranger.text
    assert "refused by the learner" in stranger.text
    run.goes_on(learner)
    stop(learner, actor)
    finite = [float(row["return_mean"]) for row in run.rows() if row["return_mean"]]
    assert finite and set(finite) == {10.0}


def _connected(run: Run) -> list[str]:
    """How many actors the learner has, as it said last."""
    return [row["actors"] for row in run.rows("resources.csv")[-1:]]
