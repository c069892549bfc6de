"""An experiment's directory for analysis in Python."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import pandas as pd

from config.errors import BadInput
from steps.directory.experiment import ExperimentRecord, read_experiment
from steps.directory.files import write_atomically
from steps.directory.layout import ExperimentDirectory, RunDirectory
from steps.directory.usable import Usable, usability
from steps.policy import load_policy_of, load_policy_of_snapshot
from steps.results.acting import TrainedAgent
from steps.results.frames import (
    averages_frame,
    curve_frame,
    evaluation_frame,
    resources_frame,
    summary_frame,
    summary_row,
    training_frame,
)


class Results:
    """One experiment, read and never written; it may still be running.

    record: `experiment.yaml`: the parameters (`record.resolved`), versions, source, start.

    Each frame is read once, when it is first asked for (100 runs of 100 000 rows: 8 s of a core and
    2 GB): a new `Results` sees what has been added since. Raises `BadInput` for a directory that
    `prepare` has not made, `WrongDirectory` for one that cannot be read; both are a
    `config.errors.ExperimentError`, its message is one line.
    """

    record: ExperimentRecord

    def __init__(self, outdir: str | Path) -> None:
        self._directory = ExperimentDirectory(Path(outdir).absolute())
        if not self._directory.root.is_dir():
            raise BadInput(f"no directory {self._directory.root}: prepare makes it")
        self.record = read_experiment(self._directory)

    def __repr__(self) -> str:
        """The call that makes this object."""
        return f"Results({str(self._directory.root)!r})"

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """All planned runs by index, whether started or not."""
        planned = self.record.resolved.experiment.runs
        return tuple(Run(self._directory.run(index), self.record) for index in range(planned))

    @cached_property
    def training(self) -> pd.DataFrame:
        """Every row of every run's train.csv, in the order of the runs.

        Columns: `run` (int), `usable` (bool: the run enters averages); `epoch`, `step` (environment
        steps), `frame` (emulator frames), `episodes` (that ended since the row before), all int;
        `return_mean`, `return_min`, `return_max` (in the game's own reward) and `length_mean`
        (steps) of those episodes, NaN where none ended; then the algorithm's metrics, all float.
        Here and below an algorithm that is judged by another measure has the name of its column in
        place of `return`.

        Of an unfinished run the rows up to the last whole line: those after its newest checkpoint
        will be done again when it is resumed. Raises `BadInput` while there is no train.csv at all,
        `WrongDirectory` for one that is no table.
        """
        frames = [training_frame(run.directory, run.usable) for run in self.runs]
        return self._joined("train", frames)

    @cached_property
    def evaluation(self) -> pd.DataFrame:
        """Every episode of the runs' final policies.

        Columns: `run` (int), `usable` (bool), `episode`, `seed` (int), `return` (float, in the
        game's own reward), `length` (int, environment steps). Raises as `training` does.
        """
        measure = self.record.resolved.measure
        frames = [evaluation_frame(run.directory, run.usable, measure) for run in self.runs]
        return self._joined("evaluate", frames)

    @cached_property
    def evaluation_curve(self) -> pd.DataFrame:
        """Every snapshot of the runs' policies in the course of their trainings (`evaluations`).

        Columns: `run` (int), `usable` (bool); `epoch`, `step`, `frame`, `episodes` (int);
        `return_mean`, `return_sd`, `return_min`, `return_max`, `length_mean` of these episodes,
        float; `best` (bool): the snapshot with the highest mean of its run, and there `again_mean`,
        its mean in other episodes with other seeds, which did not choose it (else NaN). Raises as
        `training` does.
        """
        measure = self.record.resolved.measure
        frames = [curve_frame(run.directory, run.usable, measure) for run in self.runs]
        return self._joined("evaluation-curve", frames)

    @cached_property
    def resources(self) -> pd.DataFrame:
        """Every sample of every run's resources.csv: the training's own process.

        Columns: `run` (int), `usable` (bool); `wall_s` (seconds of training), `step` (int),
        `steps_per_second`, `cpu_percent`, `memory_bytes`, `gpu_percent`, `gpu_memory_bytes`: float,
        NaN where there was nothing to measure. Raises as `training` does.
        """
        frames = [resources_frame(run.directory, run.usable) for run in self.runs]
        return self._joined("train", frames)

    @cached_property
    def averages(self) -> pd.DataFrame:
        """The training averaged over the usable runs: average/train.csv, a row per point of a common
        grid of steps.

        Columns: `step`, `frame`, `n` (runs), int; `mean`, `sd`, `low`, `high` (Student's t), `iqm`,
        `iqm_low`, `iqm_high` (bootstrap), `min`, `max`: float, NaN where n allows none. Raises
        `BadInput` before `average` has run, `WrongDirectory` for a damaged table.
        """
        path = self._directory.average / "train.csv"
        return _required(averages_frame(path), path, "average")

    @cached_property
    def summary(self) -> pd.DataFrame:
        """One row per planned run.

        Columns: `run` (int); `state` (categorical: complete, skipped, paused, unfinished, failed), `usable`
        (bool) and `reason` (why it is not complete, one line, else missing); `epoch`, `step`,
        `frame`: how far train.csv goes (int, 0 without one); `training_return`: mean of the last
        100 training episodes; `episodes` (int) of the evaluation and their `return_mean`,
        `return_sd` (of a sample), `return_min`, `return_max`, `length_mean`: float, NaN without a
        complete evaluation.
        """
        resolved = self.record.resolved
        rows = [summary_row(run.directory, run.usable, resolved) for run in self.runs]
        return summary_frame(rows)

    def _joined(self, step: str, frames: Sequence[pd.DataFrame | None]) -> pd.DataFrame:
        found = [frame for frame in frames if frame is not None]
        if not found:
            raise BadInput(f"no run of {self._directory.root} has a table yet: {step} makes it")
        return pd.concat(found, ignore_index=True)


class Run:
    """One planned run, `Results.runs[index]`. directory: where its files are."""

    def __init__(self, directory: RunDirectory, record: ExperimentRecord) -> None:
        self.directory = directory
        self._record = record

    def __repr__(self) -> str:
        """The run's directory."""
        return f"<Run {self.index} in {str(self.directory.root)!r}>"

    @property
    def index(self) -> int:
        """The run's number, from 0."""
        return self.directory.index

    @cached_property
    def usable(self) -> Usable:
        """True if the run enters averages; `state` and `reason` say why it does not."""
        return usability(self.directory, self._record.resolved)

    @property
    def training(self) -> pd.DataFrame:
        """The run's rows of `Results.training`, read anew. Raises `BadInput` if there are none."""
        frame = training_frame(self.directory, self.usable)
        return _required(frame, self.directory.train_csv, "train")

    @property
    def evaluation(self) -> pd.DataFrame:
        """The run's rows of `Results.evaluation`. Raises `BadInput` without the table."""
        measure = self._record.resolved.measure
        frame = evaluation_frame(self.directory, self.usable, measure)
        return _required(frame, self.directory.evaluated(measure), "evaluate")

    def policy(self, snapshot: str | int | None = None) -> TrainedAgent:
        """The policy that the training ended with; torch is imported, and computes on the CPU.
        snapshot: an earlier one (`evaluations`), "best" or its environment step.

        The policy computes with as many threads as the experiment, for the same numbers; the
        process's own number stays. Raises `BadInput` before the training has ended, and after
        self-play, whose agents search; `NoUsableState` if no checkpoint verifies.
        """
        if self._record.resolved.descriptor.has_workers:
            opponent = f"--opponent {self.directory.root.parent.parent}:{self.index}"
            raise BadInput(
                f"run {self.index} has an agent of self-play, which searches before each move; "
                f"python -m steps.versus {opponent} plays against it"
            )
        from agents.devices import threads

        resolved = self._record.resolved
        count = resolved.experiment.threads
        with threads(count):
            if snapshot is None:
                policy, step = load_policy_of(self.directory, resolved)
            else:
                policy, step = load_policy_of_snapshot(self.directory, resolved, str(snapshot))
        return TrainedAgent(policy, step, count)

    def export(self, path: str | Path, snapshot: str | int | None = None) -> Path:
        """Write the final policy, or that of a snapshot as for `policy`, as ONNX, from the raw
        observation to the action; returns the path.

        `agents.evaluation.export` says what the inputs and outputs are called; the file's metadata say where
        the policy comes from. Needs the packages onnx and onnxscript; raises `BadInput` without
        them, for a path that cannot be written or does not end with .onnx, and as `policy` does.
        """
        path = Path(path)
        if path.suffix != ".onnx":
            raise BadInput(f"cannot export to {path}: the format is ONNX; allowed: a name.onnx")
        agent = self.policy(snapshot)
        from agents.evaluation.export import to_onnx

        content = to_onnx(agent.policy, self._origin(agent.step))
        try:
            write_atomically(path, content)
        except OSError as error:
            raise BadInput(f"cannot write {path}: {error.strerror}") from error
        return path

    def _origin(self, step: int) -> dict[str, str]:
        resolved = self._record.resolved
        return {
            "algorithm": resolved.algorithm,
            "game": resolved.game.id,
            "identity_hash": self._record.identity_hash,
            "run": str(self.index),
            "step": str(step),
        }


def _required(frame: pd.DataFrame | None, path: Path, step: str) -> pd.DataFrame:
    if frame is None:
        raise BadInput(f"no file {path}: {step} makes it")
    return frame
