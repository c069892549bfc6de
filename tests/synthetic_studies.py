"""Directories of studies as the steps leave them, without any training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from config.strict_yaml import dump
from config.study import read_study
from steps.directory.study import StudyDirectory, write_cells
from tests import synthetic

GRID = """\
outdir: ROOT
runs: 2
algorithms: [ppo, {ppo: {gae_lambda: 1}, label: "PPO, λ = 1"}]
games: [cartpole, acrobot]
parameters: {epochs: 20, evaluation_episodes: 20}
grid: {learning_rate: [0.0003, 0.001]}
compare: {baseline: ppo, scores: {acrobot: [-500, 0]}}
"""
"""Two labels on two games with two values, and a place for the directory."""


def planned(root: Path, text: str) -> StudyDirectory:
    """A study as `plan` leaves it."""
    directory = StudyDirectory(root)
    study = read_study(text.replace("ROOT", str(root)), "study.yaml")
    root.mkdir(parents=True, exist_ok=True)
    directory.study_yaml.write_text(dump(study.document))
    write_cells(directory, study.cells)
    return directory


def trained(directory: StudyDirectory, cells: int, states: Sequence[str]) -> None:
    """The first cells of a study, with runs in these states."""
    study = read_study(directory.study_yaml.read_text(), "study.yaml")
    for cell in study.cells[:cells]:
        given = {name: text for name, text in cell.given.items() if name != "runs"}
        synthetic.experiment(directory.experiment(cell.name).root, states, **given)
