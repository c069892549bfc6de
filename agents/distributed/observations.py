"""Messages and checks for `inference=learner`: actors send observations, the learner answers with
actions. Actors hold no policy then, and the learner assembles the unrolls. Also the checks of
everything that actors send, unrolls included.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from agents.distributed.protocol import Columns, Join, Joined, Receiver, Spec, Specs
from agents.environments.masks import check_some_action
from config.errors import Diverged


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
    """The additional methods of a `Receiver` if the learner acts. Many threads call them at once.

    shown: the columns of `Observations` for one environment; empty if actors act by themselves.
    """

    shown: Specs

    def open(self, incarnation: int, answer: Answer) -> Any:
        """A stream of an actor that has joined begins: what the next two are called with."""

    def observe(self, stream: Any, observations: Observations) -> None:
        """Handle one message, called by one thread for each stream. Its actions are sent later by
        another thread.

        Blocks while the queue has no room for the unrolls that end with the message, which delays
        the actions of these environments. Raises `Refused` with 3 for what cannot be learnt from.
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
        """See `Link.join`."""

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
    shown = {name: spec for name, spec in rows.items() if name != "action"}
    return {**shown, "truncated": Spec("bool", ())}


def wrong_columns(columns: Columns, specs: Specs) -> str:
    """Columns [n, *spec.shape] that are not exactly those of `specs`, have not one n of at least 1
    in common, or hold numbers that are not finite.
    """
    if set(columns) != set(specs):
        return f"its columns are {sorted(columns)}, not {sorted(specs)}"
    count = len(next(iter(columns.values())))
    if not count:
        return "it has no rows"
    found = (wrong_array(name, columns[name], spec, count) for name, spec in specs.items())
    return next(filter(None, found), "")


def wrong_array(name: str, array: np.ndarray, spec: Spec, count: int) -> str:
    """The name of an array that does not have the shape [count, *spec.shape] or contains numbers
    that are not finite.
    """
    shape = (count, *spec.shape)
    if array.dtype != spec.dtype or array.shape != shape:
        return f"{name} is {array.dtype} {array.shape}, not {spec.dtype} {shape}"
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        return f"{name} has numbers that are not finite"
    return ""


def wrong_episodes(returns: Sequence[float], lengths: Sequence[int]) -> str:
    """Returns and lengths of episodes that cannot have been."""
    if len(returns) != len(lengths):
        return f"{len(returns)} returns have {len(lengths)} lengths"
    if not all(map(math.isfinite, returns)) or min(lengths, default=1) < 1:
        return "its episodes have returns that are not finite, or no steps"
    return ""


def wrong_observations(
    shown: Observations, specs: Specs, count: int, choices: Sequence[int]
) -> str:
    """What is wrong with the observations of a group of this many environments, with these columns
    (`shown_specs`). choices: of each component of the actions, if there are masks.
    """
    try:
        return (
            wrong_columns(shown.columns, specs)
            or _wrong_rows(shown, specs, count, choices)
            or wrong_episodes(shown.returns, shown.lengths)
        )
    # Whatever an actor may send is answered with one line; it never ends the learner.
    except (TypeError, ValueError, AttributeError, IndexError) as error:
        return f"it shows no environments: {error}"


def _wrong_rows(shown: Observations, specs: Specs, count: int, choices: Sequence[int]) -> str:
    columns = shown.columns
    found = len(columns["begins"])
    truncated = columns["truncated"]
    if found != count:
        return f"group {shown.group} has {count} environments, not {found}"
    if (truncated & ~columns["begins"]).any():
        return "an episode was truncated, and none begins"
    if len(shown.returns) > count:
        return f"{len(shown.returns)} episodes ended in {count} environments"
    if "mask" in columns:
        try:
            check_some_action(columns["mask"], choices, "its step")
        except Diverged as error:
            return str(error)
    return wrong_array("final", shown.final, specs["observation"], int(truncated.sum()))
