"""`python -m workflows.submit search.yaml`: what it shows, what it sends, and what it refuses."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from config import pipeline
from config.cluster import load_cluster
from config.study import read_study
from tests.outside import OF_A_WORKFLOW
from workflows import on_this_machine, studies, submit
from workflows.request.command_line import parse

Capture = pytest.CaptureFixture[str]
SEARCH = """\
outdir: results/search
runs: 2
algorithms: [ppo]
games: [cartpole]
parameters: {learning_rate: 1e-5}
search:
  parameters: {learning_rate: {low: 1e-5, high: 1e-2, scale: log}, hidden_sizes: {choices: ["64,64", "256,256"]}}
  trials: 20
  parallel: 3
  prune: {rungs: [0.1, 0.3, 1.0]}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the person is, with the file and without an Argo Server."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("ARGO_") or name in OF_A_WORKFLOW:
            monkeypatch.delenv(name)
    (tmp_path / "search.yaml").write_text(SEARCH)
    return tmp_path


def files() -> list[str]:
    return sorted(str(path) for path in Path().rglob("*"))


def changed(before: str, after: str) -> None:
    assert before in SEARCH
    Path("search.yaml").write_text(SEARCH.replace(before, after))


def manifest(capsys: Capture) -> dict[str, Any]:
    assert submit.main(["search.yaml", "--manifest", "-p", "outdir=/storage/search"]) == 0
    document: dict[str, Any] = yaml.safe_load(capsys.readouterr().out)
    return document


def test_dry_run_shows_what_is_searched_and_writes_nothing(capsys: Capture) -> None:
    assert submit.main(["search.yaml", "--dry-run"]) == 0
    said = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    said = {name: fact.strip() for name, fact in said.items()}
    assert said["what"] == "search of 20 trials of 2 runs, ppo on cartpole"
    assert said["sampler"] == "tpe, 3 trials at once"
    assert said["rungs"] == "epochs 40, 118, 391; of 3 one goes on"
    assert said["then"] == "1 trial and the preset again, 5 runs each, seed 1000"
    assert said["learning_rate"] == "1e-05 to 0.01, equal ratios equally likely"
    assert said["hidden_sizes"] == "64,64 or 256,256"
    assert said["directory"] == "results/search"
    assert files() == ["search.yaml"]


def test_what_is_sent_is_the_search_as_it_was_understood(capsys: Capture) -> None:
    sent = manifest(capsys)
    assert sent["spec"]["entrypoint"] == "search"
    values = {one["name"]: one["value"] for one in sent["spec"]["arguments"]["parameters"]}
    assert values["outdir"] == "/storage/search"
    found = read_study(values["study"], "study").search
    assert found == read_study(SEARCH, "search.yaml").search


def test_every_trial_that_is_too_many_is_refused_with_parallel(capsys: Capture) -> None:
    changed("trials: 20", "trials: 300")
    assert submit.main(["search.yaml"]) == 2
    assert capsys.readouterr().err == (
        "refused: search.yaml: line 8: 300 trials in 3 lanes, and a lane has at most 80; allowed: up "
        "to 240 trials, or parallel: 4\n"
    )
    assert files() == ["search.yaml"]


def test_a_search_with_more_pods_than_a_status_has_room_for(capsys: Capture) -> None:
    changed("trials: 20\n  parallel: 3", "trials: 1000\n  parallel: 20")
    assert submit.main(["search.yaml", "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert "pods, and the status of one workflow has room for 5000; allowed: fewer trials" in said


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("scale: log", "scale: lag"),
        ("low: 1e-5", "low: 0"),
        ('"256,256"', '"wide"'),
        ("[0.1, 0.3, 1.0]", "[0.3, 0.1, 1.0]"),
        ("trials: 20", "trials: 0"),
        ("learning_rate: {low", "learning_rat: {low"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    capsys: Capture, before: str, after: str
) -> None:
    changed(before, after)
    assert submit.main(["search.yaml"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("refused: search.yaml: line ") and said.count("\n") == 1
    assert files() == ["search.yaml"]


def test_without_optuna(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is needed where the search runs: a cluster has it in its images."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "optuna" else find(name)
    )
    assert submit.main(["search.yaml"]) == 2
    assert capsys.readouterr().err.count("rl-training-dag[search]") == 1
    assert files() == ["search.yaml"]
    assert manifest(capsys)["kind"] == "Workflow"


def test_a_plain_study_does_not_take_a_search(capsys: Capture) -> None:
    from steps import plan

    assert plan.main(["search.yaml"]) == 2
    assert "workflows/manifests/search.yaml" in capsys.readouterr().err
    assert files() == ["search.yaml"]


def test_the_steps_of_a_search_are_in_its_manifest(capsys: Capture) -> None:
    leaves = {one["name"] for one in manifest(capsys)["spec"]["templates"] if "container" in one}
    assert {step.name for step in pipeline.SEARCH_STEPS} <= leaves


def test_optuna_is_loaded_once_and_for_searches_alone() -> None:
    """Elsewhere it may not be installed, and what cannot be loaded is loaded for nobody."""
    found = {}
    for name in ("search.yaml", "study.yaml"):
        Path("study.yaml").write_text(SEARCH[: SEARCH.index("search:")])
        request = parse([name, "--local"])
        asked = studies.read(request, local=True)
        (one,) = studies.checked(request, asked, load_cluster(), local=True)
        loaded = on_this_machine.preloaded(one)
        assert loaded is not None
        found[name] = dict(loaded.modules)
    assert "optuna" in found["search.yaml"]["steps.propose"]
    assert not any("optuna" in modules for modules in found["study.yaml"].values())
