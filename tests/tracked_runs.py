"""Reads back what trackers were sent, each in its own way: for tests over all of them."""

from __future__ import annotations

import csv
import json
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steps.directory.layout import RunDirectory
from tests import recording_sink
from tests.wandb_server import WandbServer

Stored = list[tuple[str, int, dict[str, float]]]
"""(group, step, column -> value) of each row, in the order of arrival."""


@dataclass(frozen=True, kw_only=True)
class Tracker:
    """One tracker. environment: its variables, given a folder. read: the rows of a run, given its
    directory and the folder. needs: a package without which it is skipped.
    """

    name: str
    environment: Callable[[Path], Mapping[str, str]]
    read: Callable[[RunDirectory, Path], Stored]
    needs: str = ""


def table(path: Path, group: str, step: str) -> Stored:
    """The rows of a CSV file, by Python's own reader."""
    with path.open(newline="") as file:
        return [
            (
                group,
                int(row[step]),
                {name: float(text) for name, text in row.items() if text and name != step},
            )
            for row in csv.DictReader(file)
        ]


def recorded(run: RunDirectory, folder: Path) -> Stored:
    (path,) = [one for one in folder.glob("*.jsonl") if one.stem == journal(run, RECORDING)["id"]]
    rows = (one for one in recording_sink.read(path) if "number" in one)
    return [(str(one["group"]), int(str(one["step"])), dict(one["values"])) for one in rows]  # type: ignore[call-overload]


def event_files(run: RunDirectory, folder: Path) -> Stored:
    """As TensorBoard shows them: a session start drops what earlier files have from its step on."""
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog

    rows: Stored = []
    for path in sorted(run.tracking.glob("events.out.*")):
        for raw in RawEventFileLoader(str(path)).Load():
            event = Event.FromString(raw)
            if event.session_log.status == SessionLog.START:
                rows = [row for row in rows if row[1] < event.step]
            values = {
                one.tag: one.simple_value
                for one in event.summary.value
                if one.HasField("simple_value")
            }
            if values:
                group = next(iter(values)).partition("/")[0]
                plain = {tag.partition("/")[2]: value for tag, value in values.items()}
                rows.append((group, event.step, plain))
    return rows


def offline_files(run: RunDirectory, folder: Path) -> Stored:
    """The history in the files that W&B writes offline."""
    rows: Stored = []
    for path in sorted((run.tracking / "wandb").glob("offline-run-*/*.wandb")):
        for record in wandb_records(path):
            if record.WhichOneof("record_type") == "history":
                items = {"/".join(one.nested_key) or one.key: one for one in record.history.item}
                rows.append(_logged({name: one.value_json for name, one in items.items()}))
    return rows


def online_history(run: RunDirectory, folder: Path) -> Stored:
    """The history that a W&B server has."""
    history = SERVERS[folder].history[str(journal(run, "wandb")["id"])]
    rows = [json.loads(line) for line in history]
    assert [row["_step"] for row in rows] == list(range(len(rows)))
    return [_logged({name: json.dumps(one) for name, one in row.items()}) for row in rows]


def _logged(items: Mapping[str, str]) -> tuple[str, int, dict[str, float]]:
    """A row of W&B's, column -> JSON."""
    values = {name: float(json.loads(text)) for name, text in items.items() if "/" in name}
    (named,) = [name for name in values if name.endswith("/step")]
    group = named.partition("/")[0]
    step = int(values.pop(named))
    return group, step, {name.partition("/")[2]: value for name, value in values.items()}


SERVERS: dict[Path, WandbServer] = {}


def online(folder: Path) -> Mapping[str, str]:
    """The variables of a W&B server that runs until `stop_servers`."""
    made = SERVERS.setdefault(folder, WandbServer())
    return {"WANDB_BASE_URL": made.address, "WANDB_API_KEY": "0123456789" * 4}


def stop_servers() -> None:
    while SERVERS:
        SERVERS.popitem()[1].stop()


def wandb_records(path: Path) -> Iterator[Any]:
    """The records of one of W&B's files: LevelDB's log format behind seven bytes."""
    from wandb.proto import wandb_internal_pb2

    content = path.read_bytes()
    position = 7
    whole = b""
    while position + 7 <= len(content):
        left = 32768 - position % 32768
        if left < 7:
            position += left
            continue
        _, length, kind = struct.unpack_from("<IHB", content, position)
        position += 7
        whole += content[position : position + length]
        position += length
        if kind in (1, 4):  # a whole record, or the last part of one
            yield wandb_internal_pb2.Record.FromString(whole)
            whole = b""


def mlflow_store(run: RunDirectory, folder: Path) -> Stored:
    return mlflow_rows(f"sqlite:///{folder}/mlflow.db", str(journal(run, "mlflow")["id"]))


def mlflow_rows(address: str, id: str) -> Stored:
    """Every value that a server has of a run, also one that it has twice."""
    from mlflow import MlflowClient

    from steps.tracking.mlflow_runs import TAG

    client = MlflowClient(address)
    experiments = [one.experiment_id for one in client.search_experiments()]
    (found,) = client.search_runs(experiments, f"tags.`{TAG}` = '{id}'")
    rows: dict[tuple[str, int], dict[str, float]] = {}
    for key in found.data.metrics:
        group, _, column = key.partition("/")
        for metric in client.get_metric_history(found.info.run_id, key):
            values = rows.setdefault((group, metric.step), {})
            assert column not in values, f"{key} has two values at step {metric.step}"
            values[column] = metric.value
    return [(group, step, values) for (group, step), values in rows.items()]


def journal(run: RunDirectory, tracker: str) -> dict[str, object]:
    document = json.loads((run.tracking / f"{tracker.replace(':', '.')}.json").read_text())
    assert isinstance(document, dict)
    return document


RECORDING = "tests.recording_sink:Recording"
EVENTS = "steps.tracking.event_files:EventFiles"
TRACKERS = {
    "own": Tracker(
        name=RECORDING, environment=lambda folder: {"TRACKER_URL": str(folder)}, read=recorded
    ),
    "tensorboard": Tracker(name=EVENTS, environment=lambda folder: {}, read=event_files),
    "wandb": Tracker(
        name="wandb",
        environment=lambda folder: {"WANDB_MODE": "offline"},
        read=offline_files,
        needs="wandb",
    ),
    "wandb-online": Tracker(name="wandb", environment=online, read=online_history, needs="wandb"),
    "mlflow": Tracker(
        name="mlflow",
        environment=lambda folder: {"MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db"},
        read=mlflow_store,
        needs="mlflow.server",
    ),
}
