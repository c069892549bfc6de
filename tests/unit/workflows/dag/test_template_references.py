"""References to workflow templates are replaced by what they refer to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from config.errors import BadInput
from tests.outside import ROOT
from workflows.dag.references import has_references, known_to_controller, whole
from workflows.local.spec.installed import finder

WRITES = {
    "name": "writes",
    "inputs": {"parameters": [{"name": "text"}]},
    "container": {
        "image": "x",
        "command": ["python", "-c", "import sys, pathlib; pathlib.Path(sys.argv[1]).touch()"],
        "args": ["{{inputs.parameters.text}}"],
    },
}
INSTALLED = {
    "apiVersion": "argoproj.io/v1alpha1",
    "kind": "WorkflowTemplate",
    "metadata": {"name": "lab"},
    "spec": {
        "entrypoint": "all",
        "activeDeadlineSeconds": 100,
        "arguments": {"parameters": [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}]},
        "templates": [
            {
                "name": "all",
                "dag": {
                    "tasks": [
                        {
                            "name": "one",
                            "template": "writes",
                            "arguments": {
                                "parameters": [
                                    {"name": "text", "value": "{{workflow.parameters.b}}"}
                                ]
                            },
                        }
                    ]
                },
            },
            WRITES,
        ],
    },
}


def workflow(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "w"},
        "spec": spec,
    }


def find(name: str) -> dict[str, Any]:
    if name != "lab":
        raise BadInput(f"no template {name}")
    return INSTALLED


def calling(name: str = "lab", template: str = "all") -> dict[str, Any]:
    task = {"name": "outer", "templateRef": {"name": name, "template": template}}
    return workflow(entrypoint="mine", templates=[{"name": "mine", "dag": {"tasks": [task]}}])


def test_the_workflow_s_own_values_lie_over_those_of_its_template() -> None:
    given = workflow(
        workflowTemplateRef={"name": "lab"},
        activeDeadlineSeconds=5,
        arguments={"parameters": [{"name": "b", "value": "3"}, {"name": "c", "value": "4"}]},
    )
    spec = whole(given, find)["spec"]
    assert "workflowTemplateRef" not in spec
    assert (spec["entrypoint"], spec["activeDeadlineSeconds"]) == ("all", 5)
    values = {one["name"]: one["value"] for one in spec["arguments"]["parameters"]}
    assert values == {"a": "1", "b": "3", "c": "4"}
    assert [one["name"] for one in spec["templates"]] == ["all", "writes"]


def test_a_task_s_template_comes_with_everything_that_it_calls() -> None:
    spec = whole(calling(), find)["spec"]
    assert [one["name"] for one in spec["templates"]] == ["mine", "lab-all", "lab-writes"]
    assert spec["templates"][0]["dag"]["tasks"][0] == {"name": "outer", "template": "lab-all"}
    assert spec["templates"][1]["dag"]["tasks"][0]["template"] == "lab-writes"
    assert INSTALLED["spec"]["templates"][0]["dag"]["tasks"][0]["template"] == "writes"  # type: ignore[index]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (calling("lap"), "no template lap"),
        (
            calling(template="al"),
            "workflow template 'lab' has no template 'al'; it has: all, writes",
        ),
        (workflow(workflowTemplateRef={}), "spec.workflowTemplateRef.name: a name is expected"),
        (
            workflow(workflowTemplateRef={"name": "lab"}, templates=[WRITES]),
            "spec.templates: not allowed beside spec.workflowTemplateRef",
        ),
    ],
)
def test_a_reference_that_leads_nowhere_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        whole(given, find)


@pytest.mark.parametrize(
    "given",
    [{}, {"spec": 1}, workflow(templates=[1]), workflow(templates=[{"dag": {"tasks": [1]}}])],
)
def test_what_has_no_reference_stays_as_it_is(given: dict[str, Any]) -> None:
    assert not has_references(given)
    assert whole(given, find) is given
    assert known_to_controller(given) is given


def run(tmp_path: Path, document: dict[str, Any], *options: str) -> tuple[int, str]:
    (tmp_path / "w.yaml").write_text(yaml.safe_dump(document))
    done = subprocess.run(
        [sys.executable, "-m", "workflows.local", "w.yaml", *options],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("document", [workflow(workflowTemplateRef={"name": "lab"}), {**calling()}])
def test_the_local_engine_runs_references(tmp_path: Path, document: dict[str, Any]) -> None:
    (tmp_path / "lab.yaml").write_text(yaml.safe_dump(INSTALLED))
    document["spec"]["arguments"] = {"parameters": [{"name": "b", "value": str(tmp_path / "made")}]}
    code, said = run(tmp_path, document, "--templates", "lab.yaml")
    assert code == 0, said
    assert (tmp_path / "made").exists()
    code, said = run(tmp_path, document)
    assert (code, said.startswith("refused: no workflow template 'lab'")) == (2, True)


def test_files_of_templates(tmp_path: Path) -> None:
    assert finder([])("rl-ppo")["metadata"]["name"] == "rl-ppo"
    with pytest.raises(BadInput, match="--templates cannot be"):
        finder([tmp_path / "nothing"])("rl-ppo")
    (tmp_path / "w.yaml").write_text(yaml.safe_dump(calling()))
    with pytest.raises(BadInput, match="kind 'Workflow'; allowed: WorkflowTemplate"):
        finder([tmp_path / "w.yaml"])("rl-ppo")
    finder([tmp_path])("rl-ppo")
