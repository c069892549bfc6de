"""Fits the processes of a run that must run at the same time to a machine with few processors. What
is said of a learner and its actors also holds for a trainer and its workers.

On a cluster, a learner and its actors wait for nodes that have what they request. One machine may
never have it: two learners on two processors would leave none to any actor, and wait for experience
for ever.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

from config.actors import ActorSettings
from config.cluster import Cluster, Pool
from config.errors import BadInput
from config.resolved import Resolved
from config.workers import WorkerSettings
from workflows.local.language.quantities import quantity

Members = ActorSettings | WorkerSettings
SMALLEST = 1
"""The smallest share, in thousandths of a processor."""


def fitted(cluster: Cluster, members: Members, processors: float) -> Cluster:
    """The settings with which the members of a run fit on a machine with this many processors: as
    many runs at once as there is room for, or one run whose members share the processors in
    proportion to their requests.
    """
    needed = needs(cluster, members)
    runs = int(processors / needed) if needed else cluster.parallelism_with_actors
    if runs >= 1:
        most = min(cluster.parallelism_with_actors, runs)
        return replace(cluster, parallelism_with_actors=most)
    share = processors / needed
    return replace(
        cluster,
        parallelism_with_actors=1,
        gpu=_with_less(cluster.gpu, share),
        actor=_with_less(cluster.actor, share),
    )


def fitted_to_all(
    cluster: Cluster, active: int, resolved: Iterable[Resolved], processors: float, gpus: int
) -> tuple[Cluster, int, str]:
    """The settings with which each of several experiments fits on a machine, how many of them may be
    active at once, at most `active`, and how their processes share the machine, in words. Raises
    `BadInput` if one does not fit.
    """
    several = [(one, members) for one in resolved if (members := one.members) is not None]
    if not several:
        return cluster, active, ""
    largest = max((members for _, members in several), key=lambda members: needs(cluster, members))
    sharing = how_shared(cluster, largest, processors)
    cluster = fitted(cluster, largest, processors)
    for one, _ in several:
        cluster = with_gpus(cluster, one, gpus)
    rooms = [
        experiments_that_fit(cluster, members, gpus_of_learner(one), processors, gpus)
        for one, members in several
    ]
    return cluster, min(active, *rooms), sharing


def with_gpus(cluster: Cluster, resolved: Resolved, gpus: int) -> Cluster:
    """The settings with which only as many runs are active as find all their GPUs on a machine with
    this many. Raises `BadInput` if not even one does. A machine without GPUs gives none to anybody.
    """
    members = resolved.members
    if members is None:
        return cluster
    of_learners = members.learners * gpus_of_learner(resolved)
    of_helpers = members.gpus
    needed = of_learners + of_helpers
    if not needed or not gpus:
        return cluster
    if needed > gpus:
        learner, helper = members.roles
        raise BadInput(
            f"the {learner}s' {math.ceil(of_learners)} GPUs and {helper}_gpus={of_helpers} are more than the "
            f"{gpus} of this machine; allowed: fewer of either{', or gpus=0' if of_learners else ''}"
        )
    most = min(cluster.parallelism_with_actors, gpus // needed)
    return replace(cluster, parallelism_with_actors=most)


def gpus_of_learner(resolved: Resolved) -> Fraction:
    """The part of a GPU that each learner of an experiment holds. If its actors or workers use GPUs as
    well, it counts as a whole one: they may take the places of other learners on a shared GPU.
    """
    experiment = resolved.experiment
    members = resolved.members
    shares = 1 if members is not None and members.gpus else experiment.runs_per_gpu
    return Fraction(experiment.gpus, shares)


def experiments_that_fit(
    cluster: Cluster, members: Members, of_learner: Fraction, processors: float, gpus: int
) -> int:
    """How many such experiments may be active at once, so that no learner waits for actors that find no
    room. cluster: the fitted settings. of_learner: the part of a GPU that each learner holds.
    """
    runs = cluster.parallelism_with_actors
    room = int(processors / (runs * needs(cluster, members)))
    gpus_of_run = members.learners * of_learner + members.gpus
    if gpus and gpus_of_run:
        room = min(room, gpus // (runs * gpus_of_run))
    return max(1, room)


def how_shared(cluster: Cluster, members: Members, processors: float) -> str:
    """How the processors are shared, in one line; empty if there is room for all."""
    needed = needs(cluster, members)
    if needed <= processors:
        return ""
    learner, helper = members.roles
    who = f"a {learner}" if members.learners == 1 else f"{members.learners} {learner}s"
    return (
        f"{who} and {members.helpers} {helper}s ask for {needed:.4g} processors, this machine has "
        f"{processors:.4g}: they share them"
    )


def needs(cluster: Cluster, members: Members) -> float:
    """Number of processors that a run's learners and helpers request."""
    learner, helper = (quantity(pool.requests.cpu) for pool in (cluster.gpu, cluster.actor))
    return members.learners * learner + members.helpers * helper


def _with_less(pool: Pool, share: float) -> Pool:
    thousandths = max(SMALLEST, int(1000 * share * quantity(pool.requests.cpu)))
    return replace(pool, requests=replace(pool.requests, cpu=f"{thousandths}m"))
