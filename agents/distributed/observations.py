"""What travels where the learner acts (`inference=learner`): observations one way, actions the
other. Actors hold no policy then, and unrolls are made where the policy is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from agents.distributed.interfaces import Columns, Join, Joined, Receiver, Spec, Specs


@dataclass(slots=True, kw_only=True)
class Observations:
    """What a group of an actor's n environments shows, and what it answered to the last actions.

    tick: rises with every message of an incarnation; columns [n, ...]: `observation`, `begins`,
    `valid`, and `mask` where there are some, of the row that begins; `reward` and `terminated` of
    the one before, and whether its episode was `truncated`: of no meaning in an actor's first
    message. final [k, ...]: the observations with which those k were truncated; returns, lengths:
    of the episodes that ended in that step.
    """

    tick: int
    group: int
    columns: Columns
    final: np.ndarray
    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Actions:
    """The answer: actions [n] or [n, A] in the policy's own units, None with stop (nothing is left
    to train) and with what was refused, which is said in one line.
    """

    tick: int
    group: int
    actions: np.ndarray | None = None
    stop: bool = False
    refused: str = ""


Answer = Callable[[Actions], object]
"""Brings actions on their way, and never waits."""


@runtime_checkable
class Answering(Protocol):
    """What a `Receiver` has as well where the learner acts; called by many threads at once.

    shown: of one environment, the columns of `Observations`; empty: actors act by themselves.
    """

    shown: Specs

    def open(self, incarnation: int, answer: Answer) -> Any:
        """A stream of an actor that has joined begins: what the next two are called with."""

    def observe(self, stream: Any, observations: Observations) -> None:
        """One message, by one thread for each stream; its actions come later, by another one.

        Blocks while the queue has no place for the unrolls that end with it, which withholds the
        actions of these environments. Raises `Refused` with 3 for what cannot be learnt from.
        """

    def leave(self, stream: Any) -> None:
        """It has ended: what is remembered of its episodes goes, and its unfinished unrolls."""


class AnsweringReceiver(Receiver, Answering, Protocol):
    """The learner's side where it acts; `agents.distributed.central.CentralInference`."""


class ObservingLink(Protocol):
    """The actor's side; a `Link` for observations. It reconnects by itself, and sends again then
    what was not answered.
    """

    def join(self, request: Join) -> Joined:
        """As of a `Link`."""

    def observe(self, observations: Observations) -> None:
        """Hand over. Raises `Rejoin` after another learner took over."""

    def actions(self) -> Actions:
        """The next answer, of whatever group; waits for it. Raises as `observe` does, and `Refused`
        with 3 after the learner has refused what was shown.
        """

    def close(self) -> None:
        """End the connection."""


def shown_specs(rows: Specs) -> dict[str, Spec]:
    """The columns of `Observations` in environments whose rows have these."""
    return {name: spec for name, spec in rows.items() if name != "action"} | {
        "truncated": Spec("bool", ())
    }
