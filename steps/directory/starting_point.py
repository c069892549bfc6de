"""What a training may begin with: the weights of another experiment (`start_from`) or, for self-play,
a file of recorded games (`imitate`).

`prepare` checks that the other experiment has the checkpoints that are needed, and records its
identity hash. `train` reads the checkpoint of the matching run once: before its first step, the new
training saves a checkpoint of its own, from which every later attempt continues.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

from config.errors import BadInput, WrongDirectory, shown
from config.identity import LENGTH, hash_of
from config.outdir import check_outdir
from config.parameters import cannot_be
from config.resolved import Resolved
from steps.directory.checkpoints import Checkpoint, load_newest
from steps.directory.experiment import ExperimentRecord, read_experiment
from steps.directory.files import read_bytes
from steps.directory.layout import ExperimentDirectory, RunDirectory
from steps.directory.pruned import read_pruned


def with_origin(resolved: Resolved, outdir: Path, start_from: Path | None) -> Resolved:
    """The experiment with the identity of what it starts from; unchanged if it starts from nothing.

    outdir, start_from: where both are on this machine. Raises `BadInput` for a directory without an
    experiment, with one of another algorithm, or with a needed run that has no checkpoint.
    """
    if start_from is None:
        return resolved
    if start_from.resolve() == outdir.resolve():
        raise refusal(resolved, "it is outdir; choose another outdir")
    record = _read(resolved, start_from)
    if record.resolved.algorithm != resolved.algorithm:
        raise refusal(
            resolved,
            f"its algorithm is {shown(record.resolved.algorithm)}, this one's is {shown(resolved.algorithm)}",
        )
    for index in range(min(resolved.experiment.runs, record.resolved.experiment.runs)):
        _require_checkpoint(resolved, _run(start_from, record, index))
    return replace(resolved, origin=_origin_of(record))


def _origin_of(record: ExperimentRecord) -> str:
    """What names the weights that an experiment ends with: its identity hash, and the length of its
    trainings where that is not in the identity.
    """
    if record.identity["experiment"].get(LENGTH) == record.resolved.epochs:
        return record.identity_hash
    return hash_of({"identity": record.identity_hash, LENGTH: record.resolved.epochs})


def origin_directory(resolved: Resolved, storage_root: str | None) -> Path | None:
    """The directory of the experiment that this one starts from; None if it starts from nothing.
    Raises `BadInput`.
    """
    start_from = resolved.experiment.start_from
    return None if start_from is None else check_outdir(start_from, storage_root, "start_from")


def first_checkpoint(resolved: Resolved, run: int, storage_root: str | None) -> Checkpoint:
    """The checkpoint that a run starts from: the newest of the other experiment's run. Raises
    `BadInput` if the directory now holds another experiment or nothing readable.
    """
    start_from = origin_directory(resolved, storage_root)
    if start_from is None:
        raise ValueError("an experiment that starts from nothing has no first checkpoint")
    record = _read(resolved, start_from)
    if _origin_of(record) != resolved.origin:
        raise refusal(resolved, "another experiment lies there than when this one was prepared")
    theirs = _run(start_from, record, run)
    _require_checkpoint(resolved, theirs)
    try:
        checkpoint = load_newest(theirs, record.resolved.identity())
    except WrongDirectory as error:
        raise refusal(resolved, str(error)) from None
    if checkpoint is None:
        raise refusal(resolved, f"{theirs.checkpoints} was removed while it was read")
    return checkpoint


def refusal(resolved: Resolved, because: str) -> BadInput:
    """The error `parameter 'start_from' cannot be 'results/x': …`."""
    return cannot_be("start_from", resolved.experiment.start_from or "", because=because)


def _read(resolved: Resolved, start_from: Path) -> ExperimentRecord:
    directory = ExperimentDirectory(start_from)
    try:
        return read_experiment(directory)
    except (BadInput, WrongDirectory) as error:
        raise refusal(resolved, f"it holds no experiment: {error}") from None


def _run(start_from: Path, record: ExperimentRecord, index: int) -> RunDirectory:
    return ExperimentDirectory(start_from).run(index % record.resolved.experiment.runs)


def _require_checkpoint(resolved: Resolved, theirs: RunDirectory) -> None:
    if read_pruned(theirs) is not None:
        raise refusal(
            resolved, f"steps.prune has deleted the checkpoints of its run {theirs.index}"
        )
    if not theirs.checkpoint_steps():
        raise refusal(resolved, f"no checkpoint in {theirs.checkpoints}: train makes it")


RECORDED_LIMIT_BYTES = 256 * 2**20


def with_recorded(resolved: Resolved, text: str | None) -> Resolved:
    """The experiment with the identity of the games that it imitates; unchanged without any. text: the
    content of their file.
    """
    if text is None:
        return resolved
    return replace(resolved, recorded=hashlib.sha256(text.encode()).hexdigest())


def recorded_games(resolved: Resolved, file: Path | None = None) -> str | None:
    """The text of the file of recorded games; None without one. file: where it lies on this machine,
    by default below STORAGE. Raises `BadInput`, also if it holds other games than when `prepare` read
    it.
    """
    given = getattr(resolved.hyperparameters, "imitate", None)
    if given is None:
        return None
    path = file or check_outdir(given, os.environ.get("STORAGE") or None, "imitate")
    try:
        text = read_bytes(path, RECORDED_LIMIT_BYTES).decode()
        if resolved.recorded not in ("", with_recorded(resolved, text).recorded):
            other_games = "it holds other games than when this experiment was prepared"
            remedy = "put them back, or choose another outdir"
            raise cannot_be("imitate", given, because=f"{other_games}; {remedy}")
        return text
    except OSError as error:
        because = error.strerror or "it cannot be read"
    except UnicodeDecodeError:
        because = "it is no text"
    raise cannot_be("imitate", given, because=f"{because}: {path}")
