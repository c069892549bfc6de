"""The manifest of studies: what stands in no manifest of one experiment. The rules for all manifests
are in test_manifests.py.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from manifest_rules import RULES, Manifest, dags, leaves

from config import pipeline
from config.cluster import load_cluster
from config.study.workflow_parameters import OF_WORKFLOW
from workflows.dag import render

OWN_CLUSTER = "cpu_image: own.example/rl:3\nparallel_experiments: 7\nparallelism: 5\n"
ALL_ENDED = (
    "(experiments.Succeeded || experiments.Failed || experiments.Errored || experiments.Skipped) && "
    "(experiments-with-actors.Succeeded || experiments-with-actors.Failed"
    " || experiments-with-actors.Errored || experiments-with-actors.Skipped) && "
    "(experiments-with-workers.Succeeded || experiments-with-workers.Failed"
    " || experiments-with-workers.Errored || experiments-with-workers.Skipped)"
)


@pytest.fixture(scope="module")
def built() -> Manifest:
    return render.build_study_manifest(load_cluster(), 4)


@pytest.fixture
def manifest(built: Manifest) -> Manifest:
    return copy.deepcopy(built)


def dag(manifest: Manifest, name: str) -> Any:
    return next(one["dag"] for one in dags(manifest) if one["name"] == name)


def leaf(manifest: Manifest, name: str) -> Any:
    return next(one for one in leaves(manifest) if one["name"] == name)


def task(manifest: Manifest, name: str) -> Any:
    return next(
        one for found in dags(manifest) for one in found["dag"]["tasks"] if one["name"] == name
    )


def test_the_figure(manifest: Manifest) -> None:
    """A loop over each topology, which may be empty and then is skipped; what follows waits for all."""
    edges = {one["name"]: one.get("depends", "") for one in dag(manifest, "study")["tasks"]}
    assert edges == {
        "plan": "",
        "round": "plan.Succeeded",
        "compare": "(round.Succeeded || round.Failed || round.Errored)",
        "plot-comparison": "compare.Succeeded",
    }
    edges = {one["name"]: one.get("depends", "") for one in dag(manifest, "round")["tasks"]}
    assert edges == {
        "experiments": "",
        "experiments-with-actors": "",
        "experiments-with-workers": "",
        "decide": ALL_ENDED,
        "again": "decide.Succeeded",
    }
    assert task(manifest, "again")["template"] == "round"
    finish = [one["name"] for one in dag(manifest, "finish")["tasks"]]
    assert finish == ["report-study", "notify"]
    spec = manifest["spec"]
    assert (spec["entrypoint"], spec["onExit"]) == ("study", "finish")


def test_a_cell_is_its_name_and_has_a_directory_of_that_name(manifest: Manifest) -> None:
    """Its parameters would stand in the name of every node."""
    for topology, name in pipeline.EXPERIMENTS.items():
        loop = task(manifest, name)
        assert loop["withParam"] == f"{{{{inputs.parameters.{name}}}}}", topology
        (given,) = loop["arguments"]["parameters"]
        assert given == {
            "name": "outdir", "value": "{{workflow.parameters.outdir}}/experiments/{{item}}"
        }  # fmt: skip
        first = next(
            one["template"]
            for one in dag(manifest, loop["template"])["tasks"]
            if one["name"] == "prepare"
        )
        assert leaf(manifest, first)["container"]["args"][0] == "--study"


def test_plan_gets_the_parameters_of_its_workflow(manifest: Manifest) -> None:
    offered = {one["name"]: one["value"] for one in manifest["spec"]["arguments"]["parameters"]}
    assert list(offered) == list(OF_WORKFLOW)
    assert (offered["study"], offered["outdir"], offered["part"]) == ("", "", "1/1")
    told = leaf(manifest, "plan")["container"]["args"]
    assert "--workflow-parameters={{workflow.parameters.json}}" in told


def test_only_plan_reads_the_study(manifest: Manifest) -> None:
    read = re.compile(r"workflow\.parameters\.(study|json)\b")
    readers = {one["name"] for one in leaves(manifest) if read.search(str(one))}
    assert readers == {"plan"}


def test_every_step_of_a_study_runs_its_module(manifest: Manifest) -> None:
    modules = {one["name"]: one["container"]["command"][2] for one in leaves(manifest)}
    steps = (*pipeline.STEPS, *pipeline.STUDY_STEPS, pipeline.NOTICE)
    assert set(modules.values()) == {
        *(step.module for step in steps), "steps.wait_for_training"
    }  # fmt: skip
    for step in pipeline.STUDY_STEPS:
        assert modules[step.name] == step.module


def test_settings_of_the_cluster_arrive(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(OWN_CLUSTER)
    cluster = load_cluster(path)
    manifest = render.rendered_study(cluster)
    assert dag_of(manifest, "round")["parallelism"] == 7
    assert dag_of(manifest, "experiment")["parallelism"] == 5
    assert dag_of(render.rendered_study(cluster, 2), "round")["parallelism"] == 2
    offered = {one["name"]: one["value"] for one in manifest["spec"]["arguments"]["parameters"]}
    assert offered["cpu_image"] == "own.example/rl:3"


def dag_of(manifest: Manifest, name: str) -> Any:
    return next(one for one in dags(manifest) if one["name"] == name)


@pytest.mark.parametrize("table", ["STEPS", "STUDY_STEPS"])
def test_a_new_step_needs_no_rendering_by_hand(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The committed file knows nothing of it, whenever it was written."""
    monkeypatch.setattr(render, "_edited_since", lambda committed: False)
    scope = "study" if table == "STUDY_STEPS" else "experiment"
    needed = pipeline.Need(task="plot-comparison" if scope == "study" else "average")
    row = pipeline.Step(name="tell", scope=scope, needs=(needed,))
    before = getattr(pipeline, table)
    monkeypatch.setattr(pipeline, table, (*before[:-1], row, before[-1]))
    made = render.rendered_study(load_cluster())
    assert leaf(made, "tell")
    assert task(made, "tell")["depends"] == f"{needed.task}.Succeeded"


def test_the_committed_file_serves_only_its_own_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read where it fits, because Hera takes a second to import."""
    cluster = load_cluster()
    monkeypatch.setattr(render, "_edited_since", lambda committed: False)

    def build(*_: object, **__: object) -> Manifest:
        raise LookupError("built")

    monkeypatch.setattr(render, "build_study_manifest", build)
    assert render.rendered_study(cluster)["spec"]["entrypoint"] == "study"
    assert render.rendered_study(cluster, cluster.parallel_experiments)
    with pytest.raises(LookupError):
        render.rendered_study(cluster, cluster.parallel_experiments + 1)


OF_DIRECTORY = {"parameters": [{"name": "outdir", "value": "{{item}}"}]}
DAMAGES: list[tuple[str, Callable[[Manifest], Any]]] = [
    ("an_image_that_cannot_be_pulled_ends", lambda one: leaf(one, "plan").pop("activeDeadlineSeconds")),
    ("an_image_that_cannot_be_pulled_ends", lambda one: leaf(one, "report-study").pop("activeDeadlineSeconds")),
    ("an_image_that_cannot_be_pulled_ends", lambda one: leaf(one, "prepare-with-actors").pop("activeDeadlineSeconds")),
    ("an_image_that_cannot_be_pulled_ends", lambda one: leaf(one, "compare").update(activeDeadlineSeconds=60)),
    ("images_are_parameters_with_a_version", lambda one: leaf(one, "compare")["container"].update(image="{{inputs.parameters.cpu_image}}")),
    ("images_are_parameters_with_a_version", lambda one: leaf(one, "play")["container"].update(image="{{workflow.parameters.cpu_image}}")),
    ("every_tag_resolves", lambda one: task(one, "experiments").update(withParam="{{inputs.parameters.cells}}")),
    ("every_task_and_argument_exists", lambda one: dag(one, "study")["tasks"].pop()),
    ("every_task_and_argument_exists", lambda one: task(one, "compare").update(arguments=OF_DIRECTORY)),
    ("reads_only_ancestors", lambda one: task(one, "round").update(depends="")),
    ("dependencies_name_a_result", lambda one: task(one, "plot-comparison").update(depends="compare")),
    ("ends_with_a_report", lambda one: dag(one, "study")["tasks"].append({"name": "more", "template": "report-study"})),
]  # fmt: skip


@pytest.mark.parametrize(("name", "damage"), DAMAGES)
def test_the_rules_hold_for_what_only_a_study_has(
    name: str, damage: Callable[[Manifest], Any], manifest: Manifest
) -> None:
    (rule,) = (one for one in RULES if one.__name__ == name)
    assert list(rule(manifest)) == []
    damage(manifest)
    assert list(rule(manifest))
