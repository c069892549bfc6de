"""Whole files that appear at once or not at all, and reading what another process may be replacing.

The recipe: temporary in the same directory, write, fsync, rename over the name, fsync of the
directory. `EXPERIMENT_FAULT` kills the process (SIGKILL) at a named point of it, for the tests:
`<point>[:<n>[:<part of the path>]]`, at the n-th time that the point is met with a path that
contains the part. Points: after_temporary, before_rename, after_rename, mid_row, mid_save.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from config.errors import BadInput, ExperimentError

TEXT_LIMIT_BYTES = 16 * 2**20
GROWTH_BYTES = 2**20
LAG_S = 5.0
"""How long a reader on another machine may see an old directory, because NFS caches attributes."""
_hits = 0


def write_atomically(path: Path, content: bytes | str, mode: int = 0o666) -> None:
    """Replace `path` as a whole: a reader, also after a kill, sees the old or the new content.
    mode: of the new file, from its first byte on, as far as the umask allows.

    Raises `ExperimentError` with the needed and the free bytes if the disk is full; the old content
    stays.
    """
    content = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_beside(path)
    try:
        with full_disk_explained(path, len(content)):
            write_and_sync(temporary, content, mode)
        fault("after_temporary", path)
        fault("before_rename", path)
        temporary.replace(path)
        fault("after_rename", path)
        sync_directory(path.parent)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def write_if_changed(path: Path, content: bytes | str) -> bool:
    """As `write_atomically`, but a file with the same content keeps its modification time. Returns
    whether it wrote.
    """
    content = content.encode() if isinstance(content, str) else content
    with contextlib.suppress(FileNotFoundError):
        if path.read_bytes() == content:
            return False
    write_atomically(path, content)
    return True


def temporary_beside(path: Path) -> Path:
    """A temporary name that no other process uses. Host name and pid are not enough: pods of two
    nodes may have equal host names, and pid 1 or 7 exists in every pod.
    """
    return path.parent / f".{path.name}.{secrets.token_hex(8)}.tmp"


def write_and_sync(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Create a file that nobody reads yet and sync it to the disk. Never follows a symbolic link."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        write_all(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def create_once(path: Path, content: bytes) -> bool:
    """Create a whole file unless it exists. Returns whether it did; of many processes on many
    machines, one succeeds.

    `os.link` fails if the name exists, on NFS too, and the content is never half written.
    """
    temporary = temporary_beside(path)
    try:
        with full_disk_explained(path, len(content)):
            write_and_sync(temporary, content)
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)
    return True


def write_all(descriptor: int, content: bytes) -> None:
    """Call `os.write` until everything is written: near the end of a disk the first call writes
    only a part.
    """
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def sync_directory(path: Path) -> None:
    """Make renames and new names in a directory survive a power loss."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def full_disk_explained(path: Path, needed_bytes: int) -> Iterator[None]:
    """Turn ENOSPC, EDQUOT and EFBIG into one line with the needed and the free bytes."""
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            raise
        raise ExperimentError(
            f"no space for {path}: {needed_bytes} bytes needed, {free_bytes(path.parent)} bytes free ({os.strerror(error.errno)})"
        ) from error


def unwritable(path: Path, error: OSError) -> BadInput | None:
    """An explanation for a person who may not write `path`: the nearest existing directory, its
    owner and mode, and the uid of this process.
    """
    if error.errno not in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return None
    existing = next(parent for parent in (path, *path.parents) if parent.is_dir())
    found = existing.stat()
    return BadInput(
        f"cannot write {path}: {existing} has mode {found.st_mode & 0o7777:04o} and belongs to uid {found.st_uid}, "
        f"this is uid {os.geteuid()} ({os.strerror(error.errno)})"
    )


def free_bytes(path: Path) -> int:
    """Bytes that this user may still write on the file system of an existing path."""
    return shutil.disk_usage(path).free


def read_bytes(path: Path, limit_bytes: int = TEXT_LIMIT_BYTES) -> bytes:
    """The content of a file. Its size is checked before it is read, and a stale NFS handle is
    opened again once.

    Raises `BadInput` above the limit and the usual `OSError`s.
    """
    try:
        return _read_once(path, limit_bytes)
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise
        return _read_once(path, limit_bytes)


def _read_once(path: Path, limit_bytes: int) -> bytes:
    """Read the file's actual size. Python allocates what `read` is asked for, and the limit may be
    gigabytes.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        _refuse_large(path, size, limit_bytes)
        content = file.read(size + 1)
        while len(content) > size and (more := file.read(GROWTH_BYTES)):  # it has grown meanwhile
            content += more
            _refuse_large(path, len(content), limit_bytes)
        return content


def _refuse_large(path: Path, size_bytes: int, limit_bytes: int) -> None:
    if size_bytes > limit_bytes:
        raise BadInput(f"{path} has {size_bytes} bytes; at most {limit_bytes} are read")


def last_lines(path: Path, largest_bytes: int) -> list[str]:
    """The lines within the last bytes of a text file; none if it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - largest_bytes))
            return file.read().decode("utf-8", errors="replace").splitlines()
    except OSError:
        return []


def remove_temporaries(directory: Path, *, of: str = "") -> None:
    """Remove temporaries (`.*.tmp`, files and directories) of dead attempts of these files' only
    writer.

    of: the prefix of the names of the files to be written; empty for all in the directory.
    """
    with contextlib.suppress(FileNotFoundError):
        for path in list(directory.iterdir()):
            if path.name.startswith(f".{of}") and path.name.endswith(".tmp"):
                remove(path)


def remove(path: Path) -> None:
    """Remove a file or a whole directory. NFS may leave `.nfs…` files that keep the directory; that
    is ignored.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def fault(point: str, path: Path) -> None:
    """Kill this process, or ask it three times to end, if `EXPERIMENT_FAULT` says so (tests only)."""
    if will_fault(point, path):
        if os.environ["EXPERIMENT_FAULT"].endswith(":SIGTERM"):
            for _ in range(3):
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(0.05)  # Python handles signals that come together once
        else:
            die()


def die() -> None:
    """End this process as the kernel or a vanished node would."""
    os.kill(os.getpid(), signal.SIGKILL)


def will_fault(point: str, path: Path) -> bool:
    """Whether `EXPERIMENT_FAULT` names this point now; counts the hits."""
    wanted = os.environ.get("EXPERIMENT_FAULT")
    if not wanted:
        return False
    name, count, part = [*wanted.split(":"), "", ""][:3]
    if name != point or part not in str(path):
        return False
    global _hits
    _hits += 1
    return _hits == int(count or 1)
