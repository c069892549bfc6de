"""Checkpoints: a directory that appears at once, complete and with checksums, or not at all. No
pickle anywhere.

    checkpoints/000000012000/
        tensors.safetensors   every array of the state, named by its path in the nested dict
        state.json            the rest of the state, the step, what it belongs to, and the `record` of the step that saved it
        streams.json          of a training with streams: the segments that it needs (`segments.py`)
        manifest.json         size and SHA-256 of the others, written last

Two are kept. The loader takes the newest that verifies and says what it skipped. If a training will
continue from it, the loader also verifies the segments of its streams, and the files that grow beside
the checkpoints (`record["files"]` has their lengths and checksums): a file that begins with other
bytes was changed, or belongs to another attempt. numpy and safetensors are imported only to load and
to save, so that other steps can list and verify checkpoints without them.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from config.errors import BadInput, NoUsableState, WrongDirectory
from config.identity import comparable
from steps.directory import segments
from steps.directory.arrays import DamagedError, read_tensors, with_tensors, without_tensors
from steps.directory.checkpoint_document import STATE, check_document
from steps.directory.experiment import difference
from steps.directory.files import (
    fault,
    full_disk_explained,
    read_bytes,
    remove,
    remove_temporaries,
    sync_directory,
    temporary_beside,
    write_all,
)
from steps.directory.layout import RunDirectory
from steps.directory.network_storage import longest_wait_s
from steps.directory.pruned import refuse_pruned
from steps.directory.segments import STREAMS, STREAMS_LIMIT_BYTES, Stream
from steps.directory.status import pause_of, read_status
from steps.directory.tables import sum_of_start

if TYPE_CHECKING:
    from config.resolved import Resolved

FORMAT = 1
KEPT = 2
TENSORS = "tensors.safetensors"
MANIFEST = "manifest.json"
MANIFEST_LIMIT_BYTES = 65536
STATE_LIMIT_BYTES = 64 * 2**20
TENSORS_LIMIT_BYTES = 64 * 2**30

State = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A verified checkpoint. state: what the trainer saved. record: what the step saved beside it
    (epoch, offsets, device, …). streams: the segments that a continued training needs; `load` does
    not verify them.
    """

    path: Path
    step: int
    state: State
    record: dict[str, Any]
    streams: Mapping[str, Stream] = field(default_factory=dict)

    @property
    def epoch(self) -> int:
        """Number of finished epochs. A training ends after a number of epochs."""
        return int(self.record["epoch"])


def pack(
    *, step: int, state: State, identity: Mapping[str, Any], record: Mapping[str, Any]
) -> dict[str, bytes]:
    """The files of a checkpoint without the manifest. They are copies, so the training may go on
    while `write` waits for the disk.
    """
    import numpy as np
    from safetensors.numpy import save as to_safetensors

    tensors: dict[str, Any] = {}
    tree = without_tensors(state, "", tensors)
    document = {
        "format": FORMAT,
        "step": step,
        "identity": identity,
        "record": record,
        "state": tree,
    }
    return {
        # `ascontiguousarray` makes a scalar array one-dimensional: `reshape` undoes that.
        TENSORS: to_safetensors(
            {
                name: np.ascontiguousarray(array).reshape(array.shape)
                for name, array in tensors.items()
            }
        ),
        STATE: json.dumps(document).encode(),
    }


def write(run: RunDirectory, step: int, packed: Mapping[str, bytes]) -> Path:
    """Write the checkpoint so that it appears as a whole, then delete all but it and the one
    before. packed: from `pack`, with the list of the streams if there are any. Raises
    `ExperimentError` if the disk is full.
    """
    final = run.checkpoint(step)
    write_directory(final, packed)
    prune(run, step)
    return final


def write_directory(final: Path, packed: Mapping[str, bytes]) -> None:
    """Write the directory of a checkpoint, or of another state, so that it appears as a whole.
    Raises `ExperimentError` if the disk is full.
    """
    temporary = temporary_beside(final)
    manifest = {
        "format": FORMAT,
        "files": {name: _sum(content) for name, content in packed.items()},
    }
    contents = {**packed, MANIFEST: json.dumps(manifest, indent=1).encode()}
    final.parent.mkdir(parents=True, exist_ok=True)
    # The files are on the disk before the directory gets its name, the name before old ones go.
    try:
        with full_disk_explained(final, sum(len(content) for content in contents.values())):
            temporary.mkdir()
            _write_files(temporary, contents)
            fault("before_rename", final)
            _rename_over(temporary, final)
        fault("after_rename", final)
        sync_directory(final.parent)
    finally:
        remove(temporary)


def prune(run: RunDirectory, newest: int) -> None:
    """Keep the checkpoint of step `newest` and the one before it, and the segments that they list.
    Newer checkpoints stay, because they may belong to a later attempt.
    """
    # The second newest stays in case the newest turns out to be damaged.
    steps = run.checkpoint_steps()
    removed = [step for step in steps if step <= newest][:-KEPT]
    kept = [run.checkpoint(step) for step in steps if step not in removed]
    # Segments first: after a kill in between, the next prune finds the list again.
    segments.remove_listed(run, [run.checkpoint(step) for step in removed], still_listed_by=kept)
    for step in removed:
        remove(run.checkpoint(step))


def discard_after(run: RunDirectory, step: int) -> None:
    """Remove checkpoints newer than the one that the loader chose. Called by the run's only writer
    when it starts.
    """
    for newer in [present for present in run.checkpoint_steps() if present > step]:
        remove(run.checkpoint(newer))


def save(
    run: RunDirectory,
    *,
    step: int,
    state: State,
    identity: Mapping[str, Any],
    record: Mapping[str, Any],
) -> Path:
    """`pack` and `write` in one call."""
    return write(run, step, pack(step=step, state=state, identity=identity, record=record))


def load_newest(
    run: RunDirectory,
    identity: Mapping[str, Any] | None = None,
    *,
    continues: bool = False,
    passed_over: Callable[[Checkpoint], bool] = lambda checkpoint: False,
    say: Callable[[str], None] = print,
) -> Checkpoint | None:
    """The newest intact checkpoint; None if the run has none yet.

    identity: what the checkpoint must belong to. continues: a training will go on from it, so the
    rows that it counts on must exist. passed_over: whether an older one is preferred, if there is any.
    Raises `WrongDirectory` for another identity (with the
    differences) or a newer format, and `NoUsableState` if there are checkpoints and none is usable, or if
    they were deleted on purpose.
    """
    refuse_pruned(run)
    skipped: list[str] = []
    last_resort: Checkpoint | None = None
    for step in reversed(run.checkpoint_steps()):
        path = run.checkpoint(step)
        try:
            checkpoint = load(path)
            if continues:
                _verify_files(run, checkpoint)
                segments.verify(run, checkpoint.streams)
        except DamagedError as error:
            skipped.append(f"{path}: {error}")
            continue
        if passed_over(checkpoint):
            last_resort = last_resort or checkpoint
            continue
        if skipped:
            say(
                f"warning: damaged checkpoints skipped ({'; '.join(skipped)}), continuing from {path}"
            )
        return checkpoint if identity is None else belonging(checkpoint, identity)
    if last_resort is not None:
        say(f"{run.train_csv.name} keeps a row that ends at epoch {last_resort.epoch}")
        return last_resort if identity is None else belonging(last_resort, identity)
    if skipped:
        raise NoUsableState(
            f"every checkpoint is damaged ({'; '.join(skipped)}); delete {run.root} to start this run again"
        )
    return None


def trained_epochs(run: RunDirectory) -> int:
    """The number of epochs at the newest checkpoint whose state can be read, without a look at its
    weights; 0 without any.
    """
    for step in reversed(run.checkpoint_steps()):
        try:
            document = json.loads(read_bytes(run.checkpoint(step) / STATE, STATE_LIMIT_BYTES))
            return int(document["record"]["epoch"])
        except (OSError, BadInput, KeyError, TypeError, ValueError, RecursionError):
            continue
    return 0


def _verify_files(run: RunDirectory, checkpoint: Checkpoint) -> None:
    """Compare the growing files with their content when the checkpoint was taken. Raises
    `DamagedError`.
    """
    for name, kept in checkpoint.record.get("files", {}).items():
        try:
            found = sum_of_start(run.root / name, kept["bytes"])
        except OSError as error:
            raise DamagedError(f"{name} cannot be read: {error.strerror}") from error
        if found["bytes"] != kept["bytes"]:
            raise DamagedError(
                f"{name} has {found['bytes']} bytes, {kept['bytes']} were written before this checkpoint"
            )
        if found != kept:
            raise DamagedError(
                f"{name} does not begin with the {kept['bytes']} bytes that were written before this checkpoint"
            )


def _rename_over(temporary: Path, final: Path) -> None:
    """Rename a directory to its final name. What stands there is removed first, because a directory
    can only be renamed over an empty one.

    It is a damaged checkpoint that the loader skipped, or one of another attempt at the same step.
    """
    try:
        temporary.rename(final)
    except OSError as error:
        if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
            raise
        remove(final)
        temporary.rename(final)


def load_final(run: RunDirectory, resolved: Resolved) -> Checkpoint:
    """The checkpoint of a finished training. Raises `BadInput` if the training has not reached its
    last epoch, also because it is paused.

    This machine's view of the directory may lag behind (NFS), so it is looked for again if the training
    should have ended.
    """
    status = read_status(run.status / "train.json")
    has_succeeded = status is not None and status.state == "succeeded"
    longest_s = longest_wait_s(run.root, is_written=has_succeeded)
    end = time.monotonic() + longest_s
    while True:
        checkpoint = load_newest(run, resolved.identity())
        if checkpoint is not None and checkpoint.epoch >= resolved.epochs:
            return checkpoint
        if time.monotonic() >= end:
            if paused := pause_of(run):
                raise BadInput(f"{paused}, so it has no final policy: train goes on with it")
            reached = 0 if checkpoint is None else checkpoint.epoch
            raise BadInput(
                f"no final checkpoint in {run.checkpoints} (epoch {reached} of {resolved.epochs}): train makes it"
            )
        time.sleep(longest_s / 20)


def load(path: Path) -> Checkpoint:
    """Read and verify one checkpoint directory. Raises `DamagedError`, and `WrongDirectory` for a
    newer format.
    """
    contents = verify(path)
    try:
        document = json.loads(contents[STATE])
        written = document["format"]
        if not isinstance(written, int) or written > FORMAT:
            raise WrongDirectory(
                f"{path} has format {written}, this program reads up to {FORMAT}: use the newer one"
            )
        check_document(document)
        tensors = read_tensors(contents[TENSORS])
        state = with_tensors(document["state"], tensors)
        # A directory that was copied or renamed by hand.
        if document["step"] != int(path.name):
            raise DamagedError(f"holds step {document['step']}")
        record = {**document["record"], "identity": document["identity"]}
        listed = segments.parse(contents[STREAMS]) if STREAMS in contents else {}
        return Checkpoint(
            path=path, step=document["step"], state=state, record=record, streams=listed
        )
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise DamagedError(
            f"{STATE} is not what was saved ({type(error).__name__}: {error})"
        ) from error


@contextlib.contextmanager
def fitting(path: Path, remedy: str) -> Iterator[None]:
    """Turn what a trainer raises while it loads a verified state into `NoUsableState`, which names the
    checkpoint and what to do: checksums show that a state is as it was saved, not that it fits.
    """
    try:
        yield
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise NoUsableState(
            f"{path} does not hold what this training saves "
            f"({type(error).__name__}: {' '.join(str(error).split())}); {remedy}"
        ) from error


def verify(path: Path) -> dict[str, bytes]:
    """Read a checkpoint's files and compare sizes and checksums with the manifest. Raises
    `DamagedError`.
    """
    try:
        names = {entry.name for entry in path.iterdir() if not entry.name.startswith(".")}
        listed = json.loads(read_bytes(path / MANIFEST, MANIFEST_LIMIT_BYTES))["files"]
        limits = {TENSORS: TENSORS_LIMIT_BYTES, STATE: STATE_LIMIT_BYTES}
        if STREAMS in listed:
            limits[STREAMS] = STREAMS_LIMIT_BYTES
        unexpected = sorted(names - {*limits, MANIFEST})
        if unexpected:
            raise DamagedError(
                f"unexpected file {unexpected[0]}: nothing but {TENSORS}, {STATE} and {MANIFEST} is ever read"
            )
        if not isinstance(listed, dict) or set(listed) != set(limits):
            raise DamagedError(f"{MANIFEST} lists {sorted(listed)}")
        contents = {name: read_bytes(path / name, limit) for name, limit in limits.items()}
    except (OSError, BadInput, KeyError, TypeError, ValueError, RecursionError) as error:
        raise DamagedError(f"{type(error).__name__}: {error}") from error
    for name, content in contents.items():
        if listed[name] != _sum(content):
            raise DamagedError(f"{name} differs from {MANIFEST}")
    return contents


def is_intact(path: Path) -> bool:
    """Whether a checkpoint is complete and undamaged. False if it is missing."""
    try:
        verify(path)
    except DamagedError:
        return False
    return True


def clean(run: RunDirectory) -> None:
    """Remove half-written checkpoints of dead attempts. Called by the run's only writer when it
    starts.
    """
    remove_temporaries(run.checkpoints)


def belonging(checkpoint: Checkpoint, identity: Mapping[str, Any]) -> Checkpoint:
    """The checkpoint itself. Raises `WrongDirectory` with the differences if it has another identity."""
    # Through JSON, as the checkpoint's identity went: tuples become lists.
    present = json.loads(json.dumps(identity))
    differences = difference(comparable(checkpoint.record["identity"], present), present)
    if differences:
        raise WrongDirectory(f"{checkpoint.path} belongs to other parameters: {differences}")
    return checkpoint


def _write_files(directory: Path, contents: Mapping[str, bytes]) -> None:
    """Write all files before the first fsync, which then waits once for the disk instead of once
    per file.
    """
    descriptors = []
    try:
        for name, content in contents.items():
            descriptors.append(
                os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            )
            write_all(descriptors[-1], content)
            fault("mid_save", directory / name)
        for descriptor in descriptors:
            os.fsync(descriptor)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    fault("after_temporary", directory)
    sync_directory(directory)


def _sum(content: bytes) -> dict[str, Any]:
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
