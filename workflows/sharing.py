"""What the processes of a run get that must run at the same time, on a machine of a few processors.

On a cluster a learner and its actors ask for what they need and wait for a node that has it. One
machine may never have it: two learners on two processors would leave none to any actor, and wait for
experience for ever.
"""

from __future__ import annotations

from dataclasses import replace

from config.cluster import Cluster, Pool
from config.errors import BadInput
from workflows.local.language.quantities import quantity

SMALLEST = 1
"""Thousandths of a processor."""


def fitted(cluster: Cluster, actors: int, processors: float, learners: int = 1) -> Cluster:
    """The settings with which learners and their actors fit on a machine with so many processors: as
    many runs at once as there is room for, or one that shares what there is in the proportions of
    what it asks for.
    """
    needed = needs(cluster, actors, learners)
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


def with_gpus_for_all(cluster: Cluster, learners: int, each: int, here: int) -> Cluster:
    """The settings with which no learner holds a GPU of this machine's while the others of its run
    wait for theirs in vain; raises `BadInput` where there are not enough for one run.
    """
    needed = learners * min(each, here)
    if learners == 1 or not needed:
        return cluster
    if needed > here:
        raise BadInput(
            f"parameter 'learners' cannot be {learners} on this machine: with gpus={each} they need "
            f"{needed} GPUs at once, and there are {here}; allowed: at most {here // min(each, here)}, "
            "or gpus=0"
        )
    most = min(cluster.parallelism_with_actors, here // needed)
    return replace(cluster, parallelism_with_actors=most)


def how_shared(cluster: Cluster, actors: int, processors: float, learners: int = 1) -> str:
    """One line; empty where there is room for them all."""
    needed = needs(cluster, actors, learners)
    if needed <= processors:
        return ""
    who = "a learner" if learners == 1 else f"{learners} learners"
    return (
        f"{who} and {actors} actors ask for {needed:.4g} processors, this machine has "
        f"{processors:.4g}: they share them"
    )


def needs(cluster: Cluster, actors: int, learners: int = 1) -> float:
    """Processors that so many learners and actors ask for."""
    learner, actor = (quantity(pool.requests.cpu) for pool in (cluster.gpu, cluster.actor))
    return learners * learner + actors * actor


def _with_less(pool: Pool, share: float) -> Pool:
    thousandths = max(SMALLEST, int(1000 * share * quantity(pool.requests.cpu)))
    return replace(pool, requests=replace(pool.requests, cpu=f"{thousandths}m"))
