"""Ranks against scipy's, and sensitivity by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from steps.statistics.ranks import mean_ranks, ranks, sensitivity


@given(st.lists(st.integers(0, 4), min_size=1, max_size=8))
def test_ranks_with_ties_against_scipy(scores):
    found = ranks(np.array(scores, float)[:, None])[:, 0]
    assert found.tolist() == stats.rankdata([-score for score in scores]).tolist()


def test_a_missing_score_has_no_rank_and_its_game_no_part_in_the_mean():
    scores = np.array([[3.0, 1.0, 5.0], [2.0, np.nan, 5.0], [1.0, 2.0, 9.0]])
    ranked = ranks(scores)
    np.testing.assert_equal(ranked, [[1, 2, 2.5], [2, np.nan, 2.5], [3, 1, 1]])
    np.testing.assert_equal(mean_ranks(ranked), [1.75, 2.25, 2])
    assert np.isnan(mean_ranks(ranked[:, 1:2])).all()


def test_sensitivity_by_hand():
    """Means per game: setting 0 has (1, 0), 1 has (.6, .6), 2 has (0, .9)."""
    found = sensitivity(
        [
            [np.array([1.0, 1.0]), np.array([0.0])],
            [np.array([0.5, 0.7]), np.array([0.6])],
            [np.array([0.0]), np.array([0.8, 1.0])],
        ]
    )
    assert found.best == 1 and found.best_per_game.tolist() == [0, 2]
    assert found.losses == pytest.approx([0.4, 0.3]) and found.value == pytest.approx(0.35)


def test_one_setting_loses_nothing():
    found = sensitivity([[np.array([0.2, 0.4]), np.array([0.9])]])
    assert found.value == 0 and found.best == 0


def test_sensitivity_of_equal_settings_is_above_zero_by_chance_alone():
    generator = np.random.default_rng(1)
    values = [
        sensitivity(list(generator.normal(size=(settings, 5, 3)))).value for settings in (1, 3, 12)
    ]
    assert values[0] == 0 < values[1] < values[2]


@given(st.floats(-5, 5), st.floats(0.1, 10))
def test_an_affine_map_of_all_scores_scales_the_losses(offset, factor):
    scores = np.random.default_rng(2).normal(size=(4, 3, 5))
    plain, mapped = sensitivity(list(scores)), sensitivity(list(offset + factor * scores))
    assert mapped.losses == pytest.approx(factor * plain.losses, abs=1e-9)
