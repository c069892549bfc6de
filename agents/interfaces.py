"""The interfaces of an algorithm: what the pipeline steps require of a training and of a trained policy.

An algorithm is one module, named by import path in its descriptor (`config.algorithms`). It handles no
files, no command line and no Argo; `steps/` does. The interfaces of learners and actors are in
`agents.distributed.protocol`, those of self-play in `agents.selfplay.roles`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

if TYPE_CHECKING:
    from agents.spaces import Interface
    from config.resolved import Resolved

State = dict[str, Any]
"""Nested dict with string keys; leaves are `numpy.ndarray` or JSON scalars and lists (generator
states as integers)."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The result of one epoch.

    epoch, step, frame: totals since the training began. returns, lengths: of the episodes that ended
    in this epoch, in the unit of the descriptor's measure (default: the game's own, unclipped reward)
    and in environment steps. metrics: losses and similar numbers; the same keys in the same order
    every epoch, None while there is no value yet.
    """

    epoch: int
    step: int
    frame: int
    returns: list[float]
    lengths: list[int]
    metrics: Mapping[str, float | None] = field(default_factory=dict)


class Resumable(Protocol):
    """A training that can be saved after any epoch and continued exactly: a trainer or a learner."""

    epoch: int
    step: int

    def state_dict(self) -> State:
        """Everything that affects the future, random generators included."""

    def load_state_dict(self, state: State, between: Callable[[], None] = ...) -> None:
        """Continue exactly where `state_dict` was taken. between: called from time to time while this
        takes long (episodes are replayed); it may raise to interrupt.
        """


class Trainer(Resumable, Protocol):
    """A training in one process."""

    def train(self) -> Iterator[Progress]:
        """Yield one `Progress` per epoch until `epochs` are done; raises `config.errors.Diverged`
        instead of making a non-finite update.
        """

    def close(self) -> None:
        """Release the environments."""


@dataclass(frozen=True, kw_only=True)
class Growth:
    """The rows that one epoch added to a stream.

    rows: column -> array [rows, ...], with the same columns, types and row shapes every time. keep: how
    many of the stream's last rows a resumed training needs; None: all.
    """

    rows: dict[str, np.ndarray]
    keep: int | None = None


@runtime_checkable
class HasStreams(Protocol):
    """Optional for trainers with large data that only grows (a replay, positions): named streams beside
    the state. The step appends them to files; a checkpoint never copies them whole.
    """

    def grown(self) -> dict[str, Growth]:
        """For each stream by name, the rows added since the last call or since `load_streams`.

        Called after every epoch and before any `state_dict`. The caller copies the arrays before the
        training continues, so they may be views of memory that is overwritten later.
        """

    def load_streams(self, streams: Mapping[str, Iterator[dict[str, np.ndarray]]]) -> None:
        """Restore the streams: each iterator yields the kept rows in order, in blocks. Called after
        `load_state_dict`. A stream that never got a row may be missing.
        """


@runtime_checkable
class HasWeights(Protocol):
    """Optional for trainers and learners that can start from the weights of another training
    (`start_from`).

    learnt: the entries of `state_dict` to take from the other training, as dotted paths (`network`,
    `collection.observation_normaliser`): networks, and the statistics that normalise their inputs and
    outputs. All other entries keep their initial values. `load_state_dict` gets the combined state,
    `load_streams` an empty mapping.
    """

    @property
    def learnt(self) -> Sequence[str]:
        """Dotted paths of the entries to take."""


@runtime_checkable
class HasPolicyEntries(Protocol):
    """Optional for trainers and learners: what of their state a policy needs, so that a snapshot of it
    is small. A snapshot of a trainer without this holds its whole state.

    policy_entries: the entries of `state_dict` that the descriptor's `policy` reads, as dotted paths.
    """

    @property
    def policy_entries(self) -> Sequence[str]:
        """Dotted paths of these entries."""


class MakeTrainer(Protocol):
    """The callable named by a descriptor's `trainer`."""

    def __call__(self, resolved: Resolved, *, run: int, device: str, precision: str) -> Trainer:
        """Make the training of one run; device and precision are already decided (never `auto`)."""


class ExperienceBytes(Protocol):
    """The callable named by a descriptor's `replay_bytes` or `rollout_bytes`."""

    def __call__(self, resolved: Resolved, spaces: Interface, dtype: np.dtype[Any]) -> int:
        """The memory in bytes that a training's full replay or rollout takes. dtype: of the environment's
        observations, whose shape is `spaces.environment_shape`.
        """


class Policy(Protocol):
    """A trained policy with its frozen observation statistics.

    spaces: the observations and actions it was trained with.
    """

    spaces: Interface

    def seed(self, seeds: Sequence[int]) -> None:
        """Seed the generators of sampled actions: one generator per row of the observations that
        `act` gets from now on.
        """

    def act(
        self, observations: np.ndarray, *, sample: bool, masks: np.ndarray | None = None
    ) -> np.ndarray:
        """Map observations [N, ...], as the environment returns them, to actions [N] or [N, A], as the
        environment takes them.

        sample: draw each row's action with the row's own generator, so that it depends on no other
        row; otherwise take the most probable action. masks bool [N, P]: the allowed actions, if the
        environment reports them; no other action is chosen.
        """


PolicyState = tuple[np.ndarray, ...]
"""The recurrent state of N episodes: arrays [N, ...]."""


@runtime_checkable
class RecurrentPolicy(Protocol):
    """A trained policy with a recurrent state, in place of `Policy`."""

    spaces: Interface

    def seed(self, seeds: Sequence[int]) -> None:
        """See `Policy.seed`."""

    def first_state(self, count: int) -> PolicyState:
        """The state of `count` episodes before their first observation."""

    def act(
        self,
        observations: np.ndarray,
        state: PolicyState,
        reset: np.ndarray,
        *,
        sample: bool,
        masks: np.ndarray | None = None,
    ) -> tuple[np.ndarray, PolicyState]:
        """See `Policy.act`. Returns the actions and the state after these observations. state: the state
        before them; reset bool [N]: an episode begins in this row, so its state is cleared first.
        """


AnyPolicy = Policy | RecurrentPolicy


class LoadPolicy(Protocol):
    """The callable named by a descriptor's `policy`."""

    def __call__(self, resolved: Resolved, state: State) -> AnyPolicy:
        """Load a checkpoint's policy on the CPU, with frozen observation statistics."""
