"""A study on a real controller: experiments of every topology, and pods that are deleted at random."""

from __future__ import annotations

import random
from pathlib import Path

from config.cluster import load_cluster
from tests.cluster import kubernetes as k
from tests.cluster.conftest import Images, in_pods
from tests.cluster.test_interruptions import delete_at_random
from workflows.dag import manifest_yaml, render

SMALL = Path(__file__).with_name("small.yaml")
EVERY_TOPOLOGY = """
outdir: unused
runs: 2
algorithms: [ppo, {impala: {epochs: 4, epoch_updates: 2}}]
games: [cartpole]
parameters: {evaluation_episodes: 2, video_episodes: 0}
"""
THREE_BY_TWO = """
outdir: unused
runs: 3
algorithms: [ppo, {ppo: {gae_lambda: 1}, label: "PPO, λ = 1"}, a2c]
games: [cartpole, acrobot]
parameters: {steps: 8192, evaluation_episodes: 3, video_episodes: 0}
compare: {baseline: ppo}
"""


def submitted(name: str, text: str, outdir: Path, images: Images, folder: Path) -> None:
    manifest = folder / "study.yaml"
    manifest.write_text(manifest_yaml.dump(render.rendered_study(load_cluster(SMALL))))
    k.delete(name)
    k.argo_without_server(
        "submit", str(manifest), "--name", name, *images.parameters,
        "-p", f"outdir={in_pods(outdir)}", "-p", f"study={text}",
        "-p", "training_memory=1536Mi",
    )  # fmt: skip


def test_algorithms_of_two_topologies(
    images: Images, restricted: str, outdir: Path, tmp_path: Path
) -> None:
    name = "t-study"
    submitted(name, EVERY_TOPOLOGY, outdir, images, tmp_path)
    status = k.ended(name, timeout_s=1500)
    assert status["phase"] == "Succeeded", status.get("message")
    for cell in ("ppo-cartpole", "impala-cartpole"):
        assert "<h2>Complete</h2>" in (outdir / "experiments" / cell / "report.html").read_text()
    assert (outdir / "report.html").is_file()


def test_twenty_pods_of_a_study_deleted_at_random(
    images: Images, restricted: str, outdir: Path, tmp_path: Path
) -> None:
    """Every experiment ends with the bytes that it has on this machine, undisturbed."""
    name = "t-study-disturbed"
    submitted(name, THREE_BY_TWO, outdir, images, tmp_path)
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    deleted = delete_at_random(name, random.Random(seed))
    status = k.ended(name, timeout_s=1700)
    assert status["phase"] == "Succeeded", f"{status.get('message')}; deleted: {deleted}"
    (tmp_path / "asked.yaml").write_text(THREE_BY_TWO)
    here = tmp_path / "here"
    asked = str(tmp_path / "asked.yaml")
    k.python("-m", "workflows.submit", asked, "--local", "-p", f"outdir={here}")
    tables = [f"runs/{run}/{table}.csv" for run in range(3) for table in ("train", "evaluation")]
    for cell in sorted(path.name for path in (here / "experiments").iterdir()):
        for file in (*tables, "average/train.csv", "average/evaluation.csv"):
            there = outdir / "experiments" / cell / file
            undisturbed = here / "experiments" / cell / file
            assert there.read_bytes() == undisturbed.read_bytes(), (cell, file, deleted)
    assert (outdir / "report.html").stat().st_size > 10_000
