"""Streams: what is large and only grows, such as a replay, in segments beside the checkpoints that
list them.

    replay/000000008192-3f0c5a….safetensors   rows 8192 and on: an array [rows, ...] for each column
    checkpoints/000000012000/streams.json     which segments this checkpoint needs, and their sums

A segment is never changed: its name holds the start of its own checksum, so that two attempts never
mean different bytes by one name. It lives as long as a checkpoint lists it. A checkpoint whose
segments are damaged or missing is not one to go on from: the training would have less experience
than it had.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from config.errors import BadInput
from steps.directory.arrays import DamagedError, read_tensors
from steps.directory.files import read_bytes, remove_temporaries
from steps.directory.layout import RunDirectory

if TYPE_CHECKING:
    import numpy as np

STREAMS = "streams.json"
STREAMS_LIMIT_BYTES = 64 * 2**20
SEGMENT_LIMIT_BYTES = 2**30
CHUNK_BYTES = 2**20
NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")
NOT_STREAMS = ("checkpoints", "tensorboard", "videos", "plots", "logs", "status")
SEGMENT_NAME = re.compile(r"\d{12,}-[0-9a-f]{16}\.safetensors")


@dataclass(frozen=True, kw_only=True)
class Segment:
    """One file with `rows` rows of a stream, beginning with row number `first`."""

    name: str
    first: int
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Stream:
    """The rows of one stream that a checkpoint needs: from number `first` to `end`, exclusive. The
    first segment may begin before `first`.
    """

    first: int
    end: int
    segments: tuple[Segment, ...]


def check_name(name: str) -> None:
    """Raise `ValueError` for a text that cannot be a stream's name, which is also its folder's."""
    if not NAME.fullmatch(name) or name in NOT_STREAMS:
        raise ValueError(f"a stream cannot be called {name!r}")


def packed(streams: Mapping[str, Stream]) -> bytes:
    """The content of `streams.json`."""
    return json.dumps({name: asdict(stream) for name, stream in streams.items()}).encode()


def parse(content: bytes) -> dict[str, Stream]:
    """Undo `packed`. Raises `DamagedError` for anything else."""
    try:
        return {name: _parsed(name, fields) for name, fields in json.loads(content).items()}
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise DamagedError(f"{STREAMS}: {type(error).__name__}: {error}") from error


def _parsed(name: str, fields: Mapping[str, Any]) -> Stream:
    check_name(name)
    segments = tuple(Segment(**segment) for segment in fields["segments"])
    if unknown := [one.name for one in segments if not SEGMENT_NAME.fullmatch(one.name)]:
        raise ValueError(f"a segment cannot be called {unknown[0]!r}")
    stream = Stream(first=fields["first"], end=fields["end"], segments=segments)
    reached = segments[0].first if segments else stream.first
    for segment in segments:
        if segment.first != reached:
            raise ValueError(f"{name} has a gap before row {segment.first}")
        reached += segment.rows
    if reached != stream.end or (segments and segments[0].first > stream.first):
        raise ValueError(f"{name} has the rows up to {reached}, not {stream.first} to {stream.end}")
    return stream


def verify(run: RunDirectory, streams: Mapping[str, Stream]) -> None:
    """Compare every segment with the checkpoint's record of it. Raises `DamagedError`, which names
    the first that differs.
    """
    for name, stream in streams.items():
        for segment in stream.segments:
            try:
                found = _sum(run.stream(name) / segment.name)
            except OSError as error:
                raise DamagedError(
                    f"{name}/{segment.name} cannot be read: {error.strerror}"
                ) from error
            if found != (segment.bytes, segment.sha256):
                raise DamagedError(f"{name}/{segment.name} is not what was written there")


def _sum(path: Path) -> tuple[int, str]:
    content = hashlib.sha256()
    size = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            content.update(chunk)
            size += len(chunk)
    return size, content.hexdigest()


def read(
    run: RunDirectory, name: str, stream: Stream, between: Callable[[], None] = lambda: None
) -> Iterator[dict[str, np.ndarray]]:
    """Yield the rows that a checkpoint needs, in order and in parts: column -> array [rows, ...].

    between: called before each part; may raise. Raises `DamagedError` and the usual `OSError`s.
    """
    for segment in stream.segments:
        between()
        columns = read_segment(run, name, segment)
        unneeded = max(0, stream.first - segment.first)
        yield {column: rows[unneeded:] for column, rows in columns.items()}


def read_segment(run: RunDirectory, name: str, segment: Segment) -> dict[str, np.ndarray]:
    """Read all rows of a segment."""
    try:
        content = read_bytes(run.stream(name) / segment.name, SEGMENT_LIMIT_BYTES)
    except BadInput as error:
        raise DamagedError(str(error)) from error
    columns = read_tensors(content, segment.name)
    if any(len(rows) != segment.rows for rows in columns.values()):
        raise DamagedError(f"{segment.name} does not have {segment.rows} rows")
    return columns


def remove_listed(
    run: RunDirectory, checkpoints: Iterable[Path], *, still_listed_by: Iterable[Path]
) -> None:
    """Remove the segments that these checkpoints list and the others do not. Does nothing if a list
    cannot be read; `remove_unlisted` finds the segments later.
    """
    # A list that cannot be read is no reason to remove anything: it may name what is still needed.
    gone = _listed(checkpoints)
    kept = _listed(still_listed_by) if gone else None
    if gone is not None and kept is not None:
        for name, segment in gone - kept:
            (run.stream(name) / segment).unlink(missing_ok=True)


def remove_unlisted(run: RunDirectory, name: str) -> None:
    """Remove what dead attempts left of a stream: temporaries, and segments whose checkpoint never
    appeared. Called by the stream's only writer when it starts.
    """
    folder = run.stream(name)
    remove_temporaries(folder)
    kept = _listed(run.checkpoint(step) for step in run.checkpoint_steps())
    if kept is not None and folder.is_dir():
        for path in list(folder.iterdir()):
            if SEGMENT_NAME.fullmatch(path.name) and (name, path.name) not in kept:
                path.unlink(missing_ok=True)


def _listed(checkpoints: Iterable[Path]) -> set[tuple[str, str]] | None:
    """(stream, segment) of all these checkpoints; None if one cannot be read."""
    found: set[tuple[str, str]] = set()
    for path in checkpoints:
        try:
            streams = parse(read_bytes(path / STREAMS, STREAMS_LIMIT_BYTES))
        except FileNotFoundError:
            continue
        except (OSError, BadInput, DamagedError):
            return None
        found |= {(name, one.name) for name, stream in streams.items() for one in stream.segments}
    return found
