"""What the roles in `containers/kubernetes` allow."""

from __future__ import annotations

import yaml

from tests.outside import ROOT

SUBMITTER = ROOT / "containers" / "kubernetes" / "submitter.yaml"


def test_a_person_who_submits_may_retry() -> None:
    """`argo retry` updates the workflow and deletes the pods that it repeats."""
    (role,) = (one for one in yaml.safe_load_all(SUBMITTER.read_text()) if one["kind"] == "Role")
    verbs = {
        resource: set(rule["verbs"]) for rule in role["rules"] for resource in rule["resources"]
    }
    assert {"get", "update"} <= verbs["workflows"]
    assert {"get", "list", "delete"} <= verbs["pods"]
