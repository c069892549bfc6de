"""`python -m workflows.local FILE.yaml -p name=value --status FILE.json`: run a manifest on this
machine.

Exit codes: 0 the workflow Succeeded, 1 it Failed or is in Error, 2 refused before anything ran, 130
interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from config.ending import end
from config.errors import BadInput, ExperimentError
from config.given import from_assignments
from config.numbers import if_any
from config.own_packages import refuse_foreign
from config.streams import prepare_streams
from workflows.dag.layout import Layout, refuse_shared_directories
from workflows.dag.references import whole
from workflows.local.engine import run
from workflows.local.errors import InvalidSpecError
from workflows.local.spec.installed import finder
from workflows.local.spec.manifest import Document, prepare, read
from workflows.local.spec.validation import check
from workflows.local.status import Node, WorkflowStatus

SUCCEEDED = 0
FAILED = 1
REFUSED = 2
INTERRUPTED = 130
SHOWN_TYPES = ("Pod", "Skipped")


def main(argv: list[str] | None = None) -> int:
    """Parse the arguments, run the workflow, print a line for every pod that starts or ends.
    Returns the exit code.
    """
    prepare_streams()
    options = _parser().parse_args(argv)
    printer = _Printer(options.status)
    try:
        refuse_foreign()
        document = whole(read(options.file), finder(options.templates))
        parameters = from_assignments(options.parameters)
        _refuse_shared_directories(document, parameters)
        begin = _on_slurm if options.slurm else _here
        status = begin(options, document, parameters, printer)
        printer.write(status)
    except BadInput as error:
        print(f"refused: {error}", file=sys.stderr)
        return REFUSED
    except (ExperimentError, OSError) as error:
        print(f"failed: {error}", file=sys.stderr)
        return FAILED
    print(f"{status.name}: {status.phase}{if_any(': ', status.message)}", flush=True)
    if status.interrupted:
        return INTERRUPTED
    if status.phase == "Succeeded":
        return SUCCEEDED
    return FAILED


def _here(
    options: argparse.Namespace,
    document: Document,
    parameters: Mapping[str, str],
    printer: _Printer,
) -> WorkflowStatus:
    if options.cluster is not None:
        raise BadInput("--cluster needs --slurm")
    return run(
        document, parameters=parameters, name=options.name, storage=options.storage, deadline=options.deadline,
        logs=options.logs, inherit=options.inherit, on_change=printer.changed, notice=printer.notice,
    )  # fmt: skip


def _on_slurm(
    options: argparse.Namespace,
    document: Document,
    parameters: Mapping[str, str],
    printer: _Printer,
) -> WorkflowStatus:
    from workflows.slurm import any_workflow

    return any_workflow.run(
        document,
        parameters,
        any_workflow.Options(
            cluster=options.cluster,
            name=options.name,
            storage=options.storage,
            deadline_s=options.deadline,
            inherit=options.inherit,
        ),
        on_change=printer.changed,
        notice=printer.notice,
    )


def _refuse_shared_directories(document: Document, parameters: Mapping[str, str]) -> None:
    """Check a workflow that calls this project's experiment. An invalid workflow is left to the
    engine, which names the error.
    """
    workflow = prepare(document, parameters=parameters)
    with contextlib.suppress(InvalidSpecError):
        check(workflow)
        arguments = {"arguments": {"parameters": workflow.parameters}}
        refuse_shared_directories(Layout.of({"spec": workflow.spec | arguments}))


def _parser() -> argparse.ArgumentParser:
    description = "Run an Argo Workflow manifest on this machine, without a cluster."
    parser = argparse.ArgumentParser(prog="python -m workflows.local", description=description)
    parser.add_argument("file", type=Path, metavar="FILE.yaml", help="the workflow")
    parser.add_argument(
        "-p",
        dest="parameters",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a workflow parameter; may be repeated",
    )
    parser.add_argument(
        "--templates",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="a file or a folder with workflow templates that the workflow refers to, beside this project's own; may be repeated",
    )
    parser.add_argument("--name", help="name of the workflow (default: the manifest's)")
    parser.add_argument(
        "--status",
        type=Path,
        metavar="FILE.json",
        help="keep the status there, as Argo's status.nodes, also while it runs",
    )
    parser.add_argument(
        "--storage",
        type=Path,
        default=Path("storage"),
        help="folder of the storage claim (default: storage)",
    )
    parser.add_argument(
        "--logs",
        type=Path,
        metavar="DIR",
        help="folder for one log file per pod (default: pods print here)",
    )
    parser.add_argument(
        "--inherit", action="append", default=[], metavar="NAME",
        help="a variable that pods get from the environment, or how its name begins (HF_*)",
    )  # fmt: skip
    parser.add_argument(
        "--deadline", type=_seconds, metavar="S", help="seconds until the workflow is stopped"
    )
    parser.add_argument(
        "--slurm",
        action="store_true",
        help="run the pods as jobs of Slurm, over a storage that all nodes share; an engine that was killed "
        "goes on when the same is started again",
    )
    parser.add_argument(
        "--cluster",
        type=Path,
        metavar="FILE",
        help="file whose section slurm has the settings for --slurm",
    )
    return parser


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}: a positive number of seconds is expected")
    return seconds


class _Printer:
    """Prints a line for every change of a pod's phase and writes the status file."""

    def __init__(self, status_file: Path | None) -> None:
        self.status_file = status_file
        self.shown: dict[str, str] = {}

    def notice(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def changed(self, status: WorkflowStatus) -> None:
        # Only a change of the phase is printed: nodes are announced at every change of a message, too.
        for node in list(status.nodes.values()):
            if (
                node.type in SHOWN_TYPES
                and node.phase != "Pending"
                and self.shown.get(node.id) != node.phase
            ):
                self.shown[node.id] = node.phase
                print(self.line(node), flush=True)
        self.write(status)

    def line(self, node: Node) -> str:
        lasted = ""
        if node.ended and node.type == "Pod":
            lasted = f" {node.duration_s:.1f} s"
        return f"{node.name}: {node.phase}{lasted}{if_any(': ', node.message)}"

    def write(self, status: WorkflowStatus) -> None:
        """Replace the file atomically, so that a reader never sees half of it."""
        if self.status_file is None:
            return
        handle, name = tempfile.mkstemp(
            dir=self.status_file.absolute().parent, prefix=f".{self.status_file.name}-"
        )
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(status.as_dict(), file, indent=1)
        Path(name).replace(self.status_file)


if __name__ == "__main__":
    end(main())
