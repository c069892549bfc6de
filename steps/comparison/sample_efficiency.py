"""Scores over all games against the number of environment steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from steps.comparison.contenders import Contender
from steps.comparison.entries import ComparedRun
from steps.comparison.standings import Range, normalised
from steps.statistics.curves import Curve, hold
from steps.statistics.intervals import Band
from steps.statistics.over_games import curve_over_games
from steps.statistics.scores import Floats

SHARES = 101
TRAINING, POLICY = "training", "policy"


@dataclass(frozen=True, kw_only=True)
class Efficiency:
    """Bands by label, on shares [S] of the steps of each game. kind: of the curves, training or
    policy; empty if there is no band.
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
    steps = {
        game: _common_steps([one for of_label in curves.values() for one in of_label[game]])
        for game in ranges
    }
    if any(first >= last for first, last in steps.values()):
        return NONE
    start = max(first / last for first, last in steps.values())
    shares = np.linspace(start, 1.0, SHARES)
    grids = {
        game: np.clip(np.round(shares * last), first, last).astype(np.int64)
        for game, (first, last) in steps.items()
    }
    bands = {
        label: curve_over_games(
            [
                np.array(
                    [normalised(hold(one, grids[game]), ranges[game]) for one in of_label[game]]
                )
                for game in ranges
            ],
            seed=seed,
        )
        for label, of_label in curves.items()
    }
    return Efficiency(kind=kind, shares=shares, bands=bands)


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


def _common_steps(curves: Sequence[Curve]) -> tuple[int, int]:
    """The steps between which all curves have values; the first may lie behind the last."""
    first = max(int(one.steps[0]) for one in curves)
    last = min(int(one.steps[-1]) for one in curves)
    return first, last
