"""Chooses device, precision and vectorisation of a training: those of its checkpoint, else those
that the experiment's first training chose.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch

from agents.devices import choose_device, processor_name
from agents.environments.vectors import choose_vectorisation
from agents.load import decide
from config.errors import BadInput, WrongDirectory
from config.resolved import Resolved
from steps.command.context import StepContext
from steps.directory.experiment import Compute, read_compute, settle

ASKED = ("sync", "async")
"""The values that a user can ask for."""


def chosen(context: StepContext, record: Mapping[str, Any]) -> Compute:
    """Read the experiment's decision, or make it. record: the checkpoint's; empty without one.

    A checkpoint with another decision counts for its own run, so directories older than the file
    continue as they were. Raises `BadInput` if this machine cannot do what was decided, and
    `WrongDirectory` for a damaged file.
    """
    path = context.directory.compute_json
    experiment = context.resolved.experiment
    kept = {name: str(record[name]) for name in ("device", "precision") if record.get(name)}
    decided = read_compute(path)
    if decided is None:
        found = _continued(kept, context) or _decided(context)
        context.require_ours()
        decided = settle(path, found)
    _refuse_other(decided, context)
    compute = dataclasses.replace(decided, **kept)
    if compute != decided:
        checkpoint = f"{compute.device}, {compute.precision}"
        print(f"warning: {path.name} says {decided}; its checkpoint goes on in {checkpoint}")
    if experiment.device == "auto" and compute.device == "cuda" and not torch.cuda.is_available():
        raise BadInput(f"{path} says device cuda, and this machine has no usable GPU")
    choose_device(compute.device)  # raises if this machine cannot compute on it
    return compute


def settled(resolved: Resolved, compute: Compute) -> Resolved:
    """The parameters with the decided value in place of `vectorisation=auto`, so that nobody
    measures again.
    """
    is_settled = resolved.game.is_board or resolved.vectorisation != "auto"
    if is_settled or compute.vectorisation not in ASKED:
        return resolved
    environment = dataclasses.replace(resolved.environment, vectorisation=compute.vectorisation)
    return dataclasses.replace(resolved, environment=environment)


def _refuse_other(decided: Compute, context: StepContext) -> None:
    """Raise `WrongDirectory` if the decision contradicts what the user asked for. That is part of
    the identity, so only a foreign file can.
    """
    for name in ("device", "precision"):
        asked = getattr(context.resolved.experiment, name)
        said = getattr(decided, name)
        if asked not in ("auto", said):
            path = context.directory.compute_json
            raise WrongDirectory(f"{path} says {name} {said}, the experiment {asked}; delete it")


def _continued(kept: Mapping[str, str], context: StepContext) -> dict[str, Any] | None:
    """The decision of the run that continues first, in a directory older than the file. The other
    runs follow it.
    """
    if len(kept) < 2:
        return None
    reason = f"as run {context.run_index} began, before this was recorded"
    environments = context.resolved.environment.count
    vectorisation, why = choose_vectorisation(context.resolved, environments)
    found = {"vectorisation": vectorisation, "vectorisation_reason": why}
    return {**kept, "reason": reason, **found, "probe": None}


def _decided(context: StepContext) -> dict[str, Any]:
    decision = decide(context.resolved)
    return {
        "device": decision.device,
        "precision": decision.precision,
        "reason": decision.reason,
        "vectorisation": decision.vectorisation,
        "vectorisation_reason": decision.vectorisation_reason,
        "probe": decision.trials and decision.trials.as_dict(),
        "processor": processor_name(decision.device),
        "torch": str(torch.__version__),
    }
