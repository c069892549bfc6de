"""AdaStop against enumeration by hand, the package of its authors, and their simulations."""

from __future__ import annotations

import math
from dataclasses import asdict
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest

from steps.statistics.adastop import Decision, Look, adastop
from steps.statistics.pairs import permutation_test, welch_test

UNDECIDED, LARGER, SMALLER, EQUAL = Decision


def groups(count: int, size: int, *, seed: int, shift: float = 0.0) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.normal(shift, 1, size) for _ in range(count)]


def decide(baseline, *others, looks=None, error=0.05, **options) -> list[Look]:
    looks = looks or len(baseline)
    options.setdefault("permutations", 10_000)
    return adastop(baseline, list(others), looks=looks, error=error, seed=1, **options)


def slow(baseline, others, looks: int, error: Fraction) -> list[list[Decision]]:
    """The procedure in whole numbers: every product of assignments of a pair is built, and the
    conditions on it are read from the start."""
    size = len(baseline[0])
    every = [frozenset(chosen) for chosen in combinations(range(2 * size), size)]

    def total(at: int, assignment) -> int:
        value = 0
        for chosen, ours, theirs in zip(assignment, others[at], baseline, strict=False):
            both = [*map(int, ours), *map(int, theirs)]
            value += sum(x if index in chosen else -x for index, x in enumerate(both))
        return value

    def boundary(at: int, look: int, part: Fraction) -> int:
        found: list[int] = []
        for k in range(1, look + 1):
            within = [
                abs(total(at, assignment))
                for assignment in product(every, repeat=k)
                if all(abs(total(at, assignment[: m + 1])) <= b for m, b in enumerate(found))
            ]
            found.append(
                min(
                    b
                    for b in within
                    if 1 - Fraction(sum(x <= b for x in within), len(every) ** k)
                    <= part * k / looks
                )
            )
        return found[-1]

    observed = [frozenset(range(size))] * looks
    decisions, results = [UNDECIDED] * len(others), []
    for look in range(1, looks + 1):
        while UNDECIDED in decisions:
            left = [at for at, one in enumerate(decisions) if one is UNDECIDED]
            sums = {at: total(at, observed[:look]) for at in left}
            part = error / len(left)
            beyond = [at for at in left if abs(sums[at]) > boundary(at, look, part)]
            if not beyond:
                break
            for at in beyond:
                decisions[at] = LARGER if sums[at] > 0 else SMALLER
        if look == looks:
            decisions = [EQUAL if one is UNDECIDED else one for one in decisions]
        results.append(list(decisions))
        if UNDECIDED not in decisions:
            break
    return results


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("algorithms", "size", "looks"), [(1, 3, 2), (2, 2, 2), (3, 3, 2)])
def test_against_enumeration(algorithms, size, looks, seed):
    """Whole numbers, so that there are many ties."""
    generator = np.random.default_rng(seed)
    baseline = list(generator.integers(0, 6, (looks, size)).astype(float))
    others = [
        list(generator.integers(0, 6, (looks, size)) + 3.0 * generator.integers(-1, 2))
        for _ in range(algorithms)
    ]
    error = Fraction(1, 2)
    expected = slow(baseline, others, looks, error)
    found = decide(baseline, *others, error=float(error))
    assert [list(look.decisions) for look in found] == expected


def test_one_look_is_a_permutation_test():
    """Three separated runs a side are two of twenty assignments: p = .1."""
    baseline, ours = [np.array([1.0, 2, 3])], [np.array([4.0, 5, 6])]
    assert permutation_test(ours[0], baseline[0], seed=1)[0] == pytest.approx(0.1)
    assert decide(baseline, ours, error=0.1)[-1].decisions == (LARGER,)
    assert decide(baseline, ours, error=0.099)[-1].decisions == (EQUAL,)
    assert decide(ours, baseline, error=0.1)[-1].decisions == (SMALLER,)
    assert decide(baseline, ours, error=0.1, looks=2)[-1].decisions == (UNDECIDED,)


def exact_groups(count: int, size: int, **options) -> list[np.ndarray]:
    """Scores whose means and sums have no rounding, which lets the package drop assignments."""
    return [size * np.round(1024 * group) / 1024 for group in groups(count, size, **options)]


@pytest.mark.parametrize(
    ("size", "looks"),
    [
        (3, 2),
        (2, 4),
        (5, 1),
        pytest.param(3, 3, marks=pytest.mark.slow),
        pytest.param(4, 2, marks=pytest.mark.slow),
    ],
)
def test_equal_to_the_authors_package(size, looks):
    """It takes the quantile of signed sums, whose tail is half of that of absolute ones: of one pair
    its decisions at half the error are ours. All assignments are tried, in both."""
    package = pytest.importorskip("adastop", reason="adastop is not installed")
    for seed in range(9):
        baseline = exact_groups(looks, size, seed=seed)
        ours = exact_groups(looks, size, seed=seed + 100, shift=seed % 3)
        error = (0.0517, 0.1137, 0.2913)[seed % 3]
        comparator = package.MultipleAgentsComparator(
            n=size, K=looks, B=10_001, alpha=error / 2, seed=1
        )
        for look, found in enumerate(decide(baseline, ours, error=error), start=1):
            comparator.partial_compare(
                {"A": np.concatenate(ours[:look]), "B": np.concatenate(baseline[:look])},
                verbose=False,
            )
            (theirs,) = comparator.decisions.values()
            assert found.decisions[0].value == theirs.replace("continue", "undecided")
            assert found.boundaries[0] == pytest.approx(comparator.boundary[-1][1], abs=1e-6)
        assert comparator.is_finished


@pytest.mark.parametrize("permutations", [10_000, 300])
def test_further_groups_change_no_look_that_was_made(permutations):
    baseline = groups(5, 3, seed=1)
    others = [groups(5, 3, seed=2), groups(5, 3, seed=3, shift=1)]
    whole = decide(baseline, *others, permutations=permutations)
    for made in range(1, len(whole) + 1):
        part = decide(
            baseline[:made],
            *[one[:made] for one in others],
            looks=5,
            permutations=permutations,
        )
        for first, second in zip(part, whole, strict=False):
            np.testing.assert_equal(asdict(first), asdict(second))


def test_drawn_assignments_have_about_the_exact_boundary():
    baseline, ours = groups(3, 3, seed=1), groups(3, 3, seed=2)
    exact = decide(baseline, ours, permutations=8_000, looks=4)
    drawn = decide(baseline, ours, permutations=7_999, looks=4)
    assert exact[1].boundaries == drawn[1].boundaries
    assert exact[2].boundaries != drawn[2].boundaries
    assert drawn[2].boundaries == pytest.approx(exact[2].boundaries, rel=0.1)


def test_the_error_is_spent_evenly_over_the_looks():
    baseline, others = groups(6, 3, seed=1), [groups(6, 3, seed=2), groups(6, 3, seed=3)]
    found = decide(baseline, *others)
    assert len(found) == 6
    for number, look in enumerate(found, start=1):
        assert np.all(look.error_spent <= 0.025 * number / 6 + 1e-12)
        assert number < 3 or np.all(look.error_spent > 0.02 * number / 6)


def test_a_decided_algorithm_needs_no_further_runs_and_leaves_its_error_to_the_others():
    baseline = groups(4, 4, seed=1)
    obvious, hidden = groups(4, 4, seed=2, shift=50), groups(4, 4, seed=3, shift=3)
    found = decide(baseline, obvious[:2], hidden)
    assert found[1].decisions == (LARGER, LARGER) and len(found) == 2
    equal = decide(baseline, obvious[:2], groups(4, 4, seed=4))
    assert equal[1].decisions == (LARGER, UNDECIDED) and equal[-1].decisions == (LARGER, EQUAL)
    assert np.isnan([equal[2].statistics[0], equal[2].boundaries[0]]).all()
    alone = decide(baseline, groups(4, 4, seed=4))
    assert equal[0].error_spent[1] <= 0.05 / 4 / 2
    assert [look.boundaries[1] for look in equal[1:]] == [look.boundaries[0] for look in alone[1:]]


def test_a_wide_spread_of_one_algorithm_does_not_hide_the_difference_of_another():
    baseline, better = groups(3, 4, seed=1), groups(3, 4, seed=2, shift=5)
    wild = [1e3 * group for group in groups(3, 4, seed=3)]
    assert decide(baseline, wild, better)[-1].decisions == (EQUAL, LARGER)


@pytest.mark.parametrize(("permutations", "scale"), [(10_000, -0.01), (100, 0.01)])
def test_no_order_of_runs_matters_and_scales_are_free(permutations, scale):
    baseline, ours = groups(4, 3, seed=1), groups(4, 3, seed=2, shift=1.5)
    plain = decide(baseline, ours, permutations=permutations)
    turned = decide(
        [group[::-1] for group in baseline],
        [group[::-1] for group in ours],
        permutations=permutations,
    )
    scaled = decide(
        [1e6 + scale * group for group in baseline],
        [1e6 + scale * group for group in ours],
        permutations=permutations,
    )
    opposite = {LARGER: SMALLER, SMALLER: LARGER} if scale < 0 else {}
    for first, second, third in zip(plain, turned, scaled, strict=True):
        np.testing.assert_equal(asdict(first), asdict(second))
        assert third.decisions == tuple(opposite.get(one, one) for one in first.decisions)
        assert third.boundaries == pytest.approx(0.01 * first.boundaries, rel=1e-4)


def test_groups_of_different_sizes():
    """A run failed here and there, in one group all of a side; the rest still decides."""
    sizes = [3, 0, 2, 3, 3, 3]
    baseline = [np.zeros(3) + np.arange(3) / 10 for _ in sizes]
    ours = [5 + np.arange(size) / 10 for size in sizes]
    found = decide(baseline, ours, groups(6, 3, seed=1))
    assert found[-1].decisions[0] is LARGER
    assert found[1].statistics == pytest.approx(
        [found[0].statistics[0], found[1].statistics[1]], nan_ok=True
    )


def test_equal_scores_are_equal():
    same = [np.ones(3)] * 3
    found = decide(same, same)
    assert [look.boundaries[0] for look in found] == [0, 0, 0]
    assert found[-1].decisions == (EQUAL,)


def test_more_groups_than_planned_and_missing_groups_are_refused():
    runs = groups(3, 3, seed=1)
    with pytest.raises(ValueError, match="3 groups of runs, but 2 looks were planned"):
        decide(runs, runs, looks=2)
    with pytest.raises(ValueError, match="no group 3"):
        decide(runs, runs[:2])


def shares(draw_baseline, draws, *, size, looks, repetitions, permutations=1_000):
    """Share of simulations in which any algorithm, and the last one, is called different."""
    generator = np.random.default_rng([5, size, len(draws)])
    any_of_them = last = 0
    for seed in range(repetitions):
        baseline = [draw_baseline(generator, size) for _ in range(looks)]
        others = [[draw(generator, size) for _ in range(looks)] for draw in draws]
        decisions = adastop(
            baseline, others, looks=looks, error=0.05, seed=seed, permutations=permutations
        )[-1].decisions
        different = [one in (LARGER, SMALLER) for one in decisions]
        any_of_them += any(different)
        last += different[-1]
    return any_of_them / repetitions, last / repetitions


def normal(generator, size):
    return 0.1 * generator.standard_normal(size)


def exponential(generator, size):
    return generator.exponential(size=size)


def cauchy(generator, size):
    return generator.standard_cauchy(size)


def mixture(distance: float):
    """The paper's second example: half of the runs find a better policy."""
    return lambda generator, size: (
        normal(generator, size) + distance * generator.integers(2, size=size)
    )


@pytest.mark.slow
@pytest.mark.parametrize("draw", [normal, exponential, cauchy])
@pytest.mark.parametrize("algorithms", [1, 3])
@pytest.mark.parametrize(("size", "looks"), [pytest.param(3, 6, marks=pytest.mark.soak), (5, 5)])
def test_family_wise_error_without_a_difference(draw, algorithms, size, looks):
    repetitions = 3_000
    found, _ = shares(draw, [draw] * algorithms, size=size, looks=looks, repetitions=repetitions)
    assert found <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / repetitions)


@pytest.mark.slow
def test_family_wise_error_beside_an_algorithm_that_is_different():
    """Strong control: what is true of the first says nothing of the others."""
    repetitions = 3_000

    def better(generator, size):
        return 3 + exponential(generator, size)

    generator = np.random.default_rng([9, 1])
    wrong = 0
    for seed in range(repetitions):
        baseline = [exponential(generator, 3) for _ in range(6)]
        others = [
            [draw(generator, 3) for _ in range(6)] for draw in (better, exponential, exponential)
        ]
        found = adastop(baseline, others, looks=6, error=0.05, seed=seed, permutations=1_000)
        wrong += any(one in (LARGER, SMALLER) for one in found[-1].decisions[1:])
    assert wrong / repetitions <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / repetitions)


@pytest.mark.slow
def test_negative_a_test_at_every_look_would_find_differences_that_are_none():
    generator = np.random.default_rng(1)
    wrong = 0
    for _ in range(500):
        ours, theirs = generator.normal(size=(2, 18))
        wrong += any(
            permutation_test(ours[:runs], theirs[:runs], seed=1)[0] <= 0.05
            for runs in range(3, 19, 3)
        )
    assert wrong / 500 > 0.09


@pytest.mark.slow
@pytest.mark.parametrize(
    ("distance", "published"), [(1 / 9, 0.2878), (2 / 9, 0.7106), (3 / 9, 0.8882)]
)
def test_power_of_the_paper_s_example(distance, published):
    """Second toy example, five groups of five; the rate in the authors' 5000 repetitions.

    Theirs is a lower bound: from the second look on the package uses some 250 assignments. The upper
    one is a single test of all 25 runs.
    """
    repetitions = 800
    _, found = shares(
        normal, [mixture(distance)], size=5, looks=5, repetitions=repetitions, permutations=10_000
    )
    generator = np.random.default_rng(1)
    at_once = [
        welch_test(mixture(distance)(generator, 25), normal(generator, 25))[2] <= 0.05
        for _ in range(5_000)
    ]
    error = math.sqrt(published * (1 - published) * (1 / repetitions + 1 / 5_000))
    assert published - 3 * error <= found <= np.mean(at_once) + 3 * error
