"""The games over which labels can be compared."""

from __future__ import annotations

from steps.comparison.compared import Comparison

FEWEST_GAMES = 2
"""Numbers over all games need at least two; those of one game are its own."""


def common_games(comparison: Comparison) -> list[str]:
    """The games that have a range of scores and that every label has; none if fewer than
    FEWEST_GAMES.
    """
    games = [
        game
        for game in comparison.games
        if game in comparison.ranges
        and all(_has_score(comparison, label, game) for label in comparison.labels)
    ]
    return games if len(games) >= FEWEST_GAMES else []


def _has_score(comparison: Comparison, label: str, game: str) -> bool:
    standing = comparison.standings.get((label, game))
    return standing is not None and standing.n > 0
