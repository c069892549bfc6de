"""Learners and their actors on the cluster: two runs of three actors each, of every algorithm that has
them, undisturbed; and with an actor's pod and then the learner's deleted."""

from __future__ import annotations

import csv
import re
import time
from pathlib import Path

import pytest

from steps.directory.status import read_status
from tests.cluster import kubernetes as k
from tests.cluster.conftest import Images, submit

ACTORS = 3
GIVEN = {"game": "cartpole", "actors": str(ACTORS), "evaluation_episodes": "3"}
EXPERIMENTS = {
    "impala": ("impala", {"epochs": "60"}),
    "impala-central": ("impala", {"epochs": "20", "inference": "learner"}),
    "impala-breakout": ("impala", {"game": "breakout", "epochs": "2", "envs_per_actor": "4"}),
    "r2d2": ("r2d2", {"game": "cartpole-no-velocity", "epochs": "3"}),
    "async-sac": ("async-sac", {"game": "pendulum", "epochs": "3"}),
}


def small_manifest(algorithm: str, folder: Path) -> Path:
    """With requests that fit a small node."""
    small = str(Path(__file__).parent / "small.yaml")
    file = folder / f"{algorithm}.yaml"
    file.write_text(
        k.python("-m", "workflows.submit", algorithm, "--manifest", "--cluster", small).stdout
    )
    return file


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_two_runs_of_three_actors(
    images: Images, restricted: str, outdir: Path, tmp_path: Path, experiment: str
) -> None:
    name, (algorithm, given) = f"t-actors-{experiment}", EXPERIMENTS[experiment]
    manifest = small_manifest(algorithm, tmp_path)
    submit(manifest, name, outdir, images, runs="2", **(GIVEN | given))
    status = k.ended(name, timeout_s=1500)
    assert status["phase"] == "Succeeded", status.get("message")
    report = (outdir / "report.html").read_text()
    for run in range(2):
        folder = outdir / "runs" / str(run)
        assert (folder / "videos/episode-0.mp4").stat().st_size > 1000
        left = [read_status(folder / f"status/train-actor-{actor}.json") for actor in range(ACTORS)]
        assert all(one is not None and one.state == "succeeded" for one in left)
        # On a small node an actor may find room only when its run is trained.
        joined = sum(bool(one and one.details["joined"]) for one in left)
        assert joined > 0 and f"{joined} of {ACTORS} actors joined" in report
        for actor in range(ACTORS):
            assert (folder / f"logs/train-actor-{actor}.log").stat().st_size > 0
    assert (outdir / "average/plots/training.png").is_file()


def test_a_deleted_actor_and_a_deleted_learner(
    images: Images, restricted: str, outdir: Path, tmp_path: Path
) -> None:
    """The run finishes; no epoch is lost or told twice."""
    name, epochs = "t-deleted", 200
    manifest = small_manifest("impala", tmp_path)
    submit(manifest, name, outdir, images, runs="1", epochs=str(epochs), **GIVEN)
    train = outdir / "runs/0/train.csv"
    for template, rows in (("train-actor", 20), ("train", 60)):
        k.wait_for(f"{rows} epochs", lambda rows=rows: _rows(train) > rows, timeout_s=600)  # type: ignore[misc]
        _delete_one(name, template)
        time.sleep(2)
    status = k.ended(name, timeout_s=1500)
    assert status["phase"] == "Succeeded", status.get("message")
    with train.open() as file:
        told = [int(row["epoch"]) for row in csv.DictReader(file)]
    assert told == list(range(1, epochs + 1))
    left = read_status(outdir / "runs/0/status/train.json")
    assert left is not None and left.attempt > 1, "the learner was not started again"


def _rows(file: Path) -> int:
    return len(file.read_text().splitlines()) - 1 if file.exists() else 0


def _delete_one(name: str, template: str) -> None:
    """A running pod of a template."""
    of_workflow = ["-l", f"workflows.argoproj.io/workflow={name}"]
    running = ["--field-selector=status.phase=Running", "-o", "name"]
    pods = k.kubectl("get", "pods", *of_workflow, *running).split()
    pod = next(pod for pod in pods if re.fullmatch(rf"pod/{name}-{template}-\d+", pod))
    k.kubectl("delete", pod, "--wait=false")
