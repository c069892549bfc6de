"""The manifest of searches: what stands in no other. The rules for all manifests are in
test_manifests.py.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from manifest_rules import Manifest, dags, leaves

from config import pipeline
from config.cluster import load_cluster
from config.study.search import MOST_RUNGS, MOST_TURNS
from config.study.workflow_parameters import OF_SEARCH
from workflows.dag import render
from workflows.dag.layout import Layout
from workflows.local.templates import DEEPEST


@pytest.fixture(scope="module")
def built() -> Manifest:
    return render.build_study_manifest(load_cluster(), 4, kind=render.SEARCH)


@pytest.fixture
def manifest(built: Manifest) -> Manifest:
    return copy.deepcopy(built)


def edges(manifest: Manifest, name: str) -> dict[str, str]:
    dag = next(one["dag"] for one in dags(manifest) if one["name"] == name)
    return {one["name"]: one.get("depends", "") for one in dag["tasks"]}


def task(manifest: Manifest, dag: str, name: str) -> Any:
    found = next(one["dag"] for one in dags(manifest) if one["name"] == dag)
    return next(one for one in found["tasks"] if one["name"] == name)


def ended(name: str) -> str:
    return f"({name}.Succeeded || {name}.Failed || {name}.Errored || {name}.Skipped)"


def test_the_figure(manifest: Manifest) -> None:
    assert edges(manifest, "search") == {
        "plan-search": "",
        "lanes": "plan-search.Succeeded",
        "choose": "(lanes.Succeeded || lanes.Failed || lanes.Errored)",
        "winner": "choose.Succeeded",
        "compare": "(winner.Succeeded || winner.Failed || winner.Errored)",
        "plot-comparison": "compare.Succeeded",
    }
    kinds = ("", "-with-actors", "-with-workers")
    assert edges(manifest, "lane") == {
        "propose": "",
        "tell": " && ".join([*(ended(f"trials{kind}") for kind in kinds), "propose.Succeeded"]),
        **{f"trials{kind}": "propose.Succeeded" for kind in kinds},
        "again": f"propose.Succeeded && {ended('tell')}",
    }
    for kind in kinds:
        assert edges(manifest, f"trial{kind}") == {
            "prepare": "",
            "rung": "prepare.Succeeded",
        }
        assert edges(manifest, f"rung{kind}") == {
            "runs": "",
            "judge": "(runs.Succeeded || runs.Failed || runs.Errored)",
            "evaluate": "judge.Succeeded",
            "whole": "judge.Succeeded",
            "again": "judge.Succeeded",
        }
    assert edges(manifest, "finish") == {
        "report-search": "",
        "notify": "(report-search.Succeeded || report-search.Failed || report-search.Errored)",
    }


def test_lanes_and_rungs_call_themselves(manifest: Manifest) -> None:
    assert task(manifest, "lane", "again")["template"] == "lane"
    assert task(manifest, "lane", "again")["when"] == (
        "{{tasks.propose.outputs.parameters.again}} == true"
    )
    for kind in ("", "-with-actors", "-with-workers"):
        again = task(manifest, f"rung{kind}", "again")
        assert again["template"] == f"rung{kind}"
        until = next(one for one in again["arguments"]["parameters"] if one["name"] == "until")
        assert until["value"] == "{{tasks.judge.outputs.parameters.until}}"


def test_nested_calls_stay_below_the_controllers_limit(manifest: Manifest) -> None:
    """The longest lane, in whose last trial every rung is reached, and then the deepest call below it."""
    inside = Layout.of(manifest)

    def depth(tasks: tuple[Layout, ...]) -> int:
        return max((1 + depth(one.inside) for one in tasks if not one.repeats), default=0)

    once = depth(inside.inside)
    assert once + (MOST_TURNS - 1) + (MOST_RUNGS - 1) < DEEPEST


def test_every_process_of_a_training_knows_where_it_pauses(manifest: Manifest) -> None:
    for leaf in leaves(manifest):
        if "-until" in leaf["name"]:
            assert "--until={{inputs.parameters.until}}" in leaf["container"]["args"], leaf["name"]
    called = {one["name"] for one in leaves(manifest) if "-until" in one["name"]}
    assert {"train-until", "train-until-with-actors", "train-actor-until"} <= called
    assert {"train-worker-until", "train-learner-until"} <= called


def test_a_trial_is_its_name_and_has_a_directory_of_that_name(manifest: Manifest) -> None:
    trials = task(manifest, "lane", "trials")
    assert trials["withParam"] == "{{tasks.propose.outputs.parameters.experiments}}"
    values = {one["name"]: one["value"] for one in trials["arguments"]["parameters"]}
    assert values["outdir"] == "{{workflow.parameters.outdir}}/experiments/{{item}}"


def test_the_winner_is_a_study_of_its_own(manifest: Manifest) -> None:
    for topology in pipeline.EXPERIMENTS.values():
        loop = task(manifest, "winner", topology)
        values = {one["name"]: one["value"] for one in loop["arguments"]["parameters"]}
        assert values["outdir"] == "{{workflow.parameters.outdir}}/again/experiments/{{item}}"
    compare = next(one for one in leaves(manifest) if one["name"] == "compare")
    assert compare["container"]["args"] == ["--outdir={{workflow.parameters.outdir}}/again"]


def test_its_parameters(manifest: Manifest) -> None:
    listed = manifest["spec"]["arguments"]["parameters"]
    assert [one["name"] for one in listed] == list(OF_SEARCH)
