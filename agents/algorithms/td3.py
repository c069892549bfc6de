"""Twin delayed deep deterministic policy gradient (TD3), Fujimoto et al. 2018 (arXiv:1802.09477), in
the order of the paper's algorithm 1.

    repeat: for each environment step
                a = π(o) + ε with ε ~ N(0, σ), within −1 … 1; step, and store (o, a, r, o') in the
                replay
            for each update, on a batch of the replay, with ε ~ N(0, σ̃), cut to −c … c:
                ã   = π̄(o') + ε, within −1 … 1            (section 5.3, target policy smoothing)
                y   = r + γ (1 − terminated) min_i Q̄_i(o', ã)    (4.2, clipped double Q-learning)
                Q_i ← descend Σ_i E[(Q_i(o, a) − y)²]
                in every d-th update:                        (5.2, delayed policy updates)
                    π   ← ascend E[Q_1(o, π(o))]             (the deterministic policy gradient)
                    Q̄_i ← Q̄_i + τ (Q_i − Q̄_i)
                    π̄   ← π̄ + τ (π − π̄)

What others got wrong and this does not: noise has the unit in which actions are learnt, −1 … 1, and
not the game's; the smoothed action is cut to that range, too; y takes the smaller of the two targets
and the policy climbs the first critic alone; the targets move when the policy learns and at no other
time; truncation is not termination (`replay.py`); the number of updates, which says when the policy
is due, is part of the checkpoint; an update that is not finite is never kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from agents.algorithms.twin_critic_learning import (
    ACTOR,
    CRITICS,
    Batch,
    CollectingTrainer,
    Measured,
    Update,
    value_metrics,
)
from agents.interfaces import State
from agents.networks import make_deterministic_actor_critic
from agents.networks.action_distributions import NoisyActions
from agents.networks.twin_critics import DeterministicActorCritic
from config.resolved import Resolved

if TYPE_CHECKING:
    from agents.compiled.fast_td3 import CompiledTD3

OF_CRITICS = ("q_mean", "td_error", "critic_loss", "critic_gradient_norm")
OF_ACTOR = ("actor_loss", "actor_gradient_norm")
METRICS = ("learning_rate", *OF_CRITICS, *OF_ACTOR)
"""The metrics of an epoch: the last learning rate, and means over the updates of the critics and over
those of the actor; None without updates.
"""
COMPILED = ("_targets", "_critics_loss", "_actor_loss")
"""What the machine code of this page knows."""


def smoothed(actions: Tensor, noise: Tensor, *, deviation: float, clip: float) -> Tensor:
    """Target policy smoothing: actions [B, A] with cut noise, within −1 … 1. noise [B, A]: standard
    normal.
    """
    return (actions + (deviation * noise).clamp(-clip, clip)).clamp(-1, 1)


def clipped_targets(rewards: Tensor, discounts: Tensor, values: Tensor) -> Tensor:
    """The targets y, [B]: r + γ min_i Q̄_i; values [2, B], all others [B]."""
    return rewards + discounts * values.amin(dim=0)


def critics_loss(values: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Σ_i E[(Q_i − y)²] of both critics; values [2, B], targets [B], weights [B]."""
    return ((values - targets).square() * weights).sum()


def actor_loss(values: Tensor) -> Tensor:
    """−E[Q_1], whose descent is the deterministic policy gradient's ascent; values [B]."""
    return -values.mean()


class TD3Trainer(CollectingTrainer):
    """The training of one run. Implements `agents.interfaces.Trainer` and `HasStreams`.

    updates: of the critics, since the training began.
    """

    groups = (OF_CRITICS, OF_ACTOR)
    inputs: ClassVar = {
        CRITICS: ("observations", "actions", "targets", "weights"),
        ACTOR: ("features",),
    }
    network: DeterministicActorCritic

    def __init__(self, resolved: Resolved, *, run: int, device: str, precision: str) -> None:
        super().__init__(resolved, run=run, device=device, precision=precision)
        self.actions = NoisyActions(self.spaces.actions, self.hyper.exploration_noise)
        self.learners = {
            CRITICS: self._learner(self._critics_loss, self.network.learnt_by_critics),
            ACTOR: self._learner(self._actor_loss, list(self.network.actor.parameters())),
        }
        # The steps of critics and policy as machine code, where that is known to find the same.
        self.compiled = self._compiled(TD3Trainer, COMPILED)

    def _machine_code(self) -> type[CompiledTD3]:
        from agents.compiled.fast_td3 import CompiledTD3

        return CompiledTD3

    def _make_network(self, precision: str, generator: torch.Generator) -> DeterministicActorCritic:
        return make_deterministic_actor_critic(
            self.spaces, hidden_sizes=self.hyper.hidden_sizes, precision=precision,
            generator=generator, torso=self.hyper.network,
        )  # fmt: skip

    def _update(self) -> Update:
        """Make one step of the critics' optimiser; where the policy is due, of the policy's, and move
        the target networks.
        """
        batch = self._batch()
        noise = self._noise(*batch.actions.shape)
        (loss, q_mean, error), norm = self._descend_critics(batch, noise)
        self.updates += 1
        actor = None
        if self.updates % self.hyper.policy_delay == 0:
            numbers, actor_norm = self._descend_actor(batch)
            actor = Measured(torch.stack(numbers), (actor_norm,))
            self._follow()
        return Measured(torch.stack((q_mean, error, loss)), (norm,)), actor

    @torch.no_grad()
    def _targets(self, batch: Batch, noise: Tensor) -> Tensor:
        """The targets y, [B], with smoothed actions of the slow policy."""
        network = self.network
        features = network.target_features(batch.next_encoded)
        actions = smoothed(
            self.actions.mode(network.target_policy(features)), noise,
            deviation=self.hyper.target_noise, clip=self.hyper.target_noise_clip,
        )  # fmt: skip
        values = network.target_values(features, actions)
        return clipped_targets(batch.rewards, batch.discounts, values)

    def _critics_loss(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The critics' loss, and the means of Q and of |Q − y|."""
        encoded, actions, targets, weights = inputs
        values = self.network.values(self.network.features(encoded), actions)
        return critics_loss(values, targets, weights), *value_metrics(values, targets)

    def _actor_loss(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The actor's loss."""
        (features,) = inputs
        actions = self.actions.mode(self.network.policy(features))
        return (actor_loss(self.network.first_value_of_actions(features, actions)),)

    def learnt_state(self) -> State:
        """Everything that affects the future, except the experience."""
        return {**super().learnt_state(), "updates": self.updates}

    def load_learnt_state(self, state: State) -> None:
        """Load what `learnt_state` gave. Raises `NoUsableState` for a state of another format."""
        super().load_learnt_state(state)
        self.updates = int(state["updates"])
