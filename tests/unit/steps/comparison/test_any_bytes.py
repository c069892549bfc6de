"""Contract of every reader: whatever bytes are in a file that it recognises, it answers with entries
whose numbers are finite, or with one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from config.errors import BadInput
from steps.comparison.entries import Entry
from steps.comparison.readers import (
    READERS,
    event_files,
    experiments,
    exported_tables,
    read,
    stable_baselines3,
)
from tests import synthetic


def experiment(root: Path) -> str:
    synthetic.experiment(root, ("complete", "failed"), epochs=5)
    return str(root)


def monitor(root: Path) -> str:
    rows = "".join(f"{i}.5,{i + 1},{i}.25\r\n" for i in range(5))
    (root / "monitor.csv").write_text('#{"t_start": 1.5, "env_id": "CartPole-v1"}\nr,l,t\n' + rows)
    np.savez(root / "evaluations.npz", timesteps=[5, 9], results=[[1.0, 2.0], [3.0, 4.0]])
    return f"{root}:label=PPO:game=cartpole"


def events(root: Path) -> str:
    with (root / "events.out.tfevents.1").open("wb") as file:
        records = RecordWriter(file)
        for step in range(5):
            value = Summary.Value(tag="charts/episodic_return", simple_value=step)
            event = Event(step=step, wall_time=step, summary=Summary(value=[value]))
            records.write(event.SerializeToString())
    return f"{root}:label=PPO:game=cartpole:tag=charts/episodic_return"


def table(root: Path) -> str:
    (root / "a.csv").write_text("Step,x - eval/mean_reward\n" + "1,2.5\n3,4.5\n5,-6e3\n")
    return f"{root / 'a.csv'}:label=PPO:game=cartpole"


MADE: dict[str, Callable[[Path], str]] = {
    experiments.READER.title: experiment,
    stable_baselines3.READER.title: monitor,
    event_files.READER.title: events,
    exported_tables.READER.title: table,
}


def are_sound(entries: list[Entry]) -> bool:
    return all(
        np.isfinite(curve.values).all() and (np.diff(curve.steps) > 0).all()
        for entry in entries
        for run in entry.runs
        for curve in (run.training, run.times, run.policy)
    ) and all(np.isfinite(entry.scores).all() for entry in entries)


def changed(content: bytes, generator: np.random.Generator) -> bytes:
    """Some bytes replaced, left out or doubled, or the end cut."""
    at = int(generator.integers(0, len(content) + 1))
    until = at + int(generator.integers(0, 9))
    return [
        content[:at],
        content[:at] + content[until:],
        content[:at] + generator.bytes(until - at) + content[until:],
        content[:until] + content[at:],
        content.replace(b"1", b"1e30", 1 + at % 3),
    ][int(generator.integers(0, 5))]


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.title)
def test_whatever_the_bytes_the_answer_is_sound(reader, tmp_path):
    source = MADE[reader.title](tmp_path)
    assert reader.recognises(
        tmp_path if reader is not exported_tables.READER else tmp_path / "a.csv"
    )
    assert are_sound(read(source))
    generator = np.random.default_rng(0)
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size)
    for _ in range(150):
        path = files[int(generator.integers(0, len(files)))]
        before = path.read_bytes()
        path.write_bytes(changed(before, generator))
        try:
            assert are_sound(read(source))
        except BadInput as error:
            assert "\n" not in str(error), path
        path.write_bytes(before)
