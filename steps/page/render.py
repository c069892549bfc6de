"""Renders facts to HTML. Everything that comes from outside is escaped, and the page's own policy
forbids the network.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

from config import pipeline
from config.numbers import byte_size, duration, number
from steps.page.cost import said_of_cost
from steps.page.facts import Facts, Run, computed, derived, settings
from steps.page.media import Plot, Plots
from steps.page.strength import said_of_strength, standing
from steps.page.trackers import said_of_trackers
from steps.page.training_members import said_of_members
from steps.page.verdict import headline, spoken

FOLDER = Path(__file__).parent
ARENA_PLOTS = {
    "elo": "Elo ratings of the agents of every run",
    "opponents": "What the agents won against each opponent",
    "ratings": "Elo ratings of all players",
    "strength": "Elo ratings over the training",
}
"""The additional plots after self-play, with their alternative texts."""
AVERAGE_PLOTS = (
    "training",
    "training-hours",
    "evaluation",
    "evaluation-curve",
    *ARENA_PLOTS,
    "losses",
    "resources",
)
RUN_PLOTS = (
    "training",
    "training-hours",
    "evaluation-curve",
    "evaluation",
    "ratings",
    "strength",
    "losses",
    "resources",
)
OPEN_RUNS = 4
"""Up to this many runs are shown unfolded."""


def render(facts: Facts, missing: list[str]) -> str:
    """The whole page. missing: the shortcomings. The same facts give the same bytes."""
    # Inside of the page, which is one file that can be moved and sent.
    style = (FOLDER / "report.css").read_text()
    script = (FOLDER / "report.js").read_text()
    plots = Plots(facts.directory.root)
    return (
        environment()
        .get_template("report.html")
        .render(
            facts=facts,
            missing=missing,
            headline=headline(facts),
            problems=[task for task in facts.tasks_and_members if task.is_problem],
            skipped=[task for task in facts.tasks_and_members if task.state == "skipped"],
            averages={name: plot for name in AVERAGE_PLOTS if (plot := plots.get("average", name))},
            plots={run.index: _plots(plots, run) for run in facts.runs},
            longest=_longest(facts),
            open_runs=OPEN_RUNS,
            sections=settings(facts.resolved),
            derived=derived(facts.resolved)
            | computed(facts.directory, facts.resolved.vectorisation),
            members=said_of_members(facts),
            cost=said_of_cost(facts.cost),
            pruned=_said_of_pruned(facts),
            trackers=said_of_trackers(facts),
            arena=standing(facts),
            strength=said_of_strength(facts.summary or {}),
            arena_plots=ARENA_PLOTS,
            run_tasks=[step.name for step in pipeline.asked("run", facts.resolved.experiment)],
            shared_tasks=pipeline.names("experiment"),
            style=trusted(style),
            script=trusted(script),
            policy=policy_of(script),
        )
    )


@functools.cache
def environment() -> jinja2.Environment:
    """The template environment, one per process, so that the template is parsed once."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "duration": duration}
    return environment


def _said_of_pruned(facts: Facts) -> str:
    """Which runs have lost their state, how much, and when."""
    listed = facts.pruned.values()
    size = byte_size(sum(one.bytes for one in listed))
    last = max((one.time for one in listed), default="").replace("T", " ")
    return f"The checkpoints, snapshots and replays of {spoken(list(facts.pruned))} were deleted by steps.prune: {size}, {last}"


def _plots(plots: Plots, run: Run) -> dict[str, Plot]:
    return {name: plot for name in RUN_PLOTS if (plot := plots.get(f"runs/{run.index}", name))}


def _longest(facts: Facts) -> Mapping[str, float]:
    """Task -> its longest duration over the runs, in seconds. It scales the bars."""
    longest: dict[str, float] = {}
    for name in pipeline.names("run"):
        statuses = [run.tasks[name].status for run in facts.runs]
        durations = [one.duration_s for one in statuses if one is not None and one.duration_s]
        longest[name] = max(durations, default=1.0)
    return longest


def trusted(own: str) -> Any:
    """Mark text of this package as safe, so that it is not escaped."""
    from markupsafe import Markup

    return Markup(own)  # noqa: S704


def policy_of(script: str) -> str:
    """A content security policy that allows this page's script, inline style, and the plots and
    films of this directory, and nothing else.
    """
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # Opened from the file system, a page has no origin that 'self' could mean.
    own = "'self' file:"
    return f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data: {own}; media-src {own}"
