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


class Stepping:
    """E environments, whose groups are stepped by themselves. steps: of all of them."""

    def __init__(
        self, environments: TrainingEnvironments, ticks: Iterator[int] | None = None
    ) -> None:
        """ticks: the numbers of what they show."""
        self.environments, self.steps = environments, 0
        self._ticks = ticks or itertools.count(1)
        self._begins = np.ones(environments.count, np.bool_)
        self._episodes = [Episodes(rows.stop - rows.start) for rows in environments.groups]
        self._acted = [False] * len(environments.groups)

    def send(self, group: int, actions: np.ndarray) -> None:
        """Begin a step of a group; actions as `TrainingEnvironments.send` takes them."""
        self.environments.send(group, actions)
        self._acted[group] = True

    def show(self, group: int) -> Observations:
        """What a group shows, after its step where it was acted in; raises `Diverged` for a number
        that is not finite, and where no action is allowed.
        """
        environments, rows = self.environments, self.environments.groups[group]
        answered, final, returns, lengths = self._answer(group)
        environments.settle(group)
        observation = environments.observation[rows].copy()
        check_finite(observation, self.steps)
        columns = {
            "observation": observation,
            "begins": self._begins[rows].copy(),
            "valid": ~environments.forced[rows],
            **answered,
        }
        if environments.masks is not None:
            spaces = environments.interface
            columns["mask"] = masks = environments.masks[rows].copy()
            check_some_action(masks, spaces.choices or (spaces.actions,), f"step {self.steps}")
        return Observations(
            tick=next(self._ticks), group=group, columns=columns, final=final,
            returns=returns, lengths=lengths,
        )  # fmt: skip

    def _answer(self, group: int) -> tuple[Columns, np.ndarray, list[float], list[int]]:
        """Of the last actions: columns, the observations of truncated episodes, and the returns and
        lengths of those that ended.
        """
        rows, shape = self.environments.groups[group], self.environments.observation.shape[1:]
        if not self._acted[group]:
            nothing = np.zeros(rows.stop - rows.start, np.bool_)
            columns = {"terminated": nothing, "truncated": nothing}
            none = np.zeros((0, *shape), self.environments.observation.dtype)
            return columns | {"reward": nothing.astype(np.float32)}, none, [], []
        answer = self.environments.receive(group)
        self.steps += len(answer.reward)
        terminated, ended = answer.terminated, answer.terminated | answer.truncated
        if answer.life_lost is not None:
            terminated = terminated | answer.life_lost
        truncated = answer.truncated & ~answer.terminated
        final = answer.observation[truncated]
        check_finite(final, self.steps)
        self._begins[rows] = ended
        columns = {
            "reward": answer.reward.astype(np.float32),
            "terminated": terminated,
            "truncated": truncated,
        }
        return columns, final, *self._episodes[group].finish(answer.reward[None], ended[None])


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
