"""References to installed workflow templates, replaced by what they refer to.

A workflow may consist of a `workflowTemplateRef`, and a task may call a template of another workflow
template with `templateRef`. The controller keeps what it found in the workflow's status
(`storedWorkflowTemplateSpec`, `storedTemplates`). Everything else here works on whole workflows: the
local engine and the live view replace references first.

Source: Argo Workflows' documentation, "Workflow Templates".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from config.errors import BadInput, shown

Document = dict[str, Any]
Find = Callable[[str], Document]
"""Returns the installed workflow template of a name. Raises `BadInput` if there is none."""


def has_references(document: Document) -> bool:
    """Whether a workflow refers to installed templates."""
    spec = document.get("spec")
    if not isinstance(spec, Mapping):
        return False
    templates = spec.get("templates")
    return spec.get("workflowTemplateRef") is not None or any(
        _is_reference(task)
        for template in (templates if isinstance(templates, list) else [])
        for task in _tasks(template)
    )


def whole(document: Document, find: Find) -> Document:
    """The workflow without references. Raises `BadInput` for a reference that leads nowhere. A workflow
    without any is returned as it is, also if something in it is malformed.
    """
    if not has_references(document):
        return document
    spec = dict(document["spec"])
    reference = spec.pop("workflowTemplateRef", None)
    if reference is not None:
        if spec.get("templates"):
            raise BadInput("spec.templates: not allowed beside spec.workflowTemplateRef")
        name = _text(reference, "name", "spec.workflowTemplateRef")
        spec = _over(spec, find(name).get("spec") or {})
    spec["templates"] = _with_imports(list(spec.get("templates") or []), find)
    return {**document, "spec": spec}


def known_to_controller(workflow: Document) -> Document:
    """A workflow as the controller runs it: with the template that it refers to, as its status keeps
    it. Until the controller has seen the workflow it is returned as it is.
    """
    stored = (workflow.get("status") or {}).get("storedWorkflowTemplateSpec")
    if stored is None:
        return workflow
    spec = {name: value for name, value in stored.items() if name != "workflowTemplateRef"}
    return {**workflow, "spec": spec}


def _over(above: Any, below: Any) -> Any:
    """Merge a workflow's spec over that of its template: mappings name by name, lists of named
    entries entry by entry. Any other value replaces the one below it.
    """
    if isinstance(above, Mapping) and isinstance(below, Mapping):
        merged = {name: _over(value, below.get(name)) for name, value in above.items()}
        return {**below, **merged}
    if _is_named(above) and _is_named(below):
        own = {one["name"]: one for one in above}
        names = [one["name"] for one in below]
        kept = [_over(own[one["name"]], one) if one["name"] in own else one for one in below]
        return kept + [one for one in above if one["name"] not in names]
    return below if above is None else above


def _is_named(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(one, Mapping) and "name" in one for one in value
    )


def _with_imports(templates: list[Document], find: Find) -> list[Document]:
    """The templates, and behind them those that their tasks refer to."""
    made: dict[str, Document] = {}
    taken = {str(one.get("name")) for one in templates if isinstance(one, Mapping)}
    own = [_calling_imports(template, None, find, made, taken) for template in templates]
    return own + list(made.values())


def _calling_imports(
    template: Document, scope: str | None, find: Find, made: dict[str, Document], taken: set[str]
) -> Document:
    """The template, with tasks that call imported templates by their new names. scope: the workflow
    template that it comes from.
    """
    tasks = _tasks(template)
    if not tasks:
        return template
    changed = []
    for task in tasks:
        if _is_reference(task):
            reference = task["templateRef"]
            source = _text(reference, "name", f"task {task.get('name')}, templateRef")
            called = _text(reference, "template", f"task {task.get('name')}, templateRef")
        elif scope is not None and isinstance(task, Mapping) and task.get("template"):
            source, called = scope, task["template"]
        else:
            changed.append(task)
            continue
        imported = _import(source, called, find, made, taken)
        others = {key: value for key, value in task.items() if key != "templateRef"}
        changed.append({**others, "template": imported})
    return {**template, "dag": {**template["dag"], "tasks": changed}}


def _import(source: str, name: str, find: Find, made: dict[str, Document], taken: set[str]) -> str:
    """Import a template of a workflow template with everything that it calls. Returns its name here."""
    new = f"{source}-{name}"
    if new in made:
        return new
    if new in taken:
        raise BadInput(
            f"a template named {shown(new)} exists, and {name!r} of {source!r} needs that name"
        )
    templates = (find(source).get("spec") or {}).get("templates") or []
    found = next((one for one in templates if one.get("name") == name), None)
    if found is None:
        known = ", ".join(str(one.get("name")) for one in templates)
        raise BadInput(
            f"workflow template {source!r} has no template {shown(name)}; it has: {known}"
        )
    made[new] = {}  # before its tasks: a template may call itself
    made[new] = _calling_imports({**found, "name": new}, source, find, made, taken)
    return new


def _tasks(template: Any) -> list[Any]:
    """The tasks of a template; none if it is no DAG, or malformed."""
    dag = template.get("dag") if isinstance(template, Mapping) else None
    tasks = dag.get("tasks") if isinstance(dag, Mapping) else None
    return tasks if isinstance(tasks, list) else []


def _is_reference(task: Any) -> bool:
    return isinstance(task, Mapping) and task.get("templateRef") is not None


def _text(reference: Any, field: str, where: str) -> str:
    value = reference.get(field) if isinstance(reference, Mapping) else None
    if not isinstance(value, str) or not value:
        raise BadInput(f"{where}.{field}: a name is expected, this is {shown(value)}")
    return value
