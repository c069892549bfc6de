"""What a training loop and a trained policy look like to the steps.

An algorithm is one module, which its descriptor (`config.algorithms`) names by import path. It knows
no paths, no argparse, no Argo.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

if TYPE_CHECKING:
    from agents.spaces import Interface
    from config.resolve import Resolved

State = dict[str, Any]
"""Nested dict with string keys; leaves are `numpy.ndarray` or JSON scalars and lists (generator
states as integers)."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What one epoch brought.

    returns, lengths: the episodes that ended in this epoch, by what the algorithm's descriptor
    measures, that is, if it says nothing, in the game's own (unclipped) reward, and in environment
    steps; metrics: losses and the like, the same keys in the same order in every epoch, None where
    there is nothing to measure yet.
    """

    epoch: int
    step: int
    frame: int
    returns: list[float]
    lengths: list[int]
    metrics: Mapping[str, float | None] = field(default_factory=dict)


class Resumable(Protocol):
    """What can be saved after any epoch, and goes on from there: a trainer, or whatever else learns
    and yields progress.
    """

    epoch: int
    step: int

    def state_dict(self) -> State:
        """Everything that affects the future, random generators included."""

    def load_state_dict(self, state: State, between: Callable[[], None] = ...) -> None:
        """Continue exactly where `state_dict` was taken; between: called now and then while that
        takes long; may raise.
        """


class Trainer(Resumable, Protocol):
    """A training in one process."""

    def train(self) -> Iterator[Progress]:
        """One `Progress` an epoch until `epochs` are done; raises `config.errors.Diverged` before a
        non-finite update.
        """

    def close(self) -> None:
        """Release the environments."""


@dataclass(frozen=True, kw_only=True)
class Growth:
    """What an epoch has added to a stream.

    rows: column -> array [rows, ...], the same columns with the same types and shapes every time;
    keep: how many of the stream's last rows a training that goes on needs, all if None.
    """

    rows: dict[str, np.ndarray]
    keep: int | None = None


@runtime_checkable
class HasStreams(Protocol):
    """What a trainer has as well whose state is partly large and only grows (a replay, positions):
    named streams beside the state, which no checkpoint ever copies as a whole.
    """

    def grown(self) -> dict[str, Growth]:
        """By the streams' names, what has been added since this was last called, or since
        `load_streams`; called after every epoch, before any `state_dict`, and copied before the
        training goes on, so that the arrays may be views of what is written over later.
        """

    def load_streams(self, streams: Mapping[str, Iterator[dict[str, np.ndarray]]]) -> None:
        """Take back every row that was to be kept, in order, some rows at a time; called after
        `load_state_dict`. A stream that nothing was added to may be missing.
        """


@runtime_checkable
class HasWeights(Protocol):
    """What a trainer or a learner has as well that can begin with what another training has learnt
    (`start_from`).

    learnt: the entries of its `state_dict` that are taken from the other's, each by its path,
    `network` or `collection.observation_normaliser`: networks, and the statistics in whose units
    they see and answer. All else stays as it is at the start: `load_state_dict` is given both, and
    `load_streams` nothing.
    """

    @property
    def learnt(self) -> Sequence[str]:
        """Paths of entries."""


class MakeTrainer(Protocol):
    """What a descriptor's `trainer` names."""

    def __call__(self, resolved: Resolved, *, run: int, device: str, precision: str) -> Trainer:
        """The training of one run, at its start; device and precision are decided."""


class ReplayBytes(Protocol):
    """What a descriptor's `replay_bytes` names."""

    def __call__(self, resolved: Resolved, spaces: Interface, dtype: np.dtype[Any]) -> int:
        """How many bytes the full replay of a training holds in memory; dtype: of the environment's
        observations, whose shape is `spaces.environment_shape`.
        """


class Policy(Protocol):
    """A trained policy with its frozen observation statistics.

    spaces: what it sees and does.
    """

    spaces: Interface

    def seed(self, seeds: Sequence[int]) -> None:
        """Start the generators of sampled actions anew, one for each row of what is observed
        then.
        """

    def act(
        self, observations: np.ndarray, *, sample: bool, masks: np.ndarray | None = None
    ) -> np.ndarray:
        """Observations [N, ...] as the environment gives them -> actions [N] or [N, A] as the
        environment takes them.

        sample: every row's action by its own generator, so that it depends on no other row; else
        the most probable ones; masks [N, P]: given where the environment says which actions it
        allows, and no other one is chosen then.
        """


PolicyState = tuple[np.ndarray, ...]
"""What a policy remembers of N episodes, [N, ...] each."""


@runtime_checkable
class RecurrentPolicy(Protocol):
    """A trained policy that remembers what it saw of an episode: instead of `Policy`."""

    spaces: Interface

    def seed(self, seeds: Sequence[int]) -> None:
        """As of a `Policy`."""

    def first_state(self, count: int) -> PolicyState:
        """What is remembered of `count` episodes before their first observation."""

    def act(
        self,
        observations: np.ndarray,
        state: PolicyState,
        reset: np.ndarray,
        *,
        sample: bool,
        masks: np.ndarray | None = None,
    ) -> tuple[np.ndarray, PolicyState]:
        """As of a `Policy`; state: what is remembered before these observations, and, beside the
        actions, after them; reset bool [N]: whether an episode begins, which clears the state.
        """


AnyPolicy = Policy | RecurrentPolicy


class LoadPolicy(Protocol):
    """What a descriptor's `policy` names."""

    def __call__(self, resolved: Resolved, state: State) -> AnyPolicy:
        """The policy of a checkpoint, on the CPU, with its observation statistics frozen."""
