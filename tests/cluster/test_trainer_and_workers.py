"""Self-play on the cluster: two runs of Connect Four with a trainer and three workers each, undisturbed;
and with a worker's pod and then the trainer's deleted."""

from __future__ import annotations

import time
from pathlib import Path

from steps.directory.status import Status, read_status
from tests.cluster import kubernetes as k
from tests.cluster.conftest import Images, epochs, small_manifest, submit

WORKERS = 3
GIVEN = {
    "game": "connect-four", "workers": str(WORKERS), "simulations": "16", "cheap_simulations": "4",
    "evaluation_simulations": "8", "evaluation_episodes": "4", "generation_positions": "1000",
    "learning_starts": "500", "window": "5000", "batch_size": "64", "blocks": "1",
    "channels": "16",
}  # fmt: skip


def test_two_runs_of_three_workers(
    images: Images, restricted: str, outdir: Path, tmp_path: Path
) -> None:
    """To the averaged plots and the page; trainer and workers are at work at the same time."""
    name, manifest = "t-self-play", small_manifest("alphazero", tmp_path)
    submit(manifest, name, outdir, images, runs="2", epochs="8", **GIVEN)
    status = k.ended(name, timeout_s=1500)
    assert status["phase"] == "Succeeded", status.get("message")
    report = (outdir / "report.html").read_text()
    assert "workers" in report
    for run in range(2):
        folder = outdir / "runs" / str(run)
        assert (folder / "videos/episode-0.mp4").stat().st_size > 1000
        trainer = left(folder, "train")
        workers = [left(folder, f"train-worker-{worker}") for worker in range(WORKERS)]
        assert trainer.state == "succeeded"
        assert all(one.state == "succeeded" for one in workers)
        # On a small node a worker may find room only when its run is trained.
        assert sum(overlap(trainer, one) for one in workers) > 0
        for worker in range(WORKERS):
            assert (folder / f"logs/train-worker-{worker}.log").stat().st_size > 0
    for plot in ("training", "evaluation"):
        assert (outdir / f"average/plots/{plot}.png").is_file()


def test_a_deleted_worker_and_a_deleted_trainer(
    images: Images, restricted: str, outdir: Path, tmp_path: Path
) -> None:
    """The run finishes; no generation is lost or told twice."""
    name, goal, run = "t-self-play-deleted", 20, outdir / "runs/0"
    manifest = small_manifest("alphazero", tmp_path)
    submit(manifest, name, outdir, images, runs="1", epochs=str(goal), **GIVEN)
    for template, after in (("train-worker", 3), ("train", 6)):
        k.wait_for("its epochs", lambda after=after: len(epochs(run)) > after, timeout_s=600)  # type: ignore[misc]
        k.delete_one(name, template)
        time.sleep(2)
    status = k.ended(name, timeout_s=1500)
    assert status["phase"] == "Succeeded", status.get("message")
    assert epochs(run) == [str(epoch) for epoch in range(1, goal + 1)]
    assert left(run, "train").attempt > 1, "the trainer was not started again"


def left(run: Path, task: str) -> Status:
    status = read_status(run / f"status/{task}.json")
    assert status is not None, task
    return status


def overlap(one: Status, other: Status) -> bool:
    """Whether there was a moment at which both were at work."""
    return max(one.started, other.started) < min(one.ended or "", other.ended or "")
