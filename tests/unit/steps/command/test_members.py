"""Several processes of one task: each has its own log and status, and the report lists them under
their task."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from steps import report
from steps.directory.layout import ExperimentDirectory
from steps.directory.status import read_status
from steps.page.facts import read_facts
from tests import synthetic
from tests.waiting import PATIENCE_S

ACTORS = 8
NAMES = [f"train-actor-{number}" for number in range(ACTORS)]


def start(outdir: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "tests.unit.steps.command.member_step",
        f"--outdir={outdir}",
        "--run=0",
    ]
    return subprocess.Popen(
        [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> ExperimentDirectory:
    """A run whose train stage was a learner and eight actors, all at the same time."""
    outdir = tmp_path_factory.mktemp("members") / "x"
    directory = synthetic.experiment(outdir, ("absent",))
    together = f"--together={ACTORS + 1}"
    processes = [start(outdir, together)]
    processes += [
        start(outdir, together, "--role=actor", f"--member={number}") for number in range(ACTORS)
    ]
    ended = [process.communicate(timeout=PATIENCE_S) for process in processes]
    codes = [process.returncode for process in processes]
    assert codes == [0, *(int(number == 5) for number in range(ACTORS))], ended
    return directory


@pytest.mark.slow
def test_nine_processes_of_one_task_leave_nine_logs_and_statuses(
    directory: ExperimentDirectory,
) -> None:
    run = directory.run(0)
    assert run.members() == [("train", name) for name in NAMES]
    assert {path.stem for path in run.logs.iterdir()} == {"train", *NAMES}
    for name in ("train", *NAMES):
        assert f"this is {name}\n" in (run.logs / f"{name}.log").read_text()
        status = read_status(run.status / f"{name}.json")
        assert status is not None and status.task == name and status.attempt == 1
        assert status.state == ("failed" if name == "train-actor-5" else "succeeded")


def test_the_report_lists_members_under_their_task(directory: ExperimentDirectory) -> None:
    assert report.main([f"--outdir={directory.root}"]) == 5
    page = directory.report_html.read_text()
    (listed,) = re.findall(r"<summary>8 members</summary>(.*?)</details>", page, re.DOTALL)
    assert re.findall(r'href="(runs/0/logs/[^"]+)"', listed) == [
        f"runs/0/logs/{name}.log" for name in NAMES
    ]
    assert "train-actor-5 of run 0" in page and "no more environments" in page
    train = _facts(directory).runs[0].tasks["train"]
    assert [member.name for member in train.members] == NAMES and not train.members[0].members


def _facts(directory: ExperimentDirectory):  # type: ignore[no-untyped-def]
    from steps.directory.experiment import read_experiment

    return read_facts(directory, read_experiment(directory), "")


def test_a_damaged_status_of_a_member_is_named_and_a_running_one_is_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "WAIT_S", 0.0)
    monkeypatch.setattr(report.wait_for_running, "__defaults__", (0.0,))
    directory = synthetic.experiment(tmp_path / "x", ("complete",))
    status = directory.run(0).status
    synthetic.status(status / "train-actor-10.json", state="running", exit_code=0)
    (status / "train-actor-9.json").write_text("[]")
    assert report.main([f"--outdir={directory.root}"]) == 5
    assert "gave up after 0 s: train-actor-10 of run 0" in capsys.readouterr().out
    assert [line.partition(":")[0] for line in _facts(directory).damaged] == [
        "runs/0/status/train-actor-9.json"
    ]
    assert [name for _, name in directory.run(0).members()] == ["train-actor-9", "train-actor-10"]


def test_a_page_is_made_anew_for_a_member_that_ended_since(tmp_path: Path) -> None:
    directory = synthetic.experiment(tmp_path / "x", ("complete",))
    synthetic.finish(directory, draw=False)
    for members in ([], NAMES[:1]):
        for name in members:
            synthetic.status(directory.run(0).status / f"{name}.json")
        assert report.main([f"--outdir={directory.root}"]) == 0
        assert ("train-actor-0" in directory.report_html.read_text()) == bool(members)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--role=actor"], "--member is missing for the role actor; allowed: 0 to 4095"),
        (["--role=actor", "--member=-1"], "--member is -1 for the role actor"),
        (["--member=-1"], "--member is -1 for the role learner; allowed: 0 to 4095"),
        (["--role=actress"], "invalid choice: 'actress'"),
    ],
)
def test_a_role_and_member_that_cannot_be(tmp_path: Path, arguments: list[str], said: str) -> None:
    directory = synthetic.experiment(tmp_path / "x", ("absent",))
    before = sorted(directory.root.rglob("*"))
    process = start(directory.root, *arguments)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2 and out == "" and said in err
    assert sorted(directory.root.rglob("*")) == before
