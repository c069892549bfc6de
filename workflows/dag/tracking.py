"""The pods that send an experiment to trackers, where the parameter `track` names some.

    track        beside the training of a run, whose files it follows
    track-rest   beside `report`, for whose end it waits: sends what is left of every run

Nothing needs them, and how they end is nobody's failure. Argo tolerates that (`continueOn`) only in a
DAG without `depends`, so each is a DAG of its own. Both are leaves where they are called. If
`track-rest` stood behind `report`, it would be the only leaf of the exit handler, whose end then said
nothing of `report`.
"""

from __future__ import annotations

from hera.workflows import DAG
from hera.workflows import models as m

from config import pipeline
from config.cluster import Cluster
from config.pipeline import Step
from workflows.dag.pods import OUTDIR, RUN, handed_on, inputs, inputs_of, tracker

ALONE = "-alone"
"""The end of the name of a DAG with one pod."""
WANTED = "track"
"""The input that names the trackers. A task whose template has it is skipped where it is empty."""


def tracking(step: Step, cluster: Cluster) -> DAG:
    """The template of one of the two steps."""
    of_run = [RUN] if step.in_run else []
    pod = tracker(
        cluster,
        step.name,
        step.module,
        own=["outdir", *(["run"] if step.in_run else [])],
        deadline_s=step.deadline_s,
        args=[OUTDIR, *of_run],
    )
    with DAG(name=f"{step.name}{ALONE}", inputs=inputs(*inputs_of([pod]), WANTED)) as alone:
        pod(
            name="send",
            arguments=handed_on(pod),
            continue_on=m.ContinueOn(failed=True, error=True),
        )
    return alone


def is_tracking(step: Step) -> bool:
    """Whether a step is one of the two."""
    return step.name in (pipeline.TRACK, pipeline.TRACK_REST)
