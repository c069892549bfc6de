"""Two learners that learn as one, and two actors, as real processes under the local engine: each of
the learners is killed, and the run comes to its end without ever having gone back."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from steps.directory.layout import ExperimentDirectory
from steps.directory.tables import read_rows
from tests.fault.conftest import assert_counted
from tests.fault.test_actors import (
    ROOT,
    by_hand,
    end_group,
    has_joined,
    has_rows,
    kill,
    prepared,
    start,
    status_of,
)
from tests.waiting import PATIENCE_S, until

EPOCHS, STEPS = 60, 3200
GIVEN = {
    "game": "cartpole", "runs": "1", "actors": "2", "learners": "2", "epochs": str(EPOCHS),
    "envs_per_actor": "4", "evaluation_episodes": "3", "checkpoint_interval": "4",
    "batch_size": "16",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_either_learner_is_killed_and_both_go_on_together(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    directory = ExperimentDirectory(tmp_path / "two")
    run = directory.run(0)
    process = start(directory.root, "impala", GIVEN)
    request.addfinalizer(lambda: end_group(process))
    until(lambda: all(has_joined(run, actor) for actor in (0, 1)), process)
    until(lambda: has_rows(run, more_than=1), process)
    for private in (run.learner_json, run.address_json(1), run.learners_json):
        assert private.stat().st_mode & 0o777 == 0o600
    kill(run, "train-learner-1")
    until(lambda: status_of(run, "train").attempt == 2, process)
    rows = len(read_rows(run.train_csv))
    until(lambda: has_rows(run, more_than=max(rows, 5)), process)
    kill(run, "train")
    until(lambda: status_of(run, "train").attempt == 3, process)
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, output

    names = ("train", "train-learner-1", "train-actor-0", "train-actor-1")
    first, second, *actors = (status_of(run, name) for name in names)
    assert [one.state for one in (first, second, *actors)] == ["succeeded"] * 4
    assert [one.attempt for one in actors] == [1, 1], "they only join again"
    steps = [int(row["step"]) for row in read_rows(run.train_csv)]
    assert (first.attempt, second.details["step"]) == (3, steps[-1])
    log = (run.logs / "train.log").read_text()
    assert "exit 75" in log or "preempted" in log
    assert "the learners have lost each other: " in log and "; continues from step " in log
    generations = [int(one) for one in re.findall(r"learner (\d+) waits for 1 actors", log)]
    assert generations == [1, 2, 3]
    of_the_other = (run.logs / "train-learner-1.log").read_text()
    joined = re.findall(r"learner (\d+) goes on with the others from step (\d+)", of_the_other)
    assert [int(generation) for generation, _ in joined] == [1, 2, 3]
    starts = [int(step) for _, step in joined]
    assert starts == sorted(starts) and starts[0] == 0 < starts[1]
    assert len(steps) == EPOCHS
    assert_counted(steps, STEPS)
    assert len(read_rows(run.root / "evaluation.csv")) == 3
    for private in (run.learner_json, run.address_json(1), run.learners_json):
        assert not private.exists()
    page = directory.report_html.read_text(encoding="utf-8")
    assert "2 of 2 actors joined" in page and "train-learner-1" in page


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_learner_that_waits_in_vain_ends_with_75(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    directory = ExperimentDirectory(tmp_path / "one")
    given = {**GIVEN, "no_data_timeout": "5", "reconnect_timeout": "5"}
    run, one = prepared(directory, given, "impala")
    for member, waited_for in (
        (0, "not all of the 2 learners have come for 5 s"),
        (1, "no learner"),
    ):
        learner = by_hand("train", *one, "--role=learner", "--member", str(member))
        request.addfinalizer(learner.kill)
        output, _ = learner.communicate(timeout=PATIENCE_S)
        assert learner.returncode == 75 and waited_for in output, output
    assert not run.learners_json.exists() and not run.train_csv.exists()
    assert json.loads((run.status / "train-learner-1.json").read_text())["exit_code"] == 75
    refused = by_hand("train", *one, "--role=learner", "--member", "2")
    output, _ = refused.communicate(timeout=PATIENCE_S)
    assert refused.returncode == 2, output
    assert "--member cannot be 2 for the role learner: the experiment has learners=2" in output


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_learner_does_not_wait_for_one_that_has_failed_for_good(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    given = {**GIVEN, "game": "tests.own_games:Catch", "no_data_timeout": "500"}
    run, one = prepared(ExperimentDirectory(tmp_path / "one"), given, "impala")
    first = by_hand("train", *one, "--role=learner", "--member=0")
    request.addfinalizer(first.kill)
    until(run.learners_json.exists, first)
    elsewhere = tmp_path / "machine"  # where the game is not to be had
    (elsewhere / "tests").mkdir(parents=True)
    (elsewhere / "tests/__init__.py").touch()
    path = f"{elsewhere}:{ROOT}"
    second = by_hand("train", *one, "--role=learner", "--member=1", python_path=path)
    request.addfinalizer(second.kill)
    output, _ = second.communicate(timeout=PATIENCE_S)
    assert second.returncode == 2, output
    said, _ = first.communicate(timeout=PATIENCE_S)
    assert first.returncode == 2, said
    assert "train-learner-1 has failed for good: " in said and "tests.own_games" in said
