"""A promise that is made to everything around an algorithm or an environment: kept, or broken and in
which way.

A check raises `Broken` with what was seen, or says what it saw; what raises anything else has broken
its promise, too. `steps.check` prints a line for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from config.errors import ExperimentError
from config.imports import reason


class Broken(Exception):
    """A promise that is not kept: one line that says what was seen instead."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Whether one rule of the contract holds, and what was seen."""

    promise: str
    kept: bool
    seen: str


Check = Callable[[], str]


def tried(checks: Mapping[str, Check]) -> Iterator[Finding]:
    """Yield one finding for each rule, in order. Stops at the first broken rule, because later ones
    build on it.
    """
    for promise, check in checks.items():
        try:
            seen = check()
        except (Broken, ExperimentError) as error:
            yield Finding(promise=promise, kept=False, seen=str(error))
            return
        # The code that is checked is a person's own, and may raise anything.
        except Exception as error:
            yield Finding(promise=promise, kept=False, seen=f"it raised {reason(error)}")
            return
        yield Finding(promise=promise, kept=True, seen=seen)
