"""The steps of a search on directories as trainings leave them: what is proposed, judged, told and chosen."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from config import pipeline
from config.resolve import resolve
from config.strict_yaml import load
from config.study.search import trial_name
from steps import choose, judge, plan_search, propose, tell
from steps.browsing.rows import Row
from steps.directory import processes
from steps.directory.experiment import read_experiment
from steps.directory.owner import Owner, claim, release
from steps.directory.search import SearchDirectory
from steps.directory.study import find_cell, read_asked
from steps.propose import open_journal
from steps.search.journal import Trial
from tests import synthetic
from tests.outside import OF_A_WORKFLOW

FILE = """\
outdir: OUTDIR
runs: 2
algorithms: [{ppo: {clip: 0.3}}]
games: [cartpole]
parameters: {epochs: 20, evaluation_episodes: 5, learning_rate: 1e-5}
search:
  parameters: {learning_rate: {low: 1e-5, high: 1e-2, scale: log}, hidden_sizes: {choices: ["8,8", "16"]}}
  sampler: random
  trials: 4
  parallel: 2
  prune: {rungs: [0.25, 1.0], reduction: 2}
  then: {best: 1, runs: 3, seed: 7}
"""
RUNG, END = 5, 20


@pytest.fixture
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in OF_A_WORKFLOW:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OUTPUTS", str(tmp_path / "outputs"))
    (tmp_path / "outputs").mkdir()
    return tmp_path / "outputs"


@pytest.fixture
def search(tmp_path: Path, outputs: Path) -> SearchDirectory:
    """A search that was planned."""
    root = tmp_path / "search"
    (tmp_path / "file.yaml").write_text(FILE.replace("OUTDIR", str(root)))
    assert plan_search.main([str(tmp_path / "file.yaml")]) == 0
    assert json.loads((outputs / pipeline.LANES).read_text()) == ["0", "1"]
    return SearchDirectory(root)


def proposed(search: SearchDirectory, outputs: Path, lane: int = 0) -> tuple[str, int]:
    assert propose.main(["--outdir", str(search.root), "--lane", str(lane)]) == 0
    name = (outputs / pipeline.TRIAL).read_text()
    listed = json.loads((outputs / "experiments").read_text())
    assert listed == ([name] if name else [])
    return name, int((outputs / pipeline.UNTIL).read_text())


def trained(search: SearchDirectory, name: str, states: Sequence[str], **details: object) -> None:
    """The experiment of a trial with runs in these states, whose status has these details too."""
    experiment = search.experiment(name)
    given = {k: v for k, v in find_cell(experiment).given.items() if k not in ("runs", "game")}
    synthetic.experiment(experiment.root, states, **given)
    for index, state in enumerate(states):
        if state == "complete":
            path = experiment.run(index).status / "train.json"
            status = json.loads(path.read_text())
            status["details"] |= {"epoch": END, "wall_s": 8.0, **details}
            path.write_text(json.dumps(status))


def judged(search: SearchDirectory, outputs: Path, name: str, until: int) -> dict[str, str]:
    where = str(search.experiment(name).root)
    assert judge.main(["--outdir", where, "--until", str(until)]) == 0
    names = (pipeline.AGAIN, pipeline.UNTIL, pipeline.EVALUATED, pipeline.WHOLE)
    return {one: (outputs / one).read_text() for one in names}


def of_journal(search: SearchDirectory, number: int) -> Trial:
    return open_journal(search, read_asked(search)).trial(number)


def test_a_trial_is_an_experiment_by_its_directory(search: SearchDirectory, outputs: Path) -> None:
    name, until = proposed(search, outputs)
    assert (name, until) == ("trial-0000", RUNG)
    cell = find_cell(search.experiment(name))
    resolved = resolve(cell.algorithm, cell.given)
    trial = of_journal(search, 0)
    assert resolved.hyperparameters.learning_rate == trial.values["learning_rate"]
    assert (resolved.hyperparameters.clip, resolved.experiment.runs) == (0.3, 2)
    assert proposed(search, outputs) == (name, until)
    assert proposed(search, outputs, lane=1)[0] == "trial-0001"


def test_a_trial_from_rung_to_rung(search: SearchDirectory, outputs: Path) -> None:
    name, _ = proposed(search, outputs)
    trained(search, name, ["complete", "complete"])
    assert judged(search, outputs, name, RUNG) == {
        "again": "true", "until": str(END), "evaluated": "[]", "whole": "[]",
    }  # fmt: skip
    # Where it is continued, it is trained up to where it had come.
    assert proposed(search, outputs) == (name, END)
    assert judged(search, outputs, name, END)["evaluated"] == "[0, 1]"
    assert tell.main(["--outdir", str(search.root), "--trial", name]) == 0
    found = of_journal(search, 0)
    assert found.state == "complete" and found.value is not None and 450 < found.value <= 500
    assert found.facts["seconds"] == 16.0


def test_a_run_that_has_not_come_so_far_is_not_judged(
    search: SearchDirectory, outputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its trial fails, if the run did, and is continued otherwise."""
    name, _ = proposed(search, outputs)
    trained(search, name, ["complete", "failed"])
    assert judged(search, outputs, name, RUNG)["again"] == "false"
    assert of_journal(search, 0).rungs == ()
    assert tell.main(["--outdir", str(search.root), "--trial", name]) == 0
    found = of_journal(search, 0)
    assert (found.state, found.reason) == ("failed", "run 1: train: non-finite loss at epoch 58")
    other, _ = proposed(search, outputs)
    trained(search, other, ["complete", "unfinished"])
    assert tell.main(["--outdir", str(search.root), "--trial", other]) == 5
    assert "trial 1 has not ended: run 1: train: preempted" in capsys.readouterr().err
    assert proposed(search, outputs)[0] == other


def test_a_pruned_trial_is_told_and_never_continued(search: SearchDirectory, outputs: Path) -> None:
    for lane in range(2):
        name, _ = proposed(search, outputs, lane)
        trained(search, name, ["complete", "complete"])
        if lane == 1:
            for run in range(2):
                table = search.experiment(name).run(run).train_csv
                head, *rows = table.read_text().splitlines()
                place = head.split(",").index("return_mean")
                cells = [row.split(",") for row in rows]
                changed = [",".join([*row[:place], "1.0", *row[place + 1 :]]) for row in cells]
                table.write_text("\n".join([head, *changed]) + "\n")
        said = judged(search, outputs, name, RUNG)
        assert said["again"] == ("true" if lane == 0 else "false")
    assert proposed(search, outputs, lane=1)[0] == "trial-0002"
    found = of_journal(search, 1)
    assert found.state == "pruned"
    assert found.reason == ("pruned at rung 1, epoch 5: 1 is place 2 of the 2 that had reached it")


def test_the_winner(search: SearchDirectory, outputs: Path) -> None:
    """Its parameters are a presets file, and its study has what the file says and fresh seeds."""
    assert choose.main(["--outdir", str(search.root)]) == 5
    for number in range(2):
        name, _ = proposed(search, outputs, number)
        trained(search, name, ["complete", "complete"])
        returns = [100.0 * (number + 1)] * 5
        for run in range(2):
            synthetic.evaluated(search.experiment(name).run(run), returns)
        tell.main(["--outdir", str(search.root), "--trial", name])
    assert choose.main(["--outdir", str(search.root)]) == 0
    best = of_journal(search, 1)
    section = load(search.best_yaml.read_text(), "best.yaml")["ppo"]
    assert section["learning_rate"] == best.values["learning_rate"]
    assert section["clip"] == 0.3
    assert "epochs" not in section and "seed" not in section
    again = read_asked(search.again)
    assert [cell.name for cell in again.cells] == ["trial-1-cartpole", "preset-cartpole"]
    assert json.loads((outputs / "experiments").read_text()) == [one.name for one in again.cells]
    ours, preset = again.resolved.values()
    assert (ours.experiment.seed, ours.experiment.runs, ours.epochs) == (7, 3, END)
    assert preset.hyperparameters.learning_rate == 1e-5
    assert preset.hyperparameters.clip == 0.3
    trial = read_experiment(search.experiment(trial_name(1))).resolved
    assert ours.hyperparameters == trial.hyperparameters


def test_another_search_is_refused_and_a_longer_one_is_not(
    search: SearchDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(path.read_text().replace("trials: 4", "trials: 9"))
    assert plan_search.main([str(path)]) == 0
    grown = read_asked(search).search
    assert grown is not None and grown.trials == 9
    path.write_text(path.read_text().replace("low: 1e-5", "low: 1e-4"))
    assert plan_search.main([str(path)]) == 4
    assert "search.parameters.learning_rate.low: 1e-05 in the directory" in capsys.readouterr().err


def test_a_trial_of_a_living_workflow_is_not_taken(
    search: SearchDirectory, outputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the search itself has given no sign of life for long."""
    name, _ = proposed(search, outputs)
    trained(search, name, ["unfinished", "unfinished"])
    living = Owner(uid="other", workflow="other", process=processes.identity())
    claim(search.experiment(name).owner_json, living)
    assert plan_search.main([str(tmp_path / "file.yaml")]) == 4
    assert "belongs to workflow other" in capsys.readouterr().err


def test_a_workflow_that_is_retried_takes_its_search_back(
    search: SearchDirectory, outputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its exit handler has let go of it; another one's search is not touched."""
    claim(search.owner_json, Owner(uid="mine"))
    release(search.owner_json, "mine")
    monkeypatch.setenv("EXPERIMENT_OWNER", "mine")
    assert proposed(search, outputs)[0] == "trial-0000"
    monkeypatch.setenv("EXPERIMENT_OWNER", "another")
    assert propose.main(["--outdir", str(search.root), "--lane", "0"]) == 4
    assert len(open_journal(search, read_asked(search)).trials()) == 1


def test_the_file_of_a_study_is_refused(
    tmp_path: Path, outputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(f"outdir: {tmp_path}/x\nruns: 1\nalgorithms: [ppo]\ngames: [cartpole]\n")
    assert plan_search.main([str(path)]) == 2
    assert "no key 'search'" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_the_overview_has_a_line_for_a_search_and_its_winner(search: SearchDirectory) -> None:
    from steps.browsing.overview import Overview

    def line() -> Row:
        (found,) = (row for row in Overview(search.root).rows() if row.place.kind == "search")
        return found

    assert (line().state, line().note) == ("incomplete", "0 of 4 experiments begun")
    synthetic.experiment(search.experiment("trial-0000").root, ("paused",) * 2, epochs=20)
    search.best_yaml.write_text("# trial 3: 487.25 in the search\nppo: {}\n")
    found = line()
    assert (found.value, found.shown) == (487.25, "487.2")
    assert found.measure == "trial 3, the best in the search"
    assert found.note == "1 of 4 experiments begun: 1 paused"
    claim(search.owner_json, Owner(uid="u", process=processes.identity()))
    assert line().state == "running"
    release(search.owner_json, "u")
    assert line().state == "succeeded"
