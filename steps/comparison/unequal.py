"""What differs between entries that are compared on one game, in sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from config.errors import BadInput
from steps.comparison.contenders import Contender
from steps.comparison.entries import Entry

UNKNOWN = "unknown"
MOST_NAMED = 4
"""Labels or games in one sentence; of more, their number is given."""
Values = Mapping[str, str]


def refuse_different_measures(contenders: Sequence[Contender], games: Sequence[str]) -> None:
    """Raise `BadInput` for a game on which entries are judged by different measures."""
    for game in games:
        judged = {one.label: one.entries[game].measure for one in contenders if game in one.entries}
        if len(set(judged.values())) > 1:
            named = ", ".join(f"{label} by the {measure.name}" for label, measure in judged.items())
            raise BadInput(
                f"the entries of {game} cannot be compared, because they are judged by different "
                f"measures: {named}"
            )


def unequal(contenders: Sequence[Contender], games: Sequence[str]) -> tuple[str, ...]:
    """A sentence for each difference; one that several games share is said once."""
    found: dict[str, list[str]] = {}
    for game in games:
        entries = {one.label: one.entries[game] for one in contenders if game in one.entries}
        for sentence in _differences(entries):
            found.setdefault(sentence, []).append(game)
    return tuple(f"{_on(where, games)}, {sentence}" for sentence, where in found.items())


def _differences(entries: Mapping[str, Entry]) -> Iterable[str]:
    for what, of_entry in TRAITS.items():
        yield from _said(what, {label: of_entry(entry) for label, entry in entries.items()})
    names = dict.fromkeys(name for entry in entries.values() for name in entry.conditions)
    for name in names:
        yield from _said(
            f"{name} is", {label: _condition(entry, name) for label, entry in entries.items()}
        )


def _said(what: str, values: Values) -> Iterable[str]:
    """A sentence if the values, by label, differ."""
    labels: dict[str, list[str]] = {}
    for label, value in values.items():
        labels.setdefault(value, []).append(label)
    if len(labels) > 1:
        parts = [f"{value} ({listed(those, 'labels')})" for value, those in labels.items()]
        yield f"{what} not the same: {'; '.join(parts)}"


def _steps(entry: Entry) -> str:
    return UNKNOWN if entry.steps is None else f"{entry.steps:,}"


def _frames(entry: Entry) -> str:
    return str(entry.frames)


def _evaluation(entry: Entry) -> str:
    text = entry.evaluation or UNKNOWN
    return f"{text}, with exploration" if entry.in_training else text


TRAITS: Mapping[str, Callable[[Entry], str]] = {
    "the environment steps of a run are": _steps,
    "the frames in one environment step are": _frames,
    "what a score is the mean of is": _evaluation,
}
"""What entries of one game should have in common besides their conditions."""


def _condition(entry: Entry, name: str) -> str:
    if not entry.conditions:
        return UNKNOWN
    return entry.conditions.get(name, "not set")


def listed(names: Sequence[str], kind: str) -> str:
    """A few names, and how many more. kind: the plural of what they are."""
    if len(names) <= MOST_NAMED:
        return ", ".join(names)
    few = ", ".join(names[: MOST_NAMED - 1])
    return f"{few} and {len(names) - MOST_NAMED + 1} more {kind}"


def _on(where: Sequence[str], games: Sequence[str]) -> str:
    if len(where) == len(games) > 1:
        return "on all games"
    return f"on {listed(where, 'games')}"
