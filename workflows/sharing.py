"""What the processes of a run get that must run at the same time, on a machine of a few processors.

On a cluster a learner and its actors ask for what they need and wait for a node that has it. One
machine may never have it: two learners on two processors would leave none to any actor, and wait for
experience for ever.
"""

from __future__ import annotations

from dataclasses import replace

from config.cluster import Cluster, Pool
from config.errors import BadInput
from config.resolve import Resolved
from workflows.local.language.quantities import quantity

SMALLEST = 1
"""Thousandths of a processor."""


def fitted(cluster: Cluster, actors: int, processors: float) -> Cluster:
    """The settings with which a learner and its actors fit on a machine with so many processors: as
    many runs at once as there is room for, or one that shares what there is in the proportions of
    what it asks for.
    """
    needed = needs(cluster, actors)
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


def with_gpus(cluster: Cluster, resolved: Resolved, gpus: int) -> Cluster:
    """The settings with which only as many runs are active as find all their GPUs on a machine with so
    many; raises `BadInput` where not one does. A machine without GPUs gives nobody any.
    """
    of_learner, of_actors = resolved.experiment.gpus, resolved.actors.actor_gpus
    needed = of_learner + of_actors
    if not needed or not gpus:
        return cluster
    if needed > gpus:
        raise BadInput(
            f"parameter 'actor_gpus' cannot be {of_actors} with gpus={of_learner} on this machine, which "
            f"has {gpus}; allowed: at most {gpus - of_learner}"
            + (", or more with gpus=0" if of_learner else "")
        )
    most = min(cluster.parallelism_with_actors, gpus // needed)
    return replace(cluster, parallelism_with_actors=most)


def how_shared(cluster: Cluster, actors: int, processors: float) -> str:
    """One line; empty where there is room for them all."""
    needed = needs(cluster, actors)
    if needed <= processors:
        return ""
    return (
        f"a learner and {actors} actors ask for {needed:.4g} processors, this machine has "
        f"{processors:.4g}: they share them"
    )


def needs(cluster: Cluster, actors: int) -> float:
    """Processors that a learner and so many actors ask for."""
    return quantity(cluster.gpu.requests.cpu) + actors * quantity(cluster.actor.requests.cpu)


def _with_less(pool: Pool, share: float) -> Pool:
    thousandths = max(SMALLEST, int(1000 * share * quantity(pool.requests.cpu)))
    return replace(pool, requests=replace(pool.requests, cpu=f"{thousandths}m"))
