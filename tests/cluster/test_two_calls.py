"""The experiment's template called twice with two directories in one workflow, to two
complete reports."""

from __future__ import annotations

import json
from pathlib import Path

from config import pipeline
from tests.calling import calling
from tests.cluster import kubernetes as k
from tests.cluster.conftest import Images, in_pods
from workflows.dag import manifest_yaml

SHORT = {"game": "cartpole", "epochs": "40", "evaluation_episodes": "3"}


def test_two_calls_in_one_workflow_make_two_complete_reports(
    images: Images, restricted: str, manifest: Path, outdir: Path, tmp_path: Path
) -> None:
    both = {
        in_pods(outdir / "first"): SHORT | {"seed": "1", "runs": "2"},
        in_pods(outdir / "second"): SHORT | {"seed": "2", "evaluate_above": "100000"},
    }
    study = tmp_path / "study.yaml"
    study.write_text(manifest_yaml.dump(calling(manifest_yaml.load(manifest.read_text()), both)))
    name = "t-called-twice"
    k.delete(name)
    k.argo_without_server("submit", str(study), "--name", name, *images.parameters)
    status = k.ended(name)
    assert status["phase"] == "Succeeded", status.get("message")
    assert k.phases(status, pipeline.TRAIN) == ["Succeeded"] * 3
    assert sorted(k.phases(status, pipeline.EVALUATE)) == ["Skipped", "Succeeded", "Succeeded"]
    for folder, runs, evaluated in (("first", 2, 2), ("second", 1, 0)):
        assert "<h2>Complete</h2>" in (outdir / folder / "report.html").read_text()
        assert json.loads((outdir / folder / "owner.json").read_text())["released"]
        summary = json.loads((outdir / folder / "average/summary.json").read_text())
        assert (len(summary["used"]), summary["evaluation"]["n"]) == (runs, evaluated)


def test_of_two_calls_with_one_directory_the_second_is_refused(
    images: Images, restricted: str, manifest: Path, outdir: Path, tmp_path: Path
) -> None:
    """Plain `argo submit` looks at nothing before: `prepare` tells the calls apart by their nodes."""
    both = {in_pods(outdir / name): SHORT for name in ("first", "second")}
    called = calling(manifest_yaml.load(manifest.read_text()), both)
    del called["spec"]["onExit"]
    study = tmp_path / "study.yaml"
    first, second = both
    study.write_text(manifest_yaml.dump(called).replace(second, first))
    name = "t-called-alike"
    k.delete(name)
    k.argo_without_server("submit", str(study), "--name", name, *images.parameters)
    status = k.ended(name)
    assert status["phase"] == "Failed"
    assert sorted(k.phases(status, pipeline.PREPARE)) == ["Failed", "Succeeded"]
    assert k.phases(status, pipeline.TRAIN) == ["Succeeded"]
    attempts = [one for one in status["nodes"].values() if one["displayName"] == "prepare(0)"]
    codes = sorted(one["outputs"]["exitCode"] for one in attempts)
    assert codes == ["0", "4"]
