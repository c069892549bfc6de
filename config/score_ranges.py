"""How a game's return becomes a score that can be averaged over games: 0 at one return, 1 at
another, linear between and beyond.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from config.games import Game
from config.measures import RETURN, WIN_RATE, Measure
from config.strict_yaml import load

FILE = Path(__file__).parent / "score_ranges.yaml"


@dataclass(frozen=True, kw_only=True)
class ScoreRange:
    """The values of a measure that are score 0 and score 1.

    source: where they come from, in words; `convention` where nothing was published.
    """

    low: float
    high: float
    source: str


WIN_RATES = ScoreRange(low=0.0, high=100.0, source="a win rate in %, which is bounded")


def default_range(game: Game, measure: Measure) -> ScoreRange | None:
    """The range of a game that is judged by a measure; None if there is no agreed one. Without a
    range a game has no normalised score.
    """
    if measure == WIN_RATE:
        return WIN_RATES
    return known_ranges().get(game.name) if measure == RETURN else None


@functools.cache
def known_ranges() -> Mapping[str, ScoreRange]:
    """The ranges of returns, by the short name of the game."""
    groups = load(FILE.read_bytes(), str(FILE))
    return {
        game: ScoreRange(low=float(low), high=float(high), source=group["source"])
        for group in groups
        for game, (low, high) in group["games"].items()
    }
