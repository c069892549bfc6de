"""Loads the final policy of a training, or that of a snapshot, for evaluate and for `steps.results`. Imports torch only
then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from config.errors import BadInput, shown
from config.resolved import Resolved
from steps.command.context import StepContext
from steps.directory import checkpoints, snapshots
from steps.directory.experiment import evaluation_inputs
from steps.directory.layout import RunDirectory
from steps.directory.pruned import refuse_pruned
from steps.directory.usable import fingerprint

if TYPE_CHECKING:
    from agents.interfaces import AnyPolicy


def final_policy(context: StepContext) -> tuple[AnyPolicy, int]:
    """`load_policy_of` for the step's own run."""
    return load_policy_of(context.run, context.resolved)


def load_policy_of(run: RunDirectory, resolved: Resolved) -> tuple[AnyPolicy, int]:
    """The policy at the end of a training, on the CPU, and its environment step. Raises `BadInput`
    before the training has ended, and `NoUsableState` for a checkpoint of something else.
    """
    checkpoint = checkpoints.load_final(run, resolved)
    from agents.load import load_policy

    with checkpoints.fitting(checkpoint.path, "delete it, and train repeats its end"):
        policy = load_policy(resolved, checkpoint.state)
    return policy, checkpoint.step


BEST = "best"
"""What a person calls the snapshot that `evaluation-curve` chose."""


def snapshot_step(run: RunDirectory, resolved: Resolved, name: str) -> int:
    """The step of the snapshot that is called `best`, or by its step. Raises `BadInput`, which lists
    those that there are, and `NoUsableState` if they were deleted.
    """
    from steps.evaluations.curve import read_best

    refuse_pruned(run)
    steps = run.snapshot_steps()
    if name == BEST:
        best = read_best(run, resolved.measure)
        if best is None:
            raise BadInput(f"no file {run.best_snapshot_csv}: evaluation-curve makes it")
        return best.step
    if name.isdecimal() and int(name) in steps:
        return int(name)
    refused = f"no snapshot {shown(name)} of run {run.index}"
    if not steps:
        raise BadInput(
            f"{refused}: there is none, a training takes them with evaluations=2 or more"
        )
    raise BadInput(f"{refused}; allowed: {BEST}, {', '.join(map(str, steps))}")


def load_policy_of_snapshot(
    run: RunDirectory, resolved: Resolved, name: str
) -> tuple[AnyPolicy, int]:
    """The policy of a snapshot, on the CPU, and its environment step. Raises as `snapshot_step` and
    `snapshots.load`.
    """
    step = snapshot_step(run, resolved, name)
    snapshot = snapshots.load(run, step, resolved)
    from agents.load import load_policy

    with checkpoints.fitting(snapshot.path, snapshots.REMEDY):
        policy = load_policy(resolved, snapshot.state)
    return policy, step


def final_policy_inputs(context: StepContext) -> Mapping[str, Any]:
    """What results of this policy depend on: the parameters and the newest checkpoint."""
    newest = [0, *context.run.checkpoint_steps()][-1]
    manifest = context.run.checkpoint(newest) / checkpoints.MANIFEST
    return {
        **evaluation_inputs(context.record),
        "checkpoint": fingerprint(context.directory.root, [manifest]),
    }
