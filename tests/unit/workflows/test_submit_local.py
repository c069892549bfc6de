"""`workflows.submit` on this machine with the real engine and the real steps, as a person uses it,
on a training of two epochs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from config.resolve import resolve
from tests.outside import outside
from tests.unit.workflows.local.local_workflows import pod, task, workflow
from tests.waiting import PATIENCE_S, until
from workflows import on_this_machine
from workflows.request.preflight import Place
from workflows.request.submission import Submission

TINY = (
    "ppo",
    "--local",
    "-p",
    "game=cartpole",
    "-p",
    "epochs=2",
    "-p",
    "evaluation_episodes=1",
    "-p",
    "video_episodes=0",
)
LONG = ("ppo", "--local", "-p", "game=cartpole", "-p", "epochs=4000")


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-u", "-m", "workflows.submit", *arguments]
    return subprocess.Popen(
        command,
        cwd=folder,
        env=outside(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def submit(folder: Path, *arguments: str) -> tuple[int, list[str], str]:
    """Exit code, lines, errors."""
    with start(folder, *arguments) as process:
        out, error = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out.splitlines(), error


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """An experiment that ended well, and what was printed."""
    folder = tmp_path_factory.mktemp("submit")
    code, lines, error = submit(folder, *TINY, "-p", "outdir=results/x")
    assert (code, error) == (0, ""), "\n".join(lines) + error
    return folder, lines


def test_a_whole_experiment(finished: tuple[Path, list[str]]) -> None:
    folder, lines = finished
    assert (
        lines[0]
        == "Running ppo on cartpole, 1 run of 512 steps on this machine; results in results/x"
    )
    assert (
        lines[-1] == "Report: results/x/report.html"
        and (folder / "results/x/report.html").is_file()
    )
    assert lines[-2].startswith("Succeeded in ") and "n = 1 of 1" in lines[-2]
    said = [line.split("  ", 1)[1] for line in lines[1:-2]]
    assert (
        "prepare started" in said
        and "run 0  train started" in said
        and any(line.startswith("report succeeded in") for line in said)
    )
    assert {path.name for path in folder.iterdir()} == {"results"} and {
        path.name for path in (folder / "results").iterdir()
    } == {"x"}


def test_other_parameters_are_refused_and_nothing_changes(finished: tuple[Path, list[str]]) -> None:
    folder, _ = finished
    before = contents(folder)
    code, lines, error = submit(folder, *TINY, "-p", "outdir=results/x", "-p", "seed=1")
    assert (
        (code, lines) == (2, [])
        and "experiment.seed: 0 in the directory, 1 now" in error
        and error.count("\n") == 1
    )
    assert contents(folder) == before


def test_a_longer_training_is_refused_by_the_parameter_that_depends_on_the_length(
    finished: tuple[Path, list[str]],
) -> None:
    folder, _ = finished
    before = contents(folder)
    given = [one if one != "epochs=2" else "steps=1e4" for one in TINY]
    code, lines, error = submit(folder, *given, "-p", "outdir=results/x")
    assert (code, lines) == (2, [])
    assert "anneal_learning_rate=true" in error and "start_from=" in error
    assert error.count("\n") == 1
    assert contents(folder) == before


@pytest.mark.slow
def test_interrupted_refused_meanwhile_and_named(tmp_path: Path) -> None:
    """Ctrl-C in a training: a second submission was refused, exit 130, the report is made, the last
    lines say what and where."""
    with start(tmp_path, *LONG, "-p", "outdir=y") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "train started" in line:
                break
        code, _, error = submit(tmp_path, *LONG, "-p", "outdir=y")
        assert code == 2 and "is still running" in error
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130 and error == ""
    *_, stopped, last = out.splitlines()
    assert stopped.startswith("stopped: run 0 train") and stopped.endswith(
        "submit the same again to go on"
    )
    assert last == "Report: y/report.html" and (tmp_path / last.removeprefix("Report: ")).is_file()


@pytest.mark.slow
def test_a_stop_after_the_reader_has_left(tmp_path: Path) -> None:
    """`… | tee log` and Ctrl-C: `tee` ends first, and the trainings must still end as preempted,
    with a report."""
    with start(tmp_path, *LONG, "-p", "outdir=y") as process:
        assert process.stdout is not None and process.stderr is not None
        next(line for line in process.stdout if "train started" in line)
        process.stdout.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130 and process.stderr.read() == ""
    assert (tmp_path / "y/report.html").is_file()


def test_c19_sigkill_leaves_nothing_in_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect C19 of docs/faults.md: `/tmp/<name>-logs-…` stayed."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    with start(tmp_path, *LONG, "-p", "outdir=y") as process:
        assert process.stdout is not None
        next(line for line in process.stdout if "train started" in line)
        assert len(list(temporary.iterdir())) == 2
        process.kill()
    until(lambda: not list(temporary.iterdir()), longest_s=30)


def test_in_a_folder_that_was_removed(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = f'rmdir "{gone}" && exec "{sys.executable}" -m workflows.submit ppo --local -p game=cartpole -p outdir=results/x'
    ended = subprocess.run(
        ["bash", "-c", command],
        cwd=gone,
        env=outside(),
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stderr) == (
        2,
        "refused: the folder that this shell is in has been removed; change to another\n",
    )


def test_what_the_steps_need_of_the_environment_reaches_every_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The engine knows none of these names: they are handed to it."""
    for name in ("MUJOCO_GL", "EXPERIMENT_FAULT", "OMP_NUM_THREADS", "ARGO_TOKEN"):
        monkeypatch.setenv(name, "set")
    program = "import os, json; open(os.environ['OUT'], 'w').write(json.dumps(dict(os.environ)))"
    container = {
        "env": [{"name": "OUT", "value": "/storage/seen.json"}],
        "volumeMounts": [{"name": "storage", "mountPath": "/storage"}],
    }
    volumes = [{"name": "storage", "persistentVolumeClaim": {"claimName": "any"}}]
    manifest = workflow(
        [task("a", "leaf")], pod("leaf", program, container=container), volumes=volumes
    )
    place = Place(storage=tmp_path, outdir="/storage/x", directory=tmp_path / "x")
    resolved = resolve("ppo", {"outdir": "/storage/x", "game": "cartpole"})
    submission = Submission(name="w", resolved=resolved, given={}, manifest=manifest, place=place)
    assert on_this_machine.run(submission) == 0, capsys.readouterr().out
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert {"MUJOCO_GL", "EXPERIMENT_FAULT"} <= set(seen)
    assert not {"OMP_NUM_THREADS", "ARGO_TOKEN"} & set(seen)
    assert seen["EXPERIMENT_OWNER_PROCESS"].split(":")[1] == str(os.getpid())


def test_paths_in_what_a_person_gave_stay_and_those_of_the_manifest_are_the_pod_s(
    tmp_path: Path,
) -> None:
    """A mount at `/home/own` is a folder of the pod, unless the person means one of this machine."""
    container = {
        "volumeMounts": [
            {"name": "storage", "mountPath": "/storage"},
            {"name": "own", "mountPath": "/home/own"},
        ]
    }
    program = "import sys, json; open(sys.argv[1], 'w').write(json.dumps(sys.argv[2:]))"
    written = [f"{{{{workflow.parameters.{name}}}}}" for name in ("mine", "theirs")]
    manifest = workflow(
        [task("a", "leaf")],
        pod("leaf", program, "/storage/seen.json", *written, container=container),
        volumes=[
            {"name": "storage", "persistentVolumeClaim": {"claimName": "any"}},
            {"name": "own", "emptyDir": {}},
        ],
    )
    values = {"mine": "log_dir=/home/own/x", "theirs": "/home/own/y"}
    manifest["spec"]["arguments"] = {
        "parameters": [{"name": name, "value": value} for name, value in values.items()]
    }
    place = Place(storage=tmp_path, outdir="/storage/x", directory=tmp_path / "x")
    resolved = resolve("ppo", {"outdir": "/storage/x", "game": "cartpole"})
    submission = Submission(
        name="w", resolved=resolved, given={"mine"}, manifest=manifest, place=place
    )
    assert on_this_machine.run(submission) == 0
    mine, theirs = json.loads((tmp_path / "seen.json").read_text())
    assert mine == values["mine"]
    assert theirs.endswith("/y") and theirs != values["theirs"]
