"""`python -m workflows.submit` through the Argo Server, as the service account `submitter` of
`containers/kubernetes/`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cluster import kubernetes as k
from tests.cluster.conftest import Images, in_pods

CARTPOLE = ["-p", "game=cartpole", "-p", "runs=1", "-p", "evaluation_episodes=3"]
SHORT = [*CARTPOLE, "-p", "epochs=40"]


@pytest.fixture
def token(namespace: str) -> str:
    return "Bearer " + k.kubectl("create", "token", "submitter", "--duration", "1h").strip()


def submit(token: str, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return k.python("-m", "workflows.submit", *words, check=check, timeout_s=900, ARGO_TOKEN=token)


def test_submits_follows_and_ends_as_the_workflow_ended(
    images: Images, restricted: str, outdir: Path, token: str
) -> None:
    k.delete("t-server")
    followed = submit(
        token,
        "ppo",
        "--name",
        "t-server",
        *SHORT,
        "-p",
        f"outdir={in_pods(outdir)}",
        *images.parameters,
    )
    assert k.phase("t-server") == "Succeeded"
    assert "train" in followed.stdout
    followed_again = submit(token, "--follow", "t-server")
    assert "Succeeded" in followed_again.stdout or "succeeded" in followed_again.stdout


def test_a_failed_workflow_is_exit_code_1_and_bad_input_2(
    images: Images, restricted: str, outdir: Path, token: str
) -> None:
    k.delete("t-server-fails")
    refused = submit(
        token, "ppo", "--argo", "--name", "t-server-fails", "-p", "epoch=3", check=False
    )
    assert refused.returncode == 2
    assert "epochs" in refused.stderr
    assert k.workflow("t-server-fails") == {}
    missing_image = ["-p", "gpu_image=localhost:5000/rl:nosuch", "-p", f"cpu_image={images.cpu}"]
    failed = submit(
        token, "ppo", "--argo", "--name", "t-server-fails", *SHORT, "--deadline", "40", "-p", f"outdir={in_pods(outdir)}", *missing_image,
        check=False,
    )  # fmt: skip
    assert failed.returncode == 1
    assert k.phase("t-server-fails") == "Failed"


def test_interrupting_the_follower_stops_nothing(
    images: Images, restricted: str, outdir: Path, token: str
) -> None:
    name = "t-interrupted"
    follower = followed(
        name, token, "-p", "epochs=40", "-p", f"outdir={in_pods(outdir)}", *images.parameters
    )
    k.wait_for("the workflow", lambda: k.phase(name), timeout_s=60)
    follower.send_signal(signal.SIGINT)
    said, _ = follower.communicate(timeout=30)
    assert follower.returncode == 130
    assert f"--follow {name}" in said
    assert f"argo stop {name}" in said
    assert k.ended(name)["phase"] == "Succeeded"


def test_progress_of_a_training_without_its_files(
    images: Images, restricted: str, outdir: Path, token: str
) -> None:
    """The cluster's storage is not mounted on a person's machine: the numbers come from what the
    training prints."""
    name = "t-progress"
    follower = followed(
        name, token, "-p", "epochs=3000", "-p", f"outdir={in_pods(outdir)}", *images.parameters
    )
    said, _ = follower.communicate(timeout=600)
    assert follower.returncode == 0, said
    assert re.search(
        r"run 0  train +\d+ %  return [\d.]+  [\d,]+ steps/s  \d+:\d\d left\n", said
    ), said


def test_a_server_that_is_away_for_a_while(
    images: Images, restricted: str, outdir: Path, token: str
) -> None:
    name = "t-away"
    follower = followed(
        name, token, "-p", "epochs=40", "-p", f"outdir={in_pods(outdir)}", *images.parameters
    )
    k.wait_for("training", lambda: "Running" in k.phases(k.status(name), "train(0)"), timeout_s=300)
    k.kill("argo-server")
    time.sleep(15)
    assert follower.poll() is None
    k.start_again()
    said, _ = follower.communicate(timeout=600)
    assert follower.returncode == 0, said
    assert said.count("trying again") == 1, said
    assert k.phase(name) == "Succeeded"


def followed(name: str, token: str, *parameters: str) -> subprocess.Popen[str]:
    """A submission that is being followed."""
    k.delete(name)
    words = ["ppo", "--argo", "--name", name, *CARTPOLE, *parameters]
    return subprocess.Popen(
        [sys.executable, "-m", "workflows.submit", *words], cwd=k.ROOT, env=os.environ | {"ARGO_TOKEN": token},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def test_detach_returns_at_once(images: Images, restricted: str, outdir: Path, token: str) -> None:
    name = "t-detached"
    k.delete(name)
    submit(
        token,
        "ppo",
        "--argo",
        "--detach",
        "--name",
        name,
        *SHORT,
        "-p",
        f"outdir={in_pods(outdir)}",
        *images.parameters,
    )
    assert k.phase(name) in ("", "Pending", "Running")
    assert k.ended(name)["phase"] == "Succeeded"
