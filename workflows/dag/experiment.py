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

from typing import Any, cast

from hera.workflows import DAG, Container, Parameter, Task, TaskResult, Workflow
from hera.workflows import models as m

from config.algorithms import find_algorithm
from config.cluster import Cluster
from config.described import ParameterInfo, parameters
from workflows.dag.pods import (
    OUTDIR,
    RUN,
    UNPRIVILEGED_POD,
    cpu,
    grace_period_patch,
    output,
    volumes,
)
from workflows.dag.topologies import train_stage

ENDED = TaskResult.succeeded | TaskResult.failed | TaskResult.errored
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
        # Every parameter goes to `prepare`, as JSON: `argo submit -p typo=1` adds a parameter, and
        # only so is it seen and refused.
        prepare = cpu(
            cluster,
            "prepare",
            args=[f"--algorithm={algorithm}", "--parameters={{workflow.parameters.json}}"],
            outputs=[output("runs")],
        )
        one_run = _run(algorithm, cluster)
        average = cpu(cluster, "average", args=[OUTDIR])
        plot_average = cpu(cluster, "plot-average", args=[OUTDIR])
        report = cpu(cluster, "report", args=[OUTDIR, "--workflow-status={{workflow.status}}"])
        with DAG(name="experiment", parallelism=cluster.parallelism):
            prepared = _task(prepare)
            runs = _task(
                one_run,
                name="runs",
                arguments={"run": "{{item}}"},
                with_param=prepared.get_parameter("runs"),
            )
            averaged, plotted = _task(average), _task(plot_average)
            prepared.next(runs, on=TaskResult.succeeded)
            runs.next(averaged, on=ENDED)
            averaged.next(plotted, on=TaskResult.succeeded)
        with DAG(name="finish"):
            _task(report)
    # In the file the DAGs come first, the whole before its parts.
    workflow.templates.sort(
        key=lambda template: {"experiment": 0, "run": 1, "finish": 2}.get(template.name or "", 3)
    )
    return workflow


def _run(algorithm: str, cluster: Cluster) -> DAG:
    """The DAG of one run. Every edge asks for success: a bare dependency would also accept a
    skipped evaluation.
    """
    run = Parameter(name="run")
    train = train_stage(find_algorithm(algorithm).topology, cluster, run)

    def after_training(name: str) -> Container:
        return cpu(cluster, name, inputs=[run], args=[OUTDIR, RUN])

    evaluate, play = after_training("evaluate"), after_training("play")
    plot_training, plot_evaluation = (
        after_training("plot-training"),
        after_training("plot-evaluation"),
    )
    with DAG(name="run", inputs=[run]) as dag:
        arguments = {"run": dag.get_parameter("run")}
        trained = _task(train, arguments=arguments)
        wanted = f'"{trained.get_parameter("evaluate")}" == "true"'
        evaluated = _task(evaluate, arguments=arguments, when=wanted)
        filmed = _task(play, arguments=arguments)
        trained.next(evaluated, on=TaskResult.succeeded)
        trained.next(_task(plot_training, arguments=arguments), on=TaskResult.succeeded)
        evaluated.next(filmed, on=TaskResult.succeeded)
        evaluated.next(_task(plot_evaluation, arguments=arguments), on=TaskResult.succeeded)
    return dag


def _task(template: Container | DAG, **options: Any) -> Task:
    """A template called inside a DAG: Hera cannot say in its types that this makes a task."""
    return cast(Task, template(**options))


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
