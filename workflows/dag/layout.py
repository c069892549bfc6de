"""The tasks of a manifest as a tree: what calls what, how often, and which options each pod gets.

A workflow's entry DAG may be an experiment or call one several times, and a run's train stage may
be a DAG of several roles, so nothing here assumes a number of levels.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any, Literal

from config import pipeline
from config.errors import BadInput, shown
from config.webhook import NOTIFY

LOOPS = ("withParam", "withItems", "withSequence")
TAG = re.compile(r"\{\{\s*([^{}]+?)\s*\}\}")
COMMAND = re.compile(r"steps\.([a-z_]+)")
Values = Mapping[str, str]
Shape = Literal["line", "rows", "block", "blocks"]
"""How a task is displayed. A pod, a loop of pods, or a stage of several pods takes one line. A loop
over such stages takes a row for each item. Anything that contains rows is a block.
"""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A task of a DAG, or the workflow itself, which has no name.

    looped: called once per item. items: those of a loop, as a JSON list with tags. arguments: input
    -> text with tags. inside: the tasks of the DAG that it calls; none for a pod. step, told: for a
    pod, the module in `steps/` and its options, `--run` -> text with tags. template: what it calls.
    repeats: whether that is a DAG around it, whose tasks are not listed again. at_exit, parameters: for
    the workflow, the tasks of its exit handler and its parameters.
    """

    name: str = ""
    looped: bool = False
    items: str = ""
    arguments: Values = field(default_factory=dict)
    inside: tuple[Layout, ...] = ()
    step: str = ""
    told: Values = field(default_factory=dict)
    template: str = ""
    repeats: bool = False
    at_exit: tuple[Layout, ...] = ()
    parameters: Values = field(default_factory=dict)

    @staticmethod
    def of(manifest: Mapping[str, Any]) -> Layout:
        """The layout of a whole manifest."""
        spec = manifest["spec"]
        templates = {template["name"]: template for template in spec.get("templates", [])}
        parameters = _parameters(spec.get("arguments"))
        inside = _tasks(spec.get("entrypoint", ""), templates, ())
        return Layout(
            inside=_asked(inside, parameters),
            at_exit=_asked(_tasks(spec.get("onExit", ""), templates, ()), parameters),
            parameters=parameters,
        )

    @property
    def calls_itself(self) -> bool:
        """Whether one call of the template that it calls leads to another one."""
        return self.repeats or any(
            task.repeats and task.template == self.template for task in self.inside
        )

    @property
    def shape(self) -> Shape:
        """How much room the task takes when all of it is shown."""
        if not self.inside:
            return "line"
        if any(task.shape != "line" for task in self.inside):
            return "blocks" if self.looped else "block"
        return "rows" if self.looped else "line"

    def of_template(self, name: str) -> tuple[Layout, ...]:
        """The tasks of a DAG template that is called somewhere inside."""
        for task in self.inside:
            if task.template == name and task.inside:
                return task.inside
            if found := task.of_template(name):
                return found
        return ()

    def listed(self, runs: int) -> str:
        """One line for the whole layout: `prepare, 3 x (train, evaluate), average, report`. The
        number of items in each loop is given.
        """
        return ", ".join(_listed(task, runs) for task in (*self.inside, *self.at_exit))


def substituted(text: str, values: Values) -> str | None:
    """The text with its tags replaced, or None if a tag is unknown."""
    if any(tag not in values for tag in TAG.findall(text)):
        return None
    return TAG.sub(lambda tag: values[tag[1]], text)


def refuse_shared_directories(layout: Layout) -> None:
    """Raise `BadInput` for a workflow that calls the experiment twice with one directory, as far as
    that is known before it runs. `prepare` detects the rest.
    """
    values = {f"workflow.parameters.{name}": value for name, value in layout.parameters.items()}
    seen = set[PurePosixPath]()
    for outdir in map(PurePosixPath, _prepared(layout, values)):
        if outdir in seen:
            raise BadInput(
                f"two calls of the experiment have the directory {shown(str(outdir))}; "
                "allowed: one of its own for each"
            )
        seen.add(outdir)


def _prepared(layout: Layout, values: Values) -> Iterator[str]:
    """The directories of all calls of `prepare` in this layout that can be computed from the tags'
    values.
    """
    of_workflow = {tag: text for tag, text in values.items() if tag.startswith("workflow.")}
    for task in layout.inside:
        for item in _known_items(task, values):
            said = {
                name: substituted(text, {**values, **item}) for name, text in task.arguments.items()
            }
            inputs = {
                f"inputs.parameters.{name}": text for name, text in said.items() if text is not None
            }
            outdir = inputs.get("inputs.parameters.outdir")
            if task.step == pipeline.PREPARE and outdir is not None:
                yield outdir
            yield from _prepared(task, of_workflow | inputs)


def _known_items(task: Layout, values: Values) -> list[Values]:
    """The values of `{{item}}` and `{{item.key}}` for each call; nothing for a list that only
    exists at run time.
    """
    if not task.looped:
        return [{}]
    try:
        items = json.loads(substituted(task.items, values) or "[]")
    except ValueError:
        return []
    return [_of_item(item) for item in items] if isinstance(items, list) else []


def _of_item(item: Any) -> Values:
    if isinstance(item, dict):
        return {f"item.{key}": str(value) for key, value in item.items()}
    return {"item": str(item)}


def _listed(task: Layout, runs: int) -> str:
    if not task.inside:
        return task.name
    inside = f"({task.listed(runs)})"
    return f"{runs} x {inside}" if task.looped else f"{task.name} {inside}"


def _tasks(name: str, templates: Mapping[str, Any], around: tuple[str, ...]) -> tuple[Layout, ...]:
    """The tasks of a DAG template; for a template that calls itself only the first level."""
    template = templates.get(name, {})
    if "dag" not in template or name in around:
        return ()
    return tuple(_task(task, templates, (*around, name)) for task in template["dag"]["tasks"])


def _asked(tasks: tuple[Layout, ...], parameters: Values) -> tuple[Layout, ...]:
    """The tasks without those that this workflow's parameters do not ask for: they get no pod."""
    left_out = {
        step.name
        for step in pipeline.STEPS
        if step.asked_by and parameters.get(step.asked_by) in ("0", "")
    }
    if not parameters.get(NOTIFY):
        left_out.add(pipeline.NOTICE.name)
    return tuple(
        replace(task, inside=_asked(task.inside, parameters))
        for task in tasks
        if task.name not in left_out
    )


def _task(task: Mapping[str, Any], templates: Mapping[str, Any], around: tuple[str, ...]) -> Layout:
    called = task.get("template", "")
    template = templates.get(called, {})
    container = template.get("container", {})
    step = COMMAND.search(" ".join(container.get("command", [])))
    return Layout(
        name=task["name"],
        looped=any(loop in task for loop in LOOPS),
        items=str(task.get("withParam") or json.dumps(task.get("withItems") or "")),
        arguments=_parameters(template.get("inputs")) | _parameters(task.get("arguments")),
        inside=_tasks(called, templates, around),
        template=called,
        repeats=called in around,
        step=step[1].replace("_", "-") if step else task["name"],
        told=_options(container.get("args", [])),
    )


def _parameters(section: Mapping[str, Any] | None) -> dict[str, str]:
    """The values in `arguments`, or a template's defaults for inputs without a value."""
    listed = (section or {}).get("parameters") or []
    given = {one["name"]: one.get("value", one.get("default")) for one in listed}
    return {name: str(value) for name, value in given.items() if value is not None}


def _options(words: list[str]) -> dict[str, str]:
    """Parse `--run=0` or `--run 0` to `{"--run": "0"}`."""
    options: dict[str, str] = {}
    for word, after in pairwise([*words, ""]):
        if word.startswith("--"):
            name, is_joined, value = word.partition("=")
            options[name] = value if is_joined else after
    return options
