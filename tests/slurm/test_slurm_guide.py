"""docs/slurm.md, word by word: the first experiment, the engine as a job, and following it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tests.slurm import cluster
from tests.slurm.cluster import ROOT, parameters
from tests.slurm.test_slurm_experiments import ON_SLURM

GUIDE = ROOT / "docs/slurm.md"
INSTALLS = ("git clone", "make .venv")
"""What the tests themselves have done before."""


def test_five_commands_from_a_login_node_to_the_first_experiment(tmp_path: Path) -> None:
    block = re.findall(r"```sh\n(.*?)```", GUIDE.read_text(), re.DOTALL)[0]
    lines = [line for line in block.splitlines() if not line.startswith(INSTALLS)]
    assert len(block.splitlines()) - len(lines) == 2
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    typed = subprocess.run(
        ["bash", "-e"], input="\n".join(lines), cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600,
        check=False,
    )  # fmt: skip
    assert typed.returncode == 0, typed.stdout[-3000:] + typed.stderr[-1000:]
    assert "Succeeded in" in typed.stdout and typed.stdout.rstrip().endswith("report.html")
    assert (tmp_path / "results/cartpole/report.html").is_file()


def test_the_engine_as_a_job_is_followed_and_survives_its_requeue(tmp_path: Path) -> None:
    given = parameters(game="cartpole", runs=2, epochs=60, evaluation_episodes=3, outdir="x")
    code, out = cluster.run(tmp_path, "ppo", *ON_SLURM, "--engine-job", *given)
    found = re.search(r"is job (\d+); results in x", out)
    assert code == 0 and found is not None, out
    current = tmp_path / "x/slurm/current"
    cluster.wait_for("a workflow", current.is_file)
    with cluster.start(tmp_path, "--slurm", "--follow", "x") as following:
        cluster.wait_for("a training", lambda: [*tmp_path.glob("x/runs/*/train.csv")])
        # As Slurm does before the time limit: the engine is requeued and goes on.
        cluster.command("scancel", "--batch", "--signal=USR1", found[1])
        said, _ = following.communicate(timeout=600)
    assert "Following ppo-cartpole-" in said
    cluster.wait_for("the end of the engine", lambda: not cluster.queued(), timeout_s=400)
    (engine,) = [job for job in cluster.jobs() if job.id == found[1]]
    assert engine.name.endswith("-engine")
    assert (tmp_path / "x/report.html").is_file()
    assert (engine.state, engine.fields["Restarts"]) == ("COMPLETED", "1")
    code, last = cluster.run(tmp_path, "--slurm", "--follow", "x")
    assert code == 0 and "Succeeded" in last, last
