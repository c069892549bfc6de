"""`gpu()`, `cpu()`, `actor()`, `worker()`, `waiting()` and `tracker()`: the pod of one step, or of one
member. The only place that knows Kubernetes details.

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
from config.cluster import PODS_PER_GPU, Cluster, Limits, Pool, Requests
from config.errors import NEVER_RETRIED
from config.pipeline import Output, Step
from config.tracking import VARIABLES

STORAGE, OUTPUTS, SCRATCH, SHARED_MEMORY = "/storage", "/outputs", "/tmp", "/dev/shm"  # noqa: S108 - mounts of the pod, not ours
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

HARDENED = m.SecurityContext(
    allow_privilege_escalation=False,
    read_only_root_filesystem=True,
    run_as_non_root=True,
    capabilities=m.Capabilities(drop=["ALL"]),
)
UNPRIVILEGED_POD = m.PodSecurityContext(
    run_as_non_root=True,
    run_as_user=1000,
    run_as_group=1000,
    fs_group=1000,
    fs_group_change_policy="OnRootMismatch",  # a large NFS tree would otherwise slow every pod's start
    seccomp_profile=m.SeccompProfile(type="RuntimeDefault"),
)


def gpu(
    cluster: Cluster, name: str, module: str, *, own: Sequence[str], **options: Any
) -> Container:
    """A pod that trains. own: the inputs of its arguments, beside those of the pod itself. The inputs
    `gpus` and `training_memory` set its resources, and it may be retried often. For a training that was
    complete before, it asks for no GPU.

    Every preemption costs a retry, and a training that makes no progress ends itself with exit code
    3. Both inputs go through `podSpecPatch`, because Argo accepts no parameter in a resource quantity.
    """
    memory = {"memory": "{{inputs.parameters.training_memory}}"}
    gpus = f"{{{{={IS_TRAINED} ? '0' : inputs.parameters.gpus}}}}"
    limits = {cluster.gpu_resource: gpus, **memory}
    resources = {"requests": memory, "limits": limits}
    return _pod(
        name,
        module,
        pool=cluster.gpu,
        image=IMAGES["gpu"],
        environment={},
        shared_memory=True,
        retries=_retries(limit=100, first_wait="5s", longest_wait="2m"),
        inputs=inputs(*own, "gpus", "training_memory", "gpu_image"),
        pod_spec_patch=_patched(resources),
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
    **options: Any,
) -> Container:
    """A pod that evaluates, films, plots or reports; it never has a GPU. image: by default the input
    `cpu_image`. deadline_s: how long it may be on a node; without one there is no limit.
    """
    retries = _retries(limit=6, first_wait="2s", longest_wait="5m")
    if deadline_s is not None:
        retries.expression = RETRY_UNLESS_LATE
        options["active_deadline_seconds"] = deadline_s
    return _pod(
        name,
        module,
        pool=cluster.cpu,
        image=image or IMAGES["cpu"],
        environment=NO_GPU,
        shared_memory=False,
        retries=retries,
        inputs=inputs(*own, *([] if image else ["cpu_image"])),
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
    # Few: a pod that fails whatever happens must not hold the end of its run for long.
    retries = _retries(limit=10, first_wait="2s", longest_wait="1m")
    if deadline_s is not None:
        retries.expression = RETRY_UNLESS_LATE
        options["active_deadline_seconds"] = deadline_s
    return _pod(
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
        retries=retries,
        inputs=inputs(*own, "cpu_image"),
        **options,
    )


def _one_gpu_if_any(cluster: Cluster, role: str) -> dict[str, Any]:
    """The resource patch of each pod of this role: one GPU, or a share of one, if `<role>_gpus`
    says so.

    If it asks for none, only the image hides the GPUs, as for training pods: a variable of the
    container would replace the device plugin's.
    """
    per_gpu = f"inputs.parameters.{role}s_per_gpu"
    whole = cluster.gpu_resource
    shared = cluster.shared_gpu_resource
    gpu = f"{{{{=asInt({per_gpu}) == 1 ? '{whole}' : '{shared}'}}}}"
    count = f"{{{{=asInt(inputs.parameters.{role}_gpus) == 0 ? '0' : '1'}}}}"
    return {
        "annotations": {PODS_PER_GPU: f"{{{{{per_gpu}}}}}"},
        "pod_spec_patch": _patched({"limits": {gpu: count}}),
    }


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
    return json.dumps(
        {"terminationGracePeriodSeconds": cluster.grace_period_s}, separators=(",", ":")
    )


def _patched(resources: Mapping[str, Any]) -> str:
    """The template with a `podSpecPatch` that adds to its container's resources."""
    patch = {"containers": [{"name": "main", "resources": resources}]}
    return json.dumps(patch, separators=(",", ":"))


def _pod(
    name: str,
    module: str,
    *,
    pool: Pool,
    image: str,
    environment: Mapping[str, str],
    shared_memory: bool,
    retries: RetryStrategy,
    secrets: Sequence[SecretEnv] = (),
    **options: Any,
) -> Container:
    mounts = {"storage": STORAGE, "outputs": OUTPUTS, "scratch": SCRATCH} | (
        {"shared-memory": SHARED_MEMORY} if shared_memory else {}
    )
    requests = pool.requests
    limits = pool.limits
    return Container(
        name=name,
        image=image,
        image_pull_policy="IfNotPresent",
        command=["python", "-m", module],
        env=[
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
            *secrets,
        ],
        resources=Resources(
            cpu_request=requests.cpu,
            memory_request=requests.memory,
            cpu_limit=limits.cpu,
            memory_limit=limits.memory,
        ),
        volume_mounts=[
            m.VolumeMount(name=volume, mount_path=path) for volume, path in mounts.items()
        ],
        security_context=HARDENED,
        node_selector=pool.node_selector or None,
        tolerations=[
            m.Toleration(**dataclasses.asdict(toleration)) for toleration in pool.tolerations
        ]
        or None,
        retry_strategy=retries,
        **options,
    )


def _retries(*, limit: int, first_wait: str, longest_wait: str) -> RetryStrategy:
    backoff = m.Backoff(duration=first_wait, factor=m.IntOrString(root="2"), cap=longest_wait)
    return RetryStrategy(
        limit=str(limit), retry_policy="Always", expression=RETRY_UNLESS_FINAL, backoff=backoff
    )


HELPER_RETRIES = _retries(limit=1000, first_wait="2s", longest_wait="2m")
"""Retries of actors and workers. Every lost node and every long wait costs one."""
