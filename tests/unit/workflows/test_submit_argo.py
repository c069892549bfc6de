"""`workflows.submit` through an Argo Server, from the request to the exit code, against a real HTTP
server on loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from steps.directory.layout import ExperimentDirectory
from steps.directory.status import Status, write_status
from tests.unit.workflows.loopback_argo import NAMESPACE, LoopbackArgo
from tests.waiting import PATIENCE_S
from workflows import on_cluster, submit

# Hera 7.1 itself calls pydantic's deprecated `json`.
pytestmark = pytest.mark.filterwarnings("ignore:The `json` method is deprecated")
ROOT = Path(__file__).parents[3]
IMAGES = ["-p=gpu_image=registry.example/rl:1-gpu", "-p=cpu_image=registry.example/rl:1-cpu"]
GAME = ("ppo", "-p", "game=cartpole", "-p", "runs=2", "-p", "epochs=100", "--name", "ppo-1")
SHORT = [*GAME, *IMAGES]


@pytest.fixture
def argo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackArgo]:
    with LoopbackArgo().running() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(on_cluster, "POLL_S", 0.02)
        monkeypatch.chdir(tmp_path)
        yield server


def status(phase: str, message: str = "", **phases: str) -> dict[str, Any]:
    nodes = {
        name: {
            "id": name, "name": f"ppo-1.{name}" if "_" not in name else "ppo-1.runs({1}:{1}).{0}".format(*name.split("_")),
            "displayName": name, "type": "Retry", "phase": of_node, "message": "main: Error (exit code 3)" if of_node == "Failed" else "",
            "startedAt": "2026-11-21T12:00:00Z",
        }
        for name, of_node in phases.items()
    }  # fmt: skip
    times = {"startedAt": "2026-11-21T12:00:00Z", "finishedAt": "2026-11-21T12:01:12Z"}
    return {"phase": phase, "message": message, "nodes": nodes, **times}


def test_submit_and_follow_to_success(
    argo: LoopbackArgo, capsys: pytest.CaptureFixture[str]
) -> None:
    argo.statuses = [
        {},
        status("Running", prepare="Running"),
        status("Running", prepare="Succeeded", train_0="Running"),
        status("Succeeded"),
    ]
    assert submit.main(SHORT) == 0
    first, *_, last_but_one, last = capsys.readouterr().out.splitlines()
    assert (
        first.startswith("Submitted ppo-1 to http://127.0.0.1:")
        and f"namespace {NAMESPACE}" in first
        and "cartpole" in first
    )
    assert last_but_one == "Succeeded in 1 min 12 s" and "/storage/ppo-cartpole/report.html" in last
    values = {
        one["name"]: one["value"]
        for one in argo.workflows["ppo-1"]["spec"]["arguments"]["parameters"]
    }
    assert (values["runs"], values["outdir"], values["gpu_image"]) == (
        "2",
        "/storage/ppo-cartpole",
        values["cpu_image"].replace("-cpu", "-gpu"),
    )


def test_a_failed_workflow(argo: LoopbackArgo, capsys: pytest.CaptureFixture[str]) -> None:
    argo.statuses = [status("Failed", "child failed", train_1="Failed")]
    assert submit.main(SHORT) == 1
    shown = capsys.readouterr().out
    assert (
        "Failed after 1 min 12 s\n" in shown
        and "run 1 train failed: main: Error (exit code 3)" in shown
    )


def test_reasons_from_storage_that_is_mounted_here(
    argo: LoopbackArgo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ExperimentDirectory(tmp_path / "nfs/ppo-cartpole").run(1)
    run.status.mkdir(parents=True)
    run.logs.mkdir()
    (run.logs / "train.log").write_text("…")
    reason = "loss is not finite at step 512"
    write_status(
        run.status / "train.json",
        Status(task="train", state="failed", started="", exit_code=3, reason=reason),
    )
    argo.statuses = [status("Failed", train_1="Failed")]
    assert submit.main([*SHORT, "--storage", "nfs"]) == 1
    shown = capsys.readouterr().out
    assert (
        f"run 1 train failed: {reason} (main: Error (exit code 3)); log: nfs/ppo-cartpole/runs/1/logs/train.log"
        in shown
    )
    assert shown.splitlines()[-1] == "Results: nfs/ppo-cartpole"


def test_detach(argo: LoopbackArgo, capsys: pytest.CaptureFixture[str]) -> None:
    assert submit.main([*SHORT, "--detach"]) == 0
    assert "python -m workflows.submit --follow ppo-1" in capsys.readouterr().out
    assert [method for method, _, _ in argo.requests] == ["GET", "POST"]


@pytest.mark.parametrize(
    ("image", "warns"), [("rl:1-gpu", True), ("registry.example/rl:1", False), ("me/rl:1", False)]
)
def test_images_that_nobody_has_pushed_are_warned_of(
    argo: LoopbackArgo, capsys: pytest.CaptureFixture[str], image: str, warns: bool
) -> None:
    images = [f"-p=gpu_image={image}", f"-p=cpu_image={image}"]
    assert submit.main([*GAME, *images, "--detach"]) == 0
    said = capsys.readouterr().err
    assert (f"warning: gpu_image={image} and cpu_image={image} name no registry" in said) == warns


@pytest.mark.parametrize("allowed", [True, False])
@pytest.mark.parametrize(
    "reason",
    [
        "ErrImagePull",
        pytest.param("ImagePullBackOff", marks=pytest.mark.slow),
        pytest.param("InvalidImageName", marks=pytest.mark.slow),
    ],
)
def test_a_pull_that_cannot_succeed_ends_the_workflow(
    argo: LoopbackArgo,
    reason: str,
    allowed: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(on_cluster, "PULL_TIMEOUT_S", 0.3)
    waits = status("Running", prepare="Succeeded", train_0="Pending")
    waits["nodes"]["train_0"] |= {"type": "Pod", "message": f"{reason}: no such image"}
    scheduling = status("Running", prepare="Succeeded", train_0="Pending")
    stopped = status("Failed", "Stopped with strategy 'Stop'", train_0="Failed")
    stopped["nodes"]["train_0"]["message"] = "workflow shutdown with strategy:  Stop"
    over = [*[waits] * 40, stopped]
    argo.statuses = [*[scheduling] * 3, *over]
    argo.after_a_stop = [stopped] if allowed else []
    assert submit.main(SHORT) == 1
    out = capsys.readouterr().out
    assert out.count("stopping the workflow: ") == 1
    why = "runs(0:0).train has waited 0.005 minutes for its image: "
    assert f"stopping the workflow: {why}{reason}: no such image" in out
    assert argo.stopped == ({"ppo-1": f"{why}{reason}: no such image"} if allowed else {})
    assert ("the workflow is not stopped: http" in out) != allowed


def test_a_pull_that_succeeds_late_ends_nothing(
    argo: LoopbackArgo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registry that was away for a moment, and then a long wait for a GPU."""
    monkeypatch.setattr(on_cluster, "PULL_TIMEOUT_S", 0.3)
    waits, unschedulable = (status("Running", train_0="Pending") for _ in range(2))
    waits["nodes"]["train_0"] |= {"type": "Pod", "message": "ErrImagePull: no route to host"}
    unschedulable["nodes"]["train_0"] |= {"type": "Pod", "message": "Unschedulable: no GPU"}
    argo.statuses = [waits, waits, *[unschedulable] * 30, waits, status("Succeeded")]
    argo.after_a_stop = [status("Failed")]
    assert submit.main(SHORT) == 0
    assert argo.stopped == {}


def test_follow_again(argo: LoopbackArgo, capsys: pytest.CaptureFixture[str]) -> None:
    submit.main([*SHORT, "--detach"])
    argo.statuses = [status("Running", train_1="Running"), status("Error", "it went wrong")]
    assert submit.main(["--follow", "ppo-1"]) == 1
    shown = capsys.readouterr().out
    assert (
        "Following ppo-1" in shown
        and "run 1  train started" in shown
        and "Error after 1 min 12 s: it went wrong" in shown
    )


def test_follow_what_is_not_ours(argo: LoopbackArgo, capsys: pytest.CaptureFixture[str]) -> None:
    argo.workflows["hello"] = {
        "metadata": {"name": "hello"},
        "spec": {"entrypoint": "x", "templates": [{"name": "x", "container": {"image": "a"}}]},
    }
    assert submit.main(["--follow", "hello"]) == 2
    assert "is no experiment of this program" in capsys.readouterr().err
    assert submit.main(["--follow", "nothing"]) == 2
    assert "not found" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ("-p", "rnus=1"),
        ("-p", "outdir=results/x"),
        ("-p", "outdir=/etc/x"),
        ("-p", "game={{workflow.name}}"),
        ("--name", "ppo-0"),
    ],
)
def test_refused_before_anything_is_sent(
    argo: LoopbackArgo, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    argo.workflows["ppo-0"] = {}
    assert submit.main(["ppo", *IMAGES, *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("refused: ") and shown.err.count("\n") == 1 and shown.out == ""
    assert list(argo.workflows) == ["ppo-0"] and (argo.requests == [] or "ppo-0" in arguments)


def test_a_game_that_cannot_be_played_is_refused_before_anything_is_sent(
    argo: LoopbackArgo, capsys: pytest.CaptureFixture[str]
) -> None:
    reinforce = "my_lab.reinforce:ALGORITHM"
    assert submit.main([reinforce, "-p", "game=pendulum"]) == 2
    assert capsys.readouterr().err == (
        f"refused: {reinforce} cannot play pendulum: the game's actions are continuous; "
        "reinforce plays games whose actions are discrete\n"
    )
    assert not argo.workflows


def test_local_ignores_the_server(argo: LoopbackArgo, capsys: pytest.CaptureFixture[str]) -> None:
    assert submit.main(["ppo", "--local", "--dry-run"]) == 0
    assert "this machine" in capsys.readouterr().out
    assert submit.main(["ppo", "--dry-run"]) == 0
    assert "Argo Server http://127.0.0.1" in capsys.readouterr().out
    assert argo.requests == []


def test_a_server_that_is_away_while_following(
    argo: LoopbackArgo, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workflows.cluster.server.PAUSE_S", 0.02)
    argo.statuses = [status("Succeeded")]
    submit.main([*SHORT, "--detach"])
    argo.broken = [0, 503]
    assert submit.main(["--follow", "ppo-1"]) == 0
    assert "trying again" in capsys.readouterr().out


def test_progress_from_what_the_trainings_print(
    argo: LoopbackArgo, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_cluster, "ASK_FOR_LINES_S", 0.0)
    monkeypatch.setattr("workflows.progress.lines.SAY_AFTER_S", 0.0)
    running = status("Running", train_1="Running")
    running["nodes"]["train_1"] |= {"id": "ppo-1-4711", "templateName": "train"}
    argo.printed["ppo-1-train-4711"] = [
        "epoch 1 of 100, step 248 of 25600",
        "epoch 40 of 100, step 10240 of 25600, return 43.2, 5120.0 steps/s",
        "…",
    ]
    argo.statuses = [running] * 3 + [status("Succeeded")]
    assert submit.main(SHORT) == 0
    assert "run 1  train  40 %  return 43.2  5,120 steps/s  0:03 left" in capsys.readouterr().out


def test_the_last_line_of_a_training_is_asked_for_after_its_end(
    argo: LoopbackArgo, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training of less than ten seconds was shown with the return of its first epochs."""
    train = {"id": "ppo-1-4711", "templateName": "train"}
    running, ended = status("Running", train_1="Running"), status("Running", train_1="Succeeded")
    running["nodes"]["train_1"] |= train
    ended["nodes"]["train_1"] |= train
    lines = ["epoch 1 of 100, step 248 of 25600, return 19.8"]
    argo.printed["ppo-1-train-4711"] = lines
    argo.statuses = [running, running, ended, ended, status("Succeeded")]

    def sleep(_: float) -> None:
        if len(argo.statuses) == 3:
            lines.append("epoch 100 of 100, step 25600 of 25600, return 500.0, 5120.0 steps/s")

    monkeypatch.setattr(on_cluster.time, "sleep", sleep)
    assert submit.main(SHORT) == 0
    shown = capsys.readouterr().out
    assert "run 1  train 100 %  return 500.0  5,120 steps/s\n" in shown
    assert len([path for _, path, _ in argo.requests if path.endswith("/log")]) == 2, (
        "once while it runs, once at its end"
    )


def test_a_follower_that_is_refused_says_that_the_workflow_goes_on(
    argo: LoopbackArgo, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    argo.statuses = [status("Running", prepare="Running")]
    monkeypatch.setattr(on_cluster.time, "sleep", lambda _: setattr(argo, "allowed", "another"))
    assert submit.main(SHORT) == 130
    shown = capsys.readouterr()
    assert (
        "does not accept ARGO_TOKEN" in shown.err
        and "ppo-1 goes on" in shown.out
        and "--follow ppo-1" in shown.out
    )


def test_a_workflow_that_is_deleted_does_not_go_on(
    argo: LoopbackArgo, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    argo.statuses = [status("Running", prepare="Running")]
    monkeypatch.setattr(on_cluster.time, "sleep", lambda _: argo.workflows.clear())
    assert submit.main(SHORT) == 1
    shown = capsys.readouterr()
    assert (
        shown.err.startswith("failed: ")
        and "it was deleted" in shown.err
        and "goes on" not in shown.out
    )


def test_what_argo_submit_let_through_can_be_followed(
    argo: LoopbackArgo, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unknown parameter: `prepare` refuses it, and a follower says how that ended."""
    submit.main([*SHORT, "--detach"])
    argo.workflows["ppo-1"]["spec"]["arguments"]["parameters"].append(
        {"name": "epoch", "value": "3"}
    )
    argo.statuses = [status("Failed", prepare="Failed")]
    assert submit.main(["--follow", "ppo-1"]) == 1
    assert "prepare failed" in capsys.readouterr().out


def test_bad_storage_is_refused_before_anything_is_sent(argo: LoopbackArgo, tmp_path: Path) -> None:
    (tmp_path / "nfs").mkdir()
    (tmp_path / "nfs/ppo-cartpole").symlink_to("/etc")
    assert submit.main([*SHORT, "--storage", "nfs"]) == 2
    assert argo.requests == []


@pytest.mark.slow
def test_interrupting_stops_only_the_following(argo: LoopbackArgo, tmp_path: Path) -> None:
    argo.statuses = [status("Running", prepare="Running")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "workflows.submit", *SHORT], cwd=tmp_path, env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    with process:
        for line in process.stdout:
            if "prepare started" in line:
                break
        process.send_signal(signal.SIGINT)
        shown, error = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130 and error == ""
    assert "--follow ppo-1" in shown and f"argo stop ppo-1 -n {NAMESPACE}" in shown
    assert {method for method, _, _ in argo.requests} == {"POST", "GET"} and len(argo.bodies) == 1
