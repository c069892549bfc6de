"""Compares entries: from the runs of algorithms on games to everything that tables, figures and page
show.

What is compared stays as it is: entries that differ in their length, their evaluation or the settings
of their game are compared and the difference is said; a run without a score is left out and named.
The numbers follow `steps.statistics.rule`, so they depend on how many runs there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from steps.comparison.against_baseline import tests_against_baseline
from steps.comparison.compared import Comparison
from steps.comparison.contenders import contenders_of, opponents
from steps.comparison.entries import Entry
from steps.comparison.grid import effects, losses
from steps.comparison.missing import missing_from
from steps.comparison.over_all_games import over_all_games
from steps.comparison.standings import Range, score_ranges, standings_of
from steps.comparison.unequal import refuse_different_measures, unequal

SEED = 0
"""Of the resampling: equal entries give equal numbers."""


def compare(
    entries: Sequence[Entry],
    *,
    title: str,
    baseline: str | None,
    ranges: Mapping[str, Range],
    seed: int = SEED,
    settings: Mapping[str, str] | None = None,
    missing: Sequence[str] = (),
    asked: Mapping[str, str] = MappingProxyType({}),
) -> Comparison:
    """Compare entries, of which there may be none.

    baseline: the label that the others are compared with. Entries of one label with several settings
    are compared with the baseline's entries of the same settings; if `settings` is given, all with the
    baseline's entries of these. ranges: by game, the values of its
    measure that are score 0 and 1, in place of those that are known. missing: what else is missing, a
    sentence each. asked: see `Comparison`. Raises `BadInput` for an unknown baseline, for two entries
    with the same label, settings and game, and for a game with several measures.
    """
    contenders = contenders_of(entries)
    games = tuple(dict.fromkeys(entry.game for entry in entries))
    refuse_different_measures(contenders, games)
    measures = {entry.game: entry.measure for entry in entries}
    known = score_ranges(measures, ranges)
    shown_baseline, against, alone = opponents(contenders, baseline, settings)
    standings = standings_of(contenders, games, measures, known, seed=seed)
    over = over_all_games(contenders, standings, known, against, seed=seed)
    lacking = missing_from(contenders, games, standings, known, over.shared)
    return Comparison(
        title=title,
        labels=tuple(one.label for one in contenders),
        games=games,
        baseline=shown_baseline,
        measures=measures,
        ranges=known,
        standings=standings,
        overall=over.overall,
        thresholds=over.thresholds,
        shares=over.efficiency.shares,
        tests=tests_against_baseline(standings, measures, against, seed=seed),
        effects=effects(contenders, games, standings, known, seed=seed),
        losses=losses(contenders, games, standings, known),
        missing=(*lacking, *alone, *missing),
        unequal=unequal(contenders, games),
        asked=dict(asked),
        shared=over.shared,
        efficiency_of=over.efficiency.kind,
        plain_labels={one.label: one.plain for one in contenders},
        seed=seed,
    )
