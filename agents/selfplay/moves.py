"""Games with oneself, move by move, in the slots of a search: how much each move is searched, which one
is played, and what of it is kept.

Playout-cap randomisation (Wu 2019, arXiv:1902.10565, section 3.1): a part of the moves is searched in
full, with noise at the root, and only their policies are learnt; the others are searched just well
enough for a game to be worth its value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from agents.games.interfaces import Game
from agents.search.policies import choose
from agents.search.search import Search
from agents.selfplay.interfaces import Played, Rows
from agents.selfplay.positions import packed_states

Generators = Callable[[], np.random.Generator]
"""A new one for each game: the only source of its chance."""


class Moves:
    """The games in the slots of one search; hyper: of `config.algorithms.alphazero`."""

    def __init__(self, game: Game, hyper: Any, search: Search, generators: Generators) -> None:
        self.game, self.hyper, self.search, self._generators = game, hyper, search, generators
        count = search.slots
        self._states, self._plies = game.start(count), np.zeros(count, np.int32)
        self._full, self._begun = np.zeros(count, np.bool_), np.zeros(count, np.int64)
        self._chance = [generators() for _ in range(count)]
        self._kept: list[list[Rows]] = [[] for _ in range(count)]

    def begin(self, slots: np.ndarray, generation: int) -> None:
        """Search the positions [k] of these slots [k] by the network of this generation, newest now."""
        chance = [self._chance[slot] for slot in slots]
        full = np.array([one.random() < self.hyper.full_search_share for one in chance])
        budget = np.where(full, self.hyper.simulations, self.hyper.cheap_simulations)
        noise = [one if is_full else None for one, is_full in zip(chance, full, strict=True)]
        self._full[slots], self._begun[slots] = full, generation
        self.search.begin(slots, self._states[slots], budget, noise)

    def advance(self, slots: np.ndarray) -> list[Played]:
        """Play what the finished searches of these slots found, and begin anew where a game ends."""
        searched = self.search.results(slots)
        chance = [self._chance[slot] for slot in slots]
        actions = choose(searched, self._plies[slots], self.hyper.sampled_plies, chance)
        self._keep(slots, np.where(self._full[slots, None], searched.policy, 0))
        self._states[slots] = self.game.play(self._states[slots], actions)
        self._plies[slots] += 1
        over, values = self.game.outcome(self._states[slots])
        movers = self.game.mover(self._states[slots])
        ended = np.flatnonzero(over)
        return [self._ended(slots[row], float(values[row]), int(movers[row])) for row in ended]

    def _keep(self, slots: np.ndarray, policies: np.ndarray) -> None:
        states = self._states[slots]
        rows: Rows = {
            "state": packed_states(states),
            "policy": policies.astype(np.float32),
            "legal": self.game.legal(states),
            "value": np.where(self.game.mover(states) == 0, 1, -1).astype(np.float32),
            "full": self._full[slots],
            "generation": self._begun[slots],
        }
        for row, slot in enumerate(slots):
            self._kept[slot].append({name: column[row] for name, column in rows.items()})

    def _ended(self, slot: int, value: float, mover: int) -> Played:
        """value: for this mover; until now, a row's is 1 where player 0 was to move, else -1."""
        of_first = value if mover == 0 else 0.0 - value
        rows = stacked(self._kept[slot])
        rows["value"] = rows["value"] * np.float32(of_first)
        self._kept[slot], self._chance[slot] = [], self._generators()
        self._states[slot], self._plies[slot] = self.game.start(1)[0], 0
        return Played(rows, 50.0 * (1 + of_first))


def stacked(rows: Sequence[Rows]) -> Rows:
    """One by one -> [n, ...]."""
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}
