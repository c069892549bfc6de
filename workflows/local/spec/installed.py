"""Workflow templates in files, which the local engine uses as a cluster uses installed ones."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from config.errors import shown
from config.strict_yaml import load_mapping
from workflows.local.errors import Refused
from workflows.local.spec.go_yaml import GoLoader

FOLDER = Path(__file__).parents[3] / "containers" / "kubernetes" / "templates"
"""This project's own templates, each in a file of its name, where its checkout is at hand."""
KIND = "WorkflowTemplate"


def finder(paths: Iterable[Path]) -> Callable[[str], dict[str, Any]]:
    """A function that returns the workflow template of a name. paths: files, and folders of files,
    beside this project's own. They are read when the first template is looked for. Raises
    `Refused` for a name that none of them has, and `BadInput` for a file that cannot be read.
    """
    given: dict[str, dict[str, Any]] | None = None
    ours = {path.stem: path for path in FOLDER.glob("rl-*.yaml")}

    def find(name: str) -> dict[str, Any]:
        nonlocal given
        if given is None:
            given = _read(paths)
        if name not in given and name in ours:
            given |= _read([ours[name]])
        if name not in given:
            known = sorted({*given, *ours})
            nearest = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
            raise Refused(
                f"no workflow template {shown(name)}{hint} known: {', '.join(known) or 'none'}; "
                "--templates names files of others"
            )
        return given[name]

    return find


def _read(paths: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """The workflow templates in files, by name. A later one replaces an earlier one."""
    found: dict[str, dict[str, Any]] = {}
    for path in paths:
        files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
        if not path.exists():
            raise Refused(f"--templates cannot be {shown(str(path))}: no such file or folder")
        for file in files:
            document = load_mapping(file, GoLoader)
            if document.get("kind") == KIND:
                name = (document.get("metadata") or {}).get("name")
                if not isinstance(name, str):
                    raise Refused(f"{file}: metadata.name is missing")
                found[name] = document
            elif not path.is_dir():
                raise Refused(f"{file}: kind {document.get('kind')!r}; allowed: {KIND}")
    return found
