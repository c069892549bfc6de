"""The environments' side of play: what they show to whoever acts in them, here or elsewhere."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from agents.distributed.interfaces import Columns, Spec
from agents.distributed.observations import Observations
from agents.environments.masks import check_some_action
from agents.environments.spaces import Interface
from agents.environments.training import TrainingEnvironments
from agents.experience.rollouts import Episodes, check_finite
from config.resolve import Resolved

_Answered = tuple[Columns, np.ndarray, list[float], list[int]]
"""Columns, the observations of truncated episodes, and the returns and lengths of those that ended."""


class Stepping:
    """E environments, whose groups are stepped by themselves. steps: of all of them."""

    def __init__(
        self, environments: TrainingEnvironments, ticks: Iterator[int] | None = None
    ) -> None:
        """ticks: the numbers of what they show."""
        self.environments, self.steps = environments, 0
        self._ticks = ticks or itertools.count(1)
        self._episodes = [Episodes(rows.stop - rows.start) for rows in environments.groups]
        self._acted = [False] * len(environments.groups)
        self._none = environments.observation[:0].copy()

    def send(self, group: int, actions: np.ndarray) -> None:
        """Begin a step of a group; actions as `TrainingEnvironments.send` takes them."""
        self.environments.send(group, actions)
        self._acted[group] = True

    def show(self, group: int) -> Observations:
        """What a group shows, after its step where it was acted in; raises `Diverged` for a number
        that is not finite, and where no action is allowed.
        """
        environments, rows = self.environments, self.environments.groups[group]
        columns, final, returns, lengths = (
            self._answer(group) if self._acted[group] else self._nothing(group)
        )
        environments.settle(group)
        columns["observation"] = observation = environments.observation[rows].copy()
        check_finite(observation, self.steps)
        columns["valid"] = ~environments.forced[rows]
        if environments.masks is not None:
            spaces = environments.interface
            columns["mask"] = masks = environments.masks[rows].copy()
            check_some_action(masks, spaces.choices or (spaces.actions,), f"step {self.steps}")
        return Observations(
            tick=next(self._ticks), group=group, columns=columns, final=final,
            returns=returns, lengths=lengths,
        )  # fmt: skip

    def _answer(self, group: int) -> _Answered:
        """To the last actions."""
        answer = self.environments.receive(group)
        self.steps += len(answer.reward)
        begins, truncated = np.zeros(len(answer.reward), np.bool_), answer.truncated
        final = self._none
        if len(answer.ended):  # as in few steps
            begins[answer.ended] = True
            truncated = answer.truncated & ~answer.terminated
            if truncated.any():
                final = answer.observation[truncated]
                check_finite(final, self.steps)
        columns = {
            "reward": answer.reward.astype(np.float32),
            "terminated": answer.terminated,
            "truncated": truncated,
            "begins": begins,
        }
        if answer.life_lost is not None:
            columns["terminated"] = answer.terminated | answer.life_lost
        return columns, final, *self._episodes[group].step(answer.reward, answer.ended)

    def _nothing(self, group: int) -> _Answered:
        """Where nobody has acted yet."""
        rows = self.environments.groups[group]
        count = rows.stop - rows.start
        columns = {
            "reward": np.zeros(count, np.float32),
            "terminated": np.zeros(count, np.bool_),
            "truncated": np.zeros(count, np.bool_),
            "begins": np.ones(count, np.bool_),
        }
        return columns, self._none, [], []


@contextlib.contextmanager
def one_environment(resolved: Resolved, run: int) -> Iterator[TrainingEnvironments]:
    """As many of an actor's as it takes to see what all of them look like: never stepped."""
    settings = resolved.environment.with_count(1)
    environments = TrainingEnvironments(replace(resolved, environment=settings), run)
    with contextlib.closing(environments):
        yield environments


def row_specs(spaces: Interface, dtype: np.dtype[Any]) -> dict[str, Spec]:
    """The columns of one row, without what the policy says; dtype: of observations."""
    flag = Spec("bool", ())
    specs = {
        "observation": Spec(str(dtype), spaces.environment_shape),
        "action": Spec(
            "float32" if spaces.continuous else "int64",
            () if spaces.discrete else (spaces.actions,),
        ),
        "reward": Spec("float32", ()),
        "terminated": flag,
        "begins": flag,
        "valid": flag,
    }
    return specs | ({"mask": Spec("bool", (spaces.policy_outputs,))} if spaces.masked else {})
