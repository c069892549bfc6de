"""An evaluated episode depends on its number alone, begins every life with FIRE, and is shown again
by its actions."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import steps.evaluate
from agents.environments.training import episode_seed
from agents.evaluation import episodes as evaluation
from agents.evaluation.episodes import Episode, evaluate
from agents.evaluation.rendering import Replay
from agents.load import load_policy, make_trainer
from config.errors import BadInput
from config.resolve import resolve
from config.resolved import Resolved
from steps.directory.status import read_status
from tests import synthetic

SMALL = {
    "num_envs": "2",
    "rollout_length": "32",
    "update_epochs": "1",
    "minibatches": "2",
    "epochs": "1",
}
GAMES = ("cartpole", "pendulum", "tests.own_games:Picture")
WHOLE_GAME_STEPS = 1000
"""Of Breakout with nobody at the paddle: five lost balls take 120."""


def small(game: str, **given: str) -> Resolved:
    return resolve("ppo", {"game": game, **SMALL, **given})


@functools.cache
def beginner(game: str) -> Any:
    """A policy that has learnt nothing."""
    resolved = small(game)
    trainer = make_trainer(resolved, run=0, device="cpu", precision="fp32")
    trainer.close()
    return load_policy(resolved, trainer.state_dict())


def same(first: Sequence[Episode], second: Sequence[Episode]) -> bool:
    """Equal in every number and action."""
    return list(first) == list(second) and all(
        np.array_equal(a.actions, b.actions) for a, b in zip(first, second, strict=True)
    )


@pytest.mark.parametrize("sample", [True, False], ids=["sampled", "greedy"])
@pytest.mark.parametrize(
    ("game", "many"),
    [*((game, 40) for game in GAMES), pytest.param("breakout", 6, marks=pytest.mark.slow)],
)
def test_more_episodes_never_change_the_first(game: str, many: int, sample: bool) -> None:
    resolved = of_at_most(small(game), 40)
    policy = beginner(game)
    more = list(evaluate(policy, resolved, 0, many, sample))
    assert same(list(evaluate(policy, resolved, 0, 3, sample)), more[:3])


@pytest.mark.parametrize("game", ["cartpole", "tests.own_games:Picture"])
def test_an_episode_does_not_know_who_plays_beside_it(
    game: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One generator for the whole group would give every other group other actions. (Pendulum's
    would show the 6e-8.)"""
    resolved = small(game)
    policy = beginner(game)
    together = list(evaluate(policy, resolved, 0, 12, True))
    monkeypatch.setattr(evaluation, "LARGEST_GROUP", 5)
    assert same(list(evaluate(policy, resolved, 0, 12, True)), together)


def test_each_run_is_evaluated_on_episodes_of_its_own() -> None:
    resolved = small("pendulum")
    policy = beginner("pendulum")
    seeds = [[one.seed for one in evaluate(policy, resolved, run, 2, False)] for run in (0, 1)]
    assert seeds == [[episode_seed(resolved, run, number) for number in (0, 1)] for run in (0, 1)]
    assert len({*seeds[0], *seeds[1]}) == 4


def test_a_run_without_its_last_checkpoint_is_bad_input(tmp_path: Path) -> None:
    directory = synthetic.experiment(tmp_path, ("unfinished",))
    for newest in directory.run(0).checkpoints.iterdir():
        newest.rmdir()
    assert steps.evaluate.main([f"--outdir={tmp_path}", "--run=0"]) == 2
    status = read_status(directory.run(0).status / "evaluate.json")
    assert status is not None
    assert re.search(r"no final checkpoint in \S+ .*: train makes it", status.reason or "")


class Counting:
    """Its actions say how many rows it was shown: a network's answers differ by 6e-8 between
    batches of 32 and of 3."""

    def seed(self, seeds: Sequence[int]) -> None: ...

    def act(self, observations: np.ndarray, *, sample: bool) -> np.ndarray:
        return np.full(len(observations), int(len(observations) == evaluation.LARGEST_GROUP))


@pytest.mark.parametrize(
    "resolved",
    [small("cartpole"), small("breakout", fire_after_life_loss="false")],
    ids=lambda one: one.game.name,
)
def test_the_network_sees_batches_of_one_size(resolved: Resolved) -> None:
    for episode in evaluate(Counting(), of_at_most(resolved, 50), 0, 3, False):
        assert episode.actions.tolist() == [1] * episode.length


def of_at_most(resolved: Resolved, steps: int) -> Resolved:
    """The same game with another time limit."""
    if resolved.game.kind != "atari":
        return resolved
    options = {"max_num_frames_per_episode": steps * resolved.game.frames_per_step}
    return dataclasses.replace(resolved, game=dataclasses.replace(resolved.game, options=options))


class Idle:
    """Never does anything, so that no game begins by itself."""

    def seed(self, seeds: Sequence[int]) -> None: ...

    def act(self, observations: np.ndarray, *, sample: bool) -> np.ndarray:
        return np.zeros(len(observations), np.int64)


def test_fire_begins_every_life_whatever_the_policy_chose() -> None:
    resolved = of_at_most(small("breakout"), WHOLE_GAME_STEPS)
    for episode in evaluate(Idle(), resolved, 0, 3, False):
        assert episode.length < WHOLE_GAME_STEPS / 2, "all lives lost"
        assert episode.actions[0] == 1 and episode.actions.sum() == 5, (
            "FIRE once for each of five lives"
        )


class TwoGames:
    """Two Atari games as ale-py's vector environment has them: every step pays 1; the first game ends
    after 2 steps and begins anew, the second after 5.
    """

    ENDS = np.array([2, 5])
    num_envs = 2

    def __init__(self) -> None:
        self.lengths = np.zeros(2, np.int64)

    def reset(self, **given: Any) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        return np.zeros((2, 4, 84, 84), np.uint8), {"lives": np.ones(2, np.int64)}

    def step(self, actions: np.ndarray) -> tuple[Any, ...]:
        self.lengths += 1
        terminated = self.lengths == self.ENDS
        self.lengths[terminated] = 0
        observations, info = self.reset()
        return observations, np.ones(2), terminated, np.zeros(2, np.bool_), info

    def close(self) -> None:
        """Nothing to close."""


def test_the_successor_of_a_game_pays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ended game goes on to its next episode while others still play; its rewards are not counted."""
    monkeypatch.setattr(evaluation, "make_atari", lambda resolved, count: TwoGames())
    resolved = small("breakout", fire_after_life_loss="false")
    episodes = evaluate(Idle(), resolved, 0, 2, False)
    assert [(one.return_, one.length) for one in episodes] == [(2, 2), (5, 5)]


def test_without_fire_nobody_plays() -> None:
    resolved = of_at_most(small("breakout", fire_after_life_loss="false"), WHOLE_GAME_STEPS)
    (episode,) = evaluate(Idle(), resolved, 0, 1, False)
    assert episode.actions.sum() == 0
    assert episode.length >= WHOLE_GAME_STEPS - 30, (
        "the time limit ended it, of which the no-ops before it are a part"
    )


def shown(resolved: Resolved, episode: Episode) -> tuple[Replay, int]:
    """The episode shown again, and its number of frames."""
    replay = Replay(resolved, episode.seed, episode.actions)
    return replay, sum(1 for _ in replay.frames())


@pytest.mark.parametrize("sample", [True, False], ids=["sampled", "greedy"])
@pytest.mark.parametrize(
    "game", ["cartpole", "pendulum", pytest.param("breakout", marks=pytest.mark.slow)]
)
def test_the_film_is_the_evaluated_episode(game: str, sample: bool) -> None:
    resolved = of_at_most(small(game), 150)
    for episode in evaluate(beginner(game), resolved, 0, 2, sample):
        replay, _ = shown(resolved, episode)
        assert (replay.return_, replay.length) == (episode.return_, episode.length)
        assert replay.difference(episode.return_, episode.length) is None


def test_a_film_that_is_another_episode_says_so() -> None:
    resolved = small("cartpole")
    (episode,) = evaluate(Idle(), resolved, 0, 1, False)
    other = dataclasses.replace(episode, seed=episode.seed + 1, actions=1 - episode.actions)
    replay, _ = shown(resolved, other)
    shows = f"return {replay.return_} after {replay.length} steps"
    evaluated = f"evaluated: return {episode.return_} after {episode.length} steps"
    difference = replay.difference(episode.return_, episode.length)
    assert difference is not None and difference.startswith(shows) and evaluated in difference


def test_a_film_that_stops_before_the_end_says_so() -> None:
    """Random numbers that are drawn when the game is drawn: the game is no function of its seed and
    actions."""
    game = "tests.own_games:Picture"
    resolved = small(game)
    episodes = evaluate(beginner(game), resolved, 0, 8, True)
    found = [shown(resolved, one)[0].difference(one.return_, one.length) for one in episodes]
    assert any("not at its end" in (difference or "") for difference in found)


@pytest.mark.parametrize("game", ["cartpole", pytest.param("breakout", marks=pytest.mark.slow)])
def test_an_episode_that_does_not_end_is_cut_and_filmed_so_far(game: str) -> None:
    resolved = small(game, evaluation_steps="5")
    told = list[tuple[int, int]]()
    count = 3
    episodes = list(
        evaluate(beginner(game), resolved, 0, count, False, lambda *now: told.append(now))
    )
    assert [(one.length, len(one.actions), one.cut) for one in episodes] == [(5, 5, True)] * count
    assert told == [(step, count) for step in range(1, 6)]
    replay, _ = shown(resolved, episodes[0])
    assert replay.difference(episodes[0].return_, 5) is None
    whole = evaluate(Idle(), small("cartpole", evaluation_steps="50"), 0, count, False)
    assert not any(one.cut for one in whole)


@pytest.mark.parametrize(
    ("game", "actions", "allowed"),
    [
        ("cartpole", np.array([0, 2]), "whole numbers from 0 to 1"),
        ("cartpole", np.array([0.0, 1.0]), "whole numbers from 0 to 1"),
        ("cartpole", np.array([[0], [1]]), "whole numbers from 0 to 1"),
        ("tests.own_games:Picture", np.array([0]), "whole numbers from 1 to 3"),
        ("breakout", np.array([-1]), "whole numbers from 0 to 3"),
        ("pendulum", np.zeros((5, 2), np.float32), r"floats of shape \(1,\)"),
    ],
)
def test_actions_that_a_game_does_not_have_never_reach_it(
    game: str, actions: np.ndarray, allowed: str
) -> None:
    with pytest.raises(BadInput, match=allowed):
        list(Replay(small(game), 0, actions).frames())
