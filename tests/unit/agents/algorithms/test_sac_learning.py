"""SAC where the answer is known: bandits, a constant reward under a time limit; and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from agents.algorithms.sac import METRICS, SACTrainer
from agents.environments.game_check import check_game
from agents.interfaces import Progress
from agents.load import load_policy
from config.errors import BadInput, Diverged
from config.games import Game
from config.resolve import Resolved, resolve
from tests import own_games

SMALL = {
    "hidden_sizes": "32,32", "batch_size": "64", "learning_starts": "100", "epoch_steps": "200",
    "learning_rate": "0.003", "num_envs": "4", "train_every": "4", "outdir": "/x",
}  # fmt: skip


def own(name: str, **given: str) -> Resolved:
    return resolve("sac", {"game": f"tests.own_games:{name}", **SMALL, **given})


def trained(resolved: Resolved) -> tuple[SACTrainer, list[Progress]]:
    trainer = SACTrainer(resolved, run=0, device="cpu", precision="fp32")
    progress = list(trainer.train())
    trainer.close()
    return trainer, progress


def test_a_quadratic_bandit_finds_the_best_action_of_each_range() -> None:
    """Also that the scale is the environment's: the three actions have bounds of their own."""
    resolved = own("Wide", epochs="12", discount="0", target_entropy="-6")
    trainer, progress = trained(resolved)
    policy = load_policy(resolved, trainer.state_dict())
    greedy = policy.act(np.zeros((1, 1), np.float32), sample=False)[0]
    assert greedy.tolist() == pytest.approx([0.3, 8, 5], abs=0.25)
    units = trainer.network(torch.zeros(1, 1))[0][0, :3].tanh().tolist()
    assert units == pytest.approx([0.3, 0.6, 0.5], abs=0.08)
    assert np.mean(progress[-1].returns) > np.mean(progress[0].returns) / 4


def test_a_sampled_action_is_its_row_s_and_spread_around_the_mode() -> None:
    resolved = own("Wide")
    trainer = SACTrainer(resolved, run=0, device="cpu", precision="fp32")
    trainer.close()
    policy = load_policy(resolved, trainer.state_dict())
    rows, low, high = np.zeros((8, 1), np.float32), [-1, 0, 2], [1, 10, 6]
    policy.seed(range(8))
    sampled = policy.act(rows, sample=True)
    policy.seed([5])
    alone = policy.act(rows[:1], sample=True)
    np.testing.assert_allclose(sampled[5], alone[0], rtol=1e-5)
    greedy = policy.act(rows, sample=False)
    assert (greedy == greedy[0]).all() and (sampled.std(axis=0) > 0).all()
    assert (sampled >= low).all() and (sampled <= high).all()


def values_of(resolved: Resolved) -> float:
    network = trained(resolved)[0].network
    with torch.no_grad():
        return float(network(torch.zeros(1, 1))[1])


@pytest.fixture(scope="module")
def constant_reward_values() -> tuple[float, float]:
    """Q where truncation bootstraps, and where an environment merges it with termination."""
    given = {"alpha": "0", "discount": "0.8", "target_rate": "0.1", "epochs": "6"}
    resolved = own("Endless", **given)
    options = {"merged": True}
    game = Game(name=resolved.game.name, id=resolved.game.id, options=options)
    return values_of(resolved), values_of(replace(resolved, game=game))


def test_truncation_bootstraps(constant_reward_values: tuple[float, float]) -> None:
    assert constant_reward_values[0] == pytest.approx(1 / (1 - 0.8), rel=0.05)


def test_truncation_as_termination_would_be_seen(
    constant_reward_values: tuple[float, float],
) -> None:
    assert constant_reward_values[1] < 4.7


def test_nothing_is_learnt_before_its_time_and_then_as_often_as_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also what an epoch says that had no update."""
    at = list[int]()
    update = SACTrainer._update
    monkeypatch.setattr(
        SACTrainer, "_update", lambda one: at.append(one.collection.step) or update(one)
    )
    _, progress = trained(
        own(
            "Wide", epochs="3", epoch_steps="20", learning_starts="25", train_every="8", updates="2"
        )
    )
    assert at == [32, 32, 40, 40, 48, 48, 56, 56]
    assert [one.step for one in progress] == [20, 40, 60]
    assert progress[0].metrics == dict.fromkeys(METRICS)
    assert all(np.isfinite([*one.metrics.values()]).all() for one in progress[1:])


def test_the_learning_rate_falls_to_zero_over_the_training() -> None:
    given = {"epochs": "4", "epoch_steps": "100", "anneal_learning_rate": "true"}
    _, progress = trained(own("Wide", **given))
    rates = [one.metrics["learning_rate"] for one in progress]
    assert rates == pytest.approx([0.003 * left for left in (0.75, 0.5, 0.25, 0)])


@pytest.mark.parametrize(("field", "said"), [("reward", "reward"), ("observation", "observation")])
def test_a_nan_of_the_environment_is_named(field: str, said: str) -> None:
    resolved = resolve(
        "sac", {"game": f"{__name__}:Broken", "env_options": f"field={field}", **SMALL}
    )
    with pytest.raises(Diverged, match=f"gave a {said} that is not finite"):
        trained(resolved)


def test_a_loss_that_is_not_finite_changes_nothing() -> None:
    """Rewards whose squares are beyond float32."""
    trainer = SACTrainer(own("Wide", epochs="2"), run=0, device="cpu", precision="fp32")
    next(iter(trainer.train()))
    trainer.collection.replay._columns["reward"][:] = 1e30
    before = {name: value.clone() for name, value in trainer.network.state_dict().items()}
    with pytest.raises(
        Diverged, match="loss or gradient of the critics is not finite in epoch 2"
    ) as told:
        trainer._update()
    trainer.close()
    assert "targets 1e+30 … 1e+30" in str(told.value) and "batch of 64 rows" in str(told.value)
    for name, value in trainer.network.state_dict().items():
        assert torch.equal(value, before[name])


def test_what_followed_a_lost_episode_is_not_learnt() -> None:
    trainer = SACTrainer(own("Wide", epochs="2"), run=0, device="cpu", precision="fp32")
    next(iter(trainer.train()))
    assert trainer._batch().weights.tolist() == pytest.approx([1 / 64] * 64)
    lost = np.zeros_like(trainer.collection.replay._columns["valid"])
    lost[::2] = True
    trainer.collection.replay._columns["valid"][:] = lost
    weights = trainer._batch().weights
    trainer.close()
    assert weights.sum().item() == pytest.approx(1) and 5 < int((weights == 0).sum()) < 59


class Broken(own_games.Broken):
    """For a continuous action."""

    def __init__(self, field: str) -> None:
        super().__init__(field)
        self.action_space = spaces.Box(-1, 1, (1,), np.float32)  # type: ignore[assignment]

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return super().step(np.int64(0))


class Halves(nn.Module):
    """A torso of one's own: half as many features as numbers, plus one."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layer = nn.Linear(shape[0], shape[0] // 2 + 1)

    def forward(self, encoded: Tensor, state: tuple[()], reset: Tensor) -> tuple[Tensor, tuple[()]]:
        return self.layer(encoded).tanh(), state


def test_a_torso_learns_from_the_critics_alone_and_its_copy_follows() -> None:
    resolved = own("Wide", network=f"{__name__}:Halves", epochs="1")
    trainer = SACTrainer(resolved, run=0, device="cpu", precision="fp32")
    network: Any = trainer.network
    assert (network.torso.features, network.is_small) == (1, False)
    first = [one.clone() for one in network.torso.parameters()]
    list(trainer.train())
    trainer.close()
    slow, fast = list(network.target_torso.parameters()), list(network.torso.parameters())
    assert any(not torch.equal(one, other) for one, other in zip(first, fast, strict=True))
    assert any(not torch.equal(one, other) for one, other in zip(first, slow, strict=True))
    assert any(not torch.equal(one, other) for one, other in zip(slow, fast, strict=True))
    inputs, count = trainer._batch(), len(fast)
    for name, reached in (("critics", count), ("actor", 0)):
        network.zero_grad()
        features = network.features(inputs.encoded).detach()
        targets, alpha = inputs.rewards, torch.tensor(0.1)
        if name == "critics":
            loss = trainer._critics_loss(inputs.encoded, inputs.actions, targets, inputs.weights)
        else:
            loss = trainer._actor_loss(features, trainer._noise(64, 3), alpha)
        loss[0].backward()  # type: ignore[no-untyped-call]
        assert sum(one.grad is not None for one in fast) == reached
    policy = load_policy(resolved, trainer.state_dict())
    assert policy.act(np.zeros((1, 1), np.float32), sample=False).shape == (1, 3)


def test_targets_see_by_the_slow_torso_and_the_actor_by_the_one_just_learnt() -> None:
    resolved = own("Wide", network=f"{__name__}:Halves", epochs="1")
    trainer = SACTrainer(resolved, run=0, device="cpu", precision="fp32")
    list(trainer.train())
    trainer.close()
    network, inputs = trainer.network, trainer._batch()
    with torch.no_grad():
        before = network.target_values(network.target_features(inputs.next_encoded), inputs.actions)
        for parameter in network.torso.parameters():
            parameter.add_(1.0)
        after = network.target_values(network.target_features(inputs.next_encoded), inputs.actions)
    assert torch.equal(before, after)
    descend, seen = trainer._descend, list[tuple[Tensor, Tensor]]()

    def looked(name: str, *given: Tensor) -> Any:
        if name == "actor":
            seen.append((given[0], network.features(inputs.encoded).detach()))
        return descend(name, *given)

    trainer._batch, trainer._descend = lambda: inputs, looked  # type: ignore[method-assign]
    trainer._update()
    ((given, newest),) = seen
    assert torch.equal(given, newest)


@pytest.mark.parametrize(("side", "torso"), [("40", "NatureCNN"), ("10", "SmallCNN")])
def test_images_are_learnt(side: str, torso: str) -> None:
    resolved = own(
        "Steering", env_options=f"side={side}", epochs="1", epoch_steps="16", learning_starts="8",
        batch_size="4", hidden_sizes="16", replay_size="1000",
    )  # fmt: skip
    trainer, (progress,) = trained(resolved)
    assert type(trainer.network.torso).__name__ == torso
    assert progress.metrics["critic_gradient_norm"] > 0
    policy = load_policy(resolved, trainer.state_dict())
    shape = (3, int(side), int(side), 3)
    image = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    assert len(set(policy.act(image, sample=False)[:, 0].tolist())) == 3


@pytest.mark.parametrize(
    ("game", "reason"),
    [
        ("cartpole", "sac cannot play cartpole: the game's actions are discrete; sac plays games "
         "whose actions are continuous"),
        ("tests.own_games:HalfBounded", "an action of the game has no bounds; sac plays games "
         "whose actions have a least and a largest value"),
        ("tests.recorded_game:Recorded", "the game's actions are discrete"),
    ],
)  # fmt: skip
def test_a_game_that_it_cannot_play_is_refused_with_one_line(game: str, reason: str) -> None:
    with pytest.raises(BadInput) as refusal:
        check_game(resolve("sac", {"game": game, "outdir": "/x"}))
    assert reason in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"num_envs": "3", "train_every": "3"}, "'epoch_steps' cannot be 1000; allowed: a multiple of num_envs, 3"),
        ({"num_envs": "4"}, "'train_every' cannot be 1; allowed: a multiple of num_envs, 4"),
        ({"learning_starts": "1"}, "'learning_starts' cannot be 1; allowed: at least 2 "),
        ({"replay_size": "255"}, "'replay_size' cannot be 255; allowed: at least 256 "),
        ({"replay_size": "3", "batch_size": "2"}, "'replay_size' cannot be 3; allowed: at least 4 "),
        ({"alpha": "0.1", "target_entropy": "-1"}, "'target_entropy' cannot be -1 with a fixed alpha, 0.1"),
        ({"normalise_rewards": "true"}, "'normalise_rewards' cannot be true: the rewards of a replay"),
        ({"normalise_observations": "true"}, "'learning_starts' cannot be 100 with normalise_observations=true"),
        ({"alpha": "-1"}, "'alpha' cannot be '-1'"),
    ],
)  # fmt: skip
def test_what_does_not_go_together(given: dict[str, str], reason: str) -> None:
    with pytest.raises(BadInput) as refusal:
        resolve("sac", {"game": "pendulum", "outdir": "/x", **given})
    assert reason in str(refusal.value) and "\n" not in str(refusal.value)


def test_the_smallest_replay_learns() -> None:
    given = {"num_envs": "1", "train_every": "1", "batch_size": "2", "replay_size": "4"}
    _, progress = trained(own("Wide", learning_starts="2", epochs="1", epoch_steps="20", **given))
    assert np.isfinite([*progress[0].metrics.values()]).all()
