"""MLflow. Environment: `MLFLOW_TRACKING_URI`, and optionally `MLFLOW_TRACKING_TOKEN`,
`MLFLOW_TRACKING_USERNAME`, `MLFLOW_TRACKING_PASSWORD` and `MLFLOW_EXPERIMENT_NAME`.

MLflow gives each run an id of its own. Ours is a tag, by which the run is found again. Some of its
stores would keep a value that is logged twice, so after a start the first rows are compared with what
the server has.

Source: MLflow's documentation of `MlflowClient` and of its REST API (limits of `log-batch`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

SETTINGS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
"""By default MLflow repeats a request for minutes (here the next pass repeats it), and prints its address,
which may hold a password.
"""
for _name, _value in SETTINGS.items():
    os.environ.setdefault(_name, _value)

from mlflow import MlflowClient  # noqa: E402 - reads its environment when it is imported
from mlflow.entities import Metric, Param, Run  # noqa: E402
from mlflow.exceptions import MlflowException  # noqa: E402

from config.errors import BadInput  # noqa: E402
from steps.tracking.sink import PROJECT, Row, TrackedRun, without_credentials  # noqa: E402

TAG = "rl_training_dag.run"
METRICS_AT_ONCE = 1000
PARAMETERS_AT_ONCE = 100
LONGEST_PARAMETER = 6000


class MlflowRuns:
    """A run of MLflow."""

    def __init__(self) -> None:
        if not os.environ.get("MLFLOW_TRACKING_URI"):
            raise BadInput("the variable MLFLOW_TRACKING_URI is not set")
        self._client = MlflowClient()
        self._id = ""
        self._may_know = False

    def destination(self) -> str:
        """The server's address and the name of the experiment there."""
        return f"{without_credentials(os.environ['MLFLOW_TRACKING_URI'])} {_experiment_name()}"

    def start(self, run: TrackedRun) -> int | None:
        """Find the run, or create it."""
        experiment = self._experiment(_experiment_name())
        found = self._client.search_runs([experiment], f"tags.`{TAG}` = '{run.id}'", max_results=1)
        if found:
            opened = found[0]
            self._may_know = True
            self._client.update_run(opened.info.run_id, status="RUNNING")
        else:
            tags = {TAG: run.id, "group": run.group}
            opened = self._client.create_run(experiment, tags=tags, run_name=run.name)
        self._id = opened.info.run_id
        self._describe(opened, {name: str(value) for name, value in run.hyperparameters.items()})
        return None

    def rows(self, rows: Sequence[Row]) -> None:
        """Log the values that the server does not have."""
        now_ms = int(time.time() * 1000)
        metrics = [
            Metric(f"{row.group}/{name}", value, now_ms, row.step)
            for row in rows
            for name, value in row.values.items()
        ]
        if self._may_know:
            known = {key: self._steps(key) for key in {metric.key for metric in metrics}}
            metrics = [metric for metric in metrics if metric.step not in known[metric.key]]
        for part in _parts(metrics, METRICS_AT_ONCE):
            self._client.log_batch(self._id, metrics=part)
        self._may_know = False

    def file(self, path: Path, name: str) -> None:
        """Upload an artifact."""
        folder = Path(name).parent.as_posix()
        self._client.log_artifact(self._id, str(path), None if folder == "." else folder)

    def finish(self) -> None:
        """Say that the run has ended."""
        self._client.set_terminated(self._id)

    def _experiment(self, name: str) -> str:
        for attempt in (1, 2):
            found = self._client.get_experiment_by_name(name)
            if found is not None:
                return str(found.experiment_id)
            try:
                return str(self._client.create_experiment(name))
            except MlflowException:  # another run was faster
                if attempt == 2:
                    raise
        raise AssertionError("unreachable")

    def _describe(self, opened: Run, values: dict[str, str]) -> None:
        """Log the parameters. MLflow refuses to change one, so a changed one becomes a tag."""
        before = opened.data.params
        new = [
            Param(name, value[:LONGEST_PARAMETER])
            for name, value in values.items()
            if name not in before
        ]
        for part in _parts(new, PARAMETERS_AT_ONCE):
            self._client.log_batch(self._id, params=part)
        for name, value in values.items():
            if name in before and before[name] != value[:LONGEST_PARAMETER]:
                self._client.set_tag(self._id, f"changed.{name}", value[:LONGEST_PARAMETER])

    def _steps(self, key: str) -> set[int]:
        return {metric.step for metric in self._client.get_metric_history(self._id, key)}


def _experiment_name() -> str:
    return os.environ.get("MLFLOW_EXPERIMENT_NAME") or PROJECT


def _parts(whole: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for first in range(0, len(whole), size):
        yield whole[first : first + size]
