"""PPO on vectors and a processor without torch: what `agents.algorithms.ppo` does, as machine code.

That page is what is read and changed. This path is taken for the classes that it knows, and only if it
finds what they find: before the training begins, on rows drawn for that, it compares the loss and its
gradient with autograd's, and the environments that it steps with the ones that gymnasium steps. Measured
on CartPole's network, one thread: an update with 256 rows takes 0.14 ms, 0.7 by torch.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from agents.compiled.clipped_loss import Rows, Rule
from agents.compiled.descent import RMSPROP, Descent
from agents.compiled.fast_cartpoles import Collecting, compiled_cartpoles
from agents.compiled.parts import collection_paused
from agents.compiled.passes import Layout, make_scratch
from agents.compiled.ppo_updates import update
from agents.compiled.side_by_side import (
    adam_side_by_side,
    apart,
    gradients_side_by_side,
    moved_side_by_side,
    no_steps,
    places,
)
from agents.experience.policy_batches import Batch, Learnt
from agents.networks.action_distributions import (
    ContinuousActions,
    DiscreteActions,
    MultiDiscreteActions,
    masked,
)
from agents.networks.actor_critic import ActorCritic, Heads
from agents.networks.towers import Towers
from agents.optimisation.optimiser import Adam, Optimiser, RMSProp

log = logging.getLogger(__name__)

ROWS_TO_COMPARE = 257
"""Several chunks, the last one not full, and four rows at a time with one left over."""
ROWS_AT_ONCE = 2**20
"""Rows of all passes in one call, in which no signal is answered and for which orders take memory."""


class Clipping(Collecting, Protocol):
    """What a training with PPO's clipped loss has."""

    hyper: Any
    network: Heads
    optimiser: Optimiser
    device: torch.device

    def order(self, count: int) -> Tensor:
        """The order of so many rows in the next pass, [count]."""

    def minibatch(self, rows: Batch) -> Batch:
        """These rows as they are learnt from."""

    def _loss(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Batch and clip [] -> the loss, log ρ [B], and its parts [3]."""

    def _update(self, batch: Batch, learning_rate: float, clip: Tensor) -> Any:
        """Make one update by torch; raises `Diverged`."""


def compiled_ppo(trainer: Clipping) -> CompiledPPO | None:
    """The compiled path of a training that has not begun, or None where torch is needed, whose reason is
    logged if it is not plain from the parameters.
    """
    if not _is_known(trainer):
        return None
    made = CompiledPPO(trainer)
    with collection_paused():
        difference = made.difference()
        if difference:
            log.warning("%s: torch goes on without machine code", difference)
            return None
        made.begin()
    return made


def _is_known(trainer: Clipping) -> bool:
    """Whether all classes are ours, and neither images nor a GPU need torch."""
    network = trainer.network
    return (
        type(network) is ActorCritic
        and type(network.torso) is Towers
        and type(trainer.optimiser) in (Adam, RMSProp)
        and type(trainer.actions) in (DiscreteActions, MultiDiscreteActions, ContinuousActions)
        and trainer.device.type == "cpu"
    )


class CompiledPPO:
    """The parameters and the optimiser's moments of a training in flat arrays, which torch's tensors
    share, and what works on them.
    """

    def __init__(self, trainer: Clipping) -> None:
        self._trainer = trainer
        names = dict(trainer.network.named_parameters())
        self._begins = dict(zip(names, places(list(names.values()))[0], strict=True))
        self._parameters = moved_side_by_side(list(names.values()))
        self._layout = _layout(trainer, self._begins, len(self._parameters))
        self._gradients = np.zeros_like(self._parameters)
        self._scratch = make_scratch(self._layout)

    def begin(self) -> None:
        """Take over the optimiser's state and, where the game has such, the environments."""
        trainer = self._trainer
        optimiser = trainer.optimiser
        largest_norm = float(trainer.hyper.max_gradient_norm)
        if isinstance(optimiser, Adam):
            self._descent = adam_side_by_side(optimiser, largest_norm)
        elif isinstance(optimiser, RMSProp):
            nothing = np.zeros(1, np.float32)
            squares = moved_side_by_side(optimiser.squares)
            self._descent = Descent(
                RMSPROP, float(optimiser.epsilon), largest_norm, nothing, squares, nothing
            )
        self._cartpoles = compiled_cartpoles(trainer, self._layout, self._parameters, self._scratch)

    def fill_rollout(self) -> bool:
        """Collect the training's next rollout, if that is possible for its environments."""
        if self._cartpoles is None:
            return False
        self._cartpoles.fill_rollout()
        return True

    def learn(self, batch: Batch, learning_rate: float, clip: float) -> Learnt:
        """Make all passes over the batch. Raises `Diverged` before an update that is not finite."""
        trainer = self._trainer
        rows = _rows(batch)
        rule = self._rule(clip)
        count = len(batch.returns)
        minibatches = min(trainer.hyper.minibatches, count)
        sizes = [len(one) for one in np.array_split(np.arange(count), minibatches)]
        passes = trainer.hyper.update_epochs
        advantages = np.zeros(max(sizes), np.float32)
        at_once = max(1, ROWS_AT_ONCE // count)
        found = list[np.ndarray]()
        for first in range(0, passes, at_once):
            now = min(at_once, passes - first)
            order = np.concatenate([trainer.order(count).numpy() for _ in range(now)])
            bounds = np.cumsum([0, *sizes * now])
            log_ratios = np.empty(len(order), np.float32)
            seen = np.zeros((len(bounds) - 1, 4))
            done = 0
            while done < len(seen):
                done = update(
                    self._layout, self._parameters, self._gradients, self._scratch, self._descent,
                    rows, order, bounds, (done, len(seen)), advantages, bool(trainer.hyper.normalise_advantages),
                    rule, learning_rate, log_ratios, seen,
                )  # fmt: skip
                if done < len(seen):
                    part = slice(bounds[done], bounds[done + 1])
                    log_ratios[part], seen[done] = self._by_torch(
                        batch, order[part], learning_rate, clip
                    )
                    done += 1
            found.append(seen)
        everything = np.concatenate(found)
        objective, squared_error, entropy = everything[:, :3].mean(axis=0).tolist()
        return Learnt(
            (objective, squared_error, entropy),
            everything[:, 3].tolist(),
            torch.from_numpy(log_ratios[-count:]),
        )

    def _by_torch(
        self, batch: Batch, rows: np.ndarray, learning_rate: float, clip: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """An update that is not finite here: torch raises the error, or is nearer to the truth. Returns
        log ρ and the row of numbers that it saw.
        """
        minibatch = self._trainer.minibatch(batch.take(torch.from_numpy(rows)))
        made = self._trainer._update(minibatch, learning_rate, torch.tensor(clip))
        return made.log_ratio.numpy(), np.array([*made.parts.tolist(), made.gradient_norm])

    def _rule(self, clip: float) -> Rule:
        hyper = self._trainer.hyper
        return Rule(
            float(clip), bool(hyper.clip_value_loss), float(hyper.entropy_coefficient),
            float(hyper.value_coefficient),
        )  # fmt: skip

    def difference(self) -> str:
        """What differs from torch, in words, on rows drawn for the purpose; empty if nothing does."""
        trainer = self._trainer
        clip = 0.2
        batch = rows_to_compare(trainer, ROWS_TO_COMPARE, clip)
        for parameter in trainer.network.parameters():
            parameter.grad = None
        inputs: tuple[Any, ...] = (*batch, torch.tensor(clip))
        loss, log_ratio, parts = trainer._loss(*inputs)
        loss.backward()  # type: ignore[no-untyped-call]
        expected = gradients_side_by_side(list(trainer.network.parameters()))
        found, found_ratio, found_parts = self.gradients(batch, clip)
        return (
            apart("gradient", found, expected)
            or apart("log ratio", found_ratio, log_ratio.numpy(force=True))
            or apart("loss", found_parts, parts.numpy(force=True))
        )

    def gradients(self, batch: Batch, clip: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The gradients side by side, log ρ [B] and an `Update`'s parts [3] of one minibatch, whose
        parameters stay as they are.
        """
        count = len(batch.returns)
        log_ratios = np.zeros(count, np.float32)
        seen = np.zeros((1, 4))
        descent = no_steps(self._parameters)
        update(
            self._layout, self._parameters, self._gradients, self._scratch, descent, _rows(batch),
            np.arange(count), np.array([0, count]), (0, 1), np.zeros(count, np.float32), False, self._rule(clip), 0.0, log_ratios,
            seen,
        )  # fmt: skip
        return self._gradients.copy(), log_ratios, seen[0, :3]


def rows_to_compare(trainer: Clipping, count: int, clip: float) -> Batch:
    """Random rows, whose ratios and values lie on all sides of the clip range and never at its ends, where
    rounding would decide.
    """
    generator = torch.Generator().manual_seed(1)
    spaces = trainer.environments.interface
    encoded = torch.randn(count, spaces.observation_size, generator=generator)
    masks: Tensor | None = None
    if spaces.masked:
        masks = torch.rand(count, spaces.policy_outputs, generator=generator) < 0.7
        first = 0
        for choices in spaces.choices or (spaces.actions,):
            masks[:, first] = True
            first += choices
    with torch.no_grad():
        policy, values = trainer.network(encoded)
        # The first policy is nearly uniform; what is wrong for another one is to be seen, too.
        noise = trainer.actions.noise((count,), generator)
        actions = trainer.actions.choose(masked(policy, masks), noise)
        log_probabilities = trainer.actions.log_probability(masked(policy, masks), actions)
    moves = clip * torch.tensor([-3.0, -0.5, 0.5, 3.0])

    def moved() -> Tensor:
        return moves[torch.randint(len(moves), (count,), generator=generator)]

    return Batch(
        encoded, actions, log_probabilities + moved(), values + moved(),
        torch.randn(count, generator=generator),
        values + torch.randn(count, generator=generator), masks,
    )  # fmt: skip


def _rows(batch: Batch) -> Rows:
    count = len(batch.returns)
    masks = np.zeros((0, 1), np.uint8)
    if batch.masks is not None:
        masks = batch.masks.numpy().view(np.uint8)
    actions = batch.actions.reshape(count, -1).numpy()
    choices = np.zeros((0, 1), np.int64)
    continuous = np.zeros((0, 1), np.float32)
    if batch.actions.is_floating_point():
        continuous = actions
    else:
        choices = actions
    return Rows(
        batch.masks is not None, batch.encoded.numpy(), choices, continuous,
        batch.log_probabilities.numpy(), batch.values.numpy(), batch.advantages.numpy(),
        batch.returns.numpy(), masks,
    )  # fmt: skip


def _layout(trainer: Clipping, begins: dict[str, int], parameters: int) -> Layout:
    spaces = trainer.environments.interface
    sizes = (spaces.observation_size, *trainer.hyper.hidden_sizes)

    def of_layers(name: str) -> np.ndarray:
        return np.array([begins[f"torso.{name}{number}"] for number in range(1, len(sizes))])

    choices: Sequence[int] = spaces.choices or ((spaces.actions,) if spaces.discrete else ())
    return Layout(
        parameters, len(sizes) - 1, np.array(sizes), of_layers("weight"), of_layers("bias"), spaces.policy_outputs,
        begins["policy_weight"], begins["policy_bias"], begins["value_weight"],
        begins["value_bias"], begins.get("log_std", -1), len(choices), np.array(choices, np.int64),
    )  # fmt: skip
