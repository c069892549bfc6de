"""`depends` and `dependencies`: which tasks must have ended, and how, before a task runs.

Names are evaluated with `-` as `_`, as in Argo. A bare name means succeeded, skipped or daemoned,
and what `continueOn` tolerates. Source: Argo `workflow/common/ancestry.go`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from workflows.local.errors import ConditionError, InvalidSpecError
from workflows.local.language.expression import evaluate
from workflows.local.language.expression_parser import ExpressionError

RESULTS = (
    "Succeeded",
    "Failed",
    "Errored",
    "Skipped",
    "Omitted",
    "Daemoned",
    "AnySucceeded",
    "AllFailed",
)
REFERENCE = re.compile(r"([a-zA-Z0-9][-a-zA-Z0-9_]*)(?:\.([A-Z][A-Za-z]*))?")
Task = Mapping[str, Any]


def dependencies_of(task: Task) -> list[str]:
    """The tasks that a task names, in order, without repetitions."""
    if task.get("depends"):
        return list(
            dict.fromkeys(matched[1] for matched in REFERENCE.finditer(str(task["depends"])))
        )
    return list(dict.fromkeys(task.get("dependencies") or []))


def ancestry(tasks: Mapping[str, Task]) -> dict[str, set[str]]:
    """The ancestors of every task, ordered so that each task comes after its ancestors. Raises
    `InvalidSpecError` for a cycle.
    """
    found: dict[str, set[str]] = {}
    waiting = {name: set(dependencies_of(task)) for name, task in tasks.items()}
    while waiting:
        ready = [name for name, dependencies in waiting.items() if dependencies <= found.keys()]
        if not ready:
            raise InvalidSpecError(f"dependency cycle detected: {'->'.join(_cycle(waiting))}")
        for name in ready:
            dependencies = waiting.pop(name)
            found[name] = dependencies.union(*(found[dependency] for dependency in dependencies))
    return found


def _cycle(waiting: Mapping[str, set[str]]) -> list[str]:
    path = [next(iter(waiting))]
    while path[-1] not in path[:-1]:
        path.append(next(name for name in sorted(waiting[path[-1]]) if name in waiting))
    return path[path.index(path[-1]) :]


def unknown_results(task: Task) -> list[tuple[str, str]]:
    """(task, result) pairs in `depends` whose result does not exist."""
    return [
        (matched[1], matched[2])
        for matched in REFERENCE.finditer(str(task.get("depends") or ""))
        if matched[2] and matched[2] not in RESULTS
    ]


def logic_of(task: Task, find: Callable[[str], Task]) -> str:
    """The condition with bare names expanded. `find` returns a task by name."""
    if not task.get("depends"):
        return " && ".join(_expanded(name, find(name)) for name in task.get("dependencies") or [])

    def written_out(reference: re.Match[str]) -> str:
        name, result = reference[1], reference[2]
        if result:
            return reference[0]
        return _expanded(name, find(name))

    return REFERENCE.sub(written_out, str(task["depends"]))


def is_satisfied(logic: str, results: Mapping[str, Mapping[str, bool]]) -> bool:
    """Evaluate a condition over the results of ended tasks. Raises `ConditionError`."""
    # `-` is an operator in expr, so Argo replaces it in names: `a-b` and `a_b` are the same there.
    source = logic.replace("-", "_")
    variables = {name.replace("-", "_"): dict(result) for name, result in results.items()}
    try:
        value = evaluate(source, variables)
    except ExpressionError as error:
        raise ConditionError(f"unable to evaluate expression '{source}': {error}") from None
    if not isinstance(value, bool):
        raise ConditionError(f"unable to evaluate expression '{source}': the result is no boolean")
    return value


def results_of(phase: str, children: list[str]) -> dict[str, bool]:
    """The results that `depends` can ask for, of a task that ended in `phase`. children: the phases
    of a loop's items.
    """
    return {
        "Succeeded": phase == "Succeeded",
        "Failed": phase == "Failed",
        "Errored": phase == "Error",
        "Skipped": phase == "Skipped",
        "Omitted": phase == "Omitted",
        "Daemoned": False,
        "AnySucceeded": "Succeeded" in children,
        # An item that ended with Error is not Failed: then neither of the two is true.
        "AllFailed": bool(children) and all(child == "Failed" for child in children),
    }


def _expanded(name: str, task: Task) -> str:
    tolerated = task.get("continueOn") or {}
    accepted = ["Succeeded", "Skipped", "Daemoned"]
    if tolerated.get("error"):
        accepted.append("Errored")
    if tolerated.get("failed"):
        accepted.append("Failed")
    return "(" + " || ".join(f"{name}.{result}" for result in accepted) + ")"
