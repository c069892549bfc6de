"""The table of variants: a row each, with the conditions that it combines."""

from __future__ import annotations

from dataclasses import dataclass

from tests.machines import conditions as on
from tests.machines import machine
from tests.machines.conditions import Condition


@dataclass(frozen=True)
class Variant:
    """Trains up to the report, or runs the quick tests, under all its conditions; `refused` is a
    game that must be refused then."""

    conditions: tuple[Condition, ...] = ()
    quick_tests: bool = False
    refused: str = ""

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


NEWEST, SECOND = (sorted(machine.interpreters(), reverse=True) * 2)[:2]
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
        Variant((on.python(minor),), refused="lunarlander" if minor >= 14 else "")
        for minor in machine.MINORS
    ),
    Variant((on.INSTALLATION,)),
    Variant((on.NO_BOX2D,), refused="lunarlander"),
    Variant((on.overcommit("0"),)),
    Variant((on.overcommit("2"),)),
    *(
        Variant((condition,))
        for condition in (
            on.UMASK,
            on.LANG_C,
            on.NO_LOCALE,
            on.ASCII,
            on.NO_HOME,
            on.READ_ONLY_HOME,
            on.NO_PASSWD_ENTRY,
            on.NO_TERMINAL,
            on.DUMB,
            on.CLOSED,
            on.BLANKS,
            on.ONE_CORE,
            on.ADDRESS_SPACE,
            on.SHARED_MEMORY,
            on.FILES,
            on.NO_GIT,
            on.CLOCK,
        )
    ),
)
