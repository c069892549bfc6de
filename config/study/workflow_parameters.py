"""The parameters of a study's workflow, which `workflows` declares and `plan` reads."""

from __future__ import annotations

from collections.abc import Mapping

from config.webhook import HELP, NOTIFY

PART, WHOLE = "part", "1/1"
OF_CLUSTER: Mapping[str, str] = {
    "claim": "persistent volume claim that is mounted as the storage",
    "training_memory": "memory of a training pod, unless its algorithm needs more or its cell says otherwise",
    "gpu_image": "container image of training pods",
    "cpu_image": "container image of all other pods",
}
"""Name -> description of those whose defaults are the cluster's."""
OF_WORKFLOW_ALONE = ("claim", NOTIFY)
"""Parameters that are given to the workflow of a study and to none of its experiments."""
OF_WORKFLOW: Mapping[str, str] = {
    "study": "the study, as YAML (docs/studies.md)",
    "outdir": "directory of the study below the storage's mount",
    PART: "which part of the cells this workflow has, such as 2/3: large studies are split",
    **OF_CLUSTER,
    NOTIFY: HELP,
}
"""Name -> description of all."""
OF_SEARCH: Mapping[str, str] = {
    "study": "the study's file with its search, as YAML (docs/searches.md)",
    "outdir": "directory of the search below the storage's mount",
    **OF_CLUSTER,
    NOTIFY: HELP,
}
"""Name -> description of those of a search's workflow."""


def of_workflow(given: Mapping[str, str]) -> dict[str, str]:
    """Those of the given parameters that the workflow of a study or of a search has, too."""
    return {
        name: text
        for name, text in given.items()
        if name in OF_CLUSTER or name in OF_WORKFLOW_ALONE
    }
