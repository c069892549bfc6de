"""Which returns count as score 0 and score 1."""

from __future__ import annotations

import pytest

from config.games import find_game, games
from config.measures import ELO, RETURN, WIN_RATE
from config.score_ranges import default_range, known_ranges


def test_every_range_is_of_a_known_game_and_has_a_source() -> None:
    assert set(known_ranges()) <= set(games())
    for one in known_ranges().values():
        assert one.low < one.high
        assert one.source


def test_the_57_atari_games_of_the_literature_have_one() -> None:
    atari = [name for name in known_ranges() if games()[name].is_atari]
    assert len(atari) == 57


@pytest.mark.parametrize(
    ("game", "low", "high"),
    [("breakout", 1.7, 30.5), ("CartPole-v1", 0, 500), ("hopper", -20.272305, 3234.3)],
)
def test_known_values(game: str, low: float, high: float) -> None:
    found = default_range(find_game(game), RETURN)
    assert found is not None
    assert (found.low, found.high) == (low, high)


def test_a_game_that_is_solved_at_a_return_has_a_score_there_of_at_most_about_one() -> None:
    """The thresholds are gymnasium's; D4RL's experts do not reach those of MuJoCo."""
    for name, one in known_ranges().items():
        solved = games()[name].solved
        if solved is not None and "D4RL" not in one.source:
            assert 0.5 < (solved - one.low) / (one.high - one.low) <= 1, name


def test_board_games_are_judged_by_win_rates() -> None:
    found = default_range(find_game("connect-four"), WIN_RATE)
    assert found is not None
    assert (found.low, found.high) == (0, 100)


def test_other_measures_and_other_games_have_none() -> None:
    assert default_range(find_game("connect-four"), ELO) is None
    assert default_range(find_game("cartpole"), ELO) is None
    assert default_range(find_game("minatar-breakout"), RETURN) is None
    assert default_range(find_game("Hopper-v4"), RETURN) is None
