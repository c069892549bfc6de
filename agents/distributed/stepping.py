"""Steps the environments of an actor and turns the steps into rows and unrolls."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from agents.distributed.observations import Observations
from agents.distributed.protocol import Columns, Spec, Specs, Unrolls, Version, Weights
from agents.distributed.unrolls import Assembler, Rows, unroll_specs
from agents.environments.masks import check_some_action
from agents.environments.training import TrainingEnvironments
from agents.experience.rollouts import Episodes, check_finite
from agents.spaces import Interface
from config.resolved import Resolved

_Answered = tuple[Columns, np.ndarray, list[float], list[int]]
"""Columns, the observations of truncated episodes, and the returns and lengths of those that ended."""


class Stepping:
    """E environments, whose groups are stepped by themselves. steps: of all of them."""

    def __init__(
        self, environments: TrainingEnvironments, ticks: Iterator[int] | None = None
    ) -> None:
        """ticks: the numbers of what they show."""
        self.environments = environments
        self.steps = 0
        self._ticks = ticks or itertools.count(1)
        self._episodes = [Episodes(rows.stop - rows.start) for rows in environments.groups]
        self._acted = [False] * len(environments.groups)
        self._none = environments.observation[:0].copy()

    def send(self, group: int, actions: np.ndarray) -> None:
        """Begin a step of a group; actions as `TrainingEnvironments.send` takes them."""
        self.environments.send(group, actions)
        self._acted[group] = True

    def show(self, group: int) -> Observations:
        """The observations of a group, after its step if an action was sent. Raises `Diverged` for
        a number that is not finite, and if no action is allowed.
        """
        environments = self.environments
        rows = self.environments.groups[group]
        if self._acted[group]:
            columns, final, returns, lengths = self._answer(group)
        else:
            columns, final, returns, lengths = self._nothing(group)
        # Ended environments have begun anew from here on.
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
        begins = np.zeros(len(answer.reward), np.bool_)
        truncated = answer.truncated
        final = self._none
        # Few steps end an episode: the others are spared what follows.
        if len(answer.ended):
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
            # A lost life is terminal for what is learnt; `begins` says that the episode goes on.
            columns["terminated"] = answer.terminated | answer.life_lost
        return columns, final, *self._episodes[group].step(answer.reward, answer.ended)

    def _nothing(self, group: int) -> _Answered:
        """The columns before anybody has acted."""
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
    """A copy of an actor's environments that is never stepped and only shows their spaces; it has
    as few environments as possible.
    """
    settings = resolved.environment.with_count(1)
    environments = TrainingEnvironments(replace(resolved, environment=settings), run)
    with contextlib.closing(environments):
        yield environments


def row_specs(spaces: Interface, dtype: np.dtype[Any]) -> dict[str, Spec]:
    """The columns of one row, without what the policy says; dtype: of observations."""
    flag = Spec("bool", ())
    kind = "float32" if spaces.continuous else "int64"
    of_action = () if spaces.discrete else (spaces.actions,)
    specs = {
        "observation": Spec(str(dtype), spaces.environment_shape),
        "action": Spec(kind, of_action),
        "reward": Spec("float32", ()),
        "terminated": flag,
        "begins": flag,
        "valid": flag,
    }
    if spaces.masked:
        specs["mask"] = Spec("bool", (spaces.policy_outputs,))
    return specs


ACTED_BY = "update"
"""A column of rows that does not travel: of the weights that acted."""


class Acted(NamedTuple):
    """A policy's actions in n environments, [n] or [n, A], with columns [n, ...]. rows: the columns
    of these rows. first: the columns of an unroll that begins with them.
    """

    actions: np.ndarray
    rows: Columns
    first: Columns


class Remembers(Protocol):
    """The columns that a policy adds to its rows, and its memory of one actor's episodes. rows,
    first: the columns of `Acted` for one environment.
    """

    rows: Specs
    first: Specs

    def before_next(self, environments: np.ndarray) -> Columns:
        """`Acted.first` of these environments' next rows [n], if their episodes went on."""

    def of_final(self, environments: np.ndarray, observations: np.ndarray) -> Columns:
        """`Acted.rows` of the observations [n, ...] with which episodes were truncated there; what
        is left out is 0.
        """


class Acting(Remembers, Protocol):
    """An algorithm's policy in the E environments of one actor."""

    def load(self, weights: Weights) -> None:
        """Act by these from now on; the arrays are not kept."""

    def act(
        self,
        places: slice,
        observations: np.ndarray,
        begins: np.ndarray,
        masks: np.ndarray | None,
    ) -> Acted:
        """Act in the environments at these places: observations [n, ...], begins bool [n], masks
        [n, P].
        """


class _Asked(NamedTuple):
    """A group's rows that are not answered yet; update: number of that whose weights acted."""

    shown: Observations
    acted: Acted
    update: int


class Trajectories:
    """What is known about one actor's environments where the policy is: rows that wait for their
    rewards, and unfinished unrolls. Each group takes turns by itself: it is acted in, answers, and
    is acted in again.

    specs: those of the unrolls.
    """

    def __init__(
        self,
        rows: Specs,
        acting: Remembers,
        groups: tuple[slice, ...],
        unroll_length: int,
        overlap: int = 0,
    ) -> None:
        """rows: of the environments' rows (`row_specs`); overlap: as of an `Assembler`."""
        self._acting = acting
        self._groups = groups
        self._specs = {**rows, **acting.rows, ACTED_BY: Spec("int64", ())}
        self.specs = unroll_specs({**rows, **acting.rows}, acting.first, unroll_length)
        self._assembler = Assembler(
            self._specs, acting.first, unroll_length, groups[-1].stop, overlap
        )
        self._asked = dict[int, _Asked]()

    def acted(self, shown: Observations, acted: Acted, update: int) -> None:
        """Act in the environments of a group, with the weights after this many updates."""
        self._asked[shown.group] = _Asked(shown, acted, update)

    def answered(self, shown: Observations) -> None:
        """Take in what a group shows next. The first time it answers nothing."""
        asked = self._asked.pop(shown.group, None)
        if asked is None:
            return
        columns = shown.columns
        group = self._groups[shown.group]
        row: Rows = {
            **asked.shown.columns,
            **asked.acted.rows,
            **asked.acted.first,
            "action": asked.acted.actions,
            "reward": columns["reward"],
            "terminated": columns["terminated"],
            ACTED_BY: asked.update,
        }
        # This is the row that was shown before, now with what its action led to.
        self._assembler.add(group, row)
        if len(shown.final):
            truncated = group.start + np.flatnonzero(columns["truncated"])
            self._add_final(truncated, shown.final, asked.update)

    def take(self, generation: int, least: int = 1) -> Unrolls | None:
        """Finished unrolls, by weights of this generation of the learner; None while there are fewer
        than `least`.
        """
        columns = self._assembler.take(least)
        if columns is None:
            return None
        updates = columns.pop(ACTED_BY)
        return Unrolls(
            columns=columns,
            oldest=Version(generation, int(updates.min())),
            newest=Version(generation, int(updates.max())),
        )

    def _add_final(self, environments: np.ndarray, observation: np.ndarray, update: int) -> None:
        """The observations [n, ...] with which episodes were truncated there."""
        row: Rows = dict.fromkeys(self._specs, 0)
        row |= self._acting.of_final(environments, observation)
        # The state with which the episode ended: the learner bootstraps with it.
        row |= self._acting.before_next(environments)
        row |= {"observation": observation, ACTED_BY: update}
        if "mask" in row:
            # Nothing is chosen in this row, but the learner computes a policy for it, which has no
            # probabilities where no action is allowed.
            row["mask"] = True
        self._assembler.add(environments, row)


class Stepped(NamedTuple):
    """steps: of all environments; returns, lengths: of the episodes that ended in them."""

    steps: int
    returns: list[float]
    lengths: list[int]


class Play:
    """E environments, the policy that acts in them, and their unfinished unrolls.

    update: number of the update whose weights the policy has; specs: of the unrolls.
    """

    def __init__(
        self,
        environments: TrainingEnvironments,
        acting: Acting,
        unroll_length: int,
        overlap: int = 0,
    ) -> None:
        """overlap: as of an `Assembler`."""
        self.environments = environments
        self.acting = acting
        self.update = 0
        self._stepping = Stepping(environments)
        self._trajectories = Trajectories(
            row_specs(environments.interface, environments.observation.dtype),
            acting, environments.groups, unroll_length, overlap,
        )  # fmt: skip
        self.specs = self._trajectories.specs

    def step(self) -> Stepped:
        """Make one step of all environments. While the policy looks at one group, the others step.
        The first call only starts steps.
        """
        before = self._stepping.steps
        returns = list[float]()
        lengths = list[int]()
        for group, rows in enumerate(self.environments.groups):
            shown = self._stepping.show(group)
            returns += shown.returns
            lengths += shown.lengths
            self._trajectories.answered(shown)
            columns = shown.columns
            acted = self.acting.act(
                rows, columns["observation"], columns["begins"], columns.get("mask")
            )
            self._stepping.send(group, acted.actions)
            self._trajectories.acted(shown, acted, self.update)
        return Stepped(self._stepping.steps - before, returns, lengths)

    def take(self, generation: int, least: int = 1) -> Unrolls | None:
        """See `Trajectories.take`."""
        return self._trajectories.take(generation, least)
