"""What the tags and columns of other programs mean, and the run that their values make.

The score of a run is taken from the first row of `KNOWN` that there is: evaluations before training
episodes. Sources: Stable-Baselines3 2.9, `common/callbacks.py` and `common/base_class.py`; CleanRL 1.0,
`cleanrl/ppo.py` and `cleanrl_utils/evals`; RLlib 2.5x, `rllib/utils/metrics`, whose results Tune logs
below `ray/tune/`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from config.errors import BadInput, unknown
from config.games import LARGEST_RETURN
from steps.comparison.entries import EMPTY, ComparedRun, Entry
from steps.comparison.readers.run_names import frames_of
from steps.comparison.readers.source import Source
from steps.statistics.curves import Curve, curve
from steps.statistics.scores import Floats

RECENT_EPISODES = 100
"""Of the training, in the score of a run that has no evaluation."""
UNUSABLE = f"a return in its score is not finite, or beyond {LARGEST_RETURN:g}"
FINAL = "final"
KINDS = ("evaluation", "episode", "mean")
MOST_NAMED = 30
OF_TUNE = ("env_runners/", "")
"""Where results of RLlib's newer and older interfaces are."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A tag or a column. kind: what one value is: the mean of an `evaluation`, the return of an
    `episode` of the training, a `mean` over training episodes, or, numbered by episode instead of by
    step, the return of an episode of the `final` policy. made_by: who calls it so.
    """

    name: str
    kind: str
    made_by: str = ""

    @property
    def in_training(self) -> bool:
        """Whether its episodes are those of the training."""
        return self.kind in ("episode", "mean")


SB3, CLEAN_RL, RLLIB = "Stable-Baselines3", "CleanRL", "RLlib"
KNOWN: tuple[Metric, ...] = (
    Metric(name="eval/mean_reward", kind="evaluation", made_by=SB3),
    Metric(name="eval/episodic_return", kind=FINAL, made_by=CLEAN_RL),
    *(
        Metric(name=f"ray/tune/evaluation/{part}{name}", kind="evaluation", made_by=RLLIB)
        for part in OF_TUNE
        for name in ("episode_return_mean", "episode_reward_mean")
    ),
    Metric(name="charts/episodic_return", kind="episode", made_by=CLEAN_RL),
    Metric(name="rollout/ep_rew_mean", kind="mean", made_by=SB3),
    *(
        Metric(name=f"ray/tune/{part}{name}", kind="mean", made_by=RLLIB)
        for part in OF_TUNE
        for name in ("episode_return_mean", "episode_reward_mean")
    ),
)
BY_NAME: Mapping[str, Metric] = {metric.name: metric for metric in KNOWN}


@dataclass(frozen=True, kw_only=True)
class Series:
    """The values of one metric in one run, in the order of the file: steps [T], values [T], and when
    each was written, in seconds [T], or nothing where that is unknown.
    """

    steps: NDArray[np.int64]
    values: Floats
    times_s: Floats = field(default_factory=lambda: np.empty(0))


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What a run's score, its training curve and its evaluation curve are made from."""

    score: Metric
    training: Metric | None
    policy: Metric | None


def chosen(source: Source, option: str, available: Collection[str]) -> Choice:
    """Decide among the names that there are. option: by which one is given. Raises `BadInput` if it
    is not there, or if nothing is known about what its values are.
    """
    name = source.options.get(option)
    kind = source.options.get("kind")
    if kind is not None and kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    if name is not None and name not in available:
        raise unknown(f"{option} in {source.path}:", name, _some(available))
    if name is None:
        found = [metric for metric in KNOWN if metric.name in available]
        if not found:
            raise BadInput(
                f"{source.path} has no {option} that is known: say it, {option}=NAME; there are: "
                f"{', '.join(_some(available)) or 'none'}"
            )
        return _choice(found if kind is None else [Metric(name=found[0].name, kind=kind)])
    if kind is None and name not in BY_NAME:
        raise BadInput(
            f"what one value of {name!r} in {source.path} is cannot be seen: say kind=evaluation, "
            "kind=episode (of the training), or kind=mean (of training episodes)"
        )
    return _choice([BY_NAME[name] if kind is None else Metric(name=name, kind=kind)])


def _choice(found: Sequence[Metric]) -> Choice:
    def first(*kinds: str) -> Metric | None:
        return next((metric for metric in found if metric.kind in kinds), None)

    return Choice(score=found[0], training=first("episode", "mean"), policy=first("evaluation"))


def _some(names: Collection[str]) -> list[str]:
    return sorted(names)[:MOST_NAMED]


def run_of(name: str, found: Mapping[str, Series], choice: Choice) -> ComparedRun:
    """The run that these series make."""
    series = {metric: _continued(one) for metric, one in found.items()}
    score, episodes, left_out = None, 0, f"it has no {choice.score.name}"
    if choice.score.name in series:
        score, episodes, left_out = scored(choice.score, series[choice.score.name].values)
    training = _of(choice.training, series)
    policy = _of(choice.policy, series)
    ends = [int(one.steps[-1]) for one in (training, policy) if len(one)]
    return ComparedRun(
        name=name,
        score=score,
        episodes=episodes,
        steps=max(ends, default=0),
        training=training,
        times=_against_time(choice.training, series),
        policy=policy,
        left_out=left_out,
    )


def entry_of_runs(
    source: Source, label: str, game: str, runs: Iterable[ComparedRun], choice: Choice, made_by: str
) -> Entry:
    """The entry of runs whose metrics were chosen in this way. made_by: where the metric does not tell."""
    listed = tuple(runs)
    return Entry(
        label=label,
        game=game,
        runs=listed,
        directory=source.path,
        made_by=choice.score.made_by or made_by,
        frames=frames_of(source, game),
        evaluation=evaluation_text(choice.score, listed),
        in_training=choice.score.in_training,
    )


def scored(metric: Metric, values: Floats) -> tuple[float | None, int, str]:
    """The score of a run by the values of a metric [T], the number of its episodes (0 if unknown),
    and why it has none.
    """
    last = {"episode": RECENT_EPISODES, FINAL: len(values)}.get(metric.kind, 1)
    counted = values[-last:] if last else values
    if not len(counted):
        return None, 0, f"it has no {metric.name}"
    score = mean_score(counted)
    if score is None:
        return None, 0, UNUSABLE
    return score, len(counted) if metric.kind in ("episode", FINAL) else 0, ""


def mean_score(returns: Floats) -> float | None:
    """The mean of the returns [N], summed exactly; None if there is none, or one that statistics
    cannot use.
    """
    if not len(returns) or not (np.abs(returns) <= LARGEST_RETURN).all():
        return None
    return math.fsum(returns) / len(returns)


def evaluation_text(metric: Metric, runs: Sequence[ComparedRun]) -> str:
    """How the scores of runs were measured."""
    if metric.kind == "evaluation":
        return f"last evaluation, {metric.name}"
    if metric.kind == "mean":
        return f"training episodes, last {metric.name}"
    counts = sorted({run.episodes for run in runs if run.is_used})
    if metric.kind == FINAL:
        return f"{spoken_range(counts)} episodes of the final policy"
    return f"last {spoken_range(counts) or RECENT_EPISODES} training episodes"


def spoken_range(counts: Sequence[int]) -> str:
    """`10`, or `5 to 10`; counts: sorted."""
    if not counts:
        return ""
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def _of(metric: Metric | None, series: Mapping[str, Series]) -> Curve:
    if metric is None or metric.name not in series:
        return EMPTY
    one = series[metric.name]
    return averaged_curve(one.steps, one.values)


def _against_time(metric: Metric | None, series: Mapping[str, Series]) -> Curve:
    if metric is None or metric.name not in series:
        return EMPTY
    one = series[metric.name]
    if not len(one.times_s):
        return EMPTY
    moments = np.maximum.accumulate(one.times_s - one.times_s[0])
    return averaged_curve(np.round(1000 * moments).astype(np.int64), one.values)


def averaged_curve(steps: NDArray[np.int64], values: Floats) -> Curve:
    """The curve of finite values [T] at rising steps [T]. Several at one step, as of environments
    whose episodes end together, become their mean.
    """
    finite = np.abs(values) <= LARGEST_RETURN
    steps, values = steps[finite], values[finite]
    if not len(steps):
        return EMPTY
    at, first = np.unique(steps, return_index=True)
    counts = np.diff(np.append(first, len(steps)))
    return curve(at.astype(np.float64), np.add.reduceat(values, first) / counts)


def _continued(one: Series) -> Series:
    """Without the values that a training which continued from an earlier step has made again."""
    kept = still_valid(one.steps)
    times_s = one.times_s[kept] if len(one.times_s) else one.times_s
    return Series(steps=one.steps[kept], values=one.values[kept], times_s=times_s)


def still_valid(steps: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of these steps [T], in the order of a file, count: where a step is smaller than the one
    before, the training continued from there, and made all that lies behind it again.
    """
    far = np.iinfo(np.int64).max
    restarts = np.where(np.diff(steps, prepend=steps[:1]) < 0, steps, far)
    earliest_later = np.append(np.minimum.accumulate(restarts[::-1])[::-1][1:], far)[: len(steps)]
    valid: NDArray[np.bool_] = steps < earliest_later
    return valid
