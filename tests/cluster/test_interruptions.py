"""Issue 4, point 4: pods that are deleted and a controller that is restarted cost time, and not one byte of the result."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.cluster import kubernetes as k
from tests.cluster.conftest import Images, in_pods

PARAMETERS = ["-p", "game=cartpole", "-p", "runs=1", "-p", "epochs=400", "-p", "evaluation_episodes=200"]


@pytest.fixture(scope="module")
def undisturbed(images: Images, namespace: str, manifest: Path) -> Path:
    """The directory of the same experiment without any disturbance."""
    folder = Path(os.environ["RL_CLUSTER_STORAGE"]) / "tests" / "undisturbed"
    subprocess.run(["rm", "-rf", str(folder)], check=True)
    k.delete("t-undisturbed")
    _submit(manifest, "t-undisturbed", folder, images)
    assert k.ended("t-undisturbed")["phase"] == "Succeeded"
    return folder


def test_deleted_pods_and_a_restarted_controller(images: Images, restricted: str, manifest: Path, outdir: Path, undisturbed: Path) -> None:
    name = "t-disturbed"
    k.delete(name)
    _submit(manifest, name, outdir, images)
    train = outdir / "runs/0/train.csv"
    k.wait_for("a quarter of the training", lambda: train.exists() and len(train.read_text().splitlines()) > 100, timeout_s=300)
    _delete_pod(name, "train")
    k.wait_for("the second attempt", lambda: _attempt_runs(name, "train(1)"), timeout_s=120)
    k.kill("workflow-controller")
    k.start_again()
    k.wait_for("the evaluation", lambda: _attempt_runs(name, "evaluate(0)"), timeout_s=600, poll_s=0.3)
    _delete_pod(name, "evaluate")
    status = k.ended(name)
    assert status["phase"] == "Succeeded", status.get("message")
    assert k.phases(status, "train(0)")[0] in ("Failed", "Error")
    assert k.phases(status, "evaluate(0)")[0] in ("Failed", "Error")
    assert k.phases(status, "train(1)") == k.phases(status, "evaluate(1)") == ["Succeeded"]
    for file in ("runs/0/train.csv", "runs/0/evaluation.csv", "average/train.csv"):
        assert (outdir / file).read_bytes() == (undisturbed / file).read_bytes(), file


def _submit(manifest: Path, name: str, folder: Path, images: Images) -> None:
    k.argo_without_server(
        "submit", str(manifest), "--name", name, *PARAMETERS, "-p", f"outdir={in_pods(folder)}", *images.parameters
    )  # fmt: skip


def _attempt_runs(name: str, display_name: str) -> bool:
    return "Running" in k.phases(k.status(name), display_name)


def _delete_pod(name: str, template: str) -> None:
    pods = k.kubectl(
        "get", "pods", "-l", f"workflows.argoproj.io/workflow={name}", "--field-selector=status.phase=Running", "-o", "name"
    ).split()  # fmt: skip
    (pod,) = [p for p in pods if f"{name}-{template}-" in p]
    k.kubectl("delete", pod, "--wait=false")
