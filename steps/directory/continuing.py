"""The experiment that a directory holds already, for whoever submits to it again."""

from __future__ import annotations

from config.errors import BadInput, WrongDirectory
from config.resolve import Resolved
from steps.directory.experiment import other_parameters, read_experiment
from steps.directory.layout import ExperimentDirectory
from steps.directory.length import check_length


def held_experiment(directory: ExperimentDirectory, resolved: Resolved) -> Resolved | None:
    """The experiment in a directory that `resolved` would continue; None if the directory holds none.
    Raises `BadInput` for what `prepare` would refuse: other parameters, or a length that its trainings
    cannot have.
    """
    if not directory.experiment_yaml.exists():
        return None
    try:
        record = read_experiment(directory)
        check_length(directory, record, resolved)
        differences = other_parameters(record, resolved)
    except WrongDirectory as error:
        raise BadInput(str(error)) from None
    if differences:
        raise BadInput(
            f"{directory.root} belongs to other parameters: {differences}; choose another outdir"
        )
    return record.resolved
