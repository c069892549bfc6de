"""The arguments and results of a search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from agents.games.compiled import compiled
from agents.games.rules import Booleans, Floats, Game, States


class Evaluate(Protocol):
    """A network: encoded [n, C, H, W], legal [n, A] -> logits [n, A], values [n] in -1 … 1 for the
    mover. Logits of illegal actions may be anything.
    """

    def __call__(self, encoded: Floats, legal: Booleans) -> tuple[Floats, Floats]:
        """Evaluate independent rows. The returned arrays are never changed later."""
        ...


class EvaluatePositions(Protocol):
    """What a search calls for positions: a cache in front of a network, or rollouts."""

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
    between -1 and 1, which are not scaled (docs/algorithms.md has a measurement).
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
"""A generator for each game with noise at its root, else None."""
Arrays = npt.NDArray[Any]


EMPTY = -1
OFFSET = np.uint64(0xCBF29CE484222325)
PRIME = np.uint64(0x100000001B3)
"""Constants of the 64-bit FNV-1a hash."""
LEAST_PLACES = 16

Keys = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]


class Evaluations:
    """`EvaluatePositions` by a network; for one thread at a time.

    asked, evaluated: positions so far, and those of them that the network saw.
    """

    def __init__(self, game: Game, evaluate: Evaluate, *, version: int, cache_bytes: int) -> None:
        self.game = game
        self._network = (evaluate, version)
        self.asked = self.evaluated = 0
        size = game.state_dtype.itemsize
        each = size + 4 * (game.actions + 1) + 8
        # The number of places is a power of two, so that the lowest bits of a hash are a place.
        places = 1 << max(cache_bytes // each, LEAST_PLACES).bit_length() - 1
        self._keys = np.zeros((places, size), np.uint8)
        self._versions = np.full(places, EMPTY, np.int64)
        self._logits = np.empty((places, game.actions), np.float32)
        self._values = np.empty(places, np.float32)

    def renew(self, evaluate: Evaluate, version: int) -> None:
        """Another network, or other weights, from the next call on, also while another thread is in
        one: versions are numbers from 0, never used again.
        """
        # The pair is replaced by one assignment: another thread sees the old network and its
        # version, or the new ones.
        self._network = evaluate, version

    def __call__(self, states: States, legal: Booleans) -> tuple[Floats, Floats]:
        """Logits [n, A] and values [n]: of the table, and of the network where it has none; equal
        positions among these are evaluated once.
        """
        evaluate, version = self._network
        keys = np.ascontiguousarray(states).view(np.uint8).reshape(len(states), -1)
        places = np.empty(len(states), np.int64)
        source = np.empty(len(states), np.int64)
        asked = _look_up(keys, self._keys, self._versions, version, places, source)
        self.asked += len(states)
        self.evaluated += asked
        # Nothing is known and no two positions are equal: the network's own arrays are the answer.
        if asked == len(states):
            answer = evaluate(self.game.encode(states), legal)
            self._store(places, keys, version, *answer)
            return answer
        logits = np.empty(legal.shape, np.float32)
        values = np.empty(len(states), np.float32)
        known = source == len(states)
        logits[known] = self._logits[places[known]]
        values[known] = self._values[places[known]]
        if asked:
            # `fresh` rows are evaluated; the others take the answer of an equal row before them.
            fresh = np.flatnonzero(source == np.arange(len(states)))
            encoded = self.game.encode(states[fresh])
            logits[fresh], values[fresh] = evaluate(encoded, legal[fresh])
            again = ~known
            logits[again] = logits[source[again]]
            values[again] = values[source[again]]
            self._store(places[fresh], keys[fresh], version, logits[fresh], values[fresh])
        return logits, values

    def _store(
        self, places: Numbers, keys: Keys, version: int, logits: Floats, values: Floats
    ) -> None:
        self._keys[places] = keys
        self._versions[places] = version
        self._logits[places] = logits
        self._values[places] = values


@compiled
def _look_up(
    keys: Keys,
    table: Keys,
    versions: Numbers,
    version: int,
    places: Numbers,
    source: Numbers,
) -> int:
    """The place of each key, and where its evaluation comes from: the table (source n, the number of
    keys), or the first row with an equal key, most often its own. Returns how many are to be evaluated.
    """
    count = len(keys)
    size = keys.shape[1]
    asked = 0
    for row in range(count):
        hashed = OFFSET
        for column in range(size):
            hashed = (hashed ^ np.uint64(keys[row, column])) * PRIME
        # Both halves of the hash are folded into one: its lowest bits alone depend on few of the
        # key's.
        place = int((hashed ^ (hashed >> np.uint64(32))) & np.uint64(len(table) - 1))
        places[row] = place
        source[row] = count
        # Keys are compared in full, so that two positions with one hash never share an evaluation.
        if versions[place] == version and _equal(keys, row, table, place):
            continue
        source[row] = row
        for earlier in range(row):
            is_asked = places[earlier] == place and source[earlier] == earlier
            if is_asked and _equal(keys, row, keys, earlier):
                source[row] = earlier
                break
        asked += source[row] == row
    return asked


@compiled
def _equal(one: Keys, row: int, other: Keys, place: int) -> bool:
    # This is a loop, because numba compiles no generators.
    for column in range(one.shape[1]):  # noqa: SIM110
        if one[row, column] != other[place, column]:
            return False
    return True


class Rollouts:
    """`EvaluatePositions`; one random game for each position."""

    def __init__(self, game: Game, generator: np.random.Generator) -> None:
        self.game = game
        self.generator = generator

    def __call__(self, states: States, legal: Booleans) -> tuple[Floats, Floats]:
        """Logits of 0, and values by the mover of each position, whoever moves at the end."""
        values = np.zeros(len(states), np.float32)
        rows = np.arange(len(states))
        movers = self.game.mover(states)
        allowed = legal
        while len(states):
            draws = self.generator.random(allowed.shape)
            # The largest of independent uniform numbers is equally likely at every legal action.
            states = self.game.play(states, np.argmax(draws * allowed, axis=1))
            over, value = self.game.outcome(states)
            ended = rows[over]
            same = self.game.mover(states[over]) == movers[ended]
            values[ended] = np.where(same, value[over], -value[over])
            states = states[~over]
            rows = rows[~over]
            allowed = self.game.legal(states)
        return np.zeros(legal.shape, np.float32), values
