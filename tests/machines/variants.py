"""The table of variants: a row each, with the conditions that it combines."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from tests.machines import conditions as on
from tests.machines import machine
from tests.machines.conditions import Condition


@dataclass(frozen=True)
class Variant:
    """Trains up to the report, or runs quick tests, under all its conditions; `refused` is a game
    that must be refused then. `alone` marks one condition of a variant that combines several: it
    runs where it is named or with FULL=1, and tells which of them broke the combination."""

    conditions: tuple[Condition, ...] = ()
    quick_tests: bool = False
    refused: str = ""
    alone: bool = False

    @property
    def name(self) -> str:
        """Of its conditions."""
        names = ", ".join(condition.name for condition in self.conditions) or "ordinary user"
        return f"quick tests: {names}" if self.quick_tests else names

    @property
    def how(self) -> str:
        """How each condition is made."""
        if self.quick_tests:
            return "as the rows below, all together"
        return (
            "; ".join(condition.how for condition in self.conditions)
            or "useradd, home of its own, the clone in it"
        )

    def missing(self) -> str:
        """Why this machine cannot have it; empty where it can."""
        return "; ".join(reason for condition in self.conditions if (reason := condition.missing()))


# No condition hides another one of its combination: there is one locale, one HOME, one terminal.
# Umlauts need a locale that has them: below Python 3.13 an environment's own .pth files are read in
# the locale's encoding.
COMBINED = (
    Variant((on.UMASK, on.LANG_C, on.READ_ONLY_HOME, on.DUMB)),
    Variant((on.NO_LOCALE, on.NO_HOME, on.NO_TERMINAL, on.ONE_CORE, on.FILES)),
    Variant((on.ASCII, on.NO_PASSWD_ENTRY, on.CLOSED, on.NO_GIT)),
    Variant(
        (on.CLOCK, on.ADDRESS_SPACE, on.SHARED_MEMORY, on.BLANKS, on.NO_BOX2D),
        refused="lunarlander",
    ),
)
NEWEST, SECOND = (sorted(machine.interpreters(), reverse=True) * 2)[:2]
BETWEEN = {*machine.interpreters()} - {sys.version_info.minor, NEWEST}
"""Minor versions between the one that runs this and the newest one here. Installing an environment takes
minutes for each, so they run where they are named or with FULL=1."""
VARIANTS = (
    Variant(
        (
            on.python(NEWEST),
            on.BLANKS,
            on.UMASK,
            on.LANG_C,
            on.DUMB,
            on.READ_ONLY_HOME,
            on.ADDRESS_SPACE,
            on.SHARED_MEMORY,
            on.NO_GIT,
        ),
        quick_tests=True,
    ),
    Variant(),
    Variant(
        (on.python(SECOND), on.NO_PASSWD_ENTRY, on.NO_LOCALE, on.ONE_CORE, on.FULL),
        quick_tests=True,
    ),
    *(
        Variant(
            (on.python(minor),),
            refused="lunarlander" if minor >= 14 else "",
            alone=minor in BETWEEN,
        )
        for minor in machine.MINORS
    ),
    Variant((on.INSTALLATION,)),
    Variant((on.overcommit("2"),)),
    *COMBINED,
    *(
        Variant((condition,), refused="lunarlander" if condition is on.NO_BOX2D else "", alone=True)
        for variant in COMBINED
        for condition in variant.conditions
    ),
)


def chosen(words: Sequence[str], full: bool) -> list[Variant]:
    """The variants whose names contain one of the words; without words all, of the conditions
    alone only with `full`."""
    if words:
        return [one for one in VARIANTS if any(word in one.name for word in words)]
    return [one for one in VARIANTS if full or not one.alone]
