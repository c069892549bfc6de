"""From the games of a self-play experiment to films, plots, averages and the page."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.arena.opponents import trained
from config.errors import BadInput
from config.ladder import LADDER
from config.numbers import number
from steps import average, evaluate, play, plot_average, plot_evaluation, plot_training, report
from steps.arena.averaged_arenas import standings
from steps.arena.film import GameFilm
from steps.arena.games import read_all, read_games, write_evaluation
from steps.arena.standing import rating_of
from steps.directory.layout import ExperimentDirectory
from steps.directory.status import read_status
from steps.figures.ratings import strength_plot
from steps.figures.style import look
from steps.policy import load_policy_of
from steps.results import Results
from steps.statistics.intervals import t_interval
from tests import arena_runs, synthetic

pytestmark = pytest.mark.slow  # two evaluations of 25 matches, every plot and film
RUNS = 2
IN_RUNS = (evaluate, play, plot_training, plot_evaluation)
OF_ALL = (average, plot_average)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExperimentDirectory]:
    """Two trained runs of tic-tac-toe, through every step that comes after a training."""
    with pytest.MonkeyPatch.context() as patch:
        arena_runs.hasty_ladder(patch)
        directory = arena_runs.experiment(
            tmp_path_factory.mktemp("x") / "x", RUNS, video_episodes=2
        )
        for step in IN_RUNS:
            for index in range(RUNS):
                assert step.main([f"--outdir={directory.root}", f"--run={index}"]) == 0
        for step in OF_ALL:
            assert step.main([f"--outdir={directory.root}"]) == 0
        assert report.main([f"--outdir={directory.root}", "--workflow-status=Succeeded"]) == 0
        yield directory


def test_every_plot_and_film_is_there(finished: ExperimentDirectory) -> None:
    of_run = (
        "evaluation",
        "ratings",
        "strength",
        "training",
        "training-hours",
        "losses",
        "resources",
    )
    of_all = (*of_run, "elo", "opponents")
    for folder, names in ((finished.run(1).plots, of_run), (finished.average / "plots", of_all)):
        assert sorted(path.name for path in folder.iterdir()) == sorted(
            f"{name}.{kind}" for name in names for kind in ("png", "svg")
        )
    assert [path.name for path in sorted(finished.run(1).videos.iterdir())] == [
        "episode-0.mp4", "episode-1.mp4"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("plot", "texts"),
    {
        "runs/0/plots/evaluation": ["who beats whom", "generation 2", "against", "lookahead"],
        "runs/0/plots/strength": ["generation", "Elo rating", "mcts-1000"],
        "runs/0/plots/training": ["win rate of who begins, %", "120 episodes. Smoothing"],
        "average/plots/evaluation": ["win rate, %", "Dots: each player of the ladder"],
        "average/plots/elo": ["Elo rating", "n = 2 of 2 runs", "Bradley–Terry"],
        "average/plots/opponents": ["win rate of the agent, %", "minimax", "t interval"],
        "average/plots/ratings": ["minimax", "generation 0", "each run's own"],
    }.items(),
)
def test_plots_say_what_they_show(
    finished: ExperimentDirectory, plot: str, texts: list[str]
) -> None:
    """The letters of a plot are paths, each text stands above its own as a comment."""
    svg = (finished.root / f"{plot}.svg").read_text()
    shown = " ".join(re.findall(r"<!-- (.*?) -->", svg, re.DOTALL))
    assert [text for text in texts if text not in shown] == []


def test_a_film_is_the_evaluated_game(finished: ExperimentDirectory) -> None:
    """A frame for each turn and the last one for three seconds; the first games are against the
    strongest of the ladder.
    """
    games = read_games(finished.run(0).root / "evaluation.csv")
    assert [one.opponent for one in games[:2]] == ["mcts-1000"] * 2
    status = read_status(finished.run(0).status / "play.json")
    assert status is not None
    for video, one in zip(status.details["videos"], games[:2], strict=True):
        assert video["frames"] == len(one.actions) + 3 and video["differs"] is None


def test_what_the_search_thinks_is_on_the_board_and_only_at_its_own_moves(
    finished: ExperimentDirectory,
) -> None:
    policy = load_policy_of(finished.run(0), synthetic.resolved_of(finished))[0]
    one = read_games(finished.run(0).root / "evaluation.csv")[1]
    film = GameFilm(trained("agent", policy), policy.game, one, 2)  # type: ignore[arg-type, union-attr]
    turns = list(film._turns())
    assert one.colour == "O" and [turn.policy is not None for turn in turns[:-1]] == [
        ply > 1 and ply % 2 == 1 for ply in range(len(one.actions))
    ]
    frames = list(film.frames())
    assert len(frames) == len(turns) + 2 and (frames[-1] == frames[-3]).all()
    assert film.difference() is None
    wrong = type(one)(**{**vars(one), "points": 50 - one.points})
    other = GameFilm(film.player, film.game, wrong, 2)
    assert "it ends with" in (other.difference() or "")


def test_a_game_that_is_none_is_not_filmed(
    finished: ExperimentDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = arena_runs.experiment(tmp_path)
    run = directory.run(0)
    assert play.main([f"--outdir={tmp_path}", "--run=0"]) == 2
    assert "evaluation.csv: evaluate makes it" in capsys.readouterr().err
    first = read_games(finished.run(0).root / "evaluation.csv")[0]
    wrong = type(first)(**{**vars(first), "actions": (0, 0)})
    write_evaluation(run.root / "evaluation.csv", [wrong])
    assert play.main([f"--outdir={tmp_path}", "--run=0"]) == 2
    assert "0 is not legal in one of its games" in capsys.readouterr().err
    assert list(run.videos.iterdir()) == []


def test_averages_are_over_runs(finished: ExperimentDirectory) -> None:
    """Of each run's own rating, with Student's interval of two."""
    ratings = [rating_of(read_all(finished.run(index)), "agent") for index in range(RUNS)]
    summary = json.loads((finished.average / "summary.json").read_text())
    assert summary["elo"]["n"] == RUNS and summary["elo"]["mean"] == pytest.approx(np.mean(ratings))
    assert summary["elo"]["t_interval"] == pytest.approx(t_interval(ratings))
    assert 0 <= summary["value_kept_percent"]["mean"] <= 100
    with (finished.average / "evaluation.csv").open() as file:
        assert [float(row["elo"]) for row in csv.DictReader(file)] == pytest.approx(ratings)
    rates = [
        np.mean([one.points for one in read_games(finished.run(index).root / "evaluation.csv")])
        for index in range(RUNS)
    ]
    assert summary["evaluation"]["mean"] == pytest.approx(np.mean(rates))
    with (finished.average / "arena.csv").open() as file:
        rows = {row["player"]: row for row in csv.DictReader(file)}
    assert set(rows) == {"agent", *LADDER, "minimax", "generation 0", "generation 2"}
    assert float(rows["agent"]["elo_mean"]) == pytest.approx(np.mean(ratings))
    assert float(rows["random"]["elo_mean"]) == float(rows["random"]["elo_high"]) == 0
    assert rows["agent"]["win_rate_mean"] == "" == rows["agent"]["elo_iqm"]
    against = [float(rows[name]["win_rate_mean"]) for name in LADDER]
    assert np.mean(against) == pytest.approx(np.mean(rates)), (
        "the ladder is what a run is judged by"
    )


def test_a_player_that_was_not_in_all_arenas_is_not_averaged(finished: ExperimentDirectory) -> None:
    assert [one.player for one in standings([finished.run(0)])][-1] == "generation 2"
    assert all(len(one.ratings) == RUNS for one in standings(map(finished.run, range(RUNS))))
    assert standings([]) == []


def test_the_page_has_the_ratings_beside_the_win_rate(finished: ExperimentDirectory) -> None:
    page = finished.report_html.read_text()
    body = page[page.index("<main") :]
    words = re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", body))
    assert "Complete" in words and "mean win rate of the final policies" in words
    assert re.search(r"Elo rating −?[0-9.]+, 95 % t interval of the mean", words)
    assert re.search(r"moves that keep the value [0-9.]+ %", words)
    assert (
        "4 games against each of mcts-1000, mcts-100, lookahead and random, 8 simulations" in words
    )
    arena = words[words.index("win rate of the agent against it") :]
    assert "minimax" in arena and "generation 2" in arena
    rating = read_status(finished.run(1).status / "evaluate.json").details["elo"]  # type: ignore[union-attr]
    assert number(rating) in words[words.index("last 100 in training win rate of who begins") :]
    assert body.count("<video") == 1 + 2 * RUNS
    for what in ("Elo ratings of all players", "run 1: strength", "run 1: ratings"):
        assert f'alt="{what}"' in body


@pytest.mark.parametrize("step", [*IN_RUNS, *OF_ALL], ids=lambda step: step.__name__)
def test_a_repeat_changes_nothing(
    finished: ExperimentDirectory, step: object, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.root.rglob("*") if path.is_file()}
    arguments = [f"--outdir={finished.root}", *(["--run=0"] if step in IN_RUNS else [])]
    assert step.main(arguments) == 0  # type: ignore[attr-defined]
    assert "nothing to do" in capsys.readouterr().out
    assert before == {
        path: path.stat().st_mtime_ns for path in finished.root.rglob("*") if path.is_file()
    }


def test_the_frames_carry_the_games(finished: ExperimentDirectory, tmp_path: Path) -> None:
    results = Results(finished.root)
    of_opponents = results.evaluation.groupby("opponent")["win_rate"].mean()
    assert set(of_opponents.index) == set(LADDER)
    assert results.evaluation["actions"].str.split().str.len().tolist() == (
        results.evaluation["length"].tolist()
    )
    for refused in (results.runs[1].policy, lambda: results.runs[1].export(tmp_path / "x.onnx")):
        with pytest.raises(BadInput, match=rf"steps.versus --opponent {finished.root}:1 plays"):
            refused()


def test_names_of_the_ladder_do_not_cover_each_other() -> None:
    """Two of one rating stand beside each other."""
    with look():
        figure = strength_plot(
            [0, 4], np.array([1.0, 9.0]), np.array([0.0, 8.0]), np.array([2.0, 10.0]),
            {"mcts-100": 5.0, "lookahead": 5.0}, title="t", subtitle="s", caption="c",
        )  # fmt: skip
        figure.canvas.draw()
        one, other = (text.get_window_extent() for text in figure.axes[0].texts)
    assert not one.overlaps(other)


def test_a_damaged_table_is_told_by_average_and_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arena_runs.hasty_ladder(monkeypatch)
    directory = arena_runs.experiment(tmp_path, evaluation_episodes=2)
    assert evaluate.main([f"--outdir={tmp_path}", "--run=0"]) == 0
    path = directory.run(0).arena_csv
    path.write_text(path.read_text().replace(",X,", ",Z,", 1))
    assert average.main([f"--outdir={tmp_path}"]) == 2
    assert f"{path} is no table of games" in capsys.readouterr().err
    assert report.main([f"--outdir={tmp_path}", "--workflow-status=Failed"]) == 5
    assert "runs/0/arena.csv: " in directory.report_html.read_text()


@pytest.mark.parametrize(
    ("step", "product"),
    [
        (evaluate, "runs/0/arena.csv"),
        (plot_evaluation, "runs/0/plots/strength.svg"),
        (average, "average/arena.csv"),
        (plot_average, "average/plots/opponents.png"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_product_that_was_lost_is_made_again_with_the_same_bytes(
    finished: ExperimentDirectory, step: Any, product: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena_runs.hasty_ladder(monkeypatch)
    path = finished.root / product
    before = path.read_bytes()
    path.unlink()
    arguments = [f"--outdir={finished.root}", *(["--run=0"] if step in IN_RUNS else [])]
    assert step.main(arguments) == 0 and path.read_bytes() == before
