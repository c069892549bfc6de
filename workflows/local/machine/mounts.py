"""Where a pod's mounts are on this machine: `/storage` is a folder, every emptyDir a fresh one.

A process cannot be given another file system here, so mount paths are replaced in its command,
arguments, environment and folder, wherever one stands at the boundaries of a path. A path that a
person gave as a parameter, or in one (`-p env_options=log_dir=/tmp/x`), and that only happens to begin
like an emptyDir's mount at `/tmp` is a path of this machine, and stays. In JSON, and in
`--option=<JSON>`, a path stands as JSON writes it: a folder of this machine may have quotes and
backslashes in its name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workflows.local.errors import PodError
from workflows.local.language.go_values import to_json

OPTION = re.compile(r"--?[A-Za-z][\w\-]*=")


@dataclass(frozen=True)
class Mounts:
    """Mount path in the pod -> folder on this machine. kept: texts in which nothing is replaced."""

    folders: Mapping[str, Path]
    kept: Sequence[str] = ()

    def local(self, text: str) -> str:
        """The text with every mount path replaced once."""
        if not self.folders:
            return text
        written = _in_json if _is_json(text) else str
        paths = sorted(self.folders, key=len, reverse=True)
        kept = sorted(map(written, self.kept), key=len, reverse=True)
        pattern = re.compile(
            rf"(?<![\w.\-/])(?:({'|'.join(map(re.escape, kept)) or '(?!)'})|({'|'.join(map(re.escape, paths))}))(?=/|$|[^\w.\-])"
        )
        return pattern.sub(
            lambda found: found[0] if found[1] is not None else written(self.folders[found[2]]),
            text,
        )


def _is_json(text: str) -> bool:
    """Whether the text is a JSON list or object, possibly after `--option=`."""
    document = OPTION.sub("", text, count=1)
    if not document.startswith(("[", "{")):
        return False
    try:
        json.loads(document)
    except (ValueError, RecursionError):
        return False
    return True


def _in_json(path: object) -> str:
    return to_json(str(path))[1:-1]


def make(container: Mapping[str, Any], volumes: Iterable[Mapping[str, Any]], *, storage: Path, pod: Path, outputs: Iterable[str],
         given: Iterable[str], scratch: Path | None = None) -> Mounts:  # fmt: skip
    """The mounts of a container; makes the folders, except those below `scratch`.

    storage: the folder of the persistent volume claim; pod: the folder of this pod's emptyDirs;
    outputs: paths of output files, each of which gets a place of its own if no mount holds it;
    given: parameters as the caller gave them. scratch: a folder, made where the pod runs, for the
    emptyDirs that hold no output; None: they are below `pod`, too.
    """
    outputs = list(outputs)
    sources = {volume["name"]: volume for volume in volumes}
    folders: dict[str, Path] = {}
    private: list[str] = []
    for mount in container.get("volumeMounts") or []:
        volume = sources.get(mount.get("name"))
        if volume is None:
            raise PodError(f"volume {mount.get('name')!r} is mounted but not declared")
        path = str(mount.get("mountPath")).rstrip("/")
        if not path.startswith("/") or ".." in Path(path).parts:
            raise PodError(
                f"mountPath {mount.get('mountPath')!r}: an absolute path below / is expected"
            )
        is_claim = volume.get("persistentVolumeClaim") is not None
        has_output = any(output.startswith(f"{path}/") for output in outputs)
        is_made_here = is_claim or has_output or scratch is None
        own = pod if is_made_here or scratch is None else scratch
        folder = storage if is_claim else own / mount["name"]
        folder = folder / _relative(str(mount.get("subPath") or "."))
        if is_made_here:
            folder.mkdir(parents=True, exist_ok=True)
        folders[path] = folder
        private += [] if is_claim else [path]
    for path in outputs:
        if not any(path == mount or path.startswith(f"{mount}/") for mount in folders):
            folders[path] = pod / "root" / path.lstrip("/").replace("..", "__")
            folders[path].parent.mkdir(parents=True, exist_ok=True)
    return Mounts(folders, [path for value in given for path in _paths_below(private, value)])


def _paths_below(mounts: Sequence[str], value: str) -> list[str]:
    """The paths below one of the mounts in a parameter's value. Each ends where a list, an option or a
    port may begin; to keep its beginning is enough.
    """
    if not mounts:
        return []
    begins = "|".join(map(re.escape, mounts))
    return re.findall(rf"(?<![\w.\-/])(?:{begins})/[^\s,;:=\"'\[\]{{}}]+", value)


def _relative(path: str) -> Path:
    if Path(path).is_absolute() or ".." in Path(path).parts:
        raise PodError(f"subPath {path!r} leaves its volume")
    return Path(path)
