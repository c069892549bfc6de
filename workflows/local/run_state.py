"""The state that all parts of a running workflow share: its status, its limits, and how it is told
to stop.
"""

from __future__ import annotations

import asyncio
import datetime
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workflows.local.executor import Executor
from workflows.local.machine.slots import Limit
from workflows.local.spec.manifest import Manifest
from workflows.local.status import Node, WorkflowStatus, node_id


@dataclass(frozen=True)
class Shutdown:
    """Why no further pod may run. kind: Stop, Deadline or Terminate (which ends the exit handler,
    too).
    """

    kind: str
    deadline: datetime.datetime | None = None

    @property
    def pod_message(self) -> str:
        """The message of a pod that runs or would start now."""
        if self.kind == "Deadline":
            return "Step exceeded its deadline"
        return f"workflow shutdown with strategy:  {self.kind}"

    @property
    def retry_message(self) -> str:
        """The message of a node that would be retried now."""
        if self.kind == "Deadline":
            return f"retry exceeded workflow deadline {self.deadline:%Y-%m-%d %H:%M:%S} +0000 UTC"
        return f"Stopped with strategy '{self.kind}'"


@dataclass
class State:
    """The state of one workflow.

    environment: variables of every pod, which the manifest overrides. given: parameters as the
    caller wrote them. executor: runs the pods.
    """

    manifest: Manifest
    status: WorkflowStatus
    globals: dict[str, str]
    storage: Path
    logs: Path | None
    executor: Executor
    pods: Limit
    given: list[str]
    environment: Mapping[str, str]
    notice: Callable[[str], None]
    changed: Callable[[], None]
    spec: Mapping[str, Any]
    shutdown: Shutdown | None = None
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    killing: asyncio.Event = field(default_factory=asyncio.Event)
    winding_down: set[asyncio.Task[None]] = field(default_factory=set)
    started_s: float = field(default_factory=time.monotonic)

    def stop(self, shutdown: Shutdown) -> None:
        """Let no further pod start, and ask running pods to end. A second call can only make the
        stop harder.
        """
        if self.shutdown is None or shutdown.kind == "Terminate":
            self.shutdown = shutdown
        self.stopping.set()
        if shutdown.kind == "Terminate":
            self.killing.set()

    def stop_of(self, *, on_exit: bool) -> asyncio.Event:
        """The event that ends a task: a stop, or for a task of the exit handler only a kill."""
        if on_exit:
            return self.killing
        return self.stopping

    def values(self) -> dict[str, str]:
        """The current values of the workflow's tags."""
        return self.globals | {"workflow.duration": f"{time.monotonic() - self.started_s:.6f}"}

    def add(
        self, name: str, kind: str, template: str, phase: str, *, boundary: str = "", message: str = "", display: str = "",
        parents: Sequence[str] = (),
    ) -> Node:  # fmt: skip
        """Add a node as a child of `parents`. A node that has ended already is finished at once."""
        identity = node_id(self.manifest.name, name)
        if not display:
            display = name
            if boundary:
                display = name.removeprefix(f"{self.status.nodes[boundary].name}.")
        node = Node(
            id=identity, name=name, display_name=display,
            type=kind, template=template, phase=phase, boundary=boundary, message=message,
        )  # fmt: skip
        if node.ended:
            node.ends_now()
        self.status.nodes[identity] = node
        for parent in parents:
            children = self.status.nodes[parent].children
            if identity not in children:
                children.append(identity)
        self.changed()
        return node

    def mark(self, node: Node, phase: str, message: str | None = None) -> Node:
        """Change a node's phase."""
        node.phase = phase
        if message is not None:
            node.message = message
        if node.ended:
            node.ends_now()
        self.changed()
        return node
