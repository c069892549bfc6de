"""What a comparison has found: of every algorithm on every game, and over all games.

Everything that the tables, the figures and the page show, and nothing else: they compute nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from config.measures import Measure
from steps.directory.cost import Cost
from steps.statistics.curves import Curve
from steps.statistics.intervals import Band, Estimate
from steps.statistics.over_games import Aggregates
from steps.statistics.scores import Floats


@dataclass(frozen=True, kw_only=True)
class Averaged:
    """Curves of several runs, averaged on a common grid.

    grid: [G], environment steps, or hours of training; of curves of the training, the middles of G equal
    parts. band: over the runs' means in these parts, by the rule of the number of runs. runs: each run's
    own means in such parts, also beyond the common ones; in place of hours milliseconds. centre: `mean`
    or `IQM`.
    """

    grid: Floats
    band: Band
    runs: tuple[Curve, ...]
    centre: str


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The runs of one label on one game.

    n, planned: runs that enter the numbers, and all of them. mean, iqm: of the runs' scores in the
    measure's own unit; iqm from five runs on. score: the mean, normalised; None where the game has no
    range. rank: among the labels of this game, 1 is best; None without a score. scores: of each run, [n].
    left_out: run -> why it enters no number. training, hours, policy: curves, None without rows. runs:
    names of those that enter the numbers, [n].
    """

    label: str
    game: str
    settings: Mapping[str, str]
    made_by: str
    evaluation: str
    steps: int | None
    n: int
    planned: int
    scores: tuple[float, ...]
    mean: Estimate | None
    iqm: Estimate | None
    score: float | None
    rank: float | None
    left_out: Mapping[str, str]
    training: Averaged | None
    hours: Averaged | None
    policy: Averaged | None
    cost: Cost
    page: Path | None
    remarks: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Overall:
    """One label over all games that have normalised scores and that every label has.

    aggregates: None without such games. improvement: the probability that a run of it beats one of the
    baseline; None for the baseline itself. profile: on `Comparison.thresholds`. efficiency: the aggregate
    of normalised curves on `Comparison.shares` of the steps. baseline: the label of the grid's same
    settings that `improvement` is against; empty without one.
    """

    label: str
    aggregates: Aggregates | None
    mean_rank: float | None
    improvement: Estimate | None
    profile: Band | None
    efficiency: Band | None
    cost: Cost
    baseline: str = ""


@dataclass(frozen=True, kw_only=True)
class Test:
    """One label against the baseline on one game.

    difference: of the means, or of the IQMs from five runs a side on. p, adjusted: of the permutation
    test, and after Holm's correction over all games and labels; None below five runs a side, with the
    reason. effect: Hedges' g. improvement: probability that a run of ours beats one of the baseline's.
    baseline: its label, with the grid's settings.
    """

    label: str
    game: str
    difference: Estimate
    p: float | None
    adjusted: float | None
    effect: float | None
    improvement: float
    reason: str = ""
    baseline: str = ""


@dataclass(frozen=True, kw_only=True)
class Effect:
    """How the scores depend on one parameter of the grid.

    parameter: its name. values: texts, in the grid's order. slices: label -> for each value the mean
    over all else, an estimate in normalised scores, or in the measure's unit where there is one game.
    """

    parameter: str
    values: tuple[str, ...]
    slices: Mapping[str, tuple[Estimate | None, ...]]


@dataclass(frozen=True, kw_only=True)
class Map:
    """How the scores of one label depend on two parameters of the grid together.

    parameters: their names. values: texts of each, in the grid's order. scores: a row for each value of
    the first, a column for each of the second, means over all else as in `Effect`; None where nobody
    trained.
    """

    label: str
    parameters: tuple[str, str]
    values: tuple[tuple[str, ...], tuple[str, ...]]
    scores: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Loss:
    """What the best setting over all games loses against the best setting of each game (Adkins et al.
    2024), of one label.

    setting: that setting, in words. losses: game -> loss in normalised scores. value: their mean.
    """

    label: str
    setting: str
    losses: Mapping[str, float]
    value: float


@dataclass(frozen=True, kw_only=True)
class Decided:
    """What is known of one experiment of a study whose number of runs grew until it was known.

    cell, baseline: names of experiments. decision: whether its scores are `larger` or `smaller` than the
    baseline's, `equal` as far as the most runs could tell, or still `undecided`. runs: how many both had.
    """

    cell: str
    baseline: str
    decision: str
    runs: int


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Everything.

    title: what was asked, in words. labels, games: in the order of the figures; a grid's settings are part of
    the label where they differ. measures: of each game. ranges: game -> the values of its measure that are
    score 0 and 1. standings: by label and game; those that nobody trained are missing. missing: what is not there, a
    sentence each: failed, preempted and skipped runs, never averaged away. unequal: what differs between
    entries that are compared, a sentence each. asked: the question in more words, by name. shared: the
    games that `overall` is about. efficiency_of: `training` or `policy`, the curves that
    `Overall.efficiency` aggregates. plain_labels: label -> the same without the grid's settings. seed: of
    all resampling.
    """

    title: str
    labels: tuple[str, ...]
    games: tuple[str, ...]
    baseline: str | None
    measures: Mapping[str, Measure]
    ranges: Mapping[str, tuple[float, float]]
    standings: Mapping[tuple[str, str], Standing]
    overall: Mapping[str, Overall]
    thresholds: Floats
    shares: Floats
    tests: Sequence[Test] = ()
    effects: Sequence[Effect] = ()
    losses: Sequence[Loss] = ()
    maps: Sequence[Map] = ()
    missing: Sequence[str] = ()
    unequal: Sequence[str] = ()
    asked: Mapping[str, str] = field(default_factory=dict)
    decided: Sequence[Decided] = ()
    shared: tuple[str, ...] = ()
    efficiency_of: str = ""
    plain_labels: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0

    @property
    def common_games(self) -> tuple[str, ...]:
        """The games that numbers over games are about; none if there is only one, whose numbers are its
        own.
        """
        return self.shared if len(self.shared) > 1 else ()
