"""The experiment that a directory holds already, for whoever submits to it again."""

from __future__ import annotations

from config.errors import BadInput, WrongDirectory
from config.parameters import cannot_be
from config.resolved import Resolved
from steps.directory.checkpoints import trained_epochs
from steps.directory.experiment import other_parameters, read_experiment
from steps.directory.layout import ExperimentDirectory
from steps.directory.length import check_length


def held_experiment(directory: ExperimentDirectory, resolved: Resolved) -> Resolved | None:
    """The experiment in a directory that `resolved` would continue; None if the directory holds none.
    Raises `BadInput` for what `prepare` would refuse: other parameters, or a length or evaluations that
    its trainings cannot have.
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
    check_evaluations(directory, resolved)
    return record.resolved


def check_evaluations(directory: ExperimentDirectory, now: Resolved) -> None:
    """Raise `BadInput` for `evaluations` of a training that is complete and kept no snapshot."""
    given = now.experiment.evaluations
    for index in range(now.experiment.runs if given else 0):
        run = directory.run(index)
        if not run.snapshot_steps() and trained_epochs(run) >= now.epochs:
            without = f"run {index} was trained with evaluations=0"
            raise cannot_be(
                "evaluations",
                given,
                because=f"{without}, and its snapshots cannot be taken later",
                allowed="0, or another outdir",
            )
