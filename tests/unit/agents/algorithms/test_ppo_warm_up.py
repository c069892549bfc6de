"""Where observations are normalised, the first rollout fills the statistics and is not learnt
from."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from agents.algorithms.ppo import PPOTrainer
from config.resolve import resolve

STEPS, ENVIRONMENTS = 64, 8
SMALL = {
    "num_envs": str(ENVIRONMENTS), "rollout_length": str(STEPS), "epochs": "3", "update_epochs": "1",
    "minibatches": "1", "normalise_observations": "true",
}  # fmt: skip


def trainer_of(game: str, **given: str) -> PPOTrainer:
    resolved = resolve("ppo", {"game": game, **SMALL, **given})
    return PPOTrainer(resolved, run=0, device="cpu", precision="fp32")


def test_the_first_batch_that_is_learnt_from_is_normalised() -> None:
    """Recorded observations have a mean of about 1 and a deviation of about 3."""
    trainer = trainer_of("tests.recorded_game:Recorded")
    next(trainer.train())
    learnt_from = trainer.rollout.encoded[:-1][torch.from_numpy(trainer.rollout.valid)]
    assert learnt_from.mean(dim=0).abs().max() < 0.5
    assert (learnt_from.std(dim=0) - 1).abs().max() < 0.5
    trainer.close()


@pytest.mark.parametrize("game", ["cartpole", "pendulum", "tests.recorded_game:Recorded"])
def test_its_steps_and_episodes_are_recorded(game: str) -> None:
    trainer = trainer_of(game)
    recorded = 0
    for progress in trainer.train():
        recorded += sum(progress.lengths)
        in_flight = int(np.sum(trainer.episodes.state_dict()["length"]))
        assert recorded + in_flight == progress.step
        if game == "pendulum" and progress.epoch < 3:  # no episode has ended
            assert progress.step == (progress.epoch + 1) * STEPS * ENVIRONMENTS
    trainer.close()


def test_raw_observations_need_none() -> None:
    trainer = trainer_of("pendulum", normalise_observations="false")
    assert [one.step for one in trainer.train()][:2] == [
        STEPS * ENVIRONMENTS,
        2 * STEPS * ENVIRONMENTS,
    ]
    trainer.close()


@pytest.mark.parametrize("normalised", ["true", "false"])
@pytest.mark.parametrize("game", ["pendulum", "tests.own_games:Picture"])
def test_the_total_of_the_steps_is_what_was_announced(game: str, normalised: str) -> None:
    trainer = trainer_of(game, rollout_length="16", normalise_observations=normalised)
    assert [one.step for one in trainer.train()][-1] == trainer.resolved.total_steps
    trainer.close()
