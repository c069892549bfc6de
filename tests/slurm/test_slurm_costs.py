"""What the engine costs on a real Slurm: seconds a pod, questions to the controller, submissions; and whose
jobs they are."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.slurm import cluster
from tests.slurm.cluster import ROOT, parameters
from tests.slurm.test_slurm_experiments import CARTPOLE, ON_SLURM

CHAIN = 10
BETWEEN_QUESTIONS_S = 2.0


def test_a_pod_takes_at_most_two_seconds_longer_than_a_job(tmp_path: Path) -> None:
    """One pod after the other, and as many jobs of `true` submitted one after the other."""
    tasks = [f"{{name: t{n}, template: one, depends: t{n - 1}}}" for n in range(1, CHAIN)]
    many = MANY.replace(COUNTED, ", ".join(["{name: t0, template: one}", *tasks]))
    (tmp_path / "chain.yaml").write_text(many)
    began_s = time.monotonic()
    words = ["chain.yaml", "--slurm", "--storage", "storage", "--name", "t-chain"]
    code, out = cluster.run(tmp_path, *words, module="workflows.local")
    pods_s = time.monotonic() - began_s
    assert code == 0, out[-2000:]
    began_s = time.monotonic()
    for _ in range(CHAIN):
        job = cluster.command("sbatch", "--parsable", "--output=/dev/null", "--wrap=true").strip()
        show = ["scontrol", "show", "job", job]
        cluster.wait_for("an end", lambda show=show: "COMPLETED" in cluster.command(*show))  # type: ignore[misc]
    jobs_s = time.monotonic() - began_s
    print(f"{pods_s / CHAIN:.2f} s a pod, {jobs_s / CHAIN:.2f} s a job")
    assert (pods_s - jobs_s) / CHAIN <= 2.0


def test_five_hundred_jobs(tmp_path: Path) -> None:
    """Few submissions, and a question in two seconds, whatever the number of jobs."""
    (tmp_path / "many.yaml").write_text(MANY)
    variables = cluster.noted_calls(tmp_path / "noted")
    words = ["many.yaml", "--slurm", "--storage", "storage", "--name", "t-many"]
    began_s = time.monotonic()
    code, out = cluster.run(
        tmp_path, *words, module="workflows.local", timeout_s=850, variables=variables
    )
    took_s = time.monotonic() - began_s
    assert code == 0, out[-2000:]
    assert out.count(": Succeeded ") == 500
    assert len(cluster.submissions("t-many")) <= 100
    asked_s = cluster.questions(tmp_path / "noted")
    print(f"500 jobs in {took_s:.0f} s, {len(asked_s)} questions")
    assert len(asked_s) <= took_s / BETWEEN_QUESTIONS_S + 1
    # The wrapper needs a moment to note the time.
    assert min(after - before for before, after in pairwise(asked_s)) > BETWEEN_QUESTIONS_S - 0.5


@pytest.fixture
def ordinary_user() -> Iterator[tuple[pwd.struct_passwd, Path]]:
    """A user without privileges, and a folder of its own."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    nobody = pwd.getpwnam("nobody")
    folder = Path(tempfile.mkdtemp(prefix="rl-slurm-", dir="/tmp"))
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    can = [sys.executable, "-c", "import workflows.submit"]
    try:
        tried = subprocess.run(
            can, cwd=ROOT, capture_output=True, text=True, check=False, **cluster.as_user(nobody)
        )
        if tried.returncode:
            pytest.skip(f"{tried.stderr.strip()[-200:]}")
        yield nobody, folder
    except PermissionError as error:
        pytest.skip(f"another user cannot execute this Python: {error}")
    finally:
        shutil.rmtree(folder)


def test_jobs_of_an_ordinary_user(ordinary_user: tuple[pwd.struct_passwd, Path]) -> None:
    user, folder = ordinary_user
    words = ["ppo", *CARTPOLE, *parameters(outdir="x"), "--name", "t-ordinary", *ON_SLURM]
    code, out = cluster.run(folder, *words, variables={"HOME": str(folder)}, user=user)
    assert code == 0 and "Succeeded in" in out, out[-3000:]
    made = cluster.jobs("t-ordinary-")
    assert made and all(job.fields["UserId"].startswith("nobody(") for job in made)
    assert {path.stat().st_uid for path in folder.rglob("*")} == {user.pw_uid}


COUNTED = '{name: one, template: one, withSequence: {count: "500"}}'
MANY = """
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {generateName: many-}
spec:
  entrypoint: all
  templates:
    - name: all
      dag: {tasks: [{name: one, template: one, withSequence: {count: "500"}}]}
    - name: one
      container: {image: none, command: ["true"], resources: {requests: {cpu: 100m, memory: 10Mi}}}
"""
