"""The experiment as an Argo `Workflow`: the figure of the README.

prepare ─▶ runs[i] ─────────────────────────────────────┐
             train ─▶ evaluate ─▶ play                  │ all runs ended,
                 │        └─────▶ plot-evaluation       │ however they ended
                 └──▶ plot-training                     ▼
                                          average ─▶ plot-average

exit handler, finish: report, always last, also after a stop or a deadline. It is a DAG for its one
task because the controller knows the nodes of an exit handler by the name `….onExit` of their
boundary: after a deadline it fails the pending pod of a bare template that is retried, whose node
is called `….onExit(0)` (seen with 4.1.2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from hera.workflows import DAG, Container, Parameter, Task, TaskResult, Workflow
from hera.workflows import models as m

from config import pipeline
from config.algorithms import find_algorithm
from config.cluster import Cluster
from config.described import ParameterInfo, parameters
from config.pipeline import End, Need, Scope, Step
from workflows.dag.pods import (
    OUTDIR,
    RUN,
    UNPRIVILEGED_POD,
    cpu,
    gpu,
    grace_period_patch,
    outputs,
    volumes,
)
from workflows.dag.topologies import train_stage

RESULTS: Mapping[End, Any] = {
    "succeeded": TaskResult.succeeded,
    "ended": TaskResult.succeeded | TaskResult.failed | TaskResult.errored,
}
KEEP_FINISHED_S = 7 * 24 * 3600


def build(algorithm: str, cluster: Cluster) -> Workflow:
    """The workflow of one algorithm on one cluster; every other choice is a workflow parameter."""
    with Workflow(
        api_version="argoproj.io/v1alpha1",
        kind="Workflow",
        generate_name=f"{find_algorithm(algorithm).name}-",
        entrypoint="experiment",
        on_exit="finish",
        service_account_name=cluster.service_account,
        arguments=_arguments(algorithm, cluster),
        volumes=volumes(),
        security_context=UNPRIVILEGED_POD,
        pod_metadata=m.Metadata(
            labels={"app": "experiment"}
        ),  # what containers/kubernetes/network-policy.yaml selects
        pod_spec_patch=grace_period_patch(cluster),
        pod_gc=m.PodGC(strategy="OnPodSuccess", delete_delay_duration="60s"),
        ttl_strategy=m.TTLStrategy(seconds_after_completion=KEEP_FINISHED_S),
    ) as workflow:
        templates = {step.name: _template(step, algorithm, cluster) for step in pipeline.STEPS}
        with DAG(name="run", inputs=[Parameter(name="run")]) as run:
            _tasks("run", templates, arguments={"run": run.get_parameter("run")})
        with DAG(name="experiment", parallelism=cluster.parallelism):
            _tasks("experiment", templates | {pipeline.RUNS: run})
        with DAG(name="finish"):
            _tasks("exit", templates)
    # In the file the DAGs come first, the whole before its parts.
    workflow.templates.sort(
        key=lambda template: {"experiment": 0, "run": 1, "finish": 2}.get(template.name or "", 3)
    )
    return workflow


def _template(step: Step, algorithm: str, cluster: Cluster) -> Container | DAG:
    """The pod of one step; of the training, as many as its topology has."""
    run = Parameter(name="run")
    if step.name == pipeline.TRAIN:
        return train_stage(find_algorithm(algorithm).topology, cluster, run)
    pod = gpu if step.pool == "gpu" else cpu
    return pod(
        cluster,
        step.name,
        step.module,
        inputs=[run] if step.in_run else None,
        args=_args(step, algorithm),
        outputs=outputs(step),
    )


def _args(step: Step, algorithm: str) -> list[str]:
    if step.name == pipeline.PREPARE:
        # Every parameter, as JSON: `argo submit -p typo=1` adds a parameter, and only so is it seen
        # and refused.
        return [f"--algorithm={algorithm}", "--parameters={{workflow.parameters.json}}"]
    more = {"experiment": [], "run": [RUN], "exit": ["--workflow-status={{workflow.status}}"]}
    return [OUTDIR, *more[step.scope]]


def _tasks(scope: Scope, templates: Mapping[str, Container | DAG], **options: Any) -> None:
    """The tasks of one DAG, in the order of the table. The loop over the runs stands where their
    first row does, and needs what they need of the steps outside.

    Every edge names how a task must have ended: a bare dependency would also accept a skipped one.
    """
    tasks: dict[str, Task] = {}
    for step in pipeline.STEPS:
        if step.scope == scope:
            _call(step.name, templates[step.name], step.needs, tasks, **options)
        elif step.in_run and scope == "experiment" and pipeline.RUNS not in tasks:
            needs = [need for one in pipeline.steps("run") for need in one.needs]
            listed = tasks[pipeline.PREPARE].get_parameter(pipeline.RUNS)
            looped = {"with_param": listed, "arguments": {"run": "{{item}}"}}
            _call(pipeline.RUNS, templates[pipeline.RUNS], needs, tasks, **looped)


def _call(
    name: str,
    template: Container | DAG,
    needs: Sequence[Need],
    tasks: dict[str, Task],
    **options: Any,
) -> None:
    """Add one task behind those of this DAG that it needs; the others are behind the DAG itself."""
    inside = [need for need in needs if need.task in tasks]
    wanted = [tasks[need.task].get_parameter(need.only_if) for need in inside if need.only_if]
    when = " && ".join(f'"{value}" == "true"' for value in wanted)
    # Hera cannot say in its types that a template called inside a DAG makes a task.
    task = cast(Task, template(name=name, when=when or None, **options))
    for need in inside:
        tasks[need.task].next(task, on=RESULTS[need.end])
    tasks[name] = task


def _arguments(algorithm: str, cluster: Cluster) -> list[Parameter]:
    """The workflow's parameters: those of `config/`, with the cluster's images and storage claim as
    defaults.
    """
    of_cluster = {
        "gpu_image": cluster.gpu_image,
        "cpu_image": cluster.cpu_image,
        "claim": cluster.claim,
    }
    return [
        Parameter(
            name=info.name,
            value=of_cluster.get(info.name, info.default),
            enum=list(info.texts) or None,  # Argo's page offers them to choose from
            description=_description(info),
        )
        for info in parameters(algorithm)
    ]


def _description(info: ParameterInfo) -> str:
    allowed = f" ({info.allowed})" if info.allowed else ""
    return f"{info.help}{f' [{info.unit}]' if info.unit else ''}{allowed}"
