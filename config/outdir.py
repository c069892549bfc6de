"""What the directory of an experiment may be called, and where it may lie: the one that it writes,
`outdir`, and one that it reads, `start_from`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from config.errors import BadInput, shown
from config.parameters import refuse_hostile

if TYPE_CHECKING:  # algorithms look at directories, too
    from config.algorithms.descriptor import Algorithm


def default_outdir(algorithm: Algorithm) -> str:
    """Where plain `argo submit` puts results that nobody gave a place: one directory for each
    algorithm, which refuses the next game. `workflows.submit` also names the game.
    """
    return f"/storage/{algorithm.name}"


def check_outdir_text(outdir: str, name: str = "outdir") -> None:
    """Refuse what no directory of results may be called; name: the parameter's. Raises `BadInput`."""
    refuse_hostile(name, outdir)
    parts = outdir.split("/")
    if (
        ".." in parts
        or outdir.startswith(("~", "-"))
        or any(len(part.encode()) > 255 for part in parts)
    ):
        raise BadInput(
            f"parameter {name!r} cannot be {shown(outdir)}; allowed: a path without '..', not starting with '~' or '-'"
        )


def check_outdir(outdir: str, storage_root: str | Path | None, name: str = "outdir") -> Path:
    """The absolute directory, symbolic links followed; below `storage_root` unless that is None;
    name: the parameter's. Raises `BadInput`.
    """
    if outdir == "":
        raise BadInput(f"empty value for {name!r}; allowed: a path")
    check_outdir_text(outdir, name)
    try:
        path = _followed(outdir)
        root = None if storage_root is None else _followed(storage_root)
    except (OSError, RuntimeError) as error:
        raise BadInput(f"parameter {name!r} cannot be {shown(outdir)}: {error}") from None
    _refuse_other_encoding(path, name)
    if root is not None and (path == root or not path.is_relative_to(root)):
        raise BadInput(
            f"parameter {name!r} cannot be {shown(outdir)}; allowed: a directory below {root}"
        )
    return path


def _refuse_other_encoding(path: Path, name: str) -> None:
    """Everything that handles the path must mean the same bytes: programs of other locales, files
    of UTF-8, Argo.
    """
    encoding = sys.getfilesystemencoding()
    try:
        path.as_posix().encode("ascii" if encoding.lower() not in ("utf-8", "utf8") else "utf-8")
    except UnicodeEncodeError:
        raise BadInput(
            f"parameter {name!r} cannot be {shown(str(path))} where names of files are {encoding}; "
            "allowed: ASCII, or a path that is UTF-8 in a locale of UTF-8 (LC_ALL=C.UTF-8)"
        ) from None


def _followed(path: str | Path) -> Path:
    """The path without symbolic links; from Python 3.13 on `resolve` itself accepts one that leads
    to itself.
    """
    followed = Path(path).resolve()
    for part in (followed, *followed.parents):
        if os.path.islink(part):  # noqa: PTH114 - `Path.is_symlink` raises below a folder that may not be entered
            raise OSError(f"the symbolic link {part} leads to itself")
    return followed
