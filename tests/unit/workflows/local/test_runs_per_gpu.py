"""`runs_per_gpu`: which values go together, what a training pod asks for, and which pretended GPU each
training sees on this machine."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from config.cluster import load_cluster
from config.errors import BadInput
from config.resolve import resolve
from tests.outside import outside
from workflows.dag import render
from workflows.local.machine.pod_spec import build
from workflows.sharing import gpus_of_learner, with_gpus

REQUESTS = {"cpu": "1m", "memory": "1Mi"}


@pytest.mark.parametrize(
    ("algorithm", "given", "why"),
    [
        ("ppo", {"runs_per_gpu": "0"}, "'runs_per_gpu' cannot be '0'; allowed: an integer from 1"),
        ("ppo", {"runs_per_gpu": "65"}, "'runs_per_gpu' cannot be '65'"),
        ("ppo", {"runs_per_gpu": "2", "gpus": "0"}, "'runs_per_gpu' cannot be 2 with gpus=0"),
    ],
)
def test_numbers_that_do_not_go_together_are_refused(
    algorithm: str, given: dict[str, str], why: str
) -> None:
    with pytest.raises(BadInput, match=re.escape(why)):
        resolve(algorithm, given)


def test_it_is_not_part_of_the_identity() -> None:
    shared = resolve("ppo", {"runs_per_gpu": "4"})
    assert shared.identity_hash == resolve("ppo", {}).identity_hash
    assert shared.read_by_argo()["runs_per_gpu"] == "4"


@pytest.mark.parametrize(
    ("algorithm", "per_gpu", "name"),
    [
        ("ppo", "1", "nvidia.com/gpu"),
        ("ppo", "3", "nvidia.com/gpu.shared"),
        ("impala", "3", "nvidia.com/gpu.shared"),
        ("alphazero", "3", "nvidia.com/gpu.shared"),
    ],
)
def test_a_training_asks_for_a_whole_gpu_or_its_part(
    algorithm: str, per_gpu: str, name: str
) -> None:
    template = of_training(render.rendered(algorithm, load_cluster()))
    values = {
        "trained": ",", "run": "0", "gpus": "1", "runs_per_gpu": per_gpu, "training_memory": "1Gi",
    }  # fmt: skip
    tags = {f"inputs.parameters.{key}": value for key, value in values.items()}
    annotations = template["metadata"]["annotations"]
    filled = {key: text.replace("{{inputs.parameters.runs_per_gpu}}", per_gpu) for key, text in annotations.items()}  # fmt: skip
    asked = build({**template, "metadata": {"annotations": filled}}, "", tags).resources
    assert (asked.gpu_name, asked.gpus, asked.pods_per_gpu) == (name, 1, int(per_gpu))


def of_training(manifest: dict[str, Any]) -> dict[str, Any]:
    return next(one for one in manifest["spec"]["templates"] if one["name"] == "train")


@pytest.mark.parametrize(("per_gpu", "at_once"), [(1, 2), (2, 4)])
def test_trainings_share_gpus_as_far_as_they_may(
    tmp_path: Path, per_gpu: int, at_once: int
) -> None:
    """Five trainings, two GPUs: as many as may be at once wait for each other, so all are there."""
    (tmp_path / "told").mkdir()
    file = tmp_path / "trainings.yaml"
    file.write_text(json.dumps(five_trainings(at_once)))
    command = [sys.executable, "-m", "workflows.local", str(file), "--name=trainings"]
    ended = subprocess.run(
        [*command, "-p", f"runs_per_gpu={per_gpu}"], cwd=tmp_path, text=True, timeout=120,
        env=outside(CUDA_VISIBLE_DEVICES="0,GPU-b"), capture_output=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told = [json.loads(path.read_text()) for path in (tmp_path / "told").glob("told-*.json")]
    assert len(told) == 5
    for gpu in ("0", "GPU-b"):
        there = [one for one in told if one["CUDA_VISIBLE_DEVICES"] == gpu]
        most = max(sum(a["begun"] <= b["begun"] < a["ended"] for a in there) for b in there)
        assert most <= per_gpu


def five_trainings(at_once: int) -> dict[str, Any]:
    """A loop over the template `train` of PPO, with another program in it."""
    manifest = render.build_manifest("ppo", load_cluster())
    spec = manifest["spec"]
    training = of_training(manifest)
    training["container"] |= {
        "command": ["python", "-m", "tests.seeing_actor", "told", str(at_once)],
        "args": [],
    }
    training["container"]["resources"]["requests"] = REQUESTS
    del training["retryStrategy"]
    training["outputs"]["parameters"] = [
        {**one, "valueFrom": {**one["valueFrom"], "default": ""}}
        for one in training["outputs"]["parameters"]
    ]
    names = [one["name"] for one in training["inputs"]["parameters"]]
    of_run = {"run": "{{item}}", "trained": ",", "outdir": "/storage/x"}
    arguments = [
        {"name": name, "value": of_run.get(name, f"{{{{workflow.parameters.{name}}}}}")}
        for name in names
    ]
    loop = {
        "name": "runs", "template": "train", "arguments": {"parameters": arguments},
        "withSequence": {"count": "5"},
    }  # fmt: skip
    del spec["onExit"]
    spec |= {"entrypoint": "main"}
    spec["templates"] = [{"name": "main", "dag": {"tasks": [loop]}}, training]
    return manifest


def test_runs_with_actors_share_gpus_unless_the_actors_use_them() -> None:
    cluster = load_cluster()
    assert cluster.parallelism_with_actors == 2
    shared = resolve("impala", {"runs_per_gpu": "2"})
    assert with_gpus(cluster, shared, 1).parallelism_with_actors == 2
    several = resolve("impala", {"runs_per_gpu": "2", "learners": "2"})
    assert with_gpus(cluster, several, 1).parallelism_with_actors == 1
    many = resolve("impala", {"runs_per_gpu": "2", "learners": "4", "actors": "4"})
    with pytest.raises(
        BadInput, match="the learners' 2 GPUs and actor_gpus=0 are more than the 1 "
    ):
        with_gpus(cluster, many, 1)
    alone = resolve("impala", {})
    assert with_gpus(cluster, alone, 1).parallelism_with_actors == 1
    with_actors = resolve("impala", {"runs_per_gpu": "2", "actor_gpus": "1", "actors": "1"})
    assert gpus_of_learner(with_actors) == 1
    assert with_gpus(cluster, with_actors, 3).parallelism_with_actors == 1
