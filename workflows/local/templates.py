"""Runs a template: a DAG, a container, or a container with retries.

Source: Argo `executeTemplate`, `ProcessArgs`, `SubstituteParams`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from config.numbers import counted
from workflows.local import retries
from workflows.local.call import Call
from workflows.local.dag import Dag
from workflows.local.errors import WorkflowError, defect
from workflows.local.language.go_values import to_json
from workflows.local.language.tags import Values, replace
from workflows.local.run_state import State
from workflows.local.running_pod import Pod, prepare_node
from workflows.local.scope import Document, inputs_of
from workflows.local.status import Node, pod_name

DEEPEST = 100
"""Argo's limit for templates that call themselves."""


async def execute(state: State, call: Call) -> Node:
    """Execute a call and return its ended node. An error of the workflow becomes the node's error, and
    so does a defect of this engine: neither ends the other tasks or keeps the exit handler from running.
    """
    try:
        return await _executed(state, call)
    except Exception as error:
        message = defect(error)
        for node in state.status.nodes.values():
            if node.name == call.name and not node.ended:
                return state.mark(node, "Error", message)
        return call.add(state, "Skipped", "Error", message)


async def _executed(state: State, call: Call) -> Node:
    try:
        if call.depth >= DEEPEST:
            raise WorkflowError(
                f"Maximum recursion depth exceeded: templates call each other more than {DEEPEST} levels deep"
            )
        template = processed(state, call)
    except WorkflowError as error:
        return call.add(state, "Skipped", "Error", _of_task(call, error))
    if template.get("dag") is not None:
        async with call.place():
            return await Dag(state, template, call, execute).run()
    if template.get("retryStrategy") is None:
        node = prepare_node(state, call.add(state, "Pod", "Pending"), template, retried=False)
        return await _attempt(state, call, node, template, None)
    return await _with_retries(state, call, template)


def _of_task(call: Call, error: WorkflowError) -> str:
    if not call.task:
        return str(error)
    return f"task '{call.name}' errored: {error}"


def processed(state: State, call: Call) -> Document:
    """The template with its inputs' values and all known tags replaced. Raises `WorkflowError`."""
    template = dict(state.manifest.templates[call.template])
    inputs = inputs_of(template, call.arguments)
    if inputs:
        template["inputs"] = {"parameters": inputs}
    if call.task:
        local = {"node.name": call.name, "tasks.name": call.task}
    else:
        local = {"node.name": call.name}
    # With a retry strategy, each attempt is a pod with a name of its own.
    if template.get("container") is not None and template.get("retryStrategy") is None:
        local["pod.name"] = pod_name(state.manifest.name, call.template, call.name)
    return substitute(template, state.values() | local)


def substitute(template: Document, values: Values) -> Document:
    """Replace tags in two passes: first the workflow's, which may stand in inputs, then the
    inputs'.
    """
    template = dict(replace(template, values))
    inputs = (template.get("inputs") or {}).get("parameters") or []
    of_inputs = {
        f"inputs.parameters.{parameter['name']}": str(parameter["value"]) for parameter in inputs
    }
    outputs = (template.get("outputs") or {}).get("parameters") or []
    paths = {output["name"]: (output.get("valueFrom") or {}).get("path") for output in outputs}
    of_outputs = {
        f"outputs.parameters.{name}.path": str(path) for name, path in paths.items() if path
    }
    return dict(
        replace(
            template, {**values, **of_inputs, **of_outputs, "inputs.parameters": to_json(inputs)}
        )
    )


async def _attempt(
    state: State, call: Call, node: Node, template: Mapping[str, Any], longest_s: float | None
) -> Node:
    pod = Pod(state, node, template, call.on_exit, retried=node.retried, longest_s=longest_s)
    async with call.place(), state.pods.one():
        try:
            await pod.run()
        except WorkflowError as error:
            message = str(error)
            if not node.retried:
                message = _of_task(call, error)
            state.mark(node, "Error", message)
        except OSError as error:
            # A full or unwritable disk ends this pod, not the engine.
            state.mark(node, "Error", f"{error.strerror}: {error.filename}")
    return node


async def _with_retries(state: State, call: Call, template: Document) -> Node:
    parent = call.add(state, "Retry", "Running")
    parent.inputs = {
        parameter["name"]: str(parameter["value"])
        for parameter in (template.get("inputs") or {}).get("parameters") or []
    }
    attempts: list[Node] = []
    try:
        strategy = retries.read(template["retryStrategy"])
        while True:
            attempts.append(await _next_attempt(state, call, template, parent, attempts, strategy))
            ending = await _ending(state, call, parent, strategy, attempts)
            if ending is not None:
                return _end(state, parent, attempts[-1], ending)
    except WorkflowError as error:
        return state.mark(parent, "Error", _of_task(call, error))


def _end(state: State, parent: Node, last: Node, message: str) -> Node:
    parent.outputs = last.outputs
    parent.exit_code = last.exit_code
    return state.mark(parent, last.phase, message)


async def _next_attempt(
    state: State, call: Call, template: Document, parent: Node, attempts: list[Node], strategy: retries.Strategy
) -> Node:  # fmt: skip
    name = f"{call.name}({len(attempts)})"
    display = f"{parent.display_name}({len(attempts)})"
    node = state.add(
        name,
        "Pod",
        call.template,
        "Pending",
        boundary=call.boundary,
        display=display,
        parents=[parent.id],
    )
    prepare_node(state, node, template, retried=True)
    local = retries.last_retry(attempts, missing_code="0") | {
        "retries": str(len(attempts)),
        "pod.name": node.pod,
    }
    try:
        attempt = substitute(template, state.values() | local)
    except WorkflowError as error:
        return state.mark(node, "Error", str(error))
    longest_s = None
    if strategy.longest_s is not None and attempts:
        longest_s = strategy.longest_s - (time.monotonic() - attempts[0].started_s)
    return await _attempt(state, call, node, attempt, longest_s)


async def _ending(
    state: State, call: Call, parent: Node, strategy: retries.Strategy, attempts: list[Node]
) -> str | None:
    """The message of a Retry node that ends now, or None if there is another attempt, after its
    backoff.
    """
    if not attempts[-1].failed:
        return ""
    if (message := _stopped(state, call)) is not None:
        return message
    if (message := retries.out_of_time(strategy, attempts)) is not None:
        return message
    # The wait comes before the policy and the expression, as in the controller: an attempt that
    # is not repeated ends after the first backoff only.
    waiting_s = retries.wait_s(strategy, len(attempts))
    if waiting_s > 0:
        state.mark(parent, "Running", f"Backoff for {_humanised(waiting_s)}")
        await _sleep(state, call, waiting_s - attempts[-1].since_end_s)
        state.mark(parent, "Running", "")
        if (message := _stopped(state, call)) is not None:
            return message
    return retries.gives_up(strategy, attempts)


def _stopped(state: State, call: Call) -> str | None:
    shutdown = state.shutdown
    if shutdown is not None and (not call.on_exit or shutdown.kind == "Terminate"):
        return shutdown.retry_message
    return None


async def _sleep(state: State, call: Call, seconds: float) -> None:
    try:
        stop = state.stop_of(on_exit=call.on_exit)
        await asyncio.wait_for(stop.wait(), max(0.0, seconds))
    except TimeoutError:
        return


def _humanised(seconds: float) -> str:
    """`1 minute 10 seconds`."""
    whole = round(seconds)
    parts = [(whole // 3600, "hour"), (whole // 60 % 60, "minute"), (whole % 60, "second")]
    shown = [counted(count, unit) for count, unit in parts if count]
    return " ".join(shown) or f"{seconds:.3g} seconds"
