"""Workflow templates: experiments, studies and searches that are installed in a cluster once.

    python -m workflows.dag.committed workflows/manifests containers/kubernetes/templates

renders one for each manifest. `argo submit --from workflowtemplate/rl-ppo`, Argo's own form, a
CronWorkflow and `workflows.submit` start experiments from them with arguments only, so that a
controller with `templateReferencing: Strict` accepts them.

Two annotations say what a template is: its version (this program's, with a hash of the workflow that
it makes for the settings of `config/cluster.yaml`), and the cluster settings that it was made for.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from config import VERSION
from config.algorithms import find_algorithm
from config.cluster import Cluster, load_cluster
from workflows.dag.manifest_yaml import Manifest
from workflows.dag.render import SEARCH, STUDY, rendered, rendered_study

MADE_OF = "rl-training-dag/version"
MADE_FOR = "rl-training-dag/cluster"
KINDS = (STUDY, SEARCH)


def template_name(kind: str) -> str:
    """The name of the workflow template of an algorithm, of STUDY or of SEARCH."""
    return f"rl-{kind if kind in KINDS else find_algorithm(kind).name}"


def version_of(kind: str) -> str:
    """Changes with this program's version and with the workflow that it makes, whatever the cluster."""
    return f"{VERSION}-{_hash(manifest_of(kind, load_cluster()))}"


def settings_of(cluster: Cluster) -> str:
    """A hash of the settings of a cluster."""
    return _hash(dataclasses.asdict(cluster))


def manifest_of(kind: str, cluster: Cluster) -> Manifest:
    """The workflow of an algorithm, or that of any study or search."""
    return rendered_study(cluster, kind=kind) if kind in KINDS else rendered(kind, cluster)


def workflow_template(kind: str, cluster: Cluster) -> Manifest:
    """The workflow template of an algorithm, of STUDY or of SEARCH."""
    what = f"{kind} of experiments" if kind in KINDS else f"experiment with {kind}"
    labels = {
        "app.kubernetes.io/part-of": "rl-training-dag",
        "app.kubernetes.io/version": VERSION,
    }
    annotations = {
        "workflows.argoproj.io/title": f"rl-training-dag {VERSION}: {what}",
        MADE_OF: version_of(kind),
        MADE_FOR: settings_of(cluster),
    }
    metadata: dict[str, Any] = {
        "name": template_name(kind),
        "labels": labels,
        "annotations": annotations,
    }
    if cluster.namespace:
        metadata["namespace"] = cluster.namespace
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "WorkflowTemplate",
        "metadata": metadata,
        "spec": manifest_of(kind, cluster)["spec"],
    }


def reference(
    kind: str, values: Mapping[str, str], *, name: str, deadline_s: int | None
) -> Manifest:
    """A workflow that refers to an installed template, with nothing that a controller with
    `templateReferencing: Strict` refuses. values: the arguments that differ from the template's.
    """
    spec: dict[str, Any] = {
        "workflowTemplateRef": {"name": template_name(kind)},
        "arguments": {
            "parameters": [{"name": name, "value": value} for name, value in values.items()]
        },
    }
    if deadline_s is not None:
        spec["activeDeadlineSeconds"] = deadline_s
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": name},
        "spec": spec,
    }


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
