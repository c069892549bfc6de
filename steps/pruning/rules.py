"""Which experiments are kept, and why."""

from __future__ import annotations

import math
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from config.errors import BadInput, shown, unknown
from steps.browsing.overview import signature
from steps.browsing.rows import Row

FORM = re.compile(r"(?P<name>[a-z]+)=(?P<count>[0-9]{1,6})")
DAY_S = 86400.0
IN_USE = ("running", "silent")
"""The states of a study or a search whose experiments may still be needed."""


@dataclass(frozen=True)
class Rule:
    """One `--keep`, such as `last=5`."""

    name: str
    count: int

    def __str__(self) -> str:
        return f"{self.name}={self.count}"


def parse_rule(text: str) -> Rule:
    """Read `last=5`. Raises `BadInput`."""
    found = FORM.fullmatch(text)
    if found is None:
        raise BadInput(
            f"option --keep cannot be {shown(text)}; allowed: last=N, days=N or best=N, where N is a "
            "whole number"
        )
    if found["name"] not in RULES:
        raise unknown("rule of --keep", found["name"], RULES)
    return Rule(found["name"], int(found["count"]))


def kept_by(rules: Iterable[Rule], rows: Sequence[Row]) -> dict[Path, str]:
    """The experiments that are kept -> why. rows: those that might go."""
    kept: dict[Path, str] = {}
    for rule in rules:
        for row in RULES[rule.name](rule.count, rows):
            kept.setdefault(row.place.path, str(rule))
    return kept


def never(row: Row, wholes: Mapping[Path, Row], *, is_whole: bool) -> str:
    """Why an experiment is left alone whatever the rules say; empty if it is not. wholes: the lines of
    studies and searches, by their directories. is_whole: whether all of it would be deleted.
    """
    if row.state in ("running", "damaged"):
        return row.state if row.state == "running" else f"damaged: {row.note}"
    whole = wholes.get(row.place.part_of) if row.place.part_of is not None else None
    if whole is None:
        return ""
    if whole.state in IN_USE:
        return f"its {whole.place.kind} is {whole.state}"
    return f"part of a {whole.place.kind}, which needs its files" if is_whole else ""


def _last(count: int, rows: Sequence[Row]) -> list[Row]:
    """The newest by the time of their first submission."""
    return sorted(rows, key=lambda row: row.started, reverse=True)[:count]


def _days(count: int, rows: Sequence[Row]) -> list[Row]:
    """Those in which something was written within so many days."""
    oldest_ns = (time.time() - count * DAY_S) * 1e9
    return [row for row in rows if max(signature(row.place.path)) >= oldest_ns]


def _best(count: int, rows: Sequence[Row]) -> list[Row]:
    """The best of each game by their headline. Those without a result are not among them."""
    of_game: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.value is not None and math.isfinite(row.value):
            of_game[row.game].append(row)
    return [
        row
        for listed in of_game.values()
        for row in sorted(listed, key=_goodness, reverse=True)[:count]
    ]


def _goodness(row: Row) -> float:
    value = row.value or 0.0
    return value if row.higher_is_better else -value


RULES: Mapping[str, Callable[[int, Sequence[Row]], list[Row]]] = {
    "last": _last,
    "days": _days,
    "best": _best,
}
