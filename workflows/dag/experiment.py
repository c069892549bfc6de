"""The experiment as an Argo `Workflow`: the figure of the README.

prepare ─▶ runs[i] ─────────────────────────────────────┐
             train ─▶ evaluate ─▶ play                  │ all runs ended,
                 │        └─────▶ plot-evaluation       │ however they ended
                 ├──▶ evaluate-snapshots × M            │
                 │        ├─────▶ evaluation-curve      │
                 │        └─────▶ play-learning         │
                 └──▶ plot-training                     │
             train-actors, with some algorithms         ▼
                                          average ─▶ plot-average

evaluate-snapshots has a pod for each part of the snapshots, as `train` lists them; with
`evaluations=0` it lists none, and then neither this step nor what needs it has a pod.

exit handler, finish: report, always last, also after a stop or a deadline. It is a DAG for its one
task because the controller knows the nodes of an exit handler by the name `….onExit` of their
boundary: after a deadline it fails the pending pod of a bare template that is retried, whose node
is called `….onExit(0)` (seen with 4.1.2).

`experiment` can be called by another DAG, any number of times in one workflow, each time with a
directory of its own: its inputs are that (`outdir`) and the parameters of this experiment as JSON,
`[{"name": …, "value": …}, …]`. As the entry it takes the workflow's parameter `outdir`, and `prepare`
reads `{{workflow.parameters.json}}`: `argo submit -p typo=1` adds a parameter, and only so is it seen
and refused. A parameter of the workflow that has the name of an input of its entry replaces that input:
one called `parameters` would take the place of all others, so `prepare` sees the workflow's, too,
and refuses it. What Argo itself reads (`READ_BY_ARGO`) holds for a whole workflow and stays its
parameter, which `prepare` is told, too.
Who calls it knows the directories, and so its exit handler calls `report` for each of them, in a
loop over the same list: a parameter of the workflow, or an output with a `globalName`, which is
still there after a stop.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, cast

from hera.workflows import DAG, Container, Parameter, Task, TaskResult, Workflow
from hera.workflows import models as m

from config import pipeline
from config.algorithms import find_algorithm
from config.cluster import Cluster, defaults
from config.described import ParameterInfo, offered
from config.pipeline import End, Need, Scope, Step
from workflows.dag.pods import (
    OF_RUN,
    OUTDIR,
    RUN,
    UNPRIVILEGED_POD,
    cpu,
    gpu,
    grace_period_patch,
    inputs,
    outputs,
    volumes,
)
from workflows.dag.topologies import MEMBER, active_runs, beside_train, read_by_argo, train

RESULTS: Mapping[End, Any] = {
    "succeeded": TaskResult.succeeded,
    "ended": TaskResult.succeeded | TaskResult.failed | TaskResult.errored,
}
KEEP_FINISHED_S = 7 * 24 * 3600


def build(algorithm: str, cluster: Cluster) -> Workflow:
    """The workflow of one algorithm for one cluster. Every other choice is a workflow parameter."""
    descriptor = find_algorithm(algorithm)
    with Workflow(
        api_version="argoproj.io/v1alpha1",
        kind="Workflow",
        generate_name=f"{descriptor.name}-",
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
        members = beside_train(descriptor, cluster)
        with DAG(name="run", inputs=inputs(*OF_RUN)) as run:
            _tasks("run", templates, beside_train=members)
        with DAG(
            name="experiment",
            inputs=[
                *inputs("outdir"),
                # Empty stands for the workflow's own. Their text as the default would be kept in
                # the status of three nodes: two thirds of a small workflow.
                Parameter(name="parameters", default=""),
            ],
            parallelism=active_runs(descriptor, cluster),
        ):
            _tasks("experiment", templates | {pipeline.RUNS: run})
        with DAG(name="finish"):
            _tasks("exit", templates, outdir="{{workflow.parameters.outdir}}")
    # In the file the DAGs come first, the whole before its parts.
    workflow.templates.sort(
        key=lambda template: {"experiment": 0, "run": 1, "finish": 2}.get(template.name or "", 3)
    )
    return workflow


def _template(step: Step, algorithm: str, cluster: Cluster) -> Container | DAG:
    """The template of one step's pod."""
    if step.name == pipeline.TRAIN:
        return train(find_algorithm(algorithm), cluster)
    if step.name == pipeline.PREPARE:
        more = ["parameters"]
    elif step.over:
        more = ["run", "member"]
    elif step.in_run:
        more = ["run"]
    else:
        more = []
    if step.pool == "gpu":
        pod = gpu
    else:
        pod = functools.partial(cpu, deadline_s=step.deadline_s)
    return pod(
        cluster,
        step.name,
        step.module,
        inputs=inputs("outdir", *more),
        args=_args(step, algorithm),
        outputs=outputs(step),
    )


def _args(step: Step, algorithm: str) -> list[str]:
    """The arguments of a step. The first step gets all parameters and records them for the others."""
    if step.name == pipeline.PREPARE:
        read = read_by_argo(find_algorithm(algorithm))
        known = [("outdir", "{{inputs.parameters.outdir}}")]
        known += [(name, f"{{{{workflow.parameters.{name}}}}}") for name in read]
        fixed = [word for name, value in known for word in ("-p", f"{name}={value}")]
        every = "--parameters={{inputs.parameters.parameters}}"
        of_workflow = "--workflow-parameters={{workflow.parameters.json}}"
        call = "--call={{node.name}}"  # the same in every attempt, another in every call
        return [f"--algorithm={algorithm}", call, every, of_workflow, *fixed]
    more = {"experiment": [], "run": [RUN], "exit": ["--workflow-status={{workflow.status}}"]}
    part = ["--role=part", MEMBER] if step.over else []
    return [OUTDIR, *more[step.scope], *part]


def _tasks(
    scope: Scope,
    templates: Mapping[str, Container | DAG],
    *,
    beside_train: Sequence[DAG] = (),
    **instead: str,
) -> None:
    """The tasks of one DAG, in the order of the table. The loop over the runs stands where their
    first row does, and needs what they need of the steps outside. instead: arguments that are no
    inputs of the DAG.

    Every edge names how a task must have ended: a bare dependency would also accept a skipped one.
    """
    tasks: dict[str, Task] = {}
    for step in pipeline.STEPS:
        if step.scope == scope and step.over:
            listed = _output_of(step, tasks)
            part = {**instead, "member": "{{item}}"}
            _call(step.name, templates[step.name], step.needs, tasks, part, with_param=listed)
        elif step.scope == scope:
            _call(step.name, templates[step.name], step.needs, tasks, instead)
            for beside in beside_train if step.name == pipeline.TRAIN else ():
                _call(str(beside.name), beside, step.needs, tasks, instead)
        elif step.in_run and scope == "experiment" and pipeline.RUNS not in tasks:
            needs = [need for one in pipeline.steps("run") for need in one.needs]
            listed = tasks[pipeline.PREPARE].get_parameter(pipeline.RUNS)
            trained = tasks[pipeline.PREPARE].get_parameter(pipeline.TRAINED)
            run = {"run": "{{item}}", pipeline.TRAINED: str(trained.value)}
            template = templates[pipeline.RUNS]
            _call(pipeline.RUNS, template, needs, tasks, run, with_param=listed)


def _output_of(step: Step, tasks: Mapping[str, Task]) -> Parameter:
    """The list over which a step is repeated, an output of one of the tasks that it needs."""
    for need in step.needs:
        if any(one.name == step.over for one in pipeline.find(need.task).outputs):
            return tasks[need.task].get_parameter(step.over)
    raise ValueError(f"{step.name} needs no task that lists {step.over}")


def _call(
    name: str,
    template: Container | DAG,
    needs: Sequence[Need],
    tasks: dict[str, Task],
    instead: Mapping[str, str],
    **options: Any,
) -> None:
    """Add one task behind those tasks of this DAG that it needs. A task that it needs outside of
    this DAG comes before the DAG itself. Its inputs are the DAG's inputs of the same names.
    """
    inside = [need for need in needs if need.task in tasks]
    wanted = [tasks[need.task].get_parameter(need.only_if) for need in inside if need.only_if]
    when = " && ".join(f'"{value}" == "true"' for value in wanted)
    named = [parameter.name for parameter in cast(list[Parameter], template.inputs)]
    handed_on = {name: f"{{{{inputs.parameters.{name}}}}}" for name in named} | {**instead}
    # Hera cannot say in its types that a template called inside a DAG makes a task.
    task = cast(Task, template(name=name, arguments=handed_on, when=when or None, **options))
    for need in inside:
        tasks[need.task].next(task, on=RESULTS[need.end])
    tasks[name] = task


def _arguments(algorithm: str, cluster: Cluster) -> list[Parameter]:
    """The workflow's parameters: those of `config/`, with the cluster's settings as defaults."""
    of_cluster = defaults(cluster, find_algorithm(algorithm))
    return [
        Parameter(
            name=info.name,
            value=of_cluster.get(info.name, info.default),
            enum=list(info.texts) or None,  # Argo's page offers them to choose from
            description=_description(info),
        )
        for info in offered(algorithm)
    ]


def _description(info: ParameterInfo) -> str:
    allowed = f" ({info.allowed})" if info.allowed else ""
    return f"{info.help}{f' [{info.unit}]' if info.unit else ''}{allowed}"
