"""The contract of every algorithm and every registered game, so that a new one is tested by being
registered."""

from __future__ import annotations

import pytest

from config.algorithms import ALGORITHMS, FOLDER
from config.described import parameters
from config.games import FOLDER as GAMES
from config.games import SHARED, find_game, games, games_of, own_presets, playable, preset
from config.presets import preset_values
from config.resolve import resolve, resolved_from_dict
from config.strict_yaml import load_mapping
from config.suites import SUITES, Suite, suite_of
from config.tables import parameter_table, preset_table

PAIRS = [
    (algorithm, game)
    for algorithm in ALGORITHMS
    for game in (
        *playable(ALGORITHMS[algorithm].families, games()),
        "openspiel:hex" if ALGORITHMS[algorithm].has_workers else "Taxi-v4",
        "own.module:Grid",
    )
]
ISSUE_GOALS = {
    "cartpole": 100_000,
    "acrobot": 300_000,
    "lunarlander": 1_000_000,
    "lunarlander_continuous": 1_000_000,
    "pendulum": 200_000,
    "mountaincar": 1_000_000,
    "pong": 10_000_000,
}


@pytest.mark.parametrize(("algorithm", "game"), PAIRS)
def test_every_game_resolves_for_every_algorithm(algorithm: str, game: str) -> None:
    resolved = resolve(algorithm, {"game": game})
    assert resolved_from_dict(resolved.as_dict()) == resolved
    most = max(1, 0.02 * resolved.epochs)
    assert resolved.checkpoint_interval <= most, "every 2 % of the training, or every epoch"
    goal = preset_values(algorithm, resolved.game)["steps"]
    assert 0 <= resolved.total_steps - goal < resolved.steps_per_epoch
    rescales = algorithm == "r2d2"  # in place of clipping
    if algorithm in preset(resolved.game) and not resolved.game.is_board:
        assert resolved.environment.clip_rewards == (resolved.game.is_atari and not rescales)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_has_a_preset_a_topology_and_tables(algorithm: str) -> None:
    assert (FOLDER / f"{algorithm}.yaml").is_file()
    assert ALGORITHMS[algorithm].topology in ("single", "actor-learner", "self-play")
    table = parameter_table(parameters(algorithm))
    for info in parameters(algorithm):
        assert f"| `{info.name}` |" in table
        assert info.help in table
    assert all(line.startswith("| ") and line.endswith(" |") for line in table.splitlines())
    assert "``" not in table, "an empty default is named in words"
    assert " | other |" in preset_table(algorithm).splitlines()[0]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_only_games_that_an_algorithm_plays_have_its_section(algorithm: str) -> None:
    """A game without one is played as its suite's, or with the fallback's."""
    families = ALGORITHMS[algorithm].families
    sections = {name: set(load_mapping(GAMES / f"{name}.yaml")) for name in own_presets()}
    with_section = [name for name, found in sections.items() if algorithm in found]
    assert set(with_section) <= set(playable(families, own_presets()))


@pytest.mark.parametrize("name", [*own_presets(), *SHARED])
def test_a_preset_has_only_known_sections(name: str) -> None:
    assert set(load_mapping(GAMES / f"{name}.yaml")) <= {"game", "games", *ALGORITHMS}


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_every_game_of_a_suite_has_its_settings_also_in_another_version(suite: Suite) -> None:
    shared = load_mapping(GAMES / f"{suite.name}.yaml")["ppo"]
    for name, game in games_of(suite).items():
        assert suite_of(game.id) is suite
        sections = load_mapping(GAMES / f"{name}.yaml") if name in own_presets() else {}
        assert preset(game)["ppo"] == sections.get("ppo", shared)
    other = {
        "atari": "ALE/Tetris-v5",
        "mujoco": "HalfCheetah-v4",
        "minatar": "MinAtar/Breakout-v0",
        "minigrid": "MiniGrid-MultiRoom-N6-v0",
        "dm_control": "dm_control/hopper-hop-v0",
    }[suite.name]
    assert preset(find_game(other))["ppo"] == shared


@pytest.mark.parametrize(("game", "steps"), ISSUE_GOALS.items())
def test_the_goals_that_results_are_compared_at(game: str, steps: int) -> None:
    assert preset_values("ppo", find_game(game))["steps"] == steps


@pytest.mark.parametrize("game", ["hopper", "halfcheetah", "walker2d"])
def test_ppo_plays_these_as_a_game_that_it_does_not_know(game: str) -> None:
    """So `tests/benchmarks/beside_stable_baselines3.py`, which compares the returns there, tells how
    good the settings of `fallback.yaml` are."""
    assert preset_values("ppo", find_game(game)) == preset_values("ppo", find_game("Other-v0"))
