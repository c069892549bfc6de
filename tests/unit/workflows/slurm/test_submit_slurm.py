"""`workflows.submit --slurm` and `workflows.local --slurm`, with a scripted Slurm or none."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.unit.workflows.slurm.scripted_slurm import ScriptedSlurm, read, write
from tests.waiting import PATIENCE_S, until
from workflows import submit
from workflows.local import __main__ as local_command
from workflows.slurm import commands, engine_job, executor
from workflows.slurm.engine_job import is_in_the_queue
from workflows.slurm.workflow import Workspace

PPO = ["ppo", "-p", "game=cartpole", "-p", "outdir=results/x"]
HELLO = """
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {generateName: hello-}
spec:
  entrypoint: hello
  templates:
    - name: hello
      container: {image: none, command: [echo, hello]}
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScriptedSlurm:
    scripted = ScriptedSlurm(tmp_path / "slurm")
    monkeypatch.setenv("SCRIPTED_SLURM", str(scripted.root))
    monkeypatch.setenv("PATH", f"{scripted.bin}:{os.environ['PATH']}")
    monkeypatch.setattr(commands, "BETWEEN_QUESTIONS_S", 0.15)
    monkeypatch.setattr(executor, "LOOK_S", 0.03)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return scripted


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The line with which a request is refused; nothing was written."""
    assert submit.main(arguments) == 2
    line = capsys.readouterr().err
    assert line.startswith("refused: ") and line.count("\n") == 1
    assert not Path("results").exists()
    return line


def test_without_slurm_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    line = refused([*PPO, "--slurm"], capsys)
    assert "sbatch, squeue, scancel, scontrol cannot be found in PATH" in line


def test_a_dry_run_asks_slurm_and_submits_nothing(
    slurm: ScriptedSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    assert submit.main([*PPO, "--slurm", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "gpu: could start at 2026-01-01T00:00:00 in partition p (--nodes=1 " in out
    assert "--gres=gpu:1" in out and "actor: " not in out
    assert slurm.jobs() == {} and not Path("results").exists()


def test_a_request_that_slurm_refuses_is_named(
    slurm: ScriptedSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm.set("refusal", "Requested node configuration is not available")
    line = refused([*PPO, "--slurm"], capsys)
    assert "pool 'gpu': " in line and "Requested node configuration is not available" in line


def test_a_controller_that_is_away_is_no_bad_input(
    slurm: ScriptedSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm.set("refusal", "Unable to contact slurm controller")
    assert submit.main([*PPO, "--slurm"]) == 1
    assert "failed: Slurm cannot be asked" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([*PPO, "--slurm", "--local"], "not allowed with argument"),
        ([*PPO, "--engine-job"], "--engine-job needs --slurm"),
        ([*PPO, "--slurm", "--detach"], "allowed with --slurm: --engine-job"),
        (["--slurm", "--follow", "results/x"], "no workflow on Slurm has been begun there"),
    ],
)
def test_options_that_exclude_each_other(
    slurm: ScriptedSlurm, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert said in refused(arguments, capsys)


def test_fewer_jobs_at_once_than_a_run_has_processes_are_refused(
    slurm: ScriptedSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("profile.yaml").write_text("slurm: {max_jobs: 3}\n")
    words = ["impala", *PPO[1:], "-p", "actors=3", "--slurm", "--cluster", "profile.yaml"]
    assert "a run has 4 processes that must run at the same time" in refused(words, capsys)


def test_any_workflow_runs_on_slurm(
    slurm: ScriptedSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("hello.yaml").write_text(HELLO)
    assert local_command.main(["hello.yaml", "--slurm", "--status", "status.json"]) == 0
    status = json.loads(Path("status.json").read_text())
    assert status["phase"] == "Succeeded" and len(slurm.jobs()) == 1
    (log,) = Path("storage/.slurm").glob("*/logs/*.log")
    assert log.read_text() == "hello\n"
    assert local_command.main(["hello.yaml", "--slurm"]) == 0
    assert len(slurm.jobs()) == 2, "the same again is another workflow"


def test_an_unfinished_workflow_with_other_parameters_is_not_mixed_up(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    manifest = {"metadata": {"generateName": "w-"}, "spec": {}}

    def begin(name: str, **parameters: str) -> str:
        found = workspace.begin(
            name=name, manifest=manifest, parameters=parameters, storage=tmp_path
        )
        return found[0].name

    assert begin("w-1", seed="1") == "w-1"
    assert begin("w-2", seed="1") == "w-1", "it goes on with the one that has not ended"
    with pytest.raises(Exception, match="holds the unfinished workflow w-1 with other parameters"):
        begin("w-3", seed="2")
    found = workspace.unfinished()
    assert found is not None
    workspace.end(found[1])
    assert begin("w-3", seed="2") == "w-3"


def test_slurm_is_not_asked_again_about_a_workflow_that_has_begun(
    slurm: ScriptedSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its own jobs may fill the queue."""
    Path("hello.yaml").write_text(HELLO)
    words = ["hello.yaml", "--slurm", "--name", "w"]
    slurm.set("failures", 10**6)
    with subprocess.Popen([sys.executable, "-m", "workflows.local", *words], env=ours()) as first:
        until(lambda: slurm.calls("sbatch")[1:], first)
        first.kill()
    slurm.unset("failures")
    slurm.set("not-tested")
    assert local_command.main(words) == 0
    assert len(slurm.jobs()) == 1


def test_a_queue_that_is_full_now_is_said_by_a_dry_run(
    slurm: ScriptedSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm.set("refusal", "Job violates accounting/QOS policy (job submit limit)")
    assert submit.main([*PPO, "--slurm", "--dry-run"]) == 0
    assert "gpu: not at the moment: sbatch: sbatch: error: Job violates" in capsys.readouterr().out


def test_following_waits_for_the_job_of_the_engine(
    slurm: ScriptedSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm.set("held")
    assert submit.main([*PPO, "--slurm", "--engine-job"]) == 0
    (job,) = slurm.jobs()
    folder = Path("results/x/slurm")
    assert is_in_the_queue(folder) and not is_in_the_queue(Path("results"))
    end = threading.Timer(
        1.5, lambda: write(slurm.root, job, read(slurm.root, job) | {"state": "CANCELLED"})
    )
    end.start()
    assert submit.main(["--slurm", "--follow", "results/x"]) == 2
    said = capsys.readouterr()
    assert "waiting: the job of the engine is in Slurm's queue" in said.out
    assert "no workflow on Slurm has been begun there" in said.err


@pytest.mark.parametrize(
    ("number", "ends"),
    [
        (signal.SIGINT, ["stopped TERM"]),
        (signal.SIGTERM, []),
        (signal.SIGUSR1, ["requeue 7", "requeue 7", "requeue 7"]),
    ],
)
def test_how_the_job_of_an_engine_ends(
    tmp_path: Path, number: signal.Signals, ends: list[str]
) -> None:
    """A stop is passed on. Before the time limit the engine is killed, and Slurm asked until it answers."""
    engine = tmp_path / "engine"
    engine.write_text(
        "#!/bin/bash\ntrap 'echo stopped TERM >> said; exit 0' TERM\ntouch began\nwhile :; do sleep 0.05; done\n"
    )
    tools = {
        "scontrol": "echo requeue $2 >> said; [ $(wc -l < said) -ge 3 ]",
        "sleep": "exec /bin/sleep 0.1",
    }
    for name, text in {**tools}.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
    for name in (*tools, "engine"):
        (tmp_path / name).chmod(0o755)
    script = engine_job.script([], tmp_path)
    begin = next(line for line in script.splitlines() if "workflows.submit" in line)
    script = script.replace(begin, f"{engine} >> log 2>&1 < /dev/null &")
    script = re.sub(r"^cd .*$", f"cd {tmp_path}", script, flags=re.MULTILINE)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}
    with subprocess.Popen(["bash", "-c", script], env=environment, start_new_session=True) as job:
        while not (tmp_path / "began").exists():
            time.sleep(0.02)
        job.send_signal(number)
        job.wait(PATIENCE_S)
    said = tmp_path / "said"
    assert (said.read_text().splitlines() if said.exists() else []) == ends


def ours() -> dict[str, str]:
    """The variables of a process of its own that runs this project's code."""
    return {**os.environ, "PYTHONPATH": str(Path(submit.__file__).parents[1])}
