"""Soft actor-critic, Haarnoja et al. 2018 (arXiv:1812.05905), in the order of the paper's
algorithm 1.

    repeat: for each environment step
                sample a ~ π(·|o), step, and store (o, a, r, o') in the replay
            for each update, on a batch of the replay, with a' ~ π(·|o') and ã ~ π(·|o):
                y = r + γ (1 − terminated) (min_i Q̄_i(o', a') − α log π(a'|o'))
                Q_i ← descend J_Q = ½ E[(Q_i(o, a) − y)²]                                (eq. 5)
                π   ← descend J_π = E[α log π(ã|o) − min_i Q_i(o, ã)]                    (eq. 7)
                α   ← descend J_α = −α E[log π(ã|o) + H̄]                                (eq. 18)
                Q̄_i ← Q̄_i + τ (Q_i − Q̄_i)

What others got wrong and this does not: log π has the tanh's term, exactly (`squashed.py`); no
gradient flows into y, nor into α from the policy's loss; log α is learnt, not α; y takes the smaller
of the two targets, and has the entropy; truncation is not termination (`replay.py`); actions are
stored in the unit in which they are learnt; an update that is not finite is never kept; every
generator is this training's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from agents.algorithms.twin_critic_learning import (
    ACTOR,
    CRITICS,
    Batch,
    CollectingTrainer,
    Measured,
    TwinCriticLearning,
    Update,
    value_metrics,
)
from agents.interfaces import State
from agents.networks import make_soft_actor_critic
from agents.networks.action_distributions import SquashedActions
from agents.networks.twin_critics import SoftActorCritic
from agents.spaces import Interface
from agents.states import to_arrays, to_tensors
from config.resolved import Resolved

if TYPE_CHECKING:
    from agents.compiled.fast_sac import CompiledSAC

MEANS = ("q_mean", "td_error", "entropy", "alpha", "critic_loss", "actor_loss")
NORMS = ("critic_gradient_norm", "actor_gradient_norm")
METRICS = ("learning_rate", *MEANS, *NORMS)
"""The metrics of an epoch: the last learning rate, and means over its updates; None without
updates.
"""
TEMPERATURE = "temperature"
COMPILED = ("_targets", "_critics_loss", "_actor_loss", "_temperature_loss")
"""What the machine code of this page knows."""


def soft_targets(
    rewards: Tensor, discounts: Tensor, values: Tensor, log_probabilities: Tensor, alpha: Tensor
) -> Tensor:
    """The y of eq. 5, [B]: r + γ (min_i Q̄_i − α log π); values [2, B], alpha [], all others [B]."""
    return rewards + discounts * (values.amin(dim=0) - alpha * log_probabilities)


def critics_loss(values: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Eq. 5 of both critics: Σ_i ½ E[(Q_i − y)²]; values [2, B], targets [B], weights [B]."""
    return 0.5 * ((values - targets).square() * weights).sum()


def actor_loss(values: Tensor, log_probabilities: Tensor, alpha: Tensor) -> Tensor:
    """Eq. 7: E[α log π − min_i Q_i]; values [2, B], log_probabilities [B], alpha []."""
    return (alpha * log_probabilities - torch.minimum(values[0], values[1])).mean()


def temperature_loss(log_alpha: Tensor, entropy: Tensor, target_entropy: float) -> Tensor:
    """Eq. 18: −α (E[log π] + H̄), with entropy = −E[log π]; all []."""
    return log_alpha.exp() * (entropy - target_entropy)


class SoftActorCriticLearning(TwinCriticLearning):
    """The networks of one training and their updates, with SAC's hyperparameters, for these spaces.
    A subclass says where experience comes from.
    """

    groups = ((*MEANS, *NORMS),)
    inputs: ClassVar = {
        CRITICS: ("observations", "actions", "targets", "weights"),
        ACTOR: ("features", "noise", "alpha"),
        TEMPERATURE: ("entropy",),
    }
    network: SoftActorCritic
    actions: SquashedActions
    compiled: CompiledSAC | None

    def __init__(
        self, resolved: Resolved, spaces: Interface, *, run: int, device: str, precision: str
    ) -> None:
        super().__init__(resolved, spaces, run=run, device=device, precision=precision)
        self.actions = SquashedActions(spaces.actions)
        # alpha=None means that α is learnt, from 1 on. Its logarithm is the parameter: α stays
        # positive.
        first_alpha = 1.0 if self.hyper.alpha is None else self.hyper.alpha
        self.log_alpha = nn.Parameter(torch.tensor(first_alpha, device=self.device).log())
        self.target_entropy = self.hyper.target_entropy
        if self.target_entropy is None:
            # H̄ = −dim(A), the paper's choice.
            self.target_entropy = -float(spaces.actions)
        if self.hyper.alpha is None:
            self.learnt.append("log_alpha")
        self.learners = {
            CRITICS: self._learner(self._critics_loss, self.network.learnt_by_critics),
            ACTOR: self._learner(self._actor_loss, list(self.network.actor.parameters())),
            TEMPERATURE: self._learner(self._temperature_loss, [self.log_alpha]),
        }
        # The steps of critics and policy as machine code, where that is known to find the same.
        self.compiled = self._compiled(SoftActorCriticLearning, COMPILED)

    def _machine_code(self) -> type[CompiledSAC]:
        from agents.compiled.fast_sac import CompiledSAC

        return CompiledSAC

    def _make_network(self, precision: str, generator: torch.Generator) -> SoftActorCritic:
        return make_soft_actor_critic(
            self.spaces, hidden_sizes=self.hyper.hidden_sizes, precision=precision,
            generator=generator, torso=self.hyper.network,
        )  # fmt: skip

    def _update(self) -> Update:
        """Make one step of each optimiser, then update the target networks."""
        batch = self._batch()
        # Noise for the actions at both ends is drawn at once.
        noise = self._noise(2, *batch.actions.shape)
        # One α for the whole update: its own step comes last, and changes the next update.
        alpha = self.log_alpha.detach().exp()
        (critic_loss, q_mean, error), critic_norm = self._descend_critics(batch, noise[1], alpha)
        (policy_loss, entropy), actor_norm = self._descend_actor(batch, noise[0], alpha)
        if self.hyper.alpha is None:
            self._descend_temperature(entropy)
        # The targets move after the critics' step, as in the paper's algorithm 1.
        self._follow()
        means = torch.stack((q_mean, error, entropy, alpha, critic_loss, policy_loss))
        return (Measured(means, (critic_norm, actor_norm)),)

    def _descend_temperature(self, entropy: Tensor) -> None:
        """Make one step of α's optimiser."""
        if self.compiled is not None and self.target_entropy is not None:
            surplus = float(entropy) - self.target_entropy
            if self.compiled.descend_temperature(surplus, self._learning_rate):
                return
        self._descend(TEMPERATURE, entropy)

    @torch.no_grad()
    def _targets(self, batch: Batch, noise: Tensor, alpha: Tensor) -> Tensor:
        """The targets y, [B], with actions that the policy samples now."""
        network = self.network
        policy = network.policy(network.features(batch.next_encoded))
        actions, log_probabilities = self.actions.sample(policy, noise)
        values = network.target_values(network.target_features(batch.next_encoded), actions)
        return soft_targets(batch.rewards, batch.discounts, values, log_probabilities, alpha)

    def _critics_loss(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """J_Q, and the means of Q and of |Q − y|."""
        encoded, actions, targets, weights = inputs
        values = self.network.values(self.network.features(encoded), actions)
        return critics_loss(values, targets, weights), *value_metrics(values, targets)

    def _actor_loss(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """J_π, and the entropy."""
        features, noise, alpha = inputs
        actions, log_probabilities = self.actions.sample(self.network.policy(features), noise)
        values = self.network.values_of_actions(features, actions)
        return actor_loss(values, log_probabilities, alpha), -log_probabilities.detach().mean()

    def _temperature_loss(self, entropy: Tensor) -> tuple[Tensor, ...]:
        """J_α."""
        return (temperature_loss(self.log_alpha, entropy, self.target_entropy),)

    def _more_of_diverged(self) -> str:
        """The temperature."""
        return f"alpha {self.log_alpha.exp().item():.4g}; "

    def learnt_state(self) -> State:
        """Everything that affects the future, except the experience."""
        return {**super().learnt_state(), "log_alpha": to_arrays(self.log_alpha)}

    def load_learnt_state(self, state: State) -> None:
        """Load what `learnt_state` gave. Raises `NoUsableState` for a state of another format."""
        super().load_learnt_state(state)
        # The value is copied in place, because the optimiser holds this very parameter.
        self.log_alpha.data.copy_(to_tensors(state["log_alpha"]))


class SACTrainer(CollectingTrainer, SoftActorCriticLearning):
    """The training of one run. Implements `agents.interfaces.Trainer` and `HasStreams`."""
