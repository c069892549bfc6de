"""The pods of trackers in the DAG: nothing depends on them, and they hide nothing. On the local engine, with
a short program in the place of each step.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from config import pipeline
from config.cluster import load_cluster
from config.tracking import SECRETS, VARIABLES
from workflows.dag.layout import Layout
from workflows.dag.render import build_manifest
from workflows.dag.tasks import read_tasks
from workflows.local.engine import run

STEP = """\
import json, os, pathlib, sys
name, *words = sys.argv[1:]
outputs = pathlib.Path(os.environ["OUTPUTS"])
told = {"runs": "[0, 1]", "trained": ",", "track": TRACK, "gpus": "0", "runs_per_gpu": "1"}
told["training_memory"] = "1Mi"
for output in words if name == "prepare" else []:
    (outputs / output).write_text(told.get(output, "image"))
seen = {name: value for name, value in os.environ.items() if "SECRET" in value}
with open(pathlib.Path(os.environ["STORAGE"]) / "seen.jsonl", "a") as file:
    file.write(json.dumps([name, seen]) + "\\n")
sys.exit(FAIL.get(name, 0))
"""


def experiment(tmp_path: Path, track: str, fail: dict[str, int] | None = None) -> Any:
    """The end of an experiment whose steps do nothing, and what each saw. fail: step -> exit code."""
    manifest = build_manifest("ppo", load_cluster())
    program = STEP.replace("TRACK", repr(track), 1).replace("FAIL", repr(fail or {}))
    for template in manifest["spec"]["templates"]:
        if "container" not in template:
            continue
        outputs = (template.get("outputs") or {}).get("parameters") or []
        listed = [one["name"] for one in outputs if "default" not in one["valueFrom"]]
        named = [*listed, *(["track"] if template["name"] == "prepare" else [])]
        template["container"] |= {
            "command": ["python3", "-c", program],
            "args": [template["name"], *named],
        }
        template["container"]["resources"] = {}
        template.pop("retryStrategy")
    storage = tmp_path / "storage"
    storage.mkdir()
    status = run(
        manifest,
        parameters={"track": track, "outdir": "/storage/x"},
        storage=storage,
        logs=tmp_path,
    )
    lines = (storage / "seen.jsonl").read_text().splitlines()
    return manifest, status, [json.loads(line) for line in lines]


def test_without_trackers_there_is_no_pod_and_nothing_is_shown(tmp_path: Path) -> None:
    manifest, status, seen = experiment(tmp_path, "")
    assert status.phase == "Succeeded"
    assert not {name for name, _ in seen} & {pipeline.TRACK, pipeline.TRACK_REST}
    layout = Layout.of(manifest)
    assert "track" not in layout.listed(2)
    shown = read_tasks(status.as_dict(), status.name, layout, 2)
    assert not [pod for pod in shown.pods() if "track" in pod.path]


def test_a_tracker_that_fails_fails_nothing(tmp_path: Path) -> None:
    fail = {pipeline.TRACK: 1, pipeline.TRACK_REST: 1}
    _, status, seen = experiment(tmp_path, "wandb", fail)
    assert status.phase == "Succeeded"
    counted = [name for name, _ in seen]
    assert (counted.count(pipeline.TRACK), counted.count(pipeline.TRACK_REST)) == (2, 1)
    assert {"evaluate", "average", "plot-average", "report"} <= set(counted)


def test_a_report_that_fails_is_not_hidden_by_what_is_sent_after_it(tmp_path: Path) -> None:
    _, status, seen = experiment(tmp_path, "wandb", {"report": 5})
    assert pipeline.TRACK_REST in [name for name, _ in seen]
    assert status.phase == "Failed"


def test_secrets_reach_these_pods_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As they are: a mount's path in one is not replaced by a folder's."""
    monkeypatch.setenv("WANDB_API_KEY", "SECRET /tmp/x")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    _, _, seen = experiment(tmp_path, "wandb")
    for name, variables in seen:
        expected = name in (pipeline.TRACK, pipeline.TRACK_REST)
        assert variables == ({"WANDB_API_KEY": "SECRET /tmp/x"} if expected else {}), name


def test_no_secret_is_named_by_value_and_none_must_exist() -> None:
    manifest = build_manifest("ppo", load_cluster())
    for template in manifest["spec"]["templates"]:
        for one in template.get("container", {}).get("env") or []:
            if one["name"] in VARIABLES:
                secret = {"name": "tracking", "key": one["name"], "optional": True}
                assert one["valueFrom"] == {"secretKeyRef": secret} and "value" not in one
    assert set(SECRETS) < set(VARIABLES)


def test_they_ask_for_next_to_nothing() -> None:
    """A machine with room for a training has room for what follows it."""
    manifest = build_manifest("ppo", load_cluster())
    for name in (pipeline.TRACK, pipeline.TRACK_REST):
        (leaf,) = [one for one in manifest["spec"]["templates"] if one["name"] == name]
        asked = leaf["container"]["resources"]["requests"]
        assert asked == {"cpu": "20m", "memory": "512Mi"}
