"""The settings of a pool that say where its pods run and what they see: what is read, and a message for
each mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from config.cluster import Cluster, Pool, load_cluster
from config.errors import BadInput
from config.pod_references import OWN_VARIABLES, Reference, Secret, is_own_variable
from config.pod_shapes import POD_PATCH, REQUIRED, SETTINGS
from config.pod_volumes import PROTECTED, SCRATCH, SHARED_MEMORY, EmptyDir, Volume
from config.sections import rows
from config.tracking import VARIABLES
from workflows.dag import render
from workflows.local.spec.fields import TEMPLATE

SECRET_VALUE = "hunter2-hunter2"


def loaded(folder: Path, text: str) -> Cluster:
    path = folder / "mine.yaml"
    path.write_text(text)
    return load_cluster(path)


def test_by_default_a_pool_has_none_of_them() -> None:
    default = load_cluster()
    for pool in (default.gpu, default.actor, default.cpu):
        assert not any(
            (
                pool.spot, pool.affinity, pool.priority_class, pool.scheduler_name, pool.runtime_class,
                pool.queue, pool.labels, pool.annotations, pool.secrets, pool.environment,
                pool.volumes, pool.pod_patch,
            )
        )  # fmt: skip
    assert (default.run_as_user, default.run_as_group, default.fs_group) == (1000, 1000, 1000)
    assert default.image_pull_secrets == ()


def test_what_a_file_says_is_read(tmp_path: Path) -> None:
    text = """
image_pull_secrets: [registry]
run_as_user: 30014
fs_group: null
spot_taints: [example.com/spot]
gpu:
  secrets: [one, {name: two, optional: true}]
  environment: {TOKEN: {secret: hf, key: token, optional: true}, NODE: {field: spec.nodeName}}
  volumes:
    - {mount_path: /dev/shm, empty_dir: {medium: Memory, size: 8Gi}}
    - {mount_path: /data/atari, claim: data, sub_path: roms/v1, read_only: true}
"""
    mine = loaded(tmp_path, text)
    assert (mine.run_as_user, mine.run_as_group, mine.fs_group) == (30014, 1000, None)
    assert (mine.image_pull_secrets, mine.spot_taints) == (("registry",), ("example.com/spot",))
    assert mine.gpu.secrets == (Secret(name="one"), Secret(name="two", optional=True))
    assert mine.gpu.environment == {
        "TOKEN": Reference(secret="hf", key="token", optional=True),
        "NODE": Reference(field="spec.nodeName"),
    }
    assert mine.gpu.volumes == (
        Volume(mount_path=SHARED_MEMORY, empty_dir=EmptyDir(medium="Memory", size="8Gi")),
        Volume(mount_path="/data/atari", claim="data", sub_path="roms/v1", read_only=True),
    )
    assert mine.cpu == load_cluster().cpu


MISTAKES = [
    ("spott: true", "unknown cluster setting 'gpu.spott'; did you mean 'gpu.spot'"),
    ("spot: 1", "'gpu.spot' cannot be 1; allowed: true or false"),
    ("priority_class: High", "'gpu.priority_class' cannot be 'High'; allowed: a Kubernetes name"),
    ("scheduler_name: [a]", r"'gpu.scheduler_name' cannot be \['a'\]"),
    ("runtime_class: '{{x}}'", "braces are not allowed"),
    ("queue: 'a b'", "'gpu.queue' cannot be 'a b'; allowed: up to 63 letters"),
    # labels and annotations
    ("labels: [a]", r"'gpu.labels' cannot be \['a'\]; allowed: a mapping"),
    ("labels: {team: 3}", "gpu.labels.team cannot be 3; allowed: text, quote it"),
    ("labels: {team: 'a b'}", "'gpu.labels.team' cannot be 'a b'; allowed: up to 63 letters"),
    ("labels: {'te am': a}", "'gpu.labels.te am' cannot have this name; allowed: a label's key"),
    ("labels: {'{{x}}': a}", "braces"),
    ("labels: {app: mine}", "'gpu.labels.app' cannot be set: pods of this project have their own"),
    ("labels: {workflows.argoproj.io/x: a}", "cannot be set: pods of this project"),
    ("labels: {kueue.x-k8s.io/queue-name: a}", "allowed: the setting queue"),
    ("annotations: {rl-training-dag/pods-per-gpu: '2'}", "cannot be set: pods of this project"),
    ("annotations: {a: '$(X)'}", "not allowed in a value"),
    # variables
    (f"environment: {{TOKEN: {SECRET_VALUE}}}", "'gpu.environment.TOKEN' cannot be a plain value"),
    (f"environment: {{TOKEN: {{value: {SECRET_VALUE}}}}}", "cannot be a plain value: all who may"),
    ("environment: [TOKEN]", "'gpu.environment' must be a mapping of variables to references"),
    ("environment: {TO-KEN: {secret: a, key: b}}", "cannot have the variable 'TO-KEN'"),
    ("environment: {STORAGE: {secret: a, key: b}}", "'gpu.environment.STORAGE' cannot be set"),
    ("environment: {EXPERIMENT_X: {secret: a, key: b}}", "EXPERIMENT_X' cannot be set"),
    (
        "environment: {T: {secret: a}}",
        "'gpu.environment.T' cannot have secret; allowed: secret and",
    ),
    ("environment: {T: {}}", "'gpu.environment.T' cannot have nothing; allowed: secret and key"),
    ("environment: {T: {secret: a, config_map: b, key: c}}", "cannot have secret, config_map, key"),
    ("environment: {T: {field: spec.nodeName, optional: true}}", "cannot have field, optional"),
    (
        "environment: {T: {field: spec.nodename}}",
        "'gpu.environment.T.field' cannot be 'spec.nodena",
    ),
    ("environment: {T: {secrets: a}}", "unknown cluster setting 'gpu.environment.T.secrets'; did"),
    ("environment: {T: {secret: a, key: '{{x}}'}}", "braces"),
    ("secrets: wandb", "'gpu.secrets' cannot be 'wandb'; allowed: a list of names of secrets"),
    ("secrets: [Wandb]", r"'gpu.secrets\[0\].name' cannot be 'Wandb'; allowed: a Kubernetes name"),
    ("secrets: [3]", r"'gpu.secrets\[0\]' cannot be 3; allowed: a mapping with name, optional"),
    # volumes
    ("volumes: [{mount_path: /data}]", r"'gpu.volumes\[0\]' has no source; allowed: exactly one"),
    ("volumes: [{claim: a}]", r"empty value for 'gpu.volumes\[0\].mount_path'"),
    ("volumes: [{mount_path: /d, claim: a, secret: b}]", "has claim and secret; allowed: exactly"),
    ("volumes: [{mount_path: /d, host_path: /x}]", "unknown cluster setting .*host_path"),
    ("volumes: [{mount_path: data, claim: a}]", "'data'; allowed: an absolute path"),
    ("volumes: [{mount_path: /a/../b, claim: a}]", "allowed: an absolute path without"),
    ("volumes: [{mount_path: /dev/shm, claim: a}]", "'/dev/shm', which overlaps with /dev"),
    (
        "volumes: [{mount_path: /d, empty_dir: {}}]",
        r"empty value for 'gpu.volumes\[0\].empty_dir.s",
    ),
    ("volumes: [{mount_path: /d, empty_dir: {size: 1}}]", "empty_dir.size' cannot be 1"),
    ("volumes: [{mount_path: /d, empty_dir: {size: 1Gi, medium: Disk}}]", "cannot be 'Disk'"),
    (
        "volumes: [{mount_path: /d, claim: a, optional: true}]",
        "optional' cannot be true with claim",
    ),
    ("volumes: [{mount_path: /d, claim: a, sub_path: ../x}]", "sub_path' cannot be '../x'"),
    ("volumes: [{mount_path: /d, claim: a}, {mount_path: /d/e, claim: b}]", "overlaps with /d;"),
    # fields with Kubernetes' names
    ("affinity: {nodeAffinty: {}}", "unknown field 'gpu.affinity.nodeAffinty'; did you mean 'gpu"),
    ("affinity: [a]", r"'gpu.affinity' cannot be \['a'\]; allowed: a mapping with nodeAffinity"),
    (f"affinity: {{nodeAffinity: {{{REQUIRED}: {{}}}}}}", "lacks nodeSelectorTerms"),
    (f"affinity: {{podAffinity: {{{REQUIRED}: [{{}}]}}}}", r"\[0\]' lacks topologyKey"),
    (f"affinity: {{podAffinity: {{{REQUIRED}: []}}}}", r"cannot be \[\]; allowed: a list"),
    (
        f"affinity: {{podAffinity: {{{REQUIRED}: [{{topologyKey: 3}}]}}}}",
        "cannot be 3; allowed: text",
    ),
    (f"affinity: {{podAffinity: {{{REQUIRED}: [{{topologyKey: '{{{{x}}}}'}}]}}}}", "braces"),
    (
        "pod_patch: {dnsPolicy: none}",
        "'gpu.pod_patch.dnsPolicy' cannot be 'none'; allowed: Cluster",
    ),
    ("pod_patch: {hostUsers: 'no'}", "hostUsers' cannot be 'no'; allowed: true or false"),
    ("pod_patch: [x]", r"'gpu.pod_patch' cannot be \['x'\]; allowed: a mapping with dnsConfig"),
    ("pod_patch: {dnsConfig: {searches: ['{{x}}']}}", "braces"),
    ("pod_patch: {topologySpreadConstraints: [{maxSkew: 0}]}", "maxSkew' cannot be 0; allowed: an"),
    (
        "pod_patch: {nodeSelector: {a: b}}",
        "cannot have 'nodeSelector'; .*, or the setting node_sel",
    ),
]


@pytest.mark.parametrize(("text", "reason"), MISTAKES)
def test_a_mistake_is_named(text: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=reason) as refusal:
        loaded(tmp_path, f"gpu: {{{text}}}")
    message = str(refusal.value)
    assert message.isprintable()
    assert SECRET_VALUE not in message


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("run_as_user: 0", "'run_as_user' cannot be 0; allowed: an integer from 1 to"),
        ("run_as_user: root", "'run_as_user' cannot be 'root'"),
        ("fs_group: -1", "'fs_group' cannot be -1"),
        ("image_pull_secrets: registry", "'image_pull_secrets' cannot be 'registry'; allowed: a list"),
        ("image_pull_secrets: [A]", r"'image_pull_secrets\[0\]' cannot be 'A'; allowed: a Kubernetes"),
        ("spot_taints: ['a b']", r"'spot_taints\[0\]' cannot be 'a b'; allowed: a label's key"),
    ],
)  # fmt: skip
def test_a_mistake_in_what_holds_for_all_pods_is_named(
    text: str, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=reason):
        loaded(tmp_path, text)


@pytest.mark.parametrize(
    "field",
    [
        "containers", "initContainers", "ephemeralContainers", "volumes", "restartPolicy",
        "securityContext", "serviceAccountName", "hostNetwork", "hostPID", "hostIPC", "nodeName",
        "activeDeadlineSeconds", "shareProcessNamespace", "terminationGracePeriodSeconds",
    ],
)  # fmt: skip
def test_a_pod_patch_changes_nothing_that_the_project_decides(field: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=f"'gpu.pod_patch' cannot have '{field}'; allowed: dnsConf"):
        loaded(tmp_path, f"gpu: {{pod_patch: {{{field}: x}}}}")


@pytest.mark.parametrize(
    "path", [*PROTECTED, "/storage/x", "/opt", f"{SCRATCH}/x/y", f"{SHARED_MEMORY}/x"]
)
def test_no_volume_hides_a_mount_of_the_project(path: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"mount_path' cannot be .* overlaps with"):
        loaded(tmp_path, f"cpu: {{volumes: [{{mount_path: {path}, claim: x}}]}}")


def test_settings_that_the_hints_name_exist() -> None:
    names = {row.name.removeprefix("gpu.") for row in rows(Cluster)}
    for hint in SETTINGS.values():
        assert set(hint.replace(" and ", ", ").split(", ")) <= names
    assert not SETTINGS.keys() & POD_PATCH.fields.keys()


def test_every_setting_has_help_and_allowed_values() -> None:
    found = list(rows(Cluster))
    allowed = {row.name: row.allowed for row in found}
    assert allowed["grace_period_s"] == "an integer from 1 to 86400 (s)"
    assert {row.name for row in found} >= {"gpu.requests.cpu", "cpu.pod_patch", "run_as_user"}
    assert [row for row in found if not row.help or not row.allowed] == []
    assert next(row.name for row in rows(Pool)) == "requests.cpu"


def test_the_names_of_all_variables_of_pods_are_reserved() -> None:
    manifests: list[dict[str, Any]] = [
        render.rendered(name, load_cluster()) for name in ("ppo", "impala", "alphazero")
    ]
    found = {
        variable["name"]
        for manifest in manifests
        for template in manifest["spec"]["templates"]
        for variable in template.get("container", {}).get("env", [])
    }
    assert "ACTOR_COMMAND" in found
    assert {name for name in found if not is_own_variable(name)} == set(VARIABLES)
    assert is_own_variable("ARGO_X") and not is_own_variable("MY_STORAGE")
    assert all(name.isupper() for name in OWN_VARIABLES)


def test_every_field_of_a_template_that_a_pool_sets_is_known_on_one_machine() -> None:
    assert TEMPLATE.keys() >= {"affinity", "schedulerName", "priorityClassName", "volumes"}
