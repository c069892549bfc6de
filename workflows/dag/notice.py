"""The last task of every workflow's exit handler: it tells a web address how the workflow ended.

It is skipped without an address. A skipped task inherits the phase of the one before it, and `notify`
itself ends with 5 unless the report succeeded: a failed report stays a failed workflow.
"""

from __future__ import annotations

from typing import cast

from hera.workflows import Container, Task, TaskResult

from config import pipeline
from config.cluster import Cluster
from config.webhook import ADDRESS_VARIABLE, NOTIFY
from workflows.dag.pods import cpu

REPORTED = "reported"
ENDED = TaskResult.succeeded | TaskResult.failed | TaskResult.errored
IS_WANTED = f"{{{{=workflow.parameters.{NOTIFY} != ''}}}}"
"""As an expression, whose value is true or false: the address stands in no message of a node."""


def notify(cluster: Cluster) -> Container:
    """The template of the step."""
    step = pipeline.NOTICE
    return cpu(
        cluster,
        step.name,
        step.module,
        own=[REPORTED],
        image="{{workflow.parameters.cpu_image}}",
        deadline_s=step.deadline_s,
        environment={ADDRESS_VARIABLE: f"{{{{workflow.parameters.{NOTIFY}}}}}"},
        args=[
            "--outdir={{workflow.parameters.outdir}}",
            "--workflow-status={{workflow.status}}",
            f"--reported={{{{inputs.parameters.{REPORTED}}}}}",
            "--duration={{workflow.duration}}",
        ],
    )


def tell_after(report: Task, template: Container) -> None:
    """Add the task behind the report, inside of the exit handler's DAG. template: `notify`, which was
    made outside of it.
    """
    status = f"{{{{tasks.{report.name}.status}}}}"
    # Hera cannot say in its types that a template called inside a DAG makes a task.
    told = cast(Task, template(name=template.name, arguments={REPORTED: status}, when=IS_WANTED))
    report.next(told, on=ENDED)
