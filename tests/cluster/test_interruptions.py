"""Pods that are deleted and a controller that is restarted cost time, and not one byte of the
result."""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from pathlib import Path

import pytest

from steps.directory.status import read_status
from tests.cluster import kubernetes as k
from tests.cluster.comparison import run_here
from tests.cluster.conftest import Images, parameters, submit

ONE_RUN = {"game": "cartpole", "runs": "1", "epochs": "400", "evaluation_episodes": "1000"}
FOUR_RUNS = {"game": "cartpole", "runs": "4", "epochs": "1500", "evaluation_episodes": "50"}
DELETIONS = 20
EVICTIONS = 10


@pytest.fixture(scope="module")
def undisturbed(images: Images, namespace: str, manifest: Path) -> Path:
    """The directory of the same experiment without any disturbance."""
    folder = Path(os.environ["RL_CLUSTER_STORAGE"]) / "tests" / "undisturbed"
    subprocess.run(["rm", "-rf", str(folder)], check=True)
    submit(manifest, "t-undisturbed", folder, images, **ONE_RUN)
    assert k.ended("t-undisturbed")["phase"] == "Succeeded"
    return folder


def test_deleted_pods_and_a_restarted_controller(
    images: Images, restricted: str, manifest: Path, outdir: Path, undisturbed: Path
) -> None:
    name = "t-disturbed"
    submit(manifest, name, outdir, images, **ONE_RUN)
    train = outdir / "runs/0/train.csv"
    k.wait_for(
        "a quarter of the training",
        lambda: train.exists() and len(train.read_text().splitlines()) > 100,
        timeout_s=300,
    )
    _delete_pod(name, "train")
    k.wait_for(
        "the second attempt", lambda: _attempts(outdir, "train") == 2, timeout_s=120, poll_s=0.1
    )
    k.kill("workflow-controller")
    k.start_again()
    k.wait_for(
        "the evaluation", lambda: _state(outdir, "evaluate") == "running", timeout_s=600, poll_s=0.1
    )
    _delete_pod(name, "evaluate")
    status = k.ended(name)
    assert status["phase"] == "Succeeded", status.get("message")
    # A pod that is deleted early may be made again by the controller under its name: then no node
    # has failed.
    for task in ("train", "evaluate"):
        assert (_state(outdir, task), _attempts(outdir, task)) == ("succeeded", 2), (
            f"{task} was not interrupted once"
        )
    for file in ("runs/0/train.csv", "runs/0/evaluation.csv", "average/train.csv"):
        assert (outdir / file).read_bytes() == (undisturbed / file).read_bytes(), file


def test_twenty_pods_deleted_at_random(
    images: Images, restricted: str, manifest: Path, outdir: Path, tmp_path: Path
) -> None:
    """Whatever pod it is, and whenever: the experiment completes, with the bytes of an undisturbed
    one on this machine."""
    name = "t-twenty"
    submit(manifest, name, outdir, images, **FOUR_RUNS)
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    deleted = delete_at_random(name, random.Random(seed))
    status = k.ended(name, timeout_s=1500)
    assert status["phase"] == "Succeeded", f"{status.get('message')}; deleted: {deleted}"
    given = parameters(outdir, images, **FOUR_RUNS)
    assert run_here(name, manifest, given, tmp_path)["phase"] == "Succeeded"
    local = tmp_path / "storage" / outdir.relative_to(outdir.parents[1])
    files = [f"runs/{run}/{table}.csv" for run in range(4) for table in ("train", "evaluation")]
    for file in (*files, "average/train.csv", "average/evaluation.csv"):
        assert (outdir / file).read_bytes() == (local / file).read_bytes(), (
            f"{file}; deleted: {deleted}"
        )
    assert (outdir / "report.html").stat().st_size > 10_000


def test_ten_evictions_of_a_training_and_of_an_evaluation(
    images: Images, restricted: str, manifest: Path, outdir: Path, undisturbed: Path
) -> None:
    """Kubernetes' own evictions, each as soon as the pod works: six exhausted the retries once."""
    name = "t-evicted"
    submit(manifest, name, outdir, images, **ONE_RUN)
    for task in ("train", "evaluate"):
        for attempt in range(1, EVICTIONS + 1):
            k.wait_for(
                f"attempt {attempt} of {task}",
                lambda task=task, attempt=attempt: (
                    _state(outdir, task) == "running" and _attempts(outdir, task) >= attempt
                ),
                timeout_s=300,
                poll_s=0.1,
            )
            _evict(name, task)
    status = k.ended(name, timeout_s=1200)
    assert status["phase"] == "Succeeded", status.get("message")
    for task in ("train", "evaluate"):
        assert _attempts(outdir, task) > EVICTIONS, f"{task} was evicted less often"
    for file in ("runs/0/train.csv", "runs/0/evaluation.csv", "average/train.csv"):
        assert (outdir / file).read_bytes() == (undisturbed / file).read_bytes(), file


def _evict(name: str, template: str) -> None:
    """Evict the pod of a template, as a drain of its node does. Its program may run a while before
    Kubernetes says so.
    """
    listed = k.kubectl("get", "pods", "-l", f"workflows.argoproj.io/workflow={name}", "-o", "json")
    (pod,) = (
        one["metadata"]["name"]
        for one in json.loads(listed)["items"]
        if f"{name}-{template}-" in one["metadata"]["name"]
        and one["status"]["phase"] not in ("Succeeded", "Failed")
        and "deletionTimestamp" not in one["metadata"]
    )
    namespace = os.environ["ARGO_NAMESPACE"]
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": namespace},
    }
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
    k.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))


def delete_at_random(name: str, generator: random.Random, *, count: int = DELETIONS) -> list[str]:
    """The pods that were deleted, one every few seconds, chosen among those that run."""
    deleted: list[str] = []
    while len(deleted) < count:
        running = sorted(set(_running_pods(name)) - set(deleted))
        if running:
            deleted.append(generator.choice(running))
            k.kubectl("delete", deleted[-1], "--wait=false", "--ignore-not-found")
        assert k.phase(name) not in k.FINAL, (
            f"the experiment ended before {count} pods were deleted: {deleted}"
        )
        time.sleep(generator.uniform(1, 6))
    return deleted


def _state(outdir: Path, task: str) -> str | None:
    left = read_status(outdir / "runs/0/status" / f"{task}.json")
    return left.state if left else None


def _attempts(outdir: Path, task: str) -> int:
    left = read_status(outdir / "runs/0/status" / f"{task}.json")
    return left.attempt if left else 0


def _running_pods(name: str) -> list[str]:
    return _pods(name, "status.phase=Running")


def _pods(name: str, selector: str) -> list[str]:
    selected = ["-l", f"workflows.argoproj.io/workflow={name}", f"--field-selector={selector}"]
    return k.kubectl("get", "pods", *selected, "-o", "name").split()


def _delete_pod(name: str, template: str) -> None:
    """The one pod of a template; its program may run a while before Kubernetes says so."""
    (pod,) = [
        p
        for p in _pods(name, "status.phase!=Succeeded,status.phase!=Failed")
        if f"{name}-{template}-" in p
    ]
    k.kubectl("delete", pod, "--wait=false")
