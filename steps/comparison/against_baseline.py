"""Each label against its baseline, game by game."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from config.measures import Measure
from steps.comparison.compared import Standing, Test
from steps.comparison.contenders import Contender
from steps.comparison.standings import Standings
from steps.statistics.pairs import PairTest, difference, pair_tests
from steps.statistics.scores import Floats, probability_of_improvement


def tests_against_baseline(
    standings: Standings,
    measures: Mapping[str, Measure],
    opponents: Mapping[str, Contender],
    *,
    seed: int,
) -> tuple[Test, ...]:
    """A test for each label and game of which both sides have runs. Holm's correction is over all of
    them.
    """
    pairs = [
        (standing, standings[opponents[label].label, game])
        for (label, game), standing in standings.items()
        if label in opponents and (opponents[label].label, game) in standings
    ]
    both = [(ours, theirs) for ours, theirs in pairs if ours.n and theirs.n]
    tested = pair_tests([(_scores(ours), _scores(theirs)) for ours, theirs in both], seed=seed)
    return tuple(
        _test(ours, theirs, measures[ours.game], test, reason, seed)
        for (ours, theirs), (test, reason) in zip(both, tested, strict=True)
    )


def _test(
    ours: Standing,
    theirs: Standing,
    measure: Measure,
    test: PairTest | None,
    reason: str,
    seed: int,
) -> Test:
    found = difference(_scores(ours), _scores(theirs), seed=seed)
    sign = 1 if measure.higher_is_better else -1
    return Test(
        label=ours.label,
        game=ours.game,
        difference=found.iqm or found.mean,
        p=test.permutation_p if test else None,
        adjusted=test.permutation_holm if test else None,
        effect=test.hedges_g if test else None,
        improvement=probability_of_improvement(sign * _scores(ours), sign * _scores(theirs)),
        reason=reason,
        baseline=theirs.label,
    )


def _scores(standing: Standing) -> Floats:
    return np.array(standing.scores, np.float64)
