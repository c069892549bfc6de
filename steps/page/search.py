"""The page of a search: one HTML file, which links to the pages of the winner's study and of trials that have
one. It shows what was found and computes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from config.numbers import counted, duration, number
from config.parameters import to_text
from config.study.search import trial_name
from steps.directory.files import write_if_changed
from steps.directory.search import SearchDirectory
from steps.figures.search import FIGURES, draw
from steps.page.media import LABELLED_DARK, Plots
from steps.page.render import FOLDER, environment, policy_of, trusted
from steps.search.findings import Findings, MeasuredAgain
from steps.search.journal import Trial

OPEN_TRIALS = 60
"""Up to this many trials their table is shown unfolded."""
ABSENT = "–"


def write_search_page(directory: SearchDirectory, found: Findings) -> None:
    """Draw the figures of a search and write its page."""
    draw(found, directory.figures)
    script = (FOLDER / "report.js").read_text()
    plots = Plots(directory.root, dark=LABELLED_DARK)
    folder = directory.figures.relative_to(directory.root).as_posix()
    page = (
        environment()
        .get_template("search.html")
        .render(
            title=f"Search: {found.title}",
            found=found,
            facts=_facts(found),
            again=[_again(directory, one) for one in found.again],
            again_page=_link(directory, directory.again.report_html),
            best=_best(found),
            best_yaml=_link(directory, directory.best_yaml),
            figures=[plot for name in FIGURES if (plot := plots.at(folder, name))],
            rungs=_rungs(found),
            spent=_spent(found),
            parameters=list(found.search.parameters),
            trials=[_trial(directory, found, one) for one in found.trials],
            open_trials=OPEN_TRIALS,
            table=_link(directory, directory.trials_csv),
            asked=_asked(found),
            style=trusted((FOLDER / "report.css").read_text()),
            script=trusted(script),
            policy=policy_of(script),
        )
    )
    write_if_changed(directory.report_html, page)
    print(f"page: {directory.report_html}")


def _facts(found: Findings) -> list[str]:
    states = [one.state for one in found.trials]
    named = {"complete": "trained to the end", "pruned": "pruned", "failed": "failed"}
    named["running"] = "under way"
    counts = [f"{states.count(state)} {name}" for state, name in named.items() if state in states]
    return [f"{len(states)} of {counted(found.search.trials, 'trial')}", *counts]


def _again(directory: SearchDirectory, one: MeasuredAgain) -> dict[str, Any]:
    result, interval = ABSENT, ""
    if one.result is not None:
        result = number(one.result.value)
        if one.result.low is not None and one.result.high is not None:
            interval = f"[{number(one.result.low)}, {number(one.result.high)}]"
    return {
        "label": one.label,
        "in_search": ABSENT if one.in_search is None else number(one.in_search),
        "result": result,
        "kind": "IQM" if one.is_iqm else "mean",
        "interval": interval,
        "runs": f"n = {one.n} of {one.planned}",
        "curse": ABSENT if one.curse is None else number(one.curse),
        "link": "" if one.page is None else quote(os.path.relpath(one.page, directory.root)),
    }


def _best(found: Findings) -> list[dict[str, str]]:
    """The searched parameters: of the winner, and of the preset."""
    if not found.best:
        return []
    values = found.best[0].values
    return [
        {"name": name, "best": _text(values.get(name)), "preset": found.preset[name]}
        for name in found.search.parameters
    ]


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else to_text(value)


def _rungs(found: Findings) -> list[dict[str, Any]]:
    """How many trials reached each rung, and how many went on."""
    if found.search.prune is None:
        return []
    last = len(found.search.prune.rungs) - 1
    rows = []
    for index, share in enumerate(found.search.prune.rungs):
        there = [rung for one in found.trials for rung in one.rungs if rung.number == index]
        pruned = sum(not one.promoted for one in there)
        rows.append(
            {
                "rung": index + 1,
                "share": f"{100 * share:g} %",
                "reached": len(there),
                "on": ABSENT if index == last else len(there) - pruned,
                "pruned": ABSENT if index == last else pruned,
            }
        )
    return rows


def _spent(found: Findings) -> dict[str, str]:
    spent = found.spent
    saved = spent.hours_to_the_end - spent.hours
    share = spent.steps / spent.steps_to_the_end if spent.steps_to_the_end else 1.0
    return {
        "trained": duration(3600 * spent.hours),
        "saved": duration(3600 * saved),
        "to the end": duration(3600 * spent.hours_to_the_end),
        "steps": f"{100 * share:.0f} %",
    }


def _trial(directory: SearchDirectory, found: Findings, one: Trial) -> dict[str, Any]:
    page = directory.experiment(trial_name(one.number)).report_html
    value = found.score(one)
    return {
        "name": trial_name(one.number),
        "state": one.state,
        "value": ABSENT if value is None else number(value),
        "is_last": one.state != "complete" and value is not None,
        "values": [_text(one.values.get(name)) for name in found.search.parameters],
        "reason": one.reason,
        "time": duration(one.facts["seconds"]) if one.facts.get("seconds") else ABSENT,
        "link": _link(directory, page),
    }


def _link(directory: SearchDirectory, path: Any) -> str:
    return quote(os.path.relpath(path, directory.root)) if path.is_file() else ""


def _asked(found: Findings) -> Mapping[str, str]:
    search = found.search
    prune = search.prune
    ranges = {
        name: " or ".join(map(to_text, one.choices))
        if one.choices
        else f"{to_text(one.low)} to {to_text(one.high)}{', logarithmic' if one.is_log else ''}"
        for name, one in search.parameters.items()
    }
    return {
        **ranges,
        "sampler": f"{search.sampler} (Optuna), seed {search.seed}",
        "trials": f"{search.trials}, {search.parallel} at once",
        "objective": f"{search.objective.measure}, {search.objective.over_runs} over the runs",
        "pruning": "none"
        if prune is None
        else f"asynchronous successive halving at {', '.join(f'{100 * one:g} %' for one in prune.rungs)} "
        f"of a training; of {prune.reduction} one goes on",
        "again": f"the best {search.then.best} and the preset, {search.then.runs} runs, seed "
        f"{search.then.seed}",
    }
