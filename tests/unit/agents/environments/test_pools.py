"""envpool's environments: the rules of all environments here, kept by the package and by one that
stands in for it."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest

from agents.environments import training
from agents.environments.game_check import check_game
from agents.environments.games import make_environment
from agents.environments.masks import KEY
from agents.environments.pools import Pools
from agents.environments.training import TrainingEnvironments
from agents.environments.vectors import choose_vectorisation, make_environments, reset
from agents.evaluation.episodes import Episode, evaluate
from agents.evaluation.rendering import Replay, draw_once
from agents.load import load_policy, make_trainer
from config.errors import BadInput
from config.games import find_game
from config.presets import preset_values
from config.resolve import resolve
from config.resolved import Resolved
from config.seeds import environment_seeds
from tests import pretended_envpool
from tests.pretended_envpool import LIMIT, Drift

COUNT = 3
SEED_STEPS = 30
REAL = pytest.mark.skipif(
    importlib.util.find_spec("envpool") is None, reason="envpool is not installed"
)


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envpool", pretended_envpool)
    monkeypatch.setattr(training, "SEED_STEPS", SEED_STEPS)
    pretended_envpool.made.clear()


def resolved_for(game: str = "envpool:Drift-v1", **given: str) -> Resolved:
    return resolve("ppo", {"game": game, "num_envs": str(COUNT), **given})


def open_pools() -> list[Any]:
    return [one for one in pretended_envpool.made if not one.closed]


class ByHand:
    """One environment of a training, as it should be: seeded at the first end after SEED_STEPS steps."""

    def __init__(self, place: int) -> None:
        self.place = place
        self.seedings = 0
        self.begin(seeded=True)

    def begin(self, seeded: bool) -> None:
        if seeded:
            numbers = np.array([self.seedings])
            (seed,) = environment_seeds(1, 0, COUNT, np.array([self.place]), numbers)
            self.drift = Drift(int(seed))
            self.seedings += 1
            self.steps = 0
        self.drift.reset()

    def step(self, action: int) -> tuple[Any, ...]:
        reward = self.drift.step(action)
        self.steps += 1
        answer = (
            *self.drift.observation,
            np.float32(reward),
            self.drift.terminated,
            self.drift.truncated,
        )
        if self.drift.terminated or self.drift.truncated:
            self.begin(seeded=self.steps >= SEED_STEPS)
        return (*answer, *self.drift.observation)


def actions_of(step: int) -> np.ndarray:
    """Some with many short episodes, and one whose episodes are cut."""
    return np.array([1, step % 2, (step // 3) % 2])


def answers(environments: TrainingEnvironments, steps: range) -> list[tuple[Any, ...]]:
    rows = []
    for step in steps:
        (one,) = environments.step(actions_of(step))
        rows += [
            (
                *one.observation[n], np.float32(one.reward[n]), one.terminated[n], one.truncated[n],
                *environments.observation[n],
            )
            for n in range(COUNT)
        ]  # fmt: skip
    return rows


@pytest.mark.usefixtures("pretended")
def test_every_environment_is_what_it_would_be_alone() -> None:
    """Final observations, ends, seeds, and no step that only resets, although envpool makes one."""
    environments = TrainingEnvironments(resolved_for(seed="1"), 0)
    alone = [ByHand(n) for n in range(COUNT)]
    seen = answers(environments, range(200))
    expected = [
        one.step(int(action))
        for step in range(200)
        for one, action in zip(alone, actions_of(step), strict=True)
    ]
    assert seen == expected
    assert any(row[3] for row in seen) and any(row[4] and row[1] == LIMIT for row in seen)
    assert min(one.seedings for one in alone) > 2
    environments.close()
    assert not open_pools()


@pytest.mark.usefixtures("pretended")
def test_one_object_steps_all_until_one_is_seeded_anew_and_one_soon_after() -> None:
    environments = TrainingEnvironments(resolved_for(), 0)
    at_once = list[int]()
    for step in range(200):
        answers(environments, range(step, step + 1))
        at_once.append(len(open_pools()))
    assert set(at_once[:SEED_STEPS]) == {1}
    assert max(at_once) <= 3 and at_once.count(1) > 100
    seedings = environments.state_dict()["seedings"]
    assert len(pretended_envpool.made) == max(seedings) > 3
    environments.close()


@pytest.mark.usefixtures("pretended")
@pytest.mark.parametrize(("steps", "pools"), [(SEED_STEPS - 2, 2), (SEED_STEPS + 4, 3), (150, 2)])
def test_a_checkpoint_brings_every_episode_back(steps: int, pools: int) -> None:
    """One pool is made at the beginning, and one for all that were in flight, unless one is seeded
    while it waits for the others."""
    undisturbed = TrainingEnvironments(resolved_for(), 0)
    answers(undisturbed, range(steps))
    state = undisturbed.state_dict()
    pretended_envpool.made.clear()
    resumed = TrainingEnvironments(resolved_for(), 0)
    assert not resumed.load_state_dict(state).any()
    assert len(pretended_envpool.made) == pools
    following = range(steps, steps + 100)
    assert answers(resumed, following) == answers(undisturbed, following)


@pytest.mark.usefixtures("pretended")
def test_a_masked_reset_leaves_the_others_where_they_are() -> None:
    fresh, used = (make_environments(resolved_for(), 3) for _ in range(2))
    start, _ = reset(fresh, np.array([7, 8, 9]))
    reset(used, np.array([1, 2, 3]))
    seen = used.step(np.ones(3, np.int64))[0]
    kept = seen.copy()
    one = np.array([False, True, False])
    after, _ = reset(used, np.array([8]), one)
    assert np.array_equal(after[one], start[one]) and np.array_equal(after[~one], seen[~one])
    assert np.array_equal(seen, kept), "whoever has observations keeps them"
    actions = np.ones(3, np.int64)
    assert np.array_equal(used.step(actions)[0][1], fresh.step(actions)[0][1])


@pytest.mark.usefixtures("pretended")
def test_a_mask_is_taken_out_of_the_observation() -> None:
    environments = TrainingEnvironments(resolved_for("envpool:Masked-v1"), 0)
    assert environments.interface.observation_shape == (2,)
    assert environments.masks is not None and environments.masks.all()
    environments.step(np.array([1, 1, 1]))
    assert environments.masks.tolist() == [[False, True]] * COUNT
    environments.close()
    alone = make_environment(find_game("envpool:Masked-v1"), resolved_for().environment)
    assert alone.reset(seed=1)[1][KEY].tolist() == [True, True]
    assert alone.step(1)[4][KEY].tolist() == [False, True]


def played(resolved: Resolved, count: int) -> list[Episode]:
    """Several side by side."""
    trainer = make_trainer(resolved, run=0, device="cpu", precision="fp32")
    policy = load_policy(resolved, trainer.state_dict())
    trainer.close()
    at_once = [0]
    episodes = evaluate(
        policy, resolved, 0, count, True, lambda steps, playing: at_once.append(playing)
    )
    found = list(episodes)
    assert count == 1 or max(at_once) > 1
    return found


@pytest.mark.usefixtures("pretended")
def test_an_evaluated_episode_depends_on_its_number_alone_and_is_filmed() -> None:
    resolved = resolved_for(num_envs="1", rollout_length="4", minibatches="1")
    several = played(resolved, 3)
    assert played(resolved, 1) == several[:1]
    assert len({one.return_ for one in several}) == 3
    assert len(pretended_envpool.made) > 4 and not open_pools()
    film = Replay(resolved, several[1].seed, several[1].actions)
    pictures = list(film.frames())
    assert film.return_ == pytest.approx(several[1].return_) and film.has_ended
    assert [int(one.mean()) // 9 for one in pictures] == list(range(several[1].length + 1))


@pytest.mark.usefixtures("pretended")
@pytest.mark.parametrize(
    ("game", "given", "says"),
    [
        ("Drft-v1", {}, "unknown game 'envpool:Drft-v1'; did you mean 'envpool:Drift-v1'?"),
        ("Duel-v1", {}, "it is for 2 players"),
        (
            "Drift-v1",
            {"env_options": "fa=3"},
            "in 'env_options' 'fa'; did you mean 'far'? known: far,",
        ),
        ("Drift-v1", {"env_options": "num_envs=3"}, "unknown option"),
        (
            "Drift-v1",
            {"wrappers": "a.b:C"},
            "the environments of envpool:Drift-v1 are made all at once",
        ),
    ],
)
def test_what_cannot_be_made_is_one_line(game: str, given: dict[str, str], says: str) -> None:
    with pytest.raises(BadInput) as refused:
        check_game(resolved_for(f"envpool:{game}", **given))
    assert says in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.usefixtures("pretended")
def test_options_are_envpool_s_own() -> None:
    environments = make_environments(resolved_for(env_options="far=0.5"), 2)
    assert isinstance(environments, Pools)
    reset(environments, np.array([1, 2]))
    assert {one.config.far for one in pretended_envpool.made} == {0.5}
    assert choose_vectorisation(resolved_for(), 2).kind == "native"


@pytest.mark.parametrize(
    ("algorithm", "pooled", "other"),
    [("sac", "HalfCheetah-v4", "HalfCheetah-v4"), ("ppo", "Breakout-v5", "breakout")],
)
def test_a_game_has_the_settings_that_it_has_elsewhere(
    algorithm: str, pooled: str, other: str
) -> None:
    expected = preset_values(algorithm, find_game(other))
    expected.pop("episodic_life", None)
    assert preset_values(algorithm, find_game(f"envpool:{pooled}")) == expected


IDS = ("CartPole-v1", "Hopper-v4", "FrozenLake-v1", "LunarLander-v3", "Game2048-v1")


@REAL
@pytest.mark.parametrize("name", IDS)
def test_envpool_keeps_to_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its environments are functions of their seed and actions, alone and in company."""
    monkeypatch.setattr(training, "SEED_STEPS", 40)
    resolved = resolved_for(f"envpool:{name}")
    undisturbed = TrainingEnvironments(resolved, 0)
    generator = np.random.default_rng(1)
    play_at_random(undisturbed, generator, 150)
    state, drawn = undisturbed.state_dict(), generator.bit_generator.state
    resumed = TrainingEnvironments(resolved, 0)
    assert not resumed.load_state_dict(state).any()
    assert max(state["seedings"]) > 1
    one = play_at_random(undisturbed, generator, 60)
    generator.bit_generator.state = drawn
    assert play_at_random(resumed, generator, 60) == one


def play_at_random(
    environments: TrainingEnvironments, generator: np.random.Generator, steps: int
) -> list[bytes]:
    spaces = environments.interface
    seen = []
    for _ in range(steps):
        if spaces.continuous:
            actions = generator.normal(size=(COUNT, spaces.actions)).astype(np.float32)
        else:
            likings = generator.random((COUNT, spaces.actions))
            if environments.masks is not None:
                likings *= environments.masks
            actions = likings.argmax(axis=1)
        (one,) = environments.step(actions)
        parts = (one.observation, one.reward, one.terminated, one.truncated)
        seen.append(b"".join(part.tobytes() for part in (*parts, environments.observation)))
    return seen


@REAL
@pytest.mark.parametrize("name", IDS)
def test_envpool_alone_shows_what_it_shows_in_company(name: str) -> None:
    resolved = resolved_for(f"envpool:{name}")
    alone = make_environment(resolved.game, resolved.environment)
    together = make_environments(resolved, COUNT)
    assert together.single_observation_space == alone.observation_space
    first, _ = reset(together, np.array([5, 6, 7]))
    assert np.array_equal(alone.reset(seed=7)[0], first[2])
    alone.close()
    together.close()


@REAL
def test_a_game_that_envpool_does_not_draw_says_so() -> None:
    settings = resolved_for().environment
    draw_once(find_game("envpool:CartPole-v1"), settings)
    with pytest.raises(
        BadInput, match=r"gives no images: render\(\) failed: RuntimeError: render not"
    ):
        draw_once(find_game("envpool:FrozenLake-v1"), settings)
    assert isinstance(make_environment(find_game("envpool:CartPole-v1"), settings), gymnasium.Env)
