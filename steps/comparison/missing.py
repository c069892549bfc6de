"""What a comparison lacks, in sentences: nothing is left out without a word."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from steps.comparison.compared import Standing
from steps.comparison.contenders import Contender
from steps.comparison.standings import Range, Standings
from steps.comparison.unequal import listed

NO_RUN = "no run has a score yet, so there is nothing to compare"


def missing_from(
    contenders: Sequence[Contender],
    games: Sequence[str],
    standings: Standings,
    ranges: Mapping[str, Range],
    shared: Sequence[str],
) -> Iterable[str]:
    """Every run that enters no number, then every label without a game, then every game that enters
    no number over games.
    """
    if not any(standing.n for standing in standings.values()):
        yield NO_RUN
    for standing in standings.values():
        yield from left_out(standing)
    for one in contenders:
        absent = [game for game in games if game not in one.entries]
        if absent:
            yield f"{one.label} was not trained on {listed(absent, 'games')}"
    if len(games) > 1:
        yield from _outside(games, ranges, shared)


def left_out(standing: Standing) -> Iterable[str]:
    """A sentence for each reason why runs are left out."""
    names: dict[str, list[str]] = {}
    for run, reason in standing.left_out.items():
        names.setdefault(reason, []).append(run)
    for reason, runs in names.items():
        which = f"run {runs[0]}" if len(runs) == 1 else f"runs {', '.join(runs)}"
        yield (
            f"{standing.label} on {standing.game}: {which} of {standing.planned} left out: {reason}"
        )


def _outside(
    games: Sequence[str], ranges: Mapping[str, Range], shared: Sequence[str]
) -> Iterable[str]:
    """Why games enter no number over games."""
    without_range = [game for game in games if game not in ranges]
    lacking = [game for game in games if game in ranges and game not in shared]
    if without_range:
        yield (
            f"no range of scores is known for {', '.join(without_range)}, so numbers over games "
            "are without"
        )
    if lacking:
        yield (
            f"not every label has a run on {', '.join(lacking)}, so numbers over games are without"
        )
