"""What is sent to an Argo Server: a reference to the installed workflow template, or the whole workflow."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from config.cluster import DECIDED_BY_CLUSTER, Cluster
from config.errors import BadInput
from workflows.dag.installed import MADE_FOR, MADE_OF, reference, settings_of, version_of
from workflows.dag.manifest_yaml import Manifest
from workflows.request.submission import Submission


def to_send(
    submission: Submission, installed: Mapping[str, Any] | None, settings: Cluster | None
) -> tuple[Manifest, dict[str, str]]:
    """The workflow to create, and the values of its parameters that the template decides.

    installed: the template of the submission's kind in the cluster. settings: those of the cluster, if
    the user named a file of them. A template of another version is passed over, and so is one where the
    submission has a setting of its own that no reference can carry; a line on stderr says so. Raises
    `BadInput` for cluster settings other than those of the template.
    """
    if installed is None:
        return submission.manifest, {}
    name = installed["metadata"]["name"]
    annotations = installed["metadata"].get("annotations") or {}
    wanted = version_of(submission.kind)
    if annotations.get(MADE_OF) != wanted:
        version = annotations.get(MADE_OF, "unknown")
        _say(f"template {name} has version {version}, not {wanted}")
        return submission.manifest, {}
    if settings is not None and settings_of(settings) != annotations.get(MADE_FOR):
        raise BadInput(
            f"--cluster cannot change what template {name!r} fixed when it was installed; allowed: --whole, "
            f"or to install it for these settings: --templates --cluster FILE | kubectl apply -f -"
        )
    if submission.own:
        _say(f"template {name} does not have the {submission.own} of this request")
        return submission.manifest, {}
    sent = reference(
        submission.kind,
        submission.values,
        name=submission.name,
        deadline_s=submission.deadline_s,
    )
    return sent, _decided(submission, installed)


def _say(why: str) -> None:
    print(f"note: {why}: the whole workflow is sent", file=sys.stderr)


def _decided(submission: Submission, installed: Mapping[str, Any]) -> dict[str, str]:
    """The values of the cluster's parameters that the template decides."""
    listed = (installed["spec"].get("arguments") or {}).get("parameters") or []
    return {
        str(one["name"]): str(one.get("value", ""))
        for one in listed
        if one["name"] in DECIDED_BY_CLUSTER and one["name"] not in submission.values
    }
