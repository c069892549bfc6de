"""A worker of self-play: it plays with the newest network in the run's directory until the training
has ended. Only the games that it has sent are kept; a restarted worker begins new ones.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from config.errors import BadInput, NoUsableState, Preempted
from steps.command.context import StepContext
from steps.directory import checkpoints, self_play
from steps.training.meeting import Ended, Ending
from steps.training.shards import Outlet

if TYPE_CHECKING:
    from agents.interfaces import State
    from agents.selfplay.roles import Published

POLL_S = 0.5


def play(context: StepContext) -> dict[str, Any]:
    """Play until the training has ended, successfully or not. Returns why there is nothing left to
    do.

    Raises `Preempted` after a SIGTERM, or if there was no trainer for `reconnect_timeout`.
    """
    os.environ["OMP_NUM_THREADS"] = str(context.resolved.experiment.threads)
    from agents.load import load_policy

    context.stop.describe = lambda: "preempted, begins new games when it is started again"
    context.check_stop()
    before = context.previous.details if context.previous else {}
    context.note(joined=bool(before.get("joined")))  # once is often enough for the report
    newest = NewestNetwork(context, functools.partial(load_policy, context.resolved))
    said: dict[str, Any] = {}
    try:
        newest.wait(context.resolved.workers.reconnect_timeout)
        _play(context, newest, said)
    except Ended as ended:
        said["ended"] = str(ended)
    return said


def _play(context: StepContext, newest: NewestNetwork, said: dict[str, Any]) -> None:
    """Play. said: the details for the status, also if an exception ends this."""
    from agents.load import make_worker
    from steps.training.resources import of_member

    worker = make_worker(
        context.resolved, run=context.run_index or 0, member=int(context.arguments.member),
        attempt=context.attempt,
    )  # fmt: skip
    outlet = Outlet(context, newest.ending.check)
    ending = newest.ending
    path = context.run.member_resources_csv(context.member)
    with contextlib.ExitStack() as opened:
        playing = opened.enter_context(contextlib.closing(worker.play(newest)))
        sampler, done = of_member(path, permitted=context.require_ours)
        opened.enter_context(contextlib.closing(sampler))
        looked_s = time.monotonic()
        for ended in playing:
            outlet.add(ended)
            said.update(step=done + outlet.positions, waited_s=round(outlet.waited_s, 3))
            if outlet.positions and not said.get("joined"):
                said["joined"] = True
                context.note(joined=True)
            sampler.at(done + outlet.positions)
            ending.check_stop()
            if time.monotonic() - looked_s >= POLL_S:
                ending.check()
                looked_s = time.monotonic()


class NewestNetwork:
    """The newest network in the run's directory: an `agents.selfplay.roles.Newest`.

    load: what a worker makes of a network's state. One of which it can make nothing is not played by.
    """

    def __init__(self, context: StepContext, load: Callable[[State], object]) -> None:
        self.ending = Ending(context)
        self._run = context.run
        self._load = load
        self._name: tuple[int, bytes] | None = None
        self._first: Published | None = None

    def __call__(self) -> Published | None:
        """The newest network that was not given before, if there is one. One that cannot be used, or
        is just being replaced, does not count.
        """
        if self._first is not None:
            first = self._first
            self._first = None
            return first
        return self._newer()

    def wait(self, longest_s: float) -> None:
        """Wait until there is a network to play by, which the next call gives. Raises `Ended`, and
        `Preempted` after a SIGTERM or a time limit.
        """
        end = time.monotonic() + longest_s
        while (first := self._first or self._newer()) is None:
            self.ending.check()
            if time.monotonic() >= end:
                raise Preempted(
                    f"no network for {longest_s:g} s: there is none to play by in {self._run.networks}"
                )
            time.sleep(POLL_S)
        self._first = first
        self.ending.check()

    def _newer(self) -> Published | None:
        from agents.selfplay.roles import Published

        listed = self._run.generations()
        if not listed:
            return None
        newest = listed[-1]
        # The number alone does not name a network: a trainer that went back to its checkpoint
        # writes the same generation again, with other weights.
        manifest = self_play.manifest_of(self._run, newest)
        if manifest is None or self._name == (newest, manifest):
            return None
        try:
            state = self_play.read_generation(self._run, newest)
        except BadInput:
            # It may be complete the next time.
            return None
        self._name = (newest, manifest)
        try:
            with checkpoints.fitting(self._run.network(newest), "the next one is waited for"):
                self._load(state)
        except NoUsableState as error:
            print(error, flush=True)
            return None
        return Published(newest, state)
