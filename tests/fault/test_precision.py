"""`precision: auto` is decided once for the experiment, by the first training
that starts.

Real processes on a pretended processor, see `other_processor.py`: each has a probe that would
answer differently.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steps.directory.layout import ExperimentDirectory
from steps.directory.status import read_status
from tests.fault.conftest import Start, Step, assignments, snapshot

pytestmark = pytest.mark.slow
TRAIN = "tests.fault.other_processor"
Prepared = Callable[..., ExperimentDirectory]


@pytest.fixture
def prepared(start: Start, tmp_path: Path) -> Prepared:
    """An experiment of two short runs that `prepare` has made."""

    def prepare(name: str = "x", **parameters: object) -> ExperimentDirectory:
        step = start(
            "steps.prepare",
            assignments(tmp_path / name, **{"runs": 2, "epochs": 4, "device": "cpu", **parameters}),
        )
        assert step.end() == 0, step.text
        return ExperimentDirectory(tmp_path / name)

    return prepare


def train(start: Start, directory: ExperimentDirectory, run: int, **environment: str) -> Step:
    return start(TRAIN, ["--outdir", str(directory.root), "--run", str(run)], environment)


def recorded(directory: ExperimentDirectory) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(directory.compute_json.read_text())
    return document


def used(directory: ExperimentDirectory, run: int) -> tuple[str, str]:
    status = read_status(directory.run(run).status / "train.json")
    assert status is not None and status.state == "succeeded"
    return status.details["device"], status.details["precision"]


@pytest.mark.parametrize(
    ("first", "second", "precision"), [("2.0", "0.5", "bf16"), ("0.5", "2.0", "fp32")]
)
def test_the_first_training_decides_for_all_runs(
    start: Start, prepared: Prepared, first: str, second: str, precision: str
) -> None:
    directory = prepared()
    one = train(start, directory, 0, RATIO=first)
    assert one.end() == 0, one.text
    assert (
        "the probe ran" in one.text
        and f"cpu, {precision} (cpu was asked for; measured: bf16 is {first}0 x as fast" in one.text
    )
    document, before = recorded(directory), directory.compute_json.stat()
    assert (document["device"], document["precision"]) == ("cpu", precision)
    assert document["probe"] == {
        "rows": 32,
        "threads": 1,
        "fp32_s": [float(first)] * 3,
        "bf16_s": [1.0] * 3,
        "ratio": float(first),
    }
    assert document["processor"] and document["torch"]
    other = train(start, directory, 1, RATIO=second)
    assert other.end() == 0, other.text
    assert "the probe ran" not in other.text and f"cpu, {precision} (" in other.text
    assert used(directory, 0) == used(directory, 1) == ("cpu", precision)
    assert (directory.compute_json.stat().st_ino, directory.compute_json.stat().st_mtime_ns) == (
        before.st_ino,
        before.st_mtime_ns,
    )


def test_a_training_killed_before_its_first_checkpoint_keeps_to_it(
    start: Start, prepared: Prepared
) -> None:
    directory = prepared()
    killed = train(start, directory, 0, RATIO="2.0", EXPERIMENT_FAULT="mid_row:1:train.csv")
    assert killed.end() == -signal.SIGKILL, killed.text
    assert directory.run(0).checkpoint_steps() == []
    again = train(start, directory, 0, RATIO="0.5")
    assert again.end() == 0, again.text
    assert used(directory, 0)[1] == recorded(directory)["precision"] == "bf16"


def test_of_two_that_start_at_once_one_decides_for_both(
    start: Start, prepared: Prepared, tmp_path: Path
) -> None:
    directory = prepared()
    (tmp_path / "meeting").mkdir()
    meet = str(tmp_path / "meeting")
    both = [
        train(start, directory, run, RATIO=ratio, MEET=meet)
        for run, ratio in enumerate(("0.5", "2.0"))
    ]
    for step in both:
        assert step.end() == 0, step.text
        assert "the probe ran" in step.text
    document = recorded(directory)
    assert document["precision"] == ("bf16" if document["probe"]["ratio"] == 2.0 else "fp32")
    assert used(directory, 0)[1] == used(directory, 1)[1] == document["precision"]
    assert not list(directory.root.glob(".*.tmp"))


def test_a_displaced_training_decides_nothing(
    start: Start, prepared: Prepared, tmp_path: Path
) -> None:
    owned = {"EXPERIMENT_OWNER": "first", "EXPERIMENT_WORKFLOW": "ppo-first"}
    directory = prepared()
    claimed = start(
        "steps.prepare", assignments(directory.root, runs=2, epochs=4, device="cpu"), owned
    )
    assert claimed.end() == 0, claimed.text
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    step = train(start, directory, 0, RATIO="2.0", MEET=str(meeting), **owned)
    step.wait_for(lambda: list(meeting.iterdir()))
    present = json.loads(directory.owner_json.read_text())
    directory.owner_json.write_text(json.dumps(present | {"uid": "second"}))
    (meeting / "second").touch()
    assert step.end() == 4, step.text
    assert not directory.compute_json.exists()


def test_a_directory_without_the_record_goes_on_as_its_checkpoint_says(
    start: Start, prepared: Prepared
) -> None:
    directory = prepared(checkpoint_interval=1, log_interval=1)
    killed = train(start, directory, 0, RATIO="2.0", EXPERIMENT_FAULT="mid_row:3:train.csv")
    assert killed.end() == -signal.SIGKILL, killed.text
    assert directory.run(0).checkpoint_steps()
    directory.compute_json.unlink()
    again = train(start, directory, 0, RATIO="0.5")
    assert again.end() == 0, again.text
    assert "the probe ran" not in again.text
    assert recorded(directory)["precision"] == "bf16", "the other runs follow it"
    other = train(start, directory, 1, RATIO="0.5")
    assert other.end() == 0, other.text
    assert used(directory, 0) == used(directory, 1) == ("cpu", "bf16")


def test_a_checkpoint_that_says_otherwise_counts_for_its_run(
    start: Start, prepared: Prepared
) -> None:
    directory = prepared(checkpoint_interval=1, log_interval=1)
    killed = train(start, directory, 0, RATIO="2.0", EXPERIMENT_FAULT="mid_row:3:train.csv")
    assert killed.end() == -signal.SIGKILL, killed.text
    directory.compute_json.write_text(
        json.dumps({"device": "cpu", "precision": "fp32", "reason": "a test"})
    )
    again = train(start, directory, 0, RATIO="0.5")
    assert again.end() == 0, again.text
    assert (
        "warning: compute.json says cpu, fp32 (a test); its checkpoint goes on in cpu, bf16"
        in again.text
    )
    assert used(directory, 0) == ("cpu", "bf16")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "Expecting value"),
        (b'{"device": "cpu", "precision"', "Expecting"),
        (b"[]", "no mapping"),
        (
            b'{"device": "cpu", "precision": "fp16", "reason": "x"}',
            "precision is 'fp16', allowed: fp32, bf16",
        ),
        (
            b'{"device": ["cpu"], "precision": "fp32", "reason": "x"}',
            "device is ['cpu'], allowed: cpu, cuda",
        ),
        (
            b'{"device": "cpu", "precision": "fp32", "reason": "\\u001b[2J"}',
            "reason is no line of text",
        ),
        (b"\xff\xff", "decode"),
        (b"[" * 60000, "depth"),
        (b" " * 70000, "at most 65536"),
    ],
)
def test_a_damaged_record_is_refused_and_named(
    start: Start, prepared: Prepared, content: bytes, words: str
) -> None:
    directory = prepared()
    directory.compute_json.write_bytes(content)
    step = train(start, directory, 0, RATIO="2.0")
    assert step.end() == 4, step.text
    last = step.text.splitlines()[-1]
    assert words in last and f"{directory.compute_json}" in last and "; delete it" in last
    assert directory.compute_json.read_bytes() == content
    assert not directory.run(0).train_csv.exists()


def test_what_was_asked_for_is_recorded_and_no_probe_runs(start: Start, prepared: Prepared) -> None:
    directory = prepared(precision="fp32")
    step = train(start, directory, 0, RATIO="2.0")
    assert step.end() == 0, step.text
    assert "the probe ran" not in step.text
    document = recorded(directory)
    assert (document["precision"], document["probe"]) == ("fp32", None)
    assert document["reason"] == "cpu was asked for; fp32 was asked for"
    directory.compute_json.write_text(json.dumps(document | {"precision": "bf16"}))
    other = train(start, directory, 1)
    assert other.end() == 4, other.text
    assert (
        f"{directory.compute_json} says precision bf16, the experiment fp32; delete it"
        in other.text
    )


def test_a_gpu_that_was_decided_on_and_is_not_here_is_refused(
    start: Start, prepared: Prepared
) -> None:
    directory = prepared(device="auto")
    directory.compute_json.write_text(
        json.dumps({"device": "cuda", "precision": "fp32", "reason": "there is a GPU"})
    )
    step = train(start, directory, 0, CUDA_VISIBLE_DEVICES="")
    assert step.end() == 2, step.text
    assert (
        f"{directory.compute_json} says device cuda, and this machine has no usable GPU"
        in step.text
    )


def test_the_probe_leaves_no_trace_in_a_training(start: Start, prepared: Prepared) -> None:
    """A game that draws from the global generators, so that one more that is made would be seen."""
    given = {
        "game": "tests.own_games:Global",
        "minibatches": 4,
        "runs": 1,
        "checkpoint_interval": 1,
    }
    probed, read = prepared("probed", **given), prepared("read", **given)
    read.compute_json.write_text(
        json.dumps({"device": "cpu", "precision": "fp32", "reason": "a test"})
    )
    before = snapshot(read.root)["compute.json"]
    for directory in (probed, read):
        step = train(start, directory, 0)
        assert step.end() == 0, step.text
    assert recorded(probed)["probe"]["rows"] == 32 and len(recorded(probed)["probe"]["bf16_s"]) == 3
    assert snapshot(read.root)["compute.json"] == before
    assert probed.run(0).train_csv.read_bytes() == read.run(0).train_csv.read_bytes()
    weights = "tensors.safetensors"
    final = probed.run(0).checkpoint_steps()[-1]
    assert (probed.run(0).checkpoint(final) / weights).read_bytes() == (
        read.run(0).checkpoint(final) / weights
    ).read_bytes()
