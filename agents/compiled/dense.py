"""Products of small matrices, and tanh, as machine code on flat float32 arrays.

A matrix is a flat array, the place of its first number, and the distance of its rows; nothing is
allocated. Measured (one thread): 64 rows through a layer of 256 × 256 take 31 µs with AVX-512, 73 by
OpenBLAS and 79 by torch; with AVX2 alone 67, and 71 by OpenBLAS.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import numpy.typing as npt
from llvmlite.binding import get_host_cpu_features

from agents.compiled.lanes import (
    LANES,
    fma,
    gated,
    larger,
    load,
    load_some,
    product,
    quotient,
    smaller,
    spread,
    store,
    store_some,
    total,
)
from agents.compiled.parts import part

WIDE = bool(get_host_cpu_features().get("avx512f"))
"""Whether there are 32 registers of 16 numbers. Twice as many sums as registers are slower than any
library."""
CHUNK = 64
"""Rows that go through a network together: what is between its layers stays in the processor's
nearest caches."""
START = cast(int, np.int64(0))
NEXT = cast(int, np.int64(1))
WHOLE = cast(int, np.int64(LANES))
"""As arguments; numba would compile a function once more for a number that stands in the code."""

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


@part
def fewer(one: int, other: int) -> int:
    """The smaller number. numba's `min` takes ten times as long to compile."""
    return one if one < other else other


@part
def within(number: float, low: float, high: float) -> float:
    """The number of the range that is nearest; NaN for NaN. Quicker to compile than `min` and `max`."""
    if number < low:
        return low
    return high if number > high else number


@part
def _eight_rows(
    c: Floats, c0: int, cs: int, a: Floats, a0: int, ai: int, ak: int, b: Floats, b0: int, bs: int,
    first: int, columns: int, depth: int,
) -> int:  # fmt: skip
    """`add_product` for eight rows, from column `first` on; returns the first column that is left. 16 sums
    stay in the registers of AVX-512.
    """
    j = first
    while j + 2 * LANES <= columns:
        one = c0 + j
        c00 = load(c, one)
        c01 = load(c, one + LANES)
        c10 = load(c, one + cs)
        c11 = load(c, one + cs + LANES)
        c20 = load(c, one + 2 * cs)
        c21 = load(c, one + 2 * cs + LANES)
        c30 = load(c, one + 3 * cs)
        c31 = load(c, one + 3 * cs + LANES)
        c40 = load(c, one + 4 * cs)
        c41 = load(c, one + 4 * cs + LANES)
        c50 = load(c, one + 5 * cs)
        c51 = load(c, one + 5 * cs + LANES)
        c60 = load(c, one + 6 * cs)
        c61 = load(c, one + 6 * cs + LANES)
        c70 = load(c, one + 7 * cs)
        c71 = load(c, one + 7 * cs + LANES)
        for k in range(depth):
            left = load(b, b0 + k * bs + j)
            right = load(b, b0 + k * bs + j + LANES)
            number = spread(a[a0 + k * ak])
            c00 = fma(number, left, c00)
            c01 = fma(number, right, c01)
            number = spread(a[a0 + ai + k * ak])
            c10 = fma(number, left, c10)
            c11 = fma(number, right, c11)
            number = spread(a[a0 + 2 * ai + k * ak])
            c20 = fma(number, left, c20)
            c21 = fma(number, right, c21)
            number = spread(a[a0 + 3 * ai + k * ak])
            c30 = fma(number, left, c30)
            c31 = fma(number, right, c31)
            number = spread(a[a0 + 4 * ai + k * ak])
            c40 = fma(number, left, c40)
            c41 = fma(number, right, c41)
            number = spread(a[a0 + 5 * ai + k * ak])
            c50 = fma(number, left, c50)
            c51 = fma(number, right, c51)
            number = spread(a[a0 + 6 * ai + k * ak])
            c60 = fma(number, left, c60)
            c61 = fma(number, right, c61)
            number = spread(a[a0 + 7 * ai + k * ak])
            c70 = fma(number, left, c70)
            c71 = fma(number, right, c71)
        store(c, one, c00)
        store(c, one + LANES, c01)
        store(c, one + cs, c10)
        store(c, one + cs + LANES, c11)
        store(c, one + 2 * cs, c20)
        store(c, one + 2 * cs + LANES, c21)
        store(c, one + 3 * cs, c30)
        store(c, one + 3 * cs + LANES, c31)
        store(c, one + 4 * cs, c40)
        store(c, one + 4 * cs + LANES, c41)
        store(c, one + 5 * cs, c50)
        store(c, one + 5 * cs + LANES, c51)
        store(c, one + 6 * cs, c60)
        store(c, one + 6 * cs + LANES, c61)
        store(c, one + 7 * cs, c70)
        store(c, one + 7 * cs + LANES, c71)
        j += 2 * LANES
    return j


@part
def _four_rows(
    c: Floats, c0: int, cs: int, a: Floats, a0: int, ai: int, ak: int, b: Floats, b0: int, bs: int,
    first: int, columns: int, depth: int,
) -> None:  # fmt: skip
    """Likewise for four rows and all columns that are left. The sums stay in the registers of AVX2."""
    j = first
    while j + LANES <= columns:
        _four_times(c, c0 + j, cs, a, a0, ai, ak, b, b0 + j, bs, WHOLE, depth)
        j += LANES
    if j < columns:
        _four_times(c, c0 + j, cs, a, a0, ai, ak, b, b0 + j, bs, columns - j, depth)


@part
def _four_times(
    c: Floats, one: int, cs: int, a: Floats, a0: int, ai: int, ak: int, b: Floats, b0: int, bs: int,
    count: int, depth: int,
) -> None:  # fmt: skip
    """The same for one vector of columns, of which so many count."""
    first_sums = load_some(c, one, count)
    second_sums = load_some(c, one + cs, count)
    third_sums = load_some(c, one + 2 * cs, count)
    fourth_sums = load_some(c, one + 3 * cs, count)
    for k in range(depth):
        line = load_some(b, b0 + k * bs, count)
        number = spread(a[a0 + k * ak])
        first_sums = fma(number, line, first_sums)
        number = spread(a[a0 + ai + k * ak])
        second_sums = fma(number, line, second_sums)
        number = spread(a[a0 + 2 * ai + k * ak])
        third_sums = fma(number, line, third_sums)
        number = spread(a[a0 + 3 * ai + k * ak])
        fourth_sums = fma(number, line, fourth_sums)
    store_some(c, one, first_sums, count)
    store_some(c, one + cs, second_sums, count)
    store_some(c, one + 2 * cs, third_sums, count)
    store_some(c, one + 3 * cs, fourth_sums, count)


@part
def add_product(
    c: Floats, c0: int, cs: int, a: Floats, a0: int, ai: int, ak: int, b: Floats, b0: int, bs: int,
    rows: int, columns: int, depth: int,
) -> None:  # fmt: skip
    """C += A B: C [rows, columns] begins at c0 of `c`, its rows cs apart; A [rows, depth] at a0, where
    ai leads to the next row and ak to the next column; B [depth, columns] at b0, its rows bs apart.

    Each number of C is a sum in the order of the depth, however many rows there are.
    """
    i = 0
    while i + 4 <= rows:
        done = START
        count = 4
        if WIDE and i + 8 <= rows:
            count = 8
            done = _eight_rows(
                c, c0 + i * cs, cs, a, a0 + i * ai, ai, ak, b, b0, bs, done, columns, depth
            )
        for row in range(i, i + count, 4):
            _four_rows(
                c, c0 + row * cs, cs, a, a0 + row * ai, ai, ak, b, b0, bs, done, columns, depth
            )
        i += count
    for row in range(i, rows):
        _one_row(c, c0 + row * cs, a, a0 + row * ai, ak, b, b0, bs, columns, depth)


@part
def _one_row(
    c: Floats, c0: int, a: Floats, a0: int, ak: int, b: Floats, b0: int, bs: int, columns: int,
    depth: int,
) -> None:  # fmt: skip
    """`add_product` for one row."""
    for j in range(0, columns, LANES):
        count = columns - j
        sums = load_some(c, c0 + j, count)
        for k in range(depth):
            line = load_some(b, b0 + k * bs + j, count)
            sums = fma(spread(a[a0 + k * ak]), line, sums)
        store_some(c, c0 + j, sums, count)


@part
def fill_rows(c: Floats, c0: int, cs: int, row: Floats, row0: int, rows: int, columns: int) -> None:
    """Write the same numbers into each of the rows [rows, columns] of `c`, which are cs apart."""
    whole = columns - columns % LANES
    for i in range(rows):
        for j in range(0, whole, LANES):
            store(c, c0 + i * cs + j, load(row, row0 + j))
        for j in range(whole, columns):
            c[c0 + i * cs + j] = row[row0 + j]


@part
def add_sums(c: Floats, c0: int, a: Floats, a0: int, as_: int, rows: int, columns: int) -> None:
    """Add to c [columns] the sums over the rows of A [rows, columns], which are as_ apart."""
    whole = columns - columns % LANES
    one = spread(np.float32(1))
    for j in range(0, whole, LANES):
        sums = load(c, c0 + j)
        for i in range(rows):
            sums = fma(one, load(a, a0 + i * as_ + j), sums)
        store(c, c0 + j, sums)
    for j in range(whole, columns):
        for i in range(rows):
            c[c0 + j] += a[a0 + i * as_ + j]


@part
def dot(a: Floats, a0: int, b: Floats, b0: int, count: int) -> float:
    """The sum of the products of so many numbers."""
    sums = spread(np.float32(0))
    whole = count - count % LANES
    for j in range(0, whole, LANES):
        sums = fma(load(a, a0 + j), load(b, b0 + j), sums)
    result: float = total(sums)
    for j in range(whole, count):
        result += a[a0 + j] * b[b0 + j]
    return result


@part
def clear(numbers: Floats, place: int, count: int) -> None:
    """Write zeros, up to the next multiple of `LANES`."""
    for j in range(place, place + count, LANES):
        store(numbers, j, spread(np.float32(0)))


@part
def turn(c: Floats, a: Floats, place: int, rows: int, columns: int) -> None:
    """Write the transpose of A [rows, columns] at the same place of `c`."""
    # In squares, whose lines stay in the nearest cache until all of their numbers are used.
    for i0 in range(0, rows, LANES):
        for j0 in range(0, columns, LANES):
            for i in range(i0, fewer(i0 + LANES, rows)):
                for j in range(j0, fewer(j0 + LANES, columns)):
                    c[place + j * rows + i] = a[place + i * columns + j]


@part
def relu(numbers: Floats, place: int, count: int) -> None:
    """Replace so many numbers by 0 where they are negative. Reads and writes as `tanh`."""
    nothing = spread(np.float32(0))
    for i in range(place, place + count, LANES):
        store(numbers, i, larger(load(numbers, i), nothing))


@part
def relu_backward(deltas: Floats, place: int, values: Floats, values0: int, count: int) -> None:
    """Replace so many derivatives by 0 where the values of the ReLU are 0. Reads and writes as `tanh`."""
    for i in range(0, count, LANES):
        store(deltas, place + i, gated(load(values, values0 + i), load(deltas, place + i)))


LARGEST = np.float32(7.90531110763549805)
"""From here on tanh rounds to 1."""
NUMERATOR = tuple(
    map(
        np.float32,
        (
            -2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11,
            5.12229709037114e-08, 1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03,
        ),
    )
)  # fmt: skip
DENOMINATOR = tuple(
    map(
        np.float32,
        (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03),
    )
)
"""The rational function x p(x²) / q(x²) of Eigen and XLA."""
N0, N1, N2, N3, N4, N5, N6 = NUMERATOR
D0, D1, D2, D3 = DENOMINATOR


@part
def tanh(numbers: Floats, place: int, count: int) -> None:
    """Replace so many numbers by their tanh, with an error of at most 3e-7. Reads and writes up to the
    next multiple of `LANES`.
    """
    for i in range(place, place + count, LANES):
        x = smaller(load(numbers, i), spread(LARGEST))
        x = larger(x, spread(-LARGEST))
        square = product(x, x)
        above = fma(square, spread(N0), spread(N1))
        above = fma(square, above, spread(N2))
        above = fma(square, above, spread(N3))
        above = fma(square, above, spread(N4))
        above = fma(square, above, spread(N5))
        above = fma(square, above, spread(N6))
        below = fma(square, spread(D0), spread(D1))
        below = fma(square, below, spread(D2))
        below = fma(square, below, spread(D3))
        store(numbers, i, quotient(product(x, above), below))


@part
def tanh_backward(deltas: Floats, place: int, values: Floats, values0: int, count: int) -> None:
    """Multiply so many derivatives by 1 − h², h the values of the tanh. Reads and writes as `tanh`."""
    for i in range(0, count, LANES):
        h = load(values, values0 + i)
        delta = load(deltas, place + i)
        store(deltas, place + i, fma(product(product(delta, h), spread(np.float32(-1))), h, delta))
