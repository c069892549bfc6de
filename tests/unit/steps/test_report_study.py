"""`report_study`: the report of every experiment that was begun, and what is missing, in one line."""

from __future__ import annotations

import json
from html import unescape
from pathlib import Path

import pytest

from config.study import read_study
from steps import report, report_study
from steps.directory import owner
from steps.directory.layout import ExperimentDirectory
from steps.directory.owner import Owner
from steps.directory.study import StudyDirectory, write_cells
from tests import synthetic
from tests.outside import OF_A_WORKFLOW

Capture = pytest.CaptureFixture[str]
STUDY = (
    "outdir: x\nruns: 1\nalgorithms: [ppo, {ppo: {clip: 0.1}, label: narrow}]\ngames: [cartpole]\n"
)
FIRST, SECOND = "ppo-cartpole", "narrow-cartpole"
OURS, OTHER = "uid-1", "uid-2"


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StudyDirectory:
    """What `plan` has written."""
    for name in OF_A_WORKFLOW:
        monkeypatch.delenv(name, raising=False)
    directory = StudyDirectory(tmp_path / "study")
    directory.root.mkdir()
    directory.study_yaml.write_text(STUDY)
    write_cells(directory, read_study(STUDY, "study.yaml").cells)
    return directory


def ended(
    study: StudyDirectory, cell: str, state: str = "complete", uid: str = OURS
) -> ExperimentDirectory:
    """The experiment of a cell, all whose steps have ended."""
    directory = synthetic.experiment(study.experiment(cell).root, (state,))
    synthetic.finish(directory, draw=False)
    owner.claim(directory.owner_json, Owner(uid=uid, workflow="another"))
    return directory


def finished(study: StudyDirectory, *more: str) -> int:
    """The exit code of the exit handler's pod in the workflow `OURS`."""
    words = [f"--outdir={study.root}", "--workflow-status=Succeeded", *more]
    with pytest.MonkeyPatch.context() as inside:
        inside.setenv("EXPERIMENT_OWNER", OURS)
        return report_study.main(words)


def test_a_complete_study_has_all_reports_and_lets_go_of_all(study: StudyDirectory) -> None:
    both = [ended(study, name) for name in (FIRST, SECOND)]
    assert finished(study) == 0
    for directory in both:
        assert "<h2>Complete</h2>" in directory.report_html.read_text()
        assert json.loads(directory.owner_json.read_text())["released"]


def test_what_is_missing_is_named_and_the_others_are_reported(
    study: StudyDirectory, capsys: Capture
) -> None:
    incomplete = ended(study, FIRST, "failed")
    assert finished(study) == 5
    line = capsys.readouterr().err.splitlines()[-1]
    assert line == (
        f"report-study: the study is incomplete: {FIRST} is incomplete; {SECOND} was not begun"
    )
    assert incomplete.report_html.is_file()
    assert not study.experiment(SECOND).root.exists()


def test_an_experiment_of_a_running_workflow_is_named_and_not_touched(
    study: StudyDirectory, capsys: Capture
) -> None:
    ended(study, FIRST)
    other = ended(study, SECOND, uid=OTHER)
    before = {path: path.stat().st_mtime_ns for path in other.root.rglob("*")}
    assert finished(study) == 5
    line = capsys.readouterr().err.splitlines()[-1]
    assert f"incomplete: {SECOND} belongs to workflow another (uid {OTHER}" in line
    assert {path: path.stat().st_mtime_ns for path in other.root.rglob("*")} == before


@pytest.mark.parametrize(("state", "code"), [("complete", 0), ("failed", 5)])
def test_an_experiment_that_an_earlier_workflow_ended_is_judged_by_its_report(
    state: str, code: int, study: StudyDirectory, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This workflow was stopped before it came to it."""
    ended(study, FIRST)
    earlier = ended(study, SECOND, state, uid=OTHER)
    monkeypatch.setenv("EXPERIMENT_OWNER", OTHER)
    assert report.main([f"--outdir={earlier.root}"]) == code
    capsys.readouterr()
    assert finished(study) == code
    assert (f"incomplete: {SECOND} is incomplete" in capsys.readouterr().err) == bool(code)


def test_a_part_of_a_study_is_judged_alone(study: StudyDirectory, capsys: Capture) -> None:
    """The other part may not have begun, and its workflow makes its reports."""
    ended(study, SECOND)
    assert finished(study, "--part=2/2") == 0
    assert finished(study, "--part=1/2") == 5
    assert f"incomplete: {FIRST} was not begun" in capsys.readouterr().err
    assert finished(study, "--part=3/2") == 2


def test_without_a_plan_there_is_one_line(tmp_path: Path, capsys: Capture) -> None:
    assert finished(StudyDirectory(tmp_path / "none")) == 2
    assert capsys.readouterr().err == (
        f"report-study: no file {tmp_path}/none/cells.json: plan makes it\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_what_a_newer_file_does_not_ask_for_is_said_and_still_reported_by_its_workflow(
    study: StudyDirectory, capsys: Capture
) -> None:
    first, second = ended(study, FIRST), ended(study, SECOND, "failed")
    study.study_yaml.write_text(STUDY.replace(", {ppo: {clip: 0.1}, label: narrow}", ""))
    assert finished(study) == 5
    assert f"incomplete: {SECOND} is incomplete" in capsys.readouterr().err
    assert all(json.loads(one.owner_json.read_text())["released"] for one in (first, second))
    assert second.report_html.is_file()
    page = study.report_html.read_text()
    assert f"1 experiment, not in the study's file and not compared: {SECOND}" in unescape(page)
    assert "narrow" not in page.replace(SECOND, "")


def test_what_another_workflow_has_besides_is_not_judged(study: StudyDirectory) -> None:
    ended(study, FIRST)
    other = ended(study, SECOND, "failed", uid=OTHER)
    study.study_yaml.write_text(STUDY.replace(", {ppo: {clip: 0.1}, label: narrow}", ""))
    before = {path: path.stat().st_mtime_ns for path in other.root.rglob("*")}
    assert finished(study) == 0
    assert {path: path.stat().st_mtime_ns for path in other.root.rglob("*")} == before
