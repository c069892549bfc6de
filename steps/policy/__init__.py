"""Loads the final policy of a training, for evaluate and for `steps.results`. Imports torch only
then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from config.resolve import Resolved
from steps.command.context import StepContext
from steps.directory import checkpoints
from steps.directory.experiment import evaluation_inputs
from steps.directory.layout import RunDirectory
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


def final_policy_inputs(context: StepContext) -> Mapping[str, Any]:
    """What results of this policy depend on: the parameters and the newest checkpoint."""
    newest = [0, *context.run.checkpoint_steps()][-1]
    manifest = context.run.checkpoint(newest) / checkpoints.MANIFEST
    return {
        **evaluation_inputs(context.record),
        "checkpoint": fingerprint(context.directory.root, [manifest]),
    }
