"""Issue 4, point 6: the commands of `containers/kubernetes/README.md` work as written, apart from those marked as not tried.

What a shell must be given beside them is what a person's shell has: who they are (kubectl's and argo's settings), and here, because
containers are built inside of one, how the builder must work. TAG stands in the guide for the tag that `make images` prints.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import kubernetes as k
from tests.cluster.conftest import Images

GUIDE = k.ROOT / "containers" / "kubernetes" / "README.md"
# buildah inside of a container, a base image without a public registry, and a registry without TLS
BUILDER = {
    "BUILDER": "buildah",
    "BUILDAH_ISOLATION": "chroot",
    "BUILDAH_LAYERS": "true",
    "IMAGE_OPTIONS": f"-q --network host --tls-verify=false -v /etc/ssl/certs:/etc/ssl/certs:ro -v /etc/pip.conf:/etc/pip.conf:ro "
    f"--build-arg BASE_IMAGE={k.REGISTRY}/python:3.11",
    "PUSH_OPTIONS": "--tls-verify=false",
}


def blocks(section: str) -> list[str]:
    """The shell blocks below one heading of the guide."""
    text = GUIDE.read_text()
    found = re.search(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    assert found, section
    return re.findall(r"^```sh\n(.*?)^```", found[1], re.M | re.S)


def shell(script: str, tag: str = "", *, timeout_s: float = 900, **environment: str) -> str:
    ended = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script.replace("TAG", tag)],
        cwd=k.ROOT, env=_person() | environment, capture_output=True, text=True, timeout=timeout_s,
    )  # fmt: skip
    assert ended.returncode == 0, f"{script}\n{ended.stdout[-3000:]}{ended.stderr[-3000:]}"
    return ended.stdout


def _person() -> dict[str, str]:
    """A person's shell knows of no Argo Server, and is not itself started by make."""
    without_server = {key: value for key, value in os.environ.items() if not key.startswith(("ARGO_", "MAKE", "MFLAGS"))}
    return without_server | {"PATH": f"{k.ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"}


@pytest.fixture(scope="module")
def tag(images: Images) -> str:
    return images.cpu.rsplit(":")[-1].removesuffix("-cpu")


@pytest.fixture(scope="module")
def clean(namespace: str) -> Iterator[None]:
    folders = [Path(os.environ["RL_CLUSTER_STORAGE"]) / name for name in ("ppo-cartpole", "ppo-breakout")]
    subprocess.run(["rm", "-rf", *map(str, folders), str(k.ROOT / "ppo-cartpole")], check=True)
    k.delete("ppo-cartpole", "ppo-breakout")
    k.kubectl("delete", "pod", "browse", "--ignore-not-found")
    yield
    subprocess.run(["rm", "-rf", str(k.ROOT / "ppo-cartpole")], check=True)


def test_the_namespace(namespace: str) -> None:
    (block,) = blocks("The namespace, once")
    shell(block)
    assert "restricted" in k.kubectl("get", "namespace", namespace, "-o", "jsonpath={.metadata.labels}")


def test_images_end_with_the_parameters_to_submit_with(images: Images, tag: str) -> None:
    (block,) = blocks("Images")
    last = shell(block, TAG=tag, **BUILDER).splitlines()[-1]
    assert last.endswith(f"-p gpu_image={images.gpu} -p cpu_image={images.cpu}")


def test_the_first_experiment_and_its_results(clean: None, restricted: str, tag: str) -> None:
    plain, through_server = blocks("The first experiment")
    shell(plain, tag)
    assert k.phase("ppo-cartpole") == "Succeeded"
    _follow_and_interrupt(through_server.replace("TAG", tag))
    shell("argo stop ppo-breakout")
    assert k.ended("ppo-breakout")["phase"] == "Failed"
    assert (Path(os.environ["RL_CLUSTER_STORAGE"]) / "ppo-breakout/example/report.html").exists()
    (looking,) = blocks("Looking at results")
    *commands, forward = looking.strip().splitlines()
    shell("\n".join(commands), tag)
    assert (k.ROOT / "ppo-cartpole/report.html").stat().st_size > 10_000
    _look_through(forward)
    shell("kubectl delete pod browse")


def _follow_and_interrupt(script: str) -> None:
    follower = subprocess.Popen(["bash", "-euc", script], cwd=k.ROOT, env=_person(), start_new_session=True, stdout=subprocess.DEVNULL)
    k.wait_for("training", lambda: "Running" in k.phases(k.status("ppo-breakout"), "train(0)"), timeout_s=300)
    os.killpg(follower.pid, signal.SIGINT)
    assert follower.wait(60) == 130


def _look_through(forward: str) -> None:
    forwarding = subprocess.Popen(["bash", "-c", f"exec {forward}"], cwd=k.ROOT, env=_person(), stdout=subprocess.PIPE, text=True)
    try:
        assert forwarding.stdout
        assert "Forwarding" in forwarding.stdout.readline()
        time.sleep(0.1)
        with urllib.request.urlopen("http://localhost:8000/ppo-cartpole/report.html", timeout=20) as page:
            assert b"<html" in page.read(500)
    finally:
        forwarding.terminate()
        forwarding.communicate(timeout=10)


def test_several_users(namespace: str) -> None:
    (block,) = blocks("Several users")
    k.kubectl("delete", "rolebinding", "alice", "bob", "--ignore-not-found")
    k.kubectl("delete", "serviceaccount", "bob", "--ignore-not-found")
    assert len(shell(block).strip().splitlines()[-1]) > 100
    for user in ("alice", f"system:serviceaccount:{namespace}:bob"):
        may = ["auth", "can-i", "--as", user]
        assert k.kubectl(*may, "create", "workflows.argoproj.io").strip() == "yes"
        assert k.kubectl(*may, "create", "pods", check=False).strip() == "no"
        assert k.kubectl(*may, "create", "pods/exec", check=False).strip() == "no"
    k.kubectl("delete", "rolebinding", "alice", "bob")
    k.kubectl("delete", "serviceaccount", "bob")


def test_a_manifest_for_ones_own_cluster(tmp_path: Path) -> None:
    """The two rendering lines of "Two node pools": the only ones there that need no second node."""
    mine = tmp_path / "my-cluster.yaml"
    mine.write_text("gpu: {node_selector: {pool: gpu}}\ncpu: {node_selector: {pool: cpu}}\n")
    rendered = k.python("-m", "workflows.submit", "ppo", "--manifest", "--cluster", str(mine)).stdout
    (tmp_path / "my-ppo.yaml").write_text(rendered)
    assert rendered.count("pool: gpu") == 1
    k.command("argo", "lint", "--offline", str(tmp_path / "my-ppo.yaml"))


@pytest.mark.parametrize("right", ["create pods", "get secrets", "list workflows.argoproj.io", "get workflowtaskresults.argoproj.io"])
def test_pods_may_report_and_nothing_else(namespace: str, right: str) -> None:
    may = ["auth", "can-i", "--as", f"system:serviceaccount:{namespace}:experiment"]
    assert k.kubectl(*may, *right.split(), check=False).strip() == "no"
    assert k.kubectl(*may, "create", "workflowtaskresults.argoproj.io").strip() == "yes"
