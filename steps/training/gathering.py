"""Brings the learners of a run together if it has several.

The first learner writes its address to the run's directory, and the others read it. When one of
them ends, the whole group ends; each is restarted, and they meet again in the first one's next
generation.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from agents.distributed.protocol import LearnsTogether, PeersLost
from agents.transport.group import Group, Meeting, Place, place_to_text, take_part
from config.actors import ActorSettings
from config.errors import BadInput, Diverged, ExperimentError, Incomplete, Preempted, WrongDirectory
from config.pipeline import TRAIN
from config.resolved import Resolved
from steps.command.context import StepContext
from steps.directory.layout import task_name
from steps.directory.status import read_status
from steps.training.meeting import POLL_S, Finding, failed_for_good, there
from steps.training.serving import own_host

if TYPE_CHECKING:
    from agents.distributed.protocol import Learner

LEARNER = ActorSettings.roles[0]
LATE_S = 60.0
"""A learner without experience may report this much earlier than those that wait for it."""
LOOK_S = 2.0
FOR_GOOD: Mapping[int | None, type[ExperimentError]] = {
    kind.exit_code: kind for kind in (BadInput, Diverged, WrongDirectory, Incomplete)
}
"""Errors of another learner that end the first one with the same exit code."""


def gather(
    opened: contextlib.ExitStack,
    context: StepContext,
    resolved: Resolved,
    learner: Learner,
    generation: int,
) -> Group | None:
    """As the first learner: wait for the others, unless it is alone or nothing is left to learn. The
    group that they then are lasts until `opened` ends. Raises `Preempted` if they do not come, and the error of
    one that never will.
    """
    count = resolved.actors.learners
    longest_s = resolved.actors.no_data_timeout
    if count == 1 or learner.epoch >= resolved.epochs:
        return None
    end = time.monotonic() + longest_s
    check_others = _until_one_has_failed(context, count)

    def wait_for_them() -> None:
        context.check_stop()
        check_others()
        if group is None and time.monotonic() > end:
            raise Preempted(f"not all of the {count} learners have come for {longest_s} s")

    # Assigned below; `wait_for_them` looks at it to know whether all have come.
    group: Group | None = None
    meeting = Meeting(own_host(), generation)
    opened.enter_context(there(context, context.run.learners_json, place_to_text(meeting.place)))
    print(f"learner {generation} waits for {count - 1} others")
    try:
        group = meeting.gather(count, longest_s + LATE_S, wait_for_them)
        _learn_with(learner, opened.enter_context(contextlib.closing(group)))
        return group
    except PeersLost as lost:
        raise Preempted(str(lost)) from None


def _until_one_has_failed(context: StepContext, count: int) -> Callable[[], None]:
    """A check for the first learner while it waits: whether one of the others will not be
    restarted.
    """
    names = [task_name(TRAIN, f"{LEARNER}-{number}") for number in range(1, count)]
    paths = {name: context.run.status / f"{name}.json" for name in names}
    before = {name: read_status(path) for name, path in paths.items()}
    looked_s = time.monotonic()

    def check() -> None:
        nonlocal looked_s
        if time.monotonic() - looked_s < LOOK_S:
            return
        looked_s = time.monotonic()
        for name, path in paths.items():
            status = read_status(path)
            if status is not None and failed_for_good(context, status, before[name]):
                kind = FOR_GOOD.get(status.exit_code, ExperimentError)
                raise kind(f"{name} has failed for good: {status.reason}")

    return check


def join(
    opened: contextlib.ExitStack,
    resolved: Resolved,
    learner: Learner,
    finding: Finding[Place],
    number: int,
) -> tuple[int, Group]:
    """As a further learner: meet the first one and receive its weights. Returns its generation, and the
    group. Raises `Preempted` if it does not come, and what `finding` raises.
    """
    patience_s = resolved.actors.reconnect_timeout
    longest_s = resolved.actors.no_data_timeout + LATE_S
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        place = finding.find()
        group = None if place is None else take_part(
            place, number, resolved.actors.learners, host=own_host(), longest_s=longest_s,
            wait=_until_another_leads(finding, place, end),
        )  # fmt: skip
        if place is not None and group is not None:
            group.wait = _until_another_leads(finding, place, None)
            _learn_with(learner, opened.enter_context(contextlib.closing(group)))
            return place.generation, group
        time.sleep(POLL_S)
    raise Preempted(f"the first learner was not to be met for {patience_s} s")


def _until_another_leads(
    finding: Finding[Place], place: Place, end: float | None
) -> Callable[[], None]:
    """A check for learners that wait for the first one: whether its place was taken over by a newer
    start.
    """
    looked_s = time.monotonic()

    def wait() -> None:
        nonlocal looked_s
        finding.check_stop()
        if end is not None and time.monotonic() > end:
            raise Preempted("the first learner waits for others")
        if time.monotonic() - looked_s > LOOK_S:
            looked_s = time.monotonic()
            found = finding.find()
            if found is not None and found.generation > place.generation:
                raise PeersLost("the first learner was started again")

    return wait


def _learn_with(learner: Learner, group: Group) -> None:
    if not isinstance(learner, LearnsTogether):
        raise TypeError(f"{type(learner).__name__} learns alone")
    learner.learn_with(group)
