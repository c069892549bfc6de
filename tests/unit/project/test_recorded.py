"""What benchmarks keep in docs/results, and the tables that the documentation makes of it."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from tests.benchmarks.recorded import FOLDER, measured, record

README = FOLDER.parents[1] / "README.md"
HERE = {"commit": "1234567", "processor": "A", "cores": 2, "torch": "2.15"}


@pytest.fixture(scope="module")
def result_tables() -> Any:
    path = FOLDER.parent / "result_tables.py"
    spec = importlib.util.spec_from_file_location("result_tables", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_row_replaces_the_one_of_the_same_case_and_processor(tmp_path: Path) -> None:
    path = tmp_path / "results" / "speed.json"
    record(path, [{"case": "a", "value": 1, "measured": HERE}], "case")
    record(path, [{"case": "b", "value": 2, "measured": HERE}], "case")
    elsewhere = {**HERE, "processor": "B"}
    record(path, [{"case": "a", "value": 3, "measured": elsewhere}], "case")
    record(path, [{"case": "a", "value": 4, "measured": HERE}], "case")
    assert [row["value"] for row in json.loads(path.read_text())] == [4, 2, 3]


def test_a_measurement_says_where_it_was_made() -> None:
    of = measured("1234567")
    assert of["commit"] == "1234567" and of["processor"] and of["cores"] >= 1 and of["torch"]


def test_every_committed_file_becomes_a_table(result_tables: Any, tmp_path: Path) -> None:
    result_tables.write(tmp_path)
    assert {path.stem for path in FOLDER.glob("*.json")} == set(result_tables.TABLES)
    for name in result_tables.TABLES:
        text = (tmp_path / f"results-{name}.md").read_text(encoding="utf-8")
        rows = [line for line in text.splitlines() if line.startswith("|")]
        assert len(rows) > 3
        assert len({line.count("|") for line in rows}) == 1, "each row has every column"
        assert "Measured on: " in text


def rounded(means: Iterable[float]) -> str:
    return ", ".join(f"{mean:.0f}".replace("-", "−") for mean in means)


def test_the_readme_has_the_returns_that_are_recorded() -> None:
    rows = json.loads((FOLDER / "learning.json").read_text(encoding="utf-8"))
    means = {(row["algorithm"], row["game"]): fmean(row["returns"]) for row in rows}
    readme = README.read_text(encoding="utf-8")

    def written(*cases: tuple[str, str]) -> str:
        return rounded(means[case] for case in cases)

    hidden = "cartpole-no-velocity"
    ppo = written(("ppo", "cartpole"), ("ppo", "lunarlander"), ("ppo", "mountaincar"))
    replayed = written(("dqn", "cartpole"), ("sac", "pendulum"), ("td3", "pendulum"))
    remembering = written(("ppo-lstm", hidden), ("r2d2", hidden))
    forgetful = written(("ppo", hidden), ("r2d2-forgetful", hidden))
    for numbers in (ppo, replayed, f"{remembering}; without a memory {forgetful}"):
        assert f"(docs/results.md#learning) | {numbers} |" in readme


def test_the_readme_has_the_returns_beside_stable_baselines3() -> None:
    rows = json.loads((FOLDER / "beside-stable-baselines3.json").read_text(encoding="utf-8"))
    same = {(row["algorithm"], row["game"]): row for row in rows if row["settings"] == "the same"}
    games = [same["ppo", game] for game in ("hopper", "halfcheetah", "walker2d")]
    ours, theirs = (rounded(fmean(row[key]) for row in games) for key in ("ours", "reference"))
    assert f"the same settings | {ours}; theirs {theirs} |" in README.read_text(encoding="utf-8")


def test_a_missed_bound_is_said(result_tables: Any) -> None:
    row = {
        "algorithm": "ppo", "game": "cartpole", "steps": 1000, "returns": [-1.5, 2.0], "mean": 0.2,
        "bound": {"value": 1.0, "is_upper": False}, "measured": HERE,
    }  # fmt: skip
    assert "−1.5, 2.0 | 0.2 | ≥ 1 | **missed** | 1234567 |" in result_tables.learning([row])
    assert "holds" in result_tables.learning([{**row, "bound": {"value": 1.0, "is_upper": True}}])
