"""Which entries stand under one label, and which label is compared with which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from config.errors import BadInput, shown, unknown
from steps.comparison.entries import Entry

Settings = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Contender:
    """What has one label in tables and figures.

    plain: its label without settings. settings: those in which it differs from the others with this
    plain label, by name. entries: by game.
    """

    label: str
    plain: str
    settings: Settings
    entries: Mapping[str, Entry]

    @property
    def all_settings(self) -> Settings:
        """The settings that its entries on all games have in common, also where no other entry differs."""
        first, *others = (entry.settings for entry in self.entries.values())
        return {
            name: value
            for name, value in first.items()
            if all(settings.get(name) == value for settings in others)
        }


def contenders_of(entries: Sequence[Entry]) -> tuple[Contender, ...]:
    """The contenders, by first appearance. Entries of one label that differ in their settings are
    several. Raises `BadInput` for two entries that cannot be told apart.
    """
    varying = _varying(entries)
    settings = dict[str, Settings]()
    plain = dict[str, str]()
    found = dict[str, dict[str, Entry]]()
    for entry in entries:
        own = {
            name: entry.settings[name] for name in entry.settings if name in varying[entry.label]
        }
        label = f"{entry.label}, {in_words(own)}" if own else entry.label
        of_label = found.setdefault(label, {})
        if entry.game in of_label:
            raise _indistinguishable(of_label[entry.game], entry, label)
        of_label[entry.game] = entry
        settings[label] = own
        plain[label] = entry.label
    return tuple(
        Contender(label=label, plain=plain[label], settings=settings[label], entries=of_label)
        for label, of_label in found.items()
    )


def in_words(settings: Settings) -> str:
    """Settings as labels show them. An empty value is the preset's."""
    return ", ".join(f"{name}={value or 'preset'}" for name, value in settings.items())


def _varying(entries: Sequence[Entry]) -> dict[str, set[str]]:
    """For each label the names of the settings in which its entries differ."""
    first: dict[str, Settings] = {}
    varying: dict[str, set[str]] = {}
    for entry in entries:
        before = first.setdefault(entry.label, entry.settings)
        names = before.keys() | entry.settings.keys()
        differing = {name for name in names if before.get(name) != entry.settings.get(name)}
        varying.setdefault(entry.label, set()).update(differing)
    return varying


def _indistinguishable(first: Entry, second: Entry, label: str) -> BadInput:
    return BadInput(
        f"{first.directory} and {second.directory} are both {shown(label)} on {first.game}; "
        "allowed: a label of its own for each, PATH:label=NAME"
    )


def opponents(
    contenders: Sequence[Contender], baseline: str | None, settings: Settings | None = None
) -> tuple[str | None, dict[str, Contender], list[str]]:
    """The baseline's label in figures, the contender that each label is compared with, and a sentence for
    each label without one.

    baseline: a label with its settings, with which all others are compared; or a plain one, of which
    each label is compared with the contender that has the same settings, as far as both have them.
    settings: of the one contender with this plain label that all others are compared with. Raises
    `BadInput` for a label that nothing has.
    """
    if baseline is None:
        return None, {}, []
    if settings is None:
        exact = [one for one in contenders if one.label == baseline != one.plain]
    else:
        of_label = [one for one in contenders if one.plain == baseline]
        exact = [one for one in of_label if settings.items() <= one.all_settings.items()]
    candidates = exact or [one for one in contenders if one.plain == baseline]
    if not candidates:
        known = {name for one in contenders for name in (one.label, one.plain)}
        raise unknown("label of a baseline", baseline, known)
    found: dict[str, Contender] = {}
    without: list[str] = []
    for one in contenders:
        if one in candidates:
            continue
        fitting = exact or [other for other in candidates if _agree(one, other)]
        if len(fitting) == 1:
            found[one.label] = fitting[0]
        elif fitting:
            several = f"several settings of {baseline} fit, such as {fitting[0].label!r}"
            without.append(f"{one.label} has no baseline: {several}")
        else:
            without.append(f"{one.label} has no baseline: {baseline} lacks its settings")
    return exact[0].label if exact else baseline, found, without


def _agree(one: Contender, other: Contender) -> bool:
    ours, theirs = one.all_settings, other.all_settings
    return all(ours[name] == theirs[name] for name in ours.keys() & theirs.keys())
