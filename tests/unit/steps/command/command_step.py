"""A step for the tests of `steps.command`: does what `--do` says, as a process of its own."""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from config import errors
from steps.command.context import Skipped, StepContext
from steps.command.main import run_step
from steps.directory import files
from steps.directory.status import Status

PRINTED = (
    "doing print",
    "from a descriptor",
    "from C",
    "from a child",
    "average: succeeded in",
)
"""What `--do print` leaves in its log."""


def step(context: StepContext) -> dict[str, Any] | Skipped | None:
    """Do one of several things."""
    what = context.arguments.do
    print(f"doing {what}", flush=True)
    if context.arguments.shut_out:
        context.status_path.with_name(".average.attempt").write_text("the next one")
    if what == "print":
        os.write(2, b"from a descriptor\n")
        ctypes.CDLL(None).puts(b"from C")
        ctypes.CDLL(None).fflush(None)
        subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
    if what == "flood":
        print("x" * 2_000_000, flush=True)
    if what == "sleep":
        while True:
            context.check_stop()
            time.sleep(0.01)
    if what == "ignore":
        time.sleep(3600)
    if what == "crash":
        os.abort()
    if what == "swept":
        sweep_next_temporary()
        context.note(noted=1)
        sweep_next_temporary()  # that of the last status
    if what == "bug":
        raise ZeroDivisionError("two\nlines")
    if what == "skip":
        return Skipped("nothing to do", {"why": 1})
    if hasattr(errors, what):
        raise getattr(errors, what)(f"message of {what}")
    return {"product": context.arguments.input}


def sweep_next_temporary() -> None:
    """As an attempt does that began before and has not noticed this one."""
    write = files.write_and_sync

    def swept(path: Path, content: bytes, mode: int) -> None:
        files.write_and_sync = write
        write(path, content, mode)
        path.unlink()

    files.write_and_sync = swept


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--do", default="nothing")
    parser.add_argument("--input", default="1")
    parser.add_argument("--shut-out", action="store_true")


def _outputs(context: StepContext, status: Status) -> dict[str, str]:
    return {"state": status.state}


if __name__ == "__main__":
    sys.exit(
        run_step(
            "average",
            step,
            inputs=lambda context: {"input": context.arguments.input, "list": (1, 2)},
            complete=lambda context: not (context.directory.root / "incomplete").exists(),
            outputs=_outputs,
            arguments=_arguments,
        )
    )
