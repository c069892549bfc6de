"""Deep Q-learning on vectors and a processor without torch: the updates of `agents.algorithms.dqn` as
machine code.

That page is what is read and changed. This path is taken for the classes and switches that it knows
(not for dueling heads, quantiles or another torso), and only if it finds what they find: before the
training begins, on rows drawn for that, it compares the loss and its gradient with autograd's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

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
from agents.compiled.value_updates import Rows, update
from agents.networks.action_values import ActionValues
from agents.networks.torsos import Layers
from agents.optimisation.optimiser import Adam
from agents.spaces import Interface

ROWS_TO_COMPARE = 69
"""Two chunks, the second one not full, and four rows at a time with one left over."""
CLEAR_CHOICE = 1e-4
"""Two largest values that are less apart could change their order by rounding."""


class Learnt(NamedTuple):
    """What one update saw: the loss [], y − Q(o, a) and Q(o, a) [B], and the gradient's norm."""

    loss: Tensor
    errors: Tensor
    values: Tensor
    gradient_norm: float


class LearningValues(Protocol):
    """What a training with DQN's loss has."""

    hyper: Any
    spaces: Interface
    network: ActionValues
    target: ActionValues
    optimiser: Adam
    device: torch.device

    def _targets(self, batch: Any, target_values: Tensor) -> Tensor:
        """The targets [B]."""

    def _loss(
        self, encoded: Tensor, actions: Tensor, targets: Tensor, weights: Tensor
    ) -> tuple[Tensor, ...]:
        """The loss, and the errors and values [B]."""

    def _update(self, batch: Any, target_values: Tensor) -> Any:
        """Make one update by torch; raises `Diverged`."""


def compiled_dqn(trainer: LearningValues, make_batch: Callable[..., Any]) -> CompiledDQN | None:
    """The compiled path of a training that has not begun, or None where torch is needed, whose reason is
    logged if it is not plain from the parameters. make_batch: the class of the trainer's batches.
    """
    network = trainer.network
    known = (
        type(network) is ActionValues
        and type(network.torso) is Layers
        and type(trainer.optimiser) is Adam
        and not network.dueling
        and not network.quantiles
        and trainer.device.type == "cpu"
    )
    if not known:
        return None
    made = CompiledDQN(trainer)
    if not equals_torch(lambda seed: made.difference(make_batch, seed)):
        return None
    made.begin()
    return made


class CompiledDQN:
    """The parameters of both networks and the optimiser's moments in flat arrays, which torch's tensors
    share, and what works on them.
    """

    def __init__(self, trainer: LearningValues) -> None:
        self._trainer = trainer
        self._parameters = moved_side_by_side(list(trainer.network.parameters()))
        self._target = moved_side_by_side(list(trainer.target.parameters()))
        self._gradients = np.zeros_like(self._parameters)
        self._network = _layout(trainer.network, trainer.spaces, len(self._parameters))
        self._memory = make_memory(self._network)
        self._of_target = make_memory(self._network)

    def begin(self) -> None:
        """Take over the optimiser's state."""
        largest_norm = float(self._trainer.hyper.max_gradient_norm)
        self._descent = adam_side_by_side(self._trainer.optimiser, largest_norm)

    def copy_target(self) -> None:
        """Q⁻ ← Q."""
        self._target[:] = self._parameters

    def learn(self, batch: Any, count: int, learning_rate: float) -> Iterator[Learnt]:
        """Make this many updates, each from as many of the batch's rows. Raises `Diverged` before an
        update that is not finite.
        """
        rows = _rows(batch)
        size = len(rows.rewards) // count
        errors = np.empty(len(rows.rewards), np.float32)
        values = np.empty(len(rows.rewards), np.float32)
        found = np.zeros((count, 2))
        done = 0
        seen = list[Learnt]()
        while done < count:
            made = update(
                self._network, self._parameters, self._target, self._gradients, self._memory,
                self._of_target, self._descent, rows, size, (done, count),
                bool(self._trainer.hyper.double), learning_rate, errors, values, found,
            )  # fmt: skip
            for number in range(done, made):
                part = slice(number * size, (number + 1) * size)
                loss = torch.tensor(found[number, 0], dtype=torch.float32)
                seen.append(
                    Learnt(
                        loss,
                        torch.from_numpy(errors[part]),
                        torch.from_numpy(values[part]),
                        float(found[number, 1]),
                    )
                )
            done = made
            if done < count:
                # Torch raises the error, or is nearer to the truth.
                part = slice(done * size, (done + 1) * size)
                seen.append(self._by_torch(batch.part(part)))
                done += 1
        yield from seen

    def _by_torch(self, batch: Any) -> Learnt:
        with torch.no_grad():
            target_values = self._trainer.target(batch.next_encoded)
        made = self._trainer._update(batch, target_values)
        return Learnt(made.loss, made.errors, made.values, made.gradient_norm)

    def difference(self, make_batch: Callable[..., Any], seed: int) -> str:
        """What differs from torch, in words, on rows drawn for the purpose; empty if nothing does."""
        trainer = self._trainer
        batch = rows_to_compare(trainer, make_batch, ROWS_TO_COMPARE, seed)
        for parameter in trainer.network.parameters():
            parameter.grad = None
        with torch.no_grad():
            target_values = trainer.target(batch.next_encoded)
        targets = trainer._targets(batch, target_values)
        outputs = trainer._loss(batch.encoded, batch.actions, targets, batch.weights)
        outputs[0].backward()  # type: ignore[no-untyped-call]
        expected = gradients_side_by_side(list(trainer.network.parameters()))
        gradient, *found = self.gradients(batch)
        differences = [apart("gradient", gradient, expected)]
        for name, ours, theirs in zip(("loss", "error", "value"), found, outputs, strict=True):
            differences.append(apart(name, ours, theirs.numpy(force=True)))
        return next(filter(None, differences), "")

    def gradients(self, batch: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The gradients side by side, the loss [], errors and values [B] of one update, whose parameters
        stay as they are.
        """
        count = len(batch.rewards)
        errors = np.zeros(count, np.float32)
        values = np.zeros(count, np.float32)
        found = np.zeros((1, 2))
        update(
            self._network, self._parameters, self._target, self._gradients, self._memory,
            self._of_target, no_steps(self._parameters), _rows(batch), count, (0, 1),
            bool(self._trainer.hyper.double), 0.0, errors, values, found,
        )  # fmt: skip
        return self._gradients.copy(), found[0, 0], errors, values


def rows_to_compare(
    trainer: LearningValues, make_batch: Callable[..., Any], count: int, seed: int
) -> Any:
    """Random rows, whose errors lie on both sides of the Huber loss's threshold, and none of whose
    choices of the best action depends on rounding.
    """
    generator = torch.Generator().manual_seed(seed)
    spaces = trainer.spaces

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    encoded = drawn(count, spaces.observation_size)
    next_encoded = drawn(count, spaces.observation_size)
    masks: Tensor | None = None
    if spaces.masked:
        masks = torch.rand(count, spaces.actions, generator=generator) < 0.7
    weights = torch.rand(count, generator=generator)
    if spaces.actions > 1:
        for network in (trainer.network, trainer.target):
            with torch.no_grad():
                values = network(next_encoded)
            if masks is not None:
                values = torch.where(masks, values, -1e9)
            largest = values.topk(2, dim=1).values
            weights = weights * ((largest[:, 0] - largest[:, 1]) > CLEAR_CHOICE)
    actions = torch.randint(spaces.actions, (count,), generator=generator)
    discounts = 0.9 * (torch.rand(count, generator=generator) < 0.8)
    return make_batch(
        encoded, actions, drawn(count), discounts, next_encoded, weights / count, masks
    )


def _rows(batch: Any) -> Rows:
    masks = np.zeros((0, 1), np.uint8)
    if batch.next_masks is not None:
        masks = batch.next_masks.numpy().view(np.uint8)
    return Rows(
        batch.next_masks is not None, batch.encoded.numpy(), batch.actions.numpy(),
        batch.rewards.numpy(), batch.discounts.numpy(), batch.next_encoded.numpy(),
        batch.weights.numpy(), masks,
    )  # fmt: skip


def _layout(network: ActionValues, spaces: Interface, parameters: int) -> Network:
    names = dict(network.named_parameters())
    begins = dict(zip(names, places(list(names.values()))[0], strict=True))
    layers = [name for name in names if name.startswith("torso.weight")]
    sizes = [spaces.observation_size, *(len(names[name]) for name in layers), spaces.actions]

    def of_layers(name: str) -> list[int]:
        numbers = range(1, len(layers) + 1)
        return [*(begins[f"torso.{name}{number}"] for number in numbers), begins[name]]

    return make_network(
        sizes, of_layers("weight"), of_layers("bias"), parameters=parameters, networks=1, outputs_first=True,
    )  # fmt: skip
