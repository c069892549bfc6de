"""The manifest of a study with many experiments, run to its end with a trivial program in each pod."""

from __future__ import annotations

import copy
import gzip
import json
from typing import Any

import pytest

from config import pipeline
from config.algorithms.descriptor import ACTOR_LEARNER, SELF_PLAY, SINGLE
from config.cluster import load_cluster
from config.resolve import resolve
from steps.directory.study import MOST_PODS, pods
from workflows.dag.render import rendered_study, with_values
from workflows.local import Capacity, WorkflowStatus, run

pytestmark = pytest.mark.slow

RUNS = 5
ACTIVE = 4
GAMES = ("cartpole", "acrobot", "lunarlander", "mountaincar")
NAMES = {
    SINGLE: [f"ppo-{game}-{value}" for game in GAMES for value in ("0p0003", *"abcdef")],
    ACTOR_LEARNER: [f"impala-{game}-{value}" for game in GAMES for value in ("0p001", "0p0003")],
    SELF_PLAY: [f"alphazero-connect-four-{value}" for value in "abcd"],
}
OUTPUTS: dict[str, str] = {
    **{pipeline.EXPERIMENTS[topology]: json.dumps(names) for topology, names in NAMES.items()},
    "runs": json.dumps(list(range(RUNS))),
    "trained": ",",
    "training_memory": "1Mi",
    "gpus": "0",
    "actor_gpus": "0",
    "worker_gpus": "0",
    "gpu_image": "rl:1-gpu",
    "cpu_image": "rl:1-cpu",
    "actor_image": "",
    "actor_command": "",
}
"""What `plan` and `prepare` pass on; every number is 1."""
WRITE = """
import json, os, pathlib, sys
for name, text in json.loads(sys.argv[1]).items():
    pathlib.Path(os.environ["OUTPUTS"], name).write_text(text)
"""
PLAIN_BYTES, COMPRESSED_BYTES = 2000, 160
"""A pod's share of the status, at most (seen: 1745 and 125 of 1244 pods): `MOST_PODS` of them fit into the
1 MB that a compressed one may have.
"""


def trivial(manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest with programs that only write the outputs that have no default."""
    changed = copy.deepcopy(manifest)
    for template in changed["spec"]["templates"]:
        if "container" not in template:
            continue
        needed = [
            one["name"]
            for one in template.get("outputs", {}).get("parameters", [])
            if "default" not in one["valueFrom"]
        ]
        body = template["container"]
        body["command"], body["args"] = ["true"], []
        if needed:
            values = {name: OUTPUTS.get(name, "1") for name in needed}
            body["command"] = ["python3", "-c", WRITE]
            body["args"] = [json.dumps(values)]
        body["resources"] = {"requests": {"cpu": "10m", "memory": "1Mi"}}
        template.pop("podSpecPatch", None)
    return changed


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[WorkflowStatus, int]:
    """The status at the end, and the largest number of experiments that were active at once."""
    folder = tmp_path_factory.mktemp("large")
    manifest = trivial(rendered_study(load_cluster(), ACTIVE))
    given = {"study": "…", "outdir": "/storage/large"}
    most = 0

    def look(status: WorkflowStatus) -> None:
        nonlocal most
        active = [
            node
            for node in status.nodes.values()
            if node.type == "DAG" and node.template.startswith("experiment") and not node.ended
        ]
        most = max(most, len(active))

    status = run(
        with_values(manifest, given, name="wf"),
        storage=folder / "storage",
        logs=folder / "logs",
        capacity=Capacity(2.0),
        on_change=look,
    )
    return status, most


def test_forty_experiments_of_five_runs_end(ended: tuple[WorkflowStatus, int]) -> None:
    status, _ = ended
    assert status.phase == "Succeeded", status.message
    made = [node.name for node in status.nodes.values() if node.template.startswith("average")]
    names = [name for names in NAMES.values() for name in names]
    assert len(names) == 40
    assert sorted(name for name in names for one in made if f":{name})." in one) == sorted(
        2 * names
    ), "each has an average, as a whole and as an attempt"


def test_no_more_experiments_are_active_than_the_setting_says(
    ended: tuple[WorkflowStatus, int],
) -> None:
    assert ended[1] == ACTIVE


def test_the_number_of_pods_is_known_before(ended: tuple[WorkflowStatus, int]) -> None:
    """A workflow that has more is split."""
    status, _ = ended
    found = sum(node.type == "Pod" for node in status.nodes.values())
    alone = {SINGLE: ("ppo", {}), ACTOR_LEARNER: ("impala", {"actors": "1"})}
    alone[SELF_PLAY] = ("alphazero", {"workers": "1"})
    expected = 0
    for topology, (algorithm, members) in alone.items():
        resolved = resolve(algorithm, {"runs": str(RUNS), "outdir": "/x", **members})
        expected += len(NAMES[topology]) * pods(resolved)
    own = [step for step in pipeline.STUDY_STEPS if step.scope != "study-round"]
    assert found == expected + len(own)


def test_what_a_pod_takes_of_the_status(ended: tuple[WorkflowStatus, int]) -> None:
    status, _ = ended
    count = sum(node.type == "Pod" for node in status.nodes.values())
    written = json.dumps(status.as_dict()["nodes"], separators=(",", ":")).encode()
    assert len(written) / count < PLAIN_BYTES
    assert len(gzip.compress(written)) / count < COMPRESSED_BYTES
    assert MOST_PODS * COMPRESSED_BYTES < 1_000_000
