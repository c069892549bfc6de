"""Soft actor-critic on vectors and a processor without torch: the steps of `agents.algorithms.sac` as
machine code.

That page is what is read and changed. This path is taken for the networks that it knows, and only if it
finds what they find: before the training begins, on rows drawn for that, it compares both losses and
their gradients with autograd's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from agents.compiled.dense import CHUNK
from agents.compiled.descent import ADAM, Descent
from agents.compiled.parts import collection_paused
from agents.compiled.perceptrons import Memory, Network, make_memory, make_network
from agents.compiled.side_by_side import (
    adam_side_by_side,
    apart,
    first_difference,
    gradients_side_by_side,
    moved_side_by_side,
    places,
)
from agents.compiled.soft_updates import (
    Rows,
    Sampled,
    Side,
    update_actor,
    update_critics,
    update_temperature,
)
from agents.networks.action_distributions import SquashedActions
from agents.networks.twin_critics import Flat, Perceptrons, SoftActorCritic
from agents.optimisation.optimiser import Adam

log = logging.getLogger(__name__)

ROWS_TO_COMPARE = 69
"""Two chunks, the second one not full, and four rows at a time with one left over."""


Learnt = tuple[tuple[Tensor, ...], float]
"""What a loss gave, tensors [], and the norm of its gradient."""


class LearnsActions(Protocol):
    """What a training with SAC's losses has."""

    hyper: Any
    network: SoftActorCritic
    actions: Any
    log_alpha: nn.Parameter
    target_entropy: float | None
    device: torch.device

    def _targets(self, batch: Any, noise: Tensor, alpha: Tensor) -> Tensor:
        """The targets [B]."""

    def _critics_loss(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Encoded, actions, targets and weights -> the loss, and the means of Q and of |Q − y|."""

    def _actor_loss(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Features, noise and α -> the loss, and the entropy."""

    def _temperature_loss(self, entropy: Tensor) -> tuple[Tensor, ...]:
        """The loss."""


def compiled_sac(
    trainer: LearnsActions,
    optimisers: Sequence[Adam],
    make_batch: Callable[..., Any],
) -> CompiledSAC | None:
    """The compiled path of a training that has not begun, or None where torch is needed, whose reason is
    logged if it is not plain from the parameters. optimisers: of the critics, the policy and the
    temperature; make_batch: the class of the trainer's batches.
    """
    network = trainer.network
    known = (
        type(network) is SoftActorCritic
        and type(network.torso) is Flat
        and type(network.actor) is Perceptrons
        and type(network.critics) is Perceptrons
        and type(trainer.actions) is SquashedActions
        and all(type(one) is Adam for one in optimisers)
        and trainer.device.type == "cpu"
    )
    if not known:
        return None
    made = CompiledSAC(trainer)
    with collection_paused():
        difference = first_difference(lambda seed: made.difference(make_batch, seed))
    if difference:
        log.warning("%s: torch goes on without machine code", difference)
        return None
    made.begin(optimisers)
    return made


class CompiledSAC:
    """The parameters of all networks and the optimisers' moments in flat arrays, which torch's tensors
    share, and what works on them.
    """

    def __init__(self, trainer: LearnsActions) -> None:
        self._trainer = trainer
        network = trainer.network
        self._actor = _side(network.actor)
        self._critics = _side(network.critics)
        self._target = moved_side_by_side(list(network.target_critics.parameters()))
        self._slow: Memory = make_memory(self._critics.network)
        self._log_alpha = moved_side_by_side([trainer.log_alpha])
        self._by_log_alpha = np.zeros_like(self._log_alpha)
        self._of_temperature = _no_steps(self._log_alpha)
        self._make_room(ROWS_TO_COMPARE)

    def _make_room(self, rows: int) -> None:
        actions = self._trainer.network.spaces.actions

        def zeros(*shape: int) -> np.ndarray:
            return np.zeros(shape, np.float32)

        self._sampled = Sampled(
            zeros(rows, actions), zeros(rows), zeros(rows), zeros(2, rows), zeros(2, rows, actions)
        )
        memory = make_memory(self._actor.network, -(-rows // CHUNK))
        self._actor = self._actor._replace(memory=memory)

    def begin(self, optimisers: Sequence[Adam]) -> None:
        """Take over the optimisers' states."""
        of_critics, of_actor, self._of_temperature = (
            adam_side_by_side(one, np.inf) for one in optimisers
        )
        self._critics = self._critics._replace(descent=of_critics)
        self._actor = self._actor._replace(descent=of_actor)

    def descend_critics(
        self, batch: Any, noise: Tensor, alpha: float, learning_rate: float
    ) -> Learnt | None:
        """Make a step of the critics' optimiser: the loss and the means of Q and of |Q − y|, and the
        gradient's norm; None where that is not finite, and nothing is changed. noise [2, B, A].
        """
        if len(batch.rewards) > len(self._sampled.targets):
            self._make_room(len(batch.rewards))
        found = np.empty(4)
        made = update_critics(
            self._critics, self._actor, self._target, self._slow, _rows(batch, noise),
            self._sampled, alpha, learning_rate, found,
        )  # fmt: skip
        return _learnt(found) if made else None

    def descend_actor(
        self, batch: Any, noise: Tensor, alpha: float, learning_rate: float
    ) -> Learnt | None:
        """Likewise of the policy's: the loss and the entropy, and the gradient's norm."""
        found = np.empty(3)
        made = update_actor(
            self._critics, self._actor, _rows(batch, noise), self._sampled, alpha, learning_rate,
            found,
        )  # fmt: skip
        return _learnt(found) if made else None

    def descend_temperature(self, surplus: float, learning_rate: float) -> bool:
        """Likewise of α's, whether it is finite. surplus: of the entropy over the one that is aimed at."""
        return bool(
            update_temperature(
                self._log_alpha, self._by_log_alpha, surplus, self._of_temperature, learning_rate
            )
        )

    def follow(self, rate: float) -> None:
        """Move the slow critics by this share of the way."""
        fast = torch.from_numpy(self._critics.parameters)
        torch.from_numpy(self._target).lerp_(fast, rate)

    def difference(self, make_batch: Callable[..., Any], seed: int) -> str:
        """What differs from torch, in words, on rows drawn for the purpose; empty if nothing does."""
        trainer = self._trainer
        batch, noise = rows_to_compare(trainer, make_batch, ROWS_TO_COMPARE, seed)
        alpha = torch.tensor(0.7)
        targets = trainer._targets(batch, noise[1], alpha)
        expected: Mapping[str, tuple[Tensor, ...]] = {
            "critics": trainer._critics_loss(batch.encoded, batch.actions, targets, batch.weights),
            "actor": trainer._actor_loss(batch.encoded, noise[0], alpha),
        }
        networks: Mapping[str, nn.Module] = {
            "critics": trainer.network.critics, "actor": trainer.network.actor,
        }  # fmt: skip
        found = self.gradients(batch, noise, float(alpha))
        for name, outputs in expected.items():
            parameters = list(networks[name].parameters())
            for parameter in parameters:
                parameter.grad = None
            outputs[0].backward()  # type: ignore[no-untyped-call]
            gradient, numbers = found[name]
            theirs = torch.stack(outputs).numpy(force=True)
            difference = apart(
                f"gradient of the {name}", gradient, gradients_side_by_side(parameters)
            ) or apart(f"loss of the {name}", numbers, theirs)
            if difference:
                return difference
        return self._difference_of_temperature()

    def _difference_of_temperature(self) -> str:
        """Likewise, of α's gradient."""
        trainer = self._trainer
        if trainer.target_entropy is None:
            return ""
        entropy = torch.tensor(0.3)
        trainer.log_alpha.grad = None
        trainer._temperature_loss(entropy)[0].backward()  # type: ignore[no-untyped-call]
        expected = gradients_side_by_side([trainer.log_alpha])
        self.descend_temperature(float(entropy) - trainer.target_entropy, 0.0)
        return apart("gradient of the temperature", self._by_log_alpha, expected)

    def gradients(
        self, batch: Any, noise: Tensor, alpha: float
    ) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Of critics and actor the gradients side by side, and the numbers that a step gives; all
        parameters stay as they are.
        """
        kept = self._critics, self._actor
        self._critics, self._actor = (_without_memory(one) for one in kept)
        of_critics = self.descend_critics(batch, noise, alpha, 0.0)
        of_actor = self.descend_actor(batch, noise, alpha, 0.0)
        self._critics, self._actor = kept
        found = dict[str, tuple[np.ndarray, np.ndarray]]()
        for name, side, learnt in (
            ("critics", self._critics, of_critics),
            ("actor", self._actor, of_actor),
        ):
            numbers = np.array(np.nan) if learnt is None else torch.stack(learnt[0]).numpy()
            found[name] = (side.gradients.copy(), numbers)
        return found


def rows_to_compare(
    trainer: LearnsActions, make_batch: Callable[..., Any], count: int, seed: int
) -> tuple[Any, Tensor]:
    """Random rows, and noise [2, count, A]."""
    generator = torch.Generator().manual_seed(seed)
    spaces = trainer.network.spaces

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    batch = make_batch(
        drawn(count, spaces.observation_size), drawn(count, spaces.actions).tanh(), drawn(count),
        0.9 * (torch.rand(count, generator=generator) < 0.8), drawn(count, spaces.observation_size),
        torch.rand(count, generator=generator) / count,
    )  # fmt: skip
    return batch, drawn(2, count, spaces.actions)


def _learnt(found: np.ndarray) -> Learnt:
    return torch.from_numpy(found[:-1].astype(np.float32)).unbind(), float(found[-1])


def _without_memory(side: Side) -> Side:
    """With an optimiser that has made no step."""
    return side._replace(descent=_no_steps(side.parameters))


def _no_steps(parameters: np.ndarray) -> Descent:
    nothing = np.zeros_like(parameters)
    return Descent(ADAM, 1.0, np.inf, nothing, nothing.copy(), np.zeros(1, np.float32))


def _rows(batch: Any, noise: Tensor) -> Rows:
    columns = [one.numpy() for one in (*batch, noise)]
    return Rows(len(batch.rewards), *columns)


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
        _no_steps(parameters),
    )
