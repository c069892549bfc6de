"""What a step receives, and how it can say that it was skipped."""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from config.errors import BadInput
from config.pipeline import EVALUATE, TRAIN
from config.resolved import Resolved
from steps.command.stop import StopRequest
from steps.directory import owner
from steps.directory.experiment import ExperimentRecord, read_experiment
from steps.directory.files import open_regular
from steps.directory.layout import ExperimentDirectory, RunDirectory, task_name
from steps.directory.network_storage import longest_wait_s, wait_until_seen
from steps.directory.owner import Fence, fence_path
from steps.directory.status import Status, pause_of, read_status
from steps.directory.usable import usability

ENDED = ("failed", "preempted", "paused")


@dataclass(frozen=True)
class Skipped:
    """Returned by a step that had nothing to do. It ends as `skipped` with exit code 0."""

    reason: str
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Paused:
    """Returned by a training that ended well before its last epoch, because it was asked to. It ends as
    `paused` with exit code 0.
    """

    reason: str
    details: Mapping[str, Any]


@dataclass
class StepContext:
    """The context of one start of one step.

    run_index: None outside of the runs. owner_uid: the workflow's uid, None when run by hand.
    previous: how the last attempt ended, if there was one. inputs: what the result depends on, as
    the step declared it. member: the name of this process if the task has several, see `members`.
    While an attempt runs: attempt is its number from 1, and note writes details into the status
    file at once.
    """

    task: str
    directory: ExperimentDirectory
    run_index: int | None
    owner_uid: str | None
    arguments: argparse.Namespace
    stop: StopRequest
    member: str = ""
    previous: Status | None = None
    inputs: dict[str, Any] | None = None
    attempt: int = 0
    note: Callable[..., None] = field(default=lambda **details: None)

    @cached_property
    def record(self) -> ExperimentRecord:
        """`experiment.yaml`. Raises `BadInput` if `prepare` has not written it."""
        return read_experiment(self.directory)

    @property
    def resolved(self) -> Resolved:
        """The experiment's parameters."""
        return self.record.resolved

    @property
    def run(self) -> RunDirectory:
        """The run's directory. Must not be used by a step that works on the whole experiment."""
        if self.run_index is None:
            raise RuntimeError(f"{self.task} does not belong to one run")
        return self.directory.run(self.run_index)

    @property
    def name(self) -> str:
        """The name of the step's log and status: `train`, `train-actor-3`."""
        return task_name(self.task, self.member)

    @property
    def log_path(self) -> Path:
        """The file with what this step prints."""
        return self._own.logs / f"{self.name}.log"

    @property
    def status_path(self) -> Path:
        """The file in which this step records how it ended."""
        return self._own.status / f"{self.name}.json"

    @cached_property
    def fence(self) -> Fence:
        """The attempt's right to write, claimed when it starts."""
        return Fence(fence_path(self.status_path))

    def require_ours(self) -> None:
        """Raise `WrongDirectory` if another workflow, or a later attempt of this step, writes here
        now.
        """
        if self.owner_uid is not None:
            owner.check(self.directory.owner_json, self.owner_uid)
        self.fence.check()

    @property
    def title(self) -> str:
        """The step in words: `train of run 0`, `average`."""
        return self.name if self.run_index is None else f"{self.name} of run {self.run_index}"

    def stop_requested(self) -> bool:
        """Whether SIGTERM arrived, or another workflow has taken the directory. The step should
        then end soon, by `check_stop`.
        """
        return self.stop.requested

    def check_stop(self) -> None:
        """Raise `Preempted` if a stop was requested."""
        self.stop.check()

    def require(self, path: Path, made_by: str) -> Path:
        """Return a file of an earlier step. Raises `BadInput`, which names the file and the step
        that makes it, or the pause of the run's training.

        If that step has succeeded, or this one runs in a workflow, which starts it after that step, this
        machine's view of the storage may lag behind (NFS): the file is looked for again.
        """
        status = read_status(self._own.status / f"{made_by}.json")
        has_succeeded = status is not None and status.state == "succeeded"
        longest_s = longest_wait_s(path, is_written=has_succeeded)
        end = time.monotonic() + longest_s
        while True:
            # Opening asks the NFS server; `exists` may be answered from this machine's cache.
            try:
                with open_regular(path):
                    return path
            except FileNotFoundError:
                if time.monotonic() >= end:
                    raise BadInput(self._missing(path, made_by)) from None
                self.check_stop()
                time.sleep(longest_s / 50)

    def _missing(self, path: Path, made_by: str) -> str:
        paused = "" if self.run_index is None else pause_of(self.run)
        if paused:
            return f"{paused}, there is no file {path.name} yet"
        return f"no file {path}: {made_by} makes it"

    def wait_for_runs(self) -> None:
        """Wait until every run is usable, paused or has failed. In a workflow they have ended before, but on
        a network file system this machine may see for a limited time what was there earlier.
        """
        if longest_wait_s(self.directory.root, is_written=False):
            with contextlib.suppress(BadInput):
                wait_until_seen(self._require_ended, self.check_stop, "how the runs have ended")

    def _require_ended(self) -> None:
        resolved = self.resolved
        runs = [self.directory.run(index) for index in range(resolved.experiment.runs)]
        unended = [
            run.index for run in runs if not usability(run, resolved) and not self._has_ended(run)
        ]
        if unended:
            raise BadInput(f"runs {', '.join(map(str, unended))} are not finished")

    def _has_ended(self, run: RunDirectory) -> bool:
        """Whether a run that is not usable will not be so in this workflow."""
        statuses = (read_status(run.status / f"{task}.json") for task in (TRAIN, EVALUATE))
        return any(one is not None and one.state in ENDED for one in statuses)

    @property
    def _own(self) -> ExperimentDirectory | RunDirectory:
        return self.directory if self.run_index is None else self.run
