"""The experiment as an Argo `Workflow`: the figure of the README.

prepare ─▶ runs[i] ─────────────────────────────────────┐
             train ─▶ evaluate ─▶ play                  │ all runs ended,
                 │        └─────▶ plot-evaluation       │ however they ended
                 ├──▶ evaluate-snapshots × M            │
                 │        ├─────▶ evaluation-curve      │
                 │        └─────▶ play-learning         │
                 └──▶ plot-training                     │
             track, with trackers                       │
             train-actors, with some algorithms         ▼
                                          average ─▶ plot-average

evaluate-snapshots has a pod for each part of the snapshots, as `train` lists them; with
`evaluations=0` it lists none, and then neither this step nor what needs it has a pod.

exit handler, finish: report, always last, also after a stop or a deadline. Behind it notify, if an
address is to be told; with `track`, beside it what sends the rest to trackers once it has ended
(`workflows.dag.tracking`). It is a DAG, also for one task, because the controller knows the nodes of
an exit handler by the name `….onExit` of their
boundary: after a deadline it fails the pending pod of a bare template that is retried, whose node
is called `….onExit(0)` (seen with 4.1.2).

`experiment` can be called by another DAG, any number of times in one workflow, each time with a
directory of its own: its inputs are that (`outdir`) and the parameters of this experiment as JSON,
`[{"name": …, "value": …}, …]`. As the entry it takes the workflow's parameter `outdir`, and `prepare`
reads `{{workflow.parameters.json}}`: `argo submit -p typo=1` adds a parameter, and only so is it seen
and refused. A parameter of the workflow that has the name of an input of its entry replaces that input:
one called `parameters` would take the place of all others, so `prepare` sees the workflow's, too,
and refuses it. What Argo itself reads (`READ_BY_ARGO`) becomes an output of `prepare`, which knows the
experiment, and from there an input of every template that reads it. The workflow's parameter of the
same name is the default. Only the claim holds for a whole workflow.
Who calls it knows the directories, and so its exit handler calls `report` for each of them, in a
loop over the same list: a parameter of the workflow, or an output with a `globalName`, which is
still there after a stop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from hera.workflows import DAG, Container, Parameter, Task, TaskResult, Workflow
from hera.workflows import models as m

from config import pipeline
from config.algorithms import find_algorithm
from config.algorithms.descriptor import READ_BY_ARGO
from config.cluster import Cluster, defaults
from config.described import ParameterInfo, offered
from config.pipeline import End, Need, Scope, Step
from workflows.dag import pool_fields
from workflows.dag.notice import notify, tell_after
from workflows.dag.pods import (
    OUTDIR,
    RUN,
    cpu,
    grace_period_patch,
    handed_on,
    inputs,
    inputs_of,
    outputs,
    volumes,
)
from workflows.dag.topologies import MEMBER, active_runs, beside_train, train
from workflows.dag.tracking import ALONE, WANTED, is_tracking, tracking

RESULTS: Mapping[End, Any] = {
    "succeeded": TaskResult.succeeded,
    "ended": TaskResult.succeeded | TaskResult.failed | TaskResult.errored,
}
KEEP_FINISHED_S = 7 * 24 * 3600


def build(algorithm: str, cluster: Cluster) -> Workflow:
    """The workflow of one algorithm for one cluster. Every other choice is a workflow parameter."""
    descriptor = find_algorithm(algorithm)
    arguments = _arguments(algorithm, cluster)
    with workflow(f"{descriptor.name}-", "experiment", arguments, cluster) as made:
        never = descriptor.never_set
        read = [name for name in READ_BY_ARGO[descriptor.topology] if name not in never]
        told = _told(algorithm)
        first = prepare(descriptor.topology, cluster, told, own=["parameters"], defaults=read)
        # Empty stands for the workflow's own. Their text as the default would be kept in the status of
        # three nodes: two thirds of a small workflow.
        given = Parameter(name="parameters", default="")
        experiment(
            descriptor.topology,
            cluster,
            first,
            after_training(cluster),
            given=[given],
            several_learners=descriptor.several_learners,
        )
        finish(cluster)
    return in_order(made)


def workflow(prefix: str, entry: str, arguments: Sequence[Parameter], cluster: Cluster) -> Workflow:
    """A workflow without templates. prefix: how its name begins. entry: the template to begin with."""
    return Workflow(
        api_version="argoproj.io/v1alpha1",
        kind="Workflow",
        generate_name=prefix,
        entrypoint=entry,
        on_exit="finish",
        service_account_name=cluster.service_account,
        arguments=list(arguments),
        volumes=volumes(),
        security_context=pool_fields.identity(cluster),
        image_pull_secrets=pool_fields.pull_secrets(cluster),
        pod_metadata=m.Metadata(
            labels={"app": "experiment"}
        ),  # what containers/kubernetes/network-policy.yaml selects
        pod_spec_patch=grace_period_patch(cluster),
        pod_gc=m.PodGC(strategy="OnPodSuccess", delete_delay_duration="60s"),
        ttl_strategy=m.TTLStrategy(seconds_after_completion=KEEP_FINISHED_S),
    )


def in_order(made: Workflow) -> Workflow:
    """The workflow with its DAGs first, the whole before its parts."""
    first = {
        made.entrypoint: 0, "lane": 1, "trial": 1, "rung": 1, "climb": 1, "winner": 1,
        "experiment": 2, "run": 3, "finish": 4,
    }  # fmt: skip

    def place(template: Any) -> int:
        kind = next((name for name in first if (template.name or "").startswith(str(name))), None)
        return first.get(kind, 5) if isinstance(template, DAG) else 5

    made.templates.sort(key=place)
    return made


def experiment(
    topology: str,
    cluster: Cluster,
    first: Container,
    pods: Mapping[str, Container | DAG],
    *,
    several_learners: bool,
    given: Sequence[Parameter] = (),
    last: Sequence[Container | DAG] = (),
    suffix: str = "",
) -> DAG:
    """The template of an experiment, with that of its runs. first: `prepare`. pods: the templates of
    the steps beside and after `train`. given: the inputs that `prepare` reads beside the directory. last:
    what follows all other steps of a prepared experiment, however they ended. suffix: of the templates' names,
    where a workflow has several topologies.
    """
    training = train(topology, cluster, suffix)
    members = beside_train(topology, cluster, suffix, several_learners=several_learners)
    of_run = {**pods, pipeline.TRAIN: training}
    called = [of_run[step.name] for step in pipeline.steps("run")]
    named = inputs_of([*called, *members], but=["member"])
    with DAG(name=f"run{suffix}", inputs=inputs(*named)) as run:
        _tasks("run", of_run, beside_train=members)
    with DAG(
        name=f"experiment{suffix}",
        inputs=[*inputs("outdir"), *given],
        parallelism=active_runs(topology, cluster),
    ) as whole:
        tasks = _tasks("experiment", {**pods, pipeline.PREPARE: first, pipeline.RUNS: run})
        final = pipeline.steps("experiment")[-1].name
        for one in last:
            passed_on = _passed_on_by(tasks[pipeline.PREPARE], first)
            name = str(one.name).removesuffix(ALONE)
            _call(name, one, [], tasks, passed_on)
            tasks[pipeline.PREPARE].next(tasks[name], on=TaskResult.succeeded)
            tasks[final].next(tasks[name], on=RESULTS["ended"] | TaskResult.omitted)
    return whole


def finish(cluster: Cluster) -> DAG:
    """The exit handler of a workflow of one experiment."""
    called = at_the_end(cluster)
    of_workflow = {name: f"{{{{workflow.parameters.{name}}}}}" for name in inputs_of(called)}
    templates = {str(one.name).removesuffix(ALONE): one for one in called}
    told = notify(cluster)
    with DAG(name="finish") as handler:
        tasks = _tasks("exit", templates, instead=of_workflow)
        tell_after(next(iter(tasks.values())), told)
    return handler


def after_training(cluster: Cluster) -> dict[str, Container | DAG]:
    """The templates of the steps beside and after `train`, which are the same for every topology."""
    but = (pipeline.PREPARE, pipeline.TRAIN)
    steps = (*pipeline.steps("run"), *pipeline.steps("experiment"))
    return {step.name: _template(step, cluster) for step in steps if step.name not in but}


def at_the_end(cluster: Cluster, status: str = "{{workflow.status}}") -> list[Container | DAG]:
    """The templates of an experiment's last steps. status: of the workflow; Argo knows its end in the
    exit handler only.
    """
    told = f"--workflow-status={status}"
    return [_template(step, cluster, told) for step in pipeline.steps("exit")]


def _template(step: Step, cluster: Cluster, *more: str) -> Container | DAG:
    """The template of one step: its pod, or what tolerates the failure of its pod."""
    if is_tracking(step):
        return tracking(step, cluster)
    of_run = [RUN] if step.in_run else []
    part = ["--role=part", MEMBER] if step.over else []
    own = ["outdir", *(["run"] if step.in_run else []), *(["member"] if step.over else [])]
    return cpu(
        cluster,
        step.name,
        step.module,
        own=own,
        deadline_s=step.deadline_s,
        args=[OUTDIR, *of_run, *part, *more],
        outputs=outputs(step),
    )


def prepare(
    topology: str,
    cluster: Cluster,
    told: Sequence[str],
    *,
    own: Sequence[str] = (),
    defaults: Sequence[str],
    suffix: str = "",
) -> Container:
    """The template of the first step, which records what the experiment is, and passes on what Argo
    reads of it. told: arguments that name the experiment. own: the inputs in them. defaults: the
    parameters of the workflow that hold where the experiment does not say otherwise.
    """
    step = pipeline.find(pipeline.PREPARE)
    values = [f"{name}={{{{workflow.parameters.{name}}}}}" for name in defaults]
    return cpu(
        cluster,
        f"{step.name}{suffix}",
        step.module,
        own=["outdir", *own],
        image="{{workflow.parameters.cpu_image}}",  # nobody knows yet which one the experiment wants
        deadline_s=step.deadline_s,
        args=[
            *told,
            "--call={{node.name}}",  # the same in every attempt, another in every call
            *("-p", "outdir={{inputs.parameters.outdir}}"),
            *("-p", "claim={{workflow.parameters.claim}}"),
            *(word for value in values for word in ("--default", value)),
        ],
        outputs=outputs(step, *READ_BY_ARGO[topology]),
    )


def _told(algorithm: str) -> list[str]:
    """How `prepare` learns the parameters of the one experiment of a workflow."""
    every = "--parameters={{inputs.parameters.parameters}}"
    return [f"--algorithm={algorithm}", every, "--workflow-parameters={{workflow.parameters.json}}"]


def _tasks(
    scope: Scope,
    templates: Mapping[str, Container | DAG],
    *,
    beside_train: Sequence[DAG] = (),
    instead: Mapping[str, str] | None = None,
) -> dict[str, Task]:
    """The tasks of one DAG, in the order of the table. The loop over the runs stands where their
    first row does, and needs what they need of the steps outside. instead: arguments that are no
    inputs of the DAG; what `prepare` passes on is one, too.

    Every edge names how a task must have ended: a bare dependency would also accept a skipped one.
    """
    tasks: dict[str, Task] = {}
    instead = dict(instead or {})
    for step in pipeline.STEPS:
        if step.scope == scope and step.over:
            listed = _output_of(step, tasks)
            part = {**instead, "member": "{{item}}"}
            _call(step.name, templates[step.name], step.needs, tasks, part, with_param=listed)
        elif step.scope == scope:
            _call(step.name, templates[step.name], step.needs, tasks, instead)
            if step.name == pipeline.PREPARE:
                instead |= _passed_on_by(tasks[step.name], templates[step.name])
            for beside in beside_train if step.name == pipeline.TRAIN else ():
                _call(str(beside.name), beside, step.needs, tasks, instead)
        elif step.in_run and scope == "experiment" and pipeline.RUNS not in tasks:
            needs = tuple(dict.fromkeys(n for one in pipeline.steps("run") for n in one.needs))
            listed = tasks[pipeline.PREPARE].get_parameter(pipeline.RUNS)
            run = {**instead, "run": "{{item}}"}
            template = templates[pipeline.RUNS]
            _call(pipeline.RUNS, template, needs, tasks, run, with_param=listed)
    return tasks


def _passed_on_by(task: Task, template: Container | DAG) -> dict[str, str]:
    """The outputs of a task, as arguments of the same names for those that follow it."""
    listed = cast(list[Parameter], template.outputs or [])
    names = [str(one.name) for one in listed if one.name != pipeline.RUNS]
    return {name: str(task.get_parameter(name).value) for name in names}


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
    this DAG comes before the DAG itself. Its inputs are the DAG's inputs of the same names, except
    for those that stand in `instead`.
    """
    inside = [need for need in needs if need.task in tasks]
    wanted = [tasks[need.task].get_parameter(need.only_if) for need in inside if need.only_if]
    conditions = [f'"{value}" == "true"' for value in wanted]
    arguments = {input: instead.get(input, text) for input, text in handed_on(template).items()}
    if name in (pipeline.TRACK, pipeline.TRACK_REST):
        conditions.append(f'"{arguments[WANTED]}" != ""')
    when = " && ".join(conditions) or None
    # Hera cannot say in its types that a template called inside a DAG makes a task.
    task = cast(Task, template(name=name, arguments=arguments, when=when, **options))
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
