"""Decides whether an experiment is complete, and what its headline may claim."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from config import pipeline
from config.measures import Measure
from config.numbers import number
from config.resolved import Resolved
from steps.page.facts import Facts, Run, Task
from steps.page.strength import sample

MOST_REASONS = 5
MOST_RANGES = 12


@dataclass(frozen=True)
class Headline:
    """value: the number; empty if none may be claimed. name: what it is. interval and note: its
    uncertainty and its sample.
    """

    value: str
    name: str
    interval: str
    note: str


def shortcomings(facts: Facts) -> list[str]:
    """What makes the experiment incomplete; empty if nothing is missing.

    It checks that there are at least `min_runs` usable runs, that each of them has every film and
    plot, and that the averages exist.
    """
    usable = [run for run in facts.runs if run.usable]
    needed = facts.resolved.min_runs
    missing = []
    if len(usable) < needed:
        missing.append(f"{len(usable)} of {len(facts.runs)} runs usable, at least {needed} needed")
        missing += _paused(facts)
    missing += _missing_of_runs(usable, facts.resolved)
    if usable:
        missing += [
            f"{step.name}: {_why(facts.tasks[step.name])}"
            for step in pipeline.steps("experiment")
            if step.required and not facts.tasks[step.name].is_done
        ]
        if not missing and not _is_current(facts):
            missing.append("the averages are older than the runs")
    return missing


def _paused(facts: Facts) -> list[str]:
    """`run 3: paused at epoch 7 of 20`: one line for all runs that pause at the same epoch."""
    runs: dict[str, list[int]] = {}
    for run in facts.runs:
        if run.usable.state == "paused":
            runs.setdefault(run.usable.reason or "", []).append(run.index)
    return _at_most([f"{spoken(indices)}: {where}" for where, indices in runs.items()])


def _missing_of_runs(usable: list[Run], resolved: Resolved) -> list[str]:
    """`play of 97 runs (0–3, 7, …): not started`: one line for all runs that lack the same for the
    same reason.
    """
    asked = pipeline.asked("run", resolved.experiment)
    required = [step for step in asked if step.required]
    of_skipped = [step for step in required if not pipeline.may_be_left_out(step)]
    runs: dict[tuple[str, str], list[int]] = {}
    for run in usable:
        needed = of_skipped if run.usable.state == "skipped" else required
        for step in needed:
            if not run.tasks[step.name].is_done:
                runs.setdefault((step.name, _why(run.tasks[step.name])), []).append(run.index)
    by_task: dict[str, list[str]] = {step.name: [] for step in required}
    for (name, why), indices in runs.items():
        by_task[name].append(f"{name} of {spoken(indices)}: {why}")
    return [line for lines in by_task.values() for line in _at_most(lines)]


def _at_most(lines: list[str]) -> list[str]:
    """The first few lines. All reasons may differ, and the page shows each beside its task."""
    more = len(lines) - MOST_REASONS
    return lines if more <= 0 else [*lines[:MOST_REASONS], f"and {more} more reasons"]


def spoken(indices: list[int]) -> str:
    """`run 3`; `97 runs (0-3, 7, 9-100)`, with at most a few ranges."""
    if len(indices) == 1:
        return f"run {indices[0]}"
    return f"{len(indices)} runs ({spoken_numbers(indices)})"


def spoken_numbers(indices: list[int]) -> str:
    """`0-3, 7, 9-100`, with at most a few ranges."""
    ranges: list[list[int]] = []
    for index in indices:
        if ranges and ranges[-1][1] == index - 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    named = [str(first) if first == last else f"{first}-{last}" for first, last in ranges]
    if len(named) > MOST_RANGES:
        named = [*named[:MOST_RANGES], "…"]
    return ", ".join(named)


def _why(task: Task) -> str:
    return task.reason or task.state


def _is_current(facts: Facts) -> bool:
    """Whether the averages were made from exactly the runs that are usable now."""
    return facts.summary is not None and facts.summary.get("used") == [
        run.index for run in facts.runs if run.usable
    ]


def headline(facts: Facts) -> Headline:
    """The result in one number, with the interval that the number of runs allows."""
    usable = [run for run in facts.runs if run.usable]
    scores: dict[str, Any] = (facts.summary or {}).get("evaluation", {})
    experiment = facts.resolved.experiment
    measure = facts.resolved.measure
    if not usable:
        return Headline("", "no usable run", "", "nothing is averaged and nothing is claimed")
    if not _is_current(facts):
        return Headline(
            "",
            "not averaged",
            "",
            f"{len(usable)} of {len(facts.runs)} runs usable; average has not run over them",
        )
    skipped = [run for run in usable if run.usable.state == "skipped"]
    count = scores.get("n") or 0
    if not count:
        return Headline(
            "",
            "no run evaluated",
            "",
            f"no training {measure.in_training.name} reached evaluate_above = {experiment.evaluate_above}",
        )
    kind = "runs above the threshold" if skipped else "runs"
    episodes = f"{experiment.evaluation_episodes} fresh episodes each, {facts.resolved.evaluation_policy} policy"
    if facts.resolved.descriptor.has_workers:
        episodes = sample(facts.resolved)
    if cut := sum(run.cut_episodes for run in usable):
        episodes += f", {cut} of them cut at evaluation_steps because they did not end"
    note = f"n = {count} of {len(facts.runs)} {kind}, {episodes}"
    name, result = measure.result(scores)
    value = measure.shown(result)
    if count == 1:
        return Headline(value, f"{name} of the final policy", "n = 1, no interval", note)
    interval = f"95 % t interval of the mean {_interval(scores['t_interval'], measure)}"
    remark = f" ({scores['remark']})" if scores.get("remark") else ""
    if scores.get("iqm") is None:
        interval += remark
    else:
        bootstrap = f"95 % bootstrap interval {_interval(scores['iqm_interval'], measure)}{remark}"
        interval = f"{bootstrap}; mean {measure.shown(scores['mean'])}, {interval}"
    return Headline(value, f"{name} of the final policies", interval, note)


def _interval(ends: list[float], measure: Measure) -> str:
    return f"{number(ends[0])} to {measure.shown(ends[1])}"
