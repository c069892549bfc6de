"""Reads a template whose tags are replaced into what this machine executes: command, environment,
folder, resources, time limits.

Sources: Argo `workflowpod.go`; Kubernetes' strategic merge of `podSpecPatch` and its `$(NAME)`
expansion in arguments.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import socket
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config.errors import BadInput
from config.pod_labels import PODS_PER_GPU
from config.strict_yaml import load
from workflows.local.errors import PodError, Refused
from workflows.local.language.go_values import parameter_text
from workflows.local.language.quantities import duration_s, integer, quantity
from workflows.local.language.tags import Values, replace
from workflows.local.machine.mounts import Mounts
from workflows.local.machine.slots import Resources
from workflows.local.spec.fields import POD_PATCH, check_fields
from workflows.local.spec.references import KEYS

DEFAULT_GRACE_S = 30.0
LOOPBACK = "127.0.0.1"
INHERITED = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TMP", "TEMP", "LD_LIBRARY_PATH", "LD_PRELOAD",
    "LOCPATH", "LOCALE_ARCHIVE", "VIRTUAL_ENV", "CONDA_PREFIX", "DISPLAY", "XAUTHORITY",
    "LC_*", "XDG_*", "PYTHON*", "CUDA_*", "NVIDIA_*",
    "SDL_*", "EGL_*", "__EGL_*", "MESA_*", "LIBGL_*", "__GLX_*",
)  # fmt: skip
"""Variables that a pod inherits: where this machine keeps files, and which drivers it draws and
computes with. `*` stands for any rest of a name. `OMP_…` and the like are not inherited, because
only the manifest may change a result. Tokens are not inherited either.
"""
PYTHONS = ("python", "python3")
GPU = re.compile(r"/gpu([.-][\w.-]+)?$")
"""Resource names of GPUs, exclusive and shared."""
GPUS_VARIABLE = "CUDA_VISIBLE_DEVICES"
"""An executor gives it to each pod; nothing is inherited."""
PROGRESS_VARIABLE = "ARGO_PROGRESS_FILE"
"""The file in which a pod may tell its progress; each pod has one of its own."""
REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][\w.\-]*)\)")


@dataclass(frozen=True, kw_only=True)
class PodSpec:
    """A pod before its folders exist. deadline_s counts from its start, timeout_s from its
    creation.
    """

    container: Mapping[str, Any]
    resources: Resources
    grace_s: float
    deadline_s: float | None
    timeout_s: float | None


def build(template: Mapping[str, Any], workflow_patch: str, values: Values) -> PodSpec:
    """Read a processed template. Raises `WorkflowError` with Argo's message where Argo fails, too."""
    container = json.loads(json.dumps(replace(template["container"], values)))
    patches = [
        replace(text, values)
        for text in (workflow_patch, template.get("podSpecPatch") or "")
        if text
    ]
    grace_s = DEFAULT_GRACE_S
    for text in patches:
        patch = read_patch(text)
        grace_s = float(patch.get("terminationGracePeriodSeconds", grace_s))
        for patched in patch.get("containers") or []:
            for kind, amounts in (
                (patched.get("resources") or {}).items() if patched.get("name") == "main" else ()
            ):
                container.setdefault("resources", {}).setdefault(kind, {}).update(amounts or {})
    deadline = template.get("activeDeadlineSeconds")
    resources = _resources(container.get("resources") or {})
    return PodSpec(
        container=container,
        resources=dataclasses.replace(resources, pods_per_gpu=_pods_per_gpu(template)),
        grace_s=grace_s,
        deadline_s=None if deadline is None else float(integer(deadline, "activeDeadlineSeconds")),
        timeout_s=duration_s(template["timeout"]) if template.get("timeout") else None,
    )


def read_patch(text: str) -> Mapping[str, Any]:
    """Parse a `podSpecPatch`. Raises `Refused` for fields that cannot be changed here, and
    `PodError` for what Kubernetes would reject.
    """
    try:
        patch = load(text, "podSpecPatch")
        check_fields(patch, POD_PATCH, "podSpecPatch")
        for container in patch.get("containers") or []:
            if container.get("name") != "main":
                raise Refused(
                    f"podSpecPatch: container {container.get('name')!r}; the only container here is 'main'"
                )
            _resources(container.get("resources") or {})
    except Refused:
        raise
    except (BadInput, PodError, AttributeError):
        raise PodError("Error applying PodSpecPatch") from None
    return dict(patch)


def _pods_per_gpu(template: Mapping[str, Any]) -> int:
    """Number of pods that may share a GPU, from the pod's annotation; 1 without one."""
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    text = str(annotations.get(PODS_PER_GPU, "1"))
    if not text.isdecimal() or int(text) < 1:
        raise PodError(f"annotation {PODS_PER_GPU}: {text!r} is not allowed")
    return int(text)


def _resources(fields: Mapping[str, Any]) -> Resources:
    """The requests, or the limits where no request is given."""
    amounts = {**(fields.get("limits") or {}), **(fields.get("requests") or {})}
    cpus = 0.0
    gpus = 0
    gpu_name = "nvidia.com/gpu"
    memory_bytes = 0.0
    for name, value in amounts.items():
        amount = quantity(value)
        if name == "cpu":
            cpus = amount
        elif GPU.search(name):
            gpus = int(amount)
            gpu_name = name
        elif name == "memory":
            memory_bytes = amount
        elif name != "ephemeral-storage":
            raise PodError(
                f"resource {name!r}: cpu, memory, ephemeral-storage and GPUs are supported"
            )
        if amount < 0 or (GPU.search(name) and amount != int(amount)):
            raise PodError(f"resource {name}: {value!r} is not allowed")
    return Resources(cpus, gpus, gpu_name=gpu_name, memory_bytes=memory_bytes)


def pod_fields(pod: str, values: Values, place: Mapping[str, str] | None = None) -> dict[str, str]:
    """The fields of a pod that a variable may have as its value. values: of the workflow's tags. place:
    what its executor says of the place where it runs; by default, this machine.
    """
    return {
        "metadata.name": pod,
        "metadata.namespace": values.get("workflow.namespace") or "",
        "spec.serviceAccountName": values.get("workflow.serviceAccountName") or "",
        **(fields_here() if place is None else place),
    }


def fields_here() -> dict[str, str]:
    """The fields of a pod that runs on this machine."""
    return {
        "spec.nodeName": socket.gethostname(),
        "status.hostIP": LOOPBACK,
        "status.podIP": LOOPBACK,
    }


def declared_variables(container: Mapping[str, Any], fields: Mapping[str, str]) -> dict[str, str]:
    """The manifest's environment, without what refers to secrets and config maps. fields: of the pod.
    Raises `PodError`.
    """
    variables: dict[str, str] = {}
    for variable in container.get("env") or []:
        source = variable.get("valueFrom") or {}
        if KEYS.keys() & source:
            continue
        field = (source.get("fieldRef") or {}).get("fieldPath")
        value = fields[field] if field else parameter_text(variable.get("value") or "")
        name = str(variable.get("name") or "")
        if "\0" in value or "\0" in name or "=" in name or not name:
            raise PodError(f"environment variable {name!r} cannot be set")
        variables[name] = _expanded(value, variables)
    return variables


def inherited(further: Iterable[str]) -> dict[str, str]:
    """The inherited part of the caller's environment: `INHERITED` and further names or prefixes
    (`HF_*`).
    """
    patterns = (*INHERITED, *further)
    return {name: value for name, value in os.environ.items() if _matches(name, patterns)}


def is_inherited(name: str) -> bool:
    """Whether every pod inherits this variable."""
    return _matches(name, INHERITED)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(
        name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
        for pattern in patterns
    )


def environment(
    variables: Mapping[str, str], mounts: Mounts, engine: Mapping[str, str]
) -> dict[str, str]:
    """The pod's environment: the engine's variables, then the manifest's, with mount paths
    replaced.
    """
    given = dict(engine)
    if "/tmp" in mounts.folders:  # noqa: S108 - the pod's, which is a folder of its own here
        given["TMPDIR"] = str(mounts.folders["/tmp"])  # noqa: S108
    return given | {name: mounts.local(value) for name, value in variables.items()}


def command(
    container: Mapping[str, Any], mounts: Mounts, variables: Mapping[str, str]
) -> list[str]:
    """The arguments of the process. `python` becomes the interpreter that runs this engine, so that
    its packages are found.
    """
    arguments = [
        _expanded(part, variables)
        for part in (*container["command"], *(container.get("args") or []))
    ]
    if any("\0" in part for part in arguments):
        raise PodError("an argument contains a zero byte")
    program, *rest = (mounts.local(part) for part in arguments)
    return [sys.executable if program in PYTHONS else program, *rest]


def folder(container: Mapping[str, Any], mounts: Mounts) -> Path:
    """The process's working directory: `workingDir`, else the caller's. Raises `PodError` if that
    folder was removed.
    """
    if container.get("workingDir"):
        return Path(mounts.local(container["workingDir"]))
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise PodError("the folder that the workflow was started from has been removed") from None


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    """Kubernetes' `$(NAME)` expansion: replaced if the container declares NAME, else left; `$$` is
    a dollar sign.
    """

    def replacement(found: re.Match[str]) -> str:
        return "$" if found[0] == "$$" else variables.get(found[1], found[0])

    return REFERENCE.sub(replacement, text)
