"""The four packages of this project have common names: what else is called so is named, not mistaken.

A person's own `config.py` beside the results, or a package of the index called `agents`, would
otherwise end in an ImportError that names neither of the two files.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

from config.errors import BadInput

PACKAGES = ("agents", "config", "steps", "workflows")
DISTRIBUTION = "rl-training-dag"
ROOT = Path(__file__).resolve().parents[1]


def top_level(import_path: str) -> str:
    """`package.module:Name` -> `package`."""
    return import_path.partition(":")[0].partition(".")[0]


def refuse_hidden(import_paths: Iterable[str]) -> None:
    """Raise `BadInput` if an import path of a person means a module of its own that one of ours hides."""
    for path in import_paths:
        top = top_level(path)
        if top not in PACKAGES:
            continue
        for folder in dict.fromkeys(map(Path, ["", *sys.path])):
            for file in (folder / f"{top}.py", folder / top / "__init__.py", folder / top):
                if file.exists() and not file.resolve().is_relative_to(ROOT):
                    raise BadInput(
                        f"{path!r} cannot be imported: {file.resolve()} is hidden by {ROOT / top}, a package "
                        "of this project; give yours another name"
                    )


@functools.cache
def refuse_foreign() -> None:
    """Raise `BadInput` if another package stands in the place of one of ours: first on the path, or
    installed over it. Looks once in a process.
    """
    recorded = _recorded()
    for name in PACKAGES:
        ours = ROOT / name / "__init__.py"
        spec = importlib.util.find_spec(name)
        found = None if spec is None or spec.origin is None else Path(spec.origin).resolve()
        if found is not None and found != ours:
            raise BadInput(
                f"{ours} is hidden by {found}, which has the same name: this project needs a Python "
                "environment without it"
            )
        expected = recorded.get(f"{name}/__init__.py")
        if expected is not None and _sum(ours) != expected:
            raise BadInput(
                f"{ours} was overwritten by {_others(name)}: this project needs a Python environment of "
                "its own; install it into a new one"
            )


def _recorded() -> dict[str, str]:
    """File -> checksum as pip recorded it when it installed this project; empty for a checkout."""
    try:
        files = importlib.metadata.distribution(DISTRIBUTION).files or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    inits = {f"{name}/__init__.py" for name in PACKAGES}
    return {
        str(file): file.hash.value
        for file in files
        if str(file) in inits and file.hash is not None and Path(str(file.locate())) == ROOT / file
    }


def _sum(file: Path) -> str:
    digest = hashlib.sha256(file.read_bytes()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _others(name: str) -> str:
    """The other installed packages that contain a module of this name."""
    found = set(importlib.metadata.packages_distributions().get(name, [])) - {DISTRIBUTION}
    return ", ".join(sorted(found)) or "another package"
