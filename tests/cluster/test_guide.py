"""The commands of `containers/kubernetes/README.md` work as written, apart from
those marked as not tried.

What a shell must be given beside them is what a person's shell has: who they are (kubectl's and
argo's settings), and here, because containers are built inside of one, how the builder must work.
TAG stands in the guide for the tag that `make images` prints. On this cluster Argo watches no
namespace but `argo`, which stands for `experiments`, and its server speaks plain HTTP.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import kubernetes as k
from tests.cluster.conftest import Images, in_pods

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


def blocks(section: str, language: str = "sh") -> list[str]:
    """The blocks below one heading of the guide, those of the shell unless another language is
    named."""
    text = GUIDE.read_text()
    found = re.search(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    assert found, section
    return re.findall(rf"^```{language}\n(.*?)^```", found[1], re.M | re.S)


def here(script: str, tag: str = "") -> str:
    """A script of the guide with the names of this cluster."""
    for of_guide, of_here in {
        "TAG": tag,
        "=experiments": "=argo",
        "namespace experiments": "namespace argo",
        "ARGO_INSECURE_SKIP_VERIFY=true": "ARGO_SECURE=false",
    }.items():
        script = script.replace(of_guide, of_here)
    return script


def shell(script: str, tag: str = "", *, timeout_s: float = 900, **environment: str) -> str:
    ended = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", here(script, tag)],
        cwd=k.ROOT, env=_person() | environment, capture_output=True, text=True, timeout=timeout_s,
    )  # fmt: skip
    assert ended.returncode == 0, f"{script}\n{ended.stdout[-3000:]}{ended.stderr[-3000:]}"
    return ended.stdout


def _person() -> dict[str, str]:
    """A person's shell knows of no Argo Server, and is not itself started by make."""
    without_server = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("ARGO_", "MAKE", "MFLAGS"))
    }
    return without_server | {"PATH": f"{k.ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"}


@pytest.fixture(scope="module")
def tag(images: Images) -> str:
    return images.cpu.rsplit(":")[-1].removesuffix("-cpu")


@pytest.fixture(scope="module")
def clean(namespace: str) -> Iterator[None]:
    folders = [
        Path(os.environ["RL_CLUSTER_STORAGE"]) / name for name in ("ppo-cartpole", "ppo-breakout")
    ]
    subprocess.run(["rm", "-rf", *map(str, folders), str(k.ROOT / "ppo-cartpole")], check=True)
    k.delete("ppo-cartpole", "ppo-breakout")
    k.kubectl("delete", "pod", "browse", "--ignore-not-found")
    yield
    subprocess.run(["rm", "-rf", str(k.ROOT / "ppo-cartpole")], check=True)


def test_the_namespace_and_no_other_setting_of_the_controller(namespace: str) -> None:
    """A setting that somebody else has applied stays."""
    (block,) = blocks("The namespace, once")
    theirs = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "workflow-controller-configmap"},
        "data": {"parallelism": "200"},
    }
    k.kubectl("apply", "-n", "argo", "-f", "-", stdin=json.dumps(theirs))
    shell(block)
    assert "restricted" in k.kubectl(
        "get", "namespace", namespace, "-o", "jsonpath={.metadata.labels}"
    )
    settings = json.loads(
        k.kubectl(
            "get",
            "-n",
            "argo",
            "configmap",
            "workflow-controller-configmap",
            "-o",
            "jsonpath={.data}",
        )
    )
    assert settings["parallelism"] == "200"
    assert "allowPrivilegeEscalation: false" in settings["executor"]


def test_images_end_with_the_parameters_to_submit_with(images: Images, tag: str) -> None:
    (block,) = blocks("Images")
    last = shell(block, TAG=tag, **BUILDER).splitlines()[-1]
    assert last.endswith(f"-p gpu_image={images.gpu} -p cpu_image={images.cpu}")


def test_the_first_experiment_and_its_results(clean: None, restricted: str, tag: str) -> None:
    plain, through_server = blocks("The first experiment")
    shell(plain, tag)
    assert k.phase("ppo-cartpole") == "Succeeded"
    _follow_and_interrupt(here(through_server, tag))
    shell("argo stop ppo-breakout")
    assert k.ended("ppo-breakout")["phase"] == "Failed"
    assert (Path(os.environ["RL_CLUSTER_STORAGE"]) / "ppo-breakout/example/report.html").exists()
    (looking,) = blocks("Looking at results")
    start, ready, *look, forward = looking.strip().splitlines()
    shell(f"{start}\n{ready}", tag)
    as_submitter = "--as=system:serviceaccount:argo:submitter"
    shell("\n".join(look).replace("kubectl ", f"kubectl {as_submitter} "), tag)
    assert (k.ROOT / "ppo-cartpole/report.html").stat().st_size > 10_000
    _look_through(forward.replace("kubectl ", f"kubectl {as_submitter} "))
    shell("kubectl delete pod browse")


def test_the_installed_templates(clean: None, restricted: str, tag: str) -> None:
    from_template, for_this_cluster, every_night = blocks("From the installed templates")
    k.delete("rl-cartpole")
    shell("rm -rf $RL_CLUSTER_STORAGE/rl-cartpole")
    shell(from_template, tag)
    assert k.ended("rl-cartpole")["phase"] == "Succeeded"
    try:
        shell(for_this_cluster, tag)
        assert f"rl:{tag}-gpu" in k.kubectl("get", "workflowtemplate", "rl-ppo", "-o", "yaml")
        shell(every_night)
    finally:
        (k.ROOT / "my-cluster.yaml").unlink(missing_ok=True)
        k.kubectl("delete", "cronworkflow", "nightly", "--ignore-not-found")
        shell("kubectl apply -k containers/kubernetes")


def _follow_and_interrupt(script: str) -> None:
    follower = subprocess.Popen(
        ["bash", "-euc", script],
        cwd=k.ROOT,
        env=_person(),
        start_new_session=True,
        stdout=subprocess.DEVNULL,
    )
    k.wait_for(
        "training",
        lambda: "Running" in k.phases(k.status("ppo-breakout"), "train(0)"),
        timeout_s=300,
    )
    os.killpg(follower.pid, signal.SIGINT)
    assert follower.wait(60) == 130


def _look_through(forward: str) -> None:
    forwarding = subprocess.Popen(
        ["bash", "-c", f"exec {forward}"],
        cwd=k.ROOT,
        env=_person(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert forwarding.stdout
        assert "Forwarding" in forwarding.stdout.readline()
        time.sleep(0.1)
        address = k.kubectl("logs", "browse").split()[1]
        keeping = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with keeping.open(address, timeout=60) as page:
            assert b"ppo-cartpole" in page.read()
        with keeping.open("http://127.0.0.1:8000/ppo-cartpole/report.html", timeout=20) as page:
            assert b"<html" in page.read(500)
    finally:
        forwarding.terminate()
        forwarding.communicate(timeout=10)


def test_a_folder_of_one_node_and_a_namespace_for_each_person(namespace: str, tag: str) -> None:
    """A pod in the second namespace sees the folder that its own claim was given, and no other."""
    _forget_alice()
    try:
        (one_node,) = blocks("Storage")
        shell(as_root(one_node))
        shell(as_root(blocks("Several users")[-1]))
        Path("/srv/alice/of-alice").touch()
        claim = ("get", "-n", "alice", "pvc", "storage", "-o", "jsonpath={.spec.volumeName}")
        bound = k.wait_for("the claim of alice", lambda: k.kubectl(*claim), timeout_s=60)
        assert bound == "alice"
        assert (
            k.kubectl("get", "pv", "experiments", "-o", "jsonpath={.status.phase}") == "Available"
        )
        looking = "\n".join(blocks("Looking at results")[0].splitlines()[:2])
        shell(looking.replace("kubectl ", "kubectl -n alice "), tag)
        assert k.kubectl("exec", "-n", "alice", "browse", "--", "ls", "/storage").split() == [
            "of-alice"
        ]
    finally:
        _forget_alice()


def as_root(script: str) -> str:
    """Where there is no sudo, root runs the tests."""
    return script if shutil.which("sudo") else script.replace("sudo ", "")


def _forget_alice() -> None:
    k.kubectl("delete", "namespace", "alice", "--ignore-not-found", "--wait")
    k.kubectl("delete", "pv", "alice", "experiments", "--ignore-not-found", "--wait")
    for folder in ("alice", "experiments"):
        shutil.rmtree(Path("/srv", folder), ignore_errors=True)


def test_several_users(namespace: str) -> None:
    _, roles, *_ = blocks("Several users")
    k.kubectl("delete", "rolebinding", "alice", "bob", "--ignore-not-found")
    k.kubectl("delete", "serviceaccount", "bob", "--ignore-not-found")
    assert len(shell(roles).strip().splitlines()[-1]) > 100
    for user in ("alice", f"system:serviceaccount:{namespace}:bob"):
        may = ["auth", "can-i", "--as", user]
        for right in (
            "create workflows.argoproj.io",
            "patch workflows.argoproj.io",
            "get pods --subresource=log",
        ):
            assert k.kubectl(*may, *right.split()).strip() == "yes"
        assert k.kubectl(*may, "create", "pods", check=False).strip() == "no"
        assert k.kubectl(*may, "create", "pods/exec", check=False).strip() == "no"
    k.kubectl("delete", "rolebinding", "alice", "bob")
    k.kubectl("delete", "serviceaccount", "bob")


def test_labels_tell_whose_and_trainings_above_a_quota_wait(
    images: Images, restricted: str, manifest: Path, outdir: Path
) -> None:
    labels, _, quota, _ = blocks("Several users")
    k.delete("t-quota")
    k.kubectl("delete", "quota", "gpus", "--ignore-not-found")
    shell(quota.replace("gpu=4", "gpu=1"))
    try:
        with k.watched_pods("t-quota") as pods:
            filled = f"--name t-quota -p runs=2 -p epochs=40 {' '.join(images.parameters)}"
            submitted = labels.replace(
                "/storage/alice/ppo-breakout …", f"{in_pods(outdir)} {filled}"
            )
            listed = shell(submitted.replace("workflows/manifests/ppo.yaml", str(manifest)))
            status = k.ended("t-quota")
    finally:
        k.kubectl("delete", "quota", "gpus")
    assert listed.splitlines()[-1].startswith("t-quota ")
    assert status["phase"] == "Succeeded", status.get("message")
    first, second = (p for p in pods.values() if p.template == "train")
    assert not first.overlaps(second), "one GPU for the namespace, so one training at a time"
    assert k.phases(status, "train(0)") == ["Succeeded"] * 2, "to wait is no attempt"


def test_two_node_pools(images: Images, restricted: str, outdir: Path) -> None:
    """The real node stands for cpu-1. What is bound to the pretended gpu-1 never starts there:
    where it was bound to is the point."""
    labels, submit = blocks("Two node pools")
    (settings,) = blocks("Two node pools", language="yaml")
    mine = [k.ROOT / "my-cluster.yaml", k.ROOT / "my-ppo.yaml"]
    _forget_pools()
    try:
        k.kubectl("create", "-f", "-", stdin=json.dumps(PRETENDED_NODE))
        k.kubectl(
            "patch",
            "node",
            "gpu-1",
            "--subresource=status",
            "--type=merge",
            "-p",
            json.dumps({"status": PRETENDED_NODE["status"]}),
        )
        shell(labels.replace("cpu-1", "node-1"))
        mine[0].write_text(settings)
        filled = f"-p outdir={in_pods(outdir)} {' '.join(images.parameters)} --name t-pools"
        shell(submit.replace("-p game=breakout …", filled))
        bound = k.wait_for("the training's node", lambda: _node_of("t-pools-train"), timeout_s=120)
        assert bound == "gpu-1"
        assert k.node(k.status("t-pools"), "prepare(0)")["hostNodeName"] == "node-1"
    finally:
        _forget_pools()
        for file in mine:
            file.unlink(missing_ok=True)


PRETENDED_NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "gpu-1"},
    "status": {
        "capacity": {"cpu": "8", "memory": "32Gi", "pods": "10", "nvidia.com/gpu": "4"},
        "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "10", "nvidia.com/gpu": "4"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "Pretended"}],
    },
}


def _node_of(pod_prefix: str) -> str:
    pods = k.kubectl(
        "get",
        "pods",
        "-o",
        "jsonpath={range .items[*]}{.metadata.name} {.spec.nodeName}{'\\n'}{end}",
    ).splitlines()
    return next((line.split(" ")[1] for line in pods if line.startswith(pod_prefix)), "")


def _forget_pools() -> None:
    k.delete("t-pools")
    k.kubectl(
        "delete",
        "pods",
        "-l",
        "workflows.argoproj.io/workflow=t-pools",
        "--force",
        "--grace-period=0",
        "--ignore-not-found",
    )
    k.kubectl("delete", "node", "gpu-1", "--ignore-not-found")
    k.kubectl("label", "node", "node-1", "pool-")


@pytest.mark.parametrize(
    "right",
    [
        "create pods",
        "get secrets",
        "list workflows.argoproj.io",
        "get workflowtaskresults.argoproj.io",
    ],
)
def test_pods_may_report_and_nothing_else(namespace: str, right: str) -> None:
    may = ["auth", "can-i", "--as", f"system:serviceaccount:{namespace}:experiment"]
    assert k.kubectl(*may, *right.split(), check=False).strip() == "no"
    assert k.kubectl(*may, "create", "workflowtaskresults.argoproj.io").strip() == "yes"
