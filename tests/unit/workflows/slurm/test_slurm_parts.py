"""What a submission says, and what is made of an end; without any Slurm."""

from __future__ import annotations

import dataclasses
import datetime
import sys
from pathlib import Path

import pytest

from config.errors import BadInput
from config.pipeline import EARLIER_JOBS
from config.slurm import read_slurm
from workflows.local.executor import Order
from workflows.local.machine.mounts import Mounts
from workflows.local.machine.pod_spec import PodSpec
from workflows.local.machine.slots import Resources
from workflows.slurm import scripts, states
from workflows.slurm.records import Said
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


COMPLETE = (
    "--acctg-freq", "--batch", "--bb", "--bbf", "--begin", "--cluster-constraint", "--comment", "--container",
    "--contiguous", "--core-spec", "--cores-per-socket", "--cpu-freq", "--cpus-per-gpu", "--deadline", "--delay-boot",
    "--distribution", "--exclude", "--exclusive", "--export-file", "--extra-node-info", "--get-user-env", "--gid",
    "--gpu-bind", "--gpu-freq", "--gpus", "--gpus-per-node", "--gpus-per-socket", "--gpus-per-task", "--gres-flags",
    "--hint", "--ignore-pbs", "--kill-on-invalid-dep", "--licenses", "--mail-type", "--mail-user", "--mcs-label",
    "--mem-bind", "--mem-per-cpu", "--mem-per-gpu", "--mincpus", "--network", "--nice", "--no-kill", "--nodefile",
    "--nodelist", "--ntasks-per-core", "--ntasks-per-gpu", "--ntasks-per-node", "--ntasks-per-socket", "--overcommit",
    "--oversubscribe", "--power", "--prefer", "--priority", "--profile", "--propagate", "--quiet", "--reboot",
    "--sockets-per-node", "--spread-job", "--switches", "--thread-spec", "--threads-per-core", "--tmp", "--tres-per-task",
    "--uid", "--use-min-nodes", "--verbose", "--wait-all-nodes", "--wckey",
)  # fmt: skip
"""The names of sbatch's other options (Slurm 22.05)."""


def test_other_options_of_sbatch_are_taken() -> None:
    assert read_slurm({"cpu": {"options": list(COMPLETE)}}).cpu.options == COMPLETE


@pytest.mark.parametrize(
    "option",
    ["--time-min=1:00", "--time-m=1:00", "--cluster=b", "--job=a", "--j=a", "--no-req", "--mem=1G"],
)
def test_options_of_the_executors_own_are_refused_also_abbreviated(option: str) -> None:
    with pytest.raises(BadInput, match="none of --job-name"):
        read_slurm({"cpu": {"options": [option]}})


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


def test_what_the_manifest_sets_is_told_from_what_the_login_node_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {"PATH": "/login/bin", "LANG": "C", "DISPLAY": ":7"}.items():
        monkeypatch.setenv(name, value)
    environment = {**order().environment, "LANG": "C", "TMPDIR": "/scratch/rl-1/tmp"}
    given = dataclasses.replace(order(), environment=environment)
    made = scripts.order_of(given, 0, read_slurm(None), Path("/scratch/rl-1"), Path("/s"))
    assert made["own"] == ["STORAGE", "TMPDIR"]


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
