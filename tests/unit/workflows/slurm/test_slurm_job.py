"""What a job does on its node, without any Slurm: its script, and the program that the script begins."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from config.slurm import read_slurm
from tests.waiting import PATIENCE_S, until
from workflows.slurm import job, scripts
from workflows.slurm.records import Record
from workflows.slurm.states import judge


class Node:
    """Runs `job.py` as slurmd would."""

    def __init__(self, folder: Path) -> None:
        self.record = Record(folder / "state")
        self.record.make()
        self.folder = folder

    def order(self, *arguments: str, **fields: Any) -> None:
        made = {
            "key": "a.0", "arguments": list(arguments), "environment": {"PATH": os.environ["PATH"]}, "inside": [], "own": [],
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
            process.communicate(timeout=PATIENCE_S)
        return process.returncode

    def run_script(self, slurm: dict[str, Any], **variables: str) -> int:
        """Run the whole script, as a job whose environment is Slurm's alone."""
        path = self.folder / "script"
        path.write_text(scripts.script(read_slurm(slurm), self.record.root, "b"))
        environment = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "7", **variables}
        return subprocess.run(
            ["bash", path], env=environment, timeout=PATIENCE_S, check=False
        ).returncode

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
        until(lambda: node.log)
        assert node.run("8") == 0 and first.poll() is None
        first.communicate(timeout=PATIENCE_S)
    assert node.log == "once\n"


def test_a_pod_that_ended_by_itself_is_not_run_again(node: Node) -> None:
    node.order("sh", "-c", "echo once; exit 1")
    assert node.run() == 1
    assert node.run(SLURM_RESTART_COUNT="1") == 0 and node.log == "once\n"


def test_the_end_of_a_beginning_on_a_node_taken_for_dead_is_not_told(node: Node) -> None:
    """Slurm begins the job again elsewhere, and the new pod fences the old one off."""
    node.order("sh", "-c", "touch old; while [ ! -e new ]; do sleep 0.02; done; exit 4")
    with node.start() as old:
        until((node.folder / "old").exists)
        node.order("sh", "-c", "touch new; while [ ! -e over ]; do sleep 0.02; done")
        with node.start(SLURM_RESTART_COUNT="1") as new:
            old.communicate(timeout=PATIENCE_S)
            early = node.record.said("a.0")
            (node.folder / "over").touch()
            new.communicate(timeout=PATIENCE_S)
    left = node.record.said("a.0")
    assert old.returncode == 4 and early is None
    assert left is not None and left.code == 0
    assert node.record.names_in("claims") == {"a.0"}


def test_a_late_beginning_does_not_take_a_pod_from_its_successor(node: Node) -> None:
    node.order("sh", "-c", "echo begun; exit 75")
    (node.record.root / "claims/a.0").write_text("7")
    (node.record.root / "claims/.a.0.restarts").write_text("10")
    assert node.run(SLURM_RESTART_COUNT="9") == 0 and not node.log
    assert (node.record.root / "claims/.a.0.restarts").read_text() == "10"
    assert node.run(SLURM_RESTART_COUNT="11") == 75 and node.log == "begun\n"
    assert (node.record.root / "claims/.a.0.restarts").read_text() == "11"


def test_nothing_begins_after_the_workflow_has_ended(node: Node) -> None:
    node.order("sh", "-c", "echo hello")
    node.record.closed.touch()
    assert node.run() == 0 and node.log == "" and node.record.said("a.0") is None


def test_an_order_may_be_late(node: Node) -> None:
    with node.start() as process:
        time.sleep(0.7)
        node.order("sh", "-c", "echo late")
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0 and node.log == "late\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_signals_reach_the_pod_which_may_be_begun_again(node: Node, number: signal.Signals) -> None:
    node.order("sh", "-c", "trap 'exit 75' TERM; echo ready; while :; do sleep 0.05; done")
    with node.start() as process:
        until(lambda: node.log)
        process.send_signal(number)
        process.communicate(timeout=PATIENCE_S)
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
        until(lambda: node.log)
        process.send_signal(signal.SIGUSR1)
        process.communicate(timeout=20)
    assert process.returncode == 75 and time.monotonic() - began_s >= 2.5


class Asked:
    """What a job was asked to do, without handlers of signals."""

    def __init__(self, warned_s: float | None) -> None:
        self.warned_s = warned_s


@pytest.mark.parametrize(
    ("limit_s", "past_s", "warned_for_s", "saves"),
    [
        (600, 100, None, False),
        (600, 485, None, True),
        (600, 100, 59, False),  # up to a minute too early
        (600, 100, 61, True),  # the limit was shortened
        (600, 476, 1, True),
        (None, 100, None, False),
        (None, 100, 0, True),
    ],
)
def test_when_a_pod_is_asked_to_save(
    limit_s: int | None, past_s: float, warned_for_s: float | None, saves: bool
) -> None:
    clock_s = time.monotonic()
    asked: Any = Asked(None if warned_for_s is None else clock_s - warned_for_s)
    order = {"limit_s": limit_s, "warning_s": 120}
    assert job.is_time_to_save(order, asked, clock_s - past_s) is saves


def test_the_limit_counts_from_the_first_line_of_the_script(node: Node) -> None:
    node.order("sleep", "15", limit_s=600, warning_s=10)
    assert node.run(RL_BEGAN=str(int(time.time()) - 595)) == 128 + signal.SIGTERM
    node.order("sh", "-c", 'test "$RL_BEGAN" = "" && exit 3', limit_s=600)
    before_s = int(time.time())
    assert node.run_script({"setup": ["sleep 1.1", f"echo $RL_BEGAN > {node.folder}/began"]}) == 3
    assert before_s <= float((node.folder / "began").read_text()) <= time.time() - 1


def test_a_warning_during_setup_does_no_harm(node: Node) -> None:
    node.order("sh", "-c", "kill -s USR1 $$; exit 3")
    assert node.run_script({"setup": ["kill -s USR1 $BASHPID"]}) == 138, (
        "the pod itself ignores nothing"
    )


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


def test_scratch_is_the_owners_alone_whatever_the_umask(node: Node) -> None:
    scratch = node.folder / "scratch"
    scratch.mkdir(mode=0o777)  # of an earlier beginning
    node.order("stat", "-c", "%a", str(scratch), folders=[str(scratch)])
    assert node.run() == 0 and node.log == "700\n"
    node.order("stat", "-c", "%a", str(scratch), key="b.0", folders=[str(scratch)])
    previous = os.umask(0)
    try:
        assert node.run() == 0 and node.log == "700\n700\n"
    finally:
        os.umask(previous)


def test_a_scratch_that_cannot_be_made_is_the_pods_end(node: Node) -> None:
    (node.folder / "file").touch()
    node.order("true", folders=[str(node.folder / "file/tmp")])
    assert node.run() == 64
    left = node.record.said("a.0")
    assert left is not None and "Not a directory" in left.error


def test_the_end_is_told_before_scratch_is_removed(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large one may take until the time limit. It is removed also where the end cannot be told."""
    removed: list[tuple[str, bool]] = []

    def remove(folder: str, **_: Any) -> None:
        removed.append((folder, node.record.said("a.0") is not None))

    def fail(*_: Any) -> None:
        raise OSError("no space")

    monkeypatch.setattr(
        "signal.signal", lambda *_: None
    )  # the tests' own process keeps its handlers
    monkeypatch.setattr("shutil.rmtree", remove)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    node.order("sh", "-c", "exit 75", log=None)
    assert job.main(node.record.root, "b", 1.0) == 75
    node.order("true", key="b.0", log=None)
    monkeypatch.setattr(job.Ended, "write", fail)
    with pytest.raises(OSError, match="no space"):
        job.main(node.record.root, "b", 1.0)
    assert removed == [(str(node.folder / "scratch"), True)] * 2


def test_a_command_that_cannot_be_executed(node: Node) -> None:
    node.order(str(node.folder / "no-such-program"))  # PATH may hold folders of others
    assert node.run() == 64
    left = node.record.said("a.0")
    assert left is not None and "No such file" in left.error
    assert "No such file" in judge(None, left).message


def test_variables_reach_a_container_although_its_environment_is_cleaned() -> None:
    made = {
        "gpus": 1, "environment": {"STORAGE": "/s", "PATH": "/x"}, "inside": ["STORAGE"], "own": ["STORAGE"],
        "in_container": True, "address": "name",
    }  # fmt: skip
    values = job.environment(made, {"PATH": "/modules/bin", "STORAGE": "/other"})
    assert values["APPTAINERENV_STORAGE"] == "/s" and "APPTAINERENV_PATH" not in values
    assert "APPTAINERENV_CUDA_VISIBLE_DEVICES" in values
    assert values["PATH"] == "/modules/bin", "Apptainer itself may be a module"
    assert json.dumps(values)


def variables_of(node: Node, setup: list[str], **fields: Any) -> dict[str, str]:
    """The variables of a pod behind these lines of `setup`."""
    node.order("env", "-0", **fields)
    jobs_log = node.record.root / "jobs/b.log"
    assert node.run_script({"setup": setup}, SLURM_GPUS="1") == 0, jobs_log.read_text()
    assert not jobs_log.read_text()
    printed = os.fsdecode((node.folder / "log").read_bytes())
    entries = [entry.partition("=") for entry in printed.split("\0") if entry]
    return {name: value for name, _, value in entries}


def test_what_setup_sets_reaches_the_pod(node: Node) -> None:
    before = {
        "PATH": "/login/bin",
        "LD_LIBRARY_PATH": "/login/lib",
        "LANG": "C",
        "OURS": "manifest",
    }
    profile = node.folder / "profile"
    profile.write_text(
        "PATH=/modules/bin:$PATH\n"
        "export LD_LIBRARY_PATH=/modules/lib CUDA_HOME=/modules/cuda OURS=setup\n"
        "export HARD=$'two \"lines\"\\nit\\'s=one \\xff'\n"
        "export SLURM_GPUS=9 SBATCH_X=1 CUDA_VISIBLE_DEVICES=9\n"
        "f() { :; }; export -f f; cd /\n"
    )
    seen = variables_of(node, [f"source {profile}"], environment=before, own=["OURS"])
    for name in ("_", "SHLVL"):
        seen.pop(name, None)
    assert seen.pop("HARD") == 'two "lines"\nit\'s=one \udcff'
    assert seen == {
        "PATH": f"/modules/bin:{os.environ['PATH']}", "LD_LIBRARY_PATH": "/modules/lib",
        "CUDA_HOME": "/modules/cuda", "LANG": "C", "OURS": "manifest", "CUDA_VISIBLE_DEVICES": "",
    }  # fmt: skip


def test_a_setup_that_sets_nothing_changes_nothing(node: Node) -> None:
    seen = variables_of(node, [":"], environment={"PATH": os.environ["PATH"] + ":/login"})
    assert seen["PATH"].endswith(":/login") and "SLURM_GPUS" not in seen


def test_programs_are_found_where_setup_says(node: Node) -> None:
    program = node.folder / "modules/apptainer"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho from a module\n")
    program.chmod(0o755)
    node.order("apptainer", "exec", own=["PATH"], in_container=True)
    assert node.run_script({"setup": [f"PATH={program.parent}:$PATH"]}) == 0
    assert node.log == "from a module\n"
