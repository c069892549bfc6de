"""What a run is judged by: average, headline, table and axes follow a measure that is no return."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import config.measures
from config.algorithms import ALGORITHMS
from config.cluster import load_cluster
from config.errors import BadInput
from config.measures import RETURN, Measure
from config.resolve import resolve
from steps import (
    average,
    evaluate,
    plot_average,
    plot_evaluation,
    plot_training,
    prepare,
    report,
    train,
)
from steps.directory.layout import ExperimentDirectory
from steps.directory.status import Score, printed, read_printed, read_progress, read_status
from steps.directory.tables import read_rows
from steps.directory.usable import usability
from steps.results import Results
from tests import synthetic
from workflows.dag.layout import Layout
from workflows.dag.render import rendered
from workflows.dag.tasks import read_tasks
from workflows.progress.ending import end
from workflows.progress.table import Table
from workflows.progress.words import numbers

WIN_RATE = Measure(
    name="win rate",
    unit="%",
    higher_is_better=True,
    table="games.csv",
    column="win_rate",
    training_column="win_rate_mean",
)
GAMES = "episode,seed,win_rate,length\n0,1,100,30\n1,2,0,25\n2,3,50,40\n3,4,{last},35\n"


@pytest.fixture(scope="module", autouse=True)
def _judged_by_its_win_rate() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        judged = replace(ALGORITHMS["ppo"], measure=WIN_RATE)
        patch.setattr("config.resolved.find_algorithm", lambda _: judged)
        yield


def trained(root: Path) -> ExperimentDirectory:
    """Two finished runs that won 50 and 60 % of their games."""
    directory = synthetic.experiment(root, ("complete",) * 2, evaluation_episodes=4)
    for index in (0, 1):
        run = directory.run(index)
        run.evaluated(RETURN).unlink()
        (run.root / "games.csv").write_text(GAMES.format(last=50 + 40 * index))
        run.train_csv.write_text(run.train_csv.read_text().replace("return", "win_rate"))
    return directory


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> ExperimentDirectory:
    """The same, averaged and drawn."""
    directory = trained(tmp_path_factory.mktemp("arena"))
    for step, arguments in (
        (plot_training, ["--run=1"]),
        (plot_evaluation, ["--run=1"]),
        (average, []),
        (plot_average, []),
    ):
        assert step.main([f"--outdir={directory.root}", *arguments]) == 0
    for index in (0, 1):
        synthetic.succeed(directory.run(index), "run")
    return directory


def test_the_average_is_that_of_the_measure(arena: ExperimentDirectory) -> None:
    table = (arena.average / "evaluation.csv").read_text().splitlines()
    assert "win_rate_mean,win_rate_sd,win_rate_min,win_rate_max" in table[0]
    assert "train_win_rate_last100" in table[0] and "return" not in table[0]
    evaluation = json.loads((arena.average / "summary.json").read_text())["evaluation"]
    assert (evaluation["n"], evaluation["mean"], evaluation["min"]) == (2, 55, 50)
    assert evaluation["score"].startswith("mean win rate over the episodes")
    assert len((arena.average / "train.csv").read_text().splitlines()) > 100


def test_the_page_speaks_of_the_measure(arena: ExperimentDirectory) -> None:
    assert report.main([f"--outdir={arena.root}", "--workflow-status=Succeeded"]) == 0
    page = arena.report_html.read_text()
    results = page[page.index('id="results"') : page.index('id="parameters"')]
    words = " ".join(part.split(">")[-1] for part in results.split("<"))
    assert "mean win rate of the final policies" in words and "55 %" in words
    assert "interval of the mean " in words and "win rate, %" in words
    assert "return" not in words and "solved" not in words


@pytest.mark.parametrize("plots", ["average/plots", "runs/1/plots"])
def test_axes_carry_the_name_and_the_unit(arena: ExperimentDirectory, plots: str) -> None:
    """The letters of a plot are paths, each text stands above its own as a comment."""
    training, evaluation, losses = (
        (arena.root / plots / f"{name}.svg").read_text()
        for name in ("training", "evaluation", "losses")
    )
    assert "<!-- win rate of training episodes, % -->" in training
    assert "<!-- win rate of an episode, % -->" in evaluation
    assert "win rate mean" not in losses and "value loss" in losses
    assert "solved" not in training + evaluation, "games know a solved return only"


def test_a_value_without_sense_and_a_threshold_are_told_in_its_words(tmp_path: Path) -> None:
    directory = trained(tmp_path)
    run, resolved = directory.run(0), synthetic.resolved_of(directory)
    (run.root / "games.csv").write_text(GAMES.format(last="inf"))
    reason = usability(run, resolved).reason
    assert reason is not None and "games.csv: the win rate of episode 3 is inf" in reason
    synthetic.status(run.status / "train.json", details={"training_win_rate": 40.0})
    above = dataclasses.replace(resolved.experiment, evaluate_above=55)
    resolved = dataclasses.replace(resolved, experiment=above)
    assert (usability(run, resolved).reason or "").startswith(
        "not evaluated: training win rate 40,"
    )


def test_the_live_view_speaks_of_the_measure(arena: ExperimentDirectory) -> None:
    """While it runs, with its files or with what it prints only, and at its end."""
    resolved = synthetic.resolved_of(arena)
    progress = read_progress(arena.run(0), resolved)
    assert progress.score is not None
    shown = f"win rate {progress.score.value:,.1f} %"
    assert shown in numbers(progress)
    seen = read_printed(printed(progress))
    assert seen is not None and seen.score == Score(
        "win rate", pytest.approx(progress.score.value, rel=1e-4), "%"
    )
    names = {"train": "runs(0:0).train", "average": "average"}
    nodes = {
        key: {"name": f"wf.{name}", "type": "Pod", "phase": "Succeeded"}
        for key, name in names.items()
    }
    layout = Layout.of(rendered("ppo", load_cluster()))
    tasks = read_tasks({"phase": "Succeeded", "nodes": nodes}, "wf", layout, 2)
    table = Table(lambda where: progress, lambda task: "", coloured=False)
    row = table.lines(tasks, rows=9, columns=200, clock="")[1]
    assert row.startswith(f"  run 0  ✔ train  {shown}") and "return" not in row


def test_the_last_lines_speak_of_the_measure(
    arena: ExperimentDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    node = {"name": "wf.average", "type": "Pod", "phase": "Succeeded"}
    layout = Layout.of(rendered("ppo", load_cluster()))
    tasks = read_tasks({"phase": "Succeeded", "nodes": {"a": node}}, "wf", layout, 2)
    assert end(tasks, 9.0, lambda outdir: arena.root, "/storage/arena") == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "Succeeded in 9.0 s; evaluation: mean win rate 55 %, n = 2 of 2"


def test_the_frames_carry_its_columns(arena: ExperimentDirectory) -> None:
    results = Results(arena.root)
    assert results.evaluation.groupby("run")["win_rate"].mean().tolist() == [50, 60]
    assert results.runs[1].evaluation["win_rate"].tolist() == [100, 0, 50, 90]
    summary = results.summary
    assert summary["win_rate_mean"].tolist() == [50, 60] and summary["win_rate_sd"][0] > 0
    assert "training_win_rate" in summary and results.training["win_rate_mean"].max() > 0
    frames = (results.training, results.evaluation, summary)
    assert [name for frame in frames for name in frame if "return" in name] == []


def test_what_the_steps_write_is_by_the_measure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A real training and its evaluation, which a threshold in the measure lets through."""
    given = ("game=cartpole", "epochs=2", "evaluation_episodes=3", "evaluate_above=1")
    parameters = [f"-p{one}" for one in (*given, "device=cpu", f"outdir={tmp_path}")]
    assert prepare.main(["--algorithm=ppo", *parameters]) == 0
    for step in (train, evaluate):
        assert step.main([f"--outdir={tmp_path}", "--run=0"]) == 0
    run, said = ExperimentDirectory(tmp_path).run(0), capsys.readouterr().out
    columns = read_rows(run.train_csv)[0]
    assert list(columns)[4:7] == ["win_rate_mean", "win_rate_min", "win_rate_max"]
    assert not run.evaluated(RETURN).exists()
    rows = read_rows(run.root / "games.csv")
    assert list(rows[0]) == ["episode", "seed", "win_rate", "length"] and len(rows) == 3
    details = {task: read_status(run.status / f"{task}.json") for task in ("train", "evaluate")}
    trained, evaluated = details["train"], details["evaluate"]
    assert trained is not None and trained.number("training_win_rate") is not None
    assert evaluated is not None and evaluated.number("win_rate_mean") == pytest.approx(
        sum(float(row["win_rate"]) for row in rows) / 3
    )
    assert "episode 3 of 3: mean win rate " in said and ", win rate " in said
    assert "return" not in said and " %" in said


def test_the_direction_decides_what_reaches_a_threshold() -> None:
    """And where less is better, the axis says so."""
    time = dataclasses.replace(RETURN, name="time", unit="s", higher_is_better=False)
    assert RETURN.reaches(3, 3) and RETURN.reaches(4, 3) and not RETURN.reaches(2, 3)
    assert time.reaches(3, 3) and time.reaches(2, 3) and not time.reaches(4, 3)
    assert time.axis("an episode") == "time of an episode, s (lower is better)"
    assert RETURN.axis("an episode") == "return of an episode" and RETURN.shown(3.0) == "3"


def test_what_a_training_measures_may_be_something_else(tmp_path: Path) -> None:
    """Both sides of self-play are one agent: its training rows are told in words of their own, and
    are no threshold.
    """
    assert config.measures.WIN_RATE.in_training.axis() == "win rate of who begins, %"
    assert config.measures.WIN_RATE.axis() == "win rate, %" and RETURN.in_training == RETURN
    judged = replace(ALGORITHMS["ppo"], measure=config.measures.WIN_RATE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("config.resolved.find_algorithm", lambda _: judged)
        directory = synthetic.experiment(tmp_path)
        run, resolved = directory.run(0), synthetic.resolved_of(directory)
        run.train_csv.write_text(run.train_csv.read_text().replace("return", "win_rate"))
        assert printed(read_progress(run, resolved)).count("win rate of who begins") == 1
        with pytest.raises(BadInput, match=r"'evaluate_above' cannot be 55: .* win rate of who"):
            resolve("ppo", {"evaluate_above": "55"})


@pytest.mark.parametrize(
    ("scores", "result"),
    [
        ({"n": 1, "mean": 7.0, "iqm": None}, ("return", 7.0)),
        ({"n": 4, "mean": 7.0, "iqm": None}, ("mean return", 7.0)),
        ({"n": 5, "mean": 7.0, "iqm": 6.0}, ("interquartile mean return", 6.0)),
    ],
)
def test_one_result_has_one_number_and_one_name(
    scores: dict[str, Any], result: tuple[str, float]
) -> None:
    assert RETURN.result(scores) == result
