"""Ratings by the model of Bradley and Terry (1952): a player of strength s scores s / (s + t) against
one of strength t, and its rating is 400 log₁₀ s.

Ratings are relative: one player, the anchor, has 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from steps.statistics.intervals import LEVEL, resample_counts
from steps.statistics.scores import Floats

ELO = 400 / math.log(10)
"""Rating points for one unit of log strength. A score of 75 % corresponds to 190.85 points."""
PRIOR_GAMES = 1.0
"""Number of drawn games that are added to each pair that met, so that a player who wins everything
gets a large rating and not an infinite one.
"""
LARGEST_STEP = 1.0
"""Largest step of log strengths: Newton's full steps overshoot if one side won nearly everything.
"""
PRECISION = 1e-10
MOST_STEPS = 500

Pairings = Sequence[tuple[int, int]]


def elo(scores: Floats, games: Floats, anchor: int, *, prior: float = PRIOR_GAMES) -> Floats:
    """The most likely ratings [..., n].

    scores [..., n, n]: what each player (row) scored against each other one, a draw counting one
    half. games [..., n, n]: how many they played. Raises `ValueError` if no chain of games connects
    two of them.
    """
    count = games.shape[-1]
    met = games.reshape(-1, count, count).sum(axis=0) > 0
    # Entry (i, j) of this power counts the chains of games, up to n of them, from i to j.
    if not np.linalg.matrix_power(np.eye(count) + met, count).all():
        raise ValueError("ratings of players between whom there is no chain of games")
    scores = scores + prior / 2 * (games > 0)
    games = games + prior * (games > 0)
    free = np.arange(count) != anchor
    strengths = np.zeros(games.shape[:-1])
    for _ in range(MOST_STEPS):
        expected = 1 / (1 + np.exp(strengths[..., None, :] - strengths[..., :, None]))
        slope = (scores - games * expected).sum(axis=-1)
        bend = games * expected * (1 - expected)
        hessian = np.eye(count) * bend.sum(axis=-1)[..., None] - bend
        # Only differences of strengths matter: without fixing the anchor the matrix is singular.
        step = np.linalg.solve(hessian[..., free, :][..., free], slope[..., free, None])[..., 0]
        strengths[..., free] += np.clip(step, -LARGEST_STEP, LARGEST_STEP)
        if np.abs(step).max(initial=0) < PRECISION:
            break
    ratings: Floats = ELO * strengths
    return ratings


def totals(count: int, pairings: Pairings, scores: Floats, games: float) -> tuple[Floats, Floats]:
    """Convert what the first player of each pairing scored, [..., pairings], to what each player
    scored against each [..., n, n], and the number of games [..., n, n].
    """
    scored = np.zeros((*scores.shape[:-1], count, count))
    played = np.zeros_like(scored)
    for number, (first, second) in enumerate(pairings):
        scored[..., first, second] += scores[..., number]
        scored[..., second, first] += games - scores[..., number]
        played[..., first, second] += games
        played[..., second, first] += games
    return scored, played


def ratings(
    count: int, pairings: Pairings, scores: Floats, anchor: int, *, seed: int, resamples: int
) -> tuple[Floats, Floats, Floats]:
    """Ratings and both ends of their 95 % intervals, [n] each; scores [pairings, openings, 2]: of the
    first player of each pairing.

    The intervals come from a bootstrap over openings. An opening is drawn with all games that begin
    with it, because those games are not independent. The intervals describe these players; for a
    statement about trainings the unit is the run, and its rating is one number for `rule.aggregate`.
    """
    openings = scores.shape[1]
    of_openings = scores.sum(axis=2)
    games = float(scores.shape[1] * scores.shape[2])
    measured = elo(*totals(count, pairings, of_openings.sum(axis=1), games), anchor)
    counts = resample_counts(openings, resamples, seed)
    resampled = elo(*totals(count, pairings, counts @ of_openings.T, games), anchor)
    low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return measured, low, high


def cross_table(count: int, pairings: Pairings, scores: Floats) -> Floats:
    """The share [n, n] that each player (row) scored against each other one; NaN if two did not
    meet. scores: [pairings, openings, 2].
    """
    games = float(scores.shape[1] * scores.shape[2])
    scored, played = totals(count, pairings, scores.sum(axis=(1, 2)), games)
    shares: Floats = np.full((count, count), np.nan)
    np.divide(scored, played, out=shares, where=played > 0)
    return shares
