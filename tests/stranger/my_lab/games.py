"""Nim, a game for self-play in one file: one heap, one to three are taken, who takes the last one
wins."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from agents.games.rules import Example

HEAP = 10


class Heap(NamedTuple):
    """What is left, and whose turn it is."""

    left: int
    mover: int


class Nim:
    """Action i takes i + 1."""

    actions = 3
    longest = HEAP

    def start(self) -> Heap:
        return Heap(HEAP, 0)

    def legal(self, state: Heap) -> Iterable[int]:
        return range(min(3, state.left))

    def play(self, state: Heap, action: int) -> Heap:
        return Heap(state.left - action - 1, 1 - state.mover)

    def mover(self, state: Heap) -> int:
        return state.mover

    def result(self, state: Heap) -> float | None:
        if state.left:
            return None
        return 1 if state.mover == 1 else -1

    def encode(self, state: Heap, mover: int) -> np.ndarray:
        return (np.arange(HEAP) < state.left).astype(np.float32).reshape(1, 1, HEAP)

    def show(self, state: Heap) -> str:
        return "|" * state.left

    def examples(self) -> list[Example]:
        return [Example([2, 2, 2, 0], 1), Example([2, 2, 1, 0, 0], 0)]
