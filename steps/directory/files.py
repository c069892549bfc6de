"""Writing whole files that appear at once or not at all, reading files that another process may be
replacing, and checking whether a file system can hold an experiment.

A whole file is written to a temporary one in the same directory, fsynced, and renamed over its name;
then the directory is fsynced. `make_and_probe` tries once, before any work, whether the storage can do
all of this. `refuse_links` makes sure that nothing is written outside of the output directory.

For tests, `EXPERIMENT_FAULT` kills the process (SIGKILL) at a named point:
`<point>[:<n>[:<part of the path>]]`, at the n-th time that the point is met with a path that
contains the part. Points: after_temporary, before_rename, after_rename, mid_row, mid_save,
before_delete.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import secrets
import shutil
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from config import pipeline
from config.errors import BadInput, ExperimentError, WrongDirectory
from steps.directory.layout import ExperimentDirectory

TEXT_LIMIT_BYTES = 16 * 2**20
GROWTH_BYTES = 2**20
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
        # Only after the content is on the disk: after a power loss a renamed file could be empty.
        temporary.replace(path)
        fault("after_rename", path)
        # The new name itself is an entry of the directory, which has to reach the disk, too.
        sync_directory(path.parent)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def write_if_changed(path: Path, content: bytes | str) -> bool:
    """As `write_atomically`, but a file with the same content keeps its modification time. Returns
    whether it wrote.
    """
    content = content.encode() if isinstance(content, str) else content
    with contextlib.suppress(FileNotFoundError), open_regular(path) as file:
        if file.read() == content:
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
        # Not `rename`, which replaces, and not O_EXCL, which shows the file before its content.
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
        ) from None


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


def open_regular(path: Path) -> io.BufferedReader:
    """Open a file for reading. Raises `IsADirectoryError` for whatever is no regular file: a FIFO would
    hold its reader up until somebody writes into it. Else the usual `OSError`s.
    """
    # Without waiting: the opening of a FIFO itself blocks.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise IsADirectoryError(errno.EISDIR, "no regular file", str(path))
    return os.fdopen(descriptor, "rb")


def _read_once(path: Path, limit_bytes: int) -> bytes:
    """Read the file's actual size. Python allocates what `read` is asked for, and the limit may be
    gigabytes.
    """
    with open_regular(path) as file:
        # The size of the open file: the name may belong to another one a moment later.
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
        with open_regular(path) as file:
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
        # NFS keeps a file that is still open as `.nfs…`, and with it the directory.
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


LEAST_FREE_BYTES = 32 * 2**20
"""About what an experiment's plots, videos and reports need. A training that runs out of space says
so itself.
"""


def make_and_probe(directory: Path) -> None:
    """Create the output directory and try the operations that other modules rely on. Raises
    `BadInput`, which names what is missing.

    A directory that was created for the probe is removed again if the probe fails.
    """
    created = _make(directory)
    try:
        probe(directory)
    except BaseException:
        for path in created:
            path.rmdir()
        raise


def probe(directory: Path) -> None:
    """Try to write, to rename over a file and to link in an existing directory; raises
    `BadInput`.
    """
    one, other = (temporary_beside(directory / name) for name in ("probe-one", "probe-other"))
    try:
        _try_files(directory, one, other)
    except OSError as error:
        raise unwritable(directory, error) or BadInput(
            f"cannot write {directory}: {error.strerror}"
        ) from error
    finally:
        for path in (one, other):
            path.unlink(missing_ok=True)
    free = free_bytes(directory)
    if free < LEAST_FREE_BYTES:
        raise BadInput(
            f"no space in {directory}: {free} bytes free, at least {LEAST_FREE_BYTES} needed"
        )


def _try_files(directory: Path, one: Path, other: Path) -> None:
    write_and_sync(one, b"new")
    write_and_sync(other, b"old")
    try:
        one.replace(other)
    except OSError as error:
        raise BadInput(
            f"{directory} lies on a storage that cannot rename a file over another: {error.strerror}"
        ) from error
    if other.read_bytes() != b"new" or one.exists():
        raise BadInput(
            f"{directory} lies on a storage whose rename is not atomic: the old file was still there"
        )
    sync_directory(directory)
    try:
        os.link(other, one)
    except OSError as error:
        raise BadInput(
            f"{directory} lies on a storage without hard links, which claim a directory: {error.strerror}"
        ) from error
    try:
        os.link(other, one)
    except FileExistsError:
        return
    raise BadInput(
        f"{directory} lies on a storage where a link replaces an existing file: two owners could claim it"
    )


def refuse_links(directory: ExperimentDirectory, run_index: int | None = None) -> None:
    """Raise `WrongDirectory` if a step would write through a symbolic link, which leads outside of
    the directory.

    Links to the output directory itself were followed and checked by `check_outdir`. Whole files
    need no check, because a rename replaces a link. run_index: of a step inside a run; None
    outside.
    """
    folders = [directory.runs, directory.logs, directory.status]
    folders += [directory.root / name for name in pipeline.folders("experiment")]
    files = [directory.owner_json, *directory.logs.glob("*.log")]
    if run_index is not None:
        run = directory.run(run_index)
        folders += [run.root, run.logs, run.status]
        folders += [run.root / name for name in pipeline.folders("run")]
        # Whatever else is a folder there was made by a step, too: networks, positions, replay streams.
        folders += [path for path in _links_in(run.root) if not path.is_file()]
        for numbered in (run.checkpoints, run.networks, run.positions, run.snapshots):
            folders += _links_in(numbered)
        files += [run.train_csv, *run.root.glob("resources*.csv"), *run.logs.glob("*.log")]
    for path in folders:
        refuse_link(path, is_folder=True)
    for path in files:
        refuse_link(path, is_folder=False)


def _links_in(folder: Path) -> list[Path]:
    """The symbolic links directly inside of a folder that is there and no link itself."""
    if folder.is_symlink() or not folder.is_dir():
        return []
    return [Path(entry.path) for entry in os.scandir(folder) if entry.is_symlink()]


def refuse_link(path: Path, *, is_folder: bool) -> None:
    """Raise `WrongDirectory` for a symbolic link, for a file in a folder's place or the reverse, and
    for what is neither. A missing path is fine.
    """
    mode = _mode(path)
    if mode is not None and stat.S_ISLNK(mode):
        raise WrongDirectory(
            f"{path} is a symbolic link, through which nothing is written; remove it or choose another outdir"
        )
    if mode is not None and stat.S_ISDIR(mode) != is_folder:
        raise WrongDirectory(
            f"{path} is {'no' if is_folder else 'a'} directory; remove it or choose another outdir"
        )
    if mode is not None and not is_folder and not stat.S_ISREG(mode):
        raise WrongDirectory(f"{path} is no regular file; remove it or choose another outdir")


def _mode(path: Path) -> int | None:
    """The mode of a path; None if it is missing or may not be looked at, which the later write
    reports.
    """
    try:
        return path.lstat().st_mode
    except OSError:
        return None


def _make(directory: Path) -> list[Path]:
    """Create the directory and its parents. Returns those that were created, innermost first."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(directory, error) or BadInput(
            f"cannot create {directory}: {error.strerror}"
        ) from error
    return missing
