"""Parameters that name directories or files which an experiment reads: people write them as paths of
this machine, and pods see them below the mount.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath

from config.ladder import with_directories
from workflows.request.preflight import MOUNT, Place, cluster_outdir, place

READ_FROM = ("start_from", "imitate", "opponents")


def replaced(name: str, text: str, path_of: Callable[[str], str]) -> str:
    """The value of one of `READ_FROM` with every directory or file replaced by `path_of` it."""
    return with_directories(text, path_of) if name == "opponents" else path_of(text)


def seen_by_pods(name: str, text: str, where: Place | None) -> str:
    """The same value as pods see it. where: this experiment's place, None on a cluster. Raises
    `BadInput`.
    """

    def path_of(path: str) -> str:
        return place(path, where.storage, name).outdir if where else cluster_outdir(path, name)

    return replaced(name, text, path_of)


def seen_in_a_study(name: str, text: str, where: Place | None) -> str:
    """The same value as it stands in the study that pods read: on this machine as a whole path, because
    a mount's path inside of a text would be replaced without regard to the text's quotes. Raises
    `BadInput`.
    """
    if where is None:
        return seen_by_pods(name, text, None)
    storage = where.storage

    def path_of(path: str) -> str:
        return str(storage / PurePosixPath(place(path, storage, name).outdir).relative_to(MOUNT))

    return replaced(name, text, path_of)
