"""The values that a task can use of the tasks before it: `tasks.NAME.…`, and the outputs of whole
DAGs.

Sources: Argo `buildLocalScopeFromTask`, `processAggregateNodeOutputs`,
`addSkippedNodeOutputsToScope`, `getTemplateOutputsFromScope`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from workflows.local.errors import TagError, WorkflowError
from workflows.local.language.go_values import parameter_text, to_json
from workflows.local.language.tags import Values
from workflows.local.status import Node, whole_seconds

Document = dict[str, Any]
ABSENT = "__local__absent__optional__argument__"
"""Marks an argument whose value a skipped task would have given. The input's default applies."""


def of_node(
    task: str, node: Node, last_attempt: Node, template: Document, loop: list[Node] | None
) -> dict[str, str | None]:
    """The tags of one ended task. last_attempt: the node itself unless it was retried. loop: the
    nodes of its items.
    """
    prefix = f"tasks.{task}"
    values: dict[str, str | None] = {}
    if loop is not None:
        values |= _aggregates(prefix, loop)
    values |= {
        f"{prefix}.id": last_attempt.id,
        f"{prefix}.startedAt": whole_seconds(last_attempt.started),
        f"{prefix}.status": last_attempt.phase,
        f"{prefix}.hostNodeName": "localhost",
    }
    if last_attempt.finished is not None:
        values[f"{prefix}.finishedAt"] = whole_seconds(last_attempt.finished)
    if last_attempt.exit_code is not None:
        values[f"{prefix}.exitCode"] = str(last_attempt.exit_code)
    values |= {
        f"{prefix}.outputs.parameters.{name}": value
        for name, value in (last_attempt.outputs or {}).items()
    }
    if node.phase in ("Skipped", "Omitted"):
        for output in (template.get("outputs") or {}).get("parameters") or []:
            default = (output.get("valueFrom") or {}).get("default")
            if default is not None:
                default = parameter_text(default)
            values[f"{prefix}.outputs.parameters.{output['name']}"] = default
    return values


def _aggregates(prefix: str, items: list[Node]) -> dict[str, str | None]:
    """The outputs of a loop: those of its succeeded items in their order. A parameter that no item
    has is not set at all.
    """
    outputs = [node.outputs for node in items if node.phase == "Succeeded" and node.outputs]
    names = dict.fromkeys(name for output in outputs for name in output)
    values: dict[str, str | None] = {
        f"{prefix}.outputs.result": "[]",
        f"{prefix}.outputs.parameters": to_json(outputs),
    }
    for name in names:
        values[f"{prefix}.outputs.parameters.{name}"] = _list_of(
            [output[name] for output in outputs if name in output]
        )
    return values


def _list_of(texts: list[str]) -> str:
    """A JSON list of the texts, or of the values themselves if every text is a JSON list or object."""
    try:
        read = [json.loads(text) for text in texts]
    except ValueError:
        return to_json(texts)
    if all(isinstance(value, list | dict) for value in read):
        return to_json(read)
    return to_json(texts)


def mark_absent(task: Document, values: Values) -> Document:
    """Mark arguments that only refer to an absent output as not given."""
    arguments = (task.get("arguments") or {}).get("parameters") or []
    absent = {parameter["name"] for parameter in arguments if _is_absent(parameter, values)}
    if not absent:
        return task
    marked = []
    for parameter in arguments:
        if parameter["name"] in absent:
            marked.append(parameter | {"value": ABSENT})
        else:
            marked.append(parameter)
    return task | {"arguments": {"parameters": marked}}


def _is_absent(parameter: Document, values: Values) -> bool:
    value = parameter.get("value")
    if not isinstance(value, str) or not (value.startswith("{{") and value.endswith("}}")):
        return False
    tag = value[2:-2].strip()
    return tag in values and values[tag] is None


def inputs_of(template: Document, arguments: list[Document]) -> list[Document]:
    """The values of the template's input parameters: the argument, else the default. Raises
    `WorkflowError`.
    """
    given = {parameter["name"]: parameter.get("value") for parameter in arguments}
    inputs: list[Document] = []
    for parameter in (template.get("inputs") or {}).get("parameters") or []:
        name = parameter["name"]
        if parameter.get("value") is not None:
            own = parameter.get("value")
        else:
            own = parameter.get("default")
        value = given.get(name)
        if value == ABSENT:
            if own is None:
                raise WorkflowError(
                    f"inputs.parameters.{name}: argument references an absent optional (skipped/omitted node output with no default)"
                )
            value = own
        if value is None:
            value = own
        if value is None:
            raise WorkflowError(f"inputs.parameters.{name} was not supplied")
        inputs.append({**parameter, "value": parameter_text(value)})
    return inputs


def dag_outputs(template: Document, values: Values) -> dict[str, str]:
    """The outputs of a DAG that Succeeded. Raises `WorkflowError` for one that has neither value
    nor default.
    """
    outputs: dict[str, str] = {}
    for output in (template.get("outputs") or {}).get("parameters") or []:
        source = output.get("valueFrom") or {}
        tag = (
            str(source.get("parameter") or "").strip().removeprefix("{{").removesuffix("}}").strip()
        )
        value = values.get(tag)
        if value is None:
            if source.get("default") is None:
                raise TagError(f'Unable to resolve: "{tag}"')
            value = parameter_text(source["default"])
        outputs[output["name"]] = value
    return outputs


def exported(template: Document, outputs: Mapping[str, str] | None) -> dict[str, str]:
    """The outputs with a `globalName`, as tags of the whole workflow."""
    names = {
        output["name"]: output.get("globalName")
        for output in (template.get("outputs") or {}).get("parameters") or []
    }
    return {
        f"workflow.outputs.parameters.{names[name]}": value
        for name, value in (outputs or {}).items()
        if names.get(name)
    }
