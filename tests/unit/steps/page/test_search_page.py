"""The page of a search, from findings without any training: also before there is anything to draw."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from config.measures import RETURN
from config.study import read_study
from steps.directory.search import SearchDirectory
from steps.figures import search as figures
from steps.figures.search import FIGURES
from steps.page.search import write_search_page
from steps.search.findings import Findings, MeasuredAgain, Spent
from steps.search.journal import Rung, Trial
from steps.statistics.intervals import Estimate

FILE = """\
outdir: x
runs: 2
algorithms: [ppo]
games: [cartpole]
search:
  parameters: {learning_rate: {low: 1e-5, high: 1e-2, scale: log}, update_epochs: {low: 1, high: 16}, hidden_sizes: {choices: ["8,8", "16"]}}
  trials: 12
  prune: {rungs: [0.1, 0.3, 1.0], reduction: 3}
"""
FOUND = read_study(FILE, "study.yaml").search
assert FOUND is not None


def trial(number: int, state: str) -> Trial:
    """One that came as far as its state says."""
    value = 100.0 + 7 * number
    rungs = [
        Rung(number=0, epoch=5, order=2 * number, value=value / 2, promoted=True, rank=1, of=3),
        Rung(number=1, epoch=15, order=2 * number + 1, value=value, promoted=False, rank=2, of=4),
    ]
    if state == "complete":
        rungs = [*rungs[:1], replace(rungs[1], promoted=True)]
    return Trial(
        number=number,
        state=state,
        values={"learning_rate": 1e-4, "update_epochs": number, "hidden_sizes": "8,8"},
        value=value if state == "complete" else None,
        rungs=() if state in ("running", "failed") else tuple(rungs),
        lane=("w", 0),
        reason={"pruned": "pruned at <rung 2>", "failed": "run 0: train: it burned"}.get(state, ""),
        facts={"seconds": 30.0, "steps": 500.0},
    )


def findings(trials: Sequence[Trial], again: Sequence[MeasuredAgain] = ()) -> Findings:
    assert FOUND is not None
    complete = [one for one in trials if one.state == "complete"]
    return Findings(
        title="PPO on CartPole",
        measure=RETURN,
        search=FOUND,
        preset={"learning_rate": "0.0003", "update_epochs": "4", "hidden_sizes": "64,64"},
        trials=trials,
        best=complete[-1:],
        importances={"learning_rate": 0.7, "update_epochs": 0.3} if complete else {},
        again=again,
        spent=Spent(hours=1.0, hours_to_the_end=3.0, steps=100.0, steps_to_the_end=400.0),
        missing=() if again else ("3 of 12 trials ended",),
    )


AGAIN = (
    MeasuredAgain(
        label="trial 3", in_search=121.0, result=Estimate(value=110.0, low=100.0, high=120.0),
        is_iqm=True, n=5, planned=5, page=None,
    ),
    MeasuredAgain(
        label="preset", in_search=None, result=None, is_iqm=False, n=0, planned=5, page=None
    ),
)  # fmt: skip


def page(root: Path, found: Findings) -> str:
    directory = SearchDirectory(root)
    directory.figures.mkdir(parents=True, exist_ok=True)
    write_search_page(directory, found)
    body = directory.report_html.read_text().partition("<body>")[2]
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


@pytest.fixture(autouse=True)
def one_format(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are drawn for the page alone, which is most of the time."""
    monkeypatch.setattr(figures, "FORMATS", ("svg",))


def drawn(root: Path) -> set[str]:
    return {path.stem for path in SearchDirectory(root).figures.glob("*.svg")}


def test_a_finished_search(tmp_path: Path) -> None:
    states = ["complete", "pruned", "pruned", "complete", "failed"]
    trials = [trial(number, state) for number, state in enumerate(states)]
    text = page(tmp_path, findings(trials, AGAIN))
    assert drawn(tmp_path) == set(FIGURES)
    assert "5 of 12 trials 2 trained to the end 2 pruned 1 failed" in text
    assert "trial 3 121 110 [100, 120] IQM, n = 5 of 5 11" in text
    assert "preset – – mean, n = 0 of 5 –" in text
    assert "2 h 0 min saved , with 25 % of the environment steps" in text
    assert "1 10 % 4 4 0 2 30 % 4 2 2 3 100 % 0 – –" in text
    assert "pruned at <rung 2>" in text
    assert "run 0: train: it burned" in text
    assert "learning_rate 0.0001 0.0003" in text


def test_nothing_yet(tmp_path: Path) -> None:
    text = page(tmp_path, findings([trial(0, "running")]))
    assert drawn(tmp_path) == set()
    assert "3 of 12 trials ended" in text
    assert "No trial was measured again yet." in text


def test_only_pruned_ones(tmp_path: Path) -> None:
    """There is a history, and nothing that needs a trial that was trained to the end; what was drawn of
    an earlier state is removed.
    """
    page(tmp_path, findings([trial(number, "complete") for number in range(3)], AGAIN))
    page(tmp_path, findings([trial(number, "pruned") for number in range(3)]))
    assert drawn(tmp_path) == {"history", "slices", "rungs"}


@pytest.mark.parametrize("name", ["learning_rate", "hidden_sizes"])
def test_a_single_parameter(tmp_path: Path, name: str) -> None:
    assert FOUND is not None
    one = replace(FOUND, parameters={name: FOUND.parameters[name]}, prune=None)
    trials = [replace(trial(number, "complete"), rungs=()) for number in range(3)]
    text = page(tmp_path, replace(findings(trials, AGAIN), search=one))
    assert drawn(tmp_path) == {"history", "slices", "parallel", "importance"}
    assert "saved" not in text


def test_the_same_findings_give_the_same_bytes(tmp_path: Path) -> None:
    found = findings([trial(number, "complete") for number in range(4)], AGAIN)
    contents = []
    for name in ("one", "other"):
        page(tmp_path / name, found)
        folder = tmp_path / name
        contents.append(
            {
                path.relative_to(folder): path.read_bytes()
                for path in folder.rglob("*.*")
                if path.is_file()
            }
        )
    assert contents[0] == contents[1]
