"""One use of a template by the workflow, by its exit handler, or by a task of a DAG."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass

from workflows.local.machine.slots import Limit
from workflows.local.run_state import State
from workflows.local.scope import Document
from workflows.local.status import Node


@dataclass(frozen=True, kw_only=True)
class Call:
    """One use of a template. name: the node's. task: its name in the DAG; empty for the entry and
    the exit handler.

    boundary: id of the DAG's node. parents: ids of the nodes before it. limit: the DAG's
    `parallelism`. depth: number of calls above it.
    """

    name: str
    template: str
    arguments: list[Document]
    boundary: str = ""
    parents: tuple[str, ...] = ()
    task: str = ""
    on_exit: bool = False
    limit: Limit | None = None
    display: str = ""
    depth: int = 0

    def add(self, state: State, kind: str, phase: str, message: str = "") -> Node:
        """Add the call's node to the status."""
        return state.add(
            self.name, kind, self.template, phase, boundary=self.boundary, message=message, display=self.display, parents=self.parents
        )  # fmt: skip

    def place(self) -> AbstractAsyncContextManager[None]:
        """Hold one place of the DAG's `parallelism`."""
        if self.limit is None:
            return nullcontext()
        return self.limit.one()
