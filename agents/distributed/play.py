"""A policy plays in environments, and what happens becomes unrolls: the same on an actor, which has
weights, and wherever else a policy acts.

Every row has what was seen, done and answered at one step:

    observation     as the environment gave it
    action          in the policy's own units
    reward          the game's own
    terminated      whether what is learnt of ends here: the episode, or a life where that counts
    begins          whether an episode begins with this row, which clears what is remembered
    valid           whether the action was the policy's: not FIRE, and not the row of a final
                    observation
    mask            which actions were allowed, where the environment says so

and what the policy says beside its action.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from agents.distributed.interfaces import Columns, Spec, Specs, Unrolls, Version, Weights
from agents.distributed.observations import Observations
from agents.distributed.stepping import Stepping, row_specs
from agents.distributed.unrolls import Assembler, Rows, unroll_specs
from agents.environments.training import TrainingEnvironments

ACTED_BY = "update"
"""A column of rows that does not travel: of the weights that acted."""


class Acted(NamedTuple):
    """What a policy does in n environments: actions [n] or [n, A], and columns [n, ...]; rows: what
    belongs to these rows; first: what an unroll holds that begins with them.
    """

    actions: np.ndarray
    rows: Columns
    first: Columns


class Remembers(Protocol):
    """What a policy says of its rows, and remembers of one actor's episodes; rows, first: what
    `Acted` has of each environment.
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
        """In the environments at these places: observations [n, ...], begins bool [n], masks
        [n, P].
        """


class _Asked(NamedTuple):
    """A group's rows that are not answered yet; update: number of that whose weights acted."""

    shown: Observations
    acted: Acted
    update: int


class Trajectories:
    """What is known, where the policy is, of one actor's environments: rows that wait for their
    answers, and unfinished unrolls. The groups take turns by themselves: each is acted in, answers,
    and is acted in again.

    specs: of the unrolls.
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
        self._acting, self._groups = acting, groups
        self._specs = {**rows, **acting.rows, ACTED_BY: Spec("int64", ())}
        self.specs = unroll_specs({**rows, **acting.rows}, acting.first, unroll_length)
        self._assembler = Assembler(
            self._specs, acting.first, unroll_length, groups[-1].stop, overlap
        )
        self._asked = dict[int, _Asked]()

    def acted(self, shown: Observations, acted: Acted, update: int) -> None:
        """In what a group showed, by the weights after so many updates."""
        self._asked[shown.group] = _Asked(shown, acted, update)

    def answered(self, shown: Observations) -> None:
        """What a group shows next; nothing was asked before the first time."""
        asked = self._asked.pop(shown.group, None)
        if asked is None:
            return
        columns, group = shown.columns, self._groups[shown.group]
        row: Rows = {
            **asked.shown.columns,
            **asked.acted.rows,
            **asked.acted.first,
            "action": asked.acted.actions,
            "reward": columns["reward"],
            "terminated": columns["terminated"],
            ACTED_BY: asked.update,
        }
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
        row |= self._acting.before_next(environments)
        row |= {"observation": observation, ACTED_BY: update}
        if "mask" in row:
            row["mask"] = True  # without an action that is allowed, no policy has a probability
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
        self.environments, self.acting, self.update = environments, acting, 0
        self._stepping = Stepping(environments)
        self._trajectories = Trajectories(
            row_specs(environments.interface, environments.observation.dtype),
            acting, environments.groups, unroll_length, overlap,
        )  # fmt: skip
        self.specs = self._trajectories.specs

    def step(self) -> Stepped:
        """One step of all environments: while a group is looked at, the others step. The first call
        only asks.
        """
        before, returns, lengths = self._stepping.steps, list[float](), list[int]()
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
        """As of `Trajectories`."""
        return self._trajectories.take(generation, least)
