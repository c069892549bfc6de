"""A step of several processes for the tests: waits until all of its run are there, says who it is."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from steps.command.context import StepContext
from steps.command.main import run_step
from steps.command.members import add_roles


def step(context: StepContext) -> dict[str, Any]:
    """Meet the others, then end; member 5 fails."""
    while len(list(context.run.status.glob("train*.json"))) < context.arguments.together:
        context.check_stop()
        time.sleep(0.01)
    print(f"this is {context.name}")
    if context.member.endswith("-5"):
        raise RuntimeError("no more environments")
    return {"member": context.member}


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_roles(parser, ("learner", "actor"))
    parser.add_argument("--together", type=int, default=1)


if __name__ == "__main__":
    sys.exit(run_step("train", step, arguments=_arguments))
