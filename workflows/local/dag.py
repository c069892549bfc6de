"""Executes a DAG: every task waits for the tasks that it names, then runs, is skipped, or is
omitted.

Source: Argo `workflow/controller/dag.go`, which loops over a stored state; here every task is a
coroutine that waits for the others. An output that will never exist makes the controller wait for
ever; here it is an error.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from workflows.local.call import Call
from workflows.local.errors import ConditionError, MissingTagError, WorkflowError
from workflows.local.language.govaluate import should_execute
from workflows.local.language.tags import STRICT_TASKS, Values, replace
from workflows.local.machine.slots import Limit
from workflows.local.run_state import State
from workflows.local.scope import Document, dag_outputs, exported, mark_absent, of_node
from workflows.local.spec.depends import (
    ancestry,
    dependencies_of,
    is_satisfied,
    logic_of,
    results_of,
)
from workflows.local.spec.loops import expand_task, is_loop
from workflows.local.status import Node


class Dag:
    """One execution of a DAG template whose tags are replaced. `execute` runs a task's template."""

    def __init__(
        self,
        state: State,
        template: Document,
        call: Call,
        execute: Callable[[State, Call], Awaitable[Node]],
    ) -> None:
        self.state = state
        self.template = template
        self.call = call
        self.execute = execute
        self.tasks: dict[str, Document] = {task["name"]: task for task in template["dag"]["tasks"]}
        self.ancestry = ancestry(self.tasks)
        self.ended = {name: asyncio.Event() for name in self.tasks}
        self.nodes: dict[str, Node] = {}
        self.limit = Limit(template.get("parallelism"))
        self.inputs = {
            f"inputs.parameters.{parameter['name']}": str(parameter["value"])
            for parameter in (template.get("inputs") or {}).get("parameters") or []
        }

    async def run(self) -> Node:
        """Run the DAG and return its ended node."""
        call = self.call
        state = self.state
        self.node = call.add(state, "DAG", "Running")
        self.node.inputs = {
            name.removeprefix("inputs.parameters."): value for name, value in self.inputs.items()
        }
        async with asyncio.TaskGroup() as group:
            for name in self.tasks:
                group.create_task(self._run_task(name))
        # The outputs of a DAG exist only if it Succeeded, as in the controller.
        phase = self._phase()
        message = None
        if phase == "Succeeded":
            phase, message = self._set_outputs()
        return state.mark(self.node, phase, message)

    async def _run_task(self, name: str) -> None:
        task = self.tasks[name]
        # `depends` is evaluated once, when all of its tasks have ended, also for `A || B`.
        for dependency in dependencies_of(task):
            await self.ended[dependency].wait()
        self.nodes[name] = await self._decide(name, task)
        self.ended[name].set()

    async def _decide(self, name: str, task: Document) -> Node:
        """Decide whether the task is omitted; else resolve its tags, expand its loop, and run it."""
        try:
            if not self._depends(task):
                return self._skipped(name, task, "Omitted", "omitted: depends condition not met")
            resolved = self._resolved(task)
            expanded = expand_task(resolved, self._values(task))
        except MissingTagError as error:
            return self._skipped(name, task, "Error", self._would_hang(task, error))
        except WorkflowError as error:
            return self._skipped(name, task, "Error", str(error))
        if not is_loop(task):
            return await self._one(expanded[0], task, self._parents(task))
        if not expanded:
            return self._skipped(name, task, "Skipped", "Skipped, empty params")
        return await self._group(name, task, expanded)

    def _would_hang(self, task: Document, error: MissingTagError) -> str:
        producer = error.tag
        if "." in producer:
            producer = producer.strip().split(".")[1]
        node = self.nodes.get(producer)
        if node:
            state = f"task {producer!r} is {node.phase} and has no such value"
        else:
            state = "there is no such value"
        return f"{{{{{error.tag}}}}} will never have a value: {state}; Argo's controller would wait for ever (argoproj/argo-workflows#16982)"

    def _depends(self, task: Document) -> bool:
        logic = logic_of(task, lambda name: self.tasks[name])
        if not logic:
            return True
        results = {
            name: results_of(self.nodes[name].phase, self._children_phases(name))
            for name in dependencies_of(task)
        }
        return is_satisfied(logic, results)

    def _children_phases(self, name: str) -> list[str]:
        node = self.nodes[name]
        if node.type == "TaskGroup":
            return [self.state.status.nodes[child].phase for child in node.children]
        return []

    def _resolved(self, task: Document) -> Document:
        """The task with its ancestors' outputs filled in. If its `when` is false, nothing else is
        resolved.
        """
        values = self._values(task)
        when = task.get("when")
        if when:
            when = replace(when, values, strict=STRICT_TASKS)
            try:
                if not should_execute(when):
                    return {**task, "when": when}
            except ConditionError:
                # The condition of a loop may name its item, and is then evaluated for each item.
                if not is_loop(task):
                    raise
        return dict(replace(mark_absent(task, values), values, strict=STRICT_TASKS))

    def _values(self, task: Document) -> Values:
        ancestors: dict[str, str | None] = {}
        if "{{" not in json.dumps(task):
            return ancestors
        for name in sorted(
            self.ancestry[task["name"]],
            key=lambda name: self.nodes[name].finished or self.nodes[name].started,
        ):
            ancestors |= self._tags_of(name)
        return {**self.state.values(), **self.inputs, **ancestors}

    def _tags_of(self, name: str) -> dict[str, str | None]:
        node = self.nodes[name]
        nodes = self.state.status.nodes
        children = [nodes[child] for child in node.children]
        loop = None
        last = node
        if node.type == "TaskGroup":
            loop = children
        elif node.type == "Retry" and children:
            last = children[-1]
        template = self.state.manifest.templates.get(str(self.tasks[name]["template"])) or {}
        return of_node(name, node, last, template, loop)

    async def _group(self, name: str, task: Document, expanded: list[Document]) -> Node:
        full_name = f"{self.node.name}.{name}"
        parents = self._parents(task)
        group = self.state.add(
            full_name,
            "TaskGroup",
            task["template"],
            "Running",
            boundary=self.node.id,
            parents=parents,
        )
        async with asyncio.TaskGroup() as running:
            items = [running.create_task(self._one(item, task, [group.id])) for item in expanded]
        # The last failed item decides, in the order of the items, not of their ends.
        phases = [item.result().phase for item in items if item.result().failed]
        return self.state.mark(group, ["Succeeded", *phases][-1])

    async def _one(self, task: Document, original: Document, parents: list[str]) -> Node:
        """Run a task without a loop, or one item of a loop."""
        name = f"{self.node.name}.{task['name']}"
        try:
            if not should_execute(task.get("when") or ""):
                return self._skipped(
                    task["name"],
                    original,
                    "Skipped",
                    f"when '{task['when']}' evaluated false",
                    parents,
                )
        except ConditionError as error:
            return self._skipped(task["name"], original, "Error", str(error), parents)
        call = Call(
            name=name, template=original["template"], arguments=(task.get("arguments") or {}).get("parameters") or [], task=task["name"],
            boundary=self.node.id, parents=tuple(parents), on_exit=self.call.on_exit, limit=self.limit, depth=self.call.depth + 1,
        )  # fmt: skip
        return await self.execute(self.state, call)

    def _skipped(
        self, name: str, task: Document, phase: str, message: str, parents: list[str] | None = None
    ) -> Node:
        if parents is None:
            parents = self._parents(task)
        full_name = f"{self.node.name}.{name}"
        return self.state.add(
            full_name,
            "Skipped",
            task["template"],
            phase,
            boundary=self.node.id,
            message=message,
            parents=parents,
        )

    def _parents(self, task: Document) -> list[str]:
        """The parents of a node: the DAG itself, or the last nodes of the tasks before."""
        dependencies = dependencies_of(task)
        if dependencies:
            return [node for name in dependencies for node in self._outbound(self.nodes[name])]
        return [self.node.id]

    def _outbound(self, node: Node) -> list[str]:
        nodes = self.state.status.nodes
        if node.type == "TaskGroup":
            return [last for child in node.children for last in self._outbound(nodes[child])]
        if node.type == "Retry":
            return node.children[-1:] or [node.id]
        if node.type == "DAG":
            inside = [
                inner
                for inner in nodes.values()
                if inner.boundary == node.id and not inner.children
            ]
            return [inner.id for inner in inside] or [node.id]
        return [node.id]

    def _phase(self) -> str:
        """The phase of the whole DAG: that of its first failed target in alphabetical order. A
        skipped target inherits the phase of its branch.
        """
        if (
            self.state.shutdown is not None
            and self.state.shutdown.kind != "Deadline"
            and not self.call.on_exit
        ):
            return "Failed"
        # A failure inside counts only if no later task tolerated it: the targets, which no task
        # follows, decide.
        followed = {
            dependency for task in self.tasks.values() for dependency in dependencies_of(task)
        }
        phases = self._branch_phases()
        for name in sorted(set(self.tasks) - followed):
            tolerated = self.tasks[name].get("continueOn") or {}
            if (phases[name] == "Failed" and not tolerated.get("failed")) or (
                phases[name] == "Error" and not tolerated.get("error")
            ):
                return phases[name]
        return "Succeeded"

    def _branch_phases(self) -> dict[str, str]:
        """Every task's phase. A skipped or omitted task inherits that of the tasks above it, a
        failed one first.
        """
        phases: dict[str, str] = {}
        for name in self.ancestry:
            above = [phases[dependency] for dependency in dependencies_of(self.tasks[name])]
            inherited = next(
                (phase for phase in above if phase in ("Failed", "Error")), "Succeeded"
            )
            phases[name] = self.nodes[name].phase
            if phases[name] in ("Skipped", "Omitted"):
                phases[name] = inherited
        return phases

    def _set_outputs(self) -> tuple[str, str | None]:
        values: dict[str, Any] = {}
        for name in self.tasks:
            values |= self._tags_of(name)
        try:
            outputs = dag_outputs(self.template, {**self.inputs, **values})
        except WorkflowError as error:
            return "Error", str(error)
        if outputs:
            self.node.outputs = outputs
            self.state.globals |= exported(self.template, outputs)
        return "Succeeded", None
