"""No two purposes, runs or checkpoints share a stream."""

from __future__ import annotations

import hashlib
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.experiment import Experiment
from config.parameters import declared
from config.seeds import RUNS, integer_seed, seed_sequence


def stream(*key: object) -> tuple[int, ...]:
    return tuple(seed_sequence(*key).generate_state(4, np.uint64).tolist())  # type: ignore[arg-type]


def test_every_key_has_its_own_stream() -> None:
    """Fault 53: one seed for two runs cannot happen."""
    keys = list(
        itertools.product(
            (0, 1, 2**31 - 1), (0, 1, 255), ("actions", "environments", ""), (0, 1, 65_536)
        )
    )
    assert len({stream(*key) for key in keys}) == len(keys)
    assert len({integer_seed(*key) for key in keys}) == len(keys)


def test_numpy_alone_would_mix_up_lists_of_different_length() -> None:
    """Why the entropy always has the same number of words."""
    assert np.random.SeedSequence([1]).generate_state(1) == np.random.SeedSequence(
        [1, 0]
    ).generate_state(1)
    assert stream(1, 0, "a") != stream(1, 0, "a", 1)


def test_the_derivation_is_the_documented_one() -> None:
    """A changed derivation would make every old experiment unrepeatable."""
    words = np.frombuffer(hashlib.sha256(b"actions").digest(), "<u4")[:4].tolist()
    expected = np.random.SeedSequence([7, 2, *words, 12])
    assert stream(7, 2, "actions", 12) == tuple(expected.generate_state(4, np.uint64).tolist())
    assert integer_seed(7, 2, "actions", 12) == int(expected.generate_state(1)[0]) // 2


@given(st.integers(0, 2**31 - 1), st.integers(0, 255), st.text(), st.integers(0, 2**32 - 1))
def test_an_integer_seed_has_31_bits_and_is_repeatable(
    seed: int, run: int, purpose: str, checkpoint: int
) -> None:
    value = integer_seed(seed, run, purpose, checkpoint)
    assert 0 <= value < 2**31
    assert value == integer_seed(seed, run, purpose, checkpoint)


@pytest.mark.parametrize(
    "key",
    [
        (-1, 0, "a"),
        (0, -1, "a"),
        (0, 0, "a", -1),
        (2**32, 0, "a"),
        (0, 2**32, "a"),
        (0, 0, "a", 2**32),
    ],
)
def test_numbers_that_would_take_another_number_of_words_are_refused(
    key: tuple[int, int, str],
) -> None:
    with pytest.raises(ValueError, match="must lie in"):
        seed_sequence(*key)


def test_there_are_seeds_of_environments_for_every_run() -> None:
    assert declared(Experiment)["runs"].high == RUNS
