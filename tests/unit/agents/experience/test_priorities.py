"""Prioritised replay against the definition: probabilities, importance weights, and who has none."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from agents.experience.priorities import SMALLEST, Priorities, importance_weights

CAPACITY = 13


class Slow:
    """A dictionary of priorities, Schaul et al. 2016, algorithm 1."""

    def __init__(self, exponent: float) -> None:
        self.exponent, self.largest = exponent, 1.0
        self.priorities: dict[int, float] = {}

    def follow(self, rows: range) -> None:
        self.priorities = {row: self.priorities.get(row, self.largest) for row in rows}

    def update(self, rows: np.ndarray, errors: np.ndarray) -> None:
        for row, error in zip(rows.tolist(), errors.tolist(), strict=True):
            self.priorities[row] = abs(error) + SMALLEST
            self.largest = max(self.largest, self.priorities[row])

    def probabilities(self) -> dict[int, float]:
        powers = {row: priority**self.exponent for row, priority in self.priorities.items()}
        total = sum(powers.values())
        return {row: power / total for row, power in powers.items()}


def walk(exponent: float, seed: int = 0) -> tuple[Priorities, Slow, np.random.Generator]:
    """Both after a ring that was filled three times, with updates in between."""
    generator = np.random.default_rng(seed)
    priorities, slow = Priorities(CAPACITY, exponent=exponent), Slow(exponent)
    for stop in range(1, 3 * CAPACITY, 2):
        rows = range(max(0, stop - CAPACITY + 2), stop)
        priorities.follow(rows)
        slow.follow(rows)
        sampled, probabilities = priorities.sample(4, generator)
        expected = slow.probabilities()
        assert np.allclose(probabilities, [expected[row] for row in sampled.tolist()], rtol=1e-5)
        errors = generator.normal(size=4).astype(np.float32) * 3
        errors[sampled == sampled[0]] = errors[0]  # one transition has one error
        for one in (priorities, slow):
            one.update(sampled, errors)
    return priorities, slow, generator


@pytest.mark.parametrize("exponent", [0.0, 0.6, 1.0])
def test_each_row_is_sampled_with_its_probability(exponent: float) -> None:
    priorities, slow, generator = walk(exponent)
    drawn, _ = priorities.sample(100_000, generator)
    expected = slow.probabilities()
    assert set(drawn.tolist()) <= set(expected)
    for row, probability in expected.items():
        assert abs((drawn == row).mean() - probability) < 1e-4 + 0.01 * probability
    if exponent:
        assert max(expected.values()) > 3 * min(expected.values()), "else it tests nothing"


def test_a_batch_has_a_row_of_every_part_of_the_sum() -> None:
    """Stratified, appendix B.2.1: equal priorities and a batch of all rows give each row once."""
    priorities = Priorities(16, exponent=0.5)
    priorities.follow(range(16))
    rows, _ = priorities.sample(16, np.random.default_rng(0))
    assert rows.tolist() == list(range(16))


def test_a_batch_of_one() -> None:
    priorities = Priorities(16, exponent=0.5)
    priorities.follow(range(3, 4))
    rows, probabilities = priorities.sample(1, np.random.default_rng(0))
    assert (rows.tolist(), probabilities.tolist()) == ([3], [1.0])


def test_new_rows_have_the_largest_priority_that_there_ever_was() -> None:
    priorities = Priorities(8, exponent=1.0)
    priorities.follow(range(2))
    priorities.update(np.array([0]), np.array([5.0]))
    priorities.update(np.array([0, 1]), np.array([1.0, 1.0]))
    priorities.follow(range(3))
    _, probabilities = priorities.sample(100, np.random.default_rng(0))
    assert np.isclose(probabilities.max(), 5 / 7)


def test_what_cannot_be_sampled_has_no_weight() -> None:
    """Neither what is overwritten nor what is new and has no successor."""
    priorities = Priorities(8, exponent=1.0)
    priorities.follow(range(6))
    priorities.update(np.arange(6), np.full(6, 1e6))
    priorities.follow(range(5, 9))
    rows, probabilities = priorities.sample(1000, np.random.default_rng(0))
    assert set(rows.tolist()) == {5, 6, 7, 8}
    assert np.allclose(probabilities, 1 / 4)


def test_a_range_that_has_nothing_of_the_one_before() -> None:
    priorities = Priorities(8, exponent=1.0)
    priorities.follow(range(4))
    priorities.follow(range(100, 106))
    rows, _ = priorities.sample(1000, np.random.default_rng(0))
    assert set(rows.tolist()) == set(range(100, 106))


def test_rounding_never_leads_to_a_row_without_weight() -> None:
    """The sum of many small numbers is not what the tree adds up in another order."""
    priorities = Priorities(1000, exponent=1.0)
    priorities.follow(range(0, 700))
    generator = np.random.default_rng(0)
    priorities.update(np.arange(700), 10.0 ** generator.uniform(-6, 6, 700))

    class Highest:
        """Draws the largest number below 1, or a little more, as rounding may."""

        def random(self, size: int) -> np.ndarray:
            return np.full(size, 1.0)

    rows, probabilities = priorities.sample(64, Highest())  # type: ignore[arg-type]
    assert rows.max() < 700 and probabilities.min() > 0


def test_importance_weights_by_the_definition() -> None:
    probabilities, count, exponent = np.array([0.5, 0.25, 0.05]), 20, 0.7
    slow = [(1 / count / probability) ** exponent for probability in probabilities]
    expected = [weight / max(slow) for weight in slow]
    found = importance_weights(probabilities, count, exponent)
    assert np.allclose(found, expected, rtol=1e-6) and found.dtype == np.float32
    assert importance_weights(probabilities, count, 0.0).tolist() == [1, 1, 1]


def test_full_weights_make_the_mean_that_of_uniform_sampling() -> None:
    """β = 1: Σ_i P(i) / (n P(i)) x_i is the mean of x, whatever the priorities are."""
    priorities, slow, generator = walk(1.0)
    rows, probabilities = priorities.sample(50_000, generator)
    values = {row: float(row % 5) for row in slow.priorities}
    weights = 1 / (len(values) * probabilities)
    found = float((weights * [values[row] for row in rows.tolist()]).mean())
    assert abs(found - np.mean(list(values.values()))) < 0.02
    plain = np.mean([values[row] for row in rows.tolist()])
    assert abs(plain - np.mean(list(values.values()))) > 0.1, "else it tests nothing"


@pytest.mark.parametrize("seed", range(3))
def test_a_state_brings_it_back_to_the_last_bit(seed: int) -> None:
    priorities, _, generator = walk(0.6, seed)
    state = copy.deepcopy(priorities.state_dict())
    assert state["priorities"].nbytes == 4 * len(priorities._rows)
    restored = Priorities(CAPACITY, exponent=0.6)
    restored.load_state_dict(state)
    assert np.array_equal(restored._sums, priorities._sums)
    assert (restored.largest, restored._rows) == (priorities.largest, priorities._rows)
    again = copy.deepcopy(generator)
    one, other = priorities.sample(64, generator), restored.sample(64, again)
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
