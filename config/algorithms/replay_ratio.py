"""How often experience is learnt from, where those who gather it and the one who learns are different
processes: a learner and actors wait for each other for this reason alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from config.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class ReplayRatio:
    """|updates · batch − ratio · (inserted − starts)| ≤ slack, all in rows of experience.

    ratio: how many rows are learnt from for each one that comes in, after the first `starts`; batch:
    rows of one update; unroll: rows that come in with one unroll.
    """

    ratio: float
    starts: int
    batch: int
    unroll: int
    slack: float

    def balance(self, updates: int, inserted: int) -> float:
        """Rows by which the learner is ahead, negative: the actors are."""
        return updates * self.batch - self.ratio * max(0, inserted - self.starts)

    def updates_of(self, steps: int) -> int:
        """That are due after so many steps."""
        return math.floor(self.ratio * max(0, steps - self.starts) / self.batch)

    def check(self, environments: int) -> None:
        """Raise `BadInput` where one side could stop the other for ever, or each message would wait:
        environments: of one actor, whose unrolls may end together.
        """
        least = math.ceil(1 + self.ratio * self.unroll * environments / self.batch)
        ahead = round(self.slack / self.batch)
        if ahead < least:
            raise BadInput(
                f"parameter 'max_ahead' cannot be {ahead}; allowed: at least {least}, for one update "
                f"and an unroll of {self.unroll} steps of each of envs_per_actor={environments} environments"
            )
