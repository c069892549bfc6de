"""PPO where the answer is known: bandits, a constant reward under a time limit, and what must never
be learnt from."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from agents.algorithms.ppo import PPOTrainer
from agents.environments.game_check import check_game
from agents.environments.games import make_environment
from agents.environments.training import TrainingEnvironments
from agents.evaluation.episodes import evaluate
from agents.evaluation.rendering import draw_once
from agents.experience.rollouts import Episodes
from agents.interfaces import Progress, State
from agents.load import load_policy, make_trainer
from config.errors import BadInput, Diverged
from config.games import Game
from config.resolve import resolve
from config.resolved import Resolved

SMALL = {
    "num_envs": "4",
    "rollout_length": "32",
    "minibatches": "4",
    "update_epochs": "4",
    "normalise_observations": "false",
    "normalise_rewards": "false",
}


def own(name: str, **given: str) -> Resolved:
    return resolve("ppo", {"game": f"tests.own_games:{name}", **SMALL, **given})


def with_options(resolved: Resolved, **options: Any) -> Resolved:
    game = Game(name=resolved.game.name, id=resolved.game.id, options=options)
    return replace(resolved, game=game)


def trained(resolved: Resolved) -> tuple[PPOTrainer, list[Progress]]:
    trainer = PPOTrainer(resolved, run=0, device="cpu", precision="fp32")
    progress = list(trainer.train())
    trainer.close()
    return trainer, progress


def value_of(trainer: PPOTrainer) -> float:
    with torch.no_grad():
        return float(trainer.network(torch.zeros(1, 1))[1])


def test_a_two_armed_bandit_is_solved_in_50_updates() -> None:
    _, progress = trained(
        own("Bandit", epochs="50", update_epochs="1", minibatches="1", learning_rate="0.01")
    )
    assert np.mean(progress[0].returns) < 0.8
    assert np.mean(progress[-1].returns) > 0.98


def test_a_continuous_bandit_finds_the_best_action() -> None:
    resolved = own("Square", epochs="80", learning_rate="0.005")
    trainer, _ = trained(resolved)
    policy = load_policy(resolved, trainer.state_dict())
    assert float(policy.act(np.zeros((1, 1), np.float32), sample=False)[0, 0]) == pytest.approx(
        5, abs=0.2
    )


@pytest.fixture(scope="module")
def constant_reward_values() -> tuple[float, float]:
    """V where truncation bootstraps, and where an environment merges it with termination."""
    resolved = own(
        "ConstantReward",
        epochs="60",
        learning_rate="0.01",
        discount="0.9",
        anneal_learning_rate="true",
        max_gradient_norm="10",
    )
    return value_of(trained(resolved)[0]), value_of(trained(with_options(resolved, merged=True))[0])


def test_truncation_bootstraps(constant_reward_values: tuple[float, float]) -> None:
    assert constant_reward_values[0] == pytest.approx(1 / (1 - 0.9), rel=0.03)


def test_truncation_as_termination_would_be_seen(
    constant_reward_values: tuple[float, float],
) -> None:
    assert constant_reward_values[1] < 8


def test_every_row_is_a_step_and_learnt_from() -> None:
    trainer, progress = trained(own("Bandit", epochs="3"))
    assert [one.step for one in progress] == [128, 256, 384]
    batch = trainer._batch()
    assert len(batch.returns) == 128
    assert torch.allclose(batch.returns, batch.actions.float(), atol=1e-6)
    assert all(one.lengths == [1] * 128 for one in progress)


def test_returns_are_the_game_s_own_when_rewards_are_clipped() -> None:
    clipped = with_options(own("Square", epochs="2", clip_rewards="true"))
    trainer, progress = trained(clipped)
    assert min(progress[0].returns) < -1
    assert float(trainer._batch().returns.min()) >= -1


def test_episodes_across_rollouts() -> None:
    episodes = Episodes(2)
    ended = np.array([[False, True], [False, False], [True, False]])
    assert episodes.finish(np.ones((3, 2)), ended) == ([1.0, 3.0], [1, 3])
    later = np.array([[False, False], [True, True]])
    assert episodes.finish(np.ones((2, 2)), later) == ([2.0, 4.0], [2, 4])


def test_episodes_step_by_step_are_the_same() -> None:
    drawn = np.random.default_rng(0)
    rewards = drawn.integers(-9, 9, (50, 3)).astype(np.float32)
    ended = drawn.random((50, 3)) < 0.2
    stepped, returns, lengths = Episodes(3), list[float](), list[int]()
    for reward, ends in zip(rewards, ended, strict=True):
        found = stepped.step(reward, np.flatnonzero(ends))
        returns += found[0]
        lengths += found[1]
    whole = Episodes(3)
    assert (returns, lengths) == whole.finish(rewards, ended)
    for name, left in whole.state_dict().items():
        assert left.tolist() == stepped.state_dict()[name].tolist()


@pytest.mark.parametrize("field", ["reward", "observation"])
def test_nan_from_the_environment(field: str) -> None:
    resolved = with_options(own("Broken", epochs="1"), field=field)
    trainer = PPOTrainer(resolved, run=0, device="cpu", precision="fp32")
    weights = weights_of(trainer)
    with pytest.raises(
        Diverged, match=rf"environment 0 gave a {field} that is not finite, .*nan.*, at step 28"
    ):
        next(trainer.train())
    assert torch.equal(weights, weights_of(trainer))


def weights_of(trainer: PPOTrainer) -> torch.Tensor:
    return nn.utils.parameters_to_vector(trainer.network.parameters()).detach()


@pytest.mark.parametrize("poison", ["gradient", "loss"])
def test_a_non_finite_number_never_reaches_the_optimiser(
    poison: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = PPOTrainer(own("ConstantReward", epochs="2"), run=0, device="cpu", precision="fp32")
    training = trainer.train()
    next(training)
    batch = trainer._batch()
    bad = batch._replace(returns=batch.returns.clone())
    bad.returns[3] = float("inf") if poison == "gradient" else float("nan")
    weights, state = weights_of(trainer), trainer.optimiser.state_dict()
    with pytest.raises(
        Diverged,
        match=r"not finite in epoch 2, after step 128: losses: policy .*gradient norm .*returns .* inf|nan",
    ):
        trainer._update(bad, 1e-3, torch.tensor(0.2))
    assert torch.equal(weights, weights_of(trainer))
    after = trainer.optimiser.state_dict()
    assert state["updates"] == after["updates"]
    for number, moment in state["moments_1"].items():
        assert np.array_equal(moment, after["moments_1"][number])


def test_same_seed_same_numbers_other_run_others() -> None:
    resolved = resolve("ppo", {"game": "cartpole", "epochs": "3"})
    runs = []
    for run in (0, 0, 1):
        torch.manual_seed(len(runs))  # global generators play no part
        np.random.seed(len(runs))
        trainer = PPOTrainer(resolved, run=run, device="cpu", precision="fp32")
        runs.append([repr(one) for one in trainer.train()])
    assert runs[0] == runs[1] != runs[2]


def leaves(state: State, path: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in state.items():
        found |= (
            leaves(value, f"{path}{name}.") if isinstance(value, dict) else {path + name: value}
        )
    return found


def test_an_environment_that_cannot_be_replayed_starts_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    resolved = own("Forgetful", epochs="3")
    trainer = PPOTrainer(resolved, run=0, device="cpu", precision="fp32")
    training = trainer.train()
    next(training)
    state = trainer.state_dict()
    resumed = PPOTrainer(resolved, run=0, device="cpu", precision="fp32")
    with caplog.at_level(logging.WARNING):
        resumed.load_state_dict(state)
    assert (
        "is not a function of its seed and actions: 4 of 4 episodes in flight are left out"
        in caplog.text
    )
    assert resumed.episodes.state_dict()["length"].tolist() == [0, 0, 0, 0]
    assert (
        resumed.environments.state_dict()["seedings"].tolist()
        == (state["environments"]["seedings"] + 1).tolist()
    )
    assert [one.epoch for one in resumed.train()] == [2, 3]


@pytest.mark.parametrize("threads", [pytest.param("1", marks=pytest.mark.slow), "2"])
def test_atari_resumes_exactly(threads: str) -> None:
    given = {
        "game": "pong",
        "num_envs": "2",
        "rollout_length": "16",
        "minibatches": "1",
        "update_epochs": "1",
        "epochs": "4",
    }
    resolved = resolve("ppo", given | {"threads": threads})
    trainer = PPOTrainer(resolved, run=0, device="cpu", precision="fp32")
    rows, states = list[str](), list[State]()
    for one in trainer.train():
        assert (one.step, one.frame) == (32 * one.epoch, 4 * 32 * one.epoch)
        rows.append(repr(one))
        states.append(trainer.state_dict())
    resumed = PPOTrainer(resolved, run=0, device="cpu", precision="fp32")
    resumed.load_state_dict(states[1])
    assert [repr(one) for one in resumed.train()] == rows[2:]
    assert np.array_equal(
        resumed.state_dict()["environments"]["observation"],
        states[3]["environments"]["observation"],
    )


def test_halves_that_take_turns_are_the_same_environments() -> None:
    given = {
        "game": "breakout",
        "num_envs": "3",
        "rollout_length": "8",
        "minibatches": "2",
        "epochs": "1",
    }
    together, halves = (
        TrainingEnvironments(resolve("ppo", given | {"threads": threads}), 0)
        for threads in ("1", "2")
    )
    assert (together.groups, halves.groups) == ((slice(0, 3),), (slice(0, 2), slice(2, 3)))
    generator = np.random.default_rng(0)
    for _ in range(60):
        actions = generator.integers(0, 4, 3)
        [whole], parts = together.step(actions), halves.step(actions)
        assert np.array_equal(together.observation, halves.observation)
        assert np.array_equal(whole.reward, np.concatenate([part.reward for part in parts]))
        assert np.array_equal(whole.life_lost, np.concatenate([part.life_lost for part in parts]))
    together.close()
    halves.close()


def test_lost_lives_end_episodes_for_the_learner_only() -> None:
    resolved = resolve(
        "ppo",
        {
            "game": "breakout",
            "num_envs": "2",
            "rollout_length": "128",
            "minibatches": "2",
            "epochs": "1",
        },
    )
    environments = TrainingEnvironments(resolved, 0)
    lost = ended = 0
    for _ in range(400):
        [answer] = environments.step(np.zeros(2, np.int64))
        assert answer.life_lost is not None
        lost, ended = lost + int(answer.life_lost.sum()), ended + int(answer.terminated.sum())
    environments.close()
    assert ended == 0 or lost >= 4 * ended, "the last life ends the game itself"
    assert resolved.environment.episodic_life


def test_a_game_that_shows_no_lives_before_its_end_ends_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environments = TrainingEnvironments(
        resolve("ppo", {"game": "breakout", "num_envs": "3", "rollout_length": "8"}), 0
    )
    nothing = np.zeros(3, np.bool_)
    shown = iter([[5, 5, 3], [4, 5, 1], [4, 5, 0], [4, 5, 0]])

    def answer() -> tuple[object, ...]:
        return (
            environments.observation,
            np.zeros(3, np.float32),
            nothing,
            nothing,
            {"lives": np.array(next(shown))},
        )

    found = []
    for _ in range(4):
        environments._answers[0] = answer
        life_lost = environments.receive(0).life_lost
        assert life_lost is not None
        found.append(life_lost.tolist())
    environments.close()
    assert [rows[0] for rows in found[1:]] == [True, False, False]
    assert [rows[2] for rows in found[1:]] == [True, False, False], (
        "0 lives are no loss: the end itself will come"
    )


@pytest.mark.parametrize(
    ("game", "allowed"),
    [
        ("tests.own_games:Text", "Discrete, MultiDiscrete, MultiBinary, or Box"),
        ("tests.own_games:Missing", "cannot be made"),
        ("Nothing-v0", "cannot be made"),
    ],
)
def test_games_that_cannot_be_learnt_are_refused(game: str, allowed: str) -> None:
    with pytest.raises(BadInput, match=allowed):
        check_game(resolve("ppo", {"game": game}))


def test_evaluation_repeats_itself() -> None:
    resolved = resolve("ppo", {"game": "cartpole", "epochs": "1"})
    trainer, _ = trained(resolved)
    policy = load_policy(resolved, trainer.state_dict())
    episodes = list(evaluate(policy, resolved, 0, 3, False))
    assert episodes == list(evaluate(policy, resolved, 0, 3, False))
    assert [one.episode for one in episodes] == [0, 1, 2] and len(
        {one.seed for one in episodes}
    ) == 3
    assert list(evaluate(policy, resolved, 1, 3, False)) != episodes
    sampled = list(evaluate(policy, resolved, 0, 3, True))
    assert sampled == list(evaluate(policy, resolved, 0, 3, True))


def test_statistics_are_frozen_in_evaluation() -> None:
    resolved = own("Square", epochs="2", normalise_observations="true", normalise_rewards="true")
    trainer, _ = trained(resolved)
    state = trainer.state_dict()
    policy = load_policy(resolved, state)
    before = policy.act(np.ones((1, 1), np.float32), sample=False)
    list(evaluate(policy, resolved, 0, 5, True))
    assert np.array_equal(before, policy.act(np.ones((1, 1), np.float32), sample=False))


def test_games_without_images_are_known_before() -> None:
    settings = own("Picture").environment
    draw_once(own("Picture").game, settings)
    with pytest.raises(BadInput, match="gives no images"):
        draw_once(own("Bandit").game, settings)
    assert make_environment(own("Picture").game, settings, "rgb_array").render_mode == "rgb_array"


def test_unknown_algorithms_are_refused() -> None:
    resolved = own("Bandit")
    other = replace(resolved, algorithm="pp0")
    with pytest.raises(BadInput, match="did you mean 'ppo'"):
        make_trainer(other, run=0, device="cpu", precision="fp32")


def test_torch_computes_with_the_threads_of_the_experiment() -> None:
    before = torch.get_num_threads()
    for threads in (2, 1, 2):
        PPOTrainer(own("Bandit", threads=str(threads)), run=0, device="cpu", precision="fp32")
        assert torch.get_num_threads() == threads
    torch.set_num_threads(before)
