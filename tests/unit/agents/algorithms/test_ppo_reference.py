"""PPO once more, the slow way: autograd, `torch.optim.Adam`, loops over episodes. Whole epochs end
with the same parameters.

The reference knows what the environments were asked and answered, the trainer's first weights and
the order of its minibatches, and nothing else of its inside. Lives and FIRE are Atari's, so the
recorded game is then made in the place of an Atari game. All switches are drawn by hypothesis: one
that is ignored makes the parameters differ.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Categorical, Independent, Normal

from agents.algorithms.ppo import PPOTrainer
from agents.networks import make_actor_critic
from config.games import Game
from config.resolve import resolve
from config.resolved import Resolved
from config.seeds import integer_seed
from tests.recorded_game import LIFE, Recorded, Row

EPOCHS, ENVIRONMENTS, STEPS = 3, 3, 16
FIRE = 1


class Reference:
    """Schulman et al. 2017, algorithm 1, on what was recorded."""

    def __init__(self, trainer: PPOTrainer, resolved: Resolved, lives: bool, fire: bool) -> None:
        self.hyper, self.settings = resolved.hyperparameters, resolved.environment
        self.lives, self.fire = lives, fire
        spaces = trainer.environments.interface
        self.network = make_actor_critic(
            spaces,
            hidden_sizes=self.hyper.hidden_sizes,
            log_std_init=0.0,
            precision="fp32",
            generator=torch.Generator(),
        )
        self.network.load_state_dict(trainer.network.state_dict())
        self.discrete = spaces.discrete
        self.optimiser = torch.optim.Adam(self.network.parameters(), eps=self.hyper.adam_epsilon)
        self.order = torch.Generator().manual_seed(
            integer_seed(resolved.experiment.seed, 0, "minibatches")
        )
        self.observed = list[np.ndarray]()  # of all rollouts before
        self.flights = [0.0] * ENVIRONMENTS  # discounted returns up to now
        self.discounted_returns = list[float]()  # of all rows

    def warm_up(self, rows: list[list[Row]]) -> None:
        """rows [N][T] of a rollout that is not learnt from."""
        self._rewards(rows)
        chosen = [row.observation for of in rows for row in of if not self._is_forced(row)]
        self.observed.append(np.stack(chosen))

    def epoch(self, rows: list[list[Row]], remaining: float) -> None:
        """rows [N][T]; remaining: 1 at the start, 0 at the end."""
        rewards = self._rewards(rows)
        values = [self._values([row.observation for row in of]) for of in rows]
        next_values = [self._values([row.next_observation for row in of]) for of in rows]
        advantages = [
            self._advantages(*one) for one in zip(rows, rewards, values, next_values, strict=True)
        ]
        places = [
            (n, t)
            for t in range(STEPS)
            for n in range(ENVIRONMENTS)
            if not self._is_forced(rows[n][t])
        ]
        assert all(row.action == FIRE for of in rows for row in of if self._is_forced(row))
        observations = np.stack([rows[n][t].observation for n, t in places])
        actions = torch.from_numpy(np.stack([rows[n][t].action for n, t in places]))
        advantage = torch.tensor([advantages[n][t] for n, t in places], dtype=torch.float32)
        old_values = torch.tensor([values[n][t] for n, t in places], dtype=torch.float32)
        inputs = self._normalised(observations)
        with torch.no_grad():
            old = self._distribution(inputs).log_prob(actions)
        returns = advantage + old_values
        columns = (inputs, actions, old, old_values, advantage, returns)
        self.losses, self.log_ratios = list[list[float]](), list[Tensor]()
        for _ in range(self.hyper.update_epochs):
            for part in self._parts(len(places)):
                self._update(*(column[part] for column in columns), remaining=remaining)
        self.observed.append(observations)
        self.metrics = self._metrics(old_values, returns, len(places), remaining)

    def _metrics(
        self, values: Tensor, returns: Tensor, rows: int, remaining: float
    ) -> dict[str, float]:
        """Means over all updates of the epoch; of its last pass where they are about the policy's
        change."""
        hyper = self.hyper
        names = ("policy_loss", "value_loss", "entropy", "gradient_norm")
        log_ratios = torch.cat(self.log_ratios)[-rows:].double()
        ratios = log_ratios.exp()
        clip = hyper.clip * (remaining if hyper.anneal_clip else 1)
        unexplained = np.var((returns - values).numpy()) / np.var(returns.numpy())
        return dict(zip(names, np.mean(self.losses, axis=0).tolist(), strict=True)) | {
            "learning_rate": hyper.learning_rate * (remaining if hyper.anneal_learning_rate else 1),
            "approximate_kl": float((ratios - 1 - log_ratios).mean()),
            "clip_fraction": float(((ratios - 1).abs() > clip).double().mean()),
            "explained_variance": float(1 - unexplained),
        }

    def _rewards(self, rows: list[list[Row]]) -> list[list[float]]:
        rewards = [[row.reward for row in of] for of in rows]
        if self.settings.clip_rewards:
            rewards = [[min(1.0, max(-1.0, reward)) for reward in of] for of in rewards]
        if not self.settings.normalise_rewards:
            return rewards
        for n, of in enumerate(rows):
            for row, reward in zip(of, rewards[n], strict=True):
                self.flights[n] = self.hyper.discount * self.flights[n] + reward
                if not self._is_forced(row):
                    self.discounted_returns.append(self.flights[n])
                if row.terminated or row.truncated or self._is_life_lost(row):
                    self.flights[n] = 0.0
        deviation = np.sqrt(np.var(self.discounted_returns) + 1e-8)
        return [[float(np.clip(reward / deviation, -10, 10)) for reward in of] for of in rewards]

    def _is_life_lost(self, row: Row) -> bool:
        return self.lives and row.reward > LIFE

    def _is_forced(self, row: Row) -> bool:
        return self.fire and row.begins

    def _normalised(self, observations: np.ndarray) -> Tensor:
        if self.settings.normalise_observations:
            before = np.concatenate(self.observed).astype(np.float64)
            observations = np.clip(
                (observations - before.mean(axis=0)) / np.sqrt(before.var(axis=0) + 1e-8), -10, 10
            )
        return torch.from_numpy(observations.astype(np.float32))

    def _values(self, observations: list[np.ndarray]) -> list[float]:
        with torch.no_grad():
            values: list[float] = self.network(self._normalised(np.stack(observations)))[1].tolist()
        return values

    def _advantages(
        self, rows: list[Row], rewards: list[float], values: list[float], next_values: list[float]
    ) -> list[float]:
        """Σ (γλ)^k δ_{t+k} up to the end of the episode, for each row by itself."""
        found = []
        for t in range(STEPS):
            total, weight = 0.0, 1.0
            for k in range(t, STEPS):
                terminated = rows[k].terminated or self._is_life_lost(rows[k])
                bootstrap = 0.0 if terminated else self.hyper.discount * next_values[k]
                total += weight * (rewards[k] + bootstrap - values[k])
                weight *= self.hyper.discount * self.hyper.gae_lambda
                if terminated or rows[k].truncated:
                    break
            found.append(total)
        return found

    def _distribution(self, inputs: Tensor) -> Any:
        policy = self.network(inputs)[0]
        if self.discrete:
            return Categorical(logits=policy)
        mean, log_std = policy.chunk(2, dim=1)
        return Independent(Normal(mean, log_std.exp()), 1)

    def _parts(self, count: int) -> list[Tensor]:
        if self.hyper.minibatches == 1:
            return [torch.arange(count)]
        return list(
            torch.randperm(count, generator=self.order).tensor_split(self.hyper.minibatches)
        )

    def _update(self, inputs: Tensor, actions: Tensor, old: Tensor, old_values: Tensor, advantages: Tensor, returns: Tensor,
                *, remaining: float) -> None:  # fmt: skip
        hyper = self.hyper
        clip = hyper.clip * (remaining if hyper.anneal_clip else 1)
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        distribution, values = self._distribution(inputs), self.network(inputs)[1]
        log_ratio = distribution.log_prob(actions) - old
        ratio = log_ratio.exp()
        policy_loss = -torch.minimum(
            ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages
        ).mean()
        errors = (values - returns) ** 2
        if hyper.clip_value_loss:
            near = old_values + (values - old_values).clamp(-clip, clip)
            errors = torch.maximum(errors, (near - returns) ** 2)
        value_loss, entropy = 0.5 * errors.mean(), distribution.entropy().mean()
        loss = (
            policy_loss + hyper.value_coefficient * value_loss - hyper.entropy_coefficient * entropy
        )
        self.optimiser.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), hyper.max_gradient_norm)
        losses = torch.stack((policy_loss, value_loss, entropy, norm))
        self.losses.append(losses.detach().double().tolist())
        self.log_ratios.append(log_ratio.detach())
        for group in self.optimiser.param_groups:
            group["lr"] = hyper.learning_rate * (remaining if hyper.anneal_learning_rate else 1)
        self.optimiser.step()


def largest_difference(
    given: dict[str, object], *, continuous: bool, lives: bool, fire: bool
) -> float:
    """Between the trainer's parameters and the reference's, after whole epochs."""
    resolved = recorded("ppo", {"hidden_sizes": "8,8", **given}, continuous, lives, fire)
    trainer, reference = trained_beside(
        PPOTrainer, lambda trainer: Reference(trainer, resolved, lives, fire), resolved, fire
    )
    mine, theirs = trainer.network.state_dict(), reference.network.state_dict()
    return max(float((mine[name] - theirs[name]).abs().max()) for name in mine)


def recorded(
    algorithm: str, given: dict[str, object], continuous: bool, lives: bool, fire: bool
) -> Resolved:
    """A training of the recorded game; lives, fire: which only a real Atari game may be given."""
    texts = {name: str(value).lower() for name, value in given.items()}
    small = {
        "game": "tests.recorded_game:Recorded", "outdir": "/x", "num_envs": str(ENVIRONMENTS),
        "rollout_length": str(STEPS), "epochs": str(EPOCHS),
    }  # fmt: skip
    resolved = resolve(algorithm, small | texts)
    kind = "atari" if lives or fire else "sync"
    game = Game(name="recorded", id=resolved.game.id, kind=kind, options={"continuous": continuous})
    environment = replace(resolved.environment, episodic_life=lives)
    return replace(resolved, environment=environment, game=game)


def trained_beside(
    make: Any, make_reference: Any, resolved: Resolved, fire: bool, *, is_right: bool = True
) -> tuple[Any, Any]:
    """A trainer and its reference, after whole epochs of the same rows; is_right: whether their
    metrics are the same, too."""
    Recorded.made.clear()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("agents.environments.vectors.make_atari", _make_recorded)
        patched.setattr("agents.environments.training.needs_fire", lambda _: fire)
        trainer = make(resolved, run=0, device="cpu", precision="fp32")
        environments = Recorded.made[-ENVIRONMENTS:]
        reference = make_reference(trainer)
        is_warmed_up = resolved.environment.normalise_observations
        for epoch, progress in enumerate(trainer.train()):
            if epoch == 0 and is_warmed_up:
                reference.warm_up([one.rows[:STEPS] for one in environments])
            first = (epoch + is_warmed_up) * STEPS
            rows = [one.rows[first : first + STEPS] for one in environments]
            reference.epoch(rows, 1 - epoch / EPOCHS)
            if is_right:
                assert progress.metrics == pytest.approx(reference.metrics, rel=1e-4, abs=1e-5)
        trainer.close()
    return trainer, reference


def _make_recorded(resolved: Resolved, count: int, threads: int | None = None) -> SyncVectorEnv:
    """In the place of `make_atari`."""
    options = dict(resolved.game.options)
    return SyncVectorEnv(
        [lambda: Recorded(**options)] * count, autoreset_mode=AutoresetMode.DISABLED
    )


# Adam's epsilon is large: divided by its own size, a gradient of nearly 0 makes rounding as large
# as a step.
SWITCHES = st.fixed_dictionaries({
    "normalise_observations": st.booleans(), "normalise_rewards": st.booleans(), "clip_rewards": st.booleans(),
    "anneal_learning_rate": st.booleans(), "anneal_clip": st.booleans(), "clip_value_loss": st.booleans(),
    "update_epochs": st.sampled_from([1, 3]), "minibatches": st.sampled_from([1, 4]),
    "learning_rate": st.sampled_from([0.003, 0.01]), "adam_epsilon": st.sampled_from([0.003, 0.1]),
    "discount": st.sampled_from([0.5, 0.99]), "gae_lambda": st.sampled_from([0.0, 0.9, 1.0]), "clip": st.sampled_from([0.05, 0.2]),
    "entropy_coefficient": st.sampled_from([0.0, 0.05]), "value_coefficient": st.sampled_from([0.3, 1.0]),
    "max_gradient_norm": st.sampled_from([0.1, 100.0]), "seed": st.integers(0, 9),
})  # fmt: skip


@settings(max_examples=60, deadline=None, derandomize=True)
@given(given=SWITCHES, continuous=st.booleans(), lives=st.booleans(), fire=st.booleans())
def test_whole_epochs_end_with_the_parameters_of_the_reference(
    given: dict[str, object], continuous: bool, lives: bool, fire: bool
) -> None:
    assert (
        largest_difference(given, continuous=continuous, lives=lives, fire=fire and not continuous)
        < 1e-5
    )
