"""Computes from the games of an arena who beats whom and how strong each player is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agents.arena.matches import Tournament
from config.errors import BadInput
from config.ladder import AGENT, ANCHOR, GENERATION
from steps.arena.games import COLOURS, POINTS, Played
from steps.statistics.elo import elo, ratings, totals
from steps.statistics.scores import Floats

RESAMPLES = 2_000
"""Number of bootstrap samples for the intervals on plots."""


def tournament(games: Sequence[Played]) -> Tournament:
    """The matches of an arena, in order. Raises `BadInput` if games of one are missing."""
    names = list(dict.fromkeys(name for one in games for name in (one.player, one.opponent)))
    pairs = list(dict.fromkeys((one.player, one.opponent) for one in games))
    openings = 1 + max((one.opening for one in games), default=-1)
    scores = np.full((len(pairs), openings, len(COLOURS)), np.nan)
    for one in games:
        place = (pairs.index((one.player, one.opponent)), one.opening, COLOURS.index(one.colour))
        scores[place] = one.points / POINTS
    if not len(pairs) or np.isnan(scores).any() or scores.size != len(games):
        raise BadInput("not every match of the arena has all its games: evaluate makes them")
    return Tournament(names, [(names.index(a), names.index(b)) for a, b in pairs], scores)


def rating_of(games: Sequence[Played], name: str) -> float:
    """The rating of one player. Raises as `tournament`, and `BadInput` without the anchor."""
    names, pairings, scores = tournament(games)
    count = float(scores.shape[1] * scores.shape[2])
    matches = totals(len(names), pairings, scores.sum(axis=(1, 2)), count)
    return float(elo(*matches, anchor_of(names))[names.index(name)])


def rated(of: Tournament, seed: int) -> tuple[Floats, Floats, Floats]:
    """All ratings and both ends of their intervals over openings, [n] each."""
    names, pairings, scores = of
    return ratings(len(names), pairings, scores, anchor_of(names), seed=seed, resamples=RESAMPLES)


def anchor_of(names: Sequence[str]) -> int:
    """The player whose rating is 0. Raises `BadInput` if it did not play."""
    if ANCHOR not in names:
        raise BadInput(
            f"no game of {ANCHOR}, to which all ratings are relative: evaluate makes them"
        )
    return names.index(ANCHOR)


def generation_of(name: str) -> int | None:
    """The number of an earlier generation; None for all other players."""
    number = name.removeprefix(GENERATION)
    return int(number) if number != name and number.isdecimal() else None


def won_against(games: Sequence[Played]) -> dict[str, list[float]]:
    """Opponent -> the agent's points in each game against it."""
    found: dict[str, list[float]] = {}
    for one in games:
        if one.player == AGENT:
            found.setdefault(one.opponent, []).append(one.points)
    return found
