"""A workflow that runs on Slurm: begun, gone on with after its engine was killed, followed, ended."""

from __future__ import annotations

import contextlib
import datetime
import json
import secrets
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from config.errors import BadInput, WrongDirectory
from steps.directory import owner, processes
from steps.directory.files import read_bytes, write_atomically
from workflows.local.status import WorkflowStatus
from workflows.slurm.records import PRIVATE, Record

BETWEEN_WRITES_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Begun:
    """What a workflow is. manifest: without a name. storage: what pods see as the mount. outdir,
    directory: the results directory as pods and as people see it, as far as the workflow has one.
    """

    name: str
    uid: str
    created: str
    manifest: Mapping[str, Any]
    parameters: Mapping[str, str]
    storage: str
    outdir: str = ""
    directory: str = ""

    @property
    def again(self) -> tuple[str, datetime.datetime]:
        """Its identity, for the engine."""
        return self.uid, datetime.datetime.fromisoformat(self.created)


@dataclass(frozen=True)
class Workspace:
    """A folder with the records of workflows. pointer: the name of the file that names the one that has
    not ended.
    """

    root: Path
    pointer: str = "current"

    def find(self) -> tuple[Begun, Record] | None:
        """The workflow that has not ended, or else the last one."""
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            record = Record(self.root / self._current()["folder"])
            return Begun(**json.loads(read_bytes(record.workflow_json))), record
        return None

    def unfinished(self) -> tuple[Begun, Record] | None:
        """The workflow that has not ended."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            if not self._current()["ended"]:
                return self.find()
        return None

    def begin(
        self,
        *,
        name: str,
        manifest: Mapping[str, Any],
        parameters: Mapping[str, str],
        storage: Path,
        outdir: str = "",
        directory: str = "",
        is_named: bool = False,
    ) -> tuple[Begun, Record]:
        """Begin a workflow, or find the unfinished one if it is the same. is_named: a person chose the
        name. Raises `BadInput` if the unfinished one is another.
        """
        wanted = _comparable(manifest)
        found = self.unfinished()
        if found is not None:
            begun, record = found
            same = (begun.manifest, begun.parameters, begun.storage)
            if same == (wanted, dict(parameters), str(storage)) and (
                not is_named or begun.name == name
            ):
                return found
            raise BadInput(
                f"{self.root} holds the unfinished workflow {begun.name} with other parameters; allowed: the "
                f"same parameters, which goes on with it, or another directory; to give it up: cancel its "
                f"jobs, named *.{begun.uid[:8]}, and remove {self.root / self.pointer}"
            )
        begun = Begun(
            name=name,
            uid=str(uuid.uuid4()),
            created=datetime.datetime.now(datetime.UTC).isoformat(),
            manifest=wanted,
            parameters=dict(parameters),
            storage=str(storage),
            outdir=outdir,
            directory=directory,
        )
        record = Record(self.root / f"{name}-{begun.uid[:8]}")
        record.make()
        write_atomically(record.workflow_json, json.dumps(asdict(begun)), PRIVATE)
        self._point(record, ended=False)
        return begun, record

    def end(self, record: Record) -> None:
        """Note that a workflow has ended: the same request is another one from now on."""
        self._point(record, ended=True)

    def _current(self) -> dict[str, Any]:
        current: dict[str, Any] = json.loads(read_bytes(self.root / self.pointer))
        return current

    def _point(self, record: Record, *, ended: bool) -> None:
        content = json.dumps({"folder": record.root.name, "ended": ended})
        write_atomically(self.root / self.pointer, content, PRIVATE)


@contextlib.contextmanager
def locked(record: Record, name: str, on_wait: Callable[[], None] = lambda: None) -> Iterator[str]:
    """Be the only engine of a workflow; yields the name of the lock. Raises `BadInput` while another one
    works, on whatever machine.
    """
    lock = secrets.token_hex(16)
    me = owner.Owner(uid=lock, workflow=name, host=_host(), process=processes.identity())
    try:
        owner.claim(record.engine_json, me, on_wait=on_wait)
    except WrongDirectory as error:
        raise BadInput(f"another engine works on {name}: {error}; allowed: to follow it") from None
    try:
        yield lock
    finally:
        owner.release(record.engine_json, lock)


def _host() -> str:
    return processes.identity().partition(":")[0]


class StatusFile:
    """Keeps the live status for whoever follows."""

    def __init__(self, record: Record) -> None:
        self._path = record.status_json
        self._written_s = float("-inf")

    def update(self, status: WorkflowStatus) -> None:
        """Write it, if that was not done a moment ago. A full disk must not end the workflow."""
        is_due = time.monotonic() - self._written_s >= BETWEEN_WRITES_S
        if is_due or status.finished is not None:
            self._written_s = time.monotonic()
            with contextlib.suppress(OSError):
                write_atomically(self._path, json.dumps(status.as_dict()), PRIVATE)


def _comparable(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest without the workflow's name, as JSON gives it back."""
    kept = {
        name: value for name, value in (manifest.get("metadata") or {}).items() if "ame" not in name
    }
    compared: dict[str, Any] = json.loads(json.dumps({**manifest, "metadata": kept}))
    return compared
