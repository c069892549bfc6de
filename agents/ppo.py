"""Proximal policy optimisation, Schulman et al. 2017 (arXiv:1707.06347), in the order of the
paper's algorithm 1.

    repeat: collect T steps of N environments with the policy π_old
            estimate advantages A (GAE, eq. 11 and 12)
            K passes over the T·N rows in minibatches, each maximising eq. 9:
                L = E[ min(ρA, clip(ρ, 1 − ε, 1 + ε) A) ] − c_v ½ E[(V − R)²] + c_e E[H]      ρ = π / π_old

What others got wrong and this does not: truncation is not termination (`advantages.py`); rows whose
action was forced are left out of every loss and mean; π_old is what acted, computed once, before
the first update; advantages are normalised per minibatch; a non-finite number never reaches the
optimiser; every generator is this training's own.

Every row is a `step`, in which one environment answers one action: there are T·N in each epoch, and
all belong to an episode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from agents.actions import make_actions, masked
from agents.advantages import explained_variance, gae
from agents.devices import threads_for
from agents.environments.training import TrainingEnvironments
from agents.interfaces import Progress, State
from agents.losses import approximate_divergence, clipped_policy_loss, squared_value_loss
from agents.networks import make_network
from agents.normalisation import ObservationNormaliser, RewardNormaliser
from agents.optimiser import FlatAdam
from agents.rollouts import Episodes, Rollout, collect
from agents.states import to_arrays, to_tensors
from config.errors import Diverged, NoUsableState
from config.resolve import Resolved
from config.seeds import integer_seed

FORMAT = 2
"""Of the state; a checkpoint of another format is refused by `load_state_dict`."""


class Batch(NamedTuple):
    """B rows to learn from: those of a rollout that are valid, or a minibatch of them.

    encoded [B, ...], actions [B] or [B, A], log_probabilities (log π_old), values, advantages,
    returns [B]; masks [B, P] where the environment says which actions it allows.
    """

    encoded: Tensor
    actions: Tensor
    log_probabilities: Tensor
    values: Tensor
    advantages: Tensor
    returns: Tensor
    masks: Tensor | None = None

    def take(self, rows: Tensor) -> Batch:
        """The rows at these indices."""
        taken = Batch(*(column.index_select(0, rows) for column in self[:-1]))
        return taken if self.masks is None else taken._replace(masks=self.masks[rows])

    def normalised(self) -> Batch:
        """With advantages of mean 0 and deviation 1; a single row is left as it is, its deviation
        would be NaN.
        """
        if len(self.advantages) < 2:
            return self
        deviation, mean = torch.std_mean(self.advantages)
        return self._replace(advantages=(self.advantages - mean) / (deviation + 1e-8))


class PPOTrainer:
    """One training; `agents.interfaces.Trainer`."""

    def __init__(self, resolved: Resolved, *, run: int, device: str, precision: str) -> None:
        torch.set_num_threads(resolved.experiment.threads)
        self.resolved, self.hyper = resolved, resolved.hyperparameters
        self.settings = resolved.environment
        self.device = torch.device(device)
        self.epoch = self.step = 0
        self.initial_weights, self.action_noise, self.permutations = (
            torch.Generator().manual_seed(integer_seed(resolved.experiment.seed, run, purpose))
            for purpose in ("weights", "actions", "minibatches")
        )
        self.environments = TrainingEnvironments(resolved, run)
        spaces = self.environments.interface
        self.network = make_network(
            spaces, hidden_sizes=self.hyper.hidden_sizes, log_std_init=self.hyper.log_std_init, precision=precision,
            generator=self.initial_weights, torso=self.hyper.network,
        ).to(self.device)  # fmt: skip
        self.actions = make_actions(spaces)
        self.optimiser = FlatAdam(self.network, epsilon=self.hyper.adam_epsilon)
        normalise = self.settings.normalise_observations and not spaces.image
        self.observation_normaliser = (
            ObservationNormaliser(spaces.environment_shape) if normalise else None
        )
        self.reward_normaliser = (
            RewardNormaliser(self.settings.num_envs, self.hyper.discount)
            if self.settings.normalise_rewards
            else None
        )
        self.episodes = Episodes(self.settings.num_envs)
        self.rollout = Rollout.allocate(
            self.environments,
            self.network,
            self.actions,
            self.hyper.rollout_length,
            observations=normalise,
        )

    def train(self) -> Iterator[Progress]:
        """One `Progress` an epoch; raises `Diverged` before a non-finite update."""
        while self.epoch < self.resolved.epochs:
            remaining = 1 - self.epoch / self.resolved.epochs
            returns, lengths = self._warm_up() if self.epoch == 0 else ([], [])
            later_returns, later_lengths = self._collect()
            metrics = self._learn(self._batch(), remaining)
            self._observe()
            self.epoch += 1
            frame = self.step * self.resolved.game.frames_per_step
            returns, lengths = returns + later_returns, lengths + later_lengths
            yield Progress(
                epoch=self.epoch,
                step=self.step,
                frame=frame,
                returns=returns,
                lengths=lengths,
                metrics=metrics,
            )

    def _warm_up(self) -> tuple[list[float], list[int]]:
        """A rollout that fills the statistics of observations and is not learnt from; its episodes.

        The first epoch would learn from raw observations otherwise, and then never see such again.
        Large images have no statistics; they are collected all the same, because the length of a
        training is announced before anybody knows what its game shows.
        """
        if not self.settings.normalise_observations:
            return [], []
        episodes = self._collect()
        self._observe()
        self._learnt_rewards()  # so that the discounted returns in flight go on
        return episodes

    def _collect(self) -> tuple[list[float], list[int]]:
        """One rollout of the current policy, its steps counted; returns and lengths of the episodes
        that ended in it.
        """
        with threads_for(self.environments.groups[0].stop):
            collect(
                self.rollout, self.environments, self.network, self.actions, self.observation_normaliser, self.action_noise,
                step=self.step,
            )  # fmt: skip
        self.step += self.rollout.rewards.size
        return self.episodes.finish(
            self.rollout.rewards, self.rollout.terminated | self.rollout.truncated
        )

    def _observe(self) -> None:
        """The statistics of observations learn from the rollout."""
        rollout = self.rollout
        if self.observation_normaliser is not None and rollout.observations is not None:
            self.observation_normaliser.update(rollout.observations[rollout.valid])

    def _learnt_rewards(self) -> np.ndarray:
        """Rewards of the rollout, [T, N], as they are learnt; their scale's statistics learn
        first.
        """
        rollout = self.rollout
        rewards = np.clip(rollout.rewards, -1, 1) if self.settings.clip_rewards else rollout.rewards
        if self.reward_normaliser is None:
            return rewards
        ended = rollout.terminated | rollout.truncated | rollout.life_lost
        return self.reward_normaliser(rewards, ended, rollout.valid)

    def _batch(self) -> Batch:
        """Advantages and returns of the rollout, eq. 11 and 12, and log π_old of its actions."""
        rollout, hyper = self.rollout, self.hyper
        terminated = rollout.terminated | rollout.life_lost
        rewards = self._learnt_rewards()
        values = rollout.values[:-1].numpy(force=True)
        advantages = gae(
            rewards,
            values,
            rollout.next_values,
            terminated,
            rollout.truncated,
            discount=hyper.discount,
            gae_lambda=hyper.gae_lambda,
        )
        advantage, returns = (
            torch.from_numpy(array.ravel().astype(np.float32)).to(self.device)
            for array in (advantages, advantages + values)
        )
        actions = rollout.actions.flatten(0, 1)
        log_probabilities = self.actions.log_probability(rollout.policy.flatten(0, 1), actions)
        encoded, old_values = rollout.encoded[:-1].flatten(0, 1), rollout.values[:-1].flatten()
        masks = None if rollout.masks is None else rollout.masks.flatten(0, 1)
        batch = Batch(encoded, actions, log_probabilities, old_values, advantage, returns, masks)
        if rollout.valid.all():
            return batch
        return batch.take(torch.from_numpy(np.flatnonzero(rollout.valid)).to(self.device))

    def _learn(self, batch: Batch, remaining: float) -> dict[str, float]:
        """K passes over the batch; remaining: 1 at the start of the training, 0 at its end. Returns
        the epoch's metrics.
        """
        hyper = self.hyper
        learning_rate = hyper.learning_rate * (remaining if hyper.anneal_learning_rate else 1)
        clip = hyper.clip * (remaining if hyper.anneal_clip else 1)
        losses, changes, norms = list[Tensor](), list[Tensor](), list[float]()
        for update_epoch in range(hyper.update_epochs):
            for minibatch in self._minibatches(batch):
                log_ratio, parts, norm = self._update(minibatch, learning_rate, clip)
                losses.append(parts)
                norms.append(norm)
                if update_epoch == hyper.update_epochs - 1:
                    changes.append(log_ratio)
        policy_loss, value_loss, entropy = torch.stack(losses).mean(dim=0).tolist()
        log_ratios = torch.cat(changes)
        return {
            "learning_rate": learning_rate,
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "approximate_kl": approximate_divergence(log_ratios),
            "clip_fraction": float((log_ratios.expm1().abs() > clip).float().mean()),
            "gradient_norm": math.fsum(norms) / len(norms),
            "explained_variance": explained_variance(
                batch.values.numpy(force=True), batch.returns.numpy(force=True)
            ),
        }

    def _minibatches(self, batch: Batch) -> Iterator[Batch]:
        """All rows once, in nearly equal parts, in a new order; nothing to shuffle when there is
        one part.
        """
        if self.hyper.minibatches == 1:
            yield batch.normalised()
            return
        order = torch.randperm(len(batch.returns), generator=self.permutations).to(self.device)
        for rows in order.tensor_split(self.hyper.minibatches):
            if len(rows):
                yield batch.take(rows).normalised()

    @torch.no_grad()
    def _update(
        self, batch: Batch, learning_rate: float, clip: float
    ) -> tuple[Tensor, Tensor, float]:
        """One step of Adam on one minibatch; returns log ρ [B], the three losses [3], and the
        gradient's norm.
        """
        hyper = self.hyper
        policy, values, backward = self.network.differentiate(batch.encoded)
        policy = masked(policy, batch.masks)
        log_probability, entropies, policy_gradient = self.actions.evaluate(policy, batch.actions)
        log_ratio = log_probability - batch.log_probabilities
        policy_loss, by_log_probability = clipped_policy_loss(log_ratio, batch.advantages, clip)
        value_loss, by_value = squared_value_loss(
            values, batch.returns, batch.values, clip if hyper.clip_value_loss else None
        )
        parts = torch.stack((policy_loss, value_loss, entropies.mean()))
        self.optimiser.clear_gradients()
        by_policy = policy_gradient(by_log_probability, -hyper.entropy_coefficient / len(values))
        backward(by_policy, hyper.value_coefficient * by_value)
        norm = self.optimiser.clip_gradients(hyper.max_gradient_norm)
        if not math.isfinite(norm + float(parts.sum())):
            raise self._diverged(batch, log_ratio, parts, norm)
        self.optimiser.step(learning_rate)
        return log_ratio, parts, norm

    def _diverged(self, batch: Batch, log_ratio: Tensor, parts: Tensor, norm: float) -> Diverged:
        """The statistics of the minibatch that must not be learnt from."""
        ranges = {"advantages": batch.advantages, "returns": batch.returns, "log ratio": log_ratio}
        numbers = ", ".join(
            f"{name} {float(one.min()):.4g} … {float(one.max()):.4g}"
            for name, one in ranges.items()
        )
        losses = ", ".join(
            f"{name} {value:.4g}"
            for name, value in zip(("policy", "value", "entropy"), parts.tolist(), strict=True)
        )
        return Diverged(
            f"loss or gradient is not finite in epoch {self.epoch + 1}, after step {self.step}: losses: {losses}; "
            f"gradient norm {norm:.4g}; minibatch of {len(log_ratio)} rows: {numbers}"
        )

    def state_dict(self) -> State:
        """Everything that affects the future."""
        return {
            "format": FORMAT,
            "epoch": self.epoch,
            "step": self.step,
            "interface": self.environments.interface.as_dict(),
            "network": to_arrays(self.network.state_dict()),
            "optimiser": self.optimiser.state_dict(),
            "generators": {
                "actions": self.action_noise.get_state().numpy().copy(),
                "minibatches": self.permutations.get_state().numpy().copy(),
            },
            "observation_normaliser": self.observation_normaliser.state_dict()
            if self.observation_normaliser
            else {},
            "reward_normaliser": self.reward_normaliser.state_dict()
            if self.reward_normaliser
            else {},
            "episodes": self.episodes.state_dict(),
            "environments": self.environments.state_dict(),
        }

    def load_state_dict(self, state: State, between: Callable[[], None] = lambda: None) -> None:
        """Continue exactly where `state_dict` was taken; replays what the environments did since
        each was seeded.

        between: called every few replayed steps; may raise. Raises `NoUsableState` for a state of
        another format.
        """
        if state["format"] != FORMAT:
            raise NoUsableState(
                f"the state of this training has format {state['format']}, this program reads {FORMAT}"
            )
        self.epoch, self.step = int(state["epoch"]), int(state["step"])
        self.network.load_state_dict(to_tensors(state["network"]))
        self.optimiser.load_state_dict(state["optimiser"])
        self.action_noise.set_state(torch.from_numpy(np.array(state["generators"]["actions"])))
        self.permutations.set_state(torch.from_numpy(np.array(state["generators"]["minibatches"])))
        if self.observation_normaliser is not None:
            self.observation_normaliser.load_state_dict(state["observation_normaliser"])
        if self.reward_normaliser is not None:
            self.reward_normaliser.load_state_dict(state["reward_normaliser"])
        self.episodes.load_state_dict(state["episodes"])
        lost = self.environments.load_state_dict(state["environments"], between)
        self.episodes.forget(lost)
        if self.reward_normaliser is not None:
            self.reward_normaliser.forget(lost)

    def close(self) -> None:
        """Release the environments."""
        self.environments.close()
