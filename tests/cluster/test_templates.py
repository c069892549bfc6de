"""Experiments from the installed workflow templates, while the controller accepts nothing else."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster import kubernetes as k
from tests.cluster.conftest import KUBERNETES, Images, in_pods
from tests.cluster.test_argo_server import submit, token  # noqa: F401

CONTROLLER = ("configmap", "workflow-controller-configmap", "-n", "argo")
SMALL = Path(__file__).parent / "small.yaml"
SHORT = {"game": "cartpole", "runs": "1", "epochs": "40", "gpus": "0", "evaluation_episodes": "3"}


@pytest.fixture(scope="module")
def installed(
    images: Images, namespace: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """The file of cluster settings for which the templates are installed."""
    file = tmp_path_factory.mktemp("cluster") / "lab.yaml"
    file.write_text(f"{SMALL.read_text()}\ngpu_image: {images.gpu}\ncpu_image: {images.cpu}\n")
    made = k.python("-m", "workflows.submit", "--templates", "--cluster", str(file)).stdout
    k.kubectl("apply", "-n", namespace, "-f", "-", stdin=made)
    _restrict({"templateReferencing": "Strict"})
    yield file
    _restrict(None)
    k.kubectl("apply", "-n", namespace, "-k", str(KUBERNETES))


def _restrict(restrictions: Any) -> None:
    """The controller takes new settings from its ConfigMap within seconds."""
    text = None if restrictions is None else yaml.safe_dump(restrictions)
    patch = json.dumps({"data": {"workflowRestrictions": text}})
    k.kubectl("patch", *CONTROLLER, "--type=merge", "-p", patch)
    time.sleep(10)


def given(**more: str) -> list[str]:
    return [word for name, value in {**SHORT, **more}.items() for word in ("-p", f"{name}={value}")]


def test_argo_submit_from_a_template(installed: Path, restricted: str, outdir: Path) -> None:
    k.delete("t-from")
    k.argo_without_server(
        *("submit", "--from", "workflowtemplate/rl-ppo", "--name", "t-from"),
        *given(outdir=in_pods(outdir)),
    )
    assert k.ended("t-from")["phase"] == "Succeeded"
    assert (outdir / "report.html").exists()


def test_submitted_by_reference_followed_stopped_and_continued(
    installed: Path,
    restricted: str,
    outdir: Path,
    token: str,  # noqa: F811
) -> None:
    k.delete("t-reference", "t-reference-again", "t-whole")
    long = given(outdir=in_pods(outdir), epochs="4000")
    options = ["--cluster", str(installed), *long]
    assert submit(token, "ppo", "--name", "t-reference", *options, "--detach").returncode == 0
    workflow = json.loads(k.kubectl("get", "workflow", "t-reference", "-o", "json"))
    assert workflow["spec"]["workflowTemplateRef"] == {"name": "rl-ppo"}
    k.wait_for("a row", lambda: (outdir / "runs/0/train.csv").exists(), timeout_s=300)
    k.argo_without_server("stop", "t-reference")
    followed = submit(token, "--follow", "t-reference", check=False)
    assert followed.returncode == 1
    assert "run 0 train" in followed.stdout
    assert (outdir / "report.html").exists()
    again = submit(token, "ppo", "--name", "t-reference-again", *options, "--detach")
    assert again.returncode == 0
    k.wait_for(
        "the continued training",
        lambda: "from step" in (outdir / "runs/0/logs/train.log").read_text().rsplit("---", 1)[-1],
        timeout_s=300,
    )
    k.argo_without_server("stop", "t-reference-again")
    k.ended("t-reference-again")
    whole = submit(token, "ppo", "--name", "t-whole", *options, "--whole", "--detach", check=False)
    if whole.returncode == 0:
        assert k.ended("t-whole")["phase"] in ("Error", "Failed"), "Strict accepts references only"


def test_other_settings_are_refused(
    installed: Path,
    outdir: Path,
    token: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(f"{installed.read_text()}\ngrace_period_s: 77\n")
    words = ["--cluster", str(other), *given(outdir=in_pods(outdir))]
    refused = submit(token, "ppo", "--name", "t-other", *words, "--detach", check=False)
    assert refused.returncode == 2
    assert refused.stderr.startswith("refused: --cluster cannot change")


def test_every_night_has_a_directory(installed: Path, restricted: str, tmp_path: Path) -> None:
    """The CronWorkflow of `containers/kubernetes`, every minute."""
    nightly = yaml.safe_load((KUBERNETES / "nightly.yaml").read_text())
    nightly["metadata"]["name"] = "t-nightly"
    nightly["spec"]["schedules"] = ["* * * * *"]
    parameters = nightly["spec"]["workflowSpec"]["arguments"]["parameters"]
    values = {one["name"]: one["value"] for one in parameters} | SHORT
    nightly["spec"]["workflowSpec"]["arguments"]["parameters"] = [
        {"name": name, "value": value} for name, value in values.items()
    ]
    nights = Path(os.environ["RL_CLUSTER_STORAGE"]) / "nightly"
    shutil.rmtree(nights, ignore_errors=True)
    k.kubectl("delete", "cronworkflow", "t-nightly", "--ignore-not-found")
    k.kubectl("apply", "-n", "argo", "-f", "-", stdin=json.dumps(nightly))
    try:
        today = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
        k.wait_for(
            "tonight's report",
            lambda: (nights / today / "report.html").exists(),
            timeout_s=400,
        )
    finally:
        k.kubectl("delete", "cronworkflow", "t-nightly")
