"""Proximal policy optimisation, Schulman et al. 2017 (arXiv:1707.06347), in the order of the
paper's algorithm 1.

    repeat: collect T steps of N environments with the policy π_old
            estimate advantages A (GAE, eq. 11 and 12)
            K passes over the T·N rows in minibatches, each maximising eq. 9:
                L = E[min(ρA, clip(ρ, 1 − ε, 1 + ε) A)] − c_v ½ E[(V − R)²] + c_e E[H]
            where ρ = π / π_old

What others got wrong and this does not: truncation is not termination (`advantages.py`); rows whose
action was forced are left out of every loss and mean; π_old is what acted, computed once, before
the first update; advantages are normalised per minibatch; an update that is not finite is never
kept; every generator is this training's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from agents.devices import is_accelerator, on_device, threads_for
from agents.environments.normalisation import REWARD_SCALE, ObservationNormaliser, RewardNormaliser
from agents.environments.training import TrainingEnvironments
from agents.experience.policy_batches import Batch, Learnt
from agents.experience.returns import (
    approximate_divergence,
    explained_variance,
    explained_variance_of_tensors,
    gae,
    gae_by_doubling,
)
from agents.experience.rollouts import Episodes, Rollout, collect
from agents.interfaces import Progress, State
from agents.networks import make_actor_critic
from agents.networks.action_distributions import make_actions, masked
from agents.networks.actor_critic import Heads
from agents.optimisation.blocks import Block, Measured, mean_norm
from agents.optimisation.gradients import Gradients
from agents.optimisation.graphs import Graphed
from agents.optimisation.optimiser import OPTIMISERS
from agents.states import FORMAT, check_format, ranges, to_arrays, to_tensors
from config.errors import Diverged
from config.resolved import Resolved
from config.seeds import integer_seed

if TYPE_CHECKING:
    from agents.compiled.fast_ppo import CompiledPPO

LARGEST_LOG_RATIO = 80.0
"""The exponential of this is finite. Infinity times a gradient of 0 would be NaN."""


class Update(NamedTuple):
    """What the optimiser saw: the loss, log ρ [B], the loss's parts [3] (eq. 7, the mean squared
    error of the values, the entropy), and the gradient's norm, on a GPU as a tensor [].
    """

    loss: Tensor
    log_ratio: Tensor
    parts: Tensor
    gradient_norm: Any


def clipped_objective(log_ratio: Tensor, advantages: Tensor, clip: Tensor) -> Tensor:
    """Eq. 7: mean(min(ρA, clip(ρ, 1 − ε, 1 + ε) A)). log_ratio (log ρ), advantages: [B]."""
    ratio = log_ratio.clamp(max=LARGEST_LOG_RATIO).exp()
    free = ratio * advantages
    # The clipped term is smaller only where ρ has left the interval. It is constant there, so
    # that autograd need not record it.
    with torch.no_grad():
        clipped = ratio.clamp(1 - clip, 1 + clip) * advantages
    return torch.where(free <= clipped, free, clipped).mean()


def squared_value_error(
    values: Tensor, returns: Tensor, old_values: Tensor, clip: Tensor | None
) -> Tensor:
    """mean((V − R)²), all [B]. With `clip`, the mean of the larger square of this one and of that
    of V moved at most `clip` from its old value, as in openai/baselines.
    """
    if clip is None:
        return functional.mse_loss(values, returns)
    near = old_values + (values - old_values).clamp(-clip, clip)
    # Inside the clip `near` is V up to a rounding error. Either square may be the larger one then,
    # and both give V the same gradient.
    return torch.maximum((values - returns).square(), (near - returns).square()).mean()


class PPOTrainer:
    """The training of one run. Implements `agents.interfaces.Trainer`."""

    learnt = ("network", "observation_normaliser", *REWARD_SCALE)
    policy_entries = ("format", "interface", "network", "observation_normaliser")

    def __init__(self, resolved: Resolved, *, run: int, device: str, precision: str) -> None:
        torch.set_num_threads(resolved.experiment.threads)
        self.resolved = resolved
        self.run = run
        self.hyper = resolved.hyperparameters
        self.settings = resolved.environment
        self.device = torch.device(device)
        self.epoch = self.step = 0
        # Each purpose has its own generator, so that one more draw for one of them changes no
        # other.
        self.initial_weights = self._generator(run, "weights")
        self.action_noise = self._generator(run, "actions")
        self.permutations = self._generator(run, "minibatches")
        self.environments = TrainingEnvironments(
            resolved, run, beside_accelerator=is_accelerator(self.device)
        )
        spaces = self.environments.interface
        self.network = self._make_network(precision).to(self.device)
        self.actions = make_actions(spaces)
        self.optimiser = OPTIMISERS[self.hyper.optimiser](
            self.network.parameters(), epsilon=self.hyper.adam_epsilon
        )
        self.gradients = Gradients(self._loss, self.network.parameters())
        changed = self.optimiser.changed()
        self.block = Block[Learnt](self.device, changed, [self.permutations])
        self.unseen_update = Graphed(self._unseen_update, self.device, "an update", changed)
        self.acting = Graphed(self.network, self.device, "acting")
        # Pixels have a known range and need no statistics.
        normalise = self.settings.normalise_observations and not spaces.image
        self.observation_normaliser = self.reward_normaliser = None
        if normalise:
            self.observation_normaliser = ObservationNormaliser(spaces.environment_shape)
        if self.settings.normalise_rewards:
            self.reward_normaliser = RewardNormaliser(self.settings.count, self.hyper.discount)
        self.episodes = Episodes(self.settings.count)
        # Memory of a rollout is allocated once; every rollout overwrites the one before.
        length = self.hyper.rollout_length
        self.rollout = Rollout.allocate(
            self.environments, self.network, self.actions, length, observations=normalise
        )
        # Rollouts and updates as machine code, if a comparison has shown that it gives the same
        # results.
        self.compiled = self._compiled()

    def _generator(self, run: int, purpose: str) -> torch.Generator:
        seed = integer_seed(self.resolved.experiment.seed, run, purpose)
        return torch.Generator().manual_seed(seed)

    def _make_network(self, precision: str) -> Heads:
        return make_actor_critic(
            self.environments.interface, hidden_sizes=self.hyper.hidden_sizes,
            log_std_init=self.hyper.log_std_init, precision=precision,
            generator=self.initial_weights, torso=self.hyper.network,
        )  # fmt: skip

    def _compiled(self) -> CompiledPPO | None:
        # Another class may have another loss; the functions below know the ones of this page.
        if type(self) is not PPOTrainer or not self.network.is_small:
            return None
        # numba takes a second to import, which is spared where nothing is small.
        from agents.compiled.fast_ppo import compiled_ppo

        return compiled_ppo(self)

    def train(self) -> Iterator[Progress]:
        """Yield one `Progress` for each epoch. Raises `Diverged` for an update that is not finite."""
        while self.epoch < self.resolved.epochs:
            remaining = 1 - self.epoch / self.resolved.epochs
            returns = list[float]()
            lengths = list[int]()
            if self.epoch == 0:
                returns, lengths = self._warm_up()
            later_returns, later_lengths = self._collect()
            metrics = self._learn(self._batch(), remaining)
            # The statistics change between rollouts only, so that the policy that acted and the
            # policy that learns see the same numbers.
            self._observe()
            self.epoch += 1
            yield Progress(
                epoch=self.epoch, step=self.step, metrics=metrics,
                frame=self.step * self.resolved.game.frames_per_step,
                returns=returns + later_returns, lengths=lengths + later_lengths,
            )  # fmt: skip

    def _warm_up(self) -> tuple[list[float], list[int]]:
        """Collect a rollout that only fills the statistics of observations, and return its
        episodes.

        Otherwise the first epoch would learn from raw observations and then never see such again.
        It is also done for images, which have no such statistics, because a training's length is
        announced before its game is seen.
        """
        if not self.settings.normalise_observations:
            return [], []
        episodes = self._collect()
        self._observe()
        # These rewards are not learnt from. They are computed because the discounted returns of the
        # episodes in flight must go on through this rollout.
        self._learnt_rewards()
        return episodes

    def _collect(self) -> tuple[list[float], list[int]]:
        """Collect one rollout, count its steps, and return the episodes that ended in it."""
        # The network sees one group of environments at a time, so the first group's size decides.
        with threads_for(self.environments.groups[0].stop):
            self._fill_rollout()
        rollout = self.rollout
        self.step += rollout.rewards.size
        return self.episodes.finish(rollout.rewards, rollout.terminated | rollout.truncated)

    def _fill_rollout(self) -> None:
        if self.compiled is not None and self.compiled.fill_rollout():
            return
        collect(
            self.rollout, self.environments, self.network, self.actions,
            self.observation_normaliser, self.action_noise, step=self.step,
            network_now=self.acting if is_accelerator(self.device) else None,
        )  # fmt: skip

    def _observe(self) -> None:
        """Update the statistics of observations with the rollout."""
        rollout = self.rollout
        if self.observation_normaliser is not None and rollout.observations is not None:
            self.observation_normaliser.update(rollout.observations[rollout.valid])

    def _learnt_rewards(self) -> np.ndarray:
        """The rewards as they are learnt from, [T, N]. The statistics of their scale are updated
        first.
        """
        rollout = self.rollout
        # The rollout keeps the game's own rewards, because episodes are reported in these.
        rewards = rollout.rewards
        if self.settings.clip_rewards:
            rewards = np.clip(rewards, -1, 1)
        if self.reward_normaliser is None:
            return rewards
        ended = rollout.terminated | rollout.truncated | rollout.life_lost
        return self.reward_normaliser(rewards, ended, rollout.valid)

    def _batch(self) -> Batch:
        """The rollout's advantages and returns, eq. 11 and 12, and log π_old of its actions."""
        rollout = self.rollout
        advantages, returns = self._advantages()
        actions = rollout.actions.flatten(0, 1)
        # log π_old comes from the stored outputs, before the first update: computed anew in every
        # minibatch, ρ would always be 1.
        log_probabilities = self.actions.log_probability(rollout.policy.flatten(0, 1), actions)
        batch = Batch(
            encoded=rollout.encoded[:-1].flatten(0, 1),
            actions=actions,
            log_probabilities=log_probabilities,
            values=rollout.values[:-1].flatten(),
            advantages=advantages,
            returns=returns,
            masks=None if rollout.masks is None else rollout.masks.flatten(0, 1),
        )
        if rollout.valid.all():
            return batch
        # Where an action was forced (Atari's FIRE), the policy did not choose it.
        valid = torch.from_numpy(np.flatnonzero(rollout.valid))
        return batch.take(on_device(valid, self.device))

    def _advantages(self) -> tuple[Tensor, Tensor]:
        """The rollout's advantages A and returns R = A + V, the λ-return, [T · N] each."""
        rollout = self.rollout
        factors = {"discount": self.hyper.discount, "gae_lambda": self.hyper.gae_lambda}
        values = rollout.values[:-1]
        # A lost life is terminal for what is learnt (Mnih et al. 2015); the game itself goes on.
        ends = (rollout.terminated | rollout.life_lost, rollout.truncated)
        rewards = self._learnt_rewards()
        # Both are computed in float64 and learnt in float32.
        if is_accelerator(self.device):
            answers = (on_device(torch.from_numpy(one), self.device) for one in (rewards, *ends))
            rewards_there, *ends_there = answers
            there = gae_by_doubling(
                rewards_there, values, rollout.next_values, *ends_there, **factors
            )
            return there.flatten().float(), (there + values).flatten().float()
        old_values = values.numpy()
        advantages = gae(rewards, old_values, rollout.next_values.numpy(), *ends, **factors)
        learnt = (advantages, advantages + old_values)
        first, second = (torch.from_numpy(one.ravel().astype(np.float32)) for one in learnt)
        return first, second

    def _learn(self, batch: Batch, remaining: float) -> dict[str, float]:
        """Make K passes over the batch and return the epoch's metrics. remaining: falls from 1 to 0
        over the training.
        """
        hyper = self.hyper
        learning_rate = hyper.learning_rate
        if hyper.anneal_learning_rate:
            learning_rate *= remaining
        clip_range = hyper.clip
        if hyper.anneal_clip:
            clip_range *= remaining
        learn = self._learn_by_torch if self.compiled is None else self.compiled.learn
        # On a GPU, `look` is the first that reads a number.
        learnt = self.block.make(lambda: [learn(batch, learning_rate, clip_range)])
        metrics = self.block.look(lambda: self._measured(batch, clip_range, learnt[0]))
        return {"learning_rate": learning_rate, **metrics}

    def _measured(self, batch: Batch, clip_range: float, learnt: Learnt) -> Measured:
        """The epoch's metrics."""
        objective, squared_error, entropy = learnt.parts
        log_ratio = learnt.log_ratio
        explained: float | Tensor
        if is_accelerator(self.device):
            explained = explained_variance_of_tensors(batch.values, batch.returns)
        else:
            explained = explained_variance(batch.values.numpy(), batch.returns.numpy())
        return {
            "policy_loss": -objective,
            "value_loss": 0.5 * squared_error,
            "entropy": entropy,
            "approximate_kl": approximate_divergence(log_ratio),
            "clip_fraction": (log_ratio.expm1().abs() > clip_range).float().mean(),
            "gradient_norm": mean_norm(learnt.norms),
            "explained_variance": explained,
        }

    def _learn_by_torch(self, batch: Batch, learning_rate: float, clip_range: float) -> Learnt:
        """All passes over the batch."""
        # The range is a tensor, because a recorded update would hold a Python number as a
        # constant.
        clip = torch.full((), clip_range, device=self.device)
        rate = self.block.constant(learning_rate)
        parts = list[Tensor]()
        norms = list[Any]()
        for minibatches in self._passes(batch):
            last = [self._update(minibatch, rate, clip) for minibatch in minibatches]
            parts += [update.parts for update in last]
            norms += [update.gradient_norm for update in last]
        objective, squared_error, entropy = torch.stack(parts).mean(dim=0)
        # The ratios of the last pass tell how far the whole epoch moved π from π_old.
        log_ratio = torch.cat([update.log_ratio for update in last])
        return Learnt((objective, squared_error, entropy), norms, log_ratio)

    def _passes(self, batch: Batch) -> Iterator[Iterable[Batch]]:
        """All rows K times, each time in nearly equal minibatches and a new order. A single
        minibatch is not shuffled.
        """
        if self.hyper.minibatches == 1:
            yield from [[self.minibatch(batch)]] * self.hyper.update_epochs
            return
        for _ in range(self.hyper.update_epochs):
            order = self.order(len(batch.returns))
            parts = on_device(order, self.device).tensor_split(self.hyper.minibatches)
            # tensor_split gives empty parts where there are fewer rows than minibatches.
            yield (self.minibatch(batch.take(rows)) for rows in parts if len(rows))

    def order(self, count: int) -> Tensor:
        """The order of so many rows in the next pass, [count]; a single minibatch has no need of one."""
        if self.hyper.minibatches == 1:
            return torch.arange(count)
        return torch.randperm(count, generator=self.permutations)

    def minibatch(self, rows: Batch) -> Batch:
        """These rows as they are learnt from."""
        return rows.normalised() if self.hyper.normalise_advantages else rows

    def _loss(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Batch and clip [] -> eq. 9, negated, and the other parts of an `Update`."""
        batch = Batch(*inputs[:-1])
        clip = inputs[-1]
        hyper = self.hyper
        policy, values = self.network(batch.encoded)
        policy = masked(policy, batch.masks)
        log_ratio = self.actions.log_probability(policy, batch.actions) - batch.log_probabilities
        objective = clipped_objective(log_ratio, batch.advantages, clip)
        value_clip = clip if hyper.clip_value_loss else None
        squared_error = squared_value_error(values, batch.returns, batch.values, value_clip)
        # Without a coefficient the entropy is only a metric and needs no gradient.
        with torch.set_grad_enabled(hyper.entropy_coefficient > 0):
            entropy = self.actions.entropy(policy).mean()
        loss = 0.5 * hyper.value_coefficient * squared_error - objective
        if hyper.entropy_coefficient > 0:
            loss = loss - hyper.entropy_coefficient * entropy
        return loss, log_ratio, torch.stack((objective, squared_error, entropy))

    def _update(self, batch: Batch, learning_rate: float | Tensor, clip: Tensor) -> Update:
        """Make one step of the optimiser on one minibatch."""
        if not self.block.looks_at_each:
            found = self.unseen_update(*batch, clip, learning_rate)
            update = Update(*(one.clone() for one in found))
            self.block.note(update.loss, update.gradient_norm)
            return update
        loss, log_ratio, parts = self.gradients(*batch, clip)
        norm = self.optimiser.clip_gradients(self.hyper.max_gradient_norm)
        update = Update(loss, log_ratio, parts, norm)
        # The norm is finite only if every entry of the gradient is. The check comes before the
        # step, so that a saved state never holds NaN.
        if not math.isfinite(norm + float(loss)):
            raise self._diverged(batch, update)
        self.optimiser.step(learning_rate)
        return update

    def _unseen_update(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Batch, clip [] and learning rate [] -> an `Update`. None of its numbers is read from the
        device before its block is complete.
        """
        loss, log_ratio, parts = self.gradients(*inputs[:-1])
        norm = self.optimiser.clip_unseen_gradients(self.hyper.max_gradient_norm)
        self.optimiser.step(inputs[-1])
        return loss, log_ratio, parts, norm

    def _diverged(self, batch: Batch, update: Update) -> Diverged:
        """The error with statistics of the minibatch that must not be learnt from."""
        columns = {"advantages": batch.advantages, "returns": batch.returns}
        objective, squared_error, entropy = update.parts.tolist()
        return Diverged(
            f"loss or gradient is not finite in epoch {self.epoch + 1}, after step {self.step}: "
            f"losses: policy {-objective:.4g}, value {0.5 * squared_error:.4g}, "
            f"entropy {entropy:.4g}; gradient norm {update.gradient_norm:.4g}; minibatch of "
            f"{len(batch.returns)} rows: {ranges({**columns, 'log ratio': update.log_ratio})}"
        )

    def _parts(self) -> dict[str, Any]:
        """The parts with a state of their own, by their names in a checkpoint; None for those that
        are not used.
        """
        return {
            "optimiser": self.optimiser,
            "episodes": self.episodes,
            "observation_normaliser": self.observation_normaliser,
            "reward_normaliser": self.reward_normaliser,
        }

    def state_dict(self) -> State:
        """Everything that affects the future."""
        generators = {"actions": self.action_noise, "minibatches": self.permutations}
        return {
            "format": FORMAT, "epoch": self.epoch, "step": self.step,
            "interface": self.environments.interface.as_dict(),
            "network": to_arrays(self.network.state_dict()),
            "generators": {name: to_arrays(one.get_state()) for name, one in generators.items()},
            "environments": self.environments.state_dict(),
            **{name: part.state_dict() if part else {} for name, part in self._parts().items()},
        }  # fmt: skip

    def load_state_dict(self, state: State, between: Callable[[], None] = lambda: None) -> None:
        """Continue exactly where `state_dict` was taken. The environments are brought back by
        replaying their actions since each was seeded.

        between: called every few replayed steps; may raise. Raises `NoUsableState` for a state of
        another format.
        """
        check_format(state)
        self.epoch = int(state["epoch"])
        self.step = int(state["step"])
        self.network.load_state_dict(to_tensors(state["network"]))
        self.action_noise.set_state(to_tensors(state["generators"]["actions"]))
        self.permutations.set_state(to_tensors(state["generators"]["minibatches"]))
        # Some environments may not come back to the same place when their actions are replayed.
        lost = self.environments.load_state_dict(state["environments"], between)
        for name, part in self._parts().items():
            if part:
                part.load_state_dict(state[name])
            # This comes after loading, because the record of a lost episode is part of the loaded
            # state.
            if hasattr(part, "forget"):
                part.forget(lost)

    def close(self) -> None:
        """Release the environments."""
        self.environments.close()
