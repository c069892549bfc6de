"""The state of a workflow while it runs and when it has ended, in the shape of Argo's `status`."""

from __future__ import annotations

import datetime
import time
from dataclasses import dataclass, field
from typing import Any

ENDED = ("Succeeded", "Failed", "Error", "Skipped", "Omitted")


@dataclass(kw_only=True)
class Node:
    """One node of the workflow: a DAG, a pod, a retried pod, a loop's group, or a skipped task.

    type: DAG, Pod, Retry, TaskGroup, Skipped. phase: Pending, Running or one of `ENDED`. outputs:
    parameter -> text; None if no outputs were reported. boundary: id of the DAG that it belongs to.
    log: where its output goes. progress: `58/196`, as the pod said at last; empty if it said nothing.
    Times are for people: UTC, from a clock that may be set. Everything that is decided or measured
    uses the same moments on the monotonic clock (`…_s`).
    """

    id: str
    name: str
    display_name: str
    type: str
    template: str
    phase: str
    boundary: str = ""
    message: str = ""
    started: datetime.datetime = field(default_factory=lambda: now())
    started_s: float = field(default_factory=time.monotonic)
    finished: datetime.datetime | None = None
    finished_s: float | None = None
    inputs: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] | None = None
    exit_code: int | None = None
    children: list[str] = field(default_factory=list)
    pod: str = ""
    retried: bool = False
    log: str = ""
    progress: str = ""

    @property
    def ended(self) -> bool:
        """Whether the phase is final."""
        return self.phase in ENDED

    @property
    def failed(self) -> bool:
        """Whether the phase is a failure."""
        return self.phase in ("Failed", "Error")

    @property
    def duration_s(self) -> float:
        """Seconds from its start to its end, or to now."""
        if self.finished_s is None:
            return time.monotonic() - self.started_s
        return self.finished_s - self.started_s

    @property
    def since_end_s(self) -> float:
        """Seconds since its end; 0 before."""
        if self.finished_s is None:
            return 0.0
        return time.monotonic() - self.finished_s

    def starts_now(self, at: datetime.datetime | None = None) -> None:
        """Note that its process starts, or started at an earlier time; the time before was waiting."""
        self.started, self.started_s = _moment(at)

    def ends_now(self, at: datetime.datetime | None = None) -> None:
        """Note its end, or that it ended at an earlier time, the first time only."""
        if self.finished is None:
            self.finished, self.finished_s = _moment(at)

    def as_dict(self) -> dict[str, Any]:
        """The node as in Argo's `status.nodes`, without empty fields."""
        inputs: dict[str, Any] = {}
        if self.inputs:
            inputs["parameters"] = _parameters(self.inputs)
        outputs: dict[str, Any] = {}
        if self.exit_code is not None:
            outputs["exitCode"] = str(self.exit_code)
        if self.outputs:
            outputs["parameters"] = _parameters(self.outputs)
        shown = {
            "id": self.id, "name": self.name, "displayName": self.display_name, "type": self.type, "templateName": self.template,
            "phase": self.phase, "boundaryID": self.boundary, "message": self.message, "startedAt": timestamp(self.started),
            "finishedAt": timestamp(self.finished), "inputs": inputs,
            "outputs": outputs, "children": self.children, "podName": self.pod, "logFile": self.log,
            "progress": self.progress,
        }  # fmt: skip
        kept = {key: value for key, value in shown.items() if value}
        kept.setdefault("children", [])
        return kept


@dataclass(kw_only=True)
class WorkflowStatus:
    """The status of a whole workflow. phase: Running, Succeeded, Failed or Error. interrupted: a
    person or a signal asked it to stop.
    """

    name: str
    uid: str
    phase: str = "Running"
    message: str = ""
    started: datetime.datetime = field(default_factory=lambda: now())
    finished: datetime.datetime | None = None
    nodes: dict[str, Node] = field(default_factory=dict)
    interrupted: bool = False

    def by_name(self, name: str) -> Node:
        """The node with this full name (`wf.task`). Raises `KeyError`."""
        for node in self.nodes.values():
            if node.name == name:
                return node
        raise KeyError(name)

    def as_dict(self) -> dict[str, Any]:
        """Metadata and status as `kubectl get workflow -o json` shows them."""
        status = {
            "phase": self.phase, "message": self.message, "startedAt": timestamp(self.started), "finishedAt": timestamp(self.finished),
            "nodes": {node.id: node.as_dict() for node in self.nodes.values()},
        }  # fmt: skip
        return {"name": self.name, "uid": self.uid, **status}


def _moment(at: datetime.datetime | None) -> tuple[datetime.datetime, float]:
    """A moment, by default the present one, on both clocks."""
    present = now()
    at = min(at or present, present)
    return at, time.monotonic() - (present - at).total_seconds()


def now() -> datetime.datetime:
    """The current time in UTC."""
    return datetime.datetime.now(datetime.UTC)


def timestamp(moment: datetime.datetime | None) -> str | None:
    """RFC 3339 with microseconds."""
    if moment is None:
        return None
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def whole_seconds(moment: datetime.datetime | None) -> str | None:
    """RFC 3339 in whole seconds, as Kubernetes writes times."""
    if moment is None:
        return None
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def node_id(workflow: str, name: str) -> str:
    """The node's id as Argo makes it: the workflow's name for its own node, else with the FNV-1a
    hash of the node's name.
    """
    if name == workflow:
        return workflow
    return f"{workflow}-{fnv32a(name)}"


def pod_name(workflow: str, template: str, name: str) -> str:
    """The pod's name as Argo makes it: `<workflow>-<template>-<hash>`, the part before the hash cut
    to 242 characters.
    """
    if name == workflow:
        return workflow
    prefix = f"{workflow}-{template}"[:242]
    return f"{prefix}-{fnv32a(name)}"


def fnv32a(text: str) -> int:
    """The 32-bit FNV-1a hash (Fowler, Noll, Vo)."""
    value = 0x811C9DC5
    for byte in text.encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def _parameters(values: dict[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]
