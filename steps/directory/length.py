"""Whether the trainings in a directory may have another length when their experiment is submitted
again.

They may grow where no schedule depends on the length: the training goes on and ends as one that was
that long from the start. They may never end before what is trained.
"""

from __future__ import annotations

import functools

from config.identity import comparable, without_length
from config.parameters import cannot_be, to_text
from config.resolved import Resolved
from steps.directory.checkpoints import trained_epochs
from steps.directory.experiment import ExperimentRecord, difference
from steps.directory.layout import ExperimentDirectory

DECLARED = "tied_to_length"


def check_length(directory: ExperimentDirectory, before: ExperimentRecord, now: Resolved) -> None:
    """Raise `BadInput` if the trainings cannot have the length that is asked for now. Directories of
    other parameters are left to `steps.directory.experiment.continued`.
    """
    if before.resolved.epochs == now.epochs or _differ_otherwise(before, now):
        return
    there = f"in {directory.root}, whose trainings have {before.resolved.epochs} epochs"
    refused = functools.partial(cannot_be, "epochs", now.epochs, there)
    if why := _why_fixed(now):
        other = f"another outdir with start_from={directory.root}"
        raise refused(because=why, allowed=f"{before.resolved.epochs}, or {other}")
    for index in range(before.resolved.experiment.runs):
        trained = trained_epochs(directory.run(index))
        if trained > now.epochs:
            raise refused(
                because=f"run {index} is trained for {trained}", allowed=f"{trained} or more"
            )


def _differ_otherwise(before: ExperimentRecord, now: Resolved) -> bool:
    identity = now.identity()
    recorded = comparable(before.identity, identity)
    return bool(difference(without_length(recorded), without_length(identity)))


def _why_fixed(resolved: Resolved) -> str:
    """Why a training depends on its length; empty if it does not."""
    tied = resolved.tied_to_length
    if tied is None:
        owner = type(resolved.hyperparameters).__name__
        return (
            f"{resolved.algorithm} does not say which of its hyperparameters depend on the length, "
            f"{owner} has no method {DECLARED}"
        )
    if not tied:
        return ""
    said = [f"{name}={to_text(getattr(resolved.hyperparameters, name))}" for name in tied]
    verb = "depends" if len(said) == 1 else "depend"
    return f"{', '.join(said)} {verb} on the length"
