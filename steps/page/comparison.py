"""The page of a comparison: one HTML file about all labels on all games, which links to the report of
every experiment. It shows what was found and computes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from config.numbers import counted, hours, number
from steps.comparison.compared import Comparison, Loss, Overall, Standing, Test
from steps.directory.cost import Cost
from steps.directory.files import write_if_changed
from steps.page.media import LABELLED_DARK, Plot, Plots
from steps.page.render import FOLDER, environment, policy_of, trusted
from steps.statistics.intervals import Estimate
from steps.statistics.rule import BOOTSTRAP_FROM, TESTED_FROM, WIDE_ENOUGH_FROM

FIGURES = {
    "overall": ("aggregates", "improvement", "profiles", "efficiency"),
    "games": ("standings", "learning-curves", "learning-curves-hours", "evaluation-curves"),
    "grid": ("grid", "grid-maps"),
}
"""Section -> the figures in it, by their files' names."""
OPEN_TESTS = 24
"""Up to this many pairs the table of tests is shown unfolded."""
OPEN_LINES = 8
"""Up to this many lines a list of shortcomings is shown unfolded."""
SMALLEST_P = 0.0001
SIGNIFICANT = 0.05
ABSENT = "–"


@dataclass(frozen=True, kw_only=True)
class Value:
    """A number for people. interval: empty without one."""

    value: str
    interval: str = ""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One label on one game. other: the mean beside an interquartile mean. runs: n of planned. is_few:
    whether runs are missing, and why: the reasons. score, rank: empty where the game has no range.
    """

    result: Value
    other: str
    runs: str
    is_few: bool
    why: str
    score: str
    rank: str
    link: str


def write_page(
    comparison: Comparison, *, plots: Path, path: Path, links: Mapping[tuple[str, str], str]
) -> None:
    """Write the page to `path`. plots: the folder with the figures and, above it, the tables. links:
    label and game -> the path of that experiment's report, relative to the page.
    """
    write_if_changed(path, render(comparison, plots=plots, root=path.parent, links=links))


def render(
    comparison: Comparison, *, plots: Path, root: Path, links: Mapping[tuple[str, str], str]
) -> str:
    """The whole page. root: its folder. The same comparison and figures give the same bytes."""
    script = (FOLDER / "report.js").read_text()
    found = Plots(root, dark=LABELLED_DARK)
    folder = os.path.relpath(plots, root)
    return (
        environment()
        .get_template("comparison.html")
        .render(
            comparison=comparison,
            facts=_size(comparison),
            rule=_rule(list(comparison.standings.values())),
            cells={
                key: _cell(standing, links.get(key, ""))
                for key, standing in comparison.standings.items()
            },
            ranges={game: _range(comparison, game) for game in comparison.games},
            common=comparison.common_games,
            overall=[
                (label, _overall(comparison.overall[label]))
                for label in comparison.labels
                if label in comparison.overall and comparison.common_games
            ],
            remarks=_remarks(comparison),
            figures={section: _plots(found, folder, names) for section, names in FIGURES.items()},
            tests=[_test(one) for one in comparison.tests],
            untested=_untested(comparison.tests),
            decided=sum(
                one.adjusted is not None and one.adjusted <= SIGNIFICANT for one in comparison.tests
            ),
            effects=_effects(comparison),
            losses=[_loss(comparison, one) for one in comparison.losses],
            costs=_costs(comparison),
            sources=_sources(comparison),
            tables=_tables(plots.parent, root),
            open_tests=OPEN_TESTS,
            open_lines=OPEN_LINES,
            style=trusted((FOLDER / "report.css").read_text()),
            script=trusted(script),
            policy=policy_of(script),
        )
    )


def score(value: float) -> str:
    """A normalised score, a share or a probability: 0.612."""
    return f"{value:.3f}".replace("-", "−")


def _value(estimate: Estimate | None, write: Callable[[float], str]) -> Value:
    if estimate is None:
        return Value(value=ABSENT)
    if estimate.low is None or estimate.high is None:
        return Value(value=write(estimate.value))
    return Value(
        value=write(estimate.value),
        interval=f"[{write(estimate.low)}, {write(estimate.high)}]",
    )


def _cell(standing: Standing, link: str) -> Cell:
    has_iqm = standing.iqm is not None
    mean = _value(standing.mean, number)
    return Cell(
        result=_value(standing.iqm if has_iqm else standing.mean, number),
        other=f"mean {mean.value} {mean.interval}".strip() if has_iqm else "",
        runs=f"n = {standing.n} of {standing.planned}",
        is_few=standing.n < standing.planned,
        why="; ".join(f"run {run}: {reason}" for run, reason in standing.left_out.items()),
        score="" if standing.score is None else score(standing.score),
        rank="" if standing.rank is None else f"{standing.rank:g}",
        # A path may hold a colon, which an address would take for the end of a scheme.
        link=quote(link),
    )


def _range(comparison: Comparison, game: str) -> str:
    if game not in comparison.ranges:
        return "no range, not normalised"
    low, high = comparison.ranges[game]
    return f"score 0 at {number(low)}, 1 at {number(high)}"


def _overall(one: Overall) -> dict[str, Value]:
    """Column -> what it shows of one label over all games."""
    aggregates = one.aggregates
    columns = ("iqm", "median", "mean", "optimality_gap")
    shown = {
        name: _value(None if aggregates is None else getattr(aggregates, name), score)
        for name in columns
    }
    rank = ABSENT if one.mean_rank is None else f"{one.mean_rank:.2f}"
    return {**shown, "rank": Value(value=rank), "improvement": _value(one.improvement, score)}


def _remarks(comparison: Comparison) -> list[str]:
    """What the intervals over games are, and why some numbers have none."""
    estimates = [
        estimate
        for one in comparison.overall.values()
        for estimate in (
            one.improvement,
            *(vars(one.aggregates).values() if one.aggregates is not None else ()),
        )
        if estimate is not None
    ]
    kinds = dict.fromkeys(one.kind for one in estimates if one.low is not None)
    reasons = dict.fromkeys(one.reason for one in estimates if one.low is None and one.reason)
    remarks = []
    if kinds:
        remarks.append(f"95 % intervals: {' or '.join(kinds)}, over other runs on these games.")
    if reasons:
        remarks.append(f"Without an interval: {'; '.join(reasons)}.")
    return remarks


def _rule(standings: Sequence[Standing]) -> str:
    """Which centre and interval the table has for these numbers of runs."""
    counts = [standing.n for standing in standings if standing.n]
    sentences = []
    if any(count == 1 for count in counts):
        sentences.append("One run: its score, no interval.")
    if any(1 < count < BOOTSTRAP_FROM for count in counts):
        sentences.append("Two to four runs: the mean and its 95 % t interval.")
    if any(count >= BOOTSTRAP_FROM for count in counts):
        narrow = any(BOOTSTRAP_FROM <= count < WIDE_ENOUGH_FROM for count in counts)
        sentences.append(
            "From five runs on: the interquartile mean and its 95 % bootstrap interval"
            + (", slightly too narrow below ten runs" if narrow else "")
            + "; below it the mean and its t interval."
        )
    return " ".join(sentences)


def _plots(found: Plots, folder: str, names: Sequence[str]) -> list[Plot]:
    return [plot for name in names if (plot := found.at(folder, name))]


def _test(one: Test) -> dict[str, Any]:
    return {
        "label": one.label,
        "game": one.game,
        "difference": _value(one.difference, number),
        "p": _probability(one.p),
        "adjusted": _probability(one.adjusted),
        "effect": ABSENT if one.effect is None else f"{one.effect:.2f}".replace("-", "−"),
        "improvement": score(one.improvement),
        "reason": one.reason,
    }


def _probability(p: float | None) -> str:
    if p is None:
        return ABSENT
    return f"< {SMALLEST_P:g}" if p < SMALLEST_P else f"{p:.2g}"


def _untested(tests: Sequence[Test]) -> str:
    """Why there is no test at all; empty if there is one."""
    if any(one.p is not None for one in tests):
        return ""
    reasons = dict.fromkeys(one.reason for one in tests if one.reason)
    return "; ".join(reasons) or f"a test needs {TESTED_FROM} runs on each side"


def _effects(comparison: Comparison) -> list[dict[str, Any]]:
    write = number if len(comparison.games) == 1 else score
    return [
        {
            "parameter": one.parameter,
            "values": one.values,
            "rows": [
                (label, [_value(estimate, write) for estimate in estimates])
                for label, estimates in one.slices.items()
            ],
        }
        for one in comparison.effects
    ]


def _loss(comparison: Comparison, one: Loss) -> dict[str, Any]:
    losses = [
        score(one.losses[game]) if game in one.losses else ABSENT for game in comparison.games
    ]
    return {"label": one.label, "setting": one.setting, "value": score(one.value), "losses": losses}


def _costs(comparison: Comparison) -> list[tuple[str, list[str]]]:
    """What each label has cost, and all of them; empty where no file says anything."""
    costs = {
        label: comparison.overall[label].cost
        for label in comparison.labels
        if label in comparison.overall
    }
    if all(cost == Cost() for cost in costs.values()):
        return []
    rows = [(label, _cost(cost)) for label, cost in costs.items()]
    return [*rows, ("together", _cost(_together(list(costs.values()))))]


def _together(costs: Sequence[Cost]) -> Cost:
    sums = {}
    for name in ("processor_h", "gpu_h", "preemptions", "repeated_h"):
        known = [value for cost in costs if (value := getattr(cost, name)) is not None]
        sums[name] = sum(known) if known else None
    return Cost(**sums)


def _cost(cost: Cost) -> list[str]:
    parts = [cost.processor_h, cost.gpu_h, cost.repeated_h]
    processor, gpu, repeated = (ABSENT if one is None else hours(one) for one in parts)
    preemptions = ABSENT if cost.preemptions is None else str(cost.preemptions)
    return [processor, gpu, preemptions, repeated]


def _sources(comparison: Comparison) -> list[dict[str, Any]]:
    """How the numbers were made; games that agree in that share a row."""
    rows: dict[tuple[Any, ...], list[str]] = {}
    for label in comparison.labels:
        for game in comparison.games:
            one = comparison.standings.get((label, game))
            if one is not None:
                settings = tuple(one.settings.items())
                key = (label, one.made_by, one.evaluation, one.steps, settings, one.remarks)
                rows.setdefault(key, []).append(game)
    return [
        {
            "label": label,
            "games": "all games" if len(games) == len(comparison.games) > 1 else ", ".join(games),
            "made_by": made_by,
            "evaluation": evaluation or "unknown",
            "steps": "unknown" if steps is None else number(steps),
            "settings": ", ".join(f"{name} = {value}" for name, value in settings),
            "remarks": remarks,
        }
        for (label, made_by, evaluation, steps, settings, remarks), games in rows.items()
    ]


def _tables(folder: Path, root: Path) -> list[tuple[str, str]]:
    """Name and address of the files of numbers beside the figures."""
    files = [path for kind in ("csv", "json", "npz") for path in sorted(folder.glob(f"*.{kind}"))]
    return [(path.name, quote(os.path.relpath(path, root))) for path in files]


def _size(comparison: Comparison) -> list[str]:
    """The facts below the heading."""
    runs = sum(one.n for one in comparison.standings.values())
    planned = sum(one.planned for one in comparison.standings.values())
    facts = [
        counted(len(comparison.labels), "label"),
        counted(len(comparison.games), "game"),
        f"{runs} of {counted(planned, 'run')} used",
    ]
    if comparison.baseline is not None:
        facts.append(f"baseline {comparison.baseline}")
    return facts
