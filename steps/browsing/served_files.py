"""The files below a folder that may be shown, and nothing outside of it."""

from __future__ import annotations

import errno
import io
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".mp4": "video/mp4",
    **dict.fromkeys((".csv", ".log", ".txt", ".yaml", ".md"), "text/plain; charset=utf-8"),
}
OTHER_TYPE = "application/octet-stream"
SECRET = re.compile(r"\..*|learners?(-\d+)?\.json")
"""Hidden files, and the files with the addresses and access tokens of learners."""
RANGE = re.compile(r"bytes=(?P<first>\d{0,18})-(?P<last>\d{0,18})")


@dataclass(frozen=True)
class Entry:
    """A name in a folder. size_bytes: None for a folder."""

    name: str
    size_bytes: int | None


@dataclass(frozen=True)
class Part:
    """The bytes of a file to send, from first up to last, both included. is_whole: no range."""

    first: int
    last: int
    is_whole: bool

    @property
    def length(self) -> int:
        """How many bytes these are."""
        return self.last - self.first + 1


def located(root: Path, asked: str) -> Path:
    """The real path that a request names, relative to the root. Raises `FileNotFoundError` for whatever is
    missing, secret, or outside of the root, so that the answer does not tell these apart.
    """
    try:
        path = (root / asked.lstrip("/")).resolve(strict=True)
    except (OSError, ValueError, RuntimeError):
        path = root.parent
    if not path.is_relative_to(root):
        raise FileNotFoundError(errno.ENOENT, "not found", asked)
    relative = path.relative_to(root)
    if any(SECRET.fullmatch(part) for part in relative.parts):
        raise FileNotFoundError(errno.ENOENT, "not found", asked)
    return relative


def open_below(root: Path, relative: Path) -> io.BufferedReader:
    """Open a regular file. Follows no link at all, because a folder may be replaced by one after its path
    was resolved. Raises the usual `OSError`s.
    """
    *folders, name = relative.parts
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for folder in folders:
            inner = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        # Without waiting: the opening of a FIFO itself blocks.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        file = os.fdopen(os.open(name, flags, dir_fd=descriptor), "rb")
    finally:
        os.close(descriptor)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise FileNotFoundError(errno.ENOENT, "no regular file", str(relative))
    return file


def entries(root: Path, relative: Path) -> list[Entry]:
    """What lies in a folder: folders first, without what is secret. Raises the usual `OSError`s."""
    found = []
    with os.scandir(root / relative) as listed:
        for entry in listed:
            if SECRET.fullmatch(entry.name) or entry.is_symlink():
                continue
            is_folder = entry.is_dir(follow_symlinks=False)
            size_bytes = None if is_folder else entry.stat(follow_symlinks=False).st_size
            found.append(Entry(entry.name, size_bytes))
    return sorted(found, key=lambda one: (one.size_bytes is not None, one.name))


def type_of(relative: Path) -> str:
    """The content type by the name's suffix."""
    return TYPES.get(relative.suffix.lower(), OTHER_TYPE)


def part_of(size_bytes: int, header: str | None) -> Part | None:
    """The part of a file that a `Range` header asks for (RFC 9110, section 14); the whole without one, or
    for one that need not be understood. None if the file has no such part.
    """
    whole = Part(0, size_bytes - 1, is_whole=True)
    found = RANGE.fullmatch(header) if header else None
    if found is None or not (found["first"] or found["last"]):
        return whole
    if not found["first"]:
        first, last = max(0, size_bytes - int(found["last"])), size_bytes - 1
    else:
        first = int(found["first"])
        last = min(size_bytes - 1, int(found["last"] or size_bytes))
        if found["last"] and int(found["last"]) < first:
            return whole
    return Part(first, last, is_whole=False) if first <= last else None
