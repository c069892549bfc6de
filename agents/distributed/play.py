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

from typing import Any, NamedTuple, Protocol

import numpy as np

from agents.distributed.interfaces import Columns, Spec, Specs, Unrolls, Version, Weights
from agents.distributed.unrolls import Assembler, unroll_specs
from agents.environments.masks import check_some_action
from agents.environments.spaces import Interface
from agents.environments.training import TrainingEnvironments
from agents.experience.rollouts import Episodes, check_finite

ACTED_BY = "update"
"""A column that does not travel: of the weights that acted in an unroll's first row."""


class Acted(NamedTuple):
    """What a policy does in n environments: actions [n] or [n, A], and columns [n, ...]; rows: what
    belongs to these rows; first: what an unroll holds that begins with them.
    """

    actions: np.ndarray
    rows: Columns
    first: Columns


class Acting(Protocol):
    """An algorithm's policy in E environments; rows, first: what `Acted` has of each of them."""

    rows: Specs
    first: Specs

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

    def before_next(self, environments: np.ndarray) -> Columns:
        """`Acted.first` of these environments' next rows [n], if their episodes went on."""

    def of_final(self, environments: np.ndarray, observations: np.ndarray) -> Columns:
        """`Acted.rows` of the observations [n, ...] with which episodes were truncated there; what
        is left out is 0.
        """


class Stepped(NamedTuple):
    """steps: of all environments; returns, lengths: of the episodes that ended in them."""

    steps: int
    returns: list[float]
    lengths: list[int]


class _Asked(NamedTuple):
    """What is known of rows before they are answered."""

    rows: Columns
    first: Columns


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
        of_all = row_specs(environments.interface, environments.observation.dtype)
        self._row_specs = {**of_all, **acting.rows}
        self.specs = unroll_specs(self._row_specs, acting.first, unroll_length)
        first = {**acting.first, ACTED_BY: Spec("int64", ())}
        self._assembler = Assembler(
            self._row_specs, first, unroll_length, environments.count, overlap
        )
        self._numbers = np.arange(environments.count)
        self._begins = np.ones(environments.count, np.bool_)
        self._episodes = [Episodes(rows.stop - rows.start) for rows in environments.groups]
        self._asked = dict[int, _Asked]()
        self._step = 0

    def step(self) -> Stepped:
        """One step of all environments: while a group is looked at, the others step. The first call
        only asks.
        """
        before, returns, lengths = self._step, list[float](), list[int]()
        for group in range(len(self.environments.groups)):
            if group in self._asked:
                ended = self._answer(group, self._asked[group])
                returns += ended[0]
                lengths += ended[1]
            self._act(group)
        return Stepped(self._step - before, returns, lengths)

    def take(self, generation: int) -> Unrolls | None:
        """Those that were finished since this was last called, by weights of this generation of the
        learner.
        """
        columns = self._assembler.take()
        if columns is None:
            return None
        oldest = int(columns.pop(ACTED_BY).min())
        return Unrolls(
            columns=columns,
            oldest=Version(generation, oldest),
            newest=Version(generation, self.update),
        )

    def _act(self, group: int) -> None:
        environments, rows = self.environments, self.environments.groups[group]
        environments.settle(group)
        observation, begins = environments.observation[rows].copy(), self._begins[rows].copy()
        check_finite(observation, self._step)
        row = {
            "observation": observation,
            "begins": begins,
            "valid": ~environments.forced[rows],
        }
        masks = None
        if environments.masks is not None:
            spaces = environments.interface
            row["mask"] = masks = environments.masks[rows].copy()
            check_some_action(masks, spaces.choices or (spaces.actions,), f"step {self._step}")
        acted = self.acting.act(rows, observation, begins, masks)
        environments.send(group, acted.actions)
        updates = np.full(len(begins), self.update)
        self._asked[group] = _Asked(
            {**row, **acted.rows, "action": acted.actions}, {**acted.first, ACTED_BY: updates}
        )

    def _answer(self, group: int, asked: _Asked) -> tuple[list[float], list[int]]:
        """Returns and lengths of the episodes that end here."""
        rows = self.environments.groups[group]
        answer, numbers = self.environments.receive(group), self._numbers[rows]
        terminated, ended = answer.terminated, answer.terminated | answer.truncated
        if answer.life_lost is not None:
            terminated = terminated | answer.life_lost
        answered = {**asked.rows, "reward": answer.reward, "terminated": terminated}
        self._assembler.add(numbers, answered, asked.first)
        self._begins[rows] = ended
        self._step += len(numbers)
        truncated = answer.truncated & ~answer.terminated
        if truncated.any():
            self._add_final(numbers[truncated], answer.observation[truncated])
        return self._episodes[group].finish(answer.reward[None], ended[None])

    def _add_final(self, environments: np.ndarray, observation: np.ndarray) -> None:
        """The observations [n, ...] with which episodes were truncated there."""
        check_finite(observation, self._step)
        count = len(environments)
        rows = {
            name: np.zeros((count, *spec.shape), spec.dtype)
            for name, spec in self._row_specs.items()
        }
        rows |= self.acting.of_final(environments, observation)
        rows["observation"] = observation
        if "mask" in rows:
            rows["mask"][:] = True  # without an action that is allowed, no policy has a probability
        first = {**self.acting.before_next(environments), ACTED_BY: np.full(count, self.update)}
        self._assembler.add(environments, rows, first)
