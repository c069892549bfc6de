"""What `make learning` says: bounds, comparison, exit codes; and that it reads real experiments."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from config.resolve import resolve
from steps.figures.style import look
from steps.statistics.curves import curve
from tests import synthetic
from tests.benchmarks import beside_stable_baselines3 as beside
from tests.benchmarks import breakout, experiments, learning, stable_baselines3_breakout
from tests.benchmarks.curves import Learnt, read_learnt, side_by_side
from tests.benchmarks.experiments import Experiment, run_together
from tests.benchmarks.goals import GOALS, LONG, RUNS, SEED, Goal
from tests.benchmarks.verdicts import (
    HOLDS,
    INCOMPLETE,
    MISSED,
    Bound,
    Bounded,
    Compared,
    Outcome,
    bounded_table,
    compared_table,
    not_below,
    spread,
)
from workflows import submit


def outcome(*scores: float, wanted: int | None = None) -> Outcome:
    return Outcome(wanted=len(scores) if wanted is None else wanted, scores=scores, steps=99_840)


def bounded(*scores: float, bound: Bound, wanted: int | None = None) -> Bounded:
    reached = outcome(*scores, wanted=wanted)
    return Bounded(algorithm="dqn", game="acrobot", policy="greedy", ours=reached, bound=bound)


@pytest.mark.parametrize(
    ("ours", "theirs", "holds"),
    [
        ((5.0, 5.0), (5.0, 5.0), True),
        ((4.9, 4.9), (5.0, 5.0), False),  # runs that do not differ leave no room
        ((4.0, 4.0), (4.0, 6.0), True),  # 1 below, their spread is 2
        ((2.0, 4.0), (5.0, 5.0), True),  # 2 below, our own spread is 2
        (
            (2.0, 3.9),
            (5.0, 5.0),
            False,
        ),  # 2.05 below, spread 1.9: the two groups together would reach further
        ((9.0, 9.0), (1.0, 2.0), True),  # above is never too far
        ((float("nan"), 5.0), (5.0, 5.0), False),
    ],
)
def test_not_below_by_more_than_the_spread(
    ours: tuple[float, ...],
    theirs: tuple[float, ...],
    holds: bool,
) -> None:
    assert not_below(ours, theirs) is holds


def test_the_spread_is_that_of_the_learner_whose_runs_differ_more() -> None:
    assert spread((1.0, 2.0, 4.0), (10.0, 12.0)) == 3.0
    assert spread((1.0,), (10.0, 12.0)) == 2.0


def test_a_bound_is_for_the_mean_of_all_runs() -> None:
    least = Bound(-90)
    assert bounded(-80.0, -95.0, -95.0, bound=least).verdict == HOLDS
    assert bounded(-80.0, -95.0, -95.1, bound=least).verdict == MISSED
    assert bounded(float("nan"), -80.0, -80.0, bound=least).verdict == MISSED
    assert bounded(-80.0, -80.0, bound=least, wanted=3).verdict == INCOMPLETE


def test_an_upper_bound_is_not_reached() -> None:
    below = Bound(150, is_upper=True)
    assert bounded(100.0, 199.0, bound=below).verdict == HOLDS
    assert bounded(100.0, 200.0, bound=below).verdict == MISSED
    assert bounded(float("nan"), 100.0, bound=below).verdict == MISSED
    assert (str(below), str(Bound(-90))) == ("< 150", "≥ −90")


def test_a_comparison_needs_both() -> None:
    both = {"game": "Breakout", "policy": "greedy"}
    assert Compared(**both, ours=outcome(5.0, 6.0), theirs=outcome(5.0, 6.0)).verdict == HOLDS
    assert Compared(**both, ours=outcome(1.0, 2.0), theirs=outcome(5.0, 6.0)).verdict == MISSED
    assert Compared(**both, ours=outcome(5.0, 6.0), theirs=outcome(wanted=2)).verdict == INCOMPLETE
    one_of_two = outcome(5.0, wanted=2)
    assert Compared(**both, ours=one_of_two, theirs=outcome(5.0, 6.0)).verdict == INCOMPLETE


def test_the_tables() -> None:
    below = Bound(-90, is_upper=True)
    rows = [bounded(-80.0, -95.0, bound=Bound(-90)), bounded(-99.0, bound=below, wanted=2)]
    assert bounded_table(rows)[2:] == [
        "| dqn | acrobot | 99,840 | greedy | −80.0, −95.0 | −87.5 | ≥ −90 | holds |",
        "| dqn | acrobot | 99,840 | greedy | −99.0, – | −99.0 | < −90 | incomplete |",
    ]
    ours, theirs = outcome(1.0, 2.0), outcome(5.0, 7.0)
    (line,) = compared_table([Compared(game="Pong", policy="sample", ours=ours, theirs=theirs)])[2:]
    assert line == "| Pong | 99,840 | sample | 1.0, 2.0 | 1.5 | 5.0, 7.0 | 6.0 | 2.0 | MISSED |"


def fill(outdir: Path, monkeypatch: pytest.MonkeyPatch, *, least: float) -> None:
    """A finished experiment, with another bound than the true one."""
    goal = Goal("ppo", "cartpole", 100_000, Bound(least))
    monkeypatch.setattr(learning, "GOALS", (goal,))
    directory = outdir / "ours" / "ppo-cartpole"
    synthetic.experiment(directory, ("complete",) * RUNS)


@pytest.mark.parametrize(("least", "code"), [(-1000.0, 0), (1000.0, 1)])
def test_a_miss_gives_exit_code_1(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    least: float,
    code: int,
) -> None:
    fill(tmp_path, monkeypatch, least=least)
    assert learning.main(["--report", "--game", "cartpole", "--outdir", str(tmp_path)]) == code
    assert ("| holds |" if code == 0 else "| MISSED |") in capsys.readouterr().out


def test_an_experiment_that_failed_gives_exit_code_1(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(tmp_path, monkeypatch, least=-1000.0)
    arguments = ["--game", "cartpole", "--outdir", str(tmp_path)]
    monkeypatch.setattr(Experiment, "run", lambda self: True)
    assert learning.main(arguments) == 0
    monkeypatch.setattr(Experiment, "run", lambda self: False)
    assert learning.main(arguments) == 1


def test_what_is_not_there_yet_is_incomplete_and_says_why(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    synthetic.experiment(tmp_path / "ours" / "ppo-cartpole", ("complete", "unfinished", "complete"))
    assert learning.main(["--report", "--outdir", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert said.count("| incomplete |") == len(GOALS) + 4
    assert "ppo cartpole: run 1: " in said
    assert f"dqn acrobot: no file {tmp_path}/ours/dqn-acrobot/experiment.yaml" in said


def test_without_stable_baselines3_one_line_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(learning, "REFERENCE_PYTHON", learning.ROOT / ".venv-absent/bin/python")
    monkeypatch.setattr(Experiment, "run", lambda self: pytest.fail("it trains"))
    assert learning.main(["--outdir", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert said.out == "" and len(said.err.splitlines()) == 1
    assert ".venv-absent" in said.err and "make learning" in said.err
    assert list(tmp_path.iterdir()) == []


def write_reference(
    outdir: Path,
    sticky_actions: float,
    seed: int,
    returns: list[float],
    **asked: float,
) -> None:
    folder = breakout.reference_folder(outdir, sticky_actions, seed)
    folder.mkdir(parents=True)
    done = {policy: {"returns": returns} for policy in ("greedy", "sample")}
    result = {
        "asked": breakout.reference_settings(sticky_actions, seed) | asked,
        "training": {"steps": 204_800},
        "evaluation": done,
    }
    (folder / "result.json").write_text(json.dumps(result))


def test_a_reference_counts_only_if_it_was_trained_as_asked(tmp_path: Path) -> None:
    games = breakout.EPISODES
    write_reference(tmp_path, 0.25, 1000, [4.0] * games)
    write_reference(tmp_path, 0.25, 1001, [6.0] * games, steps=102_400)
    found = breakout.reference_outcome(tmp_path, 0.25, 1000, "greedy")
    assert (found.wanted, found.scores, found.steps) == (2, (4.0,), 204_800)
    assert found.missing == ("Stable-Baselines3, seed 1001: no greedy evaluation",)
    write_reference(tmp_path, 0.0, 1000, [4.0] * (games - 1))
    assert breakout.reference_outcome(tmp_path, 0.0, 1000, "sample").scores == ()


def test_stable_baselines3_has_the_budget_of_ours() -> None:
    ours = resolve("ppo", breakout.given(0.25, 1000))
    assert ours.total_steps == breakout.reference_settings(0.25, 1000)["steps"] == 204_800
    assert ours.experiment.evaluation_episodes == breakout.EPISODES


@pytest.mark.parametrize("goal", [*GOALS, *LONG], ids=lambda goal: goal.name)
def test_the_trainings_have_the_length_that_the_bounds_are_for(goal: Goal, tmp_path: Path) -> None:
    made = learning.experiment(goal, tmp_path)
    resolved = resolve(goal.algorithm, made.given)
    assert 0 <= resolved.total_steps - goal.steps < resolved.steps_per_epoch
    assert resolved.experiment.evaluation_episodes == 20


@pytest.mark.parametrize("pair", beside.PAIRS, ids=lambda pair: pair.name)
def test_the_reference_trains_for_as_long_with_the_same_settings(pair: beside.Pair) -> None:
    resolved, request = pair.resolved, beside.asked(pair, 1)
    assert 0 <= resolved.total_steps - pair.steps < resolved.steps_per_epoch
    assert (request["steps"], request["seed"]) == (resolved.total_steps, SEED + 1)
    assert request["game"] == resolved.game.id
    arguments, ours = request["arguments"], resolved.hyperparameters
    if pair.defaults:
        assert not arguments and request["normalised"] is None
        return
    assert arguments["learning_rate"] == ours.learning_rate
    assert arguments["gamma"] == ours.discount
    if pair.algorithm == "ppo":
        rows = request["environments"] * arguments["n_steps"]
        assert rows == arguments["batch_size"] * ours.minibatches == resolved.steps_per_epoch
    else:
        assert (arguments["batch_size"], request["environments"]) == (ours.batch_size, 1)
        assert arguments["learning_starts"] == ours.learning_starts


def test_curves_are_means_of_the_episodes_in_each_part() -> None:
    found = beside.in_parts([10, 12, 1000], [1.0, 3.0, 7.0], 1000)
    assert (found.steps.tolist(), found.values.tolist()) == ([15, 1000], [2.0, 7.0])


def test_figures_are_drawn_from_what_was_recorded_without_the_trainings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = next(one for one in beside.PAIRS if one.name == "ppo-inverted-pendulum")
    monkeypatch.setattr(beside, "FIGURES", {"beside": (beside.SAME, (pair.name,))})
    monkeypatch.setattr(beside, "PICTURES", tmp_path / "pictures")
    outdir, recorded = tmp_path / "outdir", tmp_path / "recorded"
    directory = pair.ours(outdir).directory
    synthetic.experiment(directory, ("complete",) * RUNS, game="inverted-pendulum")
    for run in range(RUNS):
        beside.keep(pair, outdir, recorded)
        beside.draw(recorded)
        assert not recorded.exists() and not beside.PICTURES.exists(), "a run of theirs is missing"
        result = {
            "asked": beside.asked(pair, run),
            "steps": 51_200,
            "training": [[100, 9.0], [50_000, 800.126 + run]],
            "returns": [1000.0, 990.0],
        }
        path = pair.theirs(outdir, run)
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(result))
    beside.keep(pair, outdir, recorded)
    shutil.rmtree(outdir)
    beside.draw(recorded)
    assert (beside.PICTURES / "beside.png").stat().st_size > 10_000
    ours, theirs = read_learnt(beside.curves_file(recorded, pair.name))
    assert (ours.algorithm, len(ours.curves)) == ("ours", RUNS)
    assert theirs.scores == [995.0] * RUNS
    assert [one.values.tolist() for one in theirs.curves] == [
        [9.0, 800.13],
        [9.0, 801.13],
        [9.0, 802.13],
    ]
    (row,) = json.loads((recorded / "beside-stable-baselines3.json").read_text())
    assert (row["game"], row["reference"]) == ("inverted-pendulum", [995.0] * RUNS)


def test_no_two_goals_share_a_directory(tmp_path: Path) -> None:
    directories = [learning.experiment(one, tmp_path).directory for one in (*GOALS, *LONG)]
    assert len(set(directories)) == len(directories)
    assert directories[-2].name == "sac-lunarlander_continuous-200k"


def names(algorithms: list[str] | None, games: list[str] | None, *, long: bool = False):
    goals, with_breakout = learning.chosen(algorithms, games, long=long)
    return [one.name for one in goals], with_breakout


def test_algorithms_and_games_are_chosen() -> None:
    assert learning.chosen(None, None) == (list(GOALS), True)
    assert names(["dqn"], ["acrobot", "breakout"]) == (["dqn-acrobot"], False)
    assert names(None, ["cartpole"]) == (["ppo-cartpole", "dqn-cartpole", "impala-cartpole"], False)
    assert names(["ppo"], ["breakout"]) == ([], True)
    assert names(["impala-late"], ["catch"]) == (["impala-late-catch-160k"], False)
    assert learning.chosen(None, None, long=True) == (list(LONG), False)
    options = learning.parse(["--algorithm", "dqn", "--game", "acrobot", "--game", "cartpole"])
    assert (options.algorithm, options.game) == (["dqn"], ["acrobot", "cartpole"])


def goals_named(*wanted: str) -> list[Goal]:
    return [one for one in (*GOALS, *LONG) if one.name in wanted]


@pytest.mark.parametrize(
    "goal",
    [
        *goals_named("ppo-cartpole", "dqn-cartpole", "ppo-pendulum-no-velocity-100k"),
        *goals_named("a3c-late-catch-160k", "r2d2-forgetful-cartpole-no-velocity"),
        *LONG,
        None,
    ],
    ids=lambda goal: goal.name if goal else "breakout",
)
def test_the_command_of_every_experiment_is_accepted(
    goal: Goal | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    commands: list[list[str]] = []

    def collect(given: list[list[str]], environment: object = None) -> bool:
        commands.extend(given)
        return True

    monkeypatch.setattr(experiments, "run_together", collect)
    of_breakout = breakout.experiments(tmp_path, SEED)
    made = of_breakout if goal is None else [learning.experiment(goal, tmp_path)]
    for one in made:
        assert one.run()
    for command, one in zip(commands, made, strict=True):
        assert command[1:4] == ["-m", "workflows.submit", goal.algorithm if goal else "ppo"]
        capsys.readouterr()
        assert submit.main([*command[3:], "--dry-run"]) == 0
        plan = capsys.readouterr().out
        assert str(one.directory) in plan
        for name, value in (("runs", one.runs), ("seed", SEED)):
            assert re.search(rf"^ +\* {name} +{value}\b", plan, re.MULTILINE)


def learnt(algorithm: str, bound: Bound, *heights: float) -> Learnt:
    """Runs of different lengths whose training stays at a height, and who score that."""
    curves = [
        curve(np.arange(1.0, 101 + i) * 100, np.full(100 + i, height))
        for i, height in enumerate(heights)
    ]
    return Learnt(algorithm=algorithm, bound=bound, curves=curves, scores=heights)


def test_the_figure_shows_every_run_their_mean_and_the_bounds() -> None:
    pair = [
        learnt("ppo-lstm", Bound(450), 400.0, 500.0, 480.0),
        learnt("ppo", Bound(150, is_upper=True), 100.0, 60.0),
    ]
    with look():
        figure = side_by_side(
            "Memory", "return", {"cartpole": pair, "pendulum": pair[:1]}, "Diamonds."
        )
    cartpole, pendulum = figure.axes
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["cartpole", "pendulum"]
    said = [text.get_text() for text in figure.legends[0].get_texts()]
    assert said == ["ppo-lstm, n = 3", "ppo, n = 2"]
    assert [text.get_text() for text in cartpole.texts] == ["≥ 450", "< 150"]
    thin, strong, scores = (
        [line.get_ydata() for line in cartpole.lines if is_one(line)]
        for is_one in (
            lambda line: line.get_linewidth() < 0.8,
            lambda line: line.get_linewidth() == 2.0,
            lambda line: line.get_marker() == "D",
        )
    )
    assert [line[-1] for line in thin] == [400.0, 500.0, 480.0, 100.0, 60.0]
    assert [line[-1] for line in strong] == [460.0, 80.0]
    assert [list(points) for points in scores] == [[400.0, 500.0, 480.0], [100.0, 60.0]]
    assert len(pendulum.lines) == 3 + 1 + 1 + 1


def test_the_mean_of_runs_with_few_points_does_not_lag_behind_them() -> None:
    steps = np.array([166256.0, 332513, 483655, 649912, 806092, 967311])
    runs = [curve(steps, np.arange(6.0) + at) for at in (0, 2)]
    one = Learnt(algorithm="ppo", curves=runs, scores=[5.0, 7.0])
    with look():
        figure = side_by_side("Long episodes", "return", {"freeway": [one]}, "Diamonds.")
    (strong,) = (line for line in figure.axes[0].lines if line.get_linewidth() == 2.0)
    assert list(strong.get_xdata()) == list(steps)
    assert list(strong.get_ydata()) == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


def test_the_figure_is_drawn_once_both_games_were_learnt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--report", "--algorithm", "ppo", "--outdir", str(tmp_path)]
    for game, is_drawn in zip(learning.WITHOUT_VELOCITIES, (False, True), strict=True):
        for goal in (one for one in GOALS if one.game == game):
            synthetic.experiment(tmp_path / "ours" / goal.name, game=game)
        assert learning.main(arguments) == 1
        drawn = tmp_path / "without-velocities.png"
        assert drawn.exists() is is_drawn is (f"Figure: {drawn}" in capsys.readouterr().out)


def test_the_figure_is_of_ppo_with_a_memory_and_without_whatever_else_was_learnt(
    tmp_path: Path,
) -> None:
    game = learning.WITHOUT_VELOCITIES[0]
    goals = [one for one in GOALS if one.game == game]
    assert {"r2d2", "r2d2-forgetful"} < {one.called for one in goals}
    for goal in goals:
        synthetic.experiment(tmp_path / "ours" / goal.name, game=game)
    drawn = learning.learnt(game, tmp_path)
    assert [one.algorithm for one in drawn] == ["ppo-lstm", "ppo"]


def test_the_reference_is_trained_side_by_side_with_its_settings(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    together: list[list[list[str]]] = []

    def collect(given: list[list[str]], environment: dict[str, str]) -> bool:
        assert environment["OMP_NUM_THREADS"] == "1"
        together.append(given)
        return True

    monkeypatch.setattr(breakout, "run_together", collect)
    assert breakout.train_reference(tmp_path, 1000)
    assert [len(commands) for commands in together] == [2, 2]
    first = together[0][0]
    assert first[1:3] == [
        str(breakout.WORKER),
        str(breakout.reference_folder(tmp_path, 0.25, 1000)),
    ]
    assert first[3:] == [
        "--sticky-actions",
        "0.25",
        "--steps",
        "204800",
        "--seed",
        "1000",
        "--episodes",
        "20",
    ]


def test_one_command_that_fails_is_a_failure_of_all() -> None:
    succeeds, fails = ([sys.executable, "-c", f"raise SystemExit({code})"] for code in (0, 1))
    assert run_together([succeeds, succeeds])
    assert not run_together([fails, succeeds])


def step(name: str, *arguments: str) -> None:
    command = [sys.executable, "-m", f"steps.{name}", *arguments]
    done = subprocess.run(command, cwd=learning.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout, done.stderr)


@pytest.mark.slow
def test_a_real_experiment_is_evaluated_with_both_policies(tmp_path: Path) -> None:
    made = Experiment(
        algorithm="ppo",
        directory=tmp_path / "cartpole",
        given={},
        runs=1,
        evaluations=tmp_path / "evaluations",
    )
    given = (
        "game=cartpole",
        "epochs=1",
        "evaluation_episodes=2",
        "device=cpu",
        f"outdir={made.directory}",
    )
    step("prepare", "--algorithm=ppo", *(f"-p{one}" for one in given))
    for name in ("train", "evaluate"):
        step(name, f"--outdir={made.directory}", "--run=0")
    assert made.policy() == "greedy" and len(made.commits()) == 1
    assert made.outcome() == made.outcome("greedy") != made.outcome("sample")
    assert made.outcome("sample").missing == ("run 0: no sample evaluation",)
    made.evaluate("sample")
    (written,) = made.evaluations.iterdir()
    before = written.stat().st_mtime_ns
    sampled = made.outcome("sample")
    assert len(sampled.scores) == 1 and sampled.missing == ()
    made.evaluate("sample")
    assert written.stat().st_mtime_ns == before  # not played again
    content = json.loads(written.read_text())
    written.write_text(json.dumps(content | {"checkpoint": {}}))
    assert made.outcome("sample").scores == ()  # of another agent


def test_the_reference_is_not_trained_twice_and_played_again_only_for_other_episodes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []

    def train(agent: Path, **asked: object) -> dict[str, object]:
        done.append("train")
        return {"steps": asked["steps"]}

    def evaluate(agent: Path, policy: str, episodes: int, asked: object) -> dict[str, object]:
        done.append(policy)
        return {"returns": [1.0] * episodes}

    def call(*, seed: int, episodes: int) -> list[str]:
        done.clear()
        settings = f"--sticky-actions 0 --steps 8 --seed {seed} --episodes {episodes}"
        monkeypatch.setattr(sys, "argv", ["worker", str(tmp_path), *settings.split()])
        stable_baselines3_breakout.main()
        return list(done)

    monkeypatch.setattr("torch.set_num_threads", lambda threads: None)
    monkeypatch.setattr(stable_baselines3_breakout, "train", train)
    monkeypatch.setattr(stable_baselines3_breakout, "evaluate", evaluate)
    assert call(seed=1, episodes=2) == ["train", "greedy", "sample"]
    assert call(seed=1, episodes=2) == []
    assert call(seed=1, episodes=3) == ["greedy", "sample"]
    assert call(seed=2, episodes=3) == ["train", "greedy", "sample"]
