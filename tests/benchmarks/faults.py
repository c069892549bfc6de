"""What goes wrong around a learner, measured: an actor that is killed, and a learner that is too slow."""

from __future__ import annotations

import time
from multiprocessing.process import BaseProcess

import psutil

from tests.benchmarks.together import experiment, together

GAME = "breakout"
SLOWER = 10
WARM_S = 10.0
"""Until all buffers were written to: a queue of Breakout's unrolls has many."""


def killing(actors: int, environments: int, seconds: float) -> float:
    """The rate of central inference after one actor's death, by that before."""
    with together(experiment(GAME, environments, inference="learner"), actors) as one:
        one.take(1.0)
        before = one.take(seconds)
        one.members[0].kill()
        one.members[0].join()
        after = one.take(seconds)  # the time in which its end is noticed belongs to it
    print(
        f"{before.a_second:,.0f} steps/s with {actors} actors, {after.a_second:,.0f} with one less"
    )
    return after.a_second / before.a_second


def memory(actors: int, environments: int, seconds: float) -> float:
    """What the learner's memory was once it was warm, by what it is at the end, or the same of its
    actors; the learner waits after each batch for 9 times as long as one took to come.
    """
    resolved = experiment(GAME, environments, inference="learner")
    with together(resolved, actors) as one:
        batch = one.trainer.hyper.batch_size * one.trainer.hyper.unroll_length
        pause_s = (SLOWER - 1) * batch / one.take(WARM_S).a_second
        one.take(WARM_S, pause_s)
        before = _resident_bytes(one.members)
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            one.take(min(seconds, WARM_S), pause_s)
        after = _resident_bytes(one.members)
        refused = one.server.traffic().refused
    print(
        f"{1e-6 * before[0]:.0f} MB of the learner and {1e-6 * before[1]:.0f} of its actors, after "
        f"{seconds:.0f} s {1e-6 * after[0]:.0f} and {1e-6 * after[1]:.0f}; refused: {dict(refused)}"
    )
    return min(old / new for old, new in zip(before, after, strict=True))


def _resident_bytes(members: list[BaseProcess]) -> tuple[int, int]:
    """Of this process, and of all actors."""
    own = psutil.Process().memory_info().rss
    return own, sum(psutil.Process(member.pid).memory_info().rss for member in members)
