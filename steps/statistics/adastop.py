"""AdaStop (Mathieu et al. 2024, arXiv:2306.10882): how many runs are enough to tell algorithms from a
baseline on one game.

Runs come in groups. After each group, at a look, the sum over groups of the differences of means is
compared with its distribution when the runs of each group are assigned to both sides at random. At
look k of K the boundary is the smallest one with which the share of assignments that were beyond the
boundary at any look so far is at most k/K of the error.

Of several algorithms each has boundaries of its own, with its part of the error by Holm's procedure:
with J undecided ones each has 1/J of it, and when one is decided, the others are compared again with
larger parts (reviewed by Tamhane et al. 2021, doi:10.1002/sim.9128). The chance that any algorithm whose runs are
distributed like the baseline's is called different is at most the error, over all looks.

With one algorithm this is the paper's test. The paper compares several by their largest statistic, which
lets one with widely spread scores hide the differences of the others, and errs too often: .060 ± .002
in place of .05 (six algorithms, normal scores, one look at five runs; 8000 simulations). The package
`adastop` 0.1.3 takes quantiles of signed sums, not of absolute ones as the paper: its error is .10
with one algorithm and one look at five runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from steps.statistics.pairs import all_choices
from steps.statistics.scores import Floats

PERMUTATIONS = 100_000
"""Of an error of .05, spread over 26 games, four algorithms and six looks, 8 remain at a look."""
DIGITS = 9
"""Statistics are rounded, in units of the ranges of scores, so that assignments with equal sums are
equal whatever the order of their summation.
"""

ROUNDING = 1e-9
"""Of a number of assignments: .05 · 20 is 1, whatever the last digit of the product."""

Groups = Sequence[Floats]


class Decision(Enum):
    """What is known of an algorithm: its scores are larger or smaller than the baseline's; equal: no
    difference was found at the last look.
    """

    UNDECIDED = "undecided"
    LARGER = "larger"
    SMALLER = "smaller"
    EQUAL = "equal"


@dataclass(frozen=True, kw_only=True)
class Look:
    """What is known after a group of runs.

    decisions, statistics, boundaries, error_spent: [J], one of each algorithm. A statistic is the sum
    over groups of the algorithm's mean minus the baseline's; beyond its boundary it decides. error_spent:
    the share of assignments that were beyond the boundaries so far. The last three are NaN of
    algorithms that were decided at an earlier look.
    """

    decisions: tuple[Decision, ...]
    statistics: Floats
    boundaries: Floats
    error_spent: Floats


def adastop(
    baseline: Groups,
    others: Sequence[Groups],
    *,
    looks: int,
    error: float,
    seed: int,
    permutations: int = PERMUTATIONS,
) -> list[Look]:
    """Decide which of J algorithms differ from the baseline, by the groups of runs that there are.

    baseline: one array of scores a group; others: the same of each algorithm, as long as it is
    undecided. Sizes may differ: runs fail. looks: how many groups there will be at most, fixed in
    advance. error: of this game; a study of several games divides its own by their number. The looks
    that were made are not changed by further groups. Raises `ValueError` for more groups than looks,
    and where an undecided algorithm has fewer groups than the baseline.
    """
    if len(baseline) > looks:
        raise ValueError(f"{len(baseline)} groups of runs, but {looks} looks were planned")
    pairs = [_Pair(permutations, seed) for _ in others]
    decisions = [Decision.UNDECIDED] * len(others)
    made: list[Look] = []
    for number, theirs in enumerate(baseline, start=1):
        undecided = [at for at, one in enumerate(decisions) if one is Decision.UNDECIDED]
        if not undecided:
            break
        if any(len(others[at]) < number for at in undecided):
            raise ValueError(f"an undecided algorithm has no group {number} of runs")
        statistics, boundaries, spent = np.full((3, len(others)), np.nan)
        for at in undecided:
            pairs[at].add(others[at][number - 1], theirs)
            statistics[at] = pairs[at].statistic
        while undecided:
            for at in undecided:
                boundaries[at], spent[at] = pairs[at].boundary(looks, error / len(undecided))
            beyond = [at for at in undecided if abs(statistics[at]) > boundaries[at]]
            if not beyond:
                break
            for at in beyond:
                decisions[at] = Decision.LARGER if statistics[at] > 0 else Decision.SMALLER
                undecided.remove(at)
        if number == looks:
            for at in undecided:
                decisions[at] = Decision.EQUAL
        units = np.array([pair.unit for pair in pairs])
        made.append(
            Look(
                decisions=tuple(decisions),
                statistics=statistics * units,
                boundaries=boundaries * units,
                error_spent=spent,
            )
        )
    return made


class _Pair:
    """One algorithm and the baseline: the statistics of assignments of each group's runs to both.

    Of the first groups all assignments are tried, as long as there are at most `permutations`; of the
    others that many are drawn. The first one is always what was observed, so that drawn ones give a
    valid test (Phipson and Smyth 2010). Statistics are in `unit`, the sum of the groups' ranges.
    """

    def __init__(self, permutations: int, seed: int) -> None:
        self.unit = 0.0
        self.statistic = 0.0
        self._permutations = permutations
        self._seed = seed
        self._every_sum = np.zeros(1)
        self._drawn_sum = np.zeros(permutations)
        self._every: list[Floats] = []  # absolute sums at each look [A_1 · … · A_k]
        self._drawn: list[Floats] = []  # the same of drawn assignments [P]

    def add(self, ours: Floats, theirs: Floats) -> None:
        """Add a group of runs."""
        # Sorted, so that the order in which runs arrive cannot change which ones are drawn together.
        both = np.concatenate([np.sort(ours), np.sort(theirs)])
        size, count = len(ours), len(both)
        is_exact = len(self._every) == len(self._drawn) and (
            len(self._every_sum) * math.comb(count, size) <= self._permutations
        )
        self.unit += float(np.ptp(both)) if count else 0.0
        drawn = _drawn_choices(count, size, self._permutations, (self._seed, len(self._drawn)))
        self._drawn_sum += _differences(both, drawn)
        self._drawn.append(self._settled(np.abs(self._drawn_sum)))
        if is_exact:
            added = _differences(both, all_choices(count, size))
            self._every_sum = (self._every_sum[:, None] + added).ravel()
            self._every.append(self._settled(np.abs(self._every_sum)))
        observed = self._every_sum if is_exact else self._drawn_sum
        self.statistic = float(self._settled(observed[:1])[0])

    def _settled(self, sums: Floats) -> Floats:
        settled: Floats = np.round(sums / (self.unit or 1.0), DIGITS)
        return settled

    def boundary(self, looks: int, error: float) -> tuple[float, float]:
        """The boundary at the newest look, and the share of assignments beyond it or an earlier one."""
        boundaries: list[float] = []
        for look in range(1, len(self._drawn) + 1):
            within, count = self._within(boundaries)
            kept = min(math.ceil((1 - error * look / looks) * count - ROUNDING), len(within))
            boundaries.append(float(within[kept - 1]))
        return boundaries[-1], 1 - float(np.sum(within <= boundaries[-1])) / count

    def _within(self, boundaries: list[float]) -> tuple[Floats, int]:
        """The sorted statistics, at the look after these boundaries, of the assignments that were
        within them, and the number of all assignments.
        """
        looks = self._every if len(boundaries) < len(self._every) else self._drawn
        statistics = looks[0]
        is_within = np.ones(len(statistics), bool)
        for before, boundary, statistics in zip(looks, boundaries, looks[1:], strict=False):
            is_within &= before <= boundary
            is_within = np.repeat(is_within, len(statistics) // len(before))
        return np.sort(statistics[is_within]), len(statistics)


def _differences(both: Floats, chosen: NDArray[np.int64]) -> Floats:
    """Mean of the chosen runs minus mean of the others, for each choice [A, n] -> [A]; 0 where no
    run of a side was usable.
    """
    size, count = chosen.shape[1], len(both)
    if size in (0, count):
        return np.zeros(len(chosen))
    both = both - both.mean()
    sums: Floats = both[chosen].sum(axis=1)
    # The runs sum to zero, so the others have the same sum with the other sign.
    differences: Floats = sums * (1 / size + 1 / (count - size))
    return differences


@lru_cache(maxsize=2)
def _drawn_choices(count: int, size: int, rows: int, seed: tuple[int, int]) -> NDArray[np.int64]:
    """Random choices [rows, size] of `size` of `count` runs, the first the first ones."""
    keys = np.random.default_rng(seed).random((rows, count))
    chosen = np.argsort(keys, axis=1)[:, :size]
    chosen[0] = np.arange(size)
    return chosen
