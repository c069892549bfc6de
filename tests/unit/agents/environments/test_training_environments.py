"""No episode is cut or left out, every environment has seeds of its own, and a checkpoint brings
back what was in flight."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.algorithms.ppo import PPOTrainer
from agents.environments.atari import make_atari
from agents.environments.training import ActionLog, TrainingEnvironments
from agents.environments.vectors import CartPoles, make_environments, reset
from agents.load import load_policy
from config.errors import NoUsableState, Preempted
from config.resolve import resolve
from config.resolved import Resolved
from config.seeds import RUNS, environment_seeds, uniform

HAS_BOX2D = importlib.util.find_spec("Box2D") is not None  # it has no wheel for Python 3.14
SHORT = {"update_epochs": "1", "minibatches": "1"}
GAMES: dict[str, dict[str, str]] = {
    "cartpole": {"num_envs": "512", "rollout_length": "16", "epochs": "20"},
    "acrobot": {"num_envs": "3", "rollout_length": "300", "epochs": "5"},
    "pendulum": {"num_envs": "3", "rollout_length": "150", "epochs": "4"},
    "lunarlander": {"num_envs": "4", "rollout_length": "90", "epochs": "4"},
    "breakout": {"num_envs": "3", "rollout_length": "128", "epochs": "3"},
    "tests.own_games:Bandit": {"num_envs": "2", "rollout_length": "5", "epochs": "4"},
}


def resolved_for(game: str, **changed: str) -> Resolved:
    return resolve("ppo", {"game": game, **SHORT, **GAMES.get(game, {}), **changed})


def frames(**options: Any) -> np.ndarray:
    """What 60 steps of Space Invaders show, whose shots are drawn in every second frame only."""
    environments = make_atari(resolved_for("space_invaders", noop_max="1"), 1, **options)
    shown = [environments.reset(seed=1)[0]]
    for step in range(60):
        shown.append(environments.step(np.array([step % 6]))[0].copy())
    environments.close()
    return np.stack(shown)


def test_an_atari_frame_is_the_maximum_of_two() -> None:
    """Mnih et al. 2015, Methods: sprites that are drawn in every second frame do not vanish."""
    assert np.array_equal(frames(), frames(maxpool=True))
    assert not np.array_equal(frames(), frames(maxpool=False))


def made(resolved: Resolved) -> PPOTrainer:
    return PPOTrainer(resolved, run=0, device="cpu", precision="fp32")


@pytest.mark.parametrize(
    "game",
    [
        pytest.param(one, marks=[pytest.mark.slow] if one == "breakout" else [])
        for one in GAMES
        if one != "lunarlander" or HAS_BOX2D
    ],
)
def test_every_step_belongs_to_a_recorded_episode_or_to_one_in_flight(game: str) -> None:
    resolved, recorded, states = resolved_for(game), list[int](), list[tuple[int, Any]]()
    rows = resolved.steps_per_epoch
    trainer = made(resolved)
    for one in trainer.train():
        recorded += one.lengths
        assert one.step == resolved.warm_up_steps + one.epoch * rows
        assert sum(recorded) + trainer.episodes.state_dict()["length"].sum() == one.step
        states.append((sum(recorded), trainer.state_dict()))
    trainer.close()
    assert recorded, "the budget is long enough for an end"
    total, state = states[-2]
    resumed = made(resolved)
    resumed.load_state_dict(state)
    (last,) = resumed.train()
    resumed.close()
    assert total + sum(last.lengths) + resumed.episodes.state_dict()["length"].sum() == last.step
    assert last.lengths == recorded[len(recorded) - len(last.lengths) :]


@settings(max_examples=15, deadline=None)
@given(
    num_envs=st.integers(1, 9),
    rollout_length=st.integers(2, 30),
    epochs=st.integers(1, 5),
    game=st.sampled_from(["cartpole", "tests.own_games:Picture"]),
)
def test_whatever_the_numbers(num_envs: int, rollout_length: int, epochs: int, game: str) -> None:
    given = {"num_envs": num_envs, "rollout_length": rollout_length, "epochs": epochs}
    trainer = made(resolved_for(game, **{name: str(value) for name, value in given.items()}))
    lengths = [length for one in trainer.train() for length in one.lengths]
    trainer.close()
    assert (
        sum(lengths) + trainer.episodes.state_dict()["length"].sum()
        == trainer.step
        == trainer.resolved.total_steps
    )


@pytest.mark.parametrize("game", ["cartpole", "acrobot", "mountaincar"])
def test_a_masked_seeded_reset_is_a_fresh_environment_and_leaves_the_others(game: str) -> None:
    fresh, used = (make_environments(resolved_for(game, num_envs="3"), 3) for _ in range(2))
    start, _ = reset(fresh, np.array([7, 8, 9]))
    reset(used, np.array([1, 2, 3]))
    seen = [np.array(used.step(np.ones(3, np.int64))[0]) for _ in range(5)][-1]
    one = np.array([False, True, False])
    after, _ = reset(used, np.array([8]), one)
    assert np.array_equal(after[one], start[one])
    assert np.array_equal(after[~one], seen[~one])
    actions = np.ones(3, np.int64)
    assert np.array_equal(used.step(actions)[0][1], fresh.step(actions)[0][1])


def test_native_cartpole_starts_from_a_seed_of_each_environment() -> None:
    poles = make_environments(resolved_for("cartpole"), 4)
    assert isinstance(poles, CartPoles) and poles.max_episode_steps == 500
    start, _ = reset(poles, np.array([3, 4, 3, 5]))
    assert np.array_equal(start[0], start[2]) and not np.array_equal(start[0], start[1])
    assert np.abs(start).max() < 0.05
    poles.step(np.zeros(4, np.int64))
    again, _ = reset(poles, np.array([3]), np.array([False, False, False, True]))
    assert np.array_equal(again[3], start[0])


def test_native_cartpole_counts_the_time_limit_of_each_environment() -> None:
    poles = CartPoles(2, max_episode_steps=5)
    reset(poles, np.array([1, 2]))
    actions = np.array([0, 1])
    for _ in range(3):
        poles.step(actions)
        actions = 1 - actions
    reset(poles, np.array([3]), np.array([False, True]))
    assert poles.step(actions)[3].tolist() == [False, False]
    assert poles.step(1 - actions)[3].tolist() == [True, False]


def test_no_two_seeds_are_equal() -> None:
    environments, numbers = (axis.ravel() for axis in np.meshgrid(np.arange(8), np.arange(5000)))
    seeds = np.concatenate(
        [environment_seeds(7, run, 8, environments, numbers) for run in (0, 1, 2, RUNS - 1)]
    )
    assert len(np.unique(seeds)) == len(seeds)
    assert seeds.min() >= 0 and seeds.max() < 2**31
    assert not np.isin(seeds, environment_seeds(8, 0, 8, environments, numbers)).all()


def test_numbers_drawn_for_all_seeds_at_once_are_uniform() -> None:
    drawn = uniform(environment_seeds(0, 0, 1, np.zeros(20_000, np.int64), np.arange(20_000)), 4)
    assert drawn.shape == (4, 20_000) and drawn.min() >= 0 and drawn.max() < 1
    assert drawn.mean(axis=1) == pytest.approx([0.5] * 4, abs=0.01)
    assert np.abs(np.corrcoef(drawn) - np.eye(4)).max() < 0.03
    assert np.abs(np.corrcoef(drawn[0, :-1], drawn[0, 1:])[0, 1]) < 0.03
    assert len(np.unique(drawn)) == drawn.size


def test_splitmix_is_the_published_one() -> None:
    """The first numbers of seed 0 (Steele, Lea and Flood 2014; Vigna's splitmix64.c)."""
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]
    assert uniform(np.array([0]), 4)[:, 0].tolist() == [(one >> 11) * 2.0**-53 for one in published]


def test_an_action_log_is_as_long_as_the_longest_time_since_a_seeding() -> None:
    generator, log = np.random.default_rng(0), ActionLog((3,), np.dtype(np.uint8))
    expected: list[list[int]] = [[], [], []]
    for _ in range(5000):
        actions = generator.integers(0, 256, 3)
        log.append(actions)
        for n, action in enumerate(actions):
            expected[n].append(int(action))
        if generator.random() < 0.02:
            places = np.flatnonzero(generator.random(3) < 0.5)
            log.clear(places)
            for n in places:
                expected[n] = []
    assert [one.tolist() for one in log.each()] == expected
    assert log.lengths.tolist() == [len(one) for one in expected]
    assert len(log._rows) < 4 * 300


def test_resumes_exactly_after_every_epoch() -> None:
    resolved = resolve("ppo", {"game": "cartpole", "epochs": "9", "update_epochs": "2"})
    trainer, rows, states = made(resolved), list[str](), list[Any]()
    for one in trainer.train():
        rows.append(repr(one))
        states.append(trainer.state_dict())
    assert all(state["environments"]["actions"].dtype == np.uint8 for state in states)
    for epoch in (1, 4, 8):
        resumed = made(resolved)
        resumed.load_state_dict(states[epoch - 1])
        assert [repr(one) for one in resumed.train()] == rows[epoch:]


@pytest.mark.slow
def test_beside_a_gpu_all_processors_emulate_in_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's threads are for the network, which is elsewhere."""
    asked = list[int]()

    def make(resolved: Resolved, count: int, threads: int | None = None) -> Any:
        asked.append(threads or 0)
        return make_environments(resolved, count)

    monkeypatch.setattr("agents.environments.training.make_environments", make)
    monkeypatch.setattr("agents.environments.training.processors", lambda: 6.5)
    resolved = resolved_for("breakout", num_envs="3", threads="1", noop_max="1")
    environments = TrainingEnvironments(resolved, 0, beside_accelerator=True)
    assert environments.groups == (slice(0, 2), slice(2, 3)) and asked == [6, 6]
    actions = np.zeros(3, np.int64)
    assert [len(one.reward) for one in environments.step(actions)] == [2, 1]
    environments.close()
    with contextlib.closing(TrainingEnvironments(resolved, 0)) as alone:
        assert alone.groups == (slice(0, 3),) and asked[2] == 1


@pytest.mark.parametrize("threads", ["1", "2"])
def test_atari_is_seeded_at_the_first_end_after_enough_steps_of_its_own(
    threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agents.environments.training.ATARI_SEED_STEPS", 250)
    resolved = resolved_for("breakout", threads=threads)
    environments = TrainingEnvironments(resolved, 0)
    generator, since, seedings = (
        np.random.default_rng(0),
        np.zeros(3, np.int64),
        np.ones(3, np.int64),
    )
    ends = np.zeros(2, np.int64)  # without and with a seeding
    for _ in range(700):
        transitions = environments.step(generator.integers(0, 4, 3))
        since += 1
        ended = np.concatenate([one.terminated | one.truncated for one in transitions])
        due = ended & (since >= 250)
        ends += (ended & ~due).sum(), due.sum()
        since[due], seedings[due] = 0, seedings[due] + 1
        state = environments.state_dict()
        assert (state["seedings"].tolist(), state["lengths"].tolist()) == (
            seedings.tolist(),
            since.tolist(),
        )
    assert ends.min() >= 2
    resumed = TrainingEnvironments(resolved, 0)
    assert not resumed.load_state_dict(state).any()
    for _ in range(50):
        actions = generator.integers(0, 4, 3)
        for mine, theirs in zip(environments.step(actions), resumed.step(actions), strict=True):
            assert np.array_equal(mine.observation, theirs.observation) and np.array_equal(
                mine.reward, theirs.reward
            )
    assert np.array_equal(environments.forced, resumed.forced)
    environments.close()
    resumed.close()


def test_a_replay_costs_the_longest_log_says_so_and_can_be_interrupted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    resolved = resolved_for("tests.own_games:ConstantReward", num_envs="3", rollout_length="4")
    environments = TrainingEnvironments(resolved, 0)
    for _ in range(8):
        environments.step(np.zeros(3, np.int64))
    state = environments.state_dict()
    resumed = TrainingEnvironments(resolved, 0)
    with caplog.at_level(logging.INFO):
        assert not resumed.load_state_dict(state).any()
    assert (
        "8 steps in the longest" in caplog.text
        and "replayed 8 steps of 3 environments in " in caplog.text
    )

    def stop() -> None:
        raise Preempted("asked to stop")

    with pytest.raises(Preempted):
        TrainingEnvironments(resolved, 0).load_state_dict(state, stop)


def test_only_what_did_not_arrive_starts_over(caplog: pytest.LogCaptureFixture) -> None:
    resolved = resolved_for("cartpole", num_envs="3", rollout_length="4")
    environments = TrainingEnvironments(resolved, 0)
    for _ in range(4):
        environments.step(np.zeros(3, np.int64))
    state = environments.state_dict()
    state["observation"][1] += 1
    resumed = TrainingEnvironments(resolved, 0)
    assert resumed.load_state_dict(state).tolist() == [False, True, False]
    assert "1 of 3 episodes in flight" in caplog.text
    after = resumed.state_dict()
    assert after["seedings"].tolist() == [1, 2, 1] and after["lengths"].tolist() == [4, 0, 4]


def test_a_state_of_another_format_is_refused() -> None:
    trainer = made(resolved_for("tests.own_games:Bandit"))
    older = trainer.state_dict() | {"format": 1}
    with pytest.raises(NoUsableState, match="format 1, this program reads 3"):
        trainer.load_state_dict(older)
    with pytest.raises(NoUsableState, match="format 1, this program reads 3"):
        load_policy(trainer.resolved, older)


def lives_played(*, fire: bool) -> tuple[int, int]:
    """Lives that ended, and games that ended, while the policy of 8 environments presses nothing
    for 250 steps."""
    given = {
        "num_envs": "8",
        "rollout_length": "8",
        "sticky_actions": "0.25",
        "fire_after_life_loss": str(fire).lower(),
    }
    environments = TrainingEnvironments(resolved_for("breakout", **given), 0)
    lives = games = 0
    for _ in range(250):
        (answer,) = environments.step(np.zeros(8, np.int64))
        assert answer.life_lost is not None
        games += int(answer.terminated.sum())
        lives += int(answer.life_lost.sum() + answer.terminated.sum())
    environments.close()
    return lives, games


@pytest.mark.slow
def test_fire_starts_every_life_whatever_the_policy_does() -> None:
    """A ball that nobody meets is lost after about 25 steps: 5 lives are a game."""
    lives, games = lives_played(fire=True)
    assert games >= 8 and lives >= 5 * games
    lives_without, games_without = lives_played(fire=False)
    assert games_without == 0 and lives_without <= 8, (
        "the emulator's own FIRE starts the first ball at most"
    )


def test_rows_of_fire_are_counted_and_not_learnt_from() -> None:
    trainer = made(resolved_for("breakout", num_envs="2", rollout_length="64", epochs="2"))
    begins, rollout = np.ones((1, 2), np.bool_), trainer.rollout
    for one in trainer.train():
        begins = np.vstack((begins, rollout.terminated | rollout.truncated | rollout.life_lost))
        assert rollout.valid.tolist() == (~begins[-65:-1]).tolist()
        assert len(trainer._batch().returns) == rollout.valid.sum() < rollout.valid.size
        assert one.step == one.epoch * 128
    taken = (
        trainer.environments.state_dict()["actions"].reshape(2, 128).T
    )  # not seeded since: an environment after the other
    assert (taken[begins[:-1]] == 1).all() and (taken != 1).any()
    assert begins.sum() >= 4
    trainer.close()


def test_a_native_vector_without_a_masked_reset_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gymnasium.spec("CartPole-v1"), "vector_entry_point", "some.package:Another")
    assert isinstance(
        make_environments(resolved_for("cartpole"), 2), gymnasium.vector.SyncVectorEnv
    )


def test_while_another_is_replayed_an_environment_takes_allowed_actions_only() -> None:
    """All logs end in the same row, so a shorter one begins later; until then its environment steps,
    too, and a step that its mask forbids raises in this maze."""
    resolved = resolved_for("my_lab.envs:Maze", num_envs="2")
    environments = TrainingEnvironments(resolved, 0)
    for _ in range(200):
        assert environments.masks is not None
        environments.step(environments.masks.argmax(axis=1))
        lengths = environments.state_dict()["lengths"]
        if lengths[0] >= 4 + lengths[1] > 4:
            break
    state = environments.state_dict()
    again = TrainingEnvironments(resolved, 0)
    assert not again.load_state_dict(state).any()
    assert np.array_equal(again.observation, environments.observation)
    assert np.array_equal(again.masks, environments.masks)
    for one in (environments, again):
        one.close()
