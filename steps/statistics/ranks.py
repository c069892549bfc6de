"""Orders: of algorithms by their scores, and of settings by what one setting for all games loses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steps.statistics.scores import Floats, mean


def ranks(scores: Floats) -> Floats:
    """Ranks of A algorithms on each of M games, the largest score having rank 1; scores [A, M] ->
    [A, M]. Equal scores share the mean of their ranks. A missing score, NaN, has none.
    """
    present = ~np.isnan(scores)
    larger = np.sum(scores[None] > scores[:, None], axis=1)
    equal = np.sum(scores[None] == scores[:, None], axis=1)
    return np.where(present, larger + (equal + 1) / 2, np.nan)


def mean_ranks(ranked: Floats) -> Floats:
    """Mean rank [A] of each algorithm over the games that all of them have; ranked: [A, M]. NaN if
    there is no such game.
    """
    complete = ranked[:, ~np.isnan(ranked).any(axis=0)]
    return np.array([mean(row) if len(row) else math.nan for row in complete], np.float64)


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """What is lost by one setting for all games.

    best: index of the setting with the best mean over games. best_per_game: [M], index of each game's
    best. losses: [M], score of the game's best minus score of `best` there. value: their mean.
    """

    best: int
    best_per_game: NDArray[np.intp]
    losses: Floats
    value: float


def sensitivity(scores: Sequence[Sequence[Floats]]) -> Sensitivity:
    """Sensitivity to settings (Adkins et al. 2024, arXiv:2412.07165); scores[setting][game]: [N]
    normalised scores of runs. Of equal settings the first counts as the best.

    The best of several means of few runs is too high on average: without any true difference the
    value is above 0, the more so the more settings there are.
    """
    means = np.array([[mean(runs) for runs in setting] for setting in scores], np.float64)
    best = int(np.argmax([mean(row) for row in means]))
    losses = means.max(axis=0) - means[best]
    return Sensitivity(
        best=best, best_per_game=means.argmax(axis=0), losses=losses, value=mean(losses)
    )
