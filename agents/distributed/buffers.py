"""Memory that is used again once nobody reads it any more: to fill what was never written to costs
ten times as much.
"""

from __future__ import annotations

import weakref

import numpy as np


class Buffers:
    """As many as are read at the same time; for one thread."""

    def __init__(self) -> None:
        self._kept = list[tuple[np.ndarray, weakref.ref[np.ndarray]]]()

    def take(self, size_bytes: int) -> np.ndarray:
        """uint8 [size_bytes], uninitialised, the caller's for as long as it lives or a memoryview of
        it (`.data`), also a part of that; numpy's own views of it do not count.
        """
        self._kept = [
            (buffer, reader)
            for buffer, reader in self._kept
            if reader() is not None or len(buffer) >= size_bytes
        ]
        for number, (buffer, reader) in enumerate(self._kept):
            if reader() is None:
                view = buffer[:size_bytes]
                self._kept[number] = buffer, weakref.ref(view)
                return view
        buffer = np.empty(size_bytes, np.uint8)
        view = buffer[:]
        self._kept.append((buffer, weakref.ref(view)))
        return view
