"""The folder in which an engine keeps what it has decided and seen, so that another one can go on.

    workflow.json    what was submitted: name, uid, time, manifest, parameters
    engine.json      which engine works, and its lease
    status.json      the live status, for `--follow`
    batches/         one file for each submission: its pods, and the id once it is known
    orders/<batch>/  one file for each pod of a submission, which its job reads
    claims/          of each pod the id of the job that runs it, written by that job
    ends/            of each pod how it ended, written by its job
    closed           the workflow has ended: jobs that are still in the queue begin nothing
    verdicts/        of each pod what the engine has made of its end
    pods/ logs/      outputs of the pods, and what they printed

A pod's key is its name and the number of its job: a pod that outlives the time limit of one job goes on
in the next.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steps.directory.files import read_bytes, write_atomically

PRIVATE = 0o600
FOLDERS = ("batches", "orders", "claims", "ends", "verdicts", "pods", "logs", "jobs")


def key_of(pod: str, link: int) -> str:
    """The key of a pod's job. link: counts the jobs of the pod."""
    return f"{pod}.{link}"


@dataclass(frozen=True)
class Said:
    """How a job says that its pod ended. terminated: after SIGTERM. warned: after it was asked to save
    because of the time limit. error: why the command could not be executed.
    """

    code: int
    terminated: bool
    warned: bool
    error: str
    at: datetime.datetime


@dataclass(frozen=True)
class Verdict:
    """What the engine has made of an end. kind: `ended`; `lost` if it cannot be known; `next` if the pod
    goes on in another job.
    """

    kind: str
    code: int = 0
    message: str = ""
    at: datetime.datetime | None = None


@dataclass
class Batch:
    """A submission: one job, or an array. keys: of its pods, in the order of their indices. job: its id,
    empty until it is known.
    """

    name: str
    keys: Sequence[str]
    options: Sequence[str]
    script: str
    job: str = ""

    def id_of(self, key: str) -> str:
        """The id of a pod's job."""
        return f"{self.job}_{self.keys.index(key)}" if len(self.keys) > 1 else self.job


class Record:
    """One workflow's folder."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()  # jobs have another working directory

    def make(self) -> None:
        """Make the folders."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in FOLDERS:
            (self.root / name).mkdir(exist_ok=True)

    @property
    def workflow_json(self) -> Path:
        """What was submitted."""
        return self.root / "workflow.json"

    @property
    def engine_json(self) -> Path:
        """Which engine works."""
        return self.root / "engine.json"

    @property
    def status_json(self) -> Path:
        """The live status."""
        return self.root / "status.json"

    @property
    def closed(self) -> Path:
        """Is there if the workflow ended while some of its jobs could not be cancelled."""
        return self.root / "closed"

    @property
    def logs(self) -> Path:
        """The folder of the pods' logs."""
        return self.root / "logs"

    def folder(self, pod: str) -> Path:
        """The folder of a pod's outputs."""
        return self.root / "pods" / pod

    def write_batch(self, batch: Batch) -> None:
        """Keep a submission, before it is made and when its id is known."""
        self._write("batches", batch.name, dataclasses.asdict(batch))

    def forget_batch(self, batch: Batch) -> None:
        """Take back a submission that was refused."""
        (self.root / "batches" / f"{batch.name}.json").unlink(missing_ok=True)

    def batches(self) -> Iterator[Batch]:
        """The submissions of earlier engines."""
        for path in sorted((self.root / "batches").glob("[!.]*.json")):
            if (found := _read(path)) is not None:
                yield Batch(**found)

    def write_order(self, batch: str, index: int, order: Mapping[str, Any]) -> None:
        """Write what a job executes. It may hold secrets of the environment."""
        path = self.root / "orders" / batch / f"{index}.json"
        write_atomically(path, json.dumps(order), PRIVATE)

    def said(self, key: str) -> Said | None:
        """How a pod's job says that it ended."""
        found = _read(self.root / "ends" / f"{key}.json")
        if found is None:
            return None
        with contextlib.suppress(KeyError, ValueError, TypeError):
            at = datetime.datetime.fromisoformat(found["at"])
            return Said(found["code"], found["terminated"], found["warned"], found["error"], at)
        return None

    def names_in(self, folder: str) -> set[str]:
        """The keys with a file in `claims` or `ends`."""
        with contextlib.suppress(OSError):
            names = [path.name for path in (self.root / folder).iterdir()]
            return {name.removesuffix(".json") for name in names if not name.startswith(".")}
        return set()

    def claim(self, key: str) -> tuple[str, datetime.datetime] | None:
        """The id of the job that runs a pod, and since when."""
        path = self.root / "claims" / key
        try:
            began = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.UTC)
            return path.read_text(), began
        except OSError:
            return None

    def verdict(self, key: str) -> Verdict | None:
        """What an engine has made of a pod's end."""
        found = _read(self.root / "verdicts" / f"{key}.json")
        if found is None:
            return None
        at = found.pop("at")
        return Verdict(**found, at=None if at is None else datetime.datetime.fromisoformat(at))

    def write_verdict(self, key: str, verdict: Verdict) -> None:
        """Keep what is made of an end: another engine must not come to another verdict."""
        at = None if verdict.at is None else verdict.at.isoformat()
        self._write("verdicts", key, {**dataclasses.asdict(verdict), "at": at})

    def _write(self, folder: str, name: str, content: Mapping[str, Any]) -> None:
        write_atomically(self.root / folder / f"{name}.json", json.dumps(content), PRIVATE)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(read_bytes(path))
    except (OSError, ValueError):
        return None
    return found
