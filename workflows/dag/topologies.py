"""How the train stage is laid out over pods. Whatever the layout, it leaves the same files and
outputs behind, and everything after `train` stays as it is.

    single           train                    one GPU pod
    actor-learner    train                    the learner, the same pod with a role
                     train-learners: learner  beside it, one less than the learners that learn as one
                     train-actors: actor × N  beside it, as soon as the learner runs
    self-play        train                    the trainer, the same pod with a role
                     train-workers: worker × K  beside it, as soon as the trainer runs

In each run's DAG the pod that answers for the training is the task `train`, and nothing needs its
members but the end of the run: an actor that cannot be scheduled holds neither evaluation nor plots
of its run back. How a member ends is nobody's failure; Argo tolerates that (`continueOn`) only in a
DAG without `depends`, so the actors are one of their own, and so are the further learners, and the workers.

Actors and workers start behind a pod that waits for the training and asks for next to nothing: what
they ask for themselves may be what the learner waits for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hera.workflows import DAG, Container
from hera.workflows import models as m

from config import pipeline
from config.algorithms.descriptor import MEMBERS, Algorithm
from config.cluster import Cluster
from workflows.dag.pods import (
    IS_TRAINED,
    OF_RUN,
    OUTDIR,
    READ_BY_ARGO,
    READ_OF_ACTORS,
    READ_OF_WORKERS,
    RUN,
    actor,
    gpu,
    inputs,
    outputs,
    waiting,
    worker,
)

LEARNERS = "train-learners"
WAIT = "wait-for-training"
FURTHER = f"{{{{={IS_TRAINED} ? 0 : asInt(workflow.parameters.learners) - 1}}}}"
"""Number of learners besides the first, none for a training that is complete. A loop over 0 items
creates no pod.
"""
MEMBER = "--member={{inputs.parameters.member}}"


def train(algorithm: Algorithm, cluster: Cluster) -> Container:
    """The template `train`: one GPU pod with the training process, the learner or the trainer."""
    step = pipeline.find(pipeline.TRAIN)
    role = [f"--role={_roles(algorithm)[0]}"] if algorithm.topology in MEMBERS else []
    return gpu(
        cluster,
        step.name,
        step.module,
        inputs=inputs(*OF_RUN),
        args=[OUTDIR, RUN, *role],
        outputs=outputs(step),
    )


def beside_train(algorithm: Algorithm, cluster: Cluster) -> list[DAG]:
    """The templates of the tasks that a run starts together with `train`, by the names of these
    tasks.
    """
    if algorithm.topology not in MEMBERS:
        return []
    role = _roles(algorithm)[1]
    pod = worker if algorithm.has_workers else actor
    one = pod(cluster, f"train-{role}", **_member(role))
    needed = f"{{{{={IS_TRAINED} ? 0 : asInt(workflow.parameters.{role}s)}}}}"
    count = m.IntOrString(root=needed)
    gate = waiting(
        cluster, WAIT, f"steps.{WAIT.replace('-', '_')}", inputs=inputs(*OF_RUN), args=[OUTDIR, RUN]
    )
    helpers = _loop(f"train-{role}s", one, role, m.Sequence(count=count), behind=gate)
    if not algorithm.several_learners:
        return [helpers]
    one = gpu(cluster, "train-learner", **_member("learner"))
    further = m.Sequence(start=m.IntOrString(root="1"), count=m.IntOrString(root=FURTHER))
    return [_loop(LEARNERS, one, "learner", further), helpers]


def _roles(algorithm: Algorithm) -> tuple[str, str]:
    """The role that represents the training, and the role that helps it."""
    return MEMBERS[algorithm.topology][1].roles


def _member(role: str) -> dict[str, Any]:
    """The fields that the pods of all members have in common."""
    return {
        "module": pipeline.find(pipeline.TRAIN).module,
        "inputs": inputs(*OF_RUN, "member"),
        "args": [OUTDIR, RUN, f"--role={role}", MEMBER],
    }


def _loop(
    name: str, one: Container, task: str, members: m.Sequence, *, behind: Container | None = None
) -> DAG:
    """A loop over all members of one role. behind: what must have ended before they start, however
    it ended.
    """
    with DAG(name=name, inputs=inputs(*OF_RUN)) as loop:
        handed_on = {name: f"{{{{inputs.parameters.{name}}}}}" for name in OF_RUN}
        tolerated = m.ContinueOn(failed=True, error=True)
        dependencies = None
        if behind is not None:
            once = m.IntOrString(root=f"{{{{={IS_TRAINED} ? 0 : 1}}}}")
            behind(
                name=behind.name,
                arguments=handed_on,
                with_sequence=m.Sequence(count=once),
                continue_on=tolerated,
            )
            dependencies = [behind.name]
        one(
            name=task,
            arguments={**handed_on, "member": "{{item}}"},
            with_sequence=members,
            continue_on=tolerated,
            dependencies=dependencies,
        )
    return loop


def read_by_argo(algorithm: Algorithm) -> Sequence[str]:
    """The parameters that hold for a whole workflow of this algorithm."""
    if algorithm.has_workers:
        return (*READ_BY_ARGO, *READ_OF_WORKERS)
    if algorithm.has_actors:
        names = (*READ_BY_ARGO, *READ_OF_ACTORS)
        return tuple(name for name in names if name not in algorithm.never_set)
    return READ_BY_ARGO


def active_runs(algorithm: Algorithm, cluster: Cluster) -> int:
    """How many runs of an experiment are active at once.

    Actors and workers that have started stay when their learner is preempted. They may then hold
    processors that it needs. Each gives up after `reconnect_timeout`; fewer active runs make this
    rarer.
    """
    if algorithm.topology in MEMBERS:
        return cluster.parallelism_with_actors
    return cluster.parallelism
