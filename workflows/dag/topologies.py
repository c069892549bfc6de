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

from typing import Any

from hera.workflows import DAG, Container
from hera.workflows import models as m

from config import pipeline
from config.algorithms.descriptor import MEMBERS, SELF_PLAY
from config.cluster import Cluster
from workflows.dag.pods import (
    IS_TRAINED,
    OF_RUN,
    OUTDIR,
    RUN,
    actor,
    gpu,
    handed_on,
    inputs,
    inputs_of,
    outputs,
    waiting,
    worker,
)

LEARNERS = "train-learners"
WAIT = "wait-for-training"
FURTHER = f"{{{{={IS_TRAINED} ? 0 : asInt(inputs.parameters.learners) - 1}}}}"
"""Number of learners besides the first, none for a training that is complete. A loop over 0 items
creates no pod.
"""
MEMBER = "--member={{inputs.parameters.member}}"


def train(topology: str, cluster: Cluster, suffix: str = "", *, pauses: bool = False) -> Container:
    """The template `train`: one GPU pod with the training process, the learner or the trainer.
    suffix: of the template's name, where a workflow has several topologies. pauses: whether the input
    `until` says after which epoch it ends.
    """
    step = pipeline.find(pipeline.TRAIN)
    own, until = _pausing(pauses)
    role = [f"--role={MEMBERS[topology][1].roles[0]}"] if topology in MEMBERS else []
    return gpu(
        cluster,
        f"{step.name}{'-until' if pauses else ''}{suffix}",
        step.module,
        own=own,
        args=[OUTDIR, RUN, *role, *until],
        outputs=outputs(step),
    )


def beside_train(
    topology: str,
    cluster: Cluster,
    suffix: str = "",
    *,
    several_learners: bool = False,
    pauses: bool = False,
) -> list[DAG]:
    """The templates of the tasks that a run starts together with `train`, by the names of these
    tasks. suffix: of the templates' names that two topologies would share. pauses: as of `train`.
    """
    if topology not in MEMBERS:
        return []
    role = MEMBERS[topology][1].roles[1]
    pod = worker if topology == SELF_PLAY else actor
    own, until = _pausing(pauses)
    end = "-until" if pauses else ""
    one = pod(cluster, f"train-{role}{end}", **_member(role, pauses=pauses))
    needed = f"{{{{={IS_TRAINED} ? 0 : asInt(inputs.parameters.{role}s)}}}}"
    count = m.IntOrString(root=needed)
    module = f"steps.{WAIT.replace('-', '_')}"
    gate = waiting(cluster, f"{WAIT}{end}{suffix}", module, own=own, args=[OUTDIR, RUN, *until])
    helpers = _loop(
        f"train-{role}s{end}", one, role, m.Sequence(count=count), f"{role}s", behind=gate
    )
    if not several_learners:
        return [helpers]
    one = gpu(cluster, f"train-learner{end}", **_member("learner", pauses=pauses))
    further = m.Sequence(start=m.IntOrString(root="1"), count=m.IntOrString(root=FURTHER))
    return [_loop(f"{LEARNERS}{end}", one, "learner", further, "learners"), helpers]


def _member(role: str, *, pauses: bool) -> dict[str, Any]:
    """The fields that the pods of all members have in common."""
    own, until = _pausing(pauses)
    return {
        "module": pipeline.find(pipeline.TRAIN).module,
        "own": (*own, "member"),
        "args": [OUTDIR, RUN, f"--role={role}", MEMBER, *until],
    }


def _pausing(pauses: bool) -> tuple[tuple[str, ...], list[str]]:
    """The inputs of a training's pods, and the arguments for a pause."""
    if not pauses:
        return OF_RUN, []
    return (*OF_RUN, pipeline.UNTIL), [f"--until={{{{inputs.parameters.{pipeline.UNTIL}}}}}"]


def _loop(
    name: str,
    one: Container,
    task: str,
    members: m.Sequence,
    counted: str,
    *,
    behind: Container | None = None,
) -> DAG:
    """A loop over all members of one role. counted: the input that says how many there are. behind:
    what must have ended before they start, however it ended.
    """
    called = [one, behind] if behind is not None else [one]
    with DAG(name=name, inputs=inputs(*inputs_of(called, but=["member"]), counted)) as loop:
        tolerated = m.ContinueOn(failed=True, error=True)
        dependencies = None
        if behind is not None:
            once = m.IntOrString(root=f"{{{{={IS_TRAINED} ? 0 : 1}}}}")
            behind(
                name=WAIT,
                arguments=handed_on(behind),
                with_sequence=m.Sequence(count=once),
                continue_on=tolerated,
            )
            dependencies = [WAIT]
        one(
            name=task,
            arguments=handed_on(one) | {"member": "{{item}}"},
            with_sequence=members,
            continue_on=tolerated,
            dependencies=dependencies,
        )
    return loop


def active_runs(topology: str, cluster: Cluster) -> int:
    """How many runs of an experiment are active at once.

    Actors and workers that have started stay when their learner is preempted. They may then hold
    processors that it needs. Each gives up after `reconnect_timeout`; fewer active runs make this
    rarer.
    """
    if topology in MEMBERS:
        return cluster.parallelism_with_actors
    return cluster.parallelism
