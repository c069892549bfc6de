"""Who may write into an output directory: one workflow at a time (`Owner`), and of several attempts at
one of its tasks only the newest (`Fence`).

`owner.json` names the workflow. `prepare` claims the directory, `report` releases it, and every other
step checks before it writes that its own workflow still owns it. Running steps touch the file, and its
time of modification is the lease: another workflow watches, on its own monotonic clock, whether that
time changes within `lease_s`. Clocks of two machines are never compared. On the owner's machine no
waiting is needed: its process either lives or not. A workflow that is silent for longer, for example
because all of its pods wait for a GPU, may be displaced; its steps then exit with 4, so no file ever
has two writers.

A lost node, or a pod that was deleted by force, may leave its process running while Argo starts the
next attempt of the same workflow elsewhere. So each attempt first writes a random name into
`status/.<task>.attempt`, once. An older attempt that still lives, or wakes up later, finds another
name there, writes nothing more and ends with 4; it cannot take the file back. What it was writing at
that moment is lost, because each attempt writes growing files anew (`tables.Table`), and a checkpoint
that counts on rows of another attempt is rejected.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from config.errors import BadInput, WrongDirectory, shown
from steps.directory import processes
from steps.directory.files import create_once, open_regular, read_bytes, write_atomically

LEASE_S = 60.0
LONGEST_LEASE_S = 3600.0
HEARTBEATS_PER_LEASE = 6
MISSED_HEARTBEATS = 4
"""After so many, a step that gives no sign of life has been killed."""
OWNER_LIMIT_BYTES = 65536
ATTEMPT = re.compile(r"\([0-9]+\)")
"""The number of an attempt in a node's name: `wf.first(1).prepare`."""


@dataclass(frozen=True, kw_only=True)
class Owner:
    """A workflow that may write.

    uid: unique per workflow. workflow: its name. call: which of the workflow's experiments, by the
    node that prepares it; empty if unknown. process: the local engine's (`processes.identity`),
    else None. lease_s: silence after which it may be displaced. released: whether it has ended and
    said so.
    """

    uid: str
    workflow: str = ""
    call: str = ""
    host: str = ""
    process: str | None = None
    lease_s: float = LEASE_S
    released: bool = False

    def __str__(self) -> str:
        where = f"process {self.process}" if self.process else f"host {self.host}"
        return f"workflow {self.workflow or 'without a name'} (uid {self.uid}, {where})"


def from_environment(
    environment: Mapping[str, str] = os.environ, *, call: str = ""
) -> Owner | None:
    """The workflow that this pod belongs to; None when run by hand. call: the name of the node,
    which may be below one that was repeated.
    """
    uid = environment.get("EXPERIMENT_OWNER")
    if not uid:
        return None
    return Owner(
        uid=uid,
        workflow=environment.get("EXPERIMENT_WORKFLOW", ""),
        call=ATTEMPT.sub("", call),
        host=socket.gethostname(),
        process=environment.get("EXPERIMENT_OWNER_PROCESS") or None,
    )


def read_owner(path: Path) -> Owner | None:
    """The owner in `owner.json`; None without one. Raises `WrongDirectory` for a file that this
    program did not write.
    """
    try:
        fields = json.loads(read_bytes(path, OWNER_LIMIT_BYTES))
        owner = _checked(Owner(**{name: fields[name] for name in _NAMES if name in fields}))
    except FileNotFoundError:
        return None
    except (BadInput, ValueError, TypeError, RecursionError) as error:
        raise WrongDirectory(
            f"{path} cannot be read ({error}); delete it if no workflow writes into this directory"
        ) from error
    return owner


def _checked(owner: Owner) -> Owner:
    """Check the fields' types. Raises `ValueError`: a lease without end, for example, would be
    watched without end.
    """
    kinds = {
        "uid": str,
        "workflow": str,
        "call": str,
        "host": str,
        "process": str | None,
        "lease_s": int | float,
        "released": bool,
    }
    for name, kind in kinds.items():
        if not isinstance(getattr(owner, name), kind):
            raise ValueError(f"{name} cannot be {shown(getattr(owner, name))}")
    if not 0 < owner.lease_s <= LONGEST_LEASE_S:
        raise ValueError(
            f"lease_s cannot be {shown(owner.lease_s)}; allowed: up to {LONGEST_LEASE_S:g} s"
        )
    return owner


def claim(path: Path, owner: Owner, *, on_wait: Callable[[], None] = lambda: None) -> None:
    """Make `owner` the owner. Raises `WrongDirectory`, which names the present owner, if that is
    alive or is another call in the same workflow.

    May wait for the present owner's lease and calls `on_wait` repeatedly meanwhile.
    """
    if not create_once(path, _dump(owner).encode()):
        present = read_owner(path)
        if present == owner:
            return
        # None: the file was removed between the two calls. Equal: `prepare` of this workflow runs
        # again.
        if present is None or present.uid == owner.uid:
            _refuse_other_call(path, present, owner)
            write_atomically(path, _dump(owner))
        else:
            _refuse_if_alive(path, present, on_wait)
            _take_over(path, present, owner, on_wait)
    # Two claims may have raced: only the one whose name stands there now goes on.
    check(path, owner.uid)


def _refuse_other_call(path: Path, present: Owner | None, owner: Owner) -> None:
    """Raise `WrongDirectory` for a second call of one workflow: each call of the experiment needs a
    directory of its own.
    """
    if present is not None and present.call and owner.call and present.call != owner.call:
        raise WrongDirectory(
            f"{path.parent} belongs to another call of the experiment in this workflow, {present.call}; "
            f"{owner.call} needs another outdir"
        )


def _take_over(path: Path, ended: Owner, owner: Owner, on_wait: Callable[[], None]) -> None:
    """Replace an owner that has ended. If several try at the same time, one succeeds and the others
    raise `WrongDirectory`.

    The winner is the one that creates the successor file, whose name belongs to the owner that
    ended.
    """
    successor = (
        path.parent
        / f".{path.name}.{hashlib.sha256(_dump(ended).encode()).hexdigest()[:16]}.successor"
    )
    other = read_owner(successor)
    if other is not None and other != owner:
        _refuse_if_alive(
            successor, other, on_wait
        )  # else it was killed in the middle of this function
        successor.unlink(missing_ok=True)
    # Of several workflows that saw the owner end, one creates this file and takes over.
    if not create_once(successor, _dump(owner).encode()) and read_owner(successor) != owner:
        raise WrongDirectory(
            f"{path.parent} is being taken over by another workflow at this moment; choose another outdir"
        )
    try:
        if (present := read_owner(path)) != ended:
            raise WrongDirectory(
                f"{path.parent} was taken over meanwhile, by {present}; choose another outdir"
            )
        write_atomically(path, _dump(owner))
    finally:
        successor.unlink(missing_ok=True)


def take_back(path: Path, uid: str) -> None:
    """Claim a directory again that this workflow itself has released: `argo retry` goes on with an
    ended workflow, whose `prepare` succeeded and is not repeated. Raises `WrongDirectory` if another
    workflow takes it over at the same moment. Anything else is left as it is, for `check` to judge.

    Only a step that starts may do this; a step that finds the directory released while it works was
    given up by the workflow's end.
    """
    present = read_owner(path)
    if present is not None and present.uid == uid and present.released:
        again = dataclasses.replace(present, host=socket.gethostname(), released=False)
        _take_over(path, present, again, lambda: None)


def check(path: Path, uid: str | None, *, on_wait: Callable[[], None] = lambda: None) -> None:
    """Raise `WrongDirectory` unless workflow `uid` owns the directory. When run by hand (None), no
    living workflow may own it.
    """
    present = read_owner(path)
    if uid is None:
        if present is not None:
            _refuse_if_alive(path, present, on_wait)
        return
    if present is None:
        raise WrongDirectory(
            f"{path.parent} has no owner; prepare of this workflow (uid {uid}) has not claimed it"
        )
    if present.uid != uid or present.released:
        no_longer = " no longer" if present.released else ""
        raise WrongDirectory(
            f"{path.parent} belongs to {present}{no_longer}, not to workflow uid {uid}"
        )


def touch(path: Path, uid: str) -> None:
    """Keep the lease of a running workflow alive. Raises `WrongDirectory` if it was displaced."""
    check(path, uid)
    os.utime(path)


def release(path: Path, uid: str) -> None:
    """Record that the workflow has ended. A displaced workflow changes nothing."""
    present = read_owner(path)
    if present is not None and present.uid == uid and not present.released:
        write_atomically(path, _dump(dataclasses.replace(present, released=True)))


def is_alive(path: Path, owner: Owner, on_wait: Callable[[], None] = lambda: None) -> bool:
    """Whether the owner still works: known by its process if it is on this machine, else by
    watching its lease for up to `lease_s`.
    """
    if owner.released:
        return False
    alive = processes.is_alive(owner.process) if owner.process else None
    if alive is not None:
        return alive
    return _lease_moves(path, owner, on_wait)


def _refuse_if_alive(path: Path, present: Owner, on_wait: Callable[[], None]) -> None:
    if is_alive(path, present, on_wait):
        raise WrongDirectory(
            f"{path.parent} belongs to {present}, which is still running; wait for its end or choose another outdir"
        )


def _lease_moves(path: Path, owner: Owner, on_wait: Callable[[], None]) -> bool:
    print(
        f"{path.parent} belongs to {owner}; watching its lease for {owner.lease_s:g} s", flush=True
    )
    # The time of modification is compared with itself only: clocks of two machines may differ.
    first = sign_of_life(path)
    end = time.monotonic() + owner.lease_s
    while time.monotonic() < end:
        on_wait()
        time.sleep(min(1.0, owner.lease_s / 20))
        if sign_of_life(path) != first:
            return True
    return False


def sign_of_life(path: Path) -> tuple[int, bytes] | None:
    """A file's modification time and content, which change while its writer lives; None without the
    file. It is opened, because NFS then asks the server instead of its cache.
    """
    try:
        with open_regular(path) as file:
            return os.fstat(file.fileno()).st_mtime_ns, file.read(OWNER_LIMIT_BYTES)
    except FileNotFoundError:
        return None


def _dump(owner: Owner) -> str:
    return json.dumps(dataclasses.asdict(owner), indent=1) + "\n"


_NAMES = [item.name for item in dataclasses.fields(Owner)]


NAME_LIMIT_BYTES = 256


def fence_path(status: Path) -> Path:
    """The file with the name of a step's newest attempt, beside the step's status."""
    return status.with_name(f".{status.stem}.attempt")


def killed_after_s(path: Path) -> float:
    """After how many seconds without a sign of life a step has been killed, by the lease of the
    directory's owner.
    """
    try:
        present = read_owner(path)
    except (OSError, WrongDirectory):
        present = None
    lease_s = present.lease_s if present else LEASE_S
    return MISSED_HEARTBEATS * lease_s / HEARTBEATS_PER_LEASE


class Fence:
    """The right of one attempt to write. path: the file with the name of the newest attempt."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._name = secrets.token_hex(16).encode()

    def claim(self) -> None:
        """Become the newest attempt: from now on all older ones are shut out. To be called once.

        An older attempt that is just beginning may remove the temporary file; the write is then
        repeated.
        """
        try:
            write_atomically(self._path, self._name)
        except FileNotFoundError:
            write_atomically(self._path, self._name)

    def beat(self) -> None:
        """Give the file the present time, as a sign of life. Raises the usual `OSError`s."""
        os.utime(self._path)

    def check(self) -> None:
        """Raise `WrongDirectory` if a newer attempt has started, and the usual `OSError`s."""
        if self._newest() != self._name:
            raise WrongDirectory(
                f"another attempt of this step has started since and writes here now ({self._path})"
            )

    def _newest(self) -> bytes | None:
        try:
            return read_bytes(self._path, NAME_LIMIT_BYTES)
        except FileNotFoundError:
            return None
