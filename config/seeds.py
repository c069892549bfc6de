"""Every random generator of an experiment, from one seed.

`numpy.random.SeedSequence` over (seed, run, purpose, checkpoint): no two of them share a stream, and none depends on how
often another one was used.
"""

from __future__ import annotations

import hashlib
import struct

import numpy as np

LARGEST = 2**32


def seed_sequence(seed: int, run: int, purpose: str, checkpoint: int = 0) -> np.random.SeedSequence:
    """The sequence of one purpose ("actions", "environments", …) of one run.

    checkpoint: for what is seeded anew at checkpoints, their number or epoch. The entropy is always seven words of 32 bits:
    numpy splits larger numbers and pads short lists, so that lists of changing length could collide.
    """
    for number in (seed, run, checkpoint):
        if not 0 <= number < LARGEST:
            raise ValueError(f"seed, run and checkpoint must lie in 0 … 2³² - 1, not {number}")
    words = struct.unpack("<4I", hashlib.sha256(purpose.encode()).digest()[:16])
    return np.random.SeedSequence([seed, run, *words, checkpoint])


def integer_seed(seed: int, run: int, purpose: str, checkpoint: int = 0) -> int:
    """31 bits for those who take an integer: `env.reset(seed=…)`, `torch.manual_seed`."""
    return int(seed_sequence(seed, run, purpose, checkpoint).generate_state(1, np.uint32)[0] >> 1)
