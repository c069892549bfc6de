"""The main program of every step: `python -m steps.<name> --outdir … [--run …]`."""

from __future__ import annotations

import argparse
import inspect
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from config import pipeline
from config.errors import BadInput, ExperimentError, WrongDirectory
from config.outdir import check_outdir
from config.own_packages import refuse_foreign
from config.streams import prepare_streams
from steps.command.attempt import Answer, Attempt, one_line, print_traceback
from steps.command.context import StepContext
from steps.command.members import member_of
from steps.command.stop import StopRequest
from steps.directory import owner, processes
from steps.directory.experiment import read_experiment
from steps.directory.files import refuse_links, write_atomically
from steps.directory.layout import ExperimentDirectory
from steps.directory.network_storage import may_be_late, wait_until_seen
from steps.directory.status import Status, read_status


def run_step(
    task: str,
    step: Callable[[StepContext], Answer],
    *,
    inputs: Callable[[StepContext], Mapping[str, Any]] | None = None,
    complete: Callable[[StepContext], bool] = lambda context: True,
    outputs: Callable[[StepContext, Status], Mapping[str, str]] = lambda context, status: {},
    arguments: Callable[[argparse.ArgumentParser], None] = lambda parser: None,
    argv: Sequence[str] | None = None,
    beside_workflow: bool = False,
) -> int:
    """Run one step and return its exit code.

    task: its name in the table of steps, which says whether it belongs to a run. step: does the
    work and returns details for the status file, or `Skipped` or `Paused`, or raises. inputs: what the result
    depends on, small and as JSON. After a success with equal inputs, and if `complete` says that
    its files are intact, a repeat returns 0 at once and changes no file; without `inputs` the step
    always runs. beside_workflow: whether it may be run by hand while a workflow owns the directory, because
    its files disturb nothing of that. outputs: Argo's output parameters, computed from the status of a success, new or
    old. arguments: adds options of this step.
    """
    # First of all: a SIGTERM that arrives while modules are imported must not kill the process.
    stop = StopRequest()
    stop.install()
    parsed = _parser(pipeline.find(task), step, arguments).parse_args(argv)
    return guarded(
        task,
        lambda: _run(
            begin_context(task, parsed, stop, beside_workflow=beside_workflow),
            step,
            inputs,
            complete,
            outputs,
        ),
    )


def guarded(task: str, work: Callable[[], int]) -> int:
    """Do the work and return the exit code. An exception becomes its exit code and one line on
    stderr; an unexpected one is printed with its traceback, too.
    """
    prepare_streams()
    _let_nobody_else_write()
    try:
        refuse_foreign()
        return work()
    except ExperimentError as error:
        print(f"{task}: {one_line(error)}", file=sys.stderr)
        return error.exit_code
    except Exception as error:
        print_traceback(error)
        return 1


def _let_nobody_else_write() -> None:
    """Set a sensible umask: Argo's emissary starts every command with umask 0, so that everybody
    could write all files on the shared storage.
    """
    if umask := os.umask(0o022):
        os.umask(umask)


def _parser(
    row: pipeline.Step,
    step: Callable[..., Any],
    arguments: Callable[[argparse.ArgumentParser], None],
) -> argparse.ArgumentParser:
    """The parser of the options that the DAG gives to a step, and of the step's own."""
    parser = command_parser(row.module, step, row.in_run)
    if row.scope == "exit":
        parser.add_argument(
            "--workflow-status",
            default="",
            metavar="STATUS",
            help="how the workflow ended before: {{workflow.status}}",
        )
    arguments(parser)
    return parser


def command_parser(module: str, described_by: object, in_run: bool) -> argparse.ArgumentParser:
    """The parser of every command that works on a directory. described_by: the function or the module
    whose docstring is its help.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=inspect.getdoc(described_by) or "",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--outdir",
        required=True,
        help="directory of the experiment, as prepare made it, or of the study",
    )
    if in_run:
        parser.add_argument("--run", required=True, type=int, help="index of the run, from 0")
    return parser


def begin_context(
    task: str, parsed: argparse.Namespace, stop: StopRequest, *, beside_workflow: bool = False
) -> StepContext:
    """Check the arguments and return the step's context. Raises `BadInput` or `WrongDirectory`
    before anything is written. beside_workflow: see `run_step`.
    """
    directory = ExperimentDirectory(check_outdir(parsed.outdir, os.environ.get("STORAGE") or None))
    me = owner.from_environment()

    def look() -> None:
        if not directory.root.is_dir():
            raise BadInput(f"no directory {directory.root}: prepare makes it")
        refuse_links(directory, getattr(parsed, "run", None))
        if me is not None:
            owner.take_back(directory.owner_json, me.uid)
        if me is not None or not beside_workflow:
            owner.check(directory.owner_json, me.uid if me else None, on_wait=stop.check)

    def look_on_network() -> None:
        look()
        read_experiment(directory)

    if me is None or not may_be_late(directory.root):
        look()
    else:
        # In a workflow `prepare` has just written what is looked for, perhaps on another node.
        wait_until_seen(look_on_network, stop.check, "what prepare has written")
    context = StepContext(
        task=task,
        directory=directory,
        run_index=getattr(parsed, "run", None),
        owner_uid=me.uid if me else None,
        arguments=parsed,
        stop=stop,
        member=member_of(parsed),
    )
    if (
        context.run_index is not None
        and not 0 <= context.run_index < context.resolved.experiment.runs
    ):
        raise BadInput(
            f"no run {context.run_index}: the experiment has the runs 0 to {context.resolved.experiment.runs - 1}"
        )
    context.previous = read_status(context.status_path)
    return context


def _run(
    context: StepContext,
    step: Callable[[StepContext], Answer],
    inputs: Callable[[StepContext], Mapping[str, Any]] | None,
    complete: Callable[[StepContext], bool],
    outputs: Callable[[StepContext, Status], Mapping[str, str]],
) -> int:
    # Through JSON, because they are compared with those in a status file: tuples become lists.
    context.inputs = None if inputs is None else json.loads(json.dumps(inputs(context)))
    previous = context.previous
    if previous is not None and _is_finished(previous, context) and complete(context):
        write_outputs(outputs(context, previous))
        print(f"{context.title}: {previous.state} before, {previous.ended}; nothing to do")
        return 0
    refuse_second_process(context)
    ended = Attempt(context).run(lambda: step(context))
    if ended.exit_code == 0:
        write_outputs(outputs(context, ended))
    return ended.exit_code or 0


def refuse_second_process(context: StepContext) -> None:
    """Raise `WrongDirectory` if another process of this machine is running the same step: each file
    has one writer.
    """
    previous = context.previous
    if previous is None or previous.state != "running" or previous.process == processes.identity():
        return
    if processes.is_alive(previous.process):
        raise WrongDirectory(f"{context.title} is running already, in process {previous.process}")


def _is_finished(previous: Status, context: StepContext) -> bool:
    return previous.ended_well and previous.inputs is not None and previous.inputs == context.inputs


def write_outputs(outputs: Mapping[str, str]) -> None:
    """Write Argo's output parameters, a small file each, into the folder that the variable
    `OUTPUTS` names. Does nothing without it, as when a step is run by hand.
    """
    folder = os.environ.get("OUTPUTS")
    if folder:
        for name, value in outputs.items():
            write_atomically(Path(folder) / name, value)
