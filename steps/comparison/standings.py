"""How the runs of each label stand on each game."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from config.errors import BadInput
from config.games import find_game
from config.measures import Measure
from config.score_ranges import default_range
from steps.comparison.averaging import (
    averaged,
    averaged_evaluations,
    averaged_over_time,
    estimates,
    remarks_on,
)
from steps.comparison.compared import Averaged, Standing
from steps.comparison.contenders import Contender
from steps.comparison.entries import Entry
from steps.directory.cost import total
from steps.statistics.ranks import ranks
from steps.statistics.scores import Floats

Range = tuple[float, float]
NO_SCORE = "no score"
Standings = Mapping[tuple[str, str], Standing]


def score_ranges(
    measures: Mapping[str, Measure], given: Mapping[str, Range]
) -> dict[str, tuple[float, float]]:
    """The range of each game that has one: what is given, else what is known."""
    ranges = {game: given.get(game) or _known(game, measure) for game, measure in measures.items()}
    return {game: one for game, one in ranges.items() if one is not None}


def _known(game: str, measure: Measure) -> Range | None:
    try:
        found = default_range(find_game(game), measure)
    except BadInput:  # a game that only other programs know
        return None
    return None if found is None else (found.low, found.high)


def normalised(values: Sequence[float] | Floats, score_range: Range) -> Floats:
    """Values of a measure [...] as scores: 0 at the first end of the range, 1 at the second."""
    low, high = score_range
    scores: Floats = (np.asarray(values, np.float64) - low) / (high - low)
    return scores


def standings_of(
    contenders: Sequence[Contender],
    games: Sequence[str],
    measures: Mapping[str, Measure],
    ranges: Mapping[str, Range],
    *,
    seed: int,
) -> dict[tuple[str, str], Standing]:
    """Every standing, with its rank."""
    found = {
        (one.label, game): _standing(one.label, one.entries[game], ranges.get(game), seed)
        for one in contenders
        for game in games
        if game in one.entries
    }
    for game in games:
        labels = [one.label for one in contenders if game in one.entries]
        for label, rank in _ranked([found[label, game] for label in labels], measures[game]):
            found[label, game] = dataclasses.replace(found[label, game], rank=rank)
    return found


def _standing(label: str, entry: Entry, score_range: Range | None, seed: int) -> Standing:
    scores = tuple(float(score) for score in entry.scores)
    mean, iqm = estimates(scores, seed=seed)
    curves = {
        "training": averaged((run.training for run in entry.used), seed=seed),
        "hours": averaged_over_time((run.times for run in entry.used), seed=seed),
        "policy": averaged_evaluations((run.policy for run in entry.used), seed=seed),
    }
    score = None
    if mean is not None and score_range is not None:
        score = float(normalised([mean.value], score_range)[0])
    return Standing(
        label=label,
        game=entry.game,
        settings=entry.settings,
        made_by=entry.made_by,
        evaluation=entry.evaluation,
        steps=entry.steps,
        n=len(scores),
        planned=len(entry.runs),
        scores=scores,
        mean=mean,
        iqm=iqm,
        score=score,
        rank=None,
        left_out={run.name: run.left_out or NO_SCORE for run in entry.runs if not run.is_used},
        **curves,
        cost=total(run.cost for run in entry.runs),
        page=entry.page.absolute() if entry.page else None,
        remarks=(*entry.remarks, *remarks_on(scores), *_fewer_curves(curves, len(scores))),
        runs=tuple(run.name for run in entry.used),
    )


def _fewer_curves(curves: Mapping[str, Averaged | None], runs: int) -> tuple[str, ...]:
    """What to say of averages over fewer runs than the scores have."""
    return tuple(
        f"the curve of {name} is of {len(one.runs)} of {runs} runs"
        for name, one in curves.items()
        if one is not None and len(one.runs) < runs
    )


def _ranked(of_game: Sequence[Standing], measure: Measure) -> list[tuple[str, float | None]]:
    """The rank of each label by its mean, 1 is best; None without runs."""
    sign = 1 if measure.higher_is_better else -1
    means = [np.nan if one.mean is None else sign * one.mean.value for one in of_game]
    ordered = ranks(np.array(means, np.float64)[:, None])[:, 0]
    return [
        (one.label, None if one.mean is None else float(rank))
        for one, rank in zip(of_game, ordered, strict=True)
    ]
