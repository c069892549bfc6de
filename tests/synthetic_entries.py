"""Entries of a comparison as readers return them, without any file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from steps.comparison.compare import compare
from steps.comparison.compared import Comparison
from steps.comparison.entries import ComparedRun, Entry
from steps.statistics.curves import Curve

STEPS = 10_000
MS_PER_STEP = 360


def entry(
    label: str,
    game: str,
    scores: Sequence[float | None],
    *,
    last: int = STEPS,
    made_by: str = "rl-training-dag",
    runs: Sequence[ComparedRun] = (),
    **fields: Any,
) -> Entry:
    """An entry with one run for each score; None: a run that has failed. Curves rise to the score in
    `last` steps."""
    made = [run(str(index), score, last) for index, score in enumerate(scores)]
    fields = {"steps": STEPS, "evaluation": "20 greedy episodes of the final policy", **fields}
    return Entry(
        label=label,
        game=game,
        runs=(*made, *runs),
        directory=Path(f"/results/{label}-{game}"),
        made_by=made_by,
        **fields,
    )


def run(name: str, score: float | None, last: int = STEPS, **fields: Any) -> ComparedRun:
    """A run whose training goes up to its score in a straight line, at an even speed."""
    if score is None:
        fields = {"left_out": "failed: non-finite loss", **fields}
    steps = np.linspace(last / 20, last, 20).astype(np.int64)
    values = (score or 1.0) * steps / last
    return ComparedRun(
        name=name,
        score=score,
        episodes=0 if score is None else 20,
        steps=last,
        **{
            "training": Curve(steps=steps, values=values),
            "times": Curve(steps=steps * MS_PER_STEP, values=values),
            **fields,
        },
    )


def compared(*entries: Entry, baseline: str | None = None, **given: Any) -> Comparison:
    """The comparison of entries."""
    return compare(
        entries, title="a title", baseline=baseline, ranges=given.pop("ranges", {}), **given
    )


def scores(count: int, centre: float, seed: int = 0) -> list[float]:
    """Scores that differ, of so many runs."""
    return list(centre + 10 * np.random.default_rng(seed).standard_normal(count))
