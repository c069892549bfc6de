"""The journal of a search: whatever is killed where, no trial is lost, begun twice or told twice."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from config.errors import BadInput
from config.study import Search, read_study
from config.study.search import SAMPLERS
from steps.directory.search import SearchDirectory
from steps.search import journal as journals
from steps.search.journal import Journal, in_words

FILE = """\
outdir: x
runs: 2
algorithms: [ppo]
games: [cartpole]
parameters: {epochs: 100}
search:
  parameters: {learning_rate: {low: 1e-5, high: 1e-2, scale: log}, gae_lambda: {low: 0.8, high: 1.0, step: 0.02}, update_epochs: {low: 1, high: 16}}
  sampler: SAMPLER
  trials: 6
  parallel: 2
  prune: {rungs: [0.1, 0.3, 1.0], reduction: 3}
"""


def searched(sampler: str = "random") -> Search:
    text = FILE.replace("SAMPLER", sampler)
    if sampler == "grid":
        text = text.replace("learning_rate: {low: 1e-5, high: 1e-2, scale: log}, ", "")
    found = read_study(text, "study.yaml").search
    assert found is not None
    return found


@pytest.fixture
def folder(tmp_path: Path) -> SearchDirectory:
    return SearchDirectory(tmp_path)


def opened(folder: SearchDirectory, sampler: str = "random") -> Journal:
    return Journal(folder, searched(sampler), higher_is_better=True)


def told(journal: Journal, number: int, **ending: Any) -> None:
    journal.tell(number, **{"state": "complete", "value": 1.0, "facts": {}, **ending})


def test_a_lane_that_asks_again_has_the_same_trial(folder: SearchDirectory) -> None:
    first = opened(folder).propose("w", 0)
    assert first == opened(folder).propose("w", 0)
    other = opened(folder).propose("w", 1)
    assert first is not None and other is not None
    assert (first.number, other.number) == (0, 1)
    assert first.values != other.values


def test_killed_between_the_question_and_the_answer(
    folder: SearchDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trial that Optuna has made is continued, with values for what it had none."""

    class Killed(BaseException):
        pass

    def killed(trial: Any, search: Search) -> None:
        trial.suggest_float("learning_rate", 1e-5, 1e-2, log=True)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(journals, "suggest", killed)
        with pytest.raises(Killed):
            opened(folder).propose("w", 0)
    (half,) = opened(folder).trials()
    assert half.lane is None and set(half.values) == {"learning_rate"}
    found = opened(folder).propose("w", 1)
    assert found is not None
    assert (found.number, found.lane) == (0, ("w", 1))
    assert set(found.values) == {"learning_rate", "gae_lambda", "update_epochs"}
    assert found.values["learning_rate"] == half.values["learning_rate"]


def test_trials_of_a_stopped_workflow_are_continued_before_new_ones(
    folder: SearchDirectory,
) -> None:
    before = [opened(folder).propose("stopped", lane) for lane in range(2)]
    told(opened(folder), 0)
    found = [opened(folder).propose("w", lane) for lane in range(2)]
    assert [one and one.number for one in found] == [1, 2]
    assert found[0] and before[1] and found[0].values == before[1].values


def test_a_trial_that_comes_to_no_end_is_given_up(folder: SearchDirectory) -> None:
    """Or its lane would do nothing else."""
    for _ in range(journals.MOST_ATTEMPTS):
        found = opened(folder).propose("w", 0)
        assert found is not None and found.number == 0
    following = opened(folder).propose("w", 0)
    assert following is not None and following.number == 1
    given_up = opened(folder).trial(0)
    assert (given_up.state, given_up.reason) == ("failed", "it came to no end in 5 attempts")


def test_no_more_trials_than_asked_for(folder: SearchDirectory) -> None:
    journal = opened(folder)
    for number in range(6):
        assert journal.propose("w", 0)
        told(journal, number)
    assert journal.propose("w", 0) is None
    assert len(journal.trials()) == 6


def test_a_trial_is_told_once(folder: SearchDirectory) -> None:
    journal = opened(folder)
    journal.propose("w", 0)
    told(journal, 0, value=3.0)
    told(opened(folder), 0, state="failed", value=None, reason="too late")
    (found,) = opened(folder).trials()
    assert (found.state, found.value, found.reason) == ("complete", 3.0, "")


def test_a_verdict_is_given_once(folder: SearchDirectory) -> None:
    """Also where others have come to the rung since then."""
    journal = opened(folder)
    for lane in range(3):
        journal.propose("w", lane)
    assert journal.judge(0, 0, 10, 1.0).promoted
    assert journal.judge(1, 0, 10, 5.0).promoted
    assert not journal.judge(2, 0, 10, 3.0).promoted
    again = opened(folder)
    assert again.judge(0, 0, 10, 99.0).value == 1.0
    assert again.judge(0, 0, 10, 1.0).promoted
    found = again.trial(2)
    assert in_words(found.rungs) == (
        "pruned at rung 1, epoch 10: 3 is place 2 of the 3 that had reached it"
    )
    assert in_words(again.trial(0).rungs) == ""


def test_without_an_episode_nobody_is_judged(folder: SearchDirectory) -> None:
    journal = opened(folder)
    for lane in range(2):
        journal.propose("w", lane)
    journal.judge(0, 0, 10, 5.0)
    assert journal.judge(1, 0, 10, None).promoted
    assert not journal.judge(1, 1, 30, None).of


def test_a_line_that_a_lost_machine_did_not_finish(folder: SearchDirectory) -> None:
    journal = opened(folder)
    journal.propose("w", 0)
    with folder.journal.open("ab") as file:
        file.write(b'{"op_code":8,"wor')
    told(opened(folder), 0)
    assert [one.state for one in opened(folder).trials()] == ["complete"]


@pytest.mark.parametrize("sampler", [one for one in SAMPLERS if one not in ("gp", "cmaes")])
def test_one_lane_proposes_the_same_again(tmp_path: Path, sampler: str) -> None:
    """Each trial by a process of its own, and no two alike."""
    found = []
    for name in ("one", "other"):
        folder = SearchDirectory(tmp_path / name)
        values = []
        for number in range(6):
            trial = opened(folder, sampler).propose("w", 0)
            assert trial is not None and trial.number == number
            told(opened(folder, sampler), number, value=float(number))
            values.append(trial.values)
        found.append(values)
    assert found[0] == found[1]
    assert len({str(values) for values in found[0]}) == 6


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["gp", "cmaes"])
def test_samplers_with_models_of_their_own(folder: SearchDirectory, sampler: str) -> None:
    for number in range(6):
        trial = opened(folder, sampler).propose("w", 0)
        assert trial is not None and set(trial.values) == set(searched().parameters)
        told(opened(folder, sampler), number, value=float(number))


def test_the_best_and_what_mattered(folder: SearchDirectory) -> None:
    journal = Journal(folder, replace(searched(), trials=30), higher_is_better=True)
    assert journal.importances() == {}
    for number in range(30):
        trial = journal.propose("w", 0)
        assert trial is not None
        told(journal, number, value=1000 * trial.values["gae_lambda"])
    best = journal.best(2)
    assert best[0].value == max(one.value or 0 for one in journal.trials())
    importances = journal.importances()
    assert importances["gae_lambda"] > 0.8
    assert importances == journal.importances()


def test_without_the_extra(folder: SearchDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(
        BadInput, match=r"a search needs the extra 'search'.*rl-training-dag\[search\]"
    ):
        opened(folder)
