"""PPO with a memory: what it stores, learns from and takes up again; and a task that nothing without
a memory can solve."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch

from agents.algorithms.ppo_lstm import RecurrentPPOTrainer
from agents.checks.algorithm_checks import TrainingChecks
from agents.checks.promises import tried
from agents.load import make_trainer
from config.errors import BadInput
from config.resolve import resolve
from config.resolved import Resolved
from tests.recorded_game import Recorded

SMALL = {
    "num_envs": "3", "rollout_length": "16", "sequence_length": "8", "minibatches": "2",
    "update_epochs": "2", "epochs": "4",
}  # fmt: skip
PLAIN = {"normalise_observations": "false", "normalise_rewards": "false"}


def small(game: str, **given: str) -> Resolved:
    return resolve("ppo-lstm", {"game": game, **SMALL, **given})


def trainer_on(game: str, **given: str) -> RecurrentPPOTrainer:
    return RecurrentPPOTrainer(small(game, **given), run=0, device="cpu", precision="fp32")


@pytest.mark.parametrize("minibatches", ["1", "2", "3"])
def test_minibatches_are_whole_sequences_and_hold_every_step_once(minibatches: str) -> None:
    trainer = trainer_on("tests.recorded_game:Recorded", minibatches=minibatches, **PLAIN)
    trainer._collect()
    trainer.close()
    trainer.rollout.valid[3, 1] = trainer.rollout.valid[9, 2] = False
    batch = trainer._batch()._replace(returns=torch.arange(16 * 3 - 2).float())
    seen = trainer.rollout.encoded[:-1]
    for minibatches_of_a_pass in trainer._passes(batch):
        parts = list(minibatches_of_a_pass)
        assert len(parts) == int(minibatches)
        for part in parts:
            steps, sequences = part.encoded.encoded, part.encoded.encoded.shape[1]
            assert steps.shape == (8, 6 // len(parts), 3)
            for number in range(sequences):
                starts = (seen[::8] == steps[0, number]).all(dim=2).nonzero()
                ((block, environment),) = starts.tolist()
                whole = seen[8 * block : 8 * block + 8, environment]
                assert torch.equal(steps[:, number], whole)
            learnt = steps.flatten(0, 1)[part.encoded.rows]
            assert torch.equal(learnt, batch.encoded[part.returns.long()]), "columns fit the steps"
        returns = torch.cat([part.returns for part in parts])
        assert sorted(returns.tolist()) == list(range(16 * 3 - 2)), (
            "and the forced ones are left out"
        )


def test_one_minibatch_is_not_shuffled_and_others_have_a_new_order_each_time() -> None:
    trainer = trainer_on("tests.recorded_game:Recorded", minibatches="1", **PLAIN)
    before = trainer.permutations.get_state()
    next(trainer.train())
    assert torch.equal(before, trainer.permutations.get_state()), "nothing was drawn"
    trainer.close()
    other = trainer_on("tests.recorded_game:Recorded", minibatches="3", **PLAIN)
    other._collect()
    first, second = (list(parts) for parts in other._passes(other._batch()))
    assert not all(
        torch.equal(one.returns, two.returns) for one, two in zip(first, second, strict=True)
    )
    other.close()


def test_the_network_is_the_one_that_is_asked_for() -> None:
    given = {"lstm_size": "5", "hidden_sizes": "6,7", "log_std_init": "-0.5"}
    trainer = trainer_on("pendulum-no-velocity", **given, **PLAIN)
    trainer.close()
    shapes = {name: tuple(one.shape) for name, one in trainer.network.named_parameters()}
    assert shapes["torso.weight"] == (2, 5, 20)
    assert (shapes["torso.weight1"], shapes["torso.weight2"]) == ((2, 5, 6), (2, 6, 7))
    assert trainer.network.log_std.tolist() == [-0.5]
    own = trainer_on("pendulum-no-velocity", network="my_lab.nets:Gated", **PLAIN)
    own.close()
    assert type(own.network.torso).__name__ == "OwnTorso"


def replayed(trainer: RecurrentPPOTrainer, n: int, *, cleared: bool) -> dict[int, float]:
    """V of the final observation of each episode of environment n that was cut and began in the
    rollout, by its last step: by what was remembered of it, or by nothing."""
    rows = Recorded.made[-3:][n].rows
    found: dict[int, float] = {}
    network, begins, state = trainer.network.frozen(), True, trainer.network.first_state
    nothing = state(torch.zeros(1, 3))
    remembered = nothing
    with torch.inference_mode():
        for t, row in enumerate(rows):
            seen = torch.from_numpy(row.observation)[None]
            remembered = network(seen, remembered, torch.tensor([begins]))[2]
            if row.truncated:
                final = torch.from_numpy(row.next_observation)[None]
                value = network(final, nothing if cleared else remembered, torch.tensor([False]))[1]
                found[t] = float(value)
            begins = row.terminated or row.truncated
    return found


def test_the_final_observation_of_a_cut_episode_is_judged_by_what_was_remembered_of_it() -> None:
    Recorded.made.clear()
    trainer = trainer_on("tests.recorded_game:Recorded", **PLAIN)
    trainer._collect()
    trainer.close()
    values, differences = trainer.rollout.next_values, list[float]()
    for n in range(3):
        for t, value in replayed(trainer, n, cleared=False).items():
            assert values[t, n] == pytest.approx(value, abs=1e-6)
        differences += [
            abs(values[t, n] - value) for t, value in replayed(trainer, n, cleared=True).items()
        ]
    assert len(differences) >= 3 and min(differences) > 1e-3, "a cleared state would be seen"


def test_what_is_remembered_goes_from_rollout_to_rollout() -> None:
    """Row T of a rollout is row 0 of the next: with the same weights its value is the same."""
    trainer = trainer_on("tests.recorded_game:Recorded", **PLAIN)
    trainer._collect()
    last = trainer.rollout.values[-1].clone()
    state = [part.clone() for part in trainer.memory.state]
    assert all(part.any() for part in state)
    trainer._collect()
    trainer.close()
    assert torch.equal(trainer.rollout.values[0], last)
    for first, part in zip(trainer.memory.first, state, strict=True):
        assert torch.equal(first[0], part) and not torch.equal(first[1], part)


def test_a_training_resumes_in_the_middle_of_its_episodes() -> None:
    resolved = small("cartpole-no-velocity", normalise_observations="true")
    undisturbed = RecurrentPPOTrainer(resolved, run=0, device="cpu", precision="fp32")
    rows = []
    for one in undisturbed.train():
        rows.append(repr(one))
        if one.epoch == 2:
            state = undisturbed.state_dict()
    assert not state["memory"]["begins"].all() and state["memory"]["state"]["1"].any()
    forgetful, resumed = (
        RecurrentPPOTrainer(resolved, run=0, device="cpu", precision="fp32") for _ in range(2)
    )
    resumed.load_state_dict(state)
    assert [repr(one) for one in resumed.train()] == rows[2:]
    np.testing.assert_equal(undisturbed.state_dict(), resumed.state_dict())
    nothing = {name: np.zeros_like(part) for name, part in state["memory"]["state"].items()}
    forgetful.load_state_dict(state | {"memory": state["memory"] | {"state": nothing}})
    assert [repr(one) for one in forgetful.train()] != rows[2:], "what is remembered is needed"
    for trainer in (undisturbed, resumed, forgetful):
        trainer.close()


def test_an_environment_that_cannot_be_replayed_is_forgotten(
    caplog: pytest.LogCaptureFixture,
) -> None:
    trainer = trainer_on(
        "tests.own_games:Forgetful", sequence_length="4", rollout_length="8", **PLAIN
    )
    next(trainer.train())
    state = trainer.state_dict()
    assert not state["memory"]["begins"].any(), "in the middle of an episode"
    resumed = trainer_on(
        "tests.own_games:Forgetful", sequence_length="4", rollout_length="8", **PLAIN
    )
    with caplog.at_level(logging.WARNING):
        resumed.load_state_dict(state)
    assert "3 of 3 episodes in flight are left out" in caplog.text
    assert resumed.memory.begins.all()
    assert [one.epoch for one in resumed.train()] == [2, 3, 4]
    for one in (trainer, resumed):
        one.close()


@pytest.mark.parametrize(
    ("game", "given"),
    [
        ("cartpole-no-velocity", {}),
        pytest.param("pendulum-no-velocity", {}, marks=pytest.mark.slow),
        pytest.param("breakout", {}, marks=pytest.mark.slow),
        ("tests.own_games:Picture", {}), ("cartpole", {"network": "my_lab.nets:Gated"}),
        pytest.param("cartpole", {"network": "my_lab.nets:Residual"}, marks=pytest.mark.slow),
        pytest.param(
            "tests.own_games:Picture", {"network": "my_lab.nets:Gated"}, marks=pytest.mark.slow
        ),
    ],
    ids=lambda one: one if isinstance(one, str) else one.get("network", "ours"),
)  # fmt: skip
def test_every_promise_of_a_training_is_kept(game: str, given: dict[str, str]) -> None:
    findings = list(tried(TrainingChecks(small(game, num_envs="2", **given)).all()))
    assert [finding for finding in findings if not finding.kept] == []


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"sequence_length": "7"}, "cannot be 7; allowed: a divisor of rollout_length, 16"),
        ({"sequence_length": "32"}, "cannot be 32; allowed: a divisor of rollout_length, 16"),
        ({"minibatches": "4"}, "cannot be 4; allowed: a divisor of num_envs * rollout_length / sequence_length = 6"),
        ({"minibatches": "5"}, "allowed: a divisor of num_envs * rollout_length = 3 * 16 = 48"),
        ({"sequence_length": "0"}, "allowed: an integer from 1 to 65536"),
    ],
)  # fmt: skip
def test_sizes_that_do_not_go_together_are_refused(given: dict[str, str], reason: str) -> None:
    with pytest.raises(BadInput) as refusal:
        small("cartpole", **given)
    assert reason in str(refusal.value)


@pytest.fixture(scope="module")
def recalled() -> dict[str, float]:
    """The mean return of the last 20 epochs, by algorithm."""
    given = {
        "game": "tests.own_games:Recall", "num_envs": "8", "rollout_length": "32",
        "minibatches": "1", "update_epochs": "4", "learning_rate": "0.005", "epochs": "60",
        "anneal_learning_rate": "false", "gae_lambda": "0.95", **PLAIN,
    }  # fmt: skip
    found = {}
    for algorithm in ("ppo-lstm", "ppo"):
        trainer = make_trainer(resolve(algorithm, given), run=0, device="cpu", precision="fp32")
        returns = [progress.returns for progress in trainer.train()]
        trainer.close()
        found[algorithm] = float(np.mean(np.concatenate(returns[-20:])))
    return found


@pytest.mark.slow
def test_what_must_be_remembered_for_8_steps_is_learnt(recalled: dict[str, float]) -> None:
    assert recalled["ppo-lstm"] > 0.95


@pytest.mark.slow
def test_without_a_memory_it_is_chance(recalled: dict[str, float]) -> None:
    assert recalled["ppo"] < 0.6
