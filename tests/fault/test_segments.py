"""A training whose state only grows: killed anywhere, it goes on with the rows that it had, and a
checkpoint never copies the whole of them."""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path

import pytest

from steps.directory.layout import ExperimentDirectory, RunDirectory
from tests.fault.conftest import Start, assignments

pytestmark = pytest.mark.timeout(600)
Products = tuple[object, ...]
KILLS = 8


def prepare(start: Start, outdir: Path) -> RunDirectory:
    step = start("steps.prepare", assignments(outdir))
    assert step.end() == 0, step.text
    return ExperimentDirectory(outdir).run(0)


def products(run: RunDirectory) -> Products:
    """What must be equal: train.csv, the last checkpoint, and every segment."""
    final = run.checkpoint(run.checkpoint_steps()[-1])
    state = json.loads((final / "state.json").read_bytes())["state"]
    files = [run.train_csv, final / "tensors.safetensors", final / "streams.json"]
    return (*(path.read_bytes() for path in files), state, segments(run))


def train(outdir: Path) -> tuple[str, list[str]]:
    return "tests.fault.growing", ["--outdir", str(outdir), "--run", "0"]


def segments(run: RunDirectory) -> dict[str, bytes]:
    """Every file of the streams."""
    return {
        f"{name}/{path.name}": path.read_bytes()
        for name in ("replay", "positions")
        for path in sorted(run.stream(name).iterdir())
    }


def listed(run: RunDirectory) -> set[str]:
    """The segments that the checkpoints count on."""
    documents = [
        json.loads((run.checkpoint(step) / "streams.json").read_bytes())
        for step in run.checkpoint_steps()
    ]
    return {
        f"{name}/{segment['name']}"
        for document in documents
        for name, stream in document.items()
        for segment in stream["segments"]
    }


@pytest.fixture(scope="module")
def undisturbed() -> list[Products]:
    return []


@pytest.fixture
def expected(
    start: Start, tmp_path_factory: pytest.TempPathFactory, undisturbed: list[Products]
) -> Products:
    if not undisturbed:
        outdir = tmp_path_factory.mktemp("growing") / "x"
        run = prepare(start, outdir)
        step = start(*train(outdir))
        assert step.end() == 0, step.text
        assert set(segments(run)) == listed(run), "nothing else is left"
        undisturbed.append(products(run))
    return undisturbed[0]


@pytest.mark.slow
def test_killed_at_seeded_moments(start: Start, tmp_path: Path, expected: Products) -> None:
    """Between and within the writing of segments, of the checkpoint, and of its tidying."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    generator = random.Random(seed)
    run = prepare(start, tmp_path / "x")
    for _ in range(KILLS):
        point = generator.choice(("after_temporary", "before_rename", "after_rename"))
        part = generator.choice(("replay", "positions", "checkpoints"))
        fault = f"{point}:{generator.randrange(1, 4)}:{part}"
        step = start(*train(tmp_path / "x"), {"EXPERIMENT_FAULT": fault})
        ended = step.end()
        assert ended in (0, -signal.SIGKILL), f"{fault}: {step.text}"
        if ended == 0:
            break
    again = start(*train(tmp_path / "x"))
    assert again.end() == 0, again.text
    assert products(run) == expected
    assert set(segments(run)) == listed(run)


@pytest.mark.slow
def test_a_segment_that_no_checkpoint_lists_yet_counts_for_nothing(
    start: Start, tmp_path: Path, expected: Products
) -> None:
    """One that was full in an epoch without a checkpoint, after which its attempt dies."""
    run = prepare(start, tmp_path / "x")
    step = start(*train(tmp_path / "x"), {"EXPERIMENT_FAULT": "after_rename:4:replay"})
    assert step.end() == -signal.SIGKILL, step.text
    early = set(segments(run)) - listed(run)
    assert early, "written before its checkpoint"
    again = start(*train(tmp_path / "x"), {"EXPERIMENT_FAULT": "before_rename:1:checkpoints"})
    assert again.end() == -signal.SIGKILL, again.text
    last = start(*train(tmp_path / "x"))
    assert last.end() == 0, last.text
    assert products(run) == expected
    assert set(segments(run)) == listed(run)


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param("removed", marks=pytest.mark.slow),
        "changed",
        pytest.param("shorter", marks=pytest.mark.slow),
    ],
)
def test_a_checkpoint_without_its_segments_is_not_gone_on_from(
    start: Start, tmp_path: Path, expected: Products, harm: str
) -> None:
    run = prepare(start, tmp_path / "x")
    step = start(*train(tmp_path / "x"), {"EXPERIMENT_FAULT": "after_rename:5:checkpoints"})
    assert step.end() == -signal.SIGKILL, step.text
    newest = run.checkpoint_steps()[-1]
    name = json.loads((run.checkpoint(newest) / "streams.json").read_bytes())["replay"]["segments"][
        -1
    ]["name"]
    segment = run.stream("replay") / name
    content = bytearray(segment.read_bytes())
    segment.unlink()
    if harm == "changed":
        content[len(content) // 2] ^= 1
        segment.write_bytes(content)
    elif harm == "shorter":
        segment.write_bytes(content[:-1])
    again = start(*train(tmp_path / "x"))
    assert again.end() == 0, again.text
    assert f"replay/{name}" in again.text and "damaged checkpoints skipped" in again.text
    assert products(run) == expected


def test_a_training_does_not_go_on_with_less_experience(start: Start, tmp_path: Path) -> None:
    run = prepare(start, tmp_path / "x")
    step = start(*train(tmp_path / "x"), {"EXPERIMENT_FAULT": "after_rename:5:checkpoints"})
    assert step.end() == -signal.SIGKILL, step.text
    for path in run.stream("positions").iterdir():
        path.unlink()
    again = start(*train(tmp_path / "x"))
    assert again.end() == 4, again.text
    assert "positions/000000000000-" in again.text
    assert f"delete {run.root} to start this run again" in again.text


@pytest.mark.slow
def test_a_save_that_was_begun_after_a_stop_is_brought_to_its_end(
    start: Start, tmp_path: Path, expected: Products
) -> None:
    """However long it takes: that the step has not looked is no reason to end it."""
    outdir = tmp_path / "x"
    run = prepare(start, outdir)
    stopped = start(*train(outdir), {"STOPPED_IN": "7"})
    assert stopped.end() == 75, stopped.text
    assert "preempted at step 140, continues from 140" in stopped.text
    assert "did not look" not in stopped.text
    again = start(*train(outdir))
    assert again.end() == 0, again.text
    assert products(run) == expected
