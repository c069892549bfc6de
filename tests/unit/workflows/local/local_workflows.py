"""Small workflows for the tests of the local engine: every pod is a short Python program."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]


def workflow(tasks: list[Document], *templates: Document, name: str = "w", **spec: Any) -> Document:
    """A workflow whose entry is the DAG `main` of these tasks."""
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": name},
        "spec": {
            "entrypoint": "main",
            "templates": [{"name": "main", "dag": {"tasks": tasks}}, *templates],
            **spec,
        },
    }


def pod(
    name: str,
    program: str = "pass",
    *arguments: str,
    container: Document | None = None,
    **template: Any,
) -> Document:
    """A template that runs a Python program; its inputs are all parameters that the arguments
    name."""
    body = {"command": ["python3", "-c", program], "args": list(arguments), **(container or {})}
    return {"name": name, "container": body, **template}


def with_inputs(template: Document, *names: str) -> Document:
    """The template with input parameters."""
    return {**template, "inputs": {"parameters": [{"name": name} for name in names]}}


def task(name: str, template: str, **fields: Any) -> Document:
    """A task; `arguments` may be a mapping."""
    if isinstance(arguments := fields.pop("arguments", None), dict):
        fields["arguments"] = {
            "parameters": [{"name": key, "value": value} for key, value in arguments.items()]
        }
    return {"name": name, "template": template, **fields}


def output(name: str, path: str, **source: Any) -> Document:
    """The `outputs` of a template with one output parameter."""
    return {"parameters": [{"name": name, "valueFrom": {"path": path, **source}}]}
