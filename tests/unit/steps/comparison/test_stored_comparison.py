"""The files of a comparison: a round trip, equal bytes, and tables against the comparison."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from config.errors import BadInput, WrongDirectory
from steps.comparison.compared import Comparison
from steps.comparison.comparison_tables import OPTIONAL, TABLES
from steps.comparison.entries import Entry
from steps.comparison.standings import normalised
from steps.comparison.stored_comparison import read_comparison, write_comparison
from steps.directory.cost import Cost
from steps.statistics.curves import Curve
from tests.synthetic_entries import STEPS, compared, entry, run, scores

GAMES = ("cartpole", "inverted-pendulum", "Unknown-v3")


def entries(folder: Path) -> list[Entry]:
    """Two labels with two settings each, on three games; with costs, pages, evaluations and a failed
    run."""
    policy = Curve(steps=np.array([0, STEPS]), values=np.array([1.0, 80.0]))
    extra = (
        run("x", 5.0, policy=policy, cost=Cost(processor_h=1.5, preemptions=1, repeated_h=0.1)),
        run("y", None),
    )
    return [
        entry(
            label,
            game,
            scores(runs, centre, seed=at),
            runs=extra,
            settings={"learning_rate": rate},
            page=folder / "experiments" / f"{label}-{game}" / "report.html",
            steps=None if game == "Unknown-v3" else STEPS,
        )
        for label, centre, runs in (("PPO, λ", 300.0, 6), ("A2C", 200.0, 4))
        for rate in ("0.001", "")
        for at, game in enumerate(GAMES)
    ]


def whole(folder: Path) -> Comparison:
    return compared(*entries(folder), baseline="A2C", asked={"runs": "8", "games": "three"})


def assert_same(one: Any, other: Any) -> None:
    """Equal in value and type; `==` of arrays has no single answer."""
    assert type(one) is type(other)
    if dataclasses.is_dataclass(one):
        for field in dataclasses.fields(one):
            assert_same(getattr(one, field.name), getattr(other, field.name))
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    elif isinstance(one, Mapping):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, tuple):
        assert len(one) == len(other)
        for first, second in zip(one, other, strict=True):
            assert_same(first, second)
    else:
        assert one == other


def table(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / "comparison" / name).open(newline="") as file:
        return list(csv.DictReader(file))


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "comparison").iterdir())}


def test_a_comparison_is_read_as_it_was_written(tmp_path: Path) -> None:
    comparison = whole(tmp_path)
    assert (
        comparison.effects and comparison.losses and comparison.tests and comparison.unequal == ()
    )
    write_comparison(comparison, tmp_path)
    assert_same(read_comparison(tmp_path), comparison)


def test_nothing_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_comparison(compared(), tmp_path)
    assert_same(read_comparison(tmp_path), compared())
    assert set(files(tmp_path)) == {*TABLES, "comparison.json", "scores.json", "scores.npz"} - {
        *OPTIONAL
    }
    assert (
        table(tmp_path, "standings.csv") == []
        and json.loads((tmp_path / "comparison" / "scores.json").read_text()) == {}
    )


def test_equal_entries_give_equal_bytes(tmp_path: Path) -> None:
    write_comparison(whole(tmp_path), tmp_path)
    first = files(tmp_path)
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "comparison").iterdir()}
    write_comparison(whole(tmp_path), tmp_path)
    assert files(tmp_path) == first
    assert {path: path.stat().st_mtime_ns for path in times} == times, "nothing is written again"
    assert set(first) == {*TABLES, "comparison.json", "scores.json", "scores.npz"}


def test_a_moved_directory_finds_its_pages(tmp_path: Path) -> None:
    write_comparison(whole(tmp_path / "old"), tmp_path / "old")
    shutil.move(tmp_path / "old", tmp_path / "new")
    pages = [one.page for one in read_comparison(tmp_path / "new").standings.values()]
    assert all(page and page.is_relative_to(tmp_path / "new" / "experiments") for page in pages)
    elsewhere = entry("A", "cartpole", (1.0,), page=Path("/elsewhere/report.html"))
    write_comparison(compared(elsewhere), tmp_path / "third")
    (one,) = read_comparison(tmp_path / "third").standings.values()
    assert one.page == Path("/elsewhere/report.html")


def test_json_has_sorted_keys_and_no_nan(tmp_path: Path) -> None:
    write_comparison(whole(tmp_path), tmp_path)
    for name in ("comparison.json", "scores.json"):
        text = (tmp_path / "comparison" / name).read_text()

        def refuse(constant: str) -> float:
            raise AssertionError(constant)

        document = json.loads(text, parse_constant=refuse)
        assert list(document) == sorted(document)


def test_the_tables_of_a_grid_go_with_it(tmp_path: Path) -> None:
    write_comparison(whole(tmp_path), tmp_path)
    assert set(OPTIONAL) <= set(files(tmp_path))
    write_comparison(compared(entry("A", "cartpole", (1.0, 2.0))), tmp_path)
    assert not set(OPTIONAL) & set(files(tmp_path))


def test_tables_are_what_the_comparison_says(tmp_path: Path) -> None:
    comparison = whole(tmp_path)
    write_comparison(comparison, tmp_path)
    for row in table(tmp_path, "standings.csv"):
        one = comparison.standings[row["label"], row["game"]]
        assert one.mean and float(row["mean"]) == one.mean.value
        assert (row["iqm_low"] == "") == (one.iqm is None)
        assert (int(row["n"]), int(row["planned"])) == (one.n, one.planned)
        assert (row["score"] == "") == (one.score is None)
    rows = table(tmp_path, "curves.csv")
    label = comparison.labels[0]
    drawn = [one for one in rows if (one["label"], one["game"]) == (label, "cartpole")]
    training = [one for one in drawn if one["kind"] == "training"]
    averaged = comparison.standings[label, "cartpole"].training
    assert averaged and {one["kind"] for one in drawn} == {"training", "hours", "policy"}
    assert [float(one["x"]) for one in training] == averaged.grid.tolist()
    assert [float(one["value"]) for one in training] == averaged.band.values.tolist()
    assert {one["n"] for one in training} == {"7"} and {one["n"] for one in drawn} == {"7", "1"}
    assert len(table(tmp_path, "tests.csv")) == len(comparison.tests) == 6
    assert len(table(tmp_path, "grid.csv")) == 4
    assert len(table(tmp_path, "efficiency.csv")) == 4 * len(comparison.shares)
    assert len(table(tmp_path, "profiles.csv")) == 4 * len(comparison.thresholds)
    overall = table(tmp_path, "overall.csv")
    assert [row["games"] for row in overall] == ["2"] * 4
    assert [row["improvement"] != "" for row in overall] == [True, True, False, False]
    cost = table(tmp_path, "cost.csv")
    assert {row["processor_h"] for row in cost} == {"1.5"} and {row["gpu_h"] for row in cost} == {
        ""
    }


def test_every_run_left_out_has_a_row(tmp_path: Path) -> None:
    comparison = whole(tmp_path)
    write_comparison(comparison, tmp_path)
    rows = table(tmp_path, "missing.csv")
    runs = [row for row in rows if row["run"]]
    assert len(runs) == 12 and {row["run"] for row in runs} == {"y"}
    assert {row["reason"] for row in runs} == {"failed: non-finite loss"}
    assert [row["reason"] for row in rows if not row["run"]] == [
        "no range of scores is known for Unknown-v3, so numbers over games are without"
    ]


def test_scores_for_rliable(tmp_path: Path) -> None:
    """Ragged ones are filled up with NaN, null in JSON."""
    comparison = compared(
        entry("PPO", "cartpole", (100, 200, 300)),
        entry("PPO", "inverted-pendulum", (500,)),
        entry("A/2 C", "cartpole", (50,)),
        entry("A/2 C", "inverted-pendulum", (100,)),
        entry("none", "cartpole", (None,)),
    )
    write_comparison(comparison, tmp_path)
    written = json.loads((tmp_path / "comparison" / "scores.json").read_text())
    assert written == {
        "PPO": [[0.2, 0.5], [0.4, None], [0.6, None]],
        "A/2 C": [[0.1, 0.1]],
    }
    with np.load(tmp_path / "comparison" / "scores.npz") as arrays:
        assert sorted(arrays) == ["A/2 C", "PPO"]
        for label, rows in written.items():
            expected = [[math.nan if cell is None else cell for cell in row] for row in rows]
            np.testing.assert_array_equal(arrays[label], expected)
    ppo = comparison.standings["PPO", "cartpole"].scores
    assert normalised(ppo, comparison.ranges["cartpole"]).tolist() == [0.2, 0.4, 0.6]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b'{"comparison": {}}',
        b'{"comparison": {"title": "x", "colour": 3}}',
        b'{"comparison": [1]}',
        b"\xff",
    ],
)
def test_a_damaged_comparison_is_one_line(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(BadInput, match=r"no file .*comparison\.json: compare makes it"):
        read_comparison(tmp_path)
    (tmp_path / "comparison").mkdir()
    (tmp_path / "comparison" / "comparison.json").write_bytes(content)
    with pytest.raises(WrongDirectory, match=r"is no comparison .*: compare makes it") as caught:
        read_comparison(tmp_path)
    assert "\n" not in str(caught.value)


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "comparison").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(WrongDirectory, match="symbolic link"):
        write_comparison(compared(), tmp_path)
    assert list((tmp_path / "elsewhere").iterdir()) == []
