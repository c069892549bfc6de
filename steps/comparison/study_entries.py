"""The entries of a study: its experiments with the labels and settings of their cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from config.errors import ExperimentError
from config.numbers import counted
from config.study import AdaptiveRuns, Cell, Study
from steps.comparison.entries import Entry
from steps.comparison.readers.experiments import entry_of
from steps.comparison.unequal import listed
from steps.directory.experiment import read_experiment
from steps.directory.study import StudyDirectory, asked_cells, besides, read_asked


@dataclass(frozen=True, kw_only=True)
class StudyEntries:
    """What a study compares. missing: the cells without an entry, a sentence each. asked, baseline,
    settings, ranges: as `compare` takes them.
    """

    entries: tuple[Entry, ...]
    missing: tuple[str, ...]
    asked: Mapping[str, str]
    baseline: str | None
    settings: Mapping[str, str] | None
    ranges: Mapping[str, tuple[float, float]]


def study_entries(directory: StudyDirectory) -> StudyEntries:
    """The entries of all cells that were begun. Raises `BadInput` without the files of `plan`."""
    study = read_asked(directory)
    cells = asked_cells(directory, study)
    entries: list[Entry] = []
    missing: list[str] = []
    for cell in cells:
        found = _entry(directory, cell)
        if isinstance(found, Entry):
            entries.append(found)
        else:
            missing.append(f"{cell.label} on {cell.game} (experiment {cell.name}): {found}")
    baseline = study.baseline
    if baseline is not None and not any(baseline.fits(one.label, one.settings) for one in entries):
        missing.append(f"the baseline, {baseline}, has no experiment yet, so nothing is tested")
        baseline = None
    return StudyEntries(
        entries=tuple(entries),
        missing=tuple(missing),
        asked=_asked(study, cells) | _not_asked(besides(directory, cells)),
        baseline=baseline.label if baseline else None,
        settings=baseline.settings if baseline else None,
        ranges=study.scores,
    )


def _entry(directory: StudyDirectory, cell: Cell) -> Entry | str:
    """The entry of a cell, or why there is none."""
    experiment = directory.experiment(cell.name)
    if not experiment.experiment_yaml.exists():
        return "not begun"
    try:
        resolved = read_experiment(experiment, directory.root).resolved
    except ExperimentError as error:
        return str(error)
    return entry_of(experiment, resolved, label=cell.label, settings=cell.settings)


def _asked(study: Study, cells: Sequence[Cell]) -> dict[str, str]:
    """The question of a study, for its page."""
    labels = dict.fromkeys(cell.label for cell in cells)
    games = dict.fromkeys(cell.game for cell in cells)
    names = dict.fromkeys(name for cell in cells for name in cell.settings)
    grid = {
        name: dict.fromkeys(cell.settings[name] or "preset" for cell in cells) for name in names
    }
    return {
        "labels": ", ".join(labels),
        "games": ", ".join(games),
        "runs": _runs(study.runs),
        "experiments": str(len(cells)),
        **({"baseline": str(study.baseline)} if study.baseline and study.baseline.cell else {}),
        **{name: ", ".join(values) for name, values in grid.items()},
    }


def _not_asked(names: Sequence[str]) -> dict[str, str]:
    """What lies there besides, for the page."""
    if not names:
        return {}
    which = f"not in the study's file and not compared: {listed(names, 'experiments')}"
    return {"also in the directory": f"{counted(len(names), 'experiment')}, {which}"}


def _runs(runs: int | AdaptiveRuns) -> str:
    if isinstance(runs, int):
        return str(runs)
    return (
        f"groups of {runs.group} until every comparison with the baseline is decided (error "
        f"{runs.error}), at most {runs.most}"
    )
