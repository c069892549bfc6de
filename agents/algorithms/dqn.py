"""Deep Q-learning, Mnih et al. 2015 (doi:10.1038/nature14236), in the order of its algorithm 1.

    repeat: act ε-greedily by Q, and store the transition
            sample transitions, and learn from them
                y = r + γ Q⁻(o', argmax_a Q⁻(o', a)), y = r after a termination
                L = Huber(Q(o, a) − y)
            every C steps Q⁻ ← Q

Switches, each an addition by others: `double`, the action of the target is Q's choice (van Hasselt
et al. 2016, arXiv:1509.06461); `dueling` (Wang et al. 2016, `agents.networks.action_values`);
`n_step`, r is the sum of n rewards (Sutton 1988); `prioritised` (Schaul et al. 2016,
`agents.experience.priorities`); `quantiles`, of the return instead of its mean (Dabney et al. 2018,
arXiv:1710.10044).

What others got wrong and this does not: truncation is not termination; the observation after a
reset is the successor of no transition (`agents.experience.replay`); Q⁻ is copied while steps are collected and
stays as it is in a round of updates, however many; ε depends on the step alone, also after a
restart; what a mask forbids is neither chosen nor bootstrapped from; a non-finite number never
reaches the optimiser; every generator is this training's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from agents.devices import is_accelerator, numbers, on_device
from agents.experience.collection import Collection
from agents.experience.priorities import Priorities, importance_weights
from agents.experience.replay import Transitions
from agents.interfaces import Growth, Progress, State
from agents.networks import make_action_values
from agents.networks.action_distributions import masked
from agents.networks.action_values import (
    ActionValues,
    bootstrapped,
    linear_epsilon,
    random_actions,
    taken,
)
from agents.optimisation.blocks import Block
from agents.optimisation.gradients import Gradients
from agents.optimisation.graphs import Graphed
from agents.optimisation.optimiser import Adam
from agents.states import FORMAT, check_format, ranges, to_arrays, to_tensors
from config.errors import Diverged
from config.resolved import Resolved
from config.seeds import integer_seed, seed_sequence

if TYPE_CHECKING:
    from agents.compiled.fast_dqn import CompiledDQN

MEANS = ("loss", "q_mean", "td_error", "gradient_norm")
"""The metrics that are means over an epoch's updates."""
LARGEST_SAMPLE = 8192
"""Transitions that are sampled at once, for several updates."""


class Batch(NamedTuple):
    """B transitions, possibly for several updates.

    encoded, next_encoded [B, ...]; actions [B], int64; rewards, discounts [B] (0 after an end);
    next_masks [B, A] if the environment gives masks; weights [B]: the weight of each loss in the
    sum, 1 / B unless prioritised, 0 for rows that may not be learnt from.
    """

    encoded: Tensor
    actions: Tensor
    rewards: Tensor
    discounts: Tensor
    next_encoded: Tensor
    weights: Tensor
    next_masks: Tensor | None

    def part(self, rows: slice) -> Batch:
        """The rows of this slice."""
        return Batch(*(None if column is None else column[rows] for column in self))  # type: ignore[arg-type]


class Update(NamedTuple):
    """What one step of Adam saw: the loss [], y − Q(o, a) and Q(o, a) [B] (for quantiles their
    means), the gradient's norm, on a GPU as a tensor [], and the weights [B].
    """

    loss: Tensor
    errors: Tensor
    values: Tensor
    gradient_norm: Any
    weights: Tensor


def huber(predictions: Tensor, targets: Tensor) -> Tensor:
    """The Huber loss with threshold 1, elementwise, [B] -> [B]: half the squared error up to 1,
    beyond that the absolute error minus ½.
    """
    return functional.smooth_l1_loss(predictions, targets, reduction="none")


def quantile_huber(quantiles: Tensor, targets: Tensor) -> Tensor:
    """Dabney et al. 2018, eq. 10 with κ = 1, as their algorithm 1 sums it: θ [B, M], T [B, M'] ->
    Σ_i E_j |τ_i − 1{T_j < θ_i}| Huber(T_j − θ_i), τ_i = (i + ½) / M; [B].
    """
    count = quantiles.shape[1]
    middles = (torch.arange(count, device=quantiles.device) + 0.5) / count
    errors = targets[:, None, :] - quantiles[:, :, None]
    size = functional.smooth_l1_loss(errors, torch.zeros_like(errors), reduction="none")
    sides = (middles[:, None] - (errors < 0).to(errors.dtype)).abs()
    return (sides * size).mean(dim=2).sum(dim=1)


def _means_of_unseen(learnt: Sequence[Update]) -> dict[str, float | Tensor]:
    """The metrics `MEANS` as tensors [] on the device, over the updates and rows whose weight is above
    0; NaN if there are none.
    """
    rows = torch.cat([update.weights for update in learnt]) > 0
    updates = torch.stack([(update.weights > 0).any() for update in learnt])
    values = torch.cat([update.values for update in learnt])
    errors = torch.cat([update.errors for update in learnt])
    losses = torch.stack([update.loss for update in learnt])
    # With priorities every norm has been looked at.
    norms = torch.stack(
        [
            norm if isinstance(norm, Tensor) else losses.new_full((), norm)
            for norm in (update.gradient_norm for update in learnt)
        ]
    )

    def mean(numbers: Tensor, counted: Tensor) -> Tensor:
        return torch.where(counted, numbers, 0.0).sum() / counted.sum()

    means = (
        mean(losses, updates),
        mean(values, rows),
        mean(errors.abs(), rows),
        mean(norms, updates),
    )
    return dict(zip(MEANS, means, strict=True))


class DQNTrainer:
    """The training of one run. Implements `agents.interfaces.Trainer` and `HasStreams`."""

    learnt = ("network", "target", "collection.observation_normaliser")
    policy_entries = ("format", "interface", "network", "collection.observation_normaliser")

    def __init__(self, resolved: Resolved, *, run: int, device: str, precision: str) -> None:
        torch.set_num_threads(resolved.experiment.threads)
        self.resolved = resolved
        self.hyper = resolved.hyperparameters
        self.device = torch.device(device)
        self.epoch = 0
        self.step = 0
        seed = resolved.experiment.seed
        self.generators = {
            purpose: np.random.default_rng(seed_sequence(seed, run, purpose))
            for purpose in ("actions", "replay")
        }
        self.exploration, self.sampling = self.generators.values()
        self.collection = Collection(resolved, run)
        self.replay = self.collection.replay
        self.spaces = self.collection.spaces
        weights = torch.Generator().manual_seed(integer_seed(seed, run, "weights"))
        self.network = self._make_network(precision, weights)
        self.target = self._make_network(precision, weights)
        # Both networks were drawn from one generator, so their weights differ until this copy.
        self.target.load_state_dict(self.network.state_dict())
        self.optimiser = Adam(self.network.parameters(), epsilon=self.hyper.adam_epsilon)
        self.gradients = Gradients(self._loss, self.network.parameters())
        self.priorities: Priorities | None = None
        if self.hyper.prioritised:
            capacity = self.replay.slots * self.replay.count
            self.priorities = Priorities(capacity, exponent=self.hyper.priority_exponent)
        # A round of updates is looked at with the actions of the next step. With priorities, each
        # update waits for the errors of the one before it.
        changed = self.optimiser.changed()
        self.block = Block[Update](self.device, changed, [self.sampling])
        self.block.looks_at_each |= self.hyper.prioritised
        self.unseen_update = Graphed(self._unseen_update, self.device, "an update", changed)
        # The updates as machine code, if a comparison has shown that it gives the same results.
        self.compiled = self._compiled()
        self.acting = self.network.frozen()

    def _compiled(self) -> CompiledDQN | None:
        # Another class may have another loss; the functions below know the one of this page.
        if type(self) is not DQNTrainer or not self.network.is_small:
            return None
        # numba takes a second to import, which is spared where nothing is small.
        from agents.compiled.fast_dqn import compiled_dqn

        return compiled_dqn(self, Batch)

    def _make_network(self, precision: str, generator: torch.Generator) -> ActionValues:
        return make_action_values(
            self.spaces, hidden_sizes=self.hyper.hidden_sizes, dueling=self.hyper.dueling,
            quantiles=self.hyper.quantiles, precision=precision, generator=generator,
            torso=self.hyper.network,
        ).to(self.device)  # fmt: skip

    def _copy_target(self) -> None:
        if self.compiled is not None:
            self.compiled.copy_target()
        else:
            self.target.load_state_dict(self.network.state_dict())

    def train(self) -> Iterator[Progress]:
        """Yield one `Progress` for each epoch. Raises `Diverged` for an update that is not finite."""
        while self.epoch < self.resolved.epochs:
            rounds = list[list[Update]]()
            for _ in range(self.hyper.epoch_steps // self.replay.count):
                self.collection.take_step(self._act)
                self.step = self.collection.step
                # Q⁻ is copied before the updates of the same step, and never between the updates of
                # one round, because `_learn` computes Q⁻(o') for several of them at once.
                if self.step % self.hyper.target_every == 0:
                    self._copy_target()
                if self.step % self.hyper.train_every == 0:
                    rounds.append(self.block.make(lambda: list(self._learn())))
            self.block.settle()
            learnt = [update for updates in rounds for update in updates]
            returns, lengths = self.collection.end_epoch()
            self.epoch += 1
            yield Progress(
                epoch=self.epoch, step=self.step, returns=returns, lengths=lengths,
                frame=self.step * self.resolved.game.frames_per_step, metrics=self._metrics(learnt),
            )  # fmt: skip

    @property
    def epsilon(self) -> float:
        """The probability of a random action in the next step."""
        return linear_epsilon(
            self.step, starts=self.hyper.learning_starts, final=self.hyper.final_epsilon,
            length=self.hyper.exploration_fraction * self.resolved.total_steps,
        )  # fmt: skip

    @torch.inference_mode()
    def _act(self, observations: np.ndarray, masks: np.ndarray | None) -> np.ndarray:
        """Normalised observations [N, ...] -> actions [N]."""
        explores = self.exploration.random(len(observations)) < self.epsilon
        chosen = random_actions(len(observations), self.spaces.actions, masks, self.exploration)
        # Before `learning_starts` ε is 1, and what the network answers would not be used.
        if explores.all():
            # The transitions that were learnt from may be overwritten now.
            self.block.settle()
            return chosen
        encoded = self._encoded(observations)
        allowed = None if masks is None else self._tensor(masks)
        greedy = self.block.fetch(lambda: masked(self.acting(encoded), allowed).argmax(dim=1))
        return np.where(explores, chosen, greedy)

    def _encoded(self, observations: np.ndarray) -> Tensor:
        return on_device(self.network.encode(torch.from_numpy(observations)), self.device)

    def _tensor(self, array: np.ndarray) -> Tensor:
        return on_device(torch.from_numpy(array), self.device)

    def _learn(self) -> Iterator[Update]:
        """Make a round of updates with one Q⁻. Transitions are sampled for as many updates at once
        as possible.
        """
        if self.step <= self.hyper.learning_starts or not self.replay.sampleable:
            return
        left = self.hyper.updates
        # Priorities change after each update, so that each needs a sample of its own. 8192 pairs of
        # Atari's stacks would take 0.46 GB.
        at_once = 1
        if not (self.priorities or self.spaces.image):
            at_once = max(1, LARGEST_SAMPLE // self.hyper.batch_size)
        if self.priorities is not None:
            self.priorities.follow(self.replay.sampleable)
        while left > 0:
            yield from self._updates(min(left, at_once))
            left -= at_once
        # A frozen network may hold copies of the weights, which no update reaches.
        self.acting = self.network.frozen()

    def _updates(self, count: int) -> Iterator[Update]:
        """Make this many updates, each from the next `batch_size` transitions of one sample."""
        transitions, batch = self._sample(count)
        for number, update in enumerate(self._learnt(batch, count)):
            if self.priorities is not None:
                rows = slice(number * self.hyper.batch_size, (number + 1) * self.hyper.batch_size)
                # A row that may not be learnt from gets no priority by its error; else it would be
                # sampled again and again for nothing.
                errors = update.errors.numpy(force=True) * transitions.valid[rows]
                self.priorities.update(transitions.rows[rows], errors)
            yield update

    def _learnt(self, batch: Batch, count: int) -> Iterator[Update]:
        """Make this many updates, each from as many rows of the batch."""
        size = len(batch.rewards) // count
        if self.compiled is not None:
            weights = torch.split(batch.weights, size)
            learnt = self.compiled.learn(batch, count, self.learning_rate)
            yield from (Update(*one, each) for one, each in zip(learnt, weights, strict=True))
            return
        with torch.no_grad():
            target_values = self.target(batch.next_encoded)
        for number in range(count):
            rows = slice(number * size, (number + 1) * size)
            yield self._update(batch.part(rows), target_values[rows])

    def _sample(self, count: int) -> tuple[Transitions, Batch]:
        """Sample transitions for this many updates."""
        size = count * self.hyper.batch_size
        if self.priorities is None:
            transitions = self.replay.sample(size, self.sampling)
            weights = np.ones(size, np.float32)
        else:
            rows, probabilities = self.priorities.sample(size, self.sampling)
            transitions = self.replay.take(rows)
            stored = len(self.replay.sampleable)
            weights = importance_weights(probabilities, stored, self.importance_exponent)
        # The loss is a mean over the valid rows of each update: the weights of the others are 0.
        valid = transitions.valid.reshape(count, -1)
        of_each = np.maximum(valid.sum(axis=1, keepdims=True), 1)
        weights = weights * (valid / of_each).ravel().astype(np.float32)
        return transitions, self._batch(transitions, weights)

    @property
    def importance_exponent(self) -> float:
        """β, which grows from its initial value at step 0 to 1 at the end."""
        first: float = self.hyper.importance_exponent
        return first + (1 - first) * self.step / self.resolved.total_steps

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next update."""
        first: float = self.hyper.learning_rate
        if not self.hyper.anneal_learning_rate:
            return first
        return first * (1 - self.step / self.resolved.total_steps)

    def _batch(self, transitions: Transitions, weights: np.ndarray) -> Batch:
        masks = transitions.next_masks
        next_observation = self.collection.normalised(transitions.next_observation)
        return Batch(
            encoded=self._encoded(self.collection.normalised(transitions.observation)),
            actions=self._tensor(transitions.action.astype(np.int64)),
            rewards=self._tensor(transitions.reward),
            discounts=self._tensor(transitions.discount),
            next_encoded=self._encoded(next_observation),
            weights=self._tensor(weights),
            next_masks=None if masks is None else self._tensor(masks),
        )

    @torch.no_grad()
    def _targets(self, batch: Batch, target_values: Tensor) -> Tensor:
        """The targets Y [B], or their quantiles [B, M], from Q⁻ at o' [B, A] or [B, A, M]."""
        # Double Q-learning: Q chooses the action, Q⁻ says what it is worth.
        choosing = self.network(batch.next_encoded) if self.hyper.double else target_values
        values = bootstrapped(target_values, self.network.means(choosing), batch.next_masks)
        rewards = batch.rewards
        discounts = batch.discounts
        if self.hyper.quantiles:
            rewards = rewards[:, None]
            discounts = discounts[:, None]
        # The discount is 0 after a termination, but not after a truncation.
        return torch.addcmul(rewards, discounts, values)

    def _loss(
        self, encoded: Tensor, actions: Tensor, targets: Tensor, weights: Tensor
    ) -> tuple[Tensor, ...]:
        """The loss, and the errors and values of an `Update`."""
        values = taken(self.network(encoded), actions)
        if not self.hyper.quantiles:
            loss = (weights * huber(values, targets)).sum()
            return loss, targets - values, values
        loss = (weights * quantile_huber(values, targets)).sum()
        # Errors and values are reported as means of the quantiles, which estimate the same returns.
        means = values.mean(dim=1)
        return loss, targets.mean(dim=1) - means, means

    def _update(self, batch: Batch, target_values: Tensor) -> Update:
        """Make one step of Adam."""
        rate = self.block.constant(self.learning_rate)
        if not self.block.looks_at_each:
            found = [one.clone() for one in self.unseen_update(*batch, target_values, rate)]
            update = Update._make((*found, batch.weights))
            self.block.note(update.loss, update.gradient_norm)
            return update
        targets = self._targets(batch, target_values)
        loss, errors, values = self.gradients(batch.encoded, batch.actions, targets, batch.weights)
        norm = self.optimiser.clip_gradients(self.hyper.max_gradient_norm)
        update = Update(loss, errors, values, norm, batch.weights)
        if not math.isfinite(norm + float(update.loss)):
            raise self._diverged(update, targets)
        self.optimiser.step(rate)
        return update

    def _unseen_update(self, *inputs: Any) -> tuple[Tensor, ...]:
        """A batch, Q⁻(o') and the learning rate [] -> an `Update` without its weights. None of its
        numbers is read from the device.
        """
        *columns, target_values, rate = inputs
        batch = Batch(*columns)
        targets = self._targets(batch, target_values)
        outputs = self.gradients(batch.encoded, batch.actions, targets, batch.weights)
        norm = self.optimiser.clip_unseen_gradients(self.hyper.max_gradient_norm)
        self.optimiser.step(rate)
        return *outputs, norm

    def _diverged(self, update: Update, targets: Tensor) -> Diverged:
        """The error with statistics of the batch that must not be learnt from."""
        columns = {"Q": update.values, "targets": targets, "errors": update.errors}
        return Diverged(
            f"loss or gradient is not finite in epoch {self.epoch + 1}, after step {self.step}: "
            f"loss {float(update.loss):.4g}; gradient norm {update.gradient_norm:.4g}; "
            f"batch of {len(update.values)} transitions: {ranges(columns)}"
        )

    def _metrics(self, learnt: Sequence[Update]) -> dict[str, float | None]:
        """Means over an epoch's updates; None if there was none."""
        means: dict[str, float | None] = dict.fromkeys(MEANS)
        if learnt and is_accelerator(self.device):
            found = numbers(_means_of_unseen(learnt))
            # A mean of nothing is NaN.
            means |= {name: one if math.isfinite(one) else None for name, one in found.items()}
        elif learnt := [update for update in learnt if update.weights.any()]:
            counted = torch.cat([update.weights for update in learnt]) > 0
            values = torch.cat([update.values for update in learnt])[counted]
            errors = torch.cat([update.errors for update in learnt])[counted]
            means["loss"] = float(torch.stack([update.loss for update in learnt]).mean())
            means["q_mean"] = float(values.mean())
            means["td_error"] = float(errors.abs().mean())
            means["gradient_norm"] = math.fsum(one.gradient_norm for one in learnt) / len(learnt)
        return {"epsilon": self.epsilon, **means, "learning_rate": self.learning_rate}

    def state_dict(self) -> State:
        """Everything that affects the future, except the replay's rows, which are streams."""
        return {
            "format": FORMAT, "epoch": self.epoch,
            "interface": self.spaces.as_dict(),
            "network": to_arrays(self.network.state_dict()),
            "target": to_arrays(self.target.state_dict()),
            "optimiser": self.optimiser.state_dict(),
            "priorities": self.priorities.state_dict() if self.priorities else {},
            "generators": {name: one.bit_generator.state for name, one in self.generators.items()},
            "collection": self.collection.state_dict(),
        }  # fmt: skip

    def load_state_dict(self, state: State, between: Callable[[], None] = lambda: None) -> None:
        """Continue exactly where `state_dict` was taken; `load_streams` must follow.

        between: called every few replayed steps; may raise. Raises `NoUsableState` for a state of
        another format.
        """
        check_format(state)
        self.network.load_state_dict(to_tensors(state["network"]))
        self.target.load_state_dict(to_tensors(state["target"]))
        self.acting = self.network.frozen()
        self.optimiser.load_state_dict(state["optimiser"])
        if self.priorities is not None:
            self.priorities.load_state_dict(state["priorities"])
        for name, generator in self.generators.items():
            generator.bit_generator.state = state["generators"][name]
        self.collection.load_state_dict(state["collection"], between)
        self.epoch = int(state["epoch"])
        self.step = self.collection.step

    def grown(self) -> dict[str, Growth]:
        """The replay's streams."""
        return self.collection.grown()

    def load_streams(self, streams: Mapping[str, Iterator[dict[str, np.ndarray]]]) -> None:
        """Restore the replay's rows. Raises `NoUsableState` if there are fewer than there were."""
        self.collection.load_streams(streams)

    def close(self) -> None:
        """Release the environments."""
        self.collection.close()
