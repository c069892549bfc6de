"""The tables of a comparison. A new one is a row of `TABLES`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields

from steps.comparison.compared import Averaged, Comparison, Standing
from steps.comparison.missing import left_out
from steps.directory.tables import Cell
from steps.statistics.intervals import Band, Estimate
from steps.statistics.over_games import Aggregates

Row = Mapping[str, Cell]


@dataclass(frozen=True)
class Table:
    """columns: their names. rows: each has a cell for every column."""

    columns: tuple[str, ...]
    rows: Callable[[Comparison], Iterable[Row]]


def _columns(text: str) -> tuple[str, ...]:
    """Names of columns. `mean±` stands for `mean`, `mean_low` and `mean_high`."""
    found: list[str] = []
    for name in text.split():
        plain = name.removesuffix("±")
        found += [plain] if plain == name else [plain, f"{plain}_low", f"{plain}_high"]
    return tuple(found)


def _interval(name: str, one: Estimate | None) -> dict[str, Cell]:
    if one is None:
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    return {name: one.value, f"{name}_low": one.low, f"{name}_high": one.high}


def _points(band: Band) -> Iterable[dict[str, Cell]]:
    for at, value in enumerate(band.values.tolist()):
        low = None if band.low is None else float(band.low[at])
        high = None if band.high is None else float(band.high[at])
        yield {"value": value, "low": low, "high": high}


def _standings(comparison: Comparison) -> Iterable[Row]:
    for (label, game), one in comparison.standings.items():
        yield {
            "label": label,
            "game": game,
            "measure": comparison.measures[game].name,
            "n": one.n,
            "planned": one.planned,
            **_interval("mean", one.mean),
            **_interval("iqm", one.iqm),
            "min": min(one.scores, default=None),
            "max": max(one.scores, default=None),
            "score": one.score,
            "rank": one.rank,
            "steps": one.steps,
            "evaluation": one.evaluation,
            "made_by": one.made_by,
            "remarks": "; ".join(one.remarks),
        }


def _overall(comparison: Comparison) -> Iterable[Row]:
    for label, one in comparison.overall.items():
        yield {
            "label": label,
            "games": len(comparison.shared) if one.aggregates else 0,
            **_aggregates(one.aggregates),
            "mean_rank": one.mean_rank,
            "baseline": one.baseline,
            **_interval("improvement", one.improvement),
        }


def _aggregates(found: Aggregates | None) -> dict[str, Cell]:
    cells: dict[str, Cell] = {}
    for one in fields(Aggregates):
        cells |= _interval(one.name, getattr(found, one.name, None))
    return cells


def _tests(comparison: Comparison) -> Iterable[Row]:
    for one in comparison.tests:
        yield {
            "label": one.label,
            "baseline": one.baseline,
            "game": one.game,
            **_interval("difference", one.difference),
            "interval": one.difference.kind,
            "p": one.p,
            "adjusted": one.adjusted,
            "effect": one.effect,
            "improvement": one.improvement,
            "reason": one.reason,
        }


def _profiles(comparison: Comparison) -> Iterable[Row]:
    for label, one in comparison.overall.items():
        if one.profile is not None:
            points = _points(one.profile)
            for threshold, point in zip(comparison.thresholds.tolist(), points, strict=True):
                yield {"label": label, "threshold": threshold, **point}


def _curves(comparison: Comparison) -> Iterable[Row]:
    for (label, game), one in comparison.standings.items():
        for kind, averaged in _kinds(one).items():
            points = _points(averaged.band)
            for x, point in zip(averaged.grid.tolist(), points, strict=True):
                named: Row = {"label": label, "game": game, "kind": kind, "x": x}
                yield {**named, **point, "n": len(averaged.runs)}


def _kinds(standing: Standing) -> dict[str, Averaged]:
    kinds = {
        "training": standing.training,
        "hours": standing.hours,
        "policy": standing.policy,
    }
    return {kind: averaged for kind, averaged in kinds.items() if averaged is not None}


def _efficiency(comparison: Comparison) -> Iterable[Row]:
    for label, one in comparison.overall.items():
        if one.efficiency is not None:
            points = _points(one.efficiency)
            for share, point in zip(comparison.shares.tolist(), points, strict=True):
                yield {"label": label, "share": share, **point}


def _grid(comparison: Comparison) -> Iterable[Row]:
    for effect in comparison.effects:
        for label, estimates in effect.slices.items():
            for value, estimate in zip(effect.values, estimates, strict=True):
                named: Row = {"parameter": effect.parameter, "value": value, "label": label}
                yield {**named, **_interval("mean", estimate)}


def _sensitivity(comparison: Comparison) -> Iterable[Row]:
    for one in comparison.losses:
        for game, loss in [*one.losses.items(), ("", one.value)]:
            yield {"label": one.label, "setting": one.setting, "game": game, "loss": loss}


def _cost(comparison: Comparison) -> Iterable[Row]:
    for (label, game), one in comparison.standings.items():
        yield {
            "label": label,
            "game": game,
            "processor_h": one.cost.processor_h,
            "gpu_h": one.cost.gpu_h,
            "preemptions": one.cost.preemptions,
            "repeated_h": one.cost.repeated_h,
        }


def _missing(comparison: Comparison) -> Iterable[Row]:
    said = set[str]()
    for (label, game), one in comparison.standings.items():
        said.update(left_out(one))
        for run, reason in one.left_out.items():
            yield {"label": label, "game": game, "run": run, "reason": reason}
    for sentence in comparison.missing:
        if sentence not in said:
            yield {"label": "", "game": "", "run": "", "reason": sentence}


TABLES: Mapping[str, Table] = {
    "standings.csv": Table(
        _columns(
            "label game measure n planned mean± iqm± min max score rank steps evaluation made_by "
            "remarks"
        ),
        _standings,
    ),
    "overall.csv": Table(
        _columns("label games iqm± median± mean± optimality_gap± mean_rank baseline improvement±"),
        _overall,
    ),
    "tests.csv": Table(
        _columns("label baseline game difference± interval p adjusted effect improvement reason"),
        _tests,
    ),
    "profiles.csv": Table(_columns("label threshold value low high"), _profiles),
    "curves.csv": Table(_columns("label game kind x value low high n"), _curves),
    "efficiency.csv": Table(_columns("label share value low high"), _efficiency),
    "grid.csv": Table(_columns("parameter value label mean±"), _grid),
    "sensitivity.csv": Table(_columns("label setting game loss"), _sensitivity),
    "cost.csv": Table(_columns("label game processor_h gpu_h preemptions repeated_h"), _cost),
    "missing.csv": Table(_columns("label game run reason"), _missing),
}
OPTIONAL = ("grid.csv", "sensitivity.csv")
"""Tables that are not there if they have no rows."""
