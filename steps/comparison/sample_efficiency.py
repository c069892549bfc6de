"""Scores over all games against the number of environment steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steps.comparison.contenders import Contender
from steps.comparison.entries import ComparedRun
from steps.comparison.standings import Range, normalised
from steps.statistics.curves import Curve, equal_parts, hold, mean_of_parts
from steps.statistics.intervals import Band
from steps.statistics.over_games import curve_over_games
from steps.statistics.scores import Floats

EVALUATED_AT = 101
"""Shares of the steps at which evaluations are aggregated: few, each the mean of many episodes."""
TRAINING, POLICY = "training", "policy"


@dataclass(frozen=True, kw_only=True)
class Efficiency:
    """Bands by label, on shares [S] of the steps of each game. kind: of the curves, training or policy;
    empty if there is no band. Curves of the training are averaged over equal parts, of which the shares
    are the middles.
    """

    kind: str
    shares: Floats
    bands: Mapping[str, Band]


NONE = Efficiency(kind="", shares=np.empty(0), bands={})
ByGame = Mapping[str, Sequence[Curve]]


def sample_efficiency(
    contenders: Sequence[Contender], ranges: Mapping[str, Range], *, seed: int
) -> Efficiency:
    """Aggregate the normalised curves over the games in `ranges`.

    All labels have the same steps at one share of a game: share 1 is the end of the game's shortest
    run. The curves are those of the training, or of evaluations in its course if more labels have
    these on every game. Labels without curves on one of the games have no band.
    """
    if not ranges:
        return NONE
    kind, curves = _of_one_kind(contenders, list(ranges))
    if not curves:
        return NONE
    parts = {
        game: equal_parts([one for of_label in curves.values() for one in of_label[game]])
        for game in ranges
    }
    if any(len(edges) == 0 or edges[0] == edges[-1] for edges in parts.values()):
        return NONE
    start = max(float(edges[0] / edges[-1]) for edges in parts.values())
    if kind == TRAINING:
        ends = np.linspace(start, 1.0, min(len(edges) for edges in parts.values()))
        shares = (ends[:-1] + ends[1:]) / 2
    else:
        shares = ends = np.linspace(start, 1.0, EVALUATED_AT)
    values_of = mean_of_parts if kind == TRAINING else hold
    bands = {
        label: curve_over_games(
            [
                np.array(
                    [
                        normalised(values_of(one, _steps(ends, parts[game])), ranges[game])
                        for one in of_label[game]
                    ]
                )
                for game in ranges
            ],
            seed=seed,
        )
        for label, of_label in curves.items()
    }
    return Efficiency(kind=kind, shares=shares, bands=bands)


def _steps(shares: Floats, edges: NDArray[np.int64]) -> NDArray[np.int64]:
    """These shares of a game's steps, within the edges."""
    steps: Floats = np.clip(np.round(shares * edges[-1]), edges[0], edges[-1])
    return steps.astype(np.int64)


def _of_one_kind(
    contenders: Sequence[Contender], games: Sequence[str]
) -> tuple[str, dict[str, ByGame]]:
    """The kind of curves that most labels have on every game, and these curves by label and game."""
    found = {kind: _curves(contenders, games, kind) for kind in (TRAINING, POLICY)}
    kind = TRAINING if len(found[TRAINING]) >= len(found[POLICY]) else POLICY
    return kind, found[kind]


def _curves(contenders: Sequence[Contender], games: Sequence[str], kind: str) -> dict[str, ByGame]:
    by_label = {
        one.label: {game: _drawn(one.entries[game].used, kind) for game in games}
        for one in contenders
    }
    return {label: by_game for label, by_game in by_label.items() if all(by_game.values())}


def _drawn(runs: Sequence[ComparedRun], kind: str) -> list[Curve]:
    curves = [run.training if kind == TRAINING else run.policy for run in runs]
    return [one for one in curves if len(one)]
