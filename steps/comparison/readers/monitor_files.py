"""The files in which Stable-Baselines3 writes returns: `monitor.csv` and `evaluations.npz`.

Sources: Stable-Baselines3 2.9, `common/monitor.py` and `common/callbacks.py`.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from config.errors import BadInput, on_one_line
from steps.comparison.readers.known_metrics import still_valid
from steps.directory.files import open_regular
from steps.directory.tables import columns_of, whole_lines
from steps.statistics.scores import Floats

MONITOR, EVALUATIONS = "monitor.csv", "evaluations.npz"
COLUMNS = ("r", "l", "t")
"""Return, length, and seconds since the environment was made."""
LARGEST = 1e12
"""Of a length and of a time in seconds."""
LARGEST_BYTES = 256 * 2**20


@dataclass(frozen=True, kw_only=True)
class Episodes:
    """Training episodes in the order of their ends, [E] each: returns; lengths; when they ended, in
    seconds on the machine's clock. started_s: when the first environment was made.
    """

    started_s: float
    returns: Floats
    lengths: Floats
    times_s: Floats


@dataclass(frozen=True, kw_only=True)
class Evaluations:
    """timesteps: [T] environment steps; results: [T, N] returns of N episodes."""

    timesteps: NDArray[np.int64]
    results: Floats


def read_monitor(path: Path) -> tuple[str, Episodes]:
    """The game, empty if the file does not say, and the episodes of one environment. Raises
    `BadInput`, which names the file.
    """
    first, _, rest = whole_lines(path).partition(b"\n")
    try:
        header: Any = json.loads(first.removeprefix(b"#"))
        started = float(header["t_start"])
        if not abs(started) <= LARGEST:
            raise ValueError(f"it began at {started}")
        columns = columns_of(rest, wanted=COLUMNS.__contains__)
        returns, lengths, times = (columns[name] for name in COLUMNS)
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadInput(f"{path} is no file of a Monitor: {_fault(error)}") from error
    usable = (
        np.isfinite(returns) & (lengths >= 1) & (lengths <= LARGEST) & (np.abs(times) <= LARGEST)
    )
    if not usable.all():
        row = int(np.argmin(usable)) + 1
        raise BadInput(
            f"{path} is no file of a Monitor: row {row} of its episodes is wrong; allowed: a finite "
            "return, a length from 1, and a time"
        )
    game = header.get("env_id")
    known = isinstance(game, str) and game != "None" and game.isprintable()
    return game if known else "", Episodes(
        started_s=started, returns=returns, lengths=lengths, times_s=started + _going_on(times)
    )


def _going_on(times: Floats) -> Floats:
    """Times [E] of a file to which several trainings have appended, each of which began with 0: as if
    each had begun when the one before it ended.
    """
    backwards = np.maximum(0.0, -np.diff(times, prepend=times[:1]))
    restarted = backwards > 0
    before = np.where(restarted, np.roll(times, 1), 0.0)
    going_on: Floats = times + np.cumsum(before)
    return going_on


def merged(monitors: Sequence[Episodes]) -> Episodes:
    """The episodes of all environments in the order of their ends."""
    times_s = np.concatenate([one.times_s for one in monitors])
    order = np.argsort(times_s, kind="stable")
    return Episodes(
        started_s=min(one.started_s for one in monitors),
        returns=np.concatenate([one.returns for one in monitors])[order],
        lengths=np.concatenate([one.lengths for one in monitors])[order],
        times_s=times_s[order],
    )


def read_evaluations(path: Path) -> Evaluations:
    """Raises `BadInput`, which names the file. Nothing in it is unpickled."""
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            if sum(one.file_size for one in archive.infolist()) > LARGEST_BYTES:
                raise BadInput(f"{path} unpacks to more than {LARGEST_BYTES} bytes")
            file.seek(0)
            with np.load(file, allow_pickle=False) as arrays:
                steps = np.asarray(arrays["timesteps"], np.int64)
                results = np.asarray(arrays["results"], np.float64)
    except (BadInput, OSError):
        raise
    except Exception as error:
        # A damaged archive makes zipfile, zlib and numpy raise eight kinds of errors and more.
        raise BadInput(f"{path} is no file of an EvalCallback: {_fault(error)}") from error
    if steps.ndim != 1 or results.ndim != 2 or len(steps) != len(results) or not results.size:
        shapes = f"timesteps has the shape {steps.shape}, results {results.shape}"
        raise BadInput(f"{path} is no file of an EvalCallback: {shapes}; allowed: [T] and [T, N]")
    valid = still_valid(steps)
    return Evaluations(timesteps=steps[valid], results=results[valid])


def _fault(error: Exception) -> str:
    return f"it has no {error}" if isinstance(error, KeyError) else on_one_line(error)
