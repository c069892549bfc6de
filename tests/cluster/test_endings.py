"""Every way in which an experiment can end other than well, with a report that
tells the truth."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster import kubernetes as k
from tests.cluster.conftest import Images, submit

SHORT = {"game": "cartpole", "runs": "1", "epochs": "40", "evaluation_episodes": "3"}
LONG = SHORT | {"epochs": "20000"}


def finish(
    manifest: Path, name: str, folder: Path, images: Images, **parameters: str
) -> dict[str, Any]:
    submit(manifest, name, folder, images, **parameters)
    return k.ended(name)


def task(folder: Path, run: str, name: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads((folder / run / "status" / f"{name}.json").read_text())
    return answer


def training_has_begun(folder: Path) -> bool:
    file = folder / "runs/0/train.csv"
    return file.exists() and len(file.read_text().splitlines()) > 20


def test_stop_ends_as_preempted_and_the_same_again_goes_on(
    images: Images, restricted: str, manifest: Path, outdir: Path
) -> None:
    submit(manifest, "t-stop", outdir, images, **SHORT | {"epochs": "600"})
    k.wait_for("training", lambda: training_has_begun(outdir), timeout_s=300)
    k.argo_without_server("stop", "t-stop")
    status = k.ended("t-stop")
    assert status["phase"] == "Failed"
    assert k.node(status, "t-stop.onExit")["phase"] == "Failed"
    assert task(outdir, "runs/0", "train")["state"] == "preempted"
    report = (outdir / "report.html").read_text()
    assert "unfinished" in report or "preempted" in report
    rows = (outdir / "runs/0/train.csv").read_text().splitlines()
    again = finish(manifest, "t-stop-again", outdir, images, **SHORT | {"epochs": "600"})
    assert again["phase"] == "Succeeded", again.get("message")
    assert (outdir / "runs/0/train.csv").read_text().splitlines()[: len(rows) - 20] == rows[
        : len(rows) - 20
    ]


def test_terminate_leaves_whole_checkpoints_and_the_same_again_goes_on(
    images: Images, restricted: str, manifest: Path, outdir: Path
) -> None:
    """No exit handler runs and nobody reports: the next workflow takes the directory over from the
    dead one."""
    submit(manifest, "t-terminate", outdir, images, **SHORT | {"epochs": "600"})
    k.wait_for("training", lambda: training_has_begun(outdir), timeout_s=300)
    k.argo_without_server("terminate", "t-terminate")
    status = k.ended("t-terminate")
    assert status["phase"] == "Failed"
    assert not [
        node for node in status["nodes"].values() if node["displayName"].startswith("report")
    ]
    rows = (outdir / "runs/0/train.csv").read_text().splitlines()
    again = finish(manifest, "t-terminate-again", outdir, images, **SHORT | {"epochs": "600"})
    assert again["phase"] == "Succeeded", again.get("message")
    assert "from step" in (outdir / "runs/0/logs/train.log").read_text()
    assert (outdir / "runs/0/train.csv").read_text().splitlines()[: len(rows) - 20] == rows[
        : len(rows) - 20
    ]


def test_the_deadline_of_the_workflow(
    images: Images, restricted: str, manifest: Path, outdir: Path, tmp_path: Path
) -> None:
    limited = tmp_path / "limited.yaml"
    limited.write_text(
        manifest.read_text().replace("spec:\n", "spec:\n  activeDeadlineSeconds: 60\n", 1)
    )
    status = finish(limited, "t-deadline", outdir, images, **LONG)
    assert status["phase"] == "Failed"
    assert training_has_begun(outdir), "or the deadline came too early to show anything"
    assert task(outdir, "runs/0", "train")["state"] == "preempted"
    assert k.node(status, "report(0)")["outputs"]["exitCode"] == "5", (
        "the report was made, and says incomplete"
    )
    assert "preempted" in (outdir / "report.html").read_text()
    assert json.loads((outdir / "owner.json").read_text())["released"]


def test_a_run_that_fails_for_good(
    images: Images, restricted: str, manifest: Path, outdir: Path
) -> None:
    """A damaged checkpoint in run 1's directory: its training can never start, the others go on."""
    submit(manifest, "t-failing", outdir, images, **SHORT | {"runs": "3"})
    k.wait_for(
        "the directory", lambda: (outdir / "experiment.yaml").exists(), timeout_s=120, poll_s=0.2
    )
    _damage(outdir / "runs" / "1" / "checkpoints")
    status = k.ended("t-failing")
    assert status["phase"] == "Failed"
    assert k.phases(status, "runs(1:1)") == ["Failed"]
    assert k.phases(status, "runs(0:0)") == k.phases(status, "runs(2:2)") == ["Succeeded"]
    assert k.phases(status, "average") == ["Succeeded"]
    assert json.loads((outdir / "average/summary.json").read_text())["evaluation"]["n"] == 2
    assert "2 of 3" in (outdir / "report.html").read_text()


def _damage(checkpoints: Path) -> None:
    """A checkpoint that no manifest vouches for: `train` refuses to start from nothing (exit 4),
    and that is never retried."""
    newest = checkpoints / f"{10**9:012d}"
    newest.mkdir(parents=True)
    (newest / "manifest.json").write_text("{}")
    for path in (
        checkpoints.parents[1],
        checkpoints.parent,
        checkpoints,
        newest,
        newest / "manifest.json",
    ):
        os.chown(path, 1000, 1000)


def test_a_threshold_that_is_not_reached(
    images: Images, restricted: str, manifest: Path, outdir: Path
) -> None:
    status = finish(manifest, "t-threshold", outdir, images, **SHORT | {"evaluate_above": "100000"})
    assert status["phase"] == "Succeeded", status.get("message")
    assert k.phases(status, "evaluate") == ["Skipped"]
    assert k.phases(status, "play") == k.phases(status, "plot-evaluation") == ["Omitted"]
    assert "skipped" in (outdir / "report.html").read_text()


def test_the_same_again_changes_nothing(
    images: Images, restricted: str, manifest: Path, outdir: Path
) -> None:
    assert finish(manifest, "t-once", outdir, images, **SHORT)["phase"] == "Succeeded"
    kept = [
        f for pattern in ("runs/**/*", "average/**/*") for f in outdir.glob(pattern) if f.is_file()
    ]
    before = {f: (f.read_bytes(), f.stat().st_mtime_ns) for f in kept}
    again = finish(manifest, "t-twice", outdir, images, **SHORT)
    assert again["phase"] == "Succeeded", again.get("message")
    assert [str(f) for f in kept if (f.read_bytes(), f.stat().st_mtime_ns) != before[f]] == []


def test_other_parameters_and_a_second_owner_are_refused(
    images: Images, restricted: str, manifest: Path, outdir: Path
) -> None:
    submit(manifest, "t-first", outdir, images, **LONG)
    k.wait_for("training", lambda: training_has_begun(outdir), timeout_s=300)
    second = finish(manifest, "t-second", outdir, images, **LONG)
    assert second["phase"] == "Failed"
    assert k.node(second, "prepare(0)")["outputs"]["exitCode"] == "4"
    assert k.phases(k.status("t-first"), "train(0)") == ["Running"]
    k.argo_without_server("stop", "t-first")
    k.ended("t-first")
    other = finish(manifest, "t-other", outdir, images, **LONG | {"seed": "7"})
    assert k.node(other, "prepare(0)")["outputs"]["exitCode"] == "4"


@pytest.mark.parametrize(
    ("name", "parameter", "words"),
    [
        ("typo", {"epoch": "3"}, "epochs"),
        ("game", {"game": "cartpol"}, "cartpole"),
        ("braces", {"game": "{{workflow.name}}"}, "game"),
        ("runs", {"runs": "0"}, "runs"),
        ("replaced", {"parameters": '[{"name": "seed", "value": "1"}]'}, "replaces all others"),
    ],
)
def test_bad_parameters_end_in_prepare(
    images: Images,
    restricted: str,
    manifest: Path,
    outdir: Path,
    name: str,
    parameter: dict[str, str],
    words: str,
) -> None:
    started_s = time.monotonic()
    submit(manifest, f"t-bad-{name}", outdir, images, **SHORT | parameter)
    status = k.ended(f"t-bad-{name}")
    assert status["phase"] == "Failed"
    prepare = k.node(status, "prepare(0)")
    assert prepare["outputs"]["exitCode"] == "2"
    assert not k.phases(status, "prepare(1)")
    logs = k.argo_without_server("logs", f"t-bad-{name}", "--no-color").stdout
    assert words in logs
    assert not outdir.exists()
    assert time.monotonic() - started_s < 240


def test_an_image_that_cannot_be_pulled_ends_the_workflow_and_its_stop(
    images: Images, restricted: str, manifest: Path, outdir: Path, tmp_path: Path
) -> None:
    """Nothing of it is repeated: neither the first pod, nor the exit handler's."""
    document = yaml.safe_load(manifest.read_text())
    for template in document["spec"]["templates"]:
        if "activeDeadlineSeconds" in template:
            template["activeDeadlineSeconds"] = 10
    short = tmp_path / "short.yaml"
    short.write_text(json.dumps(document))
    k.delete("t-no-image")
    nobodys = f"{images.cpu}-that-nobody-pushed"
    words = ["-p", f"cpu_image={nobodys}", "-p", f"gpu_image={images.gpu}"]
    k.argo_without_server("submit", str(short), "--name", "t-no-image", *words)
    status = k.ended("t-no-image", timeout_s=120)
    assert status["phase"] == "Failed"
    assert k.pods(status, "prepare") == k.pods(status, "report") == ["Failed"]
