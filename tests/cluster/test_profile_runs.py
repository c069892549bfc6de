"""An experiment with a profile of most settings runs: another uid, a priority, labels, variables and
files by reference."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import kubernetes as k
from tests.cluster.conftest import Images, parameters

UID, GID = 30014, 30000
PROFILE = f"""
training_memory: 1536Mi
run_as_user: {UID}
run_as_group: {GID}
fs_group: null
gpu:
  requests: {{cpu: 300m}}
  priority_class: t-research
  labels: {{team: learning}}
  annotations: {{example.com/contact: somebody}}
  secrets: [t-lab]
  environment:
    REGION: {{config_map: t-site, key: region}}
    ABSENT: {{secret: t-nowhere, key: token, optional: true}}
    NODE_NAME: {{field: spec.nodeName}}
  volumes:
    - {{mount_path: /etc/site, config_map: t-site}}
    - {{mount_path: /dev/shm, empty_dir: {{medium: Memory, size: 256Mi}}}}
  pod_patch: {{dnsPolicy: Default}}
cpu:
  requests: {{cpu: 100m, memory: 256Mi}}
"""
NEEDED = [
    {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "t-research"},
        "value": 1000,
    },
    {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "t-lab"},
        "stringData": {"TOKEN": "x"},
    },
    {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "t-site"},
        "data": {"region": "here"},
    },
]


@pytest.fixture
def needed(namespace: str) -> Iterator[None]:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": NEEDED})
    k.kubectl("apply", "-n", namespace, "-f", "-", stdin=text)
    yield
    k.kubectl("delete", "-n", namespace, "--ignore-not-found", "-f", "-", stdin=text)


def test_a_profile_of_most_settings(
    images: Images, restricted: str, needed: None, outdir: Path, tmp_path: Path
) -> None:
    """As on an NFS export with root squash, the folder belongs to the pods' user, and nobody gives it to
    them."""
    name = "t-profile"
    (tmp_path / "lab.yaml").write_text(PROFILE)
    options = ["ppo", "--manifest", "--cluster", str(tmp_path / "lab.yaml")]
    manifest = tmp_path / "ppo.yaml"
    manifest.write_text(k.python("-m", "workflows.submit", *options).stdout)
    outdir.mkdir()
    os.chown(outdir, UID, GID)
    k.delete(name)
    given = parameters(outdir, images, game="cartpole", runs="1", epochs="200", gpus="0")
    k.argo_without_server("submit", str(manifest), "--name", name, *given)
    train = k.wait_for("the training's pod", lambda: _pod(name, "train"), timeout_s=300)
    assert k.ended(name)["phase"] == "Succeeded"
    owners = {(file.stat().st_uid, file.stat().st_gid) for file in outdir.rglob("*")}
    assert owners == {(UID, GID)}
    assert train["metadata"]["labels"]["team"] == "learning"
    assert train["metadata"]["annotations"]["example.com/contact"] == "somebody"
    spec = train["spec"]
    assert (spec["priorityClassName"], spec["dnsPolicy"]) == ("t-research", "Default")
    main = next(one for one in spec["containers"] if one["name"] == "main")
    assert {"secretRef": {"name": "t-lab"}} in main["envFrom"]
    assert {"REGION", "ABSENT", "NODE_NAME"} <= {one["name"] for one in main["env"]}
    assert {"/etc/site", "/storage"} <= {one["mountPath"] for one in main["volumeMounts"]}
    subprocess.run(["rm", "-rf", str(outdir)], check=True)


def _pod(name: str, template: str) -> Any:
    listed = k.kubectl("get", "pods", "-l", f"workflows.argoproj.io/workflow={name}", "-o", "json")
    found = [
        one
        for one in json.loads(listed)["items"]
        if f"{name}-{template}-" in one["metadata"]["name"]
    ]
    return found[0] if found else None
