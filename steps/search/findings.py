"""Everything that the page of a search shows, and its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config.errors import ExperimentError, on_one_line
from config.measures import Measure
from config.parameters import to_text
from config.study import Search, Study
from config.study.search import trial_name
from steps.choose import PRESET
from steps.comparison.compared import Standing
from steps.comparison.stored_comparison import read_comparison
from steps.directory.search import SearchDirectory
from steps.directory.tables import Cell, format_table
from steps.search.journal import Journal, Trial
from steps.statistics.intervals import Estimate


@dataclass(frozen=True, kw_only=True)
class MeasuredAgain:
    """A trial, or the preset, with fresh seeds. in_search: its score there, None for the preset. result: the
    interquartile mean from five runs on, else the mean; None without a run. page: of its experiment.
    """

    label: str
    in_search: float | None
    result: Estimate | None
    is_iqm: bool
    n: int
    planned: int
    page: Path | None

    @property
    def curse(self) -> float | None:
        """How much the search promised too much: the winner's curse."""
        if self.in_search is None or self.result is None:
            return None
        return self.in_search - self.result.value


@dataclass(frozen=True, kw_only=True)
class Spent:
    """Hours and environment steps of all trials' trainings, and what they would have been without pruning, at
    each trial's own speed.
    """

    hours: float
    hours_to_the_end: float
    steps: float
    steps_to_the_end: float


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What a search has found.

    title: what was searched, in words. measure: of the experiment. preset: the values of the searched
    parameters without a search, as texts. trials: all of them in their order. best: those that were measured
    again, the best first. importances: parameter -> share of the variation. missing: shortcomings, a
    sentence each.
    """

    title: str
    measure: Measure
    search: Search
    preset: Mapping[str, str]
    trials: Sequence[Trial]
    best: Sequence[Trial]
    importances: Mapping[str, float]
    again: Sequence[MeasuredAgain]
    spent: Spent
    missing: Sequence[str]

    def score(self, trial: Trial) -> float | None:
        """The value of a trial, or of a pruned one that of its last rung."""
        if trial.value is not None:
            return trial.value
        return trial.rungs[-1].value if trial.rungs else None


def find(
    directory: SearchDirectory,
    study: Study,
    search: Search,
    journal: Journal,
    missing: Sequence[str],
) -> Findings:
    """Read what a search has found, and write the table of its trials."""
    (preset,) = study.cells
    resolved = study.resolved[preset.name]
    trials = journal.trials()
    best = journal.best(search.then.best)
    lacking = list(missing)
    try:
        again = _measured_again(directory, best)
    except ExperimentError as error:
        again = []
        lacking.append(f"the winner again: {on_one_line(error)}")
    path = directory.trials_csv
    path.write_text(format_table(_columns(search), [_row(one, search) for one in trials]))
    return Findings(
        title=f"{resolved.descriptor.name.upper()} on {resolved.game.title}",
        measure=resolved.measure,
        search=search,
        preset={name: to_text(getattr(_owner(resolved, name), name)) for name in search.parameters},
        trials=trials,
        best=best,
        importances=journal.importances(),
        again=again,
        spent=_spent(trials),
        missing=lacking,
    )


def _owner(resolved: Any, name: str) -> Any:
    """The part of an experiment that has a parameter."""
    for part in (resolved.hyperparameters, resolved.environment):
        if hasattr(part, name):
            return part
    raise LookupError(name)


def _measured_again(directory: SearchDirectory, best: Sequence[Trial]) -> list[MeasuredAgain]:
    if not directory.again.comparison_json.exists():
        return []
    comparison = read_comparison(directory.again.root)
    (game,) = comparison.games or ("",)
    scores = {f"trial {one.number}": one.value for one in best}
    found = []
    for label in (*scores, PRESET):
        standing = comparison.standings.get((label, game))
        if standing is not None:
            found.append(_measured(standing, scores.get(label)))
    return found


def _measured(standing: Standing, in_search: float | None) -> MeasuredAgain:
    return MeasuredAgain(
        label=standing.label,
        in_search=in_search,
        result=standing.iqm or standing.mean,
        is_iqm=standing.iqm is not None,
        n=standing.n,
        planned=standing.planned,
        page=standing.page,
    )


def _spent(trials: Sequence[Trial]) -> Spent:
    def together(name: str, instead: str = "") -> float:
        return sum(one.facts.get(name, one.facts.get(instead, 0.0)) for one in trials)

    return Spent(
        hours=together("seconds") / 3600,
        hours_to_the_end=together("seconds_to_the_end", "seconds") / 3600,
        steps=together("steps"),
        steps_to_the_end=together("steps_to_the_end", "steps"),
    )


def _columns(search: Search) -> list[str]:
    return [
        "trial", "state", "value", *search.parameters, "rungs", "epoch", "steps", "seconds", "reason",
    ]  # fmt: skip


def _row(trial: Trial, search: Search) -> dict[str, Cell]:
    epoch = trial.rungs[-1].epoch if trial.rungs else None
    cells: list[Cell] = [
        trial_name(trial.number),
        trial.state,
        trial.value,
        *(to_text(trial.values.get(name)) for name in search.parameters),
        len(trial.rungs),
        epoch,
        trial.facts.get("steps"),
        trial.facts.get("seconds"),
        trial.reason,
    ]
    return dict(zip(_columns(search), cells, strict=True))
