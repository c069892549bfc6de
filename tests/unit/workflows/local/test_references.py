"""Secrets, config maps and fields of a pod in variables and volumes: what a pod of this machine sees, and
which manifests are refused before anything starts."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from local_workflows import Document, pod, task, workflow

from config.pod_references import POD_FIELDS
from config.pod_shapes import POD_PATCH as OF_SETTINGS
from workflows.local import Refused, run
from workflows.local.machine.pod_spec import pod_fields
from workflows.local.spec.fields import POD_PATCH, check_fields

PROGRAM = "import json, os, sys; json.dump(dict(os.environ), open(sys.argv[1], 'w'))"


def seen_by_pod(folder: Path, container: Document, **template: Any) -> dict[str, str]:
    """The environment of a pod with this container."""
    file = folder / "seen.json"
    leaf = pod("leaf", PROGRAM, str(file), container=container, **template)
    status = run(workflow([task("a", "leaf")], leaf), storage=folder / "storage")
    assert status.phase == "Succeeded", status.message
    seen: dict[str, str] = json.loads(file.read_text())
    return seen


def by_key(name: str, kind: str = "secretKeyRef", **more: Any) -> Document:
    return {"name": name, "valueFrom": {kind: {"name": "lab", "key": "token", **more}}}


@pytest.mark.parametrize("kind", ["secretKeyRef", "configMapKeyRef"])
def test_a_variable_comes_from_this_machine(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is: what looks like a path of the pod, or like a reference, is none."""
    monkeypatch.setenv("LAB_TOKEN", "/scratch/x$(HOME)$$")
    scratch = {"volumeMounts": [{"name": "t", "mountPath": "/scratch"}]}
    container = {"env": [by_key("LAB_TOKEN", kind)], **scratch}
    seen = seen_by_pod(tmp_path, container, volumes=[{"name": "t", "emptyDir": {}}])
    assert seen["LAB_TOKEN"] == "/scratch/x$(HOME)$$"


def test_what_is_optional_is_left_out(tmp_path: Path) -> None:
    sources = [{"secretRef": {"name": "lab", "optional": True}}]
    container = {
        "env": [by_key("LAB_TOKEN", optional=True)],
        "envFrom": sources,
        "volumeMounts": [{"name": "files", "mountPath": "/keys"}],
    }
    files = {"name": "files", "secret": {"secretName": "lab", "optional": True}}
    assert "LAB_TOKEN" not in seen_by_pod(tmp_path, container, volumes=[files])


def test_an_optional_variable_comes_from_this_machine_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_TOKEN", "here")
    container = {"env": [by_key("LAB_TOKEN", optional=True)]}
    assert seen_by_pod(tmp_path, container)["LAB_TOKEN"] == "here"


def test_all_that_is_missing_is_named_in_one_line_before_anything_starts(tmp_path: Path) -> None:
    container = {
        "env": [by_key("LAB_TOKEN"), by_key("REGION", "configMapKeyRef")],
        "envFrom": [{"secretRef": {"name": "wandb"}}],
    }
    volumes = [{"name": "f", "secret": {"secretName": "keys"}}]
    file = tmp_path / "ran"
    leaf = pod("leaf", f"open({str(file)!r}, 'w')", container=container, volumes=volumes)
    with pytest.raises(Refused) as refused:
        run(workflow([task("a", "leaf")], leaf), storage=tmp_path)
    message = str(refused.value)
    for part in (
        "LAB_TOKEN (secret 'lab', key 'token')",
        "REGION (config map 'lab', key 'token')",
        "all keys of secret 'wandb'",
        "secret 'keys' as files",
    ):
        assert part in message
    assert message.isprintable()
    assert not file.exists()


def test_a_variable_may_be_a_field_of_the_pod(tmp_path: Path) -> None:
    env = [
        {"name": f"FIELD_{index}", "valueFrom": {"fieldRef": {"fieldPath": field}}}
        for index, field in enumerate(POD_FIELDS)
    ]
    seen = seen_by_pod(tmp_path, {"env": env})
    found = {field: seen[f"FIELD_{index}"] for index, field in enumerate(POD_FIELDS)}
    assert found["spec.nodeName"] == socket.gethostname()
    assert found["metadata.namespace"] == "default"
    assert found["status.podIP"] == found["status.hostIP"] == "127.0.0.1"
    assert set(POD_FIELDS) == set(pod_fields("x", {}))


@pytest.mark.parametrize("field", OF_SETTINGS.fields)
def test_each_field_that_a_pod_patch_may_set_is_known(field: str) -> None:
    assert field in POD_PATCH
    assert check_fields({field: None}, POD_PATCH) == []


def test_retries_on_another_node_say_that_they_have_no_effect() -> None:
    leaf = pod("leaf", retryStrategy={"limit": "1", "affinity": {"nodeAntiAffinity": {}}})
    assert any("affinity" in group for group in check_fields(workflow([task("a", "leaf")], leaf)))
