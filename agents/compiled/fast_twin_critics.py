"""SAC and TD3 on vectors and a processor without torch: the steps of `agents.algorithms.sac` and
`agents.algorithms.td3` as machine code.

Those pages are what is read and changed. This path is taken for the networks that it knows, and only if
it finds what they find: before the training begins, on rows drawn for that, it compares the losses and
their gradients with autograd's. Here is what both need; `fast_sac.py` and `fast_td3.py` have the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from agents.compiled.dense import CHUNK
from agents.compiled.perceptrons import Network, make_memory, make_network
from agents.compiled.side_by_side import (
    adam_side_by_side,
    apart,
    equals_torch,
    gradients_side_by_side,
    moved_side_by_side,
    no_steps,
    places,
)
from agents.compiled.twin_critic_updates import Chosen, Rows, Side
from agents.networks.action_distributions import BoundedActions
from agents.networks.twin_critics import Flat, Perceptrons, TwinCritics
from agents.optimisation.optimiser import Adam

ROWS_TO_COMPARE = 69
"""Two chunks, the second one not full, and four rows at a time with one left over."""

Learnt = tuple[tuple[Tensor, ...], float]
"""What a loss gave, tensors [], and the norm of its gradient."""
Given = tuple[Tensor, ...]
"""What a step needs beside the batch, in the order of the page's methods."""


class LearnsActions(Protocol):
    """What a training of the two has, and what they compute by torch."""

    hyper: Any
    network: Any
    actions: Any
    device: torch.device

    def _targets(self, batch: Any, *given: Any) -> Tensor:
        """The targets [B]."""

    def _critics_loss(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Encoded, actions, targets and weights -> the loss, and the means of Q and of |Q − y|."""

    def _actor_loss(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Features, and what is given -> the loss, and other numbers."""


class CompiledTwinCritics:
    """The parameters of all networks and the optimisers' moments in flat arrays, which torch's tensors
    share, and what works on them.
    """

    network: ClassVar[type[TwinCritics]]
    actions: ClassVar[type[BoundedActions]]
    """The classes that these functions know."""
    numbers_of_actor: ClassVar[int]
    """How many numbers the policy's loss gives."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        network: TwinCritics = trainer.network
        self._actor = _side(network.actor)
        self._critics = _side(network.critics)
        self._slow_critics = moved_side_by_side(list(network.target_critics.parameters()))
        self._make_room(ROWS_TO_COMPARE)

    @classmethod
    def knows(cls, trainer: LearnsActions, optimisers: Sequence[Adam]) -> bool:
        """Whether all classes are those of these functions."""
        network = trainer.network
        return (
            type(network) is cls.network
            and type(network.torso) is Flat
            and type(network.actor) is Perceptrons
            and type(network.critics) is Perceptrons
            and type(trainer.actions) is cls.actions
            and all(type(one) is Adam for one in optimisers)
            and trainer.device.type == "cpu"
        )

    def _make_room(self, rows: int) -> None:
        actions = self._trainer.network.spaces.actions
        self._chosen = Chosen(
            _zeros(rows, actions), _zeros(rows), _zeros(2, rows), _zeros(2, rows, actions),
            _zeros(rows, int(self._actor.network.sizes[-1])),
        )  # fmt: skip
        memory = make_memory(self._actor.network, -(-rows // CHUNK))
        self._actor = self._actor._replace(memory=memory)

    def begin(self, optimisers: Sequence[Adam]) -> None:
        """Take over the states of the optimisers: of the critics, the policy, and others."""
        of_critics, of_actor = (adam_side_by_side(one, np.inf) for one in optimisers[:2])
        self._critics = self._critics._replace(descent=of_critics)
        self._actor = self._actor._replace(descent=of_actor)

    def descend_critics(self, batch: Any, learning_rate: float, *given: Tensor) -> Learnt | None:
        """Make a step of the critics' optimiser: the loss and the means of Q and of |Q − y|, and the
        gradient's norm; None where that is not finite, and nothing is changed.
        """
        if len(batch.rewards) > len(self._chosen.targets):
            self._make_room(len(batch.rewards))
        found = np.empty(4)
        made = self._update_critics(_rows(batch), learning_rate, found, *given)
        return _learnt(found) if made else None

    def descend_actor(self, batch: Any, learning_rate: float, *given: Tensor) -> Learnt | None:
        """Likewise of the policy's, after the critics' on the same batch: what its loss gives, and the
        gradient's norm.
        """
        found = np.empty(self.numbers_of_actor + 1)
        made = self._update_actor(_rows(batch), learning_rate, found, *given)
        return _learnt(found) if made else None

    def _update_critics(
        self, rows: Rows, learning_rate: float, found: np.ndarray, *given: Any
    ) -> bool:
        """Make the step, if it is finite, and write to `found` what `Learnt` holds; whether it was made."""
        raise NotImplementedError

    def _update_actor(
        self, rows: Rows, learning_rate: float, found: np.ndarray, *given: Any
    ) -> bool:
        """Likewise."""
        raise NotImplementedError

    @property
    def _followed(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The parameters of slow copies, and of what they follow."""
        return [(self._slow_critics, self._critics.parameters)]

    def follow(self, rate: float) -> None:
        """Move the slow copies by this share of the way."""
        for slow, fast in self._followed:
            torch.from_numpy(slow).lerp_(torch.from_numpy(fast), rate)

    def given(self, noise: Tensor) -> tuple[Given, Given]:
        """For a comparison what the steps of critics and policy need beside a batch, from standard normal
        noise [2, B, A].
        """
        raise NotImplementedError

    def difference(self, make_batch: Callable[..., Any], seed: int) -> str:
        """What differs from torch, in words, on rows drawn for the purpose; empty if nothing does."""
        generator = torch.Generator().manual_seed(seed)
        batch, noise = rows_to_compare(self._trainer, make_batch, ROWS_TO_COMPARE, generator)
        kept = [slow.copy() for slow, _ in self._followed]
        for slow, _ in self._followed:
            # In a new training they are what they follow, and nobody could tell which was taken.
            slow *= 1 + 3 * torch.rand(len(slow), generator=generator).numpy()
        found = self.gradients(batch, noise)
        expected = self.gradients_by_torch(batch, noise)
        for (slow, _), before in zip(self._followed, kept, strict=True):
            slow[:] = before
        differences = [
            apart(f"{what} of the {name}", ours, theirs)
            for name in expected
            for what, ours, theirs in zip(
                ("gradient", "loss"), found[name], expected[name], strict=True
            )
        ]
        return next(filter(None, differences), "")

    def gradients(self, batch: Any, noise: Tensor) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Of critics and actor the gradients side by side, and the numbers that a step gives; all
        parameters stay as they are. noise: see `given`.
        """
        of_critics, of_actor = self.given(noise)
        kept = self._critics.descent, self._actor.descent
        # An optimiser that has made no step, and whose step has no length.
        self._critics = self._critics._replace(descent=no_steps(self._critics.parameters))
        self._actor = self._actor._replace(descent=no_steps(self._actor.parameters))
        learnt = {
            "critics": self.descend_critics(batch, 0.0, *of_critics),
            "actor": self.descend_actor(batch, 0.0, *of_actor),
        }
        self._critics = self._critics._replace(descent=kept[0])
        self._actor = self._actor._replace(descent=kept[1])
        found = dict[str, tuple[np.ndarray, np.ndarray]]()
        for name, side in (("critics", self._critics), ("actor", self._actor)):
            made = learnt[name]
            numbers = np.array(np.nan) if made is None else torch.stack(made[0]).numpy()
            found[name] = (side.gradients.copy(), numbers)
        return found

    def gradients_by_torch(
        self, batch: Any, noise: Tensor
    ) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """The same by the page's methods and autograd."""
        trainer = self._trainer
        of_critics, of_actor = self.given(noise)
        targets = trainer._targets(batch, *of_critics)
        losses: Mapping[str, tuple[Tensor, ...]] = {
            "critics": trainer._critics_loss(batch.encoded, batch.actions, targets, batch.weights),
            "actor": trainer._actor_loss(batch.encoded, *of_actor),
        }
        found = dict[str, tuple[np.ndarray, np.ndarray]]()
        for name, outputs in losses.items():
            gradient = gradient_by_torch(outputs[0], getattr(trainer.network, name).parameters())
            found[name] = (gradient, torch.stack(outputs).numpy(force=True))
        return found


Compiled = TypeVar("Compiled", bound=CompiledTwinCritics)


def compiled(
    kind: type[Compiled],
    trainer: LearnsActions,
    optimisers: Sequence[Adam],
    make_batch: Callable[..., Any],
) -> Compiled | None:
    """The compiled path of a training that has not begun, or None where torch is needed, whose reason is
    logged if it is not plain from the parameters. optimisers: of the critics, the policy, and others;
    make_batch: the class of the trainer's batches.
    """
    if not kind.knows(trainer, optimisers):
        return None
    made = kind(trainer)
    if not equals_torch(lambda seed: made.difference(make_batch, seed)):
        return None
    made.begin(optimisers)
    return made


def rows_to_compare(
    trainer: LearnsActions, make_batch: Callable[..., Any], count: int, generator: torch.Generator
) -> tuple[Any, Tensor]:
    """Random rows, and noise [2, count, A]."""
    spaces = trainer.network.spaces

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    batch = make_batch(
        drawn(count, spaces.observation_size), drawn(count, spaces.actions).tanh(), drawn(count),
        0.9 * (torch.rand(count, generator=generator) < 0.8), drawn(count, spaces.observation_size),
        torch.rand(count, generator=generator) / count,
    )  # fmt: skip
    return batch, drawn(2, count, spaces.actions)


def gradient_by_torch(loss: Tensor, parameters: Iterable[nn.Parameter]) -> np.ndarray:
    """Of a loss by these parameters, side by side."""
    followed = list(parameters)
    for parameter in followed:
        parameter.grad = None
    loss.backward()  # type: ignore[no-untyped-call]
    return gradients_side_by_side(followed)


def _zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def _learnt(found: np.ndarray) -> Learnt:
    return torch.from_numpy(found[:-1].astype(np.float32)).unbind(), float(found[-1])


def _rows(batch: Any) -> Rows:
    columns = [one.numpy() for one in batch]
    return Rows(*batch.actions.shape, *columns)


def _side(network: Perceptrons) -> Side:
    names = dict(network.named_parameters())
    begins = dict(zip(names, places(list(names.values()))[0], strict=True))
    layers = range(1, len(names) // 2 + 1)
    weights = [names[f"weight{number}"] for number in layers]
    sizes = [weights[0].shape[1], *(one.shape[2] for one in weights)]
    parameters = moved_side_by_side(list(names.values()))
    layout: Network = make_network(
        sizes, [begins[f"weight{number}"] for number in layers],
        [begins[f"bias{number}"] for number in layers], parameters=len(parameters),
        networks=len(weights[0]), outputs_first=False,
    )  # fmt: skip
    return Side(
        layout,
        parameters,
        np.zeros_like(parameters),
        make_memory(layout),
        no_steps(parameters),
    )
