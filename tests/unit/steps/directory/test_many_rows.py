"""Long tables: read by a parser in C, with the same numbers as short ones (defect D21 of docs/faults.md)."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steps import average
from steps.directory import tables
from steps.directory.tables import format_table, read_columns
from steps.figures.style import MOST_POINTS, visible
from tests import synthetic
from tests.benchmarks.many_rows import (
    LARGEST_BYTES,
    LARGEST_READ_BYTES,
    TIMES_PANDAS,
    make,
    measure,
    measure_pandas,
    measure_results,
)

CELLS = st.one_of(st.none(), st.floats(width=64), st.integers(-(2**62), 2**62))


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(rows=st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=30))
def test_d21_both_parsers_read_the_same_numbers(
    rows: list[tuple[float | None, ...]], tmp_path: Path
) -> None:
    path, names = tmp_path / "x.csv", ("step", "a", "b")
    path.write_text(
        format_table(names, (dict(zip(names, row, strict=True)) for row in rows)) + "1,2"
    )
    few = read_columns(path)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tables, "MANY_ROWS_BYTES", 0)
        many, some = read_columns(path), read_columns(path, wanted={"b", "step"}.__contains__)
    assert list(few) == list(many) == list(names) and list(some) == ["step", "b"]
    for name in names:
        assert few[name].tobytes() == many[name].tobytes() or np.array_equal(
            few[name], many[name], equal_nan=True
        )
    assert np.array_equal(some["b"], few["b"], equal_nan=True)


def test_d21_the_averages_are_the_same_by_both_parsers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    for name in ("few", "many"):
        directory = synthetic.experiment(tmp_path / name, ("complete",) * 5, epochs=40)
        assert average.main([f"--outdir={directory.root}"]) == 0
        made.append({path.name: path.read_bytes() for path in directory.average.iterdir()})
        monkeypatch.setattr(tables, "MANY_ROWS_BYTES", 0)
    assert made[0] == made[1]


@pytest.mark.parametrize("count", [MOST_POINTS, MOST_POINTS + 1, 5003, 100_000])
def test_d21_a_long_line_keeps_the_extremes_of_every_stretch(count: int) -> None:
    values = np.random.default_rng(count).integers(0, 50, count).astype(float)
    steps, drawn = visible(np.arange(count, dtype=float), values)
    assert np.array_equal(values[steps.astype(int)], drawn)
    if count <= MOST_POINTS:
        assert len(drawn) == count
        return
    edges = np.linspace(0, count, MOST_POINTS // 2 + 1).astype(int)
    expected: set[int] = set()
    for first, last in itertools.pairwise(edges):
        stretch = values[first:last].tolist()
        expected |= {first + stretch.index(min(stretch)), first + stretch.index(max(stretch))}
    assert steps.tolist() == sorted(expected)


@pytest.mark.slow
@pytest.mark.parametrize("runs", [20, pytest.param(100, marks=pytest.mark.soak)])
def test_d21_many_runs_of_a_hundred_thousand_rows(tmp_path: Path, runs: int) -> None:
    """Processor time, because other programs run; as a multiple of what pandas needs here to read
    the same files, because machines differ."""
    directory = make(tmp_path, runs, 100_000)
    longest_s = TIMES_PANDAS * measure_pandas(directory).busy_s
    for step in ("average", "plot_average"):
        took = measure(directory, step)
        assert took.busy_s <= longest_s and took.peak_bytes <= LARGEST_BYTES, (took, longest_s)
    assert math.isfinite(measure(directory, "report").seconds)
    took = measure_results(directory)
    assert took.busy_s <= longest_s and took.peak_bytes <= LARGEST_READ_BYTES, (took, longest_s)
