"""The replay ratio: how often experience is learnt from if actors and learner are different
processes. It is the only reason for which one side waits for the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from config.parameters import cannot_be


@dataclass(frozen=True, kw_only=True)
class ReplayRatio:
    """|updates · batch − ratio · (inserted − starts)| ≤ slack, all in rows of experience.

    ratio: rows learnt from for each row that arrives after the first `starts`. batch: rows of one
    update. unroll: rows that arrive with one unroll.
    """

    ratio: float
    starts: int
    batch: int
    unroll: int
    slack: float

    def balance(self, updates: int, inserted: int) -> float:
        """Number of rows by which the learner is ahead; negative if the actors are."""
        return updates * self.batch - self.ratio * max(0, inserted - self.starts)

    def updates_of(self, steps: int) -> int:
        """Number of updates that are due after this many steps."""
        return math.floor(self.ratio * max(0, steps - self.starts) / self.batch)

    def check(self, environments: int) -> None:
        """Raise `BadInput` if one side could stop the other for ever, or would wait at every
        message. environments: those of one actor, whose unrolls may end together.
        """
        least = math.ceil(1 + self.ratio * self.unroll * environments / self.batch)
        ahead = round(self.slack / self.batch)
        if ahead < least:
            unroll = f"an unroll of {self.unroll} steps of each of envs_per_actor={environments} environments"
            raise cannot_be(
                "max_ahead", ahead, allowed=f"at least {least}, for one update and {unroll}"
            )
