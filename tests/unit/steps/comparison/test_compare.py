"""Comparisons of synthetic entries: what is shown for how many runs, and against independent answers."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from config.errors import BadInput
from config.measures import RETURN, WIN_RATE
from steps.average import SAME_SCORE
from steps.comparison.averaging import CURVE_POINTS, NARROW, NO_INTERVAL, RUN_POINTS
from steps.comparison.compared import Comparison, Standing
from steps.comparison.entries import EMPTY, Entry
from steps.directory.cost import Cost
from steps.statistics.curves import PARTS, Curve
from tests.synthetic_entries import STEPS, compared, entry, run, scores

COSTS = dataclasses.replace(RETURN, name="cost", higher_is_better=False)


def only(comparison: Comparison) -> Standing:
    (standing,) = comparison.standings.values()
    return standing


@pytest.mark.parametrize(
    ("runs", "interval", "iqm", "centre", "band", "remarks"),
    [
        (1, "", None, "mean", "", ()),
        (2, "t", None, "mean", "t", ()),
        (4, "t", None, "mean", "t", ()),
        (5, "t", "bootstrap", "IQM", "bootstrap", (NARROW,)),
        (9, "t", "bootstrap", "IQM", "bootstrap", (NARROW,)),
        (10, "t", "bootstrap", "IQM", "bootstrap", ()),
    ],
)
def test_the_number_of_runs_decides_what_is_shown(
    runs: int,
    interval: str,
    iqm: str | None,
    centre: str,
    band: str,
    remarks: tuple[str, ...],
) -> None:
    one = only(compared(entry("PPO", "cartpole", scores(runs, 400))))
    assert one.mean and one.training and one.hours
    assert (one.n, one.planned, one.mean.kind) == (runs, runs, interval)
    assert (one.iqm.kind if one.iqm else None) == iqm
    assert (one.training.centre, one.training.band.kind) == (centre, band)
    assert one.remarks == remarks and len(one.training.runs) == runs
    without = runs == 1
    assert (one.mean.low is None) == without == (one.training.band.low is None)
    assert one.mean.reason == one.training.band.reason == (NO_INTERVAL if without else "")


@pytest.mark.parametrize(
    ("runs", "games", "iqm", "mean", "profile"),
    [
        (1, 3, "", "", ""),
        (2, 3, "", "t", ""),
        (4, 3, "", "t", ""),
        (5, 3, "stratified bootstrap", "stratified bootstrap", "stratified bootstrap"),
        (5, 1, "stratified bootstrap", "t", "stratified bootstrap"),
        (2, 10, "", "t", ""),
        (3, 10, "stratified bootstrap", "stratified bootstrap", "stratified bootstrap"),
    ],
)
def test_so_does_that_of_games_over_games(
    runs: int, games: int, iqm: str, mean: str, profile: str
) -> None:
    names = [f"game-{index}" for index in range(games)]
    both = [
        entry(label, game, scores(runs, centre, seed))
        for label, centre in (("PPO", 50), ("A2C", 45))
        for seed, game in enumerate(names)
    ]
    found = compared(*both, baseline="PPO", ranges=dict.fromkeys(names, (0.0, 100.0)))
    one = found.overall["A2C"]
    assert found.shared == tuple(names) and found.efficiency_of == "training"
    assert one.aggregates and one.profile and one.improvement and one.efficiency
    assert (one.aggregates.iqm.kind, one.aggregates.mean.kind) == (iqm, mean)
    assert (one.profile.kind, one.efficiency.kind, one.improvement.kind) == (profile,) * 3
    assert found.overall["PPO"].improvement is None and one.baseline == "PPO"


@pytest.mark.parametrize("runs", [1, 2, 4, 5, 10])
def test_a_test_needs_five_runs_on_both_sides(runs: int) -> None:
    found = compared(
        entry("PPO", "cartpole", scores(10, 300)),
        entry("A2C", "cartpole", scores(runs, 200, seed=1)),
        baseline="PPO",
    )
    (one,) = found.tests
    assert (one.label, one.game, one.baseline) == ("A2C", "cartpole", "PPO")
    assert (one.p is None) == (one.adjusted is None) == (one.effect is None) == (runs < 5)
    assert bool(one.reason) == (runs < 5)
    assert one.difference.kind == ("" if runs == 1 else "Welch's t" if runs < 5 else "bootstrap")
    assert one.improvement == 0 and one.difference.value < 0


def test_numbers_against_closed_forms() -> None:
    found = compared(
        entry("X", "cartpole", (1, 2, 2, 5)),
        entry("Y", "cartpole", (2, 2, 3)),
        entry("Z", "cartpole", (380, 400, 420)),
        baseline="Y",
    )
    z = found.standings["Z", "cartpole"]
    assert z.mean and z.mean.low and z.mean.high and z.score == 0.8
    assert (z.mean.value, z.mean.high - 400) == (400, pytest.approx(49.68275, abs=1e-5))
    assert z.mean.low == pytest.approx(400 - 49.68275, abs=1e-5)
    x = next(one for one in found.tests if one.label == "X")
    assert x.improvement == pytest.approx(5 / 12, abs=1e-15)
    assert x.difference.value == pytest.approx(2.5 - 7 / 3)
    aggregates = found.overall["Z"].aggregates
    assert aggregates and aggregates.optimality_gap.value == pytest.approx(0.2)
    assert found.overall["X"].improvement and found.overall["X"].improvement.value == x.improvement


def test_holm_counts_all_games_and_labels() -> None:
    """Against a second implementation of Holm's correction."""
    games = ("cartpole", "acrobot", "pendulum")
    entries = [
        entry(label, game, scores(6, centre + shift, seed))
        for label, centre in (("PPO", 0.0), ("A2C", 12.0), ("DQN", 6.0))
        for seed, (game, shift) in enumerate(zip(games, (0, 50, -200), strict=True))
    ]
    for index, one in enumerate(entries):
        moved = np.random.default_rng(index).normal(0, 8, 6)
        runs = tuple(
            dataclasses.replace(of, score=(of.score or 0) + by)
            for of, by in zip(one.runs, moved, strict=True)
        )
        entries[index] = dataclasses.replace(one, runs=runs)
    tests = compared(*entries, baseline="PPO").tests
    assert len(tests) == 6
    ordered = sorted(tests, key=lambda one: one.p or 0)
    expected = list(
        itertools.accumulate(
            (min(1.0, (len(ordered) - at) * (one.p or 0)) for at, one in enumerate(ordered)), max
        )
    )
    assert [one.adjusted for one in ordered] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("measure", "means", "expected"),
    [
        (RETURN, (10, 30, 20), (3, 1, 2)),
        (RETURN, (10, 30, 30), (3, 1.5, 1.5)),
        (COSTS, (10, 30, 20), (1, 3, 2)),
        (RETURN, (10, None, 20), (2, None, 1)),
    ],
)
def test_ranks(measure: Any, means: Sequence[float | None], expected: Sequence[float]) -> None:
    found = compared(
        *(
            entry(label, "some-game", (mean, mean), measure=measure)
            for label, mean in zip("ABC", means, strict=True)
        )
    )
    assert [found.standings[label, "some-game"].rank for label in "ABC"] == list(expected)


def test_a_lower_cost_is_an_improvement() -> None:
    found = compared(
        entry("A", "some-game", (1, 2), measure=COSTS),
        entry("B", "some-game", (3, 4), measure=COSTS),
        baseline="B",
        ranges={"some-game": (10.0, 0.0)},
    )
    (test,) = found.tests
    assert test.improvement == 1 and test.difference.value == -2
    assert found.standings["A", "some-game"].score == pytest.approx(0.85)
    improvement = found.overall["A"].improvement
    assert improvement and improvement.value == 1


def test_a_given_range_replaces_a_known_one() -> None:
    entries = (entry("A", "cartpole", (100, 300)), entry("A", "Unknown-v3", (1, 2)))
    assert compared(*entries).ranges == {"cartpole": (0, 500)}
    given = {"cartpole": (0.0, 200.0), "Unknown-v3": (0.0, 1.0)}
    found = compared(*entries, ranges=given)
    assert found.ranges == given and found.standings["A", "cartpole"].score == 1
    wins = compared(entry("A", "connect-four", (60, 70), measure=WIN_RATE))
    assert wins.ranges == {"connect-four": (0, 100)}


def test_equal_scores_are_remarked() -> None:
    assert only(compared(entry("A", "cartpole", (500,) * 3))).remarks == (SAME_SCORE,)


def test_whatever_is_missing_is_said() -> None:
    found = compared(
        entry(
            "PPO", "cartpole", (400, None, 420, None), runs=(run("x", None, left_out="skipped"),)
        ),
        entry("PPO", "Unknown-v3", (1, 2)),
        entry("A2C", "cartpole", (None, 380)),
        entry("A2C", "Unknown-v3", (1, 2)),
        entry("PPO", "acrobot", (-100, -90)),
        entry("DQN", "acrobot", (None,)),
        missing=("experiment x was not begun",),
    )
    assert found.missing == (
        "PPO on cartpole: runs 1, 3 of 5 left out: failed: non-finite loss",
        "PPO on cartpole: run x of 5 left out: skipped",
        "A2C on cartpole: run 0 of 2 left out: failed: non-finite loss",
        "DQN on acrobot: run 0 of 1 left out: failed: non-finite loss",
        "A2C was not trained on acrobot",
        "DQN was not trained on cartpole, Unknown-v3",
        "no range of scores is known for Unknown-v3, so numbers over games are without",
        "not every label has a run on acrobot, so numbers over games are without",
        "experiment x was not begun",
    )
    assert found.shared == ("cartpole",), "a label without any run takes no game from the others"
    ppo = found.standings["PPO", "cartpole"]
    assert (ppo.n, ppo.planned, ppo.runs, ppo.scores) == (2, 5, ("0", "2"), (400, 420))
    assert list(ppo.left_out) == ["1", "3", "x"]
    dqn = found.standings["DQN", "acrobot"]
    assert (dqn.n, dqn.mean, dqn.rank, dqn.score, dqn.training) == (0, None, None, None, None)
    assert found.overall["DQN"].aggregates is None and ("DQN", "cartpole") not in found.standings


def test_a_run_left_out_enters_no_number() -> None:
    kept = entry("PPO", "cartpole", (400, 410, 420))
    with_failed = entry("PPO", "cartpole", (400, 410, 420), runs=(run("3", None),))
    one, other = only(compared(kept)), only(compared(with_failed))
    assert one.mean == other.mean and one.training and other.training
    np.testing.assert_array_equal(one.training.band.values, other.training.band.values)
    assert one.planned == 3 and other.planned == 4


@pytest.mark.parametrize(
    ("differing", "sentence"),
    [
        (
            {"steps": 2 * STEPS},
            "the environment steps of a run are not the same: 10,000 (A); 20,000 (B)",
        ),
        (
            {"steps": None},
            "the environment steps of a run are not the same: 10,000 (A); unknown (B)",
        ),
        ({"frames": 4}, "the frames in one environment step are not the same: 1 (A); 4 (B)"),
        (
            {"evaluation": "the last 100 episodes", "in_training": True},
            "what a score is the mean of is not the same: 20 greedy episodes of the final policy (A); "
            "the last 100 episodes, with exploration (B)",
        ),
        (
            {"conditions": {"sticky_actions": "0"}},
            "sticky_actions is not the same: 0.25 (A); 0 (B)",
        ),
        ({"conditions": {}}, "sticky_actions is not the same: 0.25 (A); unknown (B)"),
        (
            {"conditions": {"sticky_actions": "0.25", "wrappers": "x:Y"}},
            "wrappers is not the same: not set (A); x:Y (B)",
        ),
    ],
)
def test_unequal_things_are_said(differing: dict[str, Any], sentence: str) -> None:
    known = {"conditions": {"sticky_actions": "0.25"}}
    same = [entry(label, "pong", (1, 2), **known) for label in "AB"]
    assert compared(*same).unequal == ()
    found = compared(same[0], entry("B", "pong", (1, 2), **{**known, **differing}))
    assert found.unequal == (f"on pong, {sentence}",)
    again = [dataclasses.replace(same[0], game="breakout")]
    again += [entry("B", "breakout", (1, 2), **{**known, **differing})]
    both = compared(same[0], entry("B", "pong", (1, 2), **{**known, **differing}), *again)
    assert both.unequal == (f"on all games, {sentence}",), "once for several games"


@pytest.mark.parametrize(
    ("entries", "baseline", "message"),
    [
        (
            [entry("A", "x", (1,)), entry("B", "x", (1,), measure=WIN_RATE)],
            None,
            "the entries of x cannot be compared, because they are judged by different measures: "
            "A by the return, B by the win rate",
        ),
        (
            [entry("A", "x", (1,)), entry("A", "x", (1,))],
            None,
            "/results/A-x and /results/A-x are both 'A' on x; allowed: a label of its own for each, "
            "PATH:label=NAME",
        ),
        (
            [entry("ppo", "x", (1,))],
            "pp0",
            "unknown label of a baseline 'pp0'; did you mean 'ppo'? known: ppo",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(
    entries: list[Entry], baseline: str | None, message: str
) -> None:
    with pytest.raises(BadInput) as caught:
        compared(*entries, baseline=baseline)
    assert str(caught.value) == message


def grid(label: str, settings: dict[str, str], centre: float, games: Sequence[str]) -> list[Entry]:
    return [
        entry(label, game, scores(5, centre + 20 * at, seed=at), settings=settings)
        for at, game in enumerate(games)
    ]


def test_labels_of_a_grid_are_paired_by_its_values() -> None:
    games = ("cartpole", "frozenlake")
    entries = [
        one
        for label, centre in (("PPO", 300), ("A2C", 200))
        for rate in ("0.001", "0.01", "")
        for one in grid(label, {"learning_rate": rate, "gamma": "0.99"}, centre, games)
    ]
    found = compared(*entries, baseline="PPO")
    assert found.labels == tuple(
        f"{label}, learning_rate={rate}"
        for label in ("PPO", "A2C")
        for rate in ("0.001", "0.01", "preset")
    )
    assert found.plain_labels["A2C, learning_rate=preset"] == "A2C"
    assert {one.label: one.baseline for one in found.tests} == {
        f"A2C, learning_rate={rate}": f"PPO, learning_rate={rate}"
        for rate in ("0.001", "0.01", "preset")
    }
    named = compared(*entries, baseline="PPO, learning_rate=0.01")
    assert {one.baseline for one in named.tests} == {"PPO, learning_rate=0.01"}
    assert len(named.tests) == 5 * len(games)


def test_a_label_whose_settings_the_baseline_lacks_is_alone() -> None:
    games = ("cartpole",)
    entries = [
        *grid("PPO", {"learning_rate": "0.001"}, 300, games),
        *grid("A2C", {"learning_rate": "0.001"}, 200, games),
        *grid("A2C", {"learning_rate": "0.01"}, 200, games),
    ]
    found = compared(*entries, baseline="PPO")
    assert [one.label for one in found.tests] == ["A2C, learning_rate=0.001"]
    alone = "A2C, learning_rate=0.01 has no baseline: PPO lacks its settings"
    assert found.missing == (alone,)
    several = compared(*entries, *grid("DQN", {}, 1, games), baseline="A2C")
    assert several.missing == (
        "DQN has no baseline: several settings of A2C fit, such as 'A2C, learning_rate=0.001'",
    )


def test_effects_are_means_over_all_else() -> None:
    games = ("cartpole", "inverted-pendulum")
    values = {("1", "x"): 100, ("1", "y"): 200, ("2", "x"): 300, ("2", "y"): 50}
    entries = [
        entry("PPO", game, (value, value + 10), settings={"rate": rate, "net": net})
        for (rate, net), value in values.items()
        for game in games
    ]
    found = compared(*entries)
    by_name = {one.parameter: one for one in found.effects}
    assert by_name["rate"].values == ("1", "2") and by_name["net"].values == ("x", "y")

    def expected(chosen: Sequence[float]) -> float:
        return float(np.mean([(value + 5) / top for value in chosen for top in (500, 1000)]))

    first, second = by_name["rate"].slices["PPO"]
    assert first and second and first.kind == "t"
    assert (first.value, second.value) == pytest.approx((expected((100, 200)), expected((300, 50))))
    one = compared(*(one for one in entries if one.game == "cartpole")).effects[0]
    assert [slice_ and slice_.value for slice_ in one.slices["PPO"]] == [155, 180], "raw: one game"
    fewer = [one for one in entries if one.settings != {"rate": "2", "net": "y"}]
    first, second = compared(*fewer).effects[0].slices["PPO"]
    assert first and second
    assert (first.value, second.value) == pytest.approx((expected([100]), expected([300]))), (
        "only games and settings that all values have"
    )


def test_losses_of_one_setting() -> None:
    games = ("cartpole", "inverted-pendulum")
    table = {"1": (500, 100), "2": (300, 900), "3": (450, 200)}
    entries = [
        entry("PPO", game, (value,), settings={"rate": rate})
        for rate, of_games in table.items()
        for game, value in zip(games, of_games, strict=True)
    ]
    (loss,) = compared(*entries).losses
    assert (loss.label, loss.setting) == ("PPO", "rate=2")
    assert loss.losses == pytest.approx({"cartpole": 0.4, "inverted-pendulum": 0.0})
    assert loss.value == pytest.approx(0.2)
    assert compared(*entries[::2]).losses == (), "one game has no other to lose on"


def test_curves_end_with_the_shortest_run() -> None:
    """Averages over the runs that are still alive would jump where one ends."""
    runs = (run("0", 100.0, STEPS), run("1", 100.0, 2 * STEPS))
    one = only(compared(entry("PPO", "cartpole", (), runs=runs)))
    assert one.training and one.hours
    parts = len(one.training.grid)
    half = (STEPS - STEPS / 10) / parts / 2
    assert one.training.grid[-1] == STEPS - half, "the middle of the last part"
    assert one.hours.grid[-1] == pytest.approx(1 - half / STEPS), "hours"
    ends = [float(curve.steps[-1]) for curve in one.training.runs]
    assert ends == [STEPS - half, 2 * STEPS - half]
    at_end = [of_run.values[parts - 1] for of_run in one.training.runs]
    assert one.training.band.values[-1] == pytest.approx(np.mean(at_end))


def test_what_is_drawn_of_runs_is_what_was_averaged() -> None:
    generator = np.random.default_rng(1)
    steps = np.arange(1, 5001)
    curves = [Curve(steps=steps, values=generator.normal(size=5000)) for _ in range(3)]
    runs = tuple(run(str(i), 1.0, training=one, times=EMPTY) for i, one in enumerate(curves))
    one = only(compared(entry("A", "x", (), runs=runs)))
    assert one.training and one.hours is None
    assert all((of_run.steps == one.training.grid).all() for of_run in one.training.runs)
    values = np.array([of_run.values for of_run in one.training.runs])
    assert one.training.band.values == pytest.approx(values.mean(axis=0))
    assert len(one.training.grid) == PARTS


def test_many_evaluations_of_runs_are_thinned() -> None:
    steps = np.arange(1, 5001)
    curve = Curve(steps=steps, values=np.sin(steps / 1000))
    runs = (run("0", 1.0, training=EMPTY, times=EMPTY, policy=curve),)
    one = only(compared(entry("A", "x", (), runs=runs)))
    assert one.policy and one.training is None
    assert one.policy.grid[-1] == 5000 and len(one.policy.grid) == CURVE_POINTS
    (thin,) = one.policy.runs
    assert len(thin) == RUN_POINTS and (thin.steps[0], thin.steps[-1]) == (1, 5000)
    assert set(zip(thin.steps, thin.values, strict=True)) <= set(
        zip(curve.steps, curve.values, strict=True)
    )


def test_a_missing_curve_of_a_run_is_remarked() -> None:
    runs = (run("0", 1.0), run("1", 1.5, training=EMPTY, times=EMPTY))
    one = only(compared(entry("A", "x", (), runs=runs)))
    assert one.remarks == (
        "the curve of training is of 1 of 2 runs",
        "the curve of hours is of 1 of 2 runs",
    )


def test_efficiency_compares_equal_numbers_of_steps() -> None:
    """Both learn at one speed, and one for twice as long: at equal shares of their own lengths the
    longer one would look better."""
    found = compared(
        *(
            entry(label, game, (), runs=(run("0", 100.0, training=_rising(last)),) * 2)
            for label, last in (("short", STEPS), ("long", 2 * STEPS))
            for game in ("cartpole", "inverted-pendulum")
        )
    )
    first, second = (found.overall[label].efficiency for label in ("short", "long"))
    assert first and second and len(found.shares) == PARTS
    assert found.shares[-1] == pytest.approx(1 - 0.5 / PARTS, abs=1e-4)
    assert second.values == pytest.approx(first.values)
    per_share = (100 / 500 + 100 / 1000) / 2
    assert first.values == pytest.approx(per_share * found.shares, abs=1e-4), "no lag"


def _rising(last: int) -> Curve:
    """A curve with a row for every step, 100 at STEPS."""
    steps = np.arange(1, last + 1)
    return Curve(steps=steps, values=100 * steps / STEPS)


def test_evaluations_stand_in_for_trainings_without_curves() -> None:
    policy = Curve(steps=np.array([0, STEPS]), values=np.array([1.0, 80.0]))
    runs = tuple(run(str(i), 50.0, training=EMPTY, policy=policy) for i in range(2))
    found = compared(*(entry(label, "cartpole", (), runs=runs) for label in "AB"))
    efficiency = found.overall["A"].efficiency
    assert found.efficiency_of == "policy" and efficiency and efficiency.values[-1] == 0.16


def test_costs_are_summed() -> None:
    costs = (
        Cost(processor_h=1.5, gpu_h=0.5, preemptions=2, repeated_h=0.25),
        Cost(processor_h=2.0, preemptions=0),
        Cost(),
    )
    runs = tuple(
        run(str(at), score, cost=cost)
        for at, (score, cost) in enumerate(zip((1.0, None, 2.0), costs, strict=True))
    )
    found = compared(entry("A", "x", (), runs=runs), entry("B", "x", (1.0,)))
    expected = Cost(processor_h=3.5, gpu_h=0.5, preemptions=2, repeated_h=0.25)
    assert found.standings["A", "x"].cost == found.overall["A"].cost == expected
    assert found.standings["B", "x"].cost == Cost()


def test_nothing_is_a_comparison_too() -> None:
    found = compared(missing=("PPO on cartpole: not begun",))
    assert (found.labels, found.games, found.standings, found.overall) == ((), (), {}, {})
    assert found.missing == (
        "no run has a score yet, so there is nothing to compare",
        "PPO on cartpole: not begun",
    )
    unfinished = compared(entry("PPO", "cartpole", (None, None)), baseline="PPO")
    assert unfinished.missing[0] == found.missing[0] and unfinished.labels == ("PPO",)
    assert len(unfinished.thresholds) == len(unfinished.shares) == 0


def test_the_order_of_runs_changes_no_number() -> None:
    one = entry("A", "cartpole", scores(7, 300))
    turned = dataclasses.replace(one, runs=one.runs[::-1])
    other = entry("B", "cartpole", scores(7, 290, seed=1))
    first, second = (compared(made, other, baseline="B") for made in (one, turned))
    a, b = first.standings["A", "cartpole"], second.standings["A", "cartpole"]
    assert (a.mean, a.iqm, a.rank) == (b.mean, b.iqm, b.rank)
    assert first.tests == second.tests
    assert first.overall["A"].aggregates == second.overall["A"].aggregates
    assert math.isfinite(first.tests[0].improvement)
