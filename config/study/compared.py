"""What a study compares with what: the baseline, how returns become scores, and how many runs."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from config.errors import shown, unknown
from config.experiment import Experiment
from config.games import LARGEST_RETURN
from config.located import Located
from config.parameters import Parameter, declared
from config.resolved import Resolved
from config.score_ranges import default_range
from config.study.axes import PlayedGame
from config.study.cells import Cell

MOST_RUNS = 256
GROUP = Parameter("group", int, None, "runs that are added at once", low=2, high=MOST_RUNS)
MOST = Parameter("most", int, None, "runs after which no more are added", low=2, high=MOST_RUNS)
UNTIL = "decided"
ERROR = 0.05
ScoreRanges = Mapping[str, tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class AdaptiveRuns:
    """A number of runs that grows, a group at a time, until the comparison with the baseline is
    decided or `most` are done (AdaStop, Mathieu et al. 2023, arXiv:2306.10882).

    error: the probability of a wrong decision that the tests may have together.
    """

    group: int
    most: int
    error: float

    def document(self) -> dict[str, Any]:
        """The value of the key `runs`."""
        return {"group": self.group, "most": self.most, "until": UNTIL, "error": self.error}


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """What all others are compared with.

    label: the baseline's. cell: the experiment that the study names; empty where it names the label, and
    every other is compared with the experiment of this label that has the same values of the grid.
    settings: of that experiment, with which all others are then compared, on every game; else None.
    """

    label: str
    cell: str = ""
    settings: Mapping[str, str] | None = None

    def __str__(self) -> str:
        """As the study names it."""
        return self.cell or self.label

    def fits(self, label: str, settings: Mapping[str, str]) -> bool:
        """Whether an experiment is a baseline."""
        return label == self.label and self.settings in (None, settings)


def read_runs(node: Located) -> int | AdaptiveRuns:
    """Read the key `runs`. Raises `BadInput`."""
    if isinstance(node.value, dict):
        return _read_adaptive(node)
    with node.named():
        return given_runs(node.value)


def given_runs(value: Any) -> int:
    """A number of runs from YAML or from text. Raises `BadInput`."""
    count: int = declared(Experiment)["runs"].parse(value)
    return count


def _read_adaptive(node: Located) -> AdaptiveRuns:
    entries = node.entries("runs", ("group", "most", "until", "error"))
    missing = [name for name in ("group", "most") if name not in entries]
    if missing:
        raise node.refused(
            f"runs: {' and '.join(missing)} missing; allowed: {{group: 3, most: 18}}"
        )
    group, most = (_counted(entries[one.name], one) for one in (GROUP, MOST))
    if most % group:
        raise entries["most"].refused(
            f"runs: most cannot be {most}; allowed: a multiple of group, {group}"
        )
    if "until" in entries and entries["until"].value != UNTIL:
        given = shown(entries["until"].value)
        raise entries["until"].refused(f"runs: until cannot be {given}; allowed: {UNTIL}")
    error = _number(entries["error"], "runs: error") if "error" in entries else ERROR
    if not 0 < error < 1:
        raise entries["error"].refused(
            f"runs: error cannot be {error}; allowed: a number between 0 and 1"
        )
    return AdaptiveRuns(group=group, most=most, error=error)


def _counted(node: Located, parameter: Parameter) -> int:
    with node.named():
        count: int = parameter.parse(node.value)
        return count


def read_compare(
    node: Located | None, cells: Sequence[Cell], games: Sequence[PlayedGame]
) -> tuple[Baseline | None, dict[str, tuple[float, float]]]:
    """Read the key `compare`: the baseline and the ranges of scores that are given. Raises
    `BadInput`.
    """
    entries = node.entries("compare", ("baseline", "scores")) if node else {}
    baseline = read_baseline(entries["baseline"], cells) if "baseline" in entries else None
    scores = read_scores(entries["scores"], games) if "scores" in entries else {}
    return baseline, scores


def compare_document(baseline: Baseline | None, scores: ScoreRanges) -> dict[str, Any]:
    """The key `compare` of a study's file, if there is anything to say."""
    compare: dict[str, Any] = {}
    if baseline is not None:
        compare["baseline"] = str(baseline)
    if scores:
        compare["scores"] = {game: list(ends) for game, ends in scores.items()}
    return {"compare": compare} if compare else {}


def read_baseline(node: Located, cells: Sequence[Cell]) -> Baseline:
    """Read what the others are compared with: a label, or the name of an experiment. Raises `BadInput`."""
    text = node.text("baseline")
    labels = {cell.label for cell in cells}
    if text in labels:
        return Baseline(label=text)
    named = {cell.name: cell for cell in cells}
    if text in named:
        return Baseline(label=named[text].label, cell=text, settings=named[text].settings)
    kind = "label or experiment of a baseline"
    nearest = difflib.get_close_matches(text, [*labels, *named], n=1)
    raise node.refused(unknown(kind, text, labels, meant=nearest[0] if nearest else ""))


def read_scores(node: Located, games: Sequence[PlayedGame]) -> dict[str, tuple[float, float]]:
    """Read the returns that are score 0 and score 1, by the game's name. Raises `BadInput`."""
    names = {text: one.game.name for one in games for text in (one.game.id, one.game.name)}
    scores: dict[str, tuple[float, float]] = {}
    for text, entry in node.entries("scores").items():
        if text not in names:
            raise entry.refused(unknown("game of the study in scores", text, set(names.values())))
        if names[text] in scores:
            raise entry.refused(f"scores: game {text!r} stands twice; allowed: once")
        scores[names[text]] = _read_range(entry, f"scores of {text}")
    return scores


def _read_range(node: Located, what: str) -> tuple[float, float]:
    ends = node.elements(what)
    if len(ends) != 2:
        raise node.refused(
            f"{what}: {len(ends)} numbers; allowed: the return that is score 0 and that of score 1"
        )
    low, high = (_number(end, what) for end in ends)
    if low == high:
        raise node.refused(f"{what}: {low} and {high} are equal; allowed: two different returns")
    return low, high


def _number(node: Located, what: str) -> float:
    value = node.value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or abs(value) > LARGEST_RETURN:
        raise node.refused(f"{what} cannot be {shown(value)}; allowed: a number")
    return float(value)


def score_ranges(
    games: Sequence[PlayedGame], experiments: Sequence[Resolved], given: ScoreRanges
) -> dict[str, tuple[float, float]]:
    """The range of each game that has one, given or by default. Raises `BadInput` if the experiments
    of a game are judged by different measures, which cannot be compared.
    """
    scores = dict[str, tuple[float, float]]()
    for played in games:
        name = played.game.name
        of_game = [one for one in experiments if one.game.name == name]
        measures = {one.measure for one in of_game}
        if len(measures) > 1:
            judged = [f"{one.algorithm} by the {one.measure.name}" for one in of_game]
            raise played.place.refused(
                f"the experiments of {name} cannot be compared, because they are judged by different "
                f"measures: {', '.join(dict.fromkeys(judged))}"
            )
        default = default_range(of_game[0].game, of_game[0].measure) if of_game else None
        if name in given:
            scores[name] = given[name]
        elif default is not None:
            scores[name] = default.low, default.high
    return scores


def refuse_undecidable(
    runs: int | AdaptiveRuns, baseline: Baseline | None, cells: Sequence[Cell], place: Located
) -> None:
    """Raise `BadInput` if the number of runs depends on a comparison that the study does not make."""
    if not isinstance(runs, AdaptiveRuns):
        return
    others = [one for one in cells if baseline and not baseline.fits(one.label, one.settings)]
    if others:
        return
    lacking = "'compare: {baseline: …}'" if baseline is None else "a second label to compare"
    raise place.refused(f"runs until {UNTIL} need {lacking}; allowed: that, or a number of runs")
