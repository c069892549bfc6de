"""Learners and their actors on the cluster: two runs of three actors each, of every algorithm that has
them, undisturbed; with an actor's pod and then the learner's deleted; with two learners, one of which
is deleted; with an actor that finds no room; with GPUs for the actors."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest
import yaml

from steps.directory.status import read_status
from tests.cluster import kubernetes as k
from tests.cluster.conftest import Images, epochs, small_manifest, submit

ACTORS = 3
RESYNC_S = 1200
"""After so long the controller looks at a workflow in which nothing has happened."""
GIVEN = {"game": "cartpole", "actors": str(ACTORS), "evaluation_episodes": "3"}
EXPERIMENTS = {
    "impala": ("impala", {"epochs": "60"}),
    "impala-central": ("impala", {"epochs": "20", "inference": "learner"}),
    "impala-breakout": ("impala", {"game": "breakout", "epochs": "2", "envs_per_actor": "4"}),
    "r2d2": ("r2d2", {"game": "cartpole-no-velocity", "epochs": "3"}),
    "async-sac": ("async-sac", {"game": "pendulum", "epochs": "3"}),
}


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
    name, goal, run = "t-deleted", 200, outdir / "runs/0"
    manifest = small_manifest("impala", tmp_path)
    submit(manifest, name, outdir, images, runs="1", epochs=str(goal), **GIVEN)
    for template, after in (("train-actor", 20), ("train", 60)):
        k.wait_for("its epochs", lambda after=after: len(epochs(run)) > after, timeout_s=600)  # type: ignore[misc]
        k.delete_one(name, template)
        time.sleep(2)
    status = k.ended(name, timeout_s=1500)
    assert status["phase"] == "Succeeded", status.get("message")
    assert epochs(run) == [str(epoch) for epoch in range(1, goal + 1)]
    left = read_status(run / "status/train.json")
    assert left is not None and left.attempt > 1, "the learner was not started again"


def test_actors_hold_nothing_while_their_learner_waits(
    images: Images, restricted: str, outdir: Path, tmp_path: Path
) -> None:
    name, label = "t-waiting-learner", "rl-training-dag/test"
    document = yaml.safe_load(small_manifest("impala", tmp_path).read_text())
    (learner,) = (one for one in document["spec"]["templates"] if one["name"] == "train")
    learner["nodeSelector"] = {label: "yes"}
    elsewhere = tmp_path / "elsewhere.yaml"
    elsewhere.write_text(json.dumps(document))
    submit(elsewhere, name, outdir, images, runs="1", epochs="20", **GIVEN)
    try:
        k.wait_for(
            "the pod that waits",
            lambda: k.pods(k.status(name), "wait-for-training") == ["Running"],
            timeout_s=120,
        )
        time.sleep(15)
        assert k.pods(k.status(name), "train") == ["Pending"]
        assert k.pods(k.status(name), "train-actor") == []
        k.kubectl("label", "nodes", "--all", f"{label}=yes")
        status = k.ended(name, timeout_s=600)
    finally:
        k.kubectl("label", "nodes", "--all", f"{label}-")
    assert k.pods(status, "train-actor") == ["Succeeded"] * ACTORS
    assert status["phase"] == "Succeeded", status.get("message")


def test_two_learners_of_which_one_is_deleted(
    images: Images, restricted: str, outdir: Path, tmp_path: Path
) -> None:
    """Both begin again with what the first has saved, and the run finishes."""
    name, goal = "t-learners", 60
    manifest = small_manifest("impala", tmp_path)
    given = GIVEN | {"learners": "2", "actors": "2", "runs": "1", "epochs": str(goal)}
    submit(manifest, name, outdir, images, **given)
    run = outdir / "runs/0"
    k.wait_for("20 epochs", lambda: len(epochs(run)) > 20, timeout_s=600)
    k.delete_one(name, "train-learner")
    status = k.ended(name, timeout_s=1500)
    assert status["phase"] == "Succeeded", status.get("message")
    assert epochs(run) == [str(epoch) for epoch in range(1, goal + 1)]
    first, second = (
        read_status(run / f"status/{one}.json") for one in ("train", "train-learner-1")
    )
    assert first is not None and second is not None
    assert first.state == second.state == "succeeded"
    assert first.attempt > 1 and second.attempt > 1


def test_an_actor_that_can_never_be_scheduled_is_named_and_holds_back_no_product_of_its_run(
    images: Images, restricted: str, outdir: Path, tmp_path: Path
) -> None:
    """It holds back the end of its run, and so the average, until the deadline; the same again with
    an actor less is done at once. The controller sees that the deadline has passed when it next looks
    at the workflow: where nothing happens in it, 20 minutes after it last did."""
    name, products = (
        "t-stuck-actor",
        ("plots/training.png", "evaluation.csv", "videos/episode-0.mp4"),
    )
    given = GIVEN | {
        "runs": "1",
        "epochs": "600",
    }  # longer than a learner takes to name who is missing
    manifest, run = small_manifest("impala", tmp_path), outdir / "runs/0"
    stuck = tmp_path / "stuck.yaml"
    stuck.write_text(json.dumps(_with_stuck_actor(manifest, member=2, deadline_s=300)))
    submit(stuck, name, outdir, images, **given)
    with (tmp_path / "followed").open("w") as said, following(name, said):
        k.wait_for("the learner", lambda: (run / "learner.json").exists(), timeout_s=300)
        named = re.compile(r"run 0  train-actors  actor 2 is waiting: Unschedulable: .+ cpu")
        k.wait_for(
            "its name in the live view",
            lambda: named.search((tmp_path / "followed").read_text()),
            timeout_s=60,
        )
        log = run / "logs/train.log"
        k.wait_for(
            "its name in the learner's log",
            lambda: "2 of 3 actors are connected; missing: 2" in log.read_text(),
            timeout_s=60,
        )
        k.wait_for(
            "what its run leaves",
            lambda: all((run / product).exists() for product in products),
            timeout_s=500,
        )
        assert k.phase(name) == "Running" and not (outdir / "average").exists()
        status = k.ended(name, timeout_s=RESYNC_S + 120)
    assert status["phase"] == "Failed"
    assert "2 of 3 actors joined" in (outdir / "report.html").read_text()
    submit(manifest, f"{name}-again", outdir, images, **given | {"actors": "2"})
    again = k.ended(f"{name}-again")
    assert again["phase"] == "Succeeded", again.get("message")
    assert (outdir / "average/plots/training.png").is_file()


def test_actors_with_a_command_and_a_gpu_each(
    images: Images, restricted: str, outdir: Path, tmp_path: Path
) -> None:
    """Of the node's two pretended ones, which their learner leaves to them."""
    name = "t-actor-gpus"
    given = {"actors": "2", "actor_gpus": "2", "gpus": "0", "runs": "1", "epochs": "20"}
    command = {"actor_command": "nice -n 1 python -m steps.train"}
    with k.watched_pods(name) as pods:
        manifest = small_manifest("impala", tmp_path)
        submit(manifest, name, outdir, images, **GIVEN | given | command)
        status = k.ended(name, timeout_s=900)
    assert status["phase"] == "Succeeded", status.get("message")
    asked = {"train": "0", "train-actor": "1"}
    seen = [pod for pod in pods.values() if pod.template in asked]
    assert len(seen) == 3
    for pod in seen:
        assert pod.requests["nvidia.com/gpu"] == asked[pod.template]
    for actor in range(2):
        left = read_status(outdir / f"runs/0/status/train-actor-{actor}.json")
        assert left is not None and left.state == "succeeded"


def _with_stuck_actor(manifest: Path, *, member: int, deadline_s: int) -> dict[str, Any]:
    """One actor asks for a thousand processors."""
    document: dict[str, Any] = yaml.safe_load(manifest.read_text())
    spec = document["spec"] | {"activeDeadlineSeconds": deadline_s}
    (actor,) = (one for one in spec["templates"] if one["name"] == "train-actor")
    patch = json.loads(actor["podSpecPatch"])
    asked = actor["container"]["resources"]["requests"]["cpu"]
    cpu = f"{{{{=inputs.parameters.member == '{member}' ? '1000' : '{asked}'}}}}"
    patch["containers"][0]["resources"]["requests"] = {"cpu": cpu}
    actor["podSpecPatch"] = json.dumps(patch)
    return document | {"spec": spec}


@contextlib.contextmanager
def following(name: str, said: TextIO) -> Iterator[None]:
    """`workflows.submit --follow`, as the service account `submitter`."""
    token = "Bearer " + k.kubectl("create", "token", "submitter", "--duration", "1h").strip()
    follower = subprocess.Popen(
        [sys.executable, "-m", "workflows.submit", "--follow", name], cwd=k.ROOT,
        env=os.environ | {"ARGO_TOKEN": token}, stdout=said, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        yield
    finally:
        follower.terminate()
        follower.wait(30)
