"""Ratings with known answers."""

from __future__ import annotations

import numpy as np
import pytest

from steps.statistics.elo import ELO, cross_table, elo, ratings, totals
from steps.statistics.rule import aggregate


def matrix(*rows: list[float]) -> np.ndarray:
    return np.array(rows, np.float64)


def both_ways(scores: np.ndarray, games: float) -> np.ndarray:
    """Of the scores of the upper half."""
    return np.triu(scores, 1) + np.tril(games - scores.T, -1)


def test_three_of_four_games_are_190_85_points() -> None:
    scores, games = matrix([0, 25], [75, 0]), matrix([0, 100], [100, 0])
    assert elo(scores, games, 0, prior=0) == pytest.approx([0, 190.8485], abs=1e-4)
    assert elo(scores, games, 1, prior=0) == pytest.approx([-190.8485, 0], abs=1e-4)


def test_a_cycle_gives_equal_ratings() -> None:
    scores = matrix([0, 9, 1], [1, 0, 9], [9, 1, 0])
    games = 10 * (1 - np.eye(3))
    assert elo(scores, games, 0) == pytest.approx([0, 0, 0], abs=1e-8)


def test_ten_times_the_games_with_the_same_shares_are_the_same_ratings() -> None:
    games = 20 * (1 - np.eye(3))
    scores = both_ways(matrix([0, 5, 2], [0, 0, 7], [0, 0, 0]), 20) * (1 - np.eye(3))
    assert elo(10 * scores, 10 * games, 0, prior=0) == pytest.approx(
        elo(scores, games, 0, prior=0), abs=1e-6
    )


def test_expected_scores_are_the_scores() -> None:
    """The likelihood's slope is zero: what each player scored in all is what its rating expects."""
    games = matrix([0, 30, 0, 8], [30, 0, 12, 0], [0, 12, 0, 40], [8, 0, 40, 0])
    scores = matrix([0, 3, 0, 1.5], [27, 0, 4, 0], [0, 8, 0, 22], [6.5, 0, 18, 0])
    strengths = 10 ** (elo(scores, games, 0, prior=0) / 400)
    expected = games * strengths[:, None] / (strengths[:, None] + strengths)
    assert expected.sum(axis=1) == pytest.approx(scores.sum(axis=1))


def test_true_ratings_are_found_again() -> None:
    true = np.array([0, 300, -150, 700.0])
    games = 1e6 * (1 - np.eye(4))
    scores = games / (1 + 10 ** ((true - true[:, None]) / 400))
    assert elo(scores, games, 0) == pytest.approx(true, abs=0.01)


def test_the_anchor_only_shifts() -> None:
    games = 10 * (1 - np.eye(3))
    scores = both_ways(matrix([0, 5, 2], [0, 0, 7], [0, 0, 0]), 10) * (1 - np.eye(3))
    by_anchor = [elo(scores, games, anchor) for anchor in range(3)]
    for anchor, found in enumerate(by_anchor):
        assert found[anchor] == 0
        assert found - found[0] == pytest.approx(by_anchor[0], abs=1e-8)


def test_all_games_won_is_finite_by_the_prior_and_grows_without_it() -> None:
    """Won 100 of 100, and one game drawn besides: 100.5 of 101."""
    scores, games = matrix([0, 0], [100, 0]), matrix([0, 100], [100, 0])
    assert elo(scores, games, 0)[1] == pytest.approx(ELO * np.log(100.5 / 0.5), abs=1e-4)
    with pytest.raises(np.linalg.LinAlgError):
        elo(scores, games, 0, prior=0)


def test_players_without_a_chain_of_games_have_no_ratings() -> None:
    games = np.kron(np.eye(2), matrix([0, 4], [4, 0]))
    with pytest.raises(ValueError, match="no chain of games"):
        elo(games / 2, games, 0)


def test_totals_and_cross_table_count_both_sides() -> None:
    scores = np.array([[[1, 0.5], [1, 1]], [[0, 0], [0, 0.5]]])  # 0 against 1, 0 against 2
    scored, played = totals(3, [(0, 1), (0, 2)], scores.sum(axis=(1, 2)), 4)
    assert scored.tolist() == [[0, 3.5, 0.5], [0.5, 0, 0], [3.5, 0, 0]]
    assert played.tolist() == [[0, 4, 4], [4, 0, 0], [4, 0, 0]]
    shares = cross_table(3, [(0, 1), (0, 2)], scores)
    assert shares[0, 1] == 0.875 and shares[2, 0] == 0.875 and np.isnan(shares[1, 2])
    assert np.isnan(np.diag(shares)).all()


def drawn_match(share: float, openings: int, seed: int, *, alike: bool) -> np.ndarray:
    """[1, openings, 2]; alike: both games of an opening end alike."""
    draws = np.random.default_rng(seed).random((1, openings, 2))
    return (draws[:, :, :1] < share).repeat(2, 2) if alike else draws < share


def test_the_interval_covers_the_truth_also_where_games_of_an_opening_are_alike() -> None:
    """Games as samples would cover only .83; openings do .95."""
    truth, covered, narrow = ELO * np.log(3), 0, 0
    for seed in range(60):
        scores = drawn_match(0.25, 80, seed, alike=True).astype(np.float64)
        _, low, high = ratings(2, [(0, 1)], scores, 0, seed=seed, resamples=500)
        covered += low[1] <= truth <= high[1]
        _, low, high = ratings(2, [(0, 1)], scores.reshape(1, 160, 1), 0, seed=seed, resamples=500)
        narrow += low[1] <= truth <= high[1]
    assert covered >= 53 > narrow + 2


def test_ratings_are_reproducible_and_the_anchor_is_certain() -> None:
    scores = drawn_match(0.3, 30, 0, alike=False).astype(np.float64)
    one, again = (ratings(2, [(0, 1)], scores, 0, seed=5, resamples=500) for _ in range(2))
    assert [row.tolist() for row in one] == [row.tolist() for row in again]
    measured, low, high = one
    assert low[0] == high[0] == measured[0] == 0 and low[1] < measured[1] < high[1]


def test_over_trainings_the_unit_is_the_run() -> None:
    """Three agents of different strength: the interval over runs holds what all of their games taken
    together pretend to know better."""
    shares = (0.6, 0.75, 0.9)
    of_runs, games = [], []
    for run, share in enumerate(shares):
        games.append(1.0 - drawn_match(share, 400, run, alike=False))
        measured, *_ = ratings(2, [(0, 1)], games[-1], 0, seed=0, resamples=500)
        of_runs.append(measured[1])
    over_runs = aggregate(np.array(of_runs)[:, None], seed=0, resamples=100)
    _, low, high = ratings(2, [(0, 1)], np.concatenate(games, axis=1), 0, seed=0, resamples=500)
    assert over_runs.low is not None and over_runs.high is not None
    assert over_runs.high[0] - over_runs.low[0] > 5 * (high[1] - low[1])
