"""The mounts of every pod, and the further volumes that a cluster's settings may add to them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from config.errors import BadInput, shown
from config.memory import MEMORY
from config.parameters import parameter
from config.pod_references import NAME
from config.sections import list_of, section

STORAGE, OUTPUTS, SCRATCH, SHARED_MEMORY = "/storage", "/outputs", "/tmp", "/dev/shm"  # noqa: S108 - mounts of the pod, not ours
PROTECTED = (
    STORAGE, OUTPUTS, SCRATCH, "/opt/experiment", "/opt/venv", "/var/run/argo",
    "/var/run/secrets/kubernetes.io", "/proc", "/sys", "/dev",
)  # fmt: skip
"""Where no further volume may be mounted: the project's mounts, the image's code, Argo's executor and
the kernel's folders.
"""
SOURCES = ("claim", "config_map", "secret", "empty_dir")


@dataclass(frozen=True, kw_only=True)
class EmptyDir:
    """A fresh folder of each pod. `Memory` counts towards the pod's memory limit."""

    size: str = parameter("", help="largest size of the folder", **MEMORY)
    medium: str | None = parameter(
        None, optional=True, choices=("Memory",), help="where it is; empty: the node's disk"
    )


@dataclass(frozen=True, kw_only=True)
class Volume:
    """A volume with the place where pods see it. Exactly one of claim, config_map, secret and empty_dir
    is set.
    """

    mount_path: str = parameter(
        "",
        pattern=r"(/[A-Za-z0-9][A-Za-z0-9._-]{0,63}){1,16}",
        form="an absolute path without '..'",
        help="where pods see the volume",
    )
    claim: str | None = parameter(None, optional=True, help="persistent volume claim", **NAME)
    config_map: str | None = parameter(
        None, optional=True, help="config map, a file for each key", **NAME
    )
    secret: str | None = parameter(None, optional=True, help="secret, a file for each key", **NAME)
    empty_dir: EmptyDir | None = None
    read_only: bool = parameter(False, help="whether pods may only read the volume")
    sub_path: str | None = parameter(
        None,
        optional=True,
        pattern=r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}(/[A-Za-z0-9_][A-Za-z0-9._-]{0,63}){0,15}",
        form="a relative path without '..'",
        help="folder or file inside of the volume that is mounted in place of the whole",
    )
    optional: bool = parameter(
        False, help="whether pods also start without the config map or secret"
    )


def _read_volume(value: Any, path: str) -> Volume:
    read: Volume = section(Volume, value, path)
    given = [source for source in SOURCES if getattr(read, source) is not None]
    if len(given) != 1:
        raise BadInput(
            f"{path!r} has {' and '.join(given) or 'no source'}; "
            f"allowed: exactly one of {', '.join(SOURCES)}"
        )
    if read.optional and given[0] not in ("config_map", "secret"):
        raise BadInput(
            f"'{path}.optional' cannot be true with {given[0]}; allowed: with config_map or secret"
        )
    if read.mount_path == SHARED_MEMORY and read.empty_dir is not None:
        return read
    taken = [own for own in PROTECTED if _overlap(own, read.mount_path)]
    if taken:
        raise BadInput(
            f"'{path}.mount_path' cannot be {shown(read.mount_path)}, which overlaps with "
            f"{taken[0]}; allowed: a path apart from {', '.join(PROTECTED)}; {SHARED_MEMORY} "
            "with empty_dir"
        )
    return read


_read_list = list_of(_read_volume)


def read_volumes(value: Any, path: str) -> tuple[Volume, ...]:
    """Read a list of volumes. Raises `BadInput`, also if the mounts of two overlap."""
    volumes: tuple[Volume, ...] = _read_list(value, path)
    for index, one in enumerate(volumes):
        for other in volumes[:index]:
            if _overlap(one.mount_path, other.mount_path):
                raise BadInput(
                    f"'{path}[{index}].mount_path' cannot be {shown(one.mount_path)}, which "
                    f"overlaps with {other.mount_path}; allowed: a path apart from other volumes"
                )
    return volumes


def _overlap(one: str, other: str) -> bool:
    first = PurePosixPath(one)
    second = PurePosixPath(other)
    return first.is_relative_to(second) or second.is_relative_to(first)
