"""How often a step was repeated in a row, and when it must not be repeated again.

Kubernetes takes pods away as often as it likes, and Argo counts each time as a retry. So Argo's limits
are large, and the step itself ends a row of failures that are its own, with exit code 3, which Argo
never retries. The counts stand in the status file. Another workflow counts anew, and so does a repeat
after exit code 3, which a person asked for. A preemption (SIGTERM, exit 75) never counts. Where a batch
system limits the time of a job, what did not end in two whole jobs and begins anew in each is not begun
a third time.

Members of a training are left out: `steps.training.training_attempt` knows whether they make
progress.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from config.errors import NoProgress
from config.pipeline import EARLIER_JOBS, TRAIN
from steps.command.stop import BEGINS_ANEW
from steps.directory.status import Status

MOST_FAILURES = 7
"""An error that has come this often in a row comes again."""
MOST_KILLS = 30
"""A killed attempt does not say why: its node may have vanished, or its memory run out."""
MOST_JOBS = 2
"""What so many whole jobs were too short for, is too long for the next one."""
COUNTED_EXIT_CODE = 1
"""All other codes of failures are final already."""


@dataclass(frozen=True, kw_only=True)
class Repeats:
    """The attempts before the present one. failures, kills: how many of them in a row failed, and were
    killed before they could say why. jobs: how many were ended by the time limit of their job and kept
    nothing. at_most: whether these counts have a limit.
    """

    failures: int = 0
    kills: int = 0
    jobs: int = 0
    at_most: bool = True

    def refuse_another(self) -> None:
        """Raise `NoProgress` if the step was killed too often, or needs longer than a job may take."""
        if self.at_most and self.kills >= MOST_KILLS:
            raise NoProgress(
                f"killed {self.kills} times in a row without a reason; "
                "perhaps its memory limit is too small: not repeated"
            )

        if self.at_most and self.jobs >= MOST_JOBS:
            raise NoProgress(
                f"{self.jobs} jobs in a row ended at their time limit before this step was done, and it "
                "begins anew in each: not repeated; allowed: a longer time limit"
            )

    def after_failure(self) -> Repeats:
        """The counts with one more failure."""
        return replace(self, failures=self.failures + 1)

    @property
    def failed_too_often(self) -> bool:
        """Whether the last failure is the last one of its row."""
        return self.at_most and self.failures >= MOST_FAILURES


def repeats_after(previous: Status | None, task: str, owner: str | None) -> Repeats:
    """The counts with which an attempt begins. owner: its workflow's uid; None by hand, where a person
    decides about each repeat.
    """
    fresh = Repeats(at_most=task != TRAIN and owner is not None)
    if previous is None or previous.owner != owner or previous.exit_code == NoProgress.exit_code:
        return fresh
    if previous.state == "running":
        return replace(fresh, failures=previous.failures, kills=previous.kills + 1)
    if previous.state == "preempted":
        is_anew = (previous.reason or "").startswith(BEGINS_ANEW)
        jobs = int(os.environ.get(EARLIER_JOBS, "0")) if is_anew else 0
        return replace(fresh, failures=previous.failures, jobs=jobs)
    if previous.exit_code == COUNTED_EXIT_CODE:
        return replace(fresh, failures=previous.failures)
    return fresh
