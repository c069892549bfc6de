"""Both engines on the same small workflows, and the differences between what they made of them.

    python -m tests.cluster.comparison [NAME…]     prints one line per difference; exit code 1 if there is any
    python -m tests.cluster.comparison --record    writes what the controller makes of `cases.py` into `tests/contract/further-cases.json`

The workflows are the cases of `tests/contract/controller-cases.json` and those of `cases.py`. What
was recorded is compared by `tests/contract/` without a cluster.
"""

from __future__ import annotations

import concurrent.futures
import copy
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.cluster import kubernetes as k
from tests.cluster.cases import more_cases

Json = dict[str, Any]
AT_ONCE, LIMITED_AT_ONCE = (
    12,
    2,
)  # workflows on the cluster, whose one node has two cores; with a time limit, which counts a pod's wait
LIMITS = ("activeDeadlineSeconds", '"timeout"', "maxDuration")
BY_KUBELET, BY_CONTROLLER = (
    "Pod was active on the node longer than the specified deadline",
    "Step exceeded its deadline",
)
RETRY_ENDED = "retry exceeded workflow deadline"
LOCAL_AT_ONCE = 3
LIMIT_S = 300
CONTRACT = k.ROOT / "tests" / "contract"
TIMES = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}\S*(?: \+0000 UTC)?")


def controller_cases() -> list[Json]:
    """The workflows whose endings on a real controller are known; the one that hangs there is left
    out."""
    cases = json.loads((CONTRACT / "controller-cases.json").read_text())
    return [case["workflow"] for case in cases if not case["seen"].get("hangs")]


def all_cases() -> list[Json]:
    return controller_cases() + more_cases()


def batches(workflows: Iterable[Json]) -> list[list[Json]]:
    """What runs on the cluster at once: few of the workflows with a time limit, so that their pods
    start at once, more of the others."""
    limited, others = [], []
    for workflow in workflows:
        (limited if any(limit in json.dumps(workflow) for limit in LIMITS) else others).append(
            workflow
        )
    sizes = ((limited, LIMITED_AT_ONCE), (others, AT_ONCE))
    return [some[i : i + size] for some, size in sizes for i in range(0, len(some), size)]


def for_cluster(workflow: Json) -> Json:
    """The same workflow with the cluster's own Python image and the pods' service account."""
    changed = _patient(
        json.loads(json.dumps(workflow).replace('"python:3.11"', f'"{k.REGISTRY}/python:3.11"'))
    )
    changed["spec"].setdefault("serviceAccountName", "experiment")
    return dict(changed)


def for_local(workflow: Json) -> Json:
    changed = _patient(copy.deepcopy(workflow))
    changed["spec"].setdefault("serviceAccountName", "experiment")
    return changed


def _patient(workflow: Json) -> Json:
    """Limits of 5 s become 20 s: a pod's start counts, and on a busy node that alone takes as
    long."""
    for template in workflow["spec"]["templates"]:
        if template.get("activeDeadlineSeconds") == 5:
            template["activeDeadlineSeconds"] = 20
        if template.get("timeout") == "5s":
            template["timeout"] = "20s"
    return workflow


def summary(status: Mapping[str, Any]) -> Json:
    """What must be equal: the workflow's phase and message; each node's type, phase, message, exit
    code and outputs."""
    nodes = {}
    for node in status.get("nodes", {}).values():
        outputs = node.get("outputs") or {}
        nodes[node["name"]] = {
            "type": node["type"],
            "phase": node["phase"],
            "message": _words(node.get("message")),
            "exitCode": outputs.get("exitCode"),
            "result": outputs.get("result"),
            "outputs": {
                p["name"]: p["value"]
                for p in outputs.get("parameters", [])
                if p.get("value") is not None
            },
        }
    return {"phase": status.get("phase"), "message": _words(status.get("message")), "nodes": nodes}


def _words(message: str | None) -> str:
    return TIMES.sub("<time>", message or "")


def differences(name: str, cluster: Json, local: Json) -> list[str]:
    """One line per difference between two summaries."""
    lines = [
        f"{name}: {key}: cluster {cluster[key]!r}, local {local[key]!r}"
        for key in ("phase", "message")
        if cluster[key] != local[key]
    ]
    for node in sorted(cluster["nodes"].keys() | local["nodes"].keys()):
        there, here = cluster["nodes"].get(node), local["nodes"].get(node)
        if there is None or here is None:
            lines.append(
                f"{name}: node {node}: only {'local' if there is None else 'on the cluster'}: {here or there}"
            )
            continue
        lines += [
            f"{name}: node {node}: {key}: cluster {there[key]!r}, local {here[key]!r}"
            for key in there
            if there[key] != here[key]
        ]
    return lines


def on_cluster(workflows: Iterable[Json]) -> dict[str, Json]:
    """Runs the workflows on the controller, a batch at a time; summaries by name."""
    seen = {}
    for batch in batches(workflows):
        names = [w["metadata"]["name"] for w in batch]
        k.delete(*names)
        _forget_files(names)
        for workflow in batch:
            k.kubectl("create", "-f", "-", stdin=json.dumps(for_cluster(workflow)))
        for name in names:
            seen[name] = summary(k.ended(name, timeout_s=LIMIT_S))
        k.delete(*names)
    return seen


def _forget_files(names: Iterable[str]) -> None:
    for name in names:
        Path(os.environ["RL_CLUSTER_STORAGE"], name).unlink(missing_ok=True)


def on_this_machine(workflows: Iterable[Json]) -> dict[str, Json]:
    """Runs the workflows by `python -m workflows.local`; summaries by name."""
    with concurrent.futures.ThreadPoolExecutor(LOCAL_AT_ONCE) as pool:
        return dict(pool.map(_one_here, workflows))


def _one_here(workflow: Json) -> tuple[str, Json]:
    name = workflow["metadata"]["name"]
    with tempfile.TemporaryDirectory(prefix=f"{name}-") as folder:
        manifest, status, storage = (
            Path(folder, part) for part in ("workflow.json", "status.json", "storage")
        )
        storage.mkdir()
        manifest.write_text(json.dumps(for_local(workflow)))
        ended = k.python(
            "-m",
            "workflows.local",
            str(manifest),
            "--status",
            str(status),
            "--storage",
            str(storage),
            check=False,
            timeout_s=LIMIT_S,
        )
        if not status.exists():
            return name, {
                "phase": "refused",
                "message": (ended.stderr or ended.stdout).strip()[-300:],
                "nodes": {},
            }
        return name, summary(json.loads(status.read_text()))


def run_here(name: str, manifest: Path, parameters: list[str], folder: Path) -> Json:
    """An experiment's manifest on this machine, its storage in `folder / "storage"`; the summary of
    its end."""
    (folder / "storage").mkdir()
    status = folder / "status.json"
    places = ["--name", name, "--status", str(status), "--storage", str(folder / "storage")]
    k.python("-m", "workflows.local", str(manifest), *parameters, *places)
    return summary(json.loads(status.read_text()))


def compare(workflows: list[Json]) -> dict[str, list[str]]:
    """Differences by workflow name; an empty list where both engines agree."""
    there, here = on_cluster(workflows), on_this_machine(workflows)
    for workflow in workflows:
        if "activeDeadlineSeconds" in workflow["spec"]:
            for seen in (there, here):
                _whoever_was_first(seen[workflow["metadata"]["name"]])
    return {name: differences(name, there[name], here[name]) for name in there}


def _whoever_was_first(seen: Json) -> None:
    """At a workflow's deadline both controller and kubelet end its pods: the first words the
    message, and only the kubelet sees a code."""
    for node in seen["nodes"].values():
        if node["message"] in (BY_KUBELET, BY_CONTROLLER):
            node |= {"message": BY_CONTROLLER, "exitCode": None}
        elif node["message"].startswith(RETRY_ENDED):
            node["exitCode"] = None


def recorded(seen: dict[str, Json], workflows: list[Json]) -> list[Json]:
    """The form of `controller-cases.json`: what is empty is left out."""
    cases = []
    for workflow in workflows:
        name = workflow["metadata"]["name"]
        nodes = [
            {"name": n} | {key: v for key, v in node.items() if v and key != "result"}
            for n, node in sorted(seen[name]["nodes"].items())
        ]
        ending = {"phase": seen[name]["phase"], "message": seen[name]["message"], "nodes": nodes}
        cases.append({"name": name.removeprefix("m-"), "seen": ending, "workflow": workflow})
    return cases


def main(names: list[str]) -> int:
    if names == ["--record"]:
        cases = recorded(on_cluster(more_cases()), more_cases())
        (CONTRACT / "further-cases.json").write_text(json.dumps(cases, indent=1) + "\n")
        return 0
    chosen = [
        w for w in all_cases() if not names or w["metadata"]["name"].removeprefix("m-") in names
    ]
    found = compare(chosen)
    for lines in found.values():
        print(*lines, sep="\n", end="\n" if lines else "")
    agreed = sum(not lines for lines in found.values())
    print(
        f"{len(found)} workflows through both engines: {agreed} agree, {len(found) - agreed} differ"
    )
    return int(agreed != len(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
