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
from config.seeds import RUNS, environment_seeds, integer_seed, seed_sequence


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


def of_actor(actor: int, seedings: int, run: int = 0) -> set[int]:
    """Of 4 environments each."""
    environments, numbers = np.meshgrid(np.arange(4), np.arange(seedings))
    of_each = environment_seeds(7, run, 4, environments.ravel(), numbers.ravel(), actor)
    return set(of_each.tolist())


def test_no_two_actors_share_a_seed() -> None:
    each = [of_actor(actor, 1000, run) for actor in range(9) for run in (0, 1)]
    assert len(set.union(*each)) == 9 * 2 * 4 * 1000


def test_two_to_the_k_actors_meet_after_two_to_the_23_minus_k_seedings() -> None:
    environment, each = np.zeros(1, np.int64), 2**20

    def different(seedings: int) -> int:
        of_all = [
            environment_seeds(7, 0, 1, environment, np.arange(seedings), actor)
            for actor in range(8)
        ]
        rising = np.sort(np.concatenate(of_all))  # np.unique's hash table takes 80 times as long
        return 1 + int(np.count_nonzero(np.diff(rising)))

    assert different(each) == 8 * each
    assert different(each + 1) == 8 * each


def test_one_actor_has_the_seeds_of_a_training_without_actors() -> None:
    environments, numbers = np.arange(4), np.full(4, 3)
    alone = environment_seeds(7, 2, 4, environments, numbers)
    assert alone.tolist() == environment_seeds(7, 2, 4, environments, numbers, 0).tolist()
