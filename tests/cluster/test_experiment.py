"""The experiment on the cluster, restricted, placed as asked, and equal to the local engine's; with
every algorithm."""

from __future__ import annotations

from pathlib import Path

import pytest

from config import pipeline
from config.experiment import Experiment
from tests.cluster import kubernetes as k
from tests.cluster.comparison import differences, run_here, summary
from tests.cluster.conftest import Images, parameters, submit

CARTPOLE = {"game": "cartpole", "runs": "3", "epochs": "60"}
EVALUATED = {**CARTPOLE, "evaluations": "6"}
COMPARED = ["runs/*/train.csv", "runs/*/evaluation*.csv", "runs/*/best*.csv", "average/*.csv"]


def test_three_runs_share_two_gpus(
    images: Images, restricted: str, manifest: Path, outdir: Path
) -> None:
    name = "t-placement"
    k.delete(name)
    with k.watched_pods(name) as pods:
        submit(manifest, name, outdir, images, **CARTPOLE)
        status = k.ended(name)
    assert status["phase"] == "Succeeded", status.get("message")
    asked = [step.name for step in pipeline.asked("run", Experiment())]
    assert all(k.phases(status, step) == ["Succeeded"] * 3 for step in asked)
    assert k.phases(status, "evaluate-snapshots") == ["Skipped"] * 3, "there are no parts"
    assert k.phases(status, "evaluation-curve") == ["Omitted"] * 3
    trainings = [p for p in pods.values() if p.template == "train"]
    others = [p for p in pods.values() if p.template != "train"]
    assert len(trainings) == 3
    assert all(p.requests["nvidia.com/gpu"] == "1" for p in trainings)
    assert all("nvidia.com/gpu" not in p.requests for p in others)
    first, second, third = sorted(trainings, key=lambda p: p.started_s or 0)
    assert first.overlaps(second), "two GPUs, so two trainings at once"
    assert not (first.overlaps(second) and second.overlaps(third) and first.overlaps(third)), (
        "never three"
    )
    assert any(p.overlaps(third) for p in others if p.template == "evaluate"), (
        "evaluations run beside the third training"
    )
    assert (outdir / "report.html").stat().st_size > 10_000


def test_the_same_files_as_on_this_machine(
    images: Images, restricted: str, manifest: Path, outdir: Path, tmp_path: Path
) -> None:
    name = "t-equal"
    submit(manifest, name, outdir, images, **EVALUATED)
    there = summary(k.ended(name))
    here = run_here(name, manifest, parameters(outdir, images, **EVALUATED), tmp_path)
    assert differences(name, there, here) == []
    assert there["phase"] == here["phase"] == "Succeeded"
    local = tmp_path / "storage" / outdir.relative_to(outdir.parents[1])
    files = sorted(str(f.relative_to(outdir)) for pattern in COMPARED for f in outdir.glob(pattern))
    assert len(files) == 3 + 2 * 3 + 3 + 3
    assert [f for f in files if (outdir / f).read_bytes() != (local / f).read_bytes()] == []


@pytest.mark.parametrize("game", ["breakout"])
def test_the_manifest_as_it_stands(
    images: Images, restricted: str, outdir: Path, game: str
) -> None:
    name = f"t-{game}"
    short = {"game": game, "epochs": "4", "evaluation_episodes": "2"}
    submit(Path("workflows/manifests/ppo.yaml"), name, outdir, images, **short)
    status = k.ended(name)
    assert status["phase"] == "Succeeded", status.get("message")
    assert (outdir / "runs/0/videos/episode-0.mp4").stat().st_size > 10_000


SHORT = {
    "a2c": {"game": "cartpole", "epochs": "300"},
    "dqn": {"game": "cartpole", "epochs": "6"},
    "ppo-lstm": {"game": "cartpole-no-velocity", "epochs": "10"},
    "sac": {"game": "pendulum", "epochs": "3"},
    "td3": {"game": "pendulum", "epochs": "3", "learning_starts": "1000"},
}


@pytest.mark.parametrize("algorithm", SHORT)
def test_every_algorithm_from_its_own_manifest(
    images: Images, restricted: str, outdir: Path, tmp_path: Path, algorithm: str
) -> None:
    """Two runs, to films, averages and the page; the same numbers as on this machine."""
    name, manifest = f"t-{algorithm}", Path(f"workflows/manifests/{algorithm}.yaml")
    short = {"runs": "2", "evaluation_episodes": "3", **SHORT[algorithm]}
    submit(manifest, name, outdir, images, **short)
    status = k.ended(name)
    assert status["phase"] == "Succeeded", status.get("message")
    run_here(name, manifest, parameters(outdir, images, **short), tmp_path)
    local = tmp_path / "storage" / outdir.relative_to(outdir.parents[1])
    for run in ("0", "1"):
        assert (outdir / "runs" / run / "videos/episode-0.mp4").stat().st_size > 1000
        for file in ("train.csv", "evaluation.csv"):
            there, here = (folder / "runs" / run / file for folder in (outdir, local))
            assert there.read_bytes() == here.read_bytes(), (run, file)
    assert (outdir / "report.html").stat().st_size > 10_000
