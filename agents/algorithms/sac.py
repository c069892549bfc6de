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
stored in the unit in which they are learnt; a non-finite number never reaches an optimiser; every
generator is this training's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from agents.devices import on_device
from agents.experience.collection import Collection
from agents.experience.replay import Transitions
from agents.interfaces import Growth, Progress, State
from agents.networks import make_soft_actor_critic
from agents.networks.action_distributions import SquashedActions
from agents.optimisation.optimiser import Adam
from agents.optimisation.tape import GradientTape
from agents.spaces import Interface
from agents.states import FORMAT, check_format, ranges, to_arrays, to_tensors
from config.errors import Diverged
from config.resolve import Resolved
from config.seeds import integer_seed, seed_sequence

ADAM_EPSILON = 1e-8
MEANS = ("q_mean", "td_error", "entropy", "alpha", "critic_loss", "actor_loss")
NORMS = ("critic_gradient_norm", "actor_gradient_norm")
METRICS = ("learning_rate", *MEANS, *NORMS)
"""The metrics of an epoch: the last learning rate, and means over its updates; None without
updates.
"""
CRITICS = "critics"
ACTOR = "actor"
TEMPERATURE = "temperature"
INPUTS = {
    CRITICS: ("observations", "actions", "targets", "weights"),
    ACTOR: ("features", "noise", "alpha"),
    TEMPERATURE: ("entropy",),
}
"""The inputs of each loss, by the names that the report of a divergence uses."""


class Batch(NamedTuple):
    """B transitions to learn from.

    encoded, next_encoded [B, ...]; actions [B, A], between −1 and 1; rewards; discounts [B]: γ, or
    0 after a termination; weights [B]: 1/B, or 0 if it is not known what followed; noise,
    next_noise [B, A]: for the actions that the policy samples at both ends.
    """

    encoded: Tensor
    actions: Tensor
    rewards: Tensor
    discounts: Tensor
    next_encoded: Tensor
    weights: Tensor
    noise: Tensor
    next_noise: Tensor


class Learner(NamedTuple):
    """The gradients of a loss, and the optimiser of its parameters."""

    gradients: GradientTape
    optimiser: Adam


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


class SoftActorCriticLearning:
    """The networks of one training and their updates, with SAC's hyperparameters, for these spaces.
    A subclass says where experience comes from.
    """

    policy_entries = ("format", "interface", "network", "observation_normaliser")

    def __init__(
        self, resolved: Resolved, spaces: Interface, *, run: int, device: str, precision: str
    ) -> None:
        torch.set_num_threads(resolved.experiment.threads)
        self.resolved = resolved
        self.hyper = resolved.hyperparameters
        self.spaces = spaces
        self.device = torch.device(device)
        self.epoch = 0
        self.step = 0
        seed = resolved.experiment.seed
        self.generators = {
            purpose: np.random.default_rng(seed_sequence(seed, run, purpose))
            for purpose in ("actions", "minibatches", "updates")
        }
        self.network = make_soft_actor_critic(
            spaces, hidden_sizes=self.hyper.hidden_sizes, precision=precision,
            generator=torch.Generator().manual_seed(integer_seed(seed, run, "weights")),
            torso=self.hyper.network,
        ).to(self.device)  # fmt: skip
        self.actions = SquashedActions(spaces.actions)
        # alpha=None means that α is learnt, from 1 on. Its logarithm is the parameter: α stays
        # positive.
        first_alpha = 1.0 if self.hyper.alpha is None else self.hyper.alpha
        self.log_alpha = nn.Parameter(torch.tensor(first_alpha, device=self.device).log())
        self.target_entropy = self.hyper.target_entropy
        if self.target_entropy is None:
            # H̄ = −dim(A), the paper's choice.
            self.target_entropy = -float(spaces.actions)
        self.learnt = ["network", "observation_normaliser"]
        if self.hyper.alpha is None:
            self.learnt.append("log_alpha")
        self.learners = {
            CRITICS: self._learner(self._critics_loss, self.network.learnt_by_critics),
            ACTOR: self._learner(self._actor_loss, list(self.network.actor.parameters())),
            TEMPERATURE: self._learner(self._temperature_loss, [self.log_alpha]),
        }

    def _learner(
        self, loss: Callable[..., tuple[Tensor, ...]], parameters: list[nn.Parameter]
    ) -> Learner:
        tape = GradientTape(loss, parameters, recorded=self.network.is_small)
        return Learner(tape, Adam(parameters, epsilon=ADAM_EPSILON))

    @property
    def steps_now(self) -> int:
        """Environment steps so far, also in the middle of an epoch."""
        raise NotImplementedError

    def _drawn(self) -> Transitions:
        """The transitions of the next update, with normalised observations."""
        raise NotImplementedError

    def _batch(self) -> Batch:
        """A batch from the replay, with the noise for its update."""
        drawn = self._drawn()
        # The critics' loss is a mean over the valid transitions.
        weights = drawn.valid / np.float32(max(1, drawn.valid.sum()))
        shape = (2, *drawn.action.shape)
        # Noise for both ends is drawn at once on the CPU, by numpy's generator, whose state is part
        # of the checkpoint.
        noise = self._tensor(self.generators["updates"].standard_normal(shape, np.float32))
        encoded, next_encoded = map(self._encoded, (drawn.observation, drawn.next_observation))
        return Batch(
            encoded, self._tensor(drawn.action), self._tensor(drawn.reward),
            self._tensor(drawn.discount), next_encoded, self._tensor(weights), noise[0], noise[1],
        )  # fmt: skip

    def _update(self) -> tuple[Tensor, float, float]:
        """Make one step of each optimiser, then update the target networks. Returns the means [6]
        and the norms.
        """
        batch = self._batch()
        network = self.network
        # One α for the whole update: its own step comes last, and changes the next update.
        alpha = self.log_alpha.detach().exp()
        targets = self._targets(batch, alpha)
        critics, critic_norm = self._descend(
            CRITICS, batch.encoded, batch.actions, targets, batch.weights
        )
        # The torso learns from the critics' loss alone (Yarats et al. 2021): the actor takes its
        # features, by the weights that this loss has just changed, as constants.
        with torch.no_grad():
            features = network.features(batch.encoded)
        actor, actor_norm = self._descend(ACTOR, features, batch.noise, alpha)
        critic_loss, q_mean, error = critics
        policy_loss, entropy = actor
        if self.hyper.alpha is None:
            self._descend(TEMPERATURE, entropy)
        # The targets move after the critics' step, as in the paper's algorithm 1.
        network.follow(self.hyper.target_rate)
        means = torch.stack((q_mean, error, entropy, alpha, critic_loss, policy_loss))
        return means, critic_norm, actor_norm

    @torch.no_grad()
    def _targets(self, batch: Batch, alpha: Tensor) -> Tensor:
        """The targets y, [B], with actions that the policy samples now."""
        network = self.network
        policy = network.policy(network.features(batch.next_encoded))
        actions, log_probabilities = self.actions.sample(policy, batch.next_noise)
        values = network.target_values(batch.next_encoded, actions)
        return soft_targets(batch.rewards, batch.discounts, values, log_probabilities, alpha)

    def _critics_loss(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """J_Q, and the means of Q and of |Q − y|."""
        encoded, actions, targets, weights = inputs
        values = self.network.values(self.network.features(encoded), actions)
        with torch.no_grad():
            q_mean = values.mean()
            error = (values - targets).abs().mean()
        return critics_loss(values, targets, weights), q_mean, error

    def _actor_loss(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """J_π, and the entropy."""
        features, noise, alpha = inputs
        actions, log_probabilities = self.actions.sample(self.network.policy(features), noise)
        values = self.network.values_of_actions(features, actions)
        return actor_loss(values, log_probabilities, alpha), -log_probabilities.detach().mean()

    def _temperature_loss(self, entropy: Tensor) -> tuple[Tensor, ...]:
        """J_α."""
        return (temperature_loss(self.log_alpha, entropy, self.target_entropy),)

    def _descend(self, name: str, *inputs: Tensor) -> tuple[tuple[Tensor, ...], float]:
        """Make one step of Adam. Returns what the loss gave, and the norm of its gradient."""
        gradients, optimiser = self.learners[name]
        outputs = gradients(*inputs)
        # Nothing is clipped, but the norm tells whether every entry of the gradient is finite.
        norm = optimiser.clip_gradients(math.inf)
        if not math.isfinite(norm + float(outputs[0])):
            raise self._diverged(name, inputs, float(outputs[0]), norm)
        optimiser.step(self._learning_rate)
        return outputs, norm

    @property
    def _learning_rate(self) -> float:
        # Actors may have sent more steps than the training has.
        remaining = max(0.0, 1 - self.steps_now / self.resolved.total_steps)
        rate: float = self.hyper.learning_rate
        if self.hyper.anneal_learning_rate:
            rate *= remaining
        return rate

    def _metrics(self, learnt: list[tuple[Tensor, float, float]]) -> dict[str, Any]:
        """The METRICS of an epoch, from its updates."""
        if not learnt:
            return dict.fromkeys(METRICS)
        means, *norms = zip(*learnt, strict=True)
        values = torch.stack(means).mean(dim=0).tolist()
        values += [math.fsum(norm) / len(norm) for norm in norms]
        return dict(zip(METRICS, (self._learning_rate, *values), strict=True))

    def _diverged(
        self, name: str, inputs: tuple[Tensor, ...], loss: float, norm: float
    ) -> Diverged:
        """The error with statistics of the batch that must not be learnt from."""
        columns = dict(zip(INPUTS[name], inputs, strict=True))
        return Diverged(
            f"loss or gradient of the {name} is not finite in epoch {self.epoch + 1}, after step "
            f"{self.steps_now}: loss {loss:.4g}; gradient norm {norm:.4g}; "
            f"alpha {self.log_alpha.exp().item():.4g}; batch of {self.hyper.batch_size} rows: {ranges(columns)}"
        )

    def _encoded(self, observations: np.ndarray) -> Tensor:
        """Normalised observations [B, ...] as the networks take them."""
        rows = torch.from_numpy(np.ascontiguousarray(observations))
        return on_device(self.network.encode(rows), self.device)

    def _tensor(self, array: np.ndarray) -> Tensor:
        return on_device(torch.from_numpy(array), self.device)

    def learnt_state(self) -> State:
        """Everything that affects the future, except the experience."""
        return {
            "format": FORMAT, "epoch": self.epoch,
            "interface": self.spaces.as_dict(),
            "network": to_arrays(self.network.state_dict()),
            "log_alpha": to_arrays(self.log_alpha),
            "optimisers": {name: each.optimiser.state_dict() for name, each in self.learners.items()},
            "generators": {
                name: each.bit_generator.state for name, each in self.generators.items()
            },
        }  # fmt: skip

    def load_learnt_state(self, state: State) -> None:
        """Load what `learnt_state` gave. Raises `NoUsableState` for a state of another format."""
        check_format(state)
        self.epoch = int(state["epoch"])
        self.network.load_state_dict(to_tensors(state["network"]))
        # The value is copied in place, because the optimiser and the gradient tape hold this very
        # parameter.
        self.log_alpha.data.copy_(to_tensors(state["log_alpha"]))
        for name, learner in self.learners.items():
            learner.optimiser.load_state_dict(state["optimisers"][name])
        for name, generator in self.generators.items():
            generator.bit_generator.state = state["generators"][name]


class SACTrainer(SoftActorCriticLearning):
    """The training of one run. Implements `agents.interfaces.Trainer` and `HasStreams`."""

    def __init__(self, resolved: Resolved, *, run: int, device: str, precision: str) -> None:
        # The collection comes before the networks, which need to know its spaces.
        self.collection = Collection(resolved, run)
        super().__init__(
            resolved, self.collection.spaces, run=run, device=device, precision=precision
        )
        self.policy = self.network.acting()

    def train(self) -> Iterator[Progress]:
        """Yield one `Progress` for each epoch. Raises `Diverged` before a non-finite update."""
        steps = self.hyper.epoch_steps // self.resolved.environment.count
        while self.epoch < self.resolved.epochs:
            learnt = list[tuple[Tensor, float, float]]()
            for _ in range(steps):
                learnt += self._step()
            returns, lengths = self.collection.end_epoch()
            self.epoch = self.epoch + 1
            self.step = self.collection.step
            yield Progress(
                epoch=self.epoch, step=self.step, returns=returns, lengths=lengths,
                frame=self.step * self.resolved.game.frames_per_step, metrics=self._metrics(learnt),
            )  # fmt: skip

    def _step(self) -> Iterator[tuple[Tensor, float, float]]:
        """Make one step of all environments, and return the metrics of each update after it."""
        self.collection.take_step(self._act)
        step = self.collection.step
        hyper = self.hyper
        if step < hyper.learning_starts or step % hyper.train_every:
            return
        for _ in range(hyper.updates):
            yield self._update()

    @property
    def steps_now(self) -> int:
        """Environment steps so far, also in the middle of an epoch."""
        return self.collection.step

    @torch.no_grad()
    def _act(self, observations: np.ndarray, masks: np.ndarray | None) -> np.ndarray:
        """Actions [N, A]: uniform before `learning_starts`, then the policy's. Continuous actions
        have no masks.
        """
        generator = self.generators["actions"]
        if self.collection.step < self.hyper.learning_starts:
            return self.actions.uniform(len(observations), generator)
        return self.actions.drawn(self.policy(self._encoded(observations)), generator)

    def _drawn(self) -> Transitions:
        """Draw transitions from the replay."""
        drawn = self.collection.replay.sample(self.hyper.batch_size, self.generators["minibatches"])
        return drawn.changed(self.collection.normalised)

    def state_dict(self) -> State:
        """Everything that affects the future, except the replay's rows, which are streams."""
        return {**self.learnt_state(), **self.collection.state_dict()}

    def load_state_dict(self, state: State, between: Callable[[], None] = lambda: None) -> None:
        """Continue exactly where `state_dict` was taken; `load_streams` must follow. Raises
        `NoUsableState` for a state of another format.
        """
        self.load_learnt_state(state)
        self.step = int(state["step"])
        self.collection.load_state_dict(state, between)

    def grown(self) -> dict[str, Growth]:
        """The replay's streams, as `agents.interfaces.HasStreams` has them."""
        return self.collection.grown()

    def load_streams(self, streams: Mapping[str, Iterator[dict[str, np.ndarray]]]) -> None:
        """Restore the replay's rows. Raises `NoUsableState` if there are fewer than there were."""
        self.collection.load_streams(streams)

    def close(self) -> None:
        """Release the environments."""
        self.collection.close()
