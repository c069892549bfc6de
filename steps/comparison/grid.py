"""What the parameters of a grid do to the scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from steps.comparison.averaging import NO_INTERVAL
from steps.comparison.compared import Effect, Loss
from steps.comparison.contenders import Contender, in_words
from steps.comparison.standings import Range, Standings, normalised
from steps.statistics.intervals import CURVE_RESAMPLES, Estimate
from steps.statistics.over_games import aggregates
from steps.statistics.ranks import sensitivity
from steps.statistics.scores import Floats

Setting = tuple[tuple[str, str], ...]
Place = tuple[str, Setting]
"""A game, and all settings but one."""


def effects(
    contenders: Sequence[Contender],
    games: Sequence[str],
    standings: Standings,
    ranges: Mapping[str, Range],
    *,
    seed: int,
) -> tuple[Effect, ...]:
    """The effect of each parameter in which contenders of one plain label differ."""
    scores = _scores(games, standings, ranges)
    names = dict.fromkeys(name for one in contenders for name in one.settings)
    return tuple(_effect(name, contenders, scores, seed) for name in names)


def _effect(
    name: str,
    contenders: Sequence[Contender],
    scores: Mapping[tuple[str, str], Floats],
    seed: int,
) -> Effect:
    having = [one for one in contenders if name in one.settings]
    values = tuple(dict.fromkeys(one.settings[name] for one in having))
    slices: dict[str, tuple[Estimate | None, ...]] = {}
    for plain in dict.fromkeys(one.plain for one in having):
        own = [one for one in having if one.plain == plain]
        by_value = [_places(own, name, value, scores) for value in values]
        present = [places for places in by_value if places]
        # The same games and other settings for each value, so that only the value differs.
        common = [
            place for place in (present or [{}])[0] if all(place in other for other in present)
        ]
        slices[plain] = tuple(
            _mean([places[place] for place in common], seed) if places and common else None
            for places in by_value
        )
    return Effect(parameter=name, values=values, slices=slices)


def _places(
    contenders: Sequence[Contender],
    name: str,
    value: str,
    scores: Mapping[tuple[str, str], Floats],
) -> dict[Place, Floats]:
    """The scores with one value of a parameter, for each game and all else."""
    found: dict[Place, Floats] = {}
    for one in contenders:
        if one.settings[name] != value:
            continue
        others = tuple((other, text) for other, text in one.settings.items() if other != name)
        for (label, game), of_runs in scores.items():
            if label == one.label:
                found[game, others] = of_runs
    return found


def _mean(scores: Sequence[Floats], seed: int) -> Estimate:
    estimate = aggregates(scores, seed=seed, resamples=CURVE_RESAMPLES).mean
    if estimate.low is None:
        return Estimate(value=estimate.value, reason=NO_INTERVAL)
    return estimate


def losses(
    contenders: Sequence[Contender],
    games: Sequence[str],
    standings: Standings,
    ranges: Mapping[str, Range],
) -> tuple[Loss, ...]:
    """What one setting for several games loses, of each plain label with several settings."""
    if len(games) < 2:
        return ()
    scores = _scores(games, standings, ranges)
    plain = dict.fromkeys(one.plain for one in contenders)
    found = [
        _loss(label, [one for one in contenders if one.plain == label], games, scores)
        for label in plain
    ]
    return tuple(loss for loss in found if loss is not None)


def _loss(
    label: str,
    contenders: Sequence[Contender],
    games: Sequence[str],
    scores: Mapping[tuple[str, str], Floats],
) -> Loss | None:
    """None unless several settings have runs on the same several games."""
    settings = [one for one in contenders if any((one.label, game) in scores for game in games)]
    common = [game for game in games if all((one.label, game) in scores for one in settings)]
    if len(settings) < 2 or len(common) < 2:
        return None
    found = sensitivity([[scores[one.label, game] for game in common] for one in settings])
    return Loss(
        label=label,
        setting=in_words(settings[found.best].settings),
        losses={game: float(loss) for game, loss in zip(common, found.losses, strict=True)},
        value=found.value,
    )


def _scores(
    games: Sequence[str], standings: Standings, ranges: Mapping[str, Range]
) -> dict[tuple[str, str], Floats]:
    """The runs' scores by label and game: normalised, or of one game in its measure's unit."""
    found: dict[tuple[str, str], Floats] = {}
    for (label, game), standing in standings.items():
        if not standing.n:
            continue
        if len(games) == 1:
            found[label, game] = np.array(standing.scores, np.float64)
        elif game in ranges:
            found[label, game] = normalised(standing.scores, ranges[game])
    return found
