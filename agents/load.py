"""Loads what an algorithm's descriptor names by import path: trainer, policy, probe."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from agents.devices import Decision, Trials, choose_device, choose_precision
from agents.distributed.protocol import Actor, Learner, MakeActor, MakeLearner
from agents.environments.vectors import choose_vectorisation
from agents.interfaces import AnyPolicy, LoadPolicy, MakeTrainer, State, Trainer
from config.imports import imported

if TYPE_CHECKING:
    from agents.distributed.protocol import Link
    from agents.selfplay.roles import MakeSelfPlayTrainer, MakeWorker, SelfPlayTrainer, Worker
    from config.resolved import Resolved


def make_trainer(resolved: Resolved, *, run: int, device: str, precision: str) -> Trainer:
    """The training of one run, at its start; device and precision as `decide` chose them."""
    make: MakeTrainer = _trainer(resolved)
    return make(resolved, run=run, device=device, precision=precision)


def make_learner(resolved: Resolved, *, run: int, device: str, precision: str) -> Learner:
    """As `make_trainer`, for an algorithm with actors."""
    make: MakeLearner = _trainer(resolved)
    return make(resolved, run=run, device=device, precision=precision)


def make_actor(resolved: Resolved, *, run: int, member: int, link: Link) -> Actor:
    """Make one of a run's actors, by its number from 0. It has not joined yet."""
    make: MakeActor = imported(resolved.descriptor.actor, f"the actor of {resolved.algorithm!r}")
    return make(resolved, run=run, member=member, link=link)


def make_self_play_trainer(
    resolved: Resolved, *, run: int, device: str, precision: str
) -> SelfPlayTrainer:
    """As `make_trainer`, for an algorithm with workers."""
    make: MakeSelfPlayTrainer = _trainer(resolved)
    return make(resolved, run=run, device=device, precision=precision)


def _trainer(resolved: Resolved) -> Any:
    """The trainer that the descriptor names, of whichever of the three kinds."""
    return imported(resolved.descriptor.trainer, f"the trainer of {resolved.algorithm!r}")


def make_worker(resolved: Resolved, *, run: int, member: int, attempt: int) -> Worker:
    """Make one of a run's workers, by its number from 0. attempt: different at each start."""
    make: MakeWorker = imported(resolved.descriptor.worker, f"the worker of {resolved.algorithm!r}")
    return make(resolved, run=run, member=member, attempt=attempt)


def load_policy(resolved: Resolved, state: State) -> AnyPolicy:
    """The policy of a checkpoint, on the CPU, with its observation statistics frozen."""
    load: LoadPolicy = imported(resolved.descriptor.policy, f"the policy of {resolved.algorithm!r}")
    return load(resolved, state)


def decide(resolved: Resolved) -> Decision:
    """Decide device, precision and vectorisation of an experiment whose first training starts here.

    Raises `BadInput` for a GPU that is asked for and does not exist.
    """
    asked = resolved.experiment
    device = choose_device(asked.device)
    reason = "there is a GPU" if device == "cuda" else "no usable GPU"
    if asked.device != "auto":
        reason = f"{device} was asked for"
    probe = functools.partial(_measure, resolved, device)
    precision, because, trials = choose_precision(asked.precision, device, probe)
    reason = f"{reason}; {because}"
    vectorisation, why = choose_vectorisation(resolved, resolved.environment.count)
    return Decision(
        device=device,
        precision=precision,
        reason=reason,
        vectorisation=vectorisation,
        vectorisation_reason=why,
        trials=trials,
    )


def _measure(resolved: Resolved, device: str) -> Trials | None:
    # With precision=auto an algorithm without a probe is computed in fp32.
    path = resolved.descriptor.precision_probe
    if not path:
        return None
    measure = imported(path, f"the precision probe of {resolved.algorithm!r}")
    trials: Trials | None = measure(resolved, device)
    return trials
