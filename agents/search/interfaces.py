"""What a search takes and gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from agents.games.interfaces import Booleans, Floats, States


class Evaluate(Protocol):
    """A network: encoded [n, C, H, W], legal [n, A] -> logits [n, A], values [n] in -1 … 1 for the
    mover. Logits of illegal actions may be anything.
    """

    def __call__(self, encoded: Floats, legal: Booleans) -> tuple[Floats, Floats]:
        """Of independent rows; the arrays that come back are never written to again."""
        ...


class EvaluatePositions(Protocol):
    """What a search asks: a cache before a network, or rollouts."""

    def __call__(self, states: States, legal: Booleans) -> tuple[Floats, Floats]:
        """Logits [n, A] and values [n] for the mover."""
        ...


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """Of AlphaZero's search (Silver et al. 2018, Science 362; its pseudocode), and of the Gumbel root
    (Danihelka et al. 2022).

    c_init, c_base: of PUCT's factor c = log((1 + Σ N + c_base) / c_base) + c_init. noise_fraction,
    dirichlet_alpha: of the noise at the root, about 10 / average number of legal actions. gumbel: the
    root by sequential halving over `considered` actions; c_visit, c_scale: of its σ(q), for values
    between -1 and 1.
    """

    c_init: float = 1.25
    c_base: float = 19652.0
    noise_fraction: float = 0.25
    dirichlet_alpha: float = 1.0
    gumbel: bool = False
    considered: int = 16
    c_visit: float = 50.0
    c_scale: float = 0.1


class Leaves(NamedTuple):
    """Positions that wait for the network: states [n], legal [n, A]."""

    states: States
    legal: Booleans


class Searched(NamedTuple):
    """What searches say about their roots [k].

    visits int32 [k, A]: their sum is the number of simulations, for the root's own evaluation is
    none. action_values [k, A]: mean values for the mover at the root, 0 where unvisited. policy [k,
    A]: what a network is to learn: the shares of the visits, or the Gumbel root's improved policy.
    action [k]: the best one. value [k]: the mean of all simulations, for the mover.
    """

    visits: npt.NDArray[np.int32]
    action_values: npt.NDArray[np.float64]
    policy: npt.NDArray[np.float64]
    action: npt.NDArray[np.intp]
    value: npt.NDArray[np.float64]


Generators = list[np.random.Generator | None]
"""One for each game that is to have noise at its root, else None."""
Arrays = npt.NDArray[Any]
