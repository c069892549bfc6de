"""Every field of Argo's own schema is either supported here, or accepted with a notice, or refused
by its name."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from tests.golden.manifest_rules import OTHER_KINDS
from workflows.local import Refused, run
from workflows.local.spec.fields import (
    CONTAINER,
    OUTPUT,
    PARAMETER,
    RETRY,
    SPEC,
    TASK,
    TEMPLATE,
    check_fields,
)
from workflows.local.spec.manifest import prepare

DEFINITIONS = json.loads(
    (Path(__file__).parents[3] / "golden" / "argo-4.1.2-workflow.schema.json").read_text(
        encoding="utf-8"
    )
)["definitions"]
ARGO, CORE = "io.argoproj.workflow.v1alpha1.", "io.k8s.api.core.v1."
MINIMAL: dict[str, Any] = {
    "apiVersion": "argoproj.io/v1alpha1",
    "kind": "Workflow",
    "metadata": {"name": "w"},
    "spec": {
        "entrypoint": "main",
        "volumes": [{"name": "v", "emptyDir": {}}],
        "templates": [
            {"name": "main", "dag": {"tasks": [{"name": "a", "template": "leaf"}]}},
            {
                "name": "leaf",
                "inputs": {"parameters": [{"name": "x", "default": "1"}]},
                "outputs": {"parameters": [{"name": "o", "valueFrom": {"path": "/o"}}]},
                "container": {
                    "command": ["true"],
                    "env": [{"name": "E", "value": "1"}],
                    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                    "resources": {"requests": {"cpu": "1"}},
                },
                "retryStrategy": {"limit": "1", "backoff": {"duration": "1"}},
            },
        ],
    },
}
PLACES: dict[str, tuple[str, tuple[Any, ...], Any]] = {
    "spec": (ARGO + "WorkflowSpec", ("spec",), SPEC),
    "spec.templates[leaf]": (ARGO + "Template", ("spec", "templates", 1), TEMPLATE),
    "spec.templates[main].dag": (
        ARGO + "DAGTemplate",
        ("spec", "templates", 0, "dag"),
        TEMPLATE["dag"],
    ),
    "spec.templates[main].dag.tasks[a]": (
        ARGO + "DAGTask",
        ("spec", "templates", 0, "dag", "tasks", 0),
        TASK,
    ),
    "spec.templates[leaf].container": (
        CORE + "Container",
        ("spec", "templates", 1, "container"),
        CONTAINER,
    ),
    "spec.templates[leaf].retryStrategy": (
        ARGO + "RetryStrategy",
        ("spec", "templates", 1, "retryStrategy"),
        RETRY,
    ),
    "spec.templates[leaf].retryStrategy.backoff": (
        ARGO + "Backoff",
        ("spec", "templates", 1, "retryStrategy", "backoff"),
        RETRY["backoff"],
    ),
    "spec.templates[leaf].inputs": (
        ARGO + "Inputs",
        ("spec", "templates", 1, "inputs"),
        TEMPLATE["inputs"],
    ),
    "spec.templates[leaf].inputs.parameters[x]": (
        ARGO + "Parameter",
        ("spec", "templates", 1, "inputs", "parameters", 0),
        PARAMETER,
    ),
    "spec.templates[leaf].outputs": (
        ARGO + "Outputs",
        ("spec", "templates", 1, "outputs"),
        TEMPLATE["outputs"],
    ),
    "spec.templates[leaf].outputs.parameters[o].valueFrom": (
        ARGO + "ValueFrom",
        ("spec", "templates", 1, "outputs", "parameters", 0, "valueFrom"),
        OUTPUT["valueFrom"],
    ),
    "spec.templates[leaf].container.env[E]": (
        CORE + "EnvVar",
        ("spec", "templates", 1, "container", "env", 0),
        CONTAINER["env"][0],
    ),  # type: ignore[index]
    "spec.volumes[v]": (CORE + "Volume", ("spec", "volumes", 0), SPEC["volumes"][0]),  # type: ignore[index]
}
UNSUPPORTED = [
    (where, field)
    for where, (definition, _, table) in PLACES.items()
    for field in [*sorted(DEFINITIONS[definition]["properties"]), "noSuchField"]
    if field not in table
]


def with_field(path: tuple[Any, ...], field: str, value: Any) -> dict[str, Any]:
    manifest = copy.deepcopy(MINIMAL)
    holder: Any = manifest
    for part in path:
        holder = holder[part]
    holder[field] = value
    return manifest


def test_the_minimal_manifest_is_supported() -> None:
    assert check_fields(MINIMAL) == []


def test_tables_hold_only_fields_that_argo_has() -> None:
    for where, (definition, _, table) in PLACES.items():
        assert set(table) <= set(DEFINITIONS[definition]["properties"]), where


@pytest.mark.parametrize(("where", "field"), UNSUPPORTED)
def test_every_other_field_of_argo_is_refused_by_name(where: str, field: str) -> None:
    with pytest.raises(Refused, match="does not support this field") as refused:
        prepare(with_field(PLACES[where][1], field, {"any": "thing"}))
    assert str(refused.value).startswith(f"{where}.{field}: ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "field",
    [
        *sorted(OTHER_KINDS),
        "daemon",
        "sidecars",
        "initContainers",
        "memoize",
        "synchronization",
        "hooks",
        "failFast",
        "templateRef",
        "inline",
        "workflowTemplateRef",
        "artifacts",
        "target",
    ],
)
def test_what_the_reference_lists_as_refused_is_among_them(field: str) -> None:
    assert field in {name for _, name in UNSUPPORTED}


@pytest.mark.parametrize(
    ("path", "field", "value", "named"),
    [
        (("spec", "templates", 1, "container"), "command", [], "container.command is missing"),
        (
            ("spec", "templates", 1, "retryStrategy"),
            "retryPolicy",
            "OnTransientError",
            "'OnTransientError' is not supported",
        ),
        (
            ("spec", "templates", 0),
            "retryStrategy",
            {"limit": "1"},
            r"templates\[main\].retryStrategy: supported on containers only",
        ),
        (
            ("spec", "templates", 0),
            "parallelism",
            0,
            "integer of at least 1 is expected, this is 0",
        ),
        (("spec", "templates", 0), "parallelism", "{{x}}", "integer of at least 1 is expected"),
        (("spec",), "templates", {"a": 1}, "spec.templates: a list is expected"),
        (
            ("spec", "templates", 1, "container", "env", 0),
            "valueFrom",
            {"fieldRef": {"fieldPath": "spec.nodeName"}},
            "'spec.nodeName'; supported",
        ),
        (
            ("spec", "templates", 1, "container", "env", 0),
            "valueFrom",
            {"configMapKeyRef": {"name": "s"}},
            "configMapKeyRef: the local engine does not",
        ),
        (
            ("spec", "volumes", 0),
            "hostPath",
            {"path": "/"},
            "hostPath: the local engine does not support",
        ),
        (("spec", "volumes", 0), "name", "../up", "volume '../up'"),
        (
            ("spec",),
            "podSpecPatch",
            '{"hostPID":true}',
            "podSpecPatch.hostPID: the local engine does not support",
        ),
        (
            ("spec", "templates", 1),
            "podSpecPatch",
            '{"containers":[{"name":"wait"}]}',
            "container 'wait'",
        ),
        ((), "kind", "CronWorkflow", "only Workflow of argoproj.io/v1alpha1"),
        (("metadata",), "name", "No Good", "workflow name 'No Good'"),
    ],
)
def test_values_without_a_counterpart_are_refused(
    path: tuple[Any, ...], field: str, value: Any, named: str
) -> None:
    with pytest.raises(Refused, match=named):
        run(with_field(path, field, value))


@pytest.mark.parametrize(
    "text",
    [
        "{{tasks.a.outputs.result}}",
        "x {{= tasks.a.outputs.result + 'y' }}",
        "{{tasks['a-b'].outputs.result}}",
    ],
)
def test_what_a_pod_prints_is_no_output_here(text: str) -> None:
    document = copy.deepcopy(MINIMAL)
    document["spec"]["templates"][0]["dag"]["tasks"].append(
        {"name": "b", "template": "leaf", "when": text}
    )
    with pytest.raises(Refused, match=r"tasks\[b\]\.when: outputs\.result"):
        check_fields(document)


def test_two_claims_are_refused() -> None:
    manifest = copy.deepcopy(MINIMAL)
    manifest["spec"]["volumes"] = [
        {"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("a", "b")
    ]
    with pytest.raises(Refused, match="claims 'a', 'b'"):
        prepare(manifest)


def test_a_misspelt_field_gets_a_hint() -> None:
    with pytest.raises(Refused, match="did you mean 'retryStrategy'"):
        prepare(with_field(("spec", "templates", 1), "retryStrategie", {}))


def test_fields_without_effect_are_listed_once_and_sorted() -> None:
    manifest = with_field(("spec", "templates", 1), "tolerations", [{"key": "k"}])
    manifest["spec"] |= {
        "serviceAccountName": "s",
        "ttlStrategy": {},
        "nodeSelector": {"a": "b"},
        "securityContext": {"runAsUser": 1},
    }
    manifest["spec"]["templates"][1]["container"] |= {"image": "i", "imagePullPolicy": "Always"}
    assert check_fields(manifest) == [
        "clean-up (podGC, ttlStrategy)",
        "images",
        "security contexts",
        "service account",
        "tolerations, node selectors, affinity",
    ]


def test_our_own_manifests_are_supported() -> None:
    from config.strict_yaml import load_mapping

    for path in (Path(__file__).parents[4] / "workflows" / "manifests").glob("*.yaml"):
        assert prepare(load_mapping(path)).templates
