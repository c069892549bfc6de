"""Where the files of a study lie, and which experiments belong to it.

A study owns nothing: each experiment below `experiments/` is a directory of its own, in every respect
as if it had been submitted alone. The study's own files are whole files, which any of its workflows may
write again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from config import pipeline
from config.algorithms import find_algorithm
from config.errors import BadInput, WrongDirectory
from config.parameters import cannot_be
from config.resolved import Resolved
from config.study import Cell, Study, read_study
from steps.directory.files import read_bytes, write_if_changed
from steps.directory.layout import ExperimentDirectory

Parsed = TypeVar("Parsed")
LARGEST_BYTES = 64 * 2**20
MOST_PODS = 5_000
"""Of one workflow: a pod takes some 160 bytes of its compressed status, of which there may be 1 MB."""
PART = re.compile(r"([1-9][0-9]{0,3})/([1-9][0-9]{0,3})")


@dataclass(frozen=True)
class StudyDirectory:
    """The directory of a study."""

    root: Path

    @property
    def study_yaml(self) -> Path:
        """What was asked."""
        return self.root / "study.yaml"

    @property
    def cells_json(self) -> Path:
        """The experiments: their names, labels and parameters."""
        return self.root / "cells.json"

    def trial_json(self, name: str) -> Path:
        """Of a search: the experiment that a trial is."""
        return self.root / "trials" / f"{name}.json"

    @property
    def decisions_json(self) -> Path:
        """Of a study whose number of runs may grow: what is decided."""
        return self.root / "decisions.json"

    @property
    def experiments(self) -> Path:
        """Contains the directory of each cell."""
        return self.root / "experiments"

    def experiment(self, cell: str) -> ExperimentDirectory:
        """The directory of one cell."""
        return ExperimentDirectory(self.experiments / cell)

    @property
    def comparison(self) -> Path:
        """Tables and numbers, and `plots/`."""
        return self.root / "comparison"

    @property
    def comparison_json(self) -> Path:
        """Everything that was found."""
        return self.comparison / "comparison.json"

    @property
    def plots(self) -> Path:
        """The figures of the comparison."""
        return self.comparison / "plots"

    @property
    def report_html(self) -> Path:
        """The page."""
        return self.root / "report.html"


def study_of(experiment: ExperimentDirectory) -> StudyDirectory:
    """The study to which an experiment's directory belongs by its place."""
    return StudyDirectory(experiment.root.parent.parent)


def read_asked(directory: StudyDirectory) -> Study:
    """The study as it was asked for. Raises `BadInput`, which names the step that writes a missing one."""
    path = directory.study_yaml
    try:
        text = read_bytes(path).decode()
    except FileNotFoundError:
        raise BadInput(f"no file {path}: plan makes it") from None
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is no text: {error}") from error
    return read_study(text, str(path))


def write_cells(directory: StudyDirectory, cells: Sequence[Cell]) -> None:
    """Write the list of cells, unless it is there: these, and behind them the others that an earlier file
    of the study asked for, which another workflow may be about to begin.
    """
    names = {cell.name for cell in cells}
    try:
        earlier = [cell for cell in read_cells(directory) if cell.name not in names]
    except (BadInput, WrongDirectory):
        earlier = []
    _write(directory.cells_json, [_written(cell) for cell in (*cells, *earlier)])


def write_trial(directory: StudyDirectory, cell: Cell) -> None:
    """Write which experiment a trial of a search is, unless it is there. Each has a file of its own, because
    several are proposed at once.
    """
    path = directory.trial_json(cell.name)
    path.parent.mkdir(exist_ok=True)
    _write(path, _written(cell))


def _written(cell: Cell) -> dict[str, Any]:
    return {**asdict(cell), "given": dict(cell.given), "settings": dict(cell.settings)}


def _write(path: Path, content: object) -> None:
    write_if_changed(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def asked_cells(directory: StudyDirectory, study: Study) -> list[Cell]:
    """The cells that the study's file asks for, with the number of runs that they have grown to. Raises
    as `read_cells`.
    """
    written = {cell.name: cell for cell in read_cells(directory)}
    return [written.get(cell.name, cell) for cell in study.cells]


def besides(directory: StudyDirectory, cells: Sequence[Cell]) -> list[str]:
    """The names of the experiments that lie there and are none of these cells."""
    begun = {path.parent.name for path in directory.experiments.glob("*/experiment.yaml")}
    return sorted(begun - {cell.name for cell in cells})


def read_cells(directory: StudyDirectory) -> list[Cell]:
    """The cells of a study, also those that only earlier files of it asked for. Raises `BadInput`, which
    names the step that writes a missing list, and `WrongDirectory` for a damaged one.
    """
    return _read(directory.cells_json, lambda document: [_cell(one) for one in document])


def _read(path: Path, parse: Callable[[Any], Parsed]) -> Parsed:
    try:
        return parse(json.loads(read_bytes(path, LARGEST_BYTES)))
    except FileNotFoundError:
        raise BadInput(f"no file {path}: plan makes it") from None
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise WrongDirectory(f"{path} cannot be read: {error!r}") from error


def find_cell(experiment: ExperimentDirectory) -> Cell:
    """The cell of an experiment's directory, or the trial of a search. Raises as `read_cells`, and `BadInput`
    where the study has none of that name.
    """
    study = study_of(experiment)
    trial = study.trial_json(experiment.root.name)
    if trial.exists():
        return _read(trial, _cell)
    for cell in read_cells(study):
        if cell.name == experiment.root.name:
            return cell
    raise BadInput(f"{study.cells_json} has no experiment {experiment.root.name!r}")


def part_of(cells: Sequence[Cell], part: str) -> Sequence[Cell]:
    """The cells of one part, such as `2/3`: every third one from the second on. Raises `BadInput`."""
    found = PART.fullmatch(part)
    if found is None or int(found[1]) > int(found[2]):
        raise cannot_be("part", part, allowed="1/1, or k/n with k ≤ n")
    return cells[int(found[1]) - 1 :: int(found[2])]


def listed(cells: Sequence[Cell], *, again: bool) -> dict[str, str]:
    """The outputs that name the experiments of one round, by topology."""
    names = {topology: list[str]() for topology in pipeline.EXPERIMENTS}
    for cell in cells:
        names[find_algorithm(cell.algorithm).topology].append(cell.name)
    by_output = {pipeline.EXPERIMENTS[topology]: json.dumps(names[topology]) for topology in names}
    return by_output | {pipeline.AGAIN: "true" if again else "false"}


def pods(resolved: Resolved) -> int:
    """How many pods an experiment of a study has, with its report, without those that are repeated."""
    members = resolved.members
    beside = 0 if members is None else members.helpers + members.learners
    each = len(pipeline.asked("run", resolved.experiment)) + beside + len(resolved.snapshot_epochs)
    last = pipeline.asked("exit", resolved.experiment)
    around = len(pipeline.steps("experiment")) + len(last)
    return around + resolved.experiment.runs * each


def _cell(written: Mapping[str, Any]) -> Cell:
    texts = {name: str(written[name]) for name in ("name", "label", "algorithm", "game")}
    given, settings = (
        {str(k): str(v) for k, v in written[name].items()} for name in ("given", "settings")
    )
    return Cell(**texts, given=given, settings=settings)
