"""A study as an Argo `Workflow`: many experiments, and their comparison.

plan ─▶ round ─▶ compare ─▶ plot-comparison

round:  experiments[i] ───────────────┐ all experiments ended,
        experiments-with-actors[i] ───┤ however they ended
        experiments-with-workers[i] ──┘
                                      ▼
                                      decide ─▶ round, with more runs of what is not decided

exit handler, finish: report-study, always last, which makes the reports of experiments that did not come
to their own; behind it notify, if an address is to be told.

`decide` is only there for a study whose number of runs may grow.

Each item is the name of a cell, which is also the name of its directory: names of nodes contain items,
and each node of a status contains its name, so an item is short. What else a cell is stands in the
file that `plan` has written, where the `prepare` of its experiment reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from hera.workflows import DAG, Container, Parameter, Task, TaskResult, Workflow

from config import pipeline
from config.algorithms.descriptor import ACTOR_LEARNER, SELF_PLAY, SINGLE
from config.cluster import Cluster
from config.study.workflow_parameters import OF_CLUSTER, OF_WORKFLOW, PART, WHOLE
from workflows.dag.experiment import (
    RESULTS,
    after_training,
    at_the_end,
    experiment,
    in_order,
    prepare,
    workflow,
)
from workflows.dag.notice import notify, tell_after
from workflows.dag.pods import cpu, inputs, outputs

SUFFIXES = {SINGLE: "", ACTOR_LEARNER: "-with-actors", SELF_PLAY: "-with-workers"}
"""Of the names of templates that differ between topologies."""
DIRECTORY = "--outdir={{workflow.parameters.outdir}}"
IMAGE = "{{workflow.parameters.cpu_image}}"
DEFAULTS = tuple(name for name in OF_CLUSTER if name != "claim")
"""Parameters of the workflow that hold for experiments whose cells do not say otherwise."""
ENDED = TaskResult.succeeded | TaskResult.failed | TaskResult.errored | TaskResult.skipped
"""A loop without items, over a topology that no algorithm of the study has, is skipped."""
LISTED = (*pipeline.EXPERIMENTS.values(), pipeline.AGAIN)
"""The inputs of a round: its experiments, and whether there may be another one."""


def build_study(cluster: Cluster, active: int) -> Workflow:
    """The workflow of any study for one cluster. active: how many of its experiments are active at the same
    time.
    """
    values = {PART: WHOLE} | {name: getattr(cluster, name) for name in OF_CLUSTER}
    arguments = [
        Parameter(name=name, value=values.get(name, ""), description=description)
        for name, description in OF_WORKFLOW.items()
    ]
    with workflow("study-", "study", arguments, cluster) as made:
        own = {step.name: _of_study(cluster, step) for step in pipeline.STUDY_STEPS}
        pods = after_training(cluster)
        last = at_the_end(cluster, "Running")
        cells = {}
        for topology, suffix in SUFFIXES.items():
            told = ["--study"]
            first = prepare(topology, cluster, told, defaults=DEFAULTS, suffix=suffix)
            cells[topology] = experiment(
                topology,
                cluster,
                first,
                pods,
                several_learners=topology == ACTOR_LEARNER,
                last=last,
                suffix=suffix,
            )
        one_round = _round(own[pipeline.DECIDE], cells, active)
        with DAG(name="study"):
            _tasks(own, one_round)
        notice = notify(cluster)
        with DAG(name="finish"):
            for step in pipeline.STUDY_STEPS:
                if step.scope == "study-exit":
                    tell_after(_task(own[step.name]), notice)
    return in_order(made)


def _round(decide: Container, cells: Mapping[str, DAG], active: int) -> DAG:
    """The template of one round, which calls itself. cells: the template of an experiment of each
    topology.
    """
    with DAG(name=pipeline.ROUND, inputs=inputs(*LISTED), parallelism=active) as one_round:
        decided = _task(decide, when=f"{_given(pipeline.AGAIN)} == true")
        for topology, template in cells.items():
            _loop(pipeline.EXPERIMENTS[topology], template).next(decided, on=ENDED)
        more = f"{decided.get_parameter(pipeline.AGAIN).value} == true"
        _call(one_round, pipeline.AGAIN, decided, when=more)
    return one_round


def _tasks(own: Mapping[str, Container], one_round: DAG) -> None:
    """The tasks of the study, in the order of the table, with the first round behind `plan`. own: the
    templates of the steps.
    """
    tasks: dict[str, Task] = {}
    for step in pipeline.STUDY_STEPS:
        if step.scope != "study":
            continue
        task = tasks[step.name] = _task(own[step.name])
        for need in step.needs:
            tasks[need.task].next(task, on=RESULTS[need.end])
        if step.name == pipeline.PLAN:
            tasks[pipeline.ROUND] = _call(one_round, pipeline.ROUND, task)


def _call(one_round: DAG, name: str, listing: Task, **options: Any) -> Task:
    """A task that does the round of the experiments that another task lists."""
    listed = {output: str(listing.get_parameter(output).value) for output in LISTED}
    called = cast(Task, one_round(name=name, arguments=listed, **options))
    listing.next(called, on=TaskResult.succeeded)
    return called


def _of_study(cluster: Cluster, step: pipeline.Step) -> Container:
    """The template of a step that works on the whole study. `plan` learns what was asked."""
    more = []
    if step.name == pipeline.PLAN:
        more = ["--workflow-parameters={{workflow.parameters.json}}"]
    if step.scope == "study-exit":
        part = "--part={{workflow.parameters.part}}"
        more = ["--workflow-status={{workflow.status}}", part]
    return cpu(
        cluster,
        step.name,
        step.module,
        own=(),
        image=IMAGE,
        deadline_s=step.deadline_s,
        args=[DIRECTORY, *more],
        outputs=outputs(step),
    )


def _task(template: Container, **options: Any) -> Task:
    # Hera cannot say in its types that a template called inside a DAG makes a task.
    return cast(Task, template(name=template.name, **options))


def _loop(name: str, template: DAG) -> Task:
    """The experiments of one topology, each in its directory."""
    outdir = "{{workflow.parameters.outdir}}/experiments/{{item}}"
    arguments = {"outdir": outdir}
    return cast(Task, template(name=name, arguments=arguments, with_param=_given(name)))


def _given(name: str) -> str:
    return f"{{{{inputs.parameters.{name}}}}}"
