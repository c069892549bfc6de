"""Streams in segments: what is written and when, what is read back, what a checkpoint costs, what is
tidied up."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from config.errors import ExperimentError, NoUsableState, WrongDirectory
from steps.directory import checkpoints, segments
from steps.directory.arrays import DamagedError
from steps.directory.checkpoints import Checkpoint
from steps.directory.layout import ExperimentDirectory, RunDirectory
from steps.directory.segments import Stream
from steps.training import stream_writer as writing
from steps.training.stream_writer import StreamFiles
from steps.training.training_files import MOST_PENDING, Saver

ROW = 1000


class Grown:
    """The `Growth` of a trainer, as far as it is looked at."""

    def __init__(self, first: int, count: int, keep: int | None) -> None:
        self.rows, self.keep = {"frame": rows(first, count)}, keep


def rows(first: int, count: int) -> np.ndarray:
    """Row n is full of n."""
    return np.repeat(np.arange(first, first + count, dtype=np.int32)[:, None], ROW // 4, axis=1)


def allowed() -> None:
    """Another attempt has not started."""


def at_once(write: Callable[[], object]) -> None:
    """Nothing else is going on."""
    write()


def opened(
    run: RunDirectory,
    before: Mapping[str, Stream] | None = None,
    permitted: Callable[[], None] = allowed,
    start: Callable[[Callable[[], object]], None] = at_once,
) -> StreamFiles:
    return StreamFiles(run, before or {}, permitted, start)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "SEALED_BYTES", 20 * ROW)
    monkeypatch.setattr(writing, "LARGEST_BYTES", 60 * ROW)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return ExperimentDirectory(tmp_path).run(0)


def save(run: RunDirectory, files: StreamFiles, step: int) -> None:
    packed = checkpoints.pack(step=step, state={}, identity={}, record={"epoch": step})
    checkpoints.write(run, step, {**packed, **files.ended()()})


def newest(run: RunDirectory) -> Checkpoint:
    checkpoint = checkpoints.load_newest(run, continues=True, say=lambda line: None)
    assert checkpoint is not None
    return checkpoint


def kept(run: RunDirectory, checkpoint: Checkpoint) -> list[int]:
    """The numbers of the rows that a training would be given back."""
    parts = segments.read(run, "replay", checkpoint.streams["replay"])
    return [int(row[0]) for part in parts for row in part["frame"]]


def stored(run: RunDirectory) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in sorted(run.stream("replay").iterdir())}


@pytest.mark.parametrize("count", [1, 7, 19, 20, 45, 130])
@pytest.mark.parametrize("keep", [None, 50])
def test_what_was_added_comes_back(run: RunDirectory, count: int, keep: int | None) -> None:
    """Also after every resume, and however the rows come together in segments."""
    files, total = opened(run), 0
    for step in range(1, 8):
        files.add({"replay": Grown(total, count, keep)})  # type: ignore[dict-item]
        total += count
        save(run, files, step)
        checkpoint = newest(run)
        first = 0 if keep is None else max(0, total - keep)
        assert kept(run, checkpoint) == list(range(first, total))
        if step % 2:
            files = opened(run, checkpoint.streams)


def test_full_segments_are_on_the_disk_before_a_checkpoint_lists_them(run: RunDirectory) -> None:
    """Their rows do not depend on how many come in an epoch; a checkpoint writes what is left."""
    for name, epochs in (("replay", [7] * 30), ("positions", [200, 10])):
        files, total = opened(run), 0
        for count in epochs:
            files.add({name: Grown(total, count, None)})  # type: ignore[dict-item]
            total += count
        assert [int(path.name[:12]) for path in sorted(run.stream(name).iterdir())] == [0, 60, 120]
        before = set(run.stream(name).iterdir())
        listed = segments.parse(files.ended()()[segments.STREAMS])[name]
        (rest,) = set(run.stream(name).iterdir()) - before
        assert 30 * ROW < rest.stat().st_size < 31 * ROW
        assert [segment.rows for segment in listed.segments] == [60, 60, 60, 30]
    sums = [path.name for path in sorted(run.stream("replay").iterdir())]
    assert sums == [path.name for path in sorted(run.stream("positions").iterdir())]


def test_what_an_epoch_brought_may_be_written_over(run: RunDirectory) -> None:
    """By a trainer that goes on in its ring, before anything is on the disk."""
    waiting = list[Callable[[], object]]()
    files, grown = opened(run, start=waiting.append), Grown(0, 130, None)
    files.add({"replay": grown})  # type: ignore[dict-item]
    ended = files.ended()
    grown.rows["frame"][:] = -1
    files.add({"replay": Grown(130, 70, 60)})  # type: ignore[dict-item]
    for write in waiting[:2]:
        write()
    packed = checkpoints.pack(step=1, state={}, identity={}, record={"epoch": 1})
    checkpoints.write(run, 1, {**packed, **ended()})
    assert kept(run, newest(run)) == list(range(130))


def test_memory_is_that_of_a_few_segments(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of forty that are written between two checkpoints, however many come in one epoch."""
    monkeypatch.setattr(writing, "LARGEST_BYTES", 600 * ROW)
    saver, epochs = Saver(), [Grown(0, 12_000, None), *(Grown(0, 100, None) for _ in range(120))]
    files = opened(run, start=saver.start)
    files.add({"replay": Grown(0, 1, None)})  # type: ignore[dict-item]
    tracemalloc.start()
    for grown in epochs:
        files.add({"replay": grown})  # type: ignore[dict-item]
    saver.start(files.ended())
    saver.wait()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    saver.close()
    assert len(stored(run)) == 24_001 // 600 + 1
    # One is collected, those that wait are copies of rows, one of them is joined and packed.
    assert 600 * ROW < peak < (1 + MOST_PENDING + 2 + 0.5) * 600 * ROW


def test_what_leaves_the_window_before_a_checkpoint_leaves_the_disk(run: RunDirectory) -> None:
    files = opened(run)
    for first in range(0, 900, 60):
        files.add({"replay": Grown(first, 60, 100)})  # type: ignore[dict-item]
        assert len(stored(run)) <= 3
    save(run, files, 1)
    assert [int(name[:12]) for name in stored(run)] == [780, 840]
    for first in range(900, 1200, 60):
        files.add({"replay": Grown(first, 60, 100)})  # type: ignore[dict-item]
    assert set(stored(run)) >= {segment.name for segment in newest(run).streams["replay"].segments}
    assert kept(run, newest(run)) == list(range(800, 900))


def test_no_checkpoint_appears_after_a_segment_that_was_not_written(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = Saver()
    files = opened(run, start=saver.start)

    def full(path: Path, content: bytes) -> None:
        raise ExperimentError(f"no space for {path.name}")

    monkeypatch.setattr(writing, "write_atomically", full)
    files.add({"replay": Grown(0, 60, None)})  # type: ignore[dict-item]
    saver.start(lambda: save(run, files, 1))
    with pytest.raises(ExperimentError, match="no space for 000000000000-"):
        saver.wait()
    saver.close()
    assert not run.checkpoint(1).exists()


def test_a_checkpoint_costs_what_is_new(run: RunDirectory) -> None:
    """However long the stream is, and with few files where little is added at a time."""
    files, cost = opened(run), []
    for step in range(80):
        before = set(stored(run)) if step else set()
        files.add({"replay": Grown(step * 3, 3, None)})  # type: ignore[dict-item]
        save(run, files, step)
        cost.append(sum(size for name, size in stored(run).items() if name not in before))
    assert max(cost[40:]) == max(cost[:40]) <= 23 * ROW
    assert 80 * 3 // 23 <= len(stored(run)) <= 80 * 3 // 20 + 2


def test_segments_live_as_long_as_a_checkpoint_lists_them(run: RunDirectory) -> None:
    files = opened(run)
    for step in range(6):
        files.add({"replay": Grown(step * 30, 30, 60)})  # type: ignore[dict-item]
        save(run, files, step)
    # The newest needs rows 120 to 179, the one before 90 to 149.
    assert [int(name[:12]) for name in stored(run)] == [90, 120, 150]


def test_what_no_checkpoint_lists_is_removed_at_the_next_start(run: RunDirectory) -> None:
    files = opened(run)
    files.add({"replay": Grown(0, 30, None)})  # type: ignore[dict-item]
    save(run, files, 1)
    before = stored(run)
    files.add({"replay": Grown(30, 30, None)})  # type: ignore[dict-item]
    files.ended()()
    (run.stream("replay") / ".000000000060-x.1.tmp").write_bytes(b"half")
    (run.stream("replay") / "notes.txt").write_text("a person's")
    assert len(stored(run)) == len(before) + 3
    opened(run, newest(run).streams)
    assert set(stored(run)) == {*before, "notes.txt"}


def test_nothing_is_removed_where_a_list_cannot_be_read(run: RunDirectory) -> None:
    files = opened(run)
    for step in range(2):
        files.add({"replay": Grown(step * 30, 30, 30)})  # type: ignore[dict-item]
        save(run, files, step)
    before = stored(run)
    (run.checkpoint(1) / "streams.json").write_text("{")
    files.add({"replay": Grown(60, 30, 30)})  # type: ignore[dict-item]
    save(run, files, 2)
    assert set(before) < set(stored(run))


def damaged(run: RunDirectory) -> Iterator[None]:
    segment = run.stream("replay") / list(stored(run))[-1]
    content = segment.read_bytes()
    for harmed in (content[:-1], content + b"x", content[:-1] + bytes([content[-1] ^ 1])):
        segment.write_bytes(harmed)
        yield
    segment.unlink()
    yield


def test_a_damaged_segment_makes_its_checkpoint_unusable(run: RunDirectory) -> None:
    files = opened(run)
    for step in range(2):
        files.add({"replay": Grown(step * 30, 30, None)})  # type: ignore[dict-item]
        save(run, files, step)
    for _ in damaged(run):
        assert newest(run).step == 0
        final = checkpoints.load_newest(run)
        assert final is not None and final.step == 1, "its policy can be evaluated all the same"
    for path in run.stream("replay").iterdir():
        path.unlink()
    with pytest.raises(NoUsableState, match=r"replay/000000000000-\w+\.safetensors cannot be read"):
        newest(run)


@pytest.mark.parametrize(
    ("before", "after"),
    [('"end": 60', '"end": 61'), ('"first": 30', '"first": 31'), ("000000000030-", "../x")],
)
def test_a_list_that_cannot_be_right_is_refused(run: RunDirectory, before: str, after: str) -> None:
    files = opened(run)
    for step in range(2):
        files.add({"replay": Grown(step * 30, 30, None)})  # type: ignore[dict-item]
        listed = files.ended()()
    text = listed[segments.STREAMS].decode()
    assert before in text
    segments.parse(text.encode())
    with pytest.raises(DamagedError):
        segments.parse(text.replace(before, after).encode())


def test_without_a_stream_a_checkpoint_is_what_it_was(run: RunDirectory) -> None:
    save(run, opened(run), 1)
    assert {path.name for path in run.checkpoint(1).iterdir()} == {
        "tensors.safetensors", "state.json", "manifest.json",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["plots", "checkpoints", "..", "a/b", "Replay", ""])
def test_names_that_no_stream_has(run: RunDirectory, name: str) -> None:
    with pytest.raises(ValueError, match="a stream cannot be called"):
        opened(run).add({name: Grown(0, 1, None)})  # type: ignore[dict-item]


def test_rows_that_do_not_belong_to_the_stream(run: RunDirectory) -> None:
    files = opened(run)
    files.add({"replay": Grown(0, 5, None)})  # type: ignore[dict-item]
    save(run, files, 1)
    other, ragged = Grown(5, 5, None), Grown(5, 5, None)
    other.rows = {"frame": other.rows["frame"].astype(np.int64)}
    ragged.rows["action"] = np.zeros(4)
    for continued in (files, opened(run, newest(run).streams)):
        with pytest.raises(ValueError, match="the stream 'replay' has the columns"):
            continued.add({"replay": other})  # type: ignore[dict-item]
        with pytest.raises(ValueError, match=r"columns of \[4, 5\] rows"):
            continued.add({"replay": ragged})  # type: ignore[dict-item]


def test_a_stream_is_not_written_through_a_link_or_by_an_older_attempt(
    run: RunDirectory, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    run.root.mkdir(parents=True)
    run.stream("replay").symlink_to(elsewhere)
    with pytest.raises(WrongDirectory, match="symbolic link"):
        opened(run).add({"replay": Grown(0, 1, None)})  # type: ignore[dict-item]

    def refused() -> None:
        raise WrongDirectory("another attempt")

    with pytest.raises(WrongDirectory, match="another attempt"):
        opened(run, {}, refused).add({"positions": Grown(0, 1, None)})  # type: ignore[dict-item]
    assert not run.stream("positions").exists()


def test_an_older_attempt_writes_no_further_segment(run: RunDirectory) -> None:
    answers = iter([None])

    def permitted() -> None:
        if next(answers, "another attempt") is not None:
            raise WrongDirectory("another attempt")

    with pytest.raises(WrongDirectory, match="another attempt"):
        opened(run, {}, permitted).add({"replay": Grown(0, 60, None)})  # type: ignore[dict-item]
    assert not run.stream("replay").exists()
