"""Checks the directories that an experiment names: `outdir`, which it writes, and `start_from`,
which it reads.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from config.errors import BadInput
from config.parameters import cannot_be, refuse_hostile

if TYPE_CHECKING:
    # Imported for its type alone: descriptors import this module.
    from config.algorithms.descriptor import Algorithm


def default_outdir(algorithm: Algorithm) -> str:
    """The results directory of a plain `argo submit` that names none: one directory for each
    algorithm, which refuses a second game. `workflows.submit` adds the game to the name.
    """
    return f"/storage/{algorithm.name}"


def check_outdir_text(outdir: str, name: str = "outdir") -> None:
    """Raise `BadInput` for a text that no results directory can have. name: the parameter's name."""
    refuse_hostile(name, outdir)
    parts = outdir.split("/")
    if (
        ".." in parts
        or outdir.startswith(("~", "-"))
        or any(len(part.encode()) > 255 for part in parts)
    ):
        raise cannot_be(name, outdir, allowed="a path without '..', not starting with '~' or '-'")


def check_outdir(outdir: str, storage_root: str | Path | None, name: str = "outdir") -> Path:
    """The absolute directory with symbolic links resolved. It must lie below `storage_root`, unless
    that is None. name: the parameter's name. Raises `BadInput`.
    """
    if outdir == "":
        raise BadInput(f"empty value for {name!r}; allowed: a path")
    check_outdir_text(outdir, name)
    try:
        path = _followed(outdir)
        root = None if storage_root is None else _followed(storage_root)
    except (OSError, RuntimeError) as error:
        raise cannot_be(name, outdir, because=str(error)) from None
    _refuse_other_encoding(path, name)
    if root is not None and (path == root or not path.is_relative_to(root)):
        raise cannot_be(name, outdir, allowed=f"a directory below {root}")
    return path


def _refuse_other_encoding(path: Path, name: str) -> None:
    """Raise `BadInput` if the path is not the same bytes in UTF-8 and in the locale's encoding:
    programs of other locales, UTF-8 files and Argo all handle it.
    """
    encoding = sys.getfilesystemencoding()
    try:
        path.as_posix().encode("ascii" if encoding.lower() not in ("utf-8", "utf8") else "utf-8")
    except UnicodeEncodeError:
        raise cannot_be(
            name,
            str(path),
            f"where names of files are {encoding}",
            allowed="ASCII, or a path that is UTF-8 in a locale of UTF-8 (LC_ALL=C.UTF-8)",
        ) from None


def _followed(path: str | Path) -> Path:
    """Resolve symbolic links. From Python 3.13 on `resolve` itself accepts a link that leads to
    itself, which is refused here.
    """
    followed = Path(path).resolve()
    for part in (followed, *followed.parents):
        if os.path.islink(part):  # noqa: PTH114 - `Path.is_symlink` raises below a folder that may not be entered
            raise OSError(f"the symbolic link {part} leads to itself")
    return followed
