"""Rows that come from environments at different times become unrolls that hold them all, in order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.distributed.protocol import Spec
from agents.distributed.unrolls import (
    Assembler,
    environment_steps,
    final_rows,
    unroll_specs,
)

ROWS = {"row": Spec("int64", (2,)), "flag": Spec("bool", ())}
FIRST = {"state": Spec("float32", (3,))}


def add(assembler: Assembler, environments: list[int], counts: np.ndarray) -> None:
    """The next row of each of these: it tells its environment and its number, and so does what an
    unroll begins with."""
    numbers = np.array(environments)
    every = slice(0, len(counts)) if environments == list(range(len(counts))) else numbers
    rows = np.stack([numbers, counts[numbers]], axis=1)
    flags, states = counts[numbers] % 3 == 0, np.repeat(counts[numbers, None], 3, axis=1)
    assembler.add(every, {"row": rows, "flag": flags, "state": states})
    counts[numbers] += 1


def test_the_specs_of_unrolls() -> None:
    specs = unroll_specs(ROWS, FIRST, 4)
    assert specs == {
        "row": Spec("int64", (5, 2)), "flag": Spec("bool", (5,)), "state": Spec("float32", (3,)),
    }  # fmt: skip


def test_the_last_row_of_an_unroll_is_the_first_of_the_next() -> None:
    assembler, counts = Assembler(ROWS, FIRST, 2, 1), np.zeros(1, np.int64)
    for _ in range(2):
        add(assembler, [0], counts)
        assert assembler.take() is None
    for number in range(2):
        add(assembler, [0], counts)
        unroll = assembler.take()
        assert unroll is not None and assembler.take() is None
        first = 2 * number
        assert unroll["row"][0, :, 1].tolist() == [first, first + 1, first + 2]
        assert unroll["state"][0].tolist() == [first] * 3
        add(assembler, [0], counts)


@settings(max_examples=50, deadline=None)
@given(st.data(), st.integers(1, 5), st.integers(1, 6))
def test_no_row_is_lost_whenever_it_comes(data: st.DataObject, count: int, length: int) -> None:
    overlap = data.draw(st.integers(0, length - 1))
    assembler, counts = Assembler(ROWS, FIRST, length, count, overlap), np.zeros(count, np.int64)
    found: dict[int, list[np.ndarray]] = {number: [] for number in range(count)}
    for _ in range(data.draw(st.integers(0, 25))):
        add(assembler, list(range(count)), counts)
        truncated = data.draw(st.lists(st.integers(0, count - 1), unique=True))
        if truncated:  # their final observations
            add(assembler, truncated, counts)
        least = data.draw(st.integers(1, count))
        if data.draw(st.booleans()) and (unrolls := assembler.take(least)) is not None:
            assert least <= len(unrolls["row"]) <= count
            collect(unrolls, found, length)
    while (unrolls := assembler.take()) is not None:
        assert len(unrolls["row"]) <= count
        collect(unrolls, found, length)
    for number, rows in found.items():
        new = length - overlap
        assert len(rows) == max(0, counts[number] - 1 - overlap) // new
        for place, row in enumerate(rows):
            assert row.tolist() == list(range(place * new, place * new + length + 1))


def collect(
    unrolls: dict[str, np.ndarray], found: dict[int, list[np.ndarray]], length: int
) -> None:
    specs = unroll_specs(ROWS, FIRST, length)
    assert {name: (len(unrolls["row"]), *spec.shape) for name, spec in specs.items()} == {
        name: column.shape for name, column in unrolls.items()
    }
    for rows, flags, state in zip(unrolls["row"], unrolls["flag"], unrolls["state"], strict=True):
        environments = set(rows[:, 0].tolist())
        assert len(environments) == 1
        assert flags.tolist() == (rows[:, 1] % 3 == 0).tolist()
        assert state.tolist() == [rows[0, 1]] * 3
        found[environments.pop()].append(rows[:, 1])


def test_unrolls_wait_until_there_are_enough() -> None:
    assembler, counts = Assembler(ROWS, FIRST, 1, 3), np.zeros(3, np.int64)
    add(assembler, [0, 1, 2], counts)
    add(assembler, [0, 2], counts)
    assert assembler.take(least=3) is None
    add(assembler, [0, 1, 2], counts)
    unrolls, rest = assembler.take(least=3), assembler.take()
    assert unrolls is not None and unrolls["row"][:, 0, 0].tolist() == [0, 2, 0]
    assert rest is not None and rest["row"][:, 0, 0].tolist() == [1, 2]
    assert assembler.take() is None


def test_what_is_taken_stays_as_it_is() -> None:
    assembler, counts = Assembler(ROWS, FIRST, 1, 2), np.zeros(2, np.int64)
    add(assembler, [0, 1], counts)
    add(assembler, [0, 1], counts)
    unrolls = assembler.take()
    assert unrolls is not None
    before = unrolls["row"].copy()
    add(assembler, [0, 1], counts)
    assert unrolls["row"] == pytest.approx(before)


def test_every_row_is_a_step_but_those_of_a_truncated_episode_s_last_observation() -> None:
    """Rows 0 to 5: two steps of an episode that is cut off, its final observation, two steps of one
    that terminates, the first step of another, of which nothing is known yet.
    """
    columns = {
        "begins": np.array([[True, False, False, True, False, True]]),
        "terminated": np.array([[False, False, False, False, True, False]]),
    }
    assert final_rows(columns).tolist() == [[False, False, True, False, False]]
    assert environment_steps(columns, 5) == 4
    assert environment_steps(columns, 2) == 2
