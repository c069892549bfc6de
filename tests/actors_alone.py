"""The actors of a manifest alone, by the local engine as it is started: their learner, and the pod that
waits for it, are left out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from config.cluster import load_cluster
from tests.outside import outside
from workflows.dag import render

RESOURCES = {"cpu": "1m", "memory": "1Mi"}


def manifest_of_actors() -> dict[str, Any]:
    """One attempt of each actor of run 0, with requests that every machine has room for."""
    manifest = render.build_manifest("impala", load_cluster())
    spec = manifest["spec"]
    spec |= {"entrypoint": "train-actors"}
    del spec["onExit"]
    of_run = {"run": "0", "trained": ","}
    spec["arguments"]["parameters"] += [{"name": n, "value": v} for n, v in of_run.items()]
    spec["templates"] = [one for one in spec["templates"] if one["name"].startswith("train-actor")]
    (loop,) = (one for one in spec["templates"] if one["name"] == "train-actors")
    (task,) = (one for one in loop["dag"]["tasks"] if one["name"] == "actor")
    del task["dependencies"]
    loop["dag"]["tasks"] = [task]
    (actor,) = (one for one in spec["templates"] if one["name"] == "train-actor")
    del actor["retryStrategy"]
    actor["container"]["resources"]["requests"] = RESOURCES
    return manifest


def run_actors(folder: Path, *, environment: dict[str, str], **given: str) -> tuple[int, str]:
    """The engine's exit code, and all that it and the actors printed."""
    file = folder / "actors.yaml"
    file.write_text(json.dumps(manifest_of_actors()))  # which is YAML
    words = [word for name, value in given.items() for word in ("-p", f"{name}={value}")]
    command = [sys.executable, "-m", "workflows.local", str(file), "--name=actors"]
    ended = subprocess.run(
        [*command, "--logs=logs", *words], cwd=folder, env=outside(**environment), text=True, timeout=120,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    printed = [log.read_text() for log in sorted((folder / "logs").glob("*.log"))]
    return ended.returncode, "".join([ended.stdout, *printed])
