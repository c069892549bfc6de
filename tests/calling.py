"""A workflow of a test's own that calls the experiment's template once for each directory."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

from config.algorithms.descriptor import READ_BY_ARGO, SINGLE

Manifest = dict[str, Any]
OF_WORKFLOW = (*READ_BY_ARGO[SINGLE], "claim")
"""Parameters of the workflow, which are the defaults of every experiment in it."""
DIRECTORIES = "{{workflow.parameters.directories}}"


def calling(manifest: Manifest, experiments: Mapping[str, Mapping[str, str]]) -> Manifest:
    """directory -> parameters, from the manifest of one experiment: the DAG `study` calls
    `experiment` for each, its exit handler calls `report` for all.
    """
    outer = copy.deepcopy(manifest)
    spec = outer["spec"]
    given = [one for one in spec["arguments"]["parameters"] if one["name"] in OF_WORKFLOW]
    listed = {"name": "directories", "value": json.dumps(list(experiments))}
    spec["arguments"]["parameters"] = [*given, listed]
    calls = [
        {"name": f"experiment-{index}", "template": "experiment", "arguments": arguments}
        for index, arguments in enumerate(map(_arguments, experiments, experiments.values()))
    ]
    reports = {"name": "report", "template": "report", "withParam": DIRECTORIES}
    reports["arguments"] = {
        "parameters": [
            {"name": "outdir", "value": "{{item}}"},
            {"name": "cpu_image", "value": "{{workflow.parameters.cpu_image}}"},
        ]
    }
    at_exit = (spec["onExit"], "notify")
    own = [template for template in spec["templates"] if template["name"] not in at_exit]
    study = {"name": "study", "dag": {"tasks": calls}}
    ending = {"name": "reports", "dag": {"tasks": [reports]}}
    return outer | {
        "spec": spec
        | {"entrypoint": "study", "onExit": "reports", "templates": [study, ending, *own]}
    }


def _arguments(outdir: str, parameters: Mapping[str, str]) -> dict[str, Any]:
    as_json = json.dumps([{"name": name, "value": value} for name, value in parameters.items()])
    given = {"outdir": outdir, "parameters": as_json}
    return {"parameters": [{"name": name, "value": value} for name, value in given.items()]}
