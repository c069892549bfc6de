"""Derives every random generator of an experiment from one seed.

The source is `numpy.random.SeedSequence` over (seed, run, purpose, number): no two sequences share
a stream, and none depends on how often another one was used. Environments are seeded thousands of
times a second, and a `SeedSequence` each would cost more than the environments. Their seeds are an
arithmetic progression without repetitions, whose start and stride come from a `SeedSequence`.
"""

from __future__ import annotations

import functools
import hashlib
import struct

import numpy as np

LARGEST = 2**32
RUNS = 256
"""The largest number of runs of an experiment."""
BITS_31 = np.int64(2**31 - 1)
PLACES_BITS = 23
"""Each run has 2²³ of the 2³¹ seeds."""


def seed_sequence(seed: int, run: int, purpose: str, number: int = 0) -> np.random.SeedSequence:
    """The sequence of one purpose ("actions", "environments", …) in one run.

    number: distinguishes several sequences of one purpose, such as those of evaluated episodes. The
    entropy always has seven words of 32 bits: numpy splits larger numbers and pads short lists, so
    lists of varying length could collide.
    """
    for given in (seed, run, number):
        if not 0 <= given < LARGEST:
            raise ValueError(f"seed, run and number must lie in 0 … 2³² - 1, not {given}")
    words = struct.unpack("<4I", hashlib.sha256(purpose.encode()).digest()[:16])
    return np.random.SeedSequence([seed, run, *words, number])


def integer_seed(seed: int, run: int, purpose: str, number: int = 0) -> int:
    """An integer seed of 31 bits, for `env.reset(seed=…)` and `torch.manual_seed`."""
    return int(seed_sequence(seed, run, purpose, number).generate_state(1, np.uint32)[0] >> 1)


def environment_seeds(
    seed: int, run: int, count: int, environments: np.ndarray, numbers: np.ndarray, actor: int = 0
) -> np.ndarray:
    """Integer seeds of 31 bits for the environments of a run, or of one of its actors.

    numbers [n]: how often each environment was seeded before. All seeds of an
    experiment differ, up to 2²³ seedings in each run: they are an arithmetic progression over all
    runs, with an odd stride, modulo 2³¹. Environments hash their seeds, so nearby seeds need not
    look random. Actors begin as far from each other as possible, however many there are: 2ᵏ actors
    meet after 2²³⁻ᵏ seedings each.
    """
    start, stride, first = progression(seed, run, actor)
    places = numbers * count + environments + first
    seeds: np.ndarray = places * stride + start & BITS_31
    return seeds


def progression(seed: int, run: int, actor: int = 0) -> tuple[np.int64, np.int64, int]:
    """Start and stride of a run's seeds, and the place where an actor begins; of `environment_seeds`."""
    start, stride = _progression(seed, run)
    return start, stride, _first_place(actor)


def _first_place(actor: int) -> int:
    """Where an actor begins among its run's 2²³ seeds: the bits of its number reversed (van der
    Corput's sequence).
    """
    return int(f"{actor % 2**PLACES_BITS:0{PLACES_BITS}b}"[::-1], 2)


@functools.cache
def _progression(seed: int, run: int) -> tuple[np.int64, np.int64]:
    """The first seed of a run and the stride. The progressions of the runs interleave."""
    start, odd = (
        seed_sequence(seed, 0, "environments").generate_state(2).astype(np.int64) >> 1
    ) | (0, 1)
    return (start + run * odd) & BITS_31, RUNS * odd & BITS_31


def uniform(seeds: np.ndarray, count: int) -> np.ndarray:
    """The first `count` numbers in [0, 1) of the generator of each seed: seeds [n] -> [count, n].

    SplitMix64 (Steele, Lea and Flood 2014), vectorised over the seeds, because making one generator
    of numpy's costs 15 µs.
    """
    draws = np.arange(1, count + 1, dtype=np.uint64)[:, np.newaxis]
    mixed: np.ndarray = (seeds.astype(np.uint64) * np.uint64(count) + draws) * np.uint64(
        0x9E3779B97F4A7C15
    )
    mixed = (mixed ^ mixed >> 30) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ mixed >> 27) * np.uint64(0x94D049BB133111EB)
    numbers: np.ndarray = ((mixed ^ mixed >> 31) >> 11) * 2.0**-53
    return numbers
