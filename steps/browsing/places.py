"""Finds the experiments, studies and searches below a folder, by the files that they begin with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from config.errors import BadInput, shown
from config.outdir import check_outdir
from steps.directory.layout import ExperimentDirectory
from steps.directory.search import SearchDirectory
from steps.directory.study import StudyDirectory

Kind = Literal["experiment", "study", "search", "unreadable"]
DEEPEST = 32
"""Folders within folders that are looked into."""


@dataclass(frozen=True)
class Place:
    """A directory of one kind. part_of: the study or the search that it lies in. damage: why a folder
    could not be looked into, in one line; empty otherwise.
    """

    kind: Kind
    path: Path
    part_of: Path | None = None
    damage: str = ""


def folder_named(text: str) -> Path:
    """The folder below which a command looks for experiments. Raises `BadInput`."""
    root = check_outdir(text, None, name="root")
    if not root.is_dir():
        raise BadInput(f"root cannot be {shown(text)}; allowed: a folder that exists")
    return root


def kind_of(folder: Path) -> Kind | None:
    """What a folder is the directory of; None for any other folder."""
    study = StudyDirectory(folder)
    if _is_there(ExperimentDirectory(folder).experiment_yaml):
        return "experiment"
    if _is_there(SearchDirectory(folder).search):
        return "search"
    if _is_there(study.study_yaml) or _is_there(study.cells_json):
        return "study"
    return None


def find_places(root: Path) -> list[Place]:
    """All of them in the order of their paths. Neither a symbolic link nor a hidden folder nor the
    inside of an experiment is looked into.
    """
    return sorted(_below(root, None, DEEPEST), key=lambda place: place.path.parts)


def _below(folder: Path, part_of: Path | None, deeper: int) -> Iterator[Place]:
    try:
        kind = kind_of(folder)
        if kind is not None:
            yield Place(kind, folder, part_of)
        if kind == "experiment":
            return
        inside = _folders_of(folder, kind)
    except OSError as error:
        yield Place("unreadable", folder, part_of, f"cannot be read: {error.strerror}")
        return
    if deeper == 0:
        if inside:
            yield Place("unreadable", folder, part_of, f"more than {DEEPEST} folders deep")
        return
    for one in inside:
        yield from _below(one, part_of if kind is None else folder, deeper - 1)


def _folders_of(folder: Path, kind: Kind | None) -> list[Path]:
    """The folders to look into: of a study, and of a search, those that contain experiments."""
    if kind is not None:
        study = SearchDirectory(folder)
        listed = (study.experiments, study.again.root)
        return [path for path in listed if path.is_dir() and not path.is_symlink()]
    with os.scandir(folder) as entries:
        return [
            Path(entry.path)
            for entry in entries
            if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
        ]


def _is_there(path: Path) -> bool:
    """Whether a path exists. Raises `PermissionError` where that cannot be known."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
