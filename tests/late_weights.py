"""IMPALA whose actors get their weights 20 updates late, as an algorithm of a person's own:
`python -m workflows.submit tests.late_weights:ALGORITHM …`. What they send is so old that V-trace has
something to correct.
"""

from __future__ import annotations

from dataclasses import replace

from agents.algorithms import impala_acting
from agents.distributed.actors import Actor, ObservingActor
from agents.distributed.protocol import Ack, Join, Joined, Link, Unrolls, Version, Weights
from config.algorithms import impala
from config.resolved import Resolved

UPDATES = 20

ALGORITHM = replace(impala.ALGORITHM, name="impala-late", actor=f"{__name__}:make_actor")


class Late:
    """A link that keeps weights back until the learner is so many updates further."""

    def __init__(self, link: Link, updates: int) -> None:
        self._link, self._updates = link, updates
        self._known = list[Weights]()
        self._given: Version | None = None

    def join(self, request: Join) -> Joined:
        """What was kept back of an earlier learner is thrown away."""
        self._known, self._given = [], None
        return self._link.join(request)

    def weights(self, have: Version | None) -> Weights | None:
        """The first ones come at once."""
        self._keep(self._link.weights(self._newest))
        return self._due(have)

    def newer(self) -> Weights | None:
        """As `weights`, of those that came with acknowledgements."""
        self._keep(self._link.newer())
        return self._due(self._given)

    def send(self, unrolls: Unrolls) -> list[Ack]:
        """The learner is told of the newest weights that are here."""
        return self._link.send(replace(unrolls, have=self._newest))

    def close(self) -> None:
        """The link's."""
        self._link.close()

    @property
    def _newest(self) -> Version | None:
        return self._known[-1].version if self._known else None

    def _keep(self, weights: Weights | None) -> None:
        if weights is not None:
            arrays = {name: array.copy() for name, array in weights.arrays.items()}
            self._known.append(replace(weights, arrays=arrays))

    def _due(self, have: Version | None) -> Weights | None:
        """The newest ones that are old enough, where the actor does not have them yet."""
        if not self._known:
            return None
        latest = self._known[-1].version.update - self._updates
        while len(self._known) > 1 and self._known[1].version.update <= latest:
            del self._known[0]
        self._given = self._known[0].version
        return None if self._given == have else self._known[0]


def make_actor(resolved: Resolved, *, run: int, member: int, link: Link) -> Actor | ObservingActor:
    """IMPALA's; `agents.interfaces.MakeActor`."""
    return impala_acting.make_actor(resolved, run=run, member=member, link=Late(link, UPDATES))
