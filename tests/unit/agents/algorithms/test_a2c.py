"""A2C is a preset of PPO: its update is that of an A2C which knows nothing of PPO, and each of the
values that make it so is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from agents.algorithms.ppo import PPOTrainer
from agents.networks import make_actor_critic
from config.resolve import resolve
from config.resolved import Resolved
from tests.recorded_game import Recorded, Row

ENVIRONMENTS, STEPS, UPDATES = 3, 5, 4
GAME = {
    "game": "tests.recorded_game:Recorded",
    "num_envs": str(ENVIRONMENTS),
    "epochs": str(UPDATES),
}
PLAIN = {"normalise_observations": "false", "normalise_rewards": "false"}


class Workers:
    """Mnih et al. 2016 (arXiv:1602.01783), algorithm S3, whose workers wait for each other: of every
    step R = r + γR back from the value of what the rollout or the episode was cut at, then the
    gradient of Σ log π(a) (R − V) and of Σ (R − V)², to RMSProp."""

    def __init__(self, trainer: PPOTrainer) -> None:
        self.hyper: Any = trainer.hyper
        self.network = make_actor_critic(
            trainer.environments.interface, hidden_sizes=self.hyper.hidden_sizes, log_std_init=0.0,
            precision="fp32", generator=torch.Generator(),
        )  # fmt: skip
        self.network.load_state_dict(trainer.network.state_dict())
        self.optimiser = torch.optim.RMSprop(
            self.network.parameters(), lr=7e-4, alpha=0.99, eps=1e-5
        )

    def update(self, rows: list[list[Row]]) -> None:
        """rows [N][T]."""
        losses = [loss for of in rows for loss in self.losses_of(of)]
        self.optimiser.zero_grad()
        torch.stack(losses).mean().backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), 0.5)
        self.optimiser.step()

    def losses_of(self, rows: list[Row]) -> list[Tensor]:
        """Of one worker's steps, the last one first."""
        following = self.value(rows[-1].next_observation).detach()
        losses = []
        for row in reversed(rows):
            if row.terminated:
                following = torch.zeros(())
            elif row.truncated:
                following = self.value(row.next_observation).detach()
            following = row.reward + self.hyper.discount * following
            policy, value = self.network(torch.from_numpy(row.observation)[None])
            log_probability = policy.log_softmax(dim=1)[0, int(row.action)]
            advantage = (following - value[0]).detach()
            losses.append(0.5 * (following - value[0]) ** 2 - log_probability * advantage)
        return losses

    def value(self, observation: np.ndarray) -> Tensor:
        found: Tensor = self.network(torch.from_numpy(observation)[None])[1][0]
        return found


def of_a2c(**given: str) -> Resolved:
    return resolve("a2c", {**GAME, **PLAIN, **given})


def differences(resolved: Resolved) -> list[float]:
    """The largest between the trainer's parameters and those of the workers, after each update."""
    Recorded.made.clear()
    trainer = PPOTrainer(resolved, run=0, device="cpu", precision="fp32")
    environments = Recorded.made[-ENVIRONMENTS:]
    workers, found = Workers(trainer), []
    for epoch, _ in enumerate(trainer.train()):
        rows = [one.rows[epoch * STEPS : (epoch + 1) * STEPS] for one in environments]
        workers.update(rows)
        ours, theirs = trainer.network.state_dict(), workers.network.state_dict()
        found.append(max(float((ours[name] - theirs[name]).abs().max()) for name in ours))
    trainer.close()
    return found


@pytest.mark.parametrize("seed", ["0", "1", "2"])
def test_its_updates_are_those_of_an_a2c_that_knows_nothing_of_ppo(seed: str) -> None:
    """The first one to rounding; RMSProp makes a step of the rounding of a gradient of nearly 0, so
    the later ones a little less."""
    first, *later = differences(of_a2c(seed=seed))
    assert first < 1e-6
    assert max(later) < 1e-4


@pytest.mark.parametrize(
    "changed",
    [
        {"normalise_advantages": "true"}, {"optimiser": "adam"}, {"update_epochs": "2"},
        {"gae_lambda": "0.9"}, {"adam_epsilon": "0.01"}, {"entropy_coefficient": "0.1"},
        {"value_coefficient": "0.5"}, {"max_gradient_norm": "0.05"}, {"learning_rate": "0.001"},
    ],
    ids=lambda changed: next(iter(changed)),
)  # fmt: skip
def test_every_value_that_makes_it_so_is_needed(changed: dict[str, str]) -> None:
    assert differences(of_a2c(epochs="1", **changed))[0] > 1e-5


def test_the_ratio_is_1_and_nothing_is_clipped() -> None:
    trainer = PPOTrainer(of_a2c(), run=0, device="cpu", precision="fp32")
    for progress in trainer.train():
        assert progress.metrics["approximate_kl"] < 1e-9
        assert progress.metrics["clip_fraction"] == 0
    trainer.close()


def test_it_is_ppo_s_trainer_and_resumes_with_rmsprop() -> None:
    trainer = PPOTrainer(of_a2c(), run=0, device="cpu", precision="fp32")
    rows = []
    for progress in trainer.train():
        rows.append(repr(progress))
        if progress.epoch == 2:
            state = trainer.state_dict()
    resumed = PPOTrainer(of_a2c(), run=0, device="cpu", precision="fp32")
    resumed.load_state_dict(state)
    assert [repr(progress) for progress in resumed.train()] == rows[2:]
    assert state["optimiser"].keys() == {"squares"}
    for one in (trainer, resumed):
        one.close()
