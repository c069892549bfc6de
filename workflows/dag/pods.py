"""`gpu()`, `cpu()`, `actor()`, `worker()`, `waiting()` and `tracker()`: the pod of one step, or of one
member. This module and `pool_fields` are the only places that know Kubernetes details.

Every pod runs `python -m <module>`, whatever its template is called, and never a shell, under the
*restricted* pod security standard: non-root, no privilege escalation, no capabilities, a read-only
root file system. It may write to three mounts: the shared storage, `/outputs` (files that Argo
reads as output parameters; on a volume, so that they survive an out-of-memory kill) and `/tmp`, the
home directory that the image names in its environment (locally the person's own home stays, with
its warm font and kernel caches).

Sources: Argo Workflows' field reference; Kubernetes, "Pod Security Standards", profile
*restricted*.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from hera.workflows import (
    DAG,
    Container,
    EmptyDirVolume,
    Env,
    ExistingVolume,
    FieldEnv,
    Parameter,
    Resources,
    RetryStrategy,
    SecretEnv,
)
from hera.workflows import models as m

from config import pipeline
from config.actors import COMMAND_VARIABLE
from config.cluster import Cluster, Limits, Pool, Requests
from config.errors import NEVER_RETRIED
from config.pipeline import Output, Step
from config.pod_labels import PODS_PER_GPU
from config.pod_volumes import OUTPUTS, SCRATCH, SHARED_MEMORY, STORAGE
from config.tracking import VARIABLES
from workflows.dag import pool_fields

OUTDIR = "--outdir={{inputs.parameters.outdir}}"
RUN = "--run={{inputs.parameters.run}}"
OF_RUN = ("outdir", "run", pipeline.TRAINED)
"""The inputs of every template of a run's training."""
IS_TRAINED = f"inputs.parameters.{pipeline.TRAINED} contains (',' + inputs.parameters.run + ',')"
"""Expression: whether this run's training was complete when the workflow was submitted."""
NO_GPU = {"NVIDIA_VISIBLE_DEVICES": "void"}
"""Set explicitly, because on a node whose default runtime is NVIDIA's, a pod that asks for no GPU
would see all of them.
"""
IMAGES = {
    "gpu": "{{inputs.parameters.gpu_image}}",
    "cpu": "{{inputs.parameters.cpu_image}}",
    "actor": "{{=inputs.parameters.actor_image != '' ? inputs.parameters.actor_image"
    " : inputs.parameters.cpu_image}}",
    "worker": "{{=asInt(inputs.parameters.worker_gpus) == 0 ? inputs.parameters.cpu_image"
    " : inputs.parameters.gpu_image}}",
}
"""The image of each kind of pod."""

# Exit codes 2 (bad input), 3 (diverged), 4 (wrong directory) and 5 (incomplete) would end the same
# way again. The code is "-1" when the container never ended by itself: a deleted pod, a lost node.
RETRY_UNLESS_FINAL = (
    f"lastRetry.status == 'Error' || !(asInt(lastRetry.exitCode) in {list(NEVER_RETRIED)})"
)

WAITING = Requests(cpu="10m", memory="128Mi")
"""What a pod asks for that only looks at a file twice a second."""

TRACKING = Requests(cpu="20m", memory="512Mi")
"""What a pod asks for that reads tables and sends them: so little that no training waits for it."""

PAST_DEADLINE = "Pod was active on the node longer than the specified deadline"
"""What the kubelet says of a pod that it ended at the deadline of its template."""
RETRY_UNLESS_LATE = f"({RETRY_UNLESS_FINAL}) && !(lastRetry.message contains '{PAST_DEADLINE}')"
"""For a pod with a deadline: an image that could not be pulled until then will not be pulled later."""

TRAINING_RETRIES, STEP_RETRIES, RETRIES_WITH_DEADLINE = 1000, 100, 20
"""Argo counts each eviction as a retry. What fails by itself is ended by the step's own count, with exit
code 3 (`steps.command.repeats`); a pod with a deadline may not even have started.
"""
LONGEST_WAIT = "1m"
"""A pod that was evicted ten times should not wait for hours. A pod without a node waits by itself."""

HARDENED = m.SecurityContext(
    allow_privilege_escalation=False,
    read_only_root_filesystem=True,
    run_as_non_root=True,
    capabilities=m.Capabilities(drop=["ALL"]),
)


def gpu(
    cluster: Cluster, name: str, module: str, *, own: Sequence[str], **options: Any
) -> Container:
    """A pod that trains. own: the inputs of its arguments, beside those of the pod itself. The inputs
    `gpus`, `runs_per_gpu` and `training_memory` set its resources, and it may be retried often. For a
    training that was complete before, it asks for no GPU.

    Every preemption costs a retry, and a training that makes no progress ends itself with exit code
    3. These inputs go through `podSpecPatch`, because Argo accepts no parameter in a resource quantity.
    """
    memory = {"memory": "{{inputs.parameters.training_memory}}"}
    gpus = f"{{{{={IS_TRAINED} ? '0' : inputs.parameters.gpus}}}}"
    limits = {_gpu_resource(cluster, "runs_per_gpu"): gpus, **memory}
    resources = {"requests": memory, "limits": limits}
    return _pod(
        cluster,
        name,
        module,
        pool=cluster.gpu,
        image=IMAGES["gpu"],
        environment={},
        shared_memory=True,
        retries=_retries(limit=TRAINING_RETRIES, first_wait="5s"),
        inputs=inputs(*own, "gpus", "runs_per_gpu", "training_memory", "gpu_image"),
        annotations=_pods_per_gpu("runs_per_gpu"),
        patched_resources=resources,
        **options,
    )


def cpu(
    cluster: Cluster,
    name: str,
    module: str,
    *,
    own: Sequence[str],
    image: str = "",
    deadline_s: int | None = None,
    environment: Mapping[str, str] | None = None,
    **options: Any,
) -> Container:
    """A pod that evaluates, films, plots or reports; it never has a GPU. image: by default the input
    `cpu_image`. deadline_s: how long it may be on a node; without one there is no limit. environment:
    further variables.
    """
    limit = STEP_RETRIES if deadline_s is None else RETRIES_WITH_DEADLINE
    return _pod(
        cluster,
        name,
        module,
        pool=cluster.cpu,
        image=image or IMAGES["cpu"],
        environment={**NO_GPU, **(environment or {})},
        shared_memory=False,
        inputs=inputs(*own, *([] if image else ["cpu_image"])),
        **_until(deadline_s, limit),
        **options,
    )


def actor(
    cluster: Cluster, name: str, module: str, *, own: Sequence[str], **options: Any
) -> Container:
    """A pod that steps environments for a learner, in an image of its own if the parameter
    `actor_image` names one.

    `actor_command` is passed as an environment variable, because the number of words of a `command`
    cannot depend on a parameter.

    A retry is used whenever the pod's node is taken away, and whenever the learner was away for
    `reconnect_timeout`, which may be all the time that a learner waits for a GPU. So there are many
    retries.
    """
    return _pod(
        cluster,
        name,
        module,
        pool=cluster.actor,
        image=IMAGES["actor"],
        environment={COMMAND_VARIABLE: "{{inputs.parameters.actor_command}}"},
        shared_memory=True,
        retries=HELPER_RETRIES,
        inputs=inputs(
            *own, "actor_image", "cpu_image", "actor_command", "actor_gpus", "actors_per_gpu"
        ),
        **_one_gpu_if_any(cluster, "actor"),
        **options,
    )


def worker(
    cluster: Cluster, name: str, module: str, *, own: Sequence[str], **options: Any
) -> Container:
    """A pod that plays games against itself for a trainer. Resources and retries are an actor's,
    for the same reasons. With a GPU it uses the image of trainings.
    """
    return _pod(
        cluster,
        name,
        module,
        pool=cluster.actor,
        image=IMAGES["worker"],
        environment={},
        shared_memory=False,
        retries=HELPER_RETRIES,
        inputs=inputs(*own, "worker_gpus", "workers_per_gpu", "cpu_image", "gpu_image"),
        **_one_gpu_if_any(cluster, "worker"),
        **options,
    )


def waiting(
    cluster: Cluster, name: str, module: str, *, own: Sequence[str], **options: Any
) -> Container:
    """A pod that only waits, on the nodes of `cpu()`. It asks for next to nothing, so that it holds
    nothing that others need.
    """
    cpu_pool = cluster.cpu
    return _pod(
        cluster,
        name,
        module,
        pool=dataclasses.replace(cpu_pool, requests=WAITING, limits=Limits(memory=WAITING.memory)),
        image=IMAGES["cpu"],
        environment=NO_GPU,
        shared_memory=False,
        retries=HELPER_RETRIES,
        inputs=inputs(*own, "cpu_image"),
        **options,
    )


def tracker(
    cluster: Cluster,
    name: str,
    module: str,
    *,
    own: Sequence[str],
    deadline_s: int | None,
    **options: Any,
) -> Container:
    """A pod that sends to trackers, on the nodes of `cpu()`. Addresses and keys come from the keys of
    a secret, each as the variable of the same name; neither the secret nor any key of it need exist.
    """
    secret = cluster.tracking_secret
    return _pod(
        cluster,
        name,
        module,
        pool=dataclasses.replace(
            cluster.cpu, requests=TRACKING, limits=Limits(memory=cluster.cpu.limits.memory)
        ),
        image=IMAGES["cpu"],
        environment=NO_GPU,
        secrets=[
            SecretEnv(name=key, secret_name=secret, secret_key=key, optional=True)
            for key in VARIABLES
        ],
        shared_memory=False,
        inputs=inputs(*own, "cpu_image"),
        # Few: a pod that fails whatever happens must not hold the end of its run for long.
        **_until(deadline_s, 10),
        **options,
    )


def _until(deadline_s: int | None, limit: int) -> dict[str, Any]:
    """The retries of a pod, and how long it may be on a node; None: as long as it takes."""
    retries = _retries(limit=limit, first_wait="2s")
    if deadline_s is None:
        return {"retries": retries}
    retries.expression = RETRY_UNLESS_LATE
    return {"retries": retries, "active_deadline_seconds": deadline_s}


def _one_gpu_if_any(cluster: Cluster, role: str) -> dict[str, Any]:
    """The resource patch of each pod of this role: one GPU, or a share of one, if `<role>_gpus`
    says so.

    If it asks for none, only the image hides the GPUs, as for training pods: a variable of the
    container would replace the device plugin's.
    """
    per_gpu = f"{role}s_per_gpu"
    count = f"{{{{=asInt(inputs.parameters.{role}_gpus) == 0 ? '0' : '1'}}}}"
    return {
        "annotations": _pods_per_gpu(per_gpu),
        "patched_resources": {"limits": {_gpu_resource(cluster, per_gpu): count}},
    }


def _gpu_resource(cluster: Cluster, per_gpu: str) -> str:
    """The name of the resource of a whole GPU, or of a shared one if the input `per_gpu` is above 1."""
    whole = cluster.gpu_resource
    shared = cluster.shared_gpu_resource
    return f"{{{{=asInt(inputs.parameters.{per_gpu}) == 1 ? '{whole}' : '{shared}'}}}}"


def _pods_per_gpu(per_gpu: str) -> dict[str, str]:
    """The annotation from which the local engine knows how many pods may share a GPU."""
    return {PODS_PER_GPU: f"{{{{inputs.parameters.{per_gpu}}}}}"}


def volumes() -> list[ExistingVolume | EmptyDirVolume]:
    """The volumes behind the mounts of `gpu()` and `cpu()`. The parameter `claim` names the storage
    claim, which needs ReadWriteMany storage.
    """
    return [
        ExistingVolume(name="storage", claim_name="{{workflow.parameters.claim}}"),
        EmptyDirVolume(name="outputs", size_limit=m.Quantity(root="16Mi")),
        EmptyDirVolume(name="scratch", size_limit=m.Quantity(root="4Gi")),
        EmptyDirVolume(
            name="shared-memory", medium="Memory", size_limit=m.Quantity(root="1Gi")
        ),  # the default /dev/shm has 64 MiB
    ]


def inputs(*names: str) -> list[Parameter]:
    """The inputs of a template; the caller must give all of them."""
    return [Parameter(name=name) for name in names]


def inputs_of(templates: Iterable[Container | DAG], but: Iterable[str] = ()) -> list[str]:
    """The names of all inputs of these templates, each once, without those that their caller knows."""
    named = [name for template in templates for name in _names(template)]
    return [name for name in dict.fromkeys(named) if name not in but]


def handed_on(template: Container | DAG) -> dict[str, str]:
    """The arguments of a call by which a DAG passes on its own inputs."""
    return {name: f"{{{{inputs.parameters.{name}}}}}" for name in _names(template)}


def _names(template: Container | DAG) -> list[str]:
    return [str(one.name) for one in cast(list[Parameter], template.inputs or [])]


def outputs(step: Step, *more: str) -> list[Parameter] | None:
    """The output parameters that the step writes as files. One with a default has a value even if
    the step never wrote it. more: the names of further ones, which it always writes; the one that a
    condition reads has a default.
    """
    further = (Output(name=name, default="" if name == pipeline.TRACK else None) for name in more)
    listed = (*step.outputs, *further)
    return [
        Parameter(
            name=one.name,
            value_from=m.ValueFrom(path=f"{OUTPUTS}/{one.name}", default=one.default),
        )
        for one in listed
    ] or None


def grace_period_patch(cluster: Cluster) -> str:
    """The workflow's `podSpecPatch` that sets the seconds between SIGTERM and SIGKILL. Kubernetes'
    30 s are too short to save to slow storage.
    """
    return _as_patch({"terminationGracePeriodSeconds": cluster.grace_period_s})


def _as_patch(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":"))


def _pod(
    cluster: Cluster,
    name: str,
    module: str,
    *,
    pool: Pool,
    image: str,
    environment: Mapping[str, str],
    shared_memory: bool,
    retries: RetryStrategy,
    annotations: Mapping[str, str] | None = None,
    patched_resources: Mapping[str, Any] | None = None,
    secrets: Sequence[SecretEnv] = (),
    **options: Any,
) -> Container:
    patch = pool_fields.patched(pool, patched_resources)
    requests = pool.requests
    limits = pool.limits
    own = [one.name for one in pool_fields.variables(pool)]
    variables = [one for one in [*_variables(image, environment), *secrets] if one.name not in own]
    return Container(
        name=name,
        image=image,
        image_pull_policy="IfNotPresent",
        command=["python", "-m", module],
        env=[*variables, *pool_fields.variables(pool)],
        env_from=pool_fields.secrets(pool) or None,
        resources=Resources(
            cpu_request=requests.cpu,
            memory_request=requests.memory,
            cpu_limit=limits.cpu,
            memory_limit=limits.memory,
        ),
        volumes=pool_fields.volumes(pool) or None,
        volume_mounts=_mounts(pool, shared_memory=shared_memory),
        security_context=HARDENED,
        annotations={**pool.annotations, **(annotations or {})} or None,
        pod_spec_patch=_as_patch(patch) if patch else None,
        retry_strategy=pool_fields.elsewhere(pool, retries),
        **pool_fields.placement(cluster, pool),
        **options,
    )


def _variables(image: str, environment: Mapping[str, str]) -> list[Env | FieldEnv]:
    return [
        Env(name="STORAGE", value=STORAGE),
        Env(name="OUTPUTS", value=OUTPUTS),
        Env(name="EXPERIMENT_OWNER", value="{{workflow.uid}}"),
        Env(name="EXPERIMENT_WORKFLOW", value="{{workflow.name}}"),
        Env(name="EXPERIMENT_IMAGE", value=image),
        Env(
            name="OMP_NUM_THREADS", value="1"
        ),  # a step that computes with more sets its own number: pods share their node's cores
        *(Env(name=key, value=value) for key, value in environment.items()),
        FieldEnv(name="POD_IP", field_path="status.podIP"),
    ]


def _mounts(pool: Pool, *, shared_memory: bool) -> list[m.VolumeMount]:
    """The project's mounts and those of the pool. The pool may have a shared memory of its own."""
    further = pool_fields.mounts(pool)
    mounts = {"storage": STORAGE, "outputs": OUTPUTS, "scratch": SCRATCH}
    if shared_memory and SHARED_MEMORY not in [one.mount_path for one in further]:
        mounts["shared-memory"] = SHARED_MEMORY
    return [
        *(m.VolumeMount(name=volume, mount_path=path) for volume, path in mounts.items()),
        *further,
    ]


def _retries(*, limit: int, first_wait: str) -> RetryStrategy:
    backoff = m.Backoff(duration=first_wait, factor=m.IntOrString(root="2"), cap=LONGEST_WAIT)
    return RetryStrategy(
        limit=str(limit), retry_policy="Always", expression=RETRY_UNLESS_FINAL, backoff=backoff
    )


HELPER_RETRIES = _retries(limit=TRAINING_RETRIES, first_wait="2s")
"""Retries of actors and workers. Every lost node and every long wait costs one."""
