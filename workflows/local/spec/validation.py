"""The checks that Argo's controller makes before it starts anything, with its messages.

A workflow that fails here is Failed with `invalid spec: …` and has no nodes. Source: Argo
`workflow/validate/validate.go`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from workflows.local.errors import InvalidSpecError, TagError
from workflows.local.language.expression import check_readable
from workflows.local.language.expression_parser import ExpressionError
from workflows.local.language.go_values import parameter_text
from workflows.local.language.tags import expressions, tags
from workflows.local.spec.depends import ancestry, dependencies_of, unknown_results
from workflows.local.spec.loops import is_loop
from workflows.local.spec.manifest import Document, Manifest

PARAMETER_NAME = re.compile(r"[-a-zA-Z0-9_]+")
TASK_NAME = re.compile(r"[a-zA-Z0-9][-a-zA-Z0-9]{0,127}")
CHECKED_PREFIXES = ("item.", "steps.", "inputs.", "outputs.", "pod.", "workflow.", "tasks.")
LATE_TAGS = (
    "outputs.",
    "workflow.creationTimestamp",
    "workflow.duration",
    "tasks.name",
    "steps.name",
    "node.name",
    "workflow.outputs.parameters.",
)
POD_TAGS = (
    "pod.name",
    "retries",
    "lastRetry.exitCode",
    "lastRetry.status",
    "lastRetry.duration",
    "lastRetry.message",
)
OF_EVERY_TASK = ("id", "startedAt", "finishedAt", "hostNodeName", "status")


def check(manifest: Manifest) -> None:
    """Raise `InvalidSpecError` with the controller's message if the workflow is invalid."""
    try:
        _Validation(manifest).check()
    except TagError as error:
        raise InvalidSpecError(f"invalid spec: {error}") from None
    except InvalidSpecError as error:
        raise InvalidSpecError(f"invalid spec: {error}") from None


class _Validation:
    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.globals = set(manifest.globals())
        self.checked: set[str] = set()

    def check(self) -> None:
        names = [template["name"] for template in self.manifest.spec.get("templates") or []]
        _unique(names, "spec.templates", TASK_NAME)
        for index, parameter in enumerate(self.manifest.parameters):
            if not parameter.get("name"):
                raise InvalidSpecError(f"spec.arguments.parameters[{index}].name is required")
        _argument_values(self.manifest.parameters, "spec.arguments")
        _check_expressions(self.manifest.spec)
        entrypoint = self.manifest.spec.get("entrypoint")
        if not entrypoint:
            raise InvalidSpecError("spec.entrypoint is required")
        self._holder(str(entrypoint), set(self.manifest.values))
        if self.manifest.spec.get("onExit"):
            self.globals |= {"workflow.status", "workflow.failures"}
            self._holder(str(self.manifest.spec["onExit"]), set())

    def _holder(self, name: str, supplied: set[str] | None) -> Document:
        """Check that a template exists, gets its inputs, and is valid itself. supplied: None before
        arguments are known.
        """
        if "{{" in name:
            raise InvalidSpecError(
                f"template name {name!r}: tags in template names are not supported"
            )
        template = self.manifest.templates.get(name)
        if template is None:
            raise InvalidSpecError(f"template name '{name}' undefined")
        if supplied is not None:
            _inputs_supplied(template, supplied)
        # A template is checked once, before its tasks are: one that calls itself ends here.
        if name not in self.checked:
            self.checked.add(name)
            self._template(template)
        return template

    def _template(self, template: Document) -> None:
        name = template["name"]
        inputs = [
            parameter.get("name")
            for parameter in (template.get("inputs") or {}).get("parameters") or []
        ]
        _unique(inputs, f"templates.{name}.inputs.parameters")
        scope = {"inputs.parameters", *(f"inputs.parameters.{parameter}" for parameter in inputs)}
        if template.get("dag") is not None:
            self._dag(template, scope)
            return
        body = {key: value for key, value in template.items() if key not in ("inputs", "outputs")}
        try:
            self._resolve(body, scope | set(POD_TAGS))
        except InvalidSpecError as error:
            raise InvalidSpecError(f"templates.{name}: {error}") from None
        self._outputs(template, scope, needs="path")

    def _dag(self, template: Document, scope: set[str]) -> None:
        name = template["name"]
        tasks = template["dag"].get("tasks") or []
        if not tasks:
            raise InvalidSpecError(f"templates.{name} must have at least one task")
        _unique([task.get("name") for task in tasks], f"templates.{name}.tasks", TASK_NAME)
        by_name = {task["name"]: task for task in tasks}
        for task in tasks:
            self._task(task, template, by_name)
        try:
            ancestors = ancestry(by_name)
        except InvalidSpecError as error:
            raise InvalidSpecError(f"templates.{name}.tasks {error}") from None
        of_task = {task["name"]: self._tags_of(task) for task in tasks}
        for task in tasks:
            if tags(task):
                known = scope.union(*(of_task[ancestor] for ancestor in ancestors[task["name"]]))
            else:
                known = scope
            self._task_scope(task, template, known)
        self._outputs(template, scope.union(*of_task.values()), needs="parameter")

    def _task(self, task: Document, template: Document, tasks: Mapping[str, Document]) -> None:
        where = f"templates.{template['name']}.tasks.{task['name']}"
        if task["name"][0].isdigit() and (task.get("depends") or task.get("dependencies")):
            raise InvalidSpecError(
                f"{where} name cannot begin with a digit when using either 'depends' or 'dependencies'"
            )
        uses_depends = any(other.get("depends") for other in tasks.values())
        if uses_depends and task.get("dependencies"):
            raise InvalidSpecError(
                f"templates.{template['name']} cannot use both 'depends' and 'dependencies' in the same DAG template"
            )
        if uses_depends and task.get("continueOn"):
            instead = "Instead use 'dep-task.Failed'/'dep-task.Errored'"
            raise InvalidSpecError(
                f"templates.{template['name']} cannot use 'continueOn' when using 'depends'. {instead}"
            )
        for dependency in dependencies_of(task):
            if dependency not in tasks:
                raise InvalidSpecError(f"{where} dependency '{dependency}' not defined")
        for other, result in unknown_results(task):
            raise InvalidSpecError(f"{where} task result '{result}' for task '{other}' is invalid")
        if not task.get("template"):
            raise InvalidSpecError(f"{where} template name is required")
        self._nested(where, str(task["template"]), None)

    def _nested(self, where: str, template: str, supplied: set[str] | None) -> None:
        try:
            self._holder(template, supplied)
        except InvalidSpecError as error:
            raise InvalidSpecError(f"{where} {error}") from None

    def _task_scope(self, task: Document, template: Document, known: set[str]) -> None:
        where = f"templates.{template['name']}.tasks.{task['name']}"
        loops = [loop for loop in ("withItems", "withParam", "withSequence") if task.get(loop)]
        if len(loops) > 1:
            raise InvalidSpecError(
                f"{where} only one of withItems, withParam, withSequence can be specified"
            )
        sequence = task.get("withSequence") or {}
        if sequence.get("count") is not None and sequence.get("end") is not None:
            raise InvalidSpecError(
                f"{where} only one of count or end can be defined in withSequence"
            )
        try:
            self._resolve(task, known, items=_item_tags(task))
        except InvalidSpecError as error:
            raise InvalidSpecError(f"{where} {error}") from None
        given = (task.get("arguments") or {}).get("parameters") or []
        _unique([parameter.get("name") for parameter in given], f"{where}.arguments.parameters")
        _argument_values(given, f"{where}.arguments")
        self._nested(where, str(task["template"]), {parameter["name"] for parameter in given})

    def _tags_of(self, task: Document) -> set[str]:
        """The tags that the descendants of a task may use."""
        template = self.manifest.templates.get(str(task.get("template"))) or {}
        prefix = f"tasks.{task['name']}"
        found = {f"{prefix}.{name}" for name in OF_EVERY_TASK} | {
            f"{prefix}.exitCode",
            f"{prefix}.outputs.result",
        }
        outputs = (template.get("outputs") or {}).get("parameters") or []
        found |= {f"{prefix}.outputs.parameters.{output.get('name')}" for output in outputs}
        if is_loop(task):
            found.add(f"{prefix}.outputs.parameters")
        return found

    def _resolve(self, document: Any, scope: set[str], items: set[str] | None = None) -> None:
        for tag in tags(document):
            if (
                not tag.startswith(CHECKED_PREFIXES)
                or tag in scope
                or tag in self.globals
                or tag.startswith(LATE_TAGS)
            ):
                continue
            if (items is not None and tag in items) or (
                items is not None and "item.*" in items and tag.startswith("item")
            ):
                continue
            raise InvalidSpecError(f"failed to resolve {{{{{tag}}}}}")

    def _outputs(self, template: Document, scope: set[str], *, needs: str) -> None:
        kind = {"parameter": "DAG", "path": "Container"}[needs]
        outputs = (template.get("outputs") or {}).get("parameters") or []
        where = f"templates.{template['name']}.outputs"
        _unique([output.get("name") for output in outputs], f"{where}.parameters")
        for output in outputs:
            if not (output.get("valueFrom") or {}).get(needs):
                raise InvalidSpecError(
                    f"{where}.parameters.{output.get('name')}.{needs} must be specified for {kind} templates"
                )
        try:
            self._resolve(outputs, scope)
        except InvalidSpecError as error:
            raise InvalidSpecError(f"{where} {error}") from None


def _check_expressions(spec: Document) -> None:
    """Refuse every expression that cannot be read or calls an unknown function, before anything runs.
    The controller finds such an expression only when its pod is due, and where unknown tags may
    stay, it would reach the pod as text.
    """
    for index, template in enumerate(spec.get("templates") or []):
        where = f"templates.{template.get('name') or index}"
        strategy = template.get("retryStrategy") or {}
        condition = strategy.get("expression")
        _check_sources(where, template, [str(condition)] if condition else [])
    # Values that were given are texts, in which Argo evaluates nothing.
    rest = {key: value for key, value in spec.items() if key not in ("templates", "arguments")}
    _check_sources("spec", rest, [])


def _check_sources(where: str, document: Any, conditions: list[str]) -> None:
    try:
        sources = expressions(document)
    except TagError as error:
        raise InvalidSpecError(f"{where}: {error}") from None
    for source in [*sources, *conditions]:
        try:
            check_readable(source)
        except ExpressionError as error:
            problem = error.problem.splitlines()[0]
            raise InvalidSpecError(
                f"{where}: failed to evaluate expression: {problem}: {source}"
            ) from None


def _inputs_supplied(template: Document, supplied: set[str]) -> None:
    """Check that each input has an argument, a value or a default."""
    for parameter in (template.get("inputs") or {}).get("parameters") or []:
        name = parameter.get("name")
        if name in supplied:
            continue
        if parameter.get("value") is None and parameter.get("default") is None:
            raise InvalidSpecError(
                f"templates.{template['name']} inputs.parameters.{name} was not supplied"
            )


def _item_tags(task: Document) -> set[str]:
    if task.get("withParam"):
        return {"item", "item.*"}
    if task.get("withSequence"):
        return {"item"}
    found: set[str] = set()
    for item in task.get("withItems") or []:
        if isinstance(item, dict):
            found |= {f"item.{key}" for key in item}
        else:
            found.add("item")
    return found


def _argument_values(arguments: list[Document], where: str) -> None:
    """`validateArgumentsValues`: each has a value, and where it lists its values (`enum`), one of
    these.
    """
    for argument in arguments:
        name = f"{where}.{argument.get('name')}"
        if argument.get("value") is None:
            raise InvalidSpecError(f"{name}.value or {name}.valueFrom is required")
        listed = argument.get("enum")
        if listed is not None and not listed:
            raise InvalidSpecError(f"{name}.enum should contain at least one value")
        if listed and parameter_text(argument["value"]) not in map(parameter_text, listed):
            raise InvalidSpecError(f"{name}.value should be present in {name}.enum list")


def _unique(names: list[Any], where: str, allowed: re.Pattern[str] = PARAMETER_NAME) -> None:
    for index, name in enumerate(names):
        if not name:
            raise InvalidSpecError(f"{where}[{index}].name is required")
        if not allowed.fullmatch(str(name)):
            raise InvalidSpecError(
                f"{where}[{index}].name: '{name}' is invalid: it must match {allowed.pattern}"
            )
        if name in names[:index]:
            raise InvalidSpecError(f"{where}[{index}].name '{name}' is not unique")
