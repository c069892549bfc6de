"""A row of failures or kills ends; preemptions, another workflow and a person's repeat do not count."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from config.errors import NoProgress
from config.pipeline import EARLIER_JOBS
from steps.command.repeats import MOST_FAILURES, MOST_KILLS, repeats_after
from steps.command.stop import BEGINS_ANEW
from steps.directory import owner
from steps.directory.status import State, Status, read_status, write_status
from tests.unit.steps.command.test_command_main import run, status

OURS = {"EXPERIMENT_OWNER": "uid", "EXPERIMENT_WORKFLOW": "ppo-x"}


def earlier(
    state: State, exit_code: int | None = None, *, failures: int = 0, kills: int = 0
) -> Status:
    return Status(
        task="average",
        state=state,
        started="before",
        exit_code=exit_code,
        owner="uid",
        failures=failures,
        kills=kills,
    )


@pytest.mark.parametrize(
    "previous, failures, kills",
    [
        (None, 0, 0),
        (earlier("failed", 1, failures=3, kills=2), 3, 0),
        (earlier("running", failures=3, kills=2), 3, 3),
        (earlier("preempted", 75, failures=3, kills=2), 3, 0),
        (earlier("succeeded", 0, failures=3, kills=2), 0, 0),
        (earlier("failed", 3, failures=7), 0, 0),
        (earlier("failed", 2, failures=3), 0, 0),
    ],
)
def test_what_an_attempt_counts(previous: Status | None, failures: int, kills: int) -> None:
    found = repeats_after(previous, "average", "uid")
    assert (found.failures, found.kills) == (failures, kills)


def test_another_workflow_counts_anew_and_by_hand_nothing_ends() -> None:
    previous = earlier("running", failures=MOST_FAILURES - 1, kills=MOST_KILLS)
    assert repeats_after(previous, "average", "other").kills == 0
    repeats_after(earlier("running", kills=99), "train", "uid").refuse_another()
    by_hand = repeats_after(None, "average", None)
    assert not by_hand.after_failure().failed_too_often
    with pytest.raises(NoProgress, match=f"killed {MOST_KILLS + 1} times in a row"):
        repeats_after(previous, "average", "uid").refuse_another()


def seeded(outdir: Path, previous: Status) -> None:
    owner.claim(outdir / "owner.json", owner.Owner(uid="uid", workflow="ppo-x"))
    (outdir / "status").mkdir()
    write_status(outdir / "status" / "average.json", previous)


def test_the_last_failure_of_a_row_is_not_retried(tmp_path: Path) -> None:
    seeded(tmp_path, earlier("failed", 1, failures=MOST_FAILURES - 2))
    assert run(tmp_path, "bug", **OURS)[0] == 1
    assert run(tmp_path, "Preempted", **OURS)[0] == 75
    code, _, err = run(tmp_path, "bug", **OURS)
    assert code == 3
    assert err == (
        "average: failed: ZeroDivisionError: two lines; failed 7 times in a row: not repeated\n"
    )
    assert run(tmp_path, "nothing", **OURS)[0] == 0
    assert status(tmp_path).failures == 0


def test_a_step_that_was_killed_too_often_ends(tmp_path: Path) -> None:
    seeded(tmp_path, earlier("running", kills=MOST_KILLS - 2))
    run(tmp_path, "crash", **OURS)
    assert status(tmp_path).kills == MOST_KILLS - 1
    code, _, err = run(tmp_path, "nothing", **OURS)
    assert (code, "killed 30 times in a row" in err) == (3, True)
    assert run(tmp_path, "nothing", **OURS)[0] == 0, "a person asked for it again"
    found = read_status(tmp_path / "status" / "average.json")
    assert found is not None
    assert found.kills == 0


def test_what_two_whole_jobs_were_too_short_for_is_not_begun_a_third_time(tmp_path: Path) -> None:
    seeded(tmp_path, replace(earlier("preempted", 75), reason=BEGINS_ANEW))
    code, _, err = run(tmp_path, "nothing", **OURS, **{EARLIER_JOBS: "2"})
    assert (code, "2 jobs in a row ended at their time limit" in err) == (3, True)


def test_a_step_that_goes_on_may_use_any_number_of_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(EARLIER_JOBS, "9")
    goes_on = replace(earlier("preempted", 75), reason="preempted at step 7, continues from 7")
    assert repeats_after(goes_on, "average", "uid").jobs == 0
    anew = replace(goes_on, reason=f"{BEGINS_ANEW} (ended in the middle)")
    assert repeats_after(anew, "average", "uid").jobs == 9
    assert repeats_after(anew, "average", None).at_most is False
