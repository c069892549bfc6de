"""SAC and TD3 where the answer is known: bandits, a constant reward under a time limit; and what they
refuse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from agents.algorithms import sac, td3
from agents.algorithms.sac import SACTrainer
from agents.algorithms.td3 import TD3Trainer
from agents.environments.game_check import check_game
from agents.interfaces import Progress
from agents.load import load_policy
from config.errors import BadInput, Diverged
from config.games import Game
from config.resolve import resolve
from config.resolved import Resolved
from tests import own_games

SMALL = {
    "hidden_sizes": "32,32", "batch_size": "64", "learning_starts": "100", "epoch_steps": "200",
    "learning_rate": "0.003", "num_envs": "4", "train_every": "4", "outdir": "/x",
}  # fmt: skip
Trainer = SACTrainer | TD3Trainer
TRAINERS: dict[str, Any] = {"sac": SACTrainer, "td3": TD3Trainer}
METRICS = {"sac": sac.METRICS, "td3": td3.METRICS}
both = pytest.mark.parametrize("algorithm", TRAINERS)


def own(algorithm: str, name: str, **given: str) -> Resolved:
    return resolve(algorithm, {"game": f"tests.own_games:{name}", **SMALL, **given})


def made(resolved: Resolved) -> Any:
    return TRAINERS[resolved.algorithm](resolved, run=0, device="cpu", precision="fp32")


def trained(resolved: Resolved) -> tuple[Any, list[Progress]]:
    trainer = made(resolved)
    progress = list(trainer.train())
    trainer.close()
    return trainer, progress


BANDIT = {
    "sac": {"epochs": "12", "target_entropy": "-6"},
    "td3": {"epochs": "8", "exploration_noise": "0.5", "updates": "4", "anneal_learning_rate": "true"},
}  # fmt: skip
NEAR = {"sac": 0.08, "td3": 0.15}
"""In units of half an action's range; TD3 climbs a critic at one point, SAC around it."""


@both
def test_a_quadratic_bandit_finds_the_best_action_of_each_range(algorithm: str) -> None:
    """Also that the scale is the environment's: the three actions have bounds of their own."""
    resolved = own(algorithm, "Wide", discount="0", **BANDIT[algorithm])
    trainer, progress = trained(resolved)
    units = trainer.network(torch.zeros(1, 1))[0][0, :3].tanh().tolist()
    assert units == pytest.approx([0.3, 0.6, 0.5], abs=NEAR[algorithm])
    policy = load_policy(resolved, trainer.state_dict())
    greedy = policy.act(np.zeros((1, 1), np.float32), sample=False)[0]
    low, high = own_games.Wide.LOW, own_games.Wide.HIGH
    np.testing.assert_allclose(greedy, low + (np.array(units) + 1) / 2 * (high - low), rtol=1e-5)
    assert np.mean(progress[-1].returns) > np.mean(progress[0].returns) + 0.4


@both
def test_a_sampled_action_is_its_row_s_and_spread_around_the_mode(algorithm: str) -> None:
    resolved = own(algorithm, "Wide")
    trainer = made(resolved)
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


@pytest.fixture(scope="module", params=TRAINERS)
def constant_reward_values(request: pytest.FixtureRequest) -> tuple[float, float]:
    """Q where truncation bootstraps, and where an environment merges it with termination."""
    algorithm = request.param
    given = {"discount": "0.8", "target_rate": "0.1", "epochs": "6"}
    given |= {"sac": {"alpha": "0"}, "td3": {"policy_delay": "1"}}[algorithm]
    resolved = own(algorithm, "Endless", **given)
    options = {"merged": True}
    game = Game(name=resolved.game.name, id=resolved.game.id, options=options)
    return values_of(resolved), values_of(replace(resolved, game=game))


def test_truncation_bootstraps(constant_reward_values: tuple[float, float]) -> None:
    assert constant_reward_values[0] == pytest.approx(1 / (1 - 0.8), rel=0.05)


def test_truncation_as_termination_would_be_seen(
    constant_reward_values: tuple[float, float],
) -> None:
    assert constant_reward_values[1] < 4.7


@both
def test_nothing_is_learnt_before_its_time_and_then_as_often_as_asked_for(
    monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    """Also what an epoch says that had no update."""
    at = list[int]()
    trainer = TRAINERS[algorithm]
    update = trainer._update
    monkeypatch.setattr(
        trainer, "_update", lambda one: at.append(one.collection.step) or update(one)
    )
    _, progress = trained(
        own(
            algorithm,
            "Wide",
            epochs="3",
            epoch_steps="20",
            learning_starts="25",
            train_every="8",
            updates="2",
        )
    )
    assert at == [32, 32, 40, 40, 48, 48, 56, 56]
    assert [one.step for one in progress] == [20, 40, 60]
    assert progress[0].metrics == dict.fromkeys(METRICS[algorithm])
    assert all(np.isfinite([*one.metrics.values()]).all() for one in progress[1:])


@both
def test_the_learning_rate_falls_to_zero_over_the_training(algorithm: str) -> None:
    given = {"epochs": "4", "epoch_steps": "100", "anneal_learning_rate": "true"}
    _, progress = trained(own(algorithm, "Wide", **given))
    rates = [one.metrics["learning_rate"] for one in progress]
    assert rates == pytest.approx([0.003 * left for left in (0.75, 0.5, 0.25, 0)])


@both
@pytest.mark.parametrize(("field", "said"), [("reward", "reward"), ("observation", "observation")])
def test_a_nan_of_the_environment_is_named(field: str, said: str, algorithm: str) -> None:
    resolved = resolve(
        algorithm, {"game": f"{__name__}:Broken", "env_options": f"field={field}", **SMALL}
    )
    with pytest.raises(Diverged, match=f"gave a {said} that is not finite"):
        trained(resolved)


@both
def test_a_loss_that_is_not_finite_changes_nothing(algorithm: str) -> None:
    """Rewards whose squares are beyond float32."""
    trainer = made(own(algorithm, "Wide", epochs="2"))
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


@both
def test_what_followed_a_lost_episode_is_not_learnt(algorithm: str) -> None:
    trainer = made(own(algorithm, "Wide", epochs="2"))
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


def loss_of_actor(trainer: Trainer, features: Tensor) -> Tensor:
    if isinstance(trainer, TD3Trainer):
        return trainer._actor_loss(features)[0]
    return trainer._actor_loss(features, trainer._noise(64, 3), torch.tensor(0.1))[0]


@both
def test_a_torso_learns_from_the_critics_alone_and_its_copy_follows(algorithm: str) -> None:
    resolved = own(algorithm, "Wide", network=f"{__name__}:Halves", epochs="1")
    trainer = made(resolved)
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
        if name == "critics":
            targets = inputs.rewards
            loss = trainer._critics_loss(inputs.encoded, inputs.actions, targets, inputs.weights)[0]
        else:
            loss = loss_of_actor(trainer, features)
        loss.backward()
        assert sum(one.grad is not None for one in fast) == reached
    policy = load_policy(resolved, trainer.state_dict())
    assert policy.act(np.zeros((1, 1), np.float32), sample=False).shape == (1, 3)


@both
def test_targets_see_by_the_slow_torso_and_the_actor_by_the_one_just_learnt(
    algorithm: str,
) -> None:
    resolved = own(
        algorithm, "Wide", network=f"{__name__}:Halves", epochs="1",
        **({"policy_delay": "1"} if algorithm == "td3" else {}),
    )  # fmt: skip
    trainer = made(resolved)
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

    trainer._batch, trainer._descend = lambda: inputs, looked
    trainer._update()
    ((given, newest),) = seen
    assert torch.equal(given, newest)


@both
@pytest.mark.parametrize(("side", "torso"), [("40", "NatureCNN"), ("10", "SmallCNN")])
def test_images_are_learnt(side: str, torso: str, algorithm: str) -> None:
    resolved = own(
        algorithm, "Steering", env_options=f"side={side}", epochs="1", epoch_steps="16", learning_starts="8",
        batch_size="4", hidden_sizes="16", replay_size="1000",
    )  # fmt: skip
    trainer, (progress,) = trained(resolved)
    assert type(trainer.network.torso).__name__ == torso
    assert progress.metrics["critic_gradient_norm"] > 0
    policy = load_policy(resolved, trainer.state_dict())
    shape = (3, int(side), int(side), 3)
    image = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    assert len(set(policy.act(image, sample=False)[:, 0].tolist())) == 3


@both
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
def test_a_game_that_it_cannot_play_is_refused_with_one_line(
    game: str, reason: str, algorithm: str
) -> None:
    with pytest.raises(BadInput) as refusal:
        check_game(resolve(algorithm, {"game": game, "outdir": "/x"}))
    assert reason.replace("sac", algorithm) in str(refusal.value)
    assert "\n" not in str(refusal.value)


REFUSED = (
    ({"num_envs": "3", "train_every": "3"}, "'epoch_steps' cannot be 1000; allowed: a multiple of num_envs, 3"),
    ({"num_envs": "4"}, "'train_every' cannot be 1; allowed: a multiple of num_envs, 4"),
    ({"learning_starts": "1"}, "'learning_starts' cannot be 1; allowed: at least 2 "),
    ({"replay_size": "255"}, "'replay_size' cannot be 255; allowed: at least 256 "),
    ({"replay_size": "3", "batch_size": "2"}, "'replay_size' cannot be 3; allowed: at least 4 "),
    ({"normalise_rewards": "true"}, "'normalise_rewards' cannot be true: the rewards of a replay"),
    ({"normalise_observations": "true", "learning_starts": "100"},
     "'learning_starts' cannot be 100 with normalise_observations=true"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("algorithm", "given", "reason"),
    [
        *((algorithm, *case) for case in REFUSED for algorithm in TRAINERS),
        ("sac", {"alpha": "0.1", "target_entropy": "-1"}, "'target_entropy' cannot be -1 with a fixed alpha, 0.1"),
        ("sac", {"alpha": "-1"}, "'alpha' cannot be '-1'"),
        ("td3", {"policy_delay": "0"}, "'policy_delay' cannot be '0'"),
        ("td3", {"target_noise": "-0.1"}, "'target_noise' cannot be '-0.1'"),
    ],
)  # fmt: skip
def test_what_does_not_go_together(algorithm: str, given: dict[str, str], reason: str) -> None:
    with pytest.raises(BadInput) as refusal:
        resolve(algorithm, {"game": "pendulum", "outdir": "/x", **given})
    assert reason in str(refusal.value) and "\n" not in str(refusal.value)


@both
def test_the_smallest_replay_learns(algorithm: str) -> None:
    given = {"num_envs": "1", "train_every": "1", "batch_size": "2", "replay_size": "4"}
    _, progress = trained(
        own(algorithm, "Wide", learning_starts="2", epochs="1", epoch_steps="20", **given)
    )
    assert np.isfinite([*progress[0].metrics.values()]).all()
