"""Kubernetes' API server admits every pod of every recipe into a namespace that enforces the restricted
standard. Nothing is created: the requests are dry runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from config.cluster import load_cluster
from tests.cluster import kubernetes as k
from tests.golden.manifest_rules import leaves
from workflows.dag import render
from workflows.local.language.tags import replace

RECIPES = sorted(k.ROOT.glob("containers/kubernetes/profiles/*.yaml"))
NEEDED = [
    {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "research"},
        "value": 1000,
    },
    {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "nvidia"},
        "handler": "nvidia",
    },
]
"""What `lab.yaml` names and the API server looks up."""
OF_TEMPLATE = ("affinity", "tolerations", "nodeSelector", "schedulerName", "priorityClassName")
UNKNOWN = {
    "run": "0", "trained": ",", "member": "1", "outdir": "/storage/x", "parameters": "",
}  # fmt: skip
"""Inputs of templates that are no parameters of the workflow."""


@pytest.fixture(scope="module", autouse=True)
def classes() -> Iterator[None]:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": NEEDED})
    k.kubectl("apply", "-f", "-", stdin=text)
    yield
    k.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=text)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_every_pod_is_admitted(recipe: Path, restricted: str, tmp_path: Path) -> None:
    manifest = render.build_manifest("impala", load_cluster(recipe))
    listed = [pod(manifest, leaf, tmp_path) for leaf in leaves(manifest)]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": listed})
    admitted = k.kubectl(
        "create", "--dry-run=server", "--validate=strict", "-n", restricted, "-f", "-", stdin=text
    )
    assert len(admitted.splitlines()) == len(listed) > 10


def pod(manifest: dict[str, Any], leaf: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The pod that Argo makes of a template, without its own containers."""
    spec = manifest["spec"]
    parameters = {one["name"]: one["value"] for one in spec["arguments"]["parameters"]}
    values = {
        f"{kind}.parameters.{name}": value
        for kind in ("inputs", "workflow")
        for name, value in (parameters | UNKNOWN).items()
    }
    values |= {f"workflow.{name}": "x" for name in ("uid", "name", "status", "parameters.json")}
    template, of_workflow = replace([leaf, spec["volumes"]], {**values, "node.name": "x"})
    made = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"t-{template['name']}", **template.get("metadata", {})},
        "spec": {
            "restartPolicy": "Never",
            "serviceAccountName": spec["serviceAccountName"],
            "securityContext": spec["securityContext"],
            "imagePullSecrets": spec.get("imagePullSecrets", []),
            "containers": [{**template["container"], "name": "main"}],
            "volumes": [*of_workflow, *template.get("volumes", [])],
            **{field: template[field] for field in OF_TEMPLATE if field in template},
        },
    }
    for text in (spec["podSpecPatch"], template.get("podSpecPatch")):
        if text:
            file = folder / "pod.json"
            file.write_text(json.dumps(made))
            patch = json.dumps({"spec": json.loads(text)})
            made = json.loads(
                k.kubectl(
                    "patch",
                    "--local",
                    "-f",
                    str(file),
                    "--type=strategic",
                    "-p",
                    patch,
                    "-o",
                    "json",
                )
            )
    return made
