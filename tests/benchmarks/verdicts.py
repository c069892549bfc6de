"""What `make learning` says about the returns: bounds, comparison, tables; no files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

HOLDS, MISSED, INCOMPLETE = "holds", "MISSED", "incomplete"
HEADER_LINES = 2


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one learner reached on one game: a score is the mean return of one run's evaluation.

    wanted: how many runs there should be; steps: environment steps of a training, None before one
    has ended; missing: why a run has no score, a line each.
    """

    wanted: int
    scores: tuple[float, ...]
    steps: int | None
    missing: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether no run is missing: without one, nothing is proved."""
        return len(self.scores) == self.wanted


@dataclass(frozen=True)
class Bound:
    """For the mean over the runs: at least `value`; an upper one: below it."""

    value: float
    is_upper: bool = False

    def holds(self, mean: float) -> bool:
        """Never for NaN."""
        return mean < self.value if self.is_upper else mean >= self.value

    def __str__(self) -> str:
        """`≥ 475`, `< −700`, `< 0.9`."""
        digits = 0 if self.value == int(self.value) else 1
        return f"{'<' if self.is_upper else '≥'} {number(self.value, digits)}"


@dataclass(frozen=True, kw_only=True)
class Bounded:
    """An algorithm and a game whose runs must learn so much on average, or cannot."""

    algorithm: str
    game: str
    policy: str
    ours: Outcome
    bound: Bound

    @property
    def verdict(self) -> str:
        return verdict(self.ours.is_complete, lambda: self.bound.holds(fmean(self.ours.scores)))


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A game that another implementation has learnt with the same budget."""

    game: str
    policy: str
    ours: Outcome
    theirs: Outcome

    @property
    def verdict(self) -> str:
        complete = self.ours.is_complete and self.theirs.is_complete
        return verdict(complete, lambda: not_below(self.ours.scores, self.theirs.scores))


def verdict(complete: bool, holds: Callable[[], bool]) -> str:
    if not complete:
        return INCOMPLETE
    return HOLDS if holds() else MISSED


def not_below(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    """Whether our mean is not below theirs by more than the spread of the runs."""
    return fmean(ours) >= fmean(theirs) - spread(ours, theirs)


def spread(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """From the worst to the best run of one learner, of the learner whose runs differ more."""
    return max(max(scores) - min(scores) for scores in (ours, theirs))


def bounded_table(rows: Iterable[Bounded]) -> list[str]:
    """Lines of markdown."""
    lines = [
        "| algorithm | game | steps of a run | policy | mean return of each run | mean | bound | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = (
            row.algorithm,
            row.game,
            steps(row.ours),
            row.policy,
            each(row.ours),
            mean(row.ours),
            str(row.bound),
            row.verdict,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def compared_table(rows: Iterable[Compared]) -> list[str]:
    """Lines of markdown."""
    lines = [
        "| game | steps of a run | policy | ours | mean | Stable-Baselines3 | mean | spread | |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        known = row.ours.scores and row.theirs.scores
        distance = number(spread(row.ours.scores, row.theirs.scores)) if known else "–"
        cells = (
            row.game, steps(row.ours), row.policy, each(row.ours), mean(row.ours),
            each(row.theirs), mean(row.theirs), distance, row.verdict,
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def steps(outcome: Outcome) -> str:
    return "–" if outcome.steps is None else f"{outcome.steps:,}"


def each(outcome: Outcome) -> str:
    """Every run; a missing one is a dash."""
    missing = ["–"] * (outcome.wanted - len(outcome.scores))
    return ", ".join([*map(number, outcome.scores), *missing])


def mean(outcome: Outcome) -> str:
    return number(fmean(outcome.scores)) if outcome.scores else "–"


def number(value: float, digits: int = 1) -> str:
    """With a minus sign that is one."""
    return f"{value:.{digits}f}".replace("-", "−")
