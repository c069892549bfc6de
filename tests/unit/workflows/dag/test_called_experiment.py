"""The experiment's template as another DAG calls it, with the local engine and the real steps."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest

from config.algorithms.descriptor import READ_BY_ARGO, SINGLE
from config.cluster import load_cluster
from config.described import parameters
from config.errors import shown
from steps.directory.experiment import read_experiment
from steps.directory.layout import ExperimentDirectory
from steps.directory.processes import identity
from tests.calling import calling
from workflows import local
from workflows.dag.layout import Layout, refuse_shared_directories
from workflows.dag.render import rendered
from workflows.local import __main__ as command
from workflows.local.status import WorkflowStatus

ROOT = Path(__file__).parents[4]
REPLACED = "a workflow cannot have the parameter 'parameters', which replaces all others"
TINY = {"game": "cartpole", "epochs": "2", "evaluation_episodes": "1", "video_episodes": "0"}


@pytest.fixture
def manifest() -> dict[str, Any]:
    """The committed one; a step that is refused is not waited for before it is given up."""
    copied = copy.deepcopy(rendered("ppo", load_cluster()))
    for template in copied["spec"]["templates"]:
        if "container" in template:
            del template["retryStrategy"]["backoff"]
    return copied


def run(manifest: dict[str, Any], folder: Path, **given: str) -> WorkflowStatus:
    return local.run(
        manifest,
        name="wf",
        parameters=given,
        storage=folder / "storage",
        logs=folder / "logs",
        environment={
            "EXPERIMENT_OWNER_PROCESS": identity(),
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        },
    )


def phases(status: WorkflowStatus) -> dict[str, str]:
    return {node.name.removeprefix("wf."): node.phase for node in status.nodes.values()}


def printed(folder: Path) -> str:
    return "".join(path.read_text() for path in sorted((folder / "logs").glob("*.log")))


@pytest.mark.slow
def test_two_calls_in_one_workflow_make_two_complete_reports(
    manifest: dict[str, Any], tmp_path: Path
) -> None:
    """Different directories, parameters and conditions; one exit handler reports on both."""
    both = {
        "/storage/first": TINY | {"seed": "1"},
        "/storage/below/second": TINY | {"seed": "2", "evaluate_above": "100000"},
    }
    status = run(calling(manifest, both), tmp_path)
    found = phases(status)
    assert status.phase == "Succeeded", (status.message, printed(tmp_path))
    assert found["experiment-0.runs(0:0).evaluate"] == "Succeeded"
    assert found["experiment-1.runs(0:0).evaluate"] == "Skipped"
    assert found["experiment-1.runs(0:0).play"] == "Omitted"
    for index, (outdir, given) in enumerate(both.items()):
        directory = tmp_path / "storage" / Path(outdir).relative_to("/storage")
        assert found[f"onExit.report({index}:{outdir})"] == "Succeeded"
        assert "<h2>Complete</h2>" in (directory / "report.html").read_text()
        assert json.loads((directory / "owner.json").read_text())["released"]
        experiment = read_experiment(ExperimentDirectory(directory)).resolved.experiment
        assert (experiment.seed, experiment.outdir) == (int(given["seed"]), str(directory))
        summary = json.loads((directory / "average" / "summary.json").read_text())
        assert (summary["used"], summary["evaluation"]["n"]) == ([0], 1 - index)


def both_with(manifest: dict[str, Any], outdir: str) -> dict[str, Any]:
    """Two calls with this directory, of which nothing but `prepare` is left."""
    study = calling(manifest, {"/storage/first": TINY, "/storage/second": TINY})
    templates = {one["name"]: one for one in study["spec"]["templates"]}
    called = templates["experiment"]["dag"]
    called["tasks"] = [task for task in called["tasks"] if task["name"] == "prepare"]
    for task in templates["study"]["dag"]["tasks"]:
        task["arguments"]["parameters"][0]["value"] = outdir
    del study["spec"]["onExit"]
    return study


def test_of_two_calls_with_one_directory_the_second_is_refused(
    manifest: dict[str, Any], tmp_path: Path
) -> None:
    """Where nobody has looked before, as with plain `argo submit`."""
    status = run(both_with(manifest, "/storage/same"), tmp_path)
    ends = {name: phase for name, phase in phases(status).items() if name.endswith(".prepare")}
    assert sorted(ends.values()) == ["Failed", "Succeeded"]
    first, second = sorted(ends, key=lambda name: ends[name], reverse=True)
    refused = f"belongs to another call of the experiment in this workflow, wf.{first}; "
    assert f"{refused}wf.{second} needs another outdir\n" in printed(tmp_path)
    assert [node.exit_code for node in status.nodes.values() if node.failed and node.pod] == [4]


@pytest.mark.parametrize("loop", ["", "withParam", "withItems"])
@pytest.mark.parametrize("outdir", ["/storage/same", "/storage//same/"])
def test_two_calls_with_one_directory_are_refused_before_anything_runs(
    manifest: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    loop: str,
    outdir: str,
) -> None:
    study = both_with(manifest, "{{item.outdir}}" if loop else "/storage/same")
    first, second = next(
        one["dag"]["tasks"] for one in study["spec"]["templates"] if one["name"] == "study"
    )
    items = [{"outdir": "/storage/same"}, {"outdir": outdir}]
    if loop == "withParam":
        study["spec"]["arguments"]["parameters"].append({"name": "list", "value": "[]"})
    if loop:
        first[loop] = "{{workflow.parameters.list}}" if loop == "withParam" else items
        second["arguments"]["parameters"][0]["value"] = "/storage/other"
    else:
        second["arguments"]["parameters"][0]["value"] = outdir
    file = tmp_path / "study.yaml"
    file.write_text(json.dumps(study))
    given = [f"-plist={json.dumps(items)}"] if loop == "withParam" else []
    assert command.main([str(file), f"--storage={tmp_path}/storage", *given]) == 2
    assert capsys.readouterr().err == (
        "refused: two calls of the experiment have the directory '/storage/same'; "
        "allowed: one of its own for each\n"
    )
    assert list(tmp_path.iterdir()) == [file]


def test_different_directories_are_not_refused(manifest: dict[str, Any]) -> None:
    """Nor what only the run will tell."""
    refuse_shared_directories(Layout.of(calling(manifest, {"/storage/a": {}, "/storage/b": {}})))
    refuse_shared_directories(Layout.of(both_with(manifest, "{{workflow.parameters.unknown}}")))


def test_the_names_of_a_call_are_checked_where_it_is_prepared(
    manifest: dict[str, Any], tmp_path: Path
) -> None:
    """And what the workflow or the call decides is no parameter that says something else."""
    wrong = {
        "/storage/a": TINY | {"epoch": "3"},
        "/storage/b": TINY | {"outdir": "/storage/c"},
        "/storage/d": TINY | {"claim": "other"},
    }
    status = run(calling(manifest, wrong), tmp_path)
    assert status.phase == "Failed"
    said = printed(tmp_path)
    assert "prepare: unknown parameter 'epoch'; did you mean 'epochs'?" in said
    storage = tmp_path / "storage"
    given, wanted = (shown(f"{storage}/{name}") for name in "bc")  # a long path is cut
    assert f"'outdir' was given twice: {given} and {wanted}" in said
    assert "'claim' was given twice: 'storage' and 'other'" in said
    assert list(storage.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "value", "refusal"),
    [
        ("typo", "1", "unknown parameter 'typo'"),
        ("seed", "{{foo}}", "parameter 'seed' cannot be"),
        ("parameters", "seed=1", REPLACED),
        ("parameters", '[{"name": "seed", "value": "1"}]', REPLACED),
    ],
)
def test_what_plain_argo_submit_appends_is_seen_and_refused(
    manifest: dict[str, Any], tmp_path: Path, name: str, value: str, refusal: str
) -> None:
    status = run(manifest, tmp_path, **{"outdir": "/storage/x", name: value})
    assert (status.phase, phases(status)["prepare"]) == ("Failed", "Failed")
    assert f"prepare: {refusal}" in printed(tmp_path)
    assert list((tmp_path / "storage").iterdir()) == []


def test_what_argo_reads_itself_may_differ_between_experiments(manifest: dict[str, Any]) -> None:
    """Pods take it from the outputs of `prepare`, which knows the workflow's own as the defaults. Only
    the volumes are those of the whole workflow."""
    spec = manifest["spec"]
    pods = {one["name"]: one for one in spec["templates"] if "container" in one}
    first = pods.pop("prepare")
    pods.pop("notify")  # of the workflow, not of an experiment
    told = " ".join(first["container"]["args"])
    names = [info.name for info in parameters("ppo")]
    read = json.dumps([spec["volumes"], *pods.values()])
    assert [name for name in names if f"workflow.parameters.{name}}}" in read] == ["claim"]
    as_default = {
        name for name in names if f"--default {name}={{{{workflow.parameters.{name}}}}}" in told
    }
    assert as_default == {*READ_BY_ARGO[SINGLE]}
    passed_on = {one["name"] for one in first["outputs"]["parameters"]}
    assert passed_on == {"runs", "trained", *READ_BY_ARGO[SINGLE]}
    assert "workflow.parameters.json" not in json.dumps(list(pods.values()))


def test_the_status_holds_no_copy_of_the_parameters(
    manifest: dict[str, Any], tmp_path: Path
) -> None:
    """They stand in the specification; a text of all of them in each node's inputs would be larger."""
    status = run(manifest, tmp_path, outdir="/storage/x", game="no-such-game")
    assert phases(status)["prepare"] == "Failed"
    assert "no-such-game" in printed(tmp_path)
    inputs = json.dumps([node.get("inputs") for node in status.as_dict()["nodes"].values()])
    assert "no-such-game" not in inputs
