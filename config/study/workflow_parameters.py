"""The parameters of a study's workflow, which `workflows` declares and `plan` reads."""

from __future__ import annotations

from collections.abc import Mapping

PART, WHOLE = "part", "1/1"
OF_CLUSTER: Mapping[str, str] = {
    "claim": "persistent volume claim that is mounted as the storage",
    "training_memory": "memory of a training pod, unless its algorithm needs more or its cell says otherwise",
    "gpu_image": "container image of training pods",
    "cpu_image": "container image of all other pods",
}
"""Name -> description of those whose defaults are the cluster's."""
OF_WORKFLOW: Mapping[str, str] = {
    "study": "the study, as YAML (docs/studies.md)",
    "outdir": "directory of the study below the storage's mount",
    PART: "which part of the cells this workflow has, such as 2/3: large studies are split",
    **OF_CLUSTER,
}
"""Name -> description of all."""
OF_SEARCH: Mapping[str, str] = {
    "study": "the study's file with its search, as YAML (docs/search.md)",
    "outdir": "directory of the search below the storage's mount",
    **OF_CLUSTER,
}
"""Name -> description of those of a search's workflow."""
