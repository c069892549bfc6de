"""What a submission says, what a job does on its node, and what is made of an end; without any Slurm."""

from __future__ import annotations

import datetime
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from config.pipeline import EARLIER_JOBS
from config.slurm import read_slurm
from workflows.local.executor import Order
from workflows.local.machine.mounts import Mounts
from workflows.local.machine.pod_spec import PodSpec
from workflows.local.machine.slots import Resources
from workflows.slurm import job, scripts, states
from workflows.slurm.records import Record, Said
from workflows.slurm.states import judge

AT = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def order(template: str = "train", gpus: int = 0, *arguments: str) -> Order:
    resources = Resources(0.7, gpus, memory_bytes=2**31)
    spec = PodSpec(container={}, resources=resources, grace_s=30, deadline_s=None, timeout_s=None)
    return Order(
        pod="w-a-1",
        template=template,
        spec=spec,
        arguments=[sys.executable, "-m", "steps.train", *arguments],
        environment={"STORAGE": "/shared/storage", "PATH": "/login/bin", "DISPLAY": ":7"},
        folder=Path("/shared/code"),
        log=Path("/shared/state/logs/a.log"),
        mounts=Mounts(
            {"/storage": Path("/shared/storage"), "/temporary": Path("/scratch/rl-1/tmp")}
        ),
        tell=lambda _: None,
    )


def test_requests_and_placement_become_options() -> None:
    slurm = read_slurm(
        {
            "gpu": {"partition": "a", "account": "b", "qos": "c", "time_limit": "8:00:00", "gres": "gpu:a100",
                    "constraint": "d&e", "reservation": "f", "options": ["--nice=10"]},
        }
    )  # fmt: skip
    assert scripts.options(order(gpus=2), slurm) == [
        "--nodes=1", "--ntasks=1", "--cpus-per-task=1", "--mem=2048M", "--gres=gpu:a100:2",
        "--partition=a", "--account=b", "--qos=c", "--time=8:00:00", "--constraint=d&e",
        "--reservation=f", "--nice=10", "--signal=B:USR1@120", "--requeue", "--output=/dev/null",
        "--chdir=/", "--export=PATH",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("template", "gpus", "pool"),
    [
        ("train", 1, "gpu"), ("train", 0, "cpu"), ("evaluate", 0, "cpu"), ("train-actor", 0, "actor"),
        ("train-worker-until", 1, "actor"), ("train-with-workers", 1, "gpu"),
    ],
)  # fmt: skip
def test_only_pods_that_request_gpus_are_jobs_of_that_pool(
    template: str, gpus: int, pool: str
) -> None:
    assert scripts.pool_of(order(template, gpus)) == pool


def test_the_command_line_of_apptainer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPLAY", ":7")
    pool = {"image": "/images/rl.sif", "apptainer_options": ["--no-home"], "before": ["numactl"]}
    slurm = read_slurm({"cpu": pool})
    scratch = Path("/scratch/rl-1")
    made = scripts.order_of(order(), 0, slurm, scratch, Path("/shared/storage"))
    assert made["arguments"] == [
        "numactl", "apptainer", "exec", "--nv", "--cleanenv", "--bind=/shared/storage",
        "--bind=/scratch/rl-1", "--bind=/shared/code", "--pwd=/shared/code", "--no-home",
        "/images/rl.sif", "python", "-m", "steps.train",
    ]  # fmt: skip
    assert made["folders"] == ["/scratch/rl-1", "/scratch/rl-1/tmp"]
    assert "DISPLAY" not in made["environment"], "it is the login node's"
    assert made["inside"] == ["STORAGE"], "the image has a PATH of its own"


def test_without_an_image_the_command_is_as_it_is() -> None:
    made = scripts.order_of(order(), 0, read_slurm(None), Path("/scratch/rl-1"), Path("/s"))
    assert made["arguments"][0] == sys.executable and not made["in_container"]


def test_a_pod_is_told_how_many_of_its_jobs_the_limit_has_ended() -> None:
    first, third = (
        scripts.order_of(order(), link, read_slurm(None), Path("/scratch/rl-1"), Path("/s"))
        for link in (0, 2)
    )
    assert EARLIER_JOBS not in first["environment"]
    assert (third["key"], third["environment"][EARLIER_JOBS]) == (f"{order().pod}.2", "2")


def said(code: int, *, terminated: bool = False, warned: bool = False, error: str = "") -> Said:
    return Said(code, terminated, warned, error, AT)


@pytest.mark.parametrize(
    ("state", "left", "slurm_code", "kind", "code"),
    [
        (None, said(0), None, "ended", 0),
        (None, said(3), None, "ended", 3),
        ("FAILED", said(75, terminated=True), None, "ended", 75),
        ("FAILED", said(75, warned=True), None, "next", 75),
        ("TIMEOUT", said(75, terminated=True), None, "next", 75),
        ("COMPLETED", said(0, warned=True), None, "ended", 0),
        ("OUT_OF_MEMORY", said(137), None, "ended", 137),
        ("OUT_OF_MEMORY", None, None, "ended", 137),
        ("OUT_OF_MEMORY", said(0), None, "ended", 0),
        ("TIMEOUT", None, None, "ended", 75),
        ("PREEMPTED", None, None, "ended", 75),
        ("DEADLINE", None, None, "ended", 143),
        ("FAILED", None, (127, 0), "ended", 127),
        ("FAILED", None, (0, 9), "ended", 137),
        ("FAILED", None, (0, 53), "lost", 0),
        ("NODE_FAIL", None, None, "lost", 0),
        ("BOOT_FAIL", None, None, "lost", 0),
        ("CANCELLED", None, None, "lost", 0),
        ("COMPLETED", None, None, "lost", 0),
        (None, None, None, "lost", 0),
    ],
)
def test_what_is_made_of_an_end(
    state: str | None, left: Said | None, slurm_code: tuple[int, int] | None, kind: str, code: int
) -> None:
    verdict = judge(state, left, slurm_code)
    assert (verdict.kind, verdict.code) == (kind, code)


def test_after_a_signal_slurms_own_word_decides() -> None:
    assert states.is_final(said(0)) and states.is_final(said(1))
    assert not states.is_final(said(75, terminated=True))
    assert not states.is_final(said(75, warned=True))
    assert not states.is_final(said(137))


class Node:
    """Runs `job.py` as slurmd would."""

    def __init__(self, folder: Path) -> None:
        self.record = Record(folder / "state")
        self.record.make()
        self.folder = folder

    def order(self, *arguments: str, **fields: Any) -> None:
        made = {
            "key": "a.0", "arguments": list(arguments), "environment": {"PATH": os.environ["PATH"]}, "inside": [],
            "in_container": False, "folder": str(self.folder), "log": str(self.folder / "log"), "folders": [],
            "scratch": str(self.folder / "scratch"), "gpus": 0, "address": "name", "limit_s": None, "warning_s": 5,
        }  # fmt: skip
        self.record.write_order("b", 0, {**made, **fields})

    def start(
        self, job_id: str = "7", late_s: str = "5", **variables: str
    ) -> subprocess.Popen[str]:
        words = [sys.executable, "-I", job.__file__, str(self.record.root), "b", late_s]
        environment = {**os.environ, "SLURM_JOB_ID": job_id, **variables}
        return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)

    def run(self, job_id: str = "7", **variables: str) -> int:
        with self.start(job_id, **variables) as process:
            process.communicate(timeout=20)
        return process.returncode

    @property
    def log(self) -> str:
        path = self.folder / "log"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_job_runs_its_pod_and_says_how_it_ended(node: Node) -> None:
    node.order("sh", "-c", "echo hello; exit 3")
    assert node.run() == 3 and node.log == "hello\n"
    left = node.record.said("a.0")
    assert left is not None and (left.code, left.terminated, left.warned) == (3, False, False)
    claim = node.record.claim("a.0")
    assert claim is not None and claim[0] == "7"


def test_of_two_jobs_with_the_same_order_one_runs(node: Node) -> None:
    node.order("sh", "-c", "echo once; sleep 1")
    with node.start("7") as first:
        while not node.log:
            time.sleep(0.02)
        assert node.run("8") == 0 and first.poll() is None
        first.communicate(timeout=20)
    assert node.log == "once\n"


def test_a_pod_that_ended_by_itself_is_not_run_again(node: Node) -> None:
    node.order("sh", "-c", "echo once; exit 1")
    assert node.run() == 1
    assert node.run(SLURM_RESTART_COUNT="1") == 0 and node.log == "once\n"


def test_an_order_may_be_late(node: Node) -> None:
    with node.start() as process:
        time.sleep(0.7)
        node.order("sh", "-c", "echo late")
        process.communicate(timeout=20)
    assert process.returncode == 0 and node.log == "late\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_signals_reach_the_pod_which_may_be_begun_again(node: Node, number: signal.Signals) -> None:
    node.order("sh", "-c", "trap 'exit 75' TERM; echo ready; while :; do sleep 0.05; done")
    with node.start() as process:
        while not node.log:
            time.sleep(0.02)
        process.send_signal(number)
        process.communicate(timeout=20)
    assert process.returncode == 75
    left = node.record.said("a.0")
    assert left is not None
    assert (left.terminated, left.warned) == (number == signal.SIGTERM, number == signal.SIGUSR1)
    node.order("sh", "-c", "echo again")
    assert node.run(SLURM_RESTART_COUNT="1") == 0 and node.log.endswith("again\n")


def test_a_pod_is_asked_to_save_before_a_known_limit_and_not_earlier(node: Node) -> None:
    """Slurm's own warning may come a minute too early."""
    pod = "trap 'exit 75' TERM; echo ready; while :; do sleep 0.05; done"
    node.order("sh", "-c", pod, limit_s=9, warning_s=1)
    began_s = time.monotonic()
    with node.start() as process:
        while not node.log:
            time.sleep(0.02)
        process.send_signal(signal.SIGUSR1)
        process.communicate(timeout=20)
    assert process.returncode == 75 and time.monotonic() - began_s >= 2.5


def test_gpus_are_those_that_slurm_gave(node: Node) -> None:
    node.order("sh", "-c", 'echo "[$CUDA_VISIBLE_DEVICES]"', gpus=1)
    node.run(CUDA_VISIBLE_DEVICES="3")
    assert node.log == "[3]\n"


def test_without_a_request_no_gpu_is_seen(node: Node) -> None:
    node.order("sh", "-c", 'echo "[$CUDA_VISIBLE_DEVICES]"')
    node.run(CUDA_VISIBLE_DEVICES="3")
    assert node.log == "[]\n"


def test_what_is_known_on_the_node_only_is_filled_in_there(node: Node) -> None:
    given = {"PATH": os.environ["PATH"], "POD_IP": job.ADDRESS}
    node.order("sh", "-c", 'echo "$POD_IP $0"', job.NODE, environment=given)
    node.run(SLURMD_NODENAME="node7")
    assert node.log == f"{os.uname().nodename} node7\n"


def test_scratch_is_made_and_removed(node: Node) -> None:
    inner = node.folder / "scratch/tmp"
    node.order("sh", "-c", f"touch {inner}/x", folders=[str(inner)])
    assert node.run() == 0 and not (node.folder / "scratch").exists()


def test_a_command_that_cannot_be_executed(node: Node) -> None:
    node.order("there-is-no-such-program")
    assert node.run() == 64
    left = node.record.said("a.0")
    assert left is not None and "No such file" in left.error
    assert "No such file" in judge(None, left).message


def test_variables_reach_a_container_although_its_environment_is_cleaned() -> None:
    made = {
        "gpus": 1, "environment": {"STORAGE": "/s", "PATH": "/x"}, "inside": ["STORAGE"], "in_container": True,
        "address": "name",
    }  # fmt: skip
    values = job.environment(made)
    assert values["APPTAINERENV_STORAGE"] == "/s" and "APPTAINERENV_PATH" not in values
    assert "APPTAINERENV_CUDA_VISIBLE_DEVICES" in values
    assert json.dumps(values)
