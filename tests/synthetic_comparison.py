"""Comparisons of made-up runs, with real statistics over them: for the tests of what shows them."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from config.measures import RETURN
from steps.comparison.averaging import averaged, averaged_evaluations, averaged_over_time
from steps.comparison.compared import (
    Comparison,
    Effect,
    Loss,
    Map,
    Overall,
    Standing,
    Test,
)
from steps.directory.cost import Cost
from steps.statistics.curves import curve, mean_of_parts
from steps.statistics.intervals import Estimate
from steps.statistics.over_games import aggregates, curve_over_games, improvement, profile
from steps.statistics.pairs import holm, pair_test
from steps.statistics.ranks import ranks
from steps.statistics.rule import Aggregate, aggregate

TWELVE = (
    "PPO", "A2C", "DQN", "C51", "QR-DQN", "Rainbow", "IMPALA", "R2D2", "PPO, λ = 1",
    "PPO, no clipping, normalised rewards", "REINFORCE", "PPO $x^2$ <script>alert(1)</script>",
)  # fmt: skip
SIX = {
    "cartpole": (0.0, 500.0),
    "acrobot": (-500.0, -100.0),
    "lunarlander": (-200.0, 250.0),
    "pendulum": (-1200.0, -150.0),
    "breakout": (1.7, 30.5),
    "minigrid-keycorridor": (0.0, 1.0),
}
STEPS = 200_000
MS_PER_STEP = 18
SHARE_ENDS = np.linspace(0.05, 1, 41)
SHARES = (SHARE_ENDS[:-1] + SHARE_ENDS[1:]) / 2
THRESHOLDS = np.linspace(0, 1.2, 61)
RESAMPLES = 400


def comparison(
    labels: Sequence[str] = TWELVE,
    games: Mapping[str, tuple[float, float]] = SIX,
    *,
    runs: int = 5,
    policy: bool = False,
    grid: Mapping[str, Sequence[str]] | None = None,
    without: Sequence[tuple[str, str]] = (),
) -> Comparison:
    """Every label on every game but those in `without`. grid: parameter -> its values."""
    made = {
        (label, game): _Runs(label, game, games[game], runs, policy)
        for label in labels
        for game in games
        if (label, game) not in without
    }
    standings = {key: one.standing(runs) for key, one in made.items()}
    _rank(standings, games)
    complete = [game for game in games if all((label, game) in made for label in labels)]
    return Comparison(
        title="Is PPO better than A2C, and where?",
        labels=tuple(labels),
        games=tuple(games),
        baseline=labels[0] if labels else None,
        measures=dict.fromkeys(games, RETURN),
        ranges=dict(games),
        standings=standings,
        shared=tuple(complete),
        efficiency_of="training",
        overall={label: _overall(made, label, labels[0], complete) for label in labels},
        thresholds=THRESHOLDS,
        shares=SHARES,
        tests=_tests(made, labels, games),
        effects=_effects(labels, grid or {}, one_game=len(games) == 1),
        losses=_losses(labels, games) if grid else (),
        maps=_maps(labels, grid or {}),
        missing=[f"{label} on {game}: nobody trained it" for label, game in without],
        asked={"study": "results/gae/study.yaml", "runs": str(runs), "steps": "200 000"},
    )


def empty() -> Comparison:
    """Nothing has a number."""
    return Comparison(
        title="Nothing is there yet",
        labels=("PPO", "A2C"),
        games=("cartpole",),
        baseline="PPO",
        measures={"cartpole": RETURN},
        ranges={"cartpole": (0.0, 500.0)},
        standings={},
        overall={},
        thresholds=np.empty(0),
        shares=np.empty(0),
        missing=["PPO on cartpole was not begun", "A2C on cartpole: run 0 failed: out of memory"],
    )


class _Runs:
    """The runs of one label on one game: returns that rise to a level of their own, with noise."""

    def __init__(
        self, label: str, game: str, ends: tuple[float, float], runs: int, policy: bool
    ) -> None:
        seed = zlib.crc32(f"{label} {game}".encode())
        generator = np.random.default_rng(seed)
        self.label = label
        self.game = game
        self.ends = ends
        level = generator.uniform(0.35, 1.0)
        steps = np.arange(1, 401) * (STEPS // 400)
        heights = [_rise(steps, level + generator.normal(0, 0.06), generator) for _ in range(runs)]
        self.normalised = np.array([np.mean(height[-40:]) for height in heights])
        self.shares = np.array(
            [
                mean_of_parts(curve(steps, one), (SHARE_ENDS * STEPS).astype(np.int64))
                for one in heights
            ]
        )
        raw = [self.raw(one) for one in heights]
        self.training = averaged([curve(steps, one) for one in raw], seed=1)
        speeds = generator.uniform(0.5, 2) * generator.uniform(0.9, 1.1, runs)
        times = [(steps * MS_PER_STEP * speed).astype(np.int64) for speed in speeds]
        self.hours = averaged_over_time(
            [curve(*one) for one in zip(times, raw, strict=True)], seed=1
        )
        every = [curve(steps[39::40], one[39::40]) for one in raw]
        self.policy = averaged_evaluations(every, seed=1) if policy else None

    def raw(self, heights: np.ndarray) -> np.ndarray:
        low, high = self.ends
        return low + (high - low) * heights

    def standing(self, planned: int) -> Standing:
        scores = self.raw(self.normalised)
        result = aggregate(scores[:, None], seed=1, resamples=RESAMPLES)
        return Standing(
            label=self.label,
            game=self.game,
            settings={},
            made_by="this program",
            evaluation="20 greedy episodes of the final policy",
            steps=STEPS,
            n=len(scores),
            planned=planned,
            scores=tuple(float(score) for score in scores),
            mean=_estimate(result, "t"),
            iqm=_estimate(result, "bootstrap"),
            score=float(np.mean(self.normalised)),
            rank=None,
            left_out={},
            training=self.training,
            hours=self.hours,
            policy=self.policy,
            cost=Cost(processor_h=3.25 * planned, gpu_h=None, preemptions=1, repeated_h=0.02),
            page=Path(f"experiments/{self.label}-{self.game}/report.html"),
        )


def _rise(steps: np.ndarray, level: float, generator: np.random.Generator) -> np.ndarray:
    noise = generator.normal(0, 0.08, len(steps)) * generator.gamma(1, 1, len(steps))
    return np.clip(level * (1 - np.exp(-steps / 50_000)) + noise * level, -0.05, 1.0)


def _estimate(result: Aggregate, kind: str) -> Estimate | None:
    if kind == "t":
        if result.low is None or result.high is None:
            return Estimate(value=float(result.mean[0]), reason="one run")
        low, high = float(result.low[0]), float(result.high[0])
        return Estimate(value=float(result.mean[0]), low=low, high=high, kind=kind)
    if result.iqm is None or result.iqm_low is None or result.iqm_high is None:
        return None
    low, high = float(result.iqm_low[0]), float(result.iqm_high[0])
    return Estimate(value=float(result.iqm[0]), low=low, high=high, kind=kind)


def _rank(standings: dict[tuple[str, str], Standing], games: Mapping[str, object]) -> None:
    from dataclasses import replace

    for game in games:
        those = [key for key in standings if key[1] == game]
        scores = np.array([[standings[key].mean.value] for key in those])  # type: ignore[union-attr]
        for key, rank in zip(those, ranks(scores)[:, 0] if those else [], strict=True):
            standings[key] = replace(standings[key], rank=float(rank))


def _overall(
    made: Mapping[tuple[str, str], _Runs], label: str, baseline: str, games: Sequence[str]
) -> Overall:
    cost = Cost(processor_h=97.5, gpu_h=12.0, preemptions=6, repeated_h=1.5)
    if not games:
        return Overall(
            label=label, aggregates=None, mean_rank=None, improvement=None, profile=None,
            efficiency=None, cost=cost,
        )  # fmt: skip
    ours = [made[label, game].normalised for game in games]
    theirs = [made[baseline, game].normalised for game in games]
    return Overall(
        label=label,
        aggregates=aggregates(ours, seed=1, resamples=RESAMPLES),
        mean_rank=3.25,
        improvement=None
        if label == baseline
        else improvement(ours, theirs, seed=1, resamples=RESAMPLES),
        profile=profile(ours, THRESHOLDS, seed=1, resamples=RESAMPLES),
        efficiency=curve_over_games(
            [made[label, game].shares for game in games], seed=1, resamples=RESAMPLES
        ),
        cost=cost,
    )


def _tests(
    made: Mapping[tuple[str, str], _Runs], labels: Sequence[str], games: Mapping[str, object]
) -> list[Test]:
    pairs = [
        (label, game)
        for label in labels[1:]
        for game in games
        if (label, game) in made and (labels[0], game) in made
    ]
    results = [
        pair_test(made[pair].normalised, made[labels[0], pair[1]].normalised, seed=1)
        for pair in pairs
    ]
    adjusted = iter(holm([test.permutation_p for test, _ in results if test]))
    return [
        Test(
            label=label,
            game=game,
            difference=Estimate(value=-12.5, low=-40.0, high=15.0, kind="t"),
            p=test.permutation_p if test else None,
            adjusted=next(adjusted) if test else None,
            effect=test.hedges_g if test else None,
            improvement=0.25,
            reason=reason,
        )
        for (label, game), (test, reason) in zip(pairs, results, strict=True)
    ]


def _effects(
    labels: Sequence[str], grid: Mapping[str, Sequence[str]], *, one_game: bool
) -> list[Effect]:
    generator = np.random.default_rng(3)
    unit = 400.0 if one_game else 1.0

    def estimate() -> Estimate:
        value = float(generator.uniform(0.2, 0.9))
        return Estimate(
            value=unit * value, low=unit * (value - 0.1), high=unit * (value + 0.1), kind="t"
        )

    return [
        Effect(
            parameter=parameter,
            values=tuple(values),
            slices={label: tuple(estimate() for _ in values) for label in labels},
        )
        for parameter, values in grid.items()
    ]


def _losses(labels: Sequence[str], games: Mapping[str, object]) -> list[Loss]:
    return [
        Loss(
            label=label,
            setting="learning_rate 0.001",
            losses={game: 0.02 * index for index, game in enumerate(games)},
            value=0.03,
        )
        for label in labels
    ]


def _maps(labels: Sequence[str], grid: Mapping[str, Sequence[str]]) -> list[Map]:
    if len(grid) != 2:
        return []
    first, second = grid
    generator = np.random.default_rng(4)
    return [
        Map(
            label=label,
            parameters=(first, second),
            values=(tuple(grid[first]), tuple(grid[second])),
            scores=tuple(
                tuple(
                    None if (row, column) == (0, 1) else float(generator.uniform(0, 1))
                    for column in range(len(grid[second]))
                )
                for row in range(len(grid[first]))
            ),
        )
        for label in labels
    ]
