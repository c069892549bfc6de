"""A manifest with mistakes is refused in one line, or runs: never a traceback."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

import pytest

from config.errors import ExperimentError
from workflows.dag import manifest_yaml, render
from workflows.local.engine import read_patches
from workflows.local.errors import WorkflowError
from workflows.local.spec.manifest import prepare
from workflows.local.spec.validation import check

MANIFESTS = [manifest_yaml.load(path.read_text()) for path in sorted(render.FOLDER.glob("*.yaml"))]
VALUES = [
    None, "", 0, -1, True, 1.5, 10**30, "x", "x" * 5000, "{{", "{{x}}", "{{=1 +}}", "{{=f()}}",
    "{{inputs.parameters.run}}", [], {}, [None], [{}], ["a", 1], {"a": None}, {"name": None},
]  # fmt: skip
Path = tuple[str | int, ...]


def places(node: Any, path: Path = ()) -> Iterator[Path]:
    """Every place in a document."""
    inside: list[tuple[str | int, Any]] = []
    if isinstance(node, dict):
        inside = list(node.items())
    elif isinstance(node, list):
        inside = list(enumerate(node))
    for key, value in inside:
        yield (*path, key)
        yield from places(value, (*path, key))


def mutated(document: dict[str, Any], generator: random.Random) -> dict[str, Any]:
    """A copy with one or two entries removed, repeated, renamed or replaced."""
    changed = copy.deepcopy(document)
    for _ in range(generator.randint(1, 2)):
        *parents, last = generator.choice(list(places(changed)))
        holder: Any = changed
        for key in parents:
            holder = holder[key]
        kind = generator.choice(["remove", "repeat", "rename", "replace", "replace"])
        if kind == "remove":
            del holder[last]
        elif kind == "repeat" and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[last]))
        elif kind == "rename" and isinstance(holder, dict):
            holder["other"] = holder.pop(last)
        else:
            holder[last] = copy.deepcopy(generator.choice(VALUES))
        if not changed:
            break
    return changed


@pytest.mark.parametrize(
    ("first", "count"),
    [(0, 300), pytest.param(300, 4000, marks=[pytest.mark.slow, pytest.mark.soak])],
)
def test_a_mutated_manifest_is_refused_in_one_line_or_can_run(first: int, count: int) -> None:
    runnable = 0
    for seed in range(first, first + count):
        generator = random.Random(seed)
        document = mutated(generator.choice(MANIFESTS), generator)
        try:
            manifest = prepare(document)
            read_patches(manifest)
            check(manifest)
            runnable += 1
        except (ExperimentError, WorkflowError) as error:
            assert "\n" not in str(error) and len(str(error)) > 10, seed
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
    assert 0.05 < runnable / count < 0.9, "some mutations matter, and some do not"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "podPriorityClassName"), "low"),
        (("spec", "archiveLogs"), True),
        (("spec", "metrics"), {"prometheus": []}),
        (("spec", "dnsPolicy"), "ClusterFirst"),
        (("spec", "templates", 3, "schedulerName"), "kueue"),
        (("spec", "templates", 3, "priorityClassName"), "low"),
        (("spec", "templates", 3, "podSpecPatch"), '{"runtimeClassName": "nvidia"}'),
    ],
)
def test_what_only_a_cluster_knows_is_accepted_with_a_notice(path: Path, value: Any) -> None:
    document = copy.deepcopy(MANIFESTS[0])
    before = prepare(document).accepted
    *parents, last = path
    holder: Any = document
    for key in parents:
        holder = holder[key]
    holder[last] = value
    manifest = prepare(document)
    check(manifest)
    if last == "podSpecPatch":
        read_patches(manifest)
        return
    assert len(manifest.accepted) == len(before) + 1
