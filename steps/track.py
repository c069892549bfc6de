"""Send the results of an experiment to the trackers that `-p track=…` names:
`python -m steps.track --outdir results/cartpole [--run 0]`.

With `--run` it follows the training of one run, from a pod beside it, and ends when that has ended.
Without, it is `steps.track_rest`: it sends what is left of every run, and may be repeated by hand at any
time. A row that has arrived is not sent again.

Nothing of an experiment depends on it: what a tracker does not take is kept, with one line in the log.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from config.ending import end
from config.errors import NEVER_RETRIED
from config.pipeline import TRACK, TRAIN
from steps import track_rest
from steps.command.context import Skipped, StepContext
from steps.command.main import run_step
from steps.directory import owner, processes
from steps.directory.experiment import training_inputs
from steps.directory.status import Status, read_status
from steps.tracking.of_step import NOT_ASKED, inputs, is_complete, senders_of, told, trackers_of
from steps.tracking.passes import BESIDE_TRAINING, deliver

QUIET_S = 1800.0
"""A training that has started and gives no sign of life for so long is not waited for."""
LOOK_S = 1.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the step and return its exit code."""
    words = sys.argv[1:] if argv is None else argv
    of_run = any(word.partition("=")[0] == "--run" for word in words)
    if words and not of_run and "--help" not in words and "-h" not in words:
        return track_rest.main(words)
    return run_step(TRACK, track, inputs=inputs, complete=is_complete, arguments=_usage, argv=words)


def _usage(parser: argparse.ArgumentParser) -> None:
    """Say that `--run` may be left out, which the parser of a run's step does not know."""
    parser.usage = f"{parser.prog} [-h] --outdir OUTDIR [--run RUN]"


def track(context: StepContext) -> Mapping[str, Any] | Skipped:
    """Follow the training of one run and send its curves to the trackers of the experiment. Without
    --run, send what is left of every run.

    Rows are sent as soon as a checkpoint holds them, because until then a kill may change them.
    """
    trackers = trackers_of(context)
    if not trackers:
        return Skipped(NOT_ASKED)
    senders = {tracker: senders_of(context, tracker) for tracker in trackers}
    has_ended = _Training(context).has_ended
    return told(deliver(senders, has_ended, context.check_stop, BESIDE_TRAINING))


class _Training:
    """The training that is followed: whether it has ended, for this workflow."""

    def __init__(self, context: StepContext) -> None:
        self._context = context
        self._inputs = training_inputs(context.record)
        self._path = context.run.status / f"{TRAIN}.json"
        self._sign: object = None
        self._since_s = time.monotonic()
        self._looked_s = 0.0
        self._ended = False

    def has_ended(self) -> bool:
        """Whether no row will come any more. Looks once a second."""
        if not self._ended and time.monotonic() - self._looked_s >= LOOK_S:
            self._ended = self._look()
            self._looked_s = time.monotonic()
        return self._ended

    def _look(self) -> bool:
        status = read_status(self._path)
        uid = self._context.owner_uid
        if uid is None:
            running = status is not None and status.state == "running"
            return not running or processes.is_alive(status.process) is False  # type: ignore[union-attr]
        if status is None:
            return False
        ours = status.details.get("workflow") == uid
        if status.ended_well:
            return ours or status.inputs == self._inputs
        if ours and status.state == "failed" and status.exit_code in NEVER_RETRIED:
            return True
        return self._is_quiet(status)

    def _is_quiet(self, status: Status) -> bool:
        sign = (status.state, status.attempt, owner.sign_of_life(owner.fence_path(self._path)))
        if sign != self._sign:
            self._sign = sign
            self._since_s = time.monotonic()
        return time.monotonic() - self._since_s > QUIET_S


if __name__ == "__main__":
    end(main())
