"""DQN where the answer is known, its schedules, and that a training which was interrupted goes on as
if it had not been."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch

from agents.algorithms.dqn import DQNTrainer
from agents.checks.algorithm_checks import TrainingChecks
from agents.checks.kept_streams import KeptStreams
from agents.environments.game_check import check_game
from agents.evaluation.episodes import evaluate
from agents.evaluation.value_policy import ValuePolicy
from agents.interfaces import Progress
from agents.load import load_policy
from agents.networks.action_values import linear_epsilon, random_actions
from agents.states import FORMAT
from config.errors import BadInput, Diverged, NoUsableState
from config.parameters import to_text
from config.resolve import resolve
from config.resolved import Resolved
from tests.own_games import Chain

CHAIN = "tests.own_games:Chain"
SMALL = {
    "num_envs": "1", "double": "false", "hidden_sizes": "16", "learning_starts": "50", "epoch_steps": "100", "epochs": "4",
    "batch_size": "8", "train_every": "2", "target_every": "20", "learning_rate": "0.005",
    "normalise_observations": "false", "updates": "1",
}  # fmt: skip


def resolved_of(game: str = CHAIN, **given: Any) -> Resolved:
    texts = {name: to_text(value) for name, value in given.items()}
    return resolve("dqn", {"game": game, **SMALL, **texts})


def made(game: str = CHAIN, *, run: int = 0, **given: Any) -> DQNTrainer:
    return DQNTrainer(resolved_of(game, **given), run=run, device="cpu", precision="fp32")


def trained(trainer: DQNTrainer) -> list[Progress]:
    progress = list(trainer.train())
    trainer.close()
    return progress


def value_iteration(discount: float, masked: bool = False) -> np.ndarray:
    """Q* of the chain, [3, 2]; what is forbidden stays 0."""
    values = np.zeros((4, 2))
    for _ in range(200):
        best = values.max(axis=1)
        best[1] = values[1, 1] if masked else best[1]
        best[3] = 0.0
        values[:3] = [
            [pay + discount * best[leads] for pay, leads in zip(*rows, strict=True)]
            for rows in zip(Chain.PAYS, Chain.LEADS, strict=True)
        ]
    return values[:3]


@pytest.mark.parametrize(
    "switches",
    [
        {},
        *(
            pytest.param(one, marks=pytest.mark.slow)
            for one in (
                {"double": True},
                {"dueling": True},
                {"prioritised": True},
                {"quantiles": 7},
            )
        ),
        {"double": True, "dueling": True, "prioritised": True, "quantiles": 7},
        {"num_envs": 4, "train_every": 4, "epoch_steps": 100},
    ],
)
def test_the_chain_s_values_are_those_of_value_iteration(switches: dict[str, Any]) -> None:
    """A truncation bootstraps: these are the values without a time limit."""
    trainer = made(discount=0.9, final_epsilon=1.0, epochs=15, updates=2, batch_size=32, **switches)
    trained(trainer)
    with torch.no_grad():
        found = trainer.network.means(trainer.network(torch.eye(3))).numpy()
    assert np.abs(found - value_iteration(0.9)).max() < 0.04


def test_values_with_a_mask_are_those_of_what_is_allowed() -> None:
    """From state 0 the way back to state 0 is worth less than through the forbidden one."""
    trainer = made(
        discount=0.9, final_epsilon=1.0, epochs=15, updates=2, batch_size=32,
        env_options="masked=true",
    )  # fmt: skip
    trained(trainer)
    with torch.no_grad():
        found = trainer.network(torch.eye(3)).numpy()
    expected = value_iteration(0.9, masked=True)
    for state, action in ((0, 0), (0, 1), (1, 1), (2, 0), (2, 1)):
        assert abs(found[state, action] - expected[state, action]) < 0.04


@pytest.mark.slow
def test_a_constant_reward_under_a_time_limit() -> None:
    """1 / (1 − γ) = 5. Where the limit is called an end, one of ten targets is 1, which the Huber loss
    weighs with ±1: 0.9 (1 + γ V − V) = 0.1, V = 40 / 9."""
    found = []
    for merged in ("false", "true"):
        trainer = made(
            "tests.own_games:ConstantReward", discount=0.8, env_options=f"merged={merged}",
            epochs=20, updates=2, learning_rate=0.003, target_every=10,
        )  # fmt: skip
        trained(trainer)
        with torch.no_grad():
            found.append(float(trainer.network(torch.zeros(1, 1)).max()))
    assert abs(found[0] - 5) < 0.1
    assert abs(found[1] - 40 / 9) < 0.2


def test_a_two_armed_bandit_is_solved() -> None:
    trainer = made("tests.own_games:Bandit")
    trained(trainer)
    policy = load_policy(trainer.resolved, trainer.state_dict())
    assert [episode.return_ for episode in evaluate(policy, trainer.resolved, 0, 5, True)] == [
        1.0
    ] * 5


@pytest.mark.parametrize(
    ("step", "expected"),
    [(0, 1.0), (99, 1.0), (100, 0.82), (250, 0.55), (500, 0.1), (501, 0.1), (10**9, 0.1)],
)
def test_epsilon_by_its_line(step: int, expected: float) -> None:
    found = linear_epsilon(step, starts=100, length=500, final=0.1)
    assert math.isclose(found, expected)


def test_epsilon_counts_environment_steps() -> None:
    """Also with several environments, and it ends where it should."""
    trainer = made(num_envs=4, train_every=4, exploration_fraction=0.5, final_epsilon=0.2)
    progress = trained(trainer)
    found = [one.metrics["epsilon"] for one in progress]
    assert np.allclose(np.array(found, float), [0.6, 0.2, 0.2, 0.2])


def test_epsilon_falls_within_an_epoch() -> None:
    trainer = made(exploration_fraction=0.5, final_epsilon=0.2)
    trainer.close()
    trainer.step = 150
    assert trainer.epoch == 0 and trainer.epsilon == pytest.approx(1 - 0.8 * 150 / 200)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_the_share_of_random_actions_is_epsilon(epsilon: float) -> None:
    trainer = made(num_envs=100, learning_starts=0, exploration_fraction=0, final_epsilon=epsilon,
                   train_every=100, target_every=100)  # fmt: skip
    trainer.close()
    seen = np.zeros((100, 3), np.float32)
    with torch.no_grad():
        greedy = int(trainer.network(torch.zeros(1, 3)).argmax())
    trainer.acting = trainer.network.frozen()
    actions = np.concatenate([trainer._act(seen, None) for _ in range(40)])
    assert abs((actions != greedy).mean() - epsilon / 2) < 0.03


def test_random_actions_are_equally_likely_among_those_allowed() -> None:
    generator = np.random.default_rng(0)
    plain = random_actions(9000, 3, None, generator)
    assert np.abs(np.bincount(plain) / 9000 - 1 / 3).max() < 0.03
    masks = np.tile([True, False, True, True], (9000, 1))
    found = np.bincount(random_actions(9000, 4, masks, generator), minlength=4) / 9000
    assert found[1] == 0 and np.abs(found[[0, 2, 3]] - 1 / 3).max() < 0.03


def test_the_target_network_stays_as_it_is_during_a_round() -> None:
    """It is copied by environment steps, before the round that is due at the same one."""
    trainer, copies, rounds = made(target_every=10, train_every=40, updates=6), [], []
    trainer.compiled = None
    copy_target, update = trainer._copy_target, trainer._update

    def noted() -> None:
        copies.append(trainer.step)
        copy_target()

    def looked(batch: Any, values: Any) -> Any:
        rounds.append((trainer.step, trainer.target.weight.sum().item()))
        assert torch.allclose(values, trainer.target(batch.next_encoded))
        return update(batch, values)

    trainer._copy_target, trainer._update = noted, looked  # type: ignore[method-assign]
    trained(trainer)
    assert copies == list(range(10, 401, 10))
    steps = sorted({step for step, _ in rounds})
    assert steps == list(range(80, 401, 40)), "learning starts after step 50"
    for step in steps:
        of_round = [weights for at, weights in rounds if at == step]
        assert len(of_round) == 6 and len(set(of_round)) == 1
    assert len({weights for _, weights in rounds}) == len(steps), "each round has a new one"


def test_metrics_are_empty_before_anything_is_learnt() -> None:
    progress = trained(made(learning_starts=150))
    names = ["epsilon", "loss", "q_mean", "td_error", "gradient_norm", "learning_rate"]
    assert [list(one.metrics) for one in progress] == [names] * 4
    first, second = progress[0].metrics, progress[1].metrics
    assert [first[name] for name in names[1:5]] == [None] * 4
    assert all(isinstance(second[name], float) for name in names)
    assert first["epsilon"] == 1.0 and first["learning_rate"] == 0.005


def test_every_step_belongs_to_an_episode() -> None:
    trainer = made(num_envs=3, train_every=3, epoch_steps=99, target_every=30)
    progress = trained(trainer)
    in_flight = trainer.collection.state_dict()["episodes"]["length"]
    assert sum(sum(one.lengths) for one in progress) + in_flight.sum() == 4 * 99 == trainer.step
    assert [one.step for one in progress] == [99, 198, 297, 396]


RESUMED: dict[str, dict[str, Any]] = {
    "plain": {},
    "several": {"num_envs": 3, "train_every": 3, "epoch_steps": 99, "target_every": 30},
    "masked": {"env_options": "masked=true"},
    "every switch": {
        "double": True, "dueling": True, "n_step": 3, "prioritised": True, "quantiles": 5,
    },
    "wrapped": {"replay_size": 120, "prioritised": True},
    "normalised": {"normalise_observations": True, "learning_starts": 100},
}  # fmt: skip


@pytest.mark.parametrize("how", RESUMED)
@pytest.mark.parametrize("epoch", [1, 3])
def test_a_resumed_training_is_the_same(how: str, epoch: int) -> None:
    """Also with what a checkpoint does to its numbers, and again where the ring is full."""
    undisturbed, kept = made(**RESUMED[how]), KeptStreams()
    progress = list[Progress]()
    for one in undisturbed.train():
        progress.append(one)
        kept.take(undisturbed)
        if one.epoch == epoch:
            state, so_far = copy.deepcopy(undisturbed.state_dict()), kept.copy()
    undisturbed.close()
    resumed = made(**RESUMED[how])
    resumed.load_state_dict(state)
    so_far.give(resumed)
    assert (resumed.epoch, resumed.step) == (epoch, progress[epoch - 1].step)
    later = list[Progress]()
    for one in resumed.train():
        later.append(one)
        so_far.take(resumed)
    resumed.close()
    assert later == progress[epoch:]
    assert so_far.difference(kept) == ""
    np.testing.assert_equal(resumed.state_dict(), undisturbed.state_dict())


@pytest.mark.parametrize(
    "switches", [{}, pytest.param(RESUMED["every switch"], marks=pytest.mark.slow)]
)
def test_it_keeps_every_promise_of_a_trainer(switches: dict[str, Any]) -> None:
    checks = TrainingChecks(resolved_of("cartpole", **switches))
    for check in checks.all().values():
        assert check()


def test_another_run_is_another_training() -> None:
    first, second, other_seed = (made(run=0), made(run=1), made(run=0, seed=1))
    ends = [trained(one) for one in (first, second, other_seed)]
    assert ends[0] != ends[1] != ends[2] != ends[0]
    drawn = {one.exploration.random() for one in (made(run=1), made(seed=1))}
    assert len(drawn) == 2


def test_a_state_of_another_format() -> None:
    trainer = made()
    state = {**trainer.state_dict(), "format": FORMAT + 1}
    trainer.close()
    with pytest.raises(NoUsableState, match="format"):
        trainer.load_state_dict(state)


def test_an_episode_that_cannot_be_brought_back() -> None:
    """The last transition before the restart leads nowhere: it is not learnt from."""
    trainer, kept = made("tests.own_games:Forgetful"), KeptStreams()
    next(epochs := trainer.train())
    del epochs
    kept.take(trainer)
    state = copy.deepcopy(trainer.state_dict())
    trainer.close()
    for _ in range(3):  # or its resets are counted alike
        made("tests.own_games:Forgetful").close()
    resumed = made("tests.own_games:Forgetful", epochs=2)
    resumed.load_state_dict(state)
    kept.give(resumed)
    in_flight = bool(state["collection"]["episodes"]["length"][0])
    for _ in resumed.train():
        pass
    resumed.close()
    assert resumed.replay.take(np.array([99])).valid[0] == (not in_flight)
    assert resumed.replay.take(np.arange(90, 99)).valid.all()


@pytest.mark.parametrize("field", ["reward", "observation"])
def test_a_nan_of_the_environment_ends_the_training(field: str) -> None:
    trainer = made("tests.own_games:Broken", env_options=f"field={field}")
    with pytest.raises(Diverged, match=f"{field} that is not finite"):
        trained(trainer)
    trainer.close()


def test_a_loss_that_is_not_finite_is_not_learnt() -> None:
    trainer = made()
    next(trainer.train())
    with torch.no_grad():
        trainer.target.bias.fill_(float("inf"))
    before = [parameter.clone() for parameter in trainer.network.parameters()]
    with pytest.raises(
        Diverged, match=r"after step 100: loss (?:inf|nan); .* batch of 8 transitions: Q "
    ):
        list(trainer._learn())
    trainer.close()
    pairs = zip(before, trainer.network.parameters(), strict=True)
    assert all(torch.equal(one, parameter) for one, parameter in pairs)


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({"num_envs": 3}, "'epoch_steps' cannot be 100; allowed: a multiple of num_envs, 3"),
        ({"num_envs": 4}, "'train_every' cannot be 2; allowed: a multiple of num_envs, 4"),
        ({"num_envs": 2, "target_every": 5}, "'target_every' cannot be 5"),
        ({"replay_size": 100, "learning_starts": 101}, "'replay_size' cannot be 100; allowed: at least 101"),
        ({"replay_size": 100, "batch_size": 128}, "allowed: at least 128"),
        ({"replay_size": 100, "n_step": 50}, "allowed: at least 114"),
        ({"normalise_rewards": True}, "the rewards of a replay are learnt as they are"),
        ({"normalise_observations": True}, "'learning_starts' cannot be 50 with"),
    ],
)  # fmt: skip
def test_values_that_do_not_go_together(given: dict[str, Any], refused: str) -> None:
    with pytest.raises(BadInput, match=refused):
        resolved_of(**given)


@pytest.mark.parametrize("game", ["pendulum", "tests.lab_environments:Copy"])
def test_games_without_one_discrete_action_are_refused(game: str) -> None:
    options = {} if game == "pendulum" else {"env_options": "acts=multi-binary"}
    with pytest.raises(BadInput, match="dqn plays games whose actions are discrete"):
        check_game(resolved_of(game, **options))


@pytest.mark.parametrize("game", ["tests.own_games:Picture", "breakout", "grid"])
@pytest.mark.parametrize("switches", [{}, {"dueling": True, "quantiles": 4, "double": True}])
def test_images_large_and_small(game: str, switches: dict[str, Any]) -> None:
    shown = {"env_options": "seen=grid"} if game == "grid" else {}
    game = "tests.lab_environments:Copy" if game == "grid" else game
    trainer = made(game, epochs=2, learning_starts=150, train_every=10, **shown, **switches)
    progress = trained(trainer)
    assert progress[0].metrics["loss"] is None
    assert isinstance(progress[1].metrics["loss"], float)
    policy = load_policy(trainer.resolved, trainer.state_dict())
    seen = trainer.collection.environments.observation
    policy.seed([0])
    for sample in (False, True):
        assert policy.act(seen, sample=sample).shape == (1,)


def test_a_network_of_one_s_own() -> None:
    for dueling in (False, True):
        trainer = made(network="my_lab.nets:Residual", dueling=dueling)
        progress = trained(trainer)
        assert progress[-1].metrics["loss"] is not None
        assert "torso.torso" in "".join(trainer.network.state_dict())
        load_policy(trainer.resolved, trainer.state_dict())


def test_a_sampled_policy_is_greedy_but_for_epsilon() -> None:
    trainer = made(final_epsilon=0.4)
    trained(trainer)
    policy = load_policy(trainer.resolved, trainer.state_dict())
    assert isinstance(policy, ValuePolicy) and policy.epsilon == 0.4
    seen = np.tile(np.eye(3, dtype=np.float32), (1000, 1))
    greedy = policy.act(seen, sample=False)
    policy.seed(range(3000))
    sampled = policy.act(seen, sample=True)
    assert abs((greedy != sampled).mean() - 0.2) < 0.03
    policy.seed(range(3000))
    assert np.array_equal(policy.act(seen, sample=True), sampled)
    masks = np.tile([True, False], (3000, 1))
    policy.seed(range(3000))
    assert not policy.act(seen, sample=True, masks=masks).any()
    assert not policy.act(seen, sample=False, masks=masks).any()


@pytest.mark.slow
@pytest.mark.parametrize("game", [pytest.param("cartpole", marks=pytest.mark.slow), "masked"])
def test_onnx_answers_as_torch_does(game: str) -> None:
    """Outputs action and q; normalisation, masks and the mean of quantiles are in the graph."""
    onnxruntime = pytest.importorskip("onnxruntime")
    for package in ("onnx", "onnxscript"):
        pytest.importorskip(package)
    from agents.evaluation.export import to_onnx

    given: dict[str, Any] = {"epochs": 1, "dueling": True}
    if game == "cartpole":
        given |= {"normalise_observations": True, "learning_starts": 100, "quantiles": 4}
    if game == "masked":
        given |= {"env_options": "masked=true"}
    trainer = made(CHAIN if game == "masked" else game, **given)
    trained(trainer)
    policy = load_policy(trainer.resolved, trainer.state_dict())
    assert isinstance(policy, ValuePolicy)
    content = to_onnx(policy, {"game": game})
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    assert [one.name for one in session.get_outputs()] == ["action", "q"]
    generator, spaces = np.random.default_rng(0), policy.spaces
    seen = generator.normal(0, 2, (5, *spaces.environment_shape)).astype(np.float32)
    if spaces.image:
        seen = generator.integers(0, 256, seen.shape, np.uint8)
    inputs, masks = {"observation": seen}, None
    if spaces.masked:
        inputs["action_mask"] = masks = generator.random((5, spaces.actions)) < 0.5
        masks[:, 1] = True
    action, values = session.run(None, inputs)
    assert action.tolist() == policy.act(seen, sample=False, masks=masks).tolist()
    rows = seen if policy.normaliser is None else policy.normaliser(seen)
    with torch.inference_mode():
        expected = policy.network.means(
            policy.network(policy.network.encode(torch.from_numpy(rows)))
        )
    np.testing.assert_allclose(values, expected, atol=1e-5)


def test_the_learning_rate_falls_to_nothing() -> None:
    """By environment steps, as the schedules of the sources do."""
    progress = trained(made(anneal_learning_rate=True))
    found = [one.metrics["learning_rate"] for one in progress]
    assert np.allclose(np.array(found, float), [0.00375, 0.0025, 0.00125, 0.0])
    trainer, used = made(anneal_learning_rate=True, train_every=100), list[float]()
    trainer.compiled = None
    step = trainer.optimiser.step

    def noted(learning_rate: float) -> None:
        used.append(learning_rate)
        step(learning_rate)

    trainer.optimiser.step = noted  # type: ignore[method-assign]
    trained(trainer)
    assert np.allclose(used, [0.00375, 0.0025, 0.00125, 0.0])
