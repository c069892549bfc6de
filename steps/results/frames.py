"""Tables of runs as pandas frames with types: what is counted is an integer, what is measured a
float.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd

from config.errors import WrongDirectory, on_one_line
from config.measures import Measure
from config.resolved import Resolved
from steps.directory.layout import RunDirectory
from steps.directory.status import read_status
from steps.directory.tables import last_row, read_columns, read_rows
from steps.directory.usable import (
    NO_TABLE,
    Usable,
    UsableState,
    evaluation_episodes,
    read_episodes,
    training_score,
)
from steps.evaluations.curve import read_best
from steps.statistics.scores import mean, standard_deviation

COUNTED = ("epoch", "step", "frame", "episodes")
NOT_MEASURED = ("run", "state", "usable", "reason", *COUNTED)
"""Of the columns of a summary."""
OF_A_GAME = ("opponent", "colour", "actions")
"""Additional text columns of an evaluation after self-play."""
Columns = dict[str, np.ndarray]


def training_frame(run: RunDirectory, usable: Usable) -> pd.DataFrame | None:
    """The whole lines of a train.csv; None without the file. Raises `WrongDirectory` for a damaged
    table.
    """
    return _frame(run, usable, run.train_csv, _training_columns)


def evaluation_frame(run: RunDirectory, usable: Usable, measure: Measure) -> pd.DataFrame | None:
    """The whole lines of the measure's table; None and errors as for `training_frame`."""
    read = functools.partial(_evaluation_columns, measure=measure)
    return _frame(run, usable, run.evaluated(measure), read)


def curve_frame(run: RunDirectory, usable: Usable, measure: Measure) -> pd.DataFrame | None:
    """The rows of evaluation-curve.csv; None and errors as for `training_frame`."""
    frame = _frame(run, usable, run.evaluation_curve_csv, _training_columns)
    if frame is None:
        return None
    best = read_best(run, measure)
    frame["best"] = frame["step"] == (-1 if best is None else best.step)
    frame["again_mean"] = np.where(frame["best"], np.nan if best is None else best.again, np.nan)
    return frame


def resources_frame(run: RunDirectory, usable: Usable) -> pd.DataFrame | None:
    """The whole lines of resources.csv; None and errors as for `training_frame`."""
    return _frame(run, usable, run.resources_csv, _training_columns)


def averages_frame(path: Path) -> pd.DataFrame | None:
    """The rows of average/train.csv; None and errors as for `training_frame`."""
    columns = _read(path, _averaged_columns)
    return None if columns is None else pd.DataFrame(columns, copy=False)


def summary_row(run: RunDirectory, usable: Usable, resolved: Resolved) -> dict[str, object]:
    """The row of one planned run. A run that never started has reached step 0."""
    status = read_status(run.status / "train.json")
    measure = resolved.measure
    last = _last(run.train_csv)
    episodes = evaluation_episodes(run, measure) if usable.state == "complete" else []
    values = [one.value for one in episodes]
    column = measure.column
    return {
        "run": run.index,
        "state": usable.state,
        "usable": bool(usable),
        "reason": usable.reason,
        "epoch": last["epoch"],
        "step": last["step"],
        "frame": last["step"] * resolved.game.frames_per_step,
        measure.training_detail: training_score(status, measure),
        "episodes": len(episodes),
        f"{column}_mean": mean(values) if values else None,
        f"{column}_sd": standard_deviation(values) if len(values) > 1 else None,
        f"{column}_min": min(values, default=None),
        f"{column}_max": max(values, default=None),
        "length_mean": mean([one.length for one in episodes]) if episodes else None,
    }


def summary_frame(rows: Sequence[Mapping[str, object]]) -> pd.DataFrame:
    """The rows of `summary_row` with types: otherwise a column without values would have dtype
    object.
    """
    frame = pd.DataFrame(list(rows))
    frame["state"] = pd.Categorical(frame["state"], get_args(UsableState))
    frame["reason"] = frame["reason"].astype("str")
    measured = [name for name in frame if name not in NOT_MEASURED]
    return frame.astype(dict.fromkeys(measured, "float64"))


def _frame(
    run: RunDirectory, usable: Usable, path: Path, read: Callable[[Path], Columns]
) -> pd.DataFrame | None:
    columns = _read(path, read)
    if columns is None:
        return None
    rows = len(next(iter(columns.values())))
    origin = {"run": np.full(rows, run.index, np.int64), "usable": np.full(rows, bool(usable))}
    return pd.DataFrame(origin | columns, copy=False)


def _read(path: Path, read: Callable[[Path], Columns]) -> Columns | None:
    try:
        return read(path)
    except FileNotFoundError:
        return None
    except (*NO_TABLE, OverflowError) as error:
        raise WrongDirectory(f"{path} is no table: {on_one_line(error)}") from error
    except OSError as error:
        raise WrongDirectory(f"cannot read {path}: {error.strerror}") from error


def _training_columns(path: Path) -> Columns:
    columns = read_columns(path)
    if "step" not in columns:
        raise ValueError("it has no column 'step'")
    return {
        name: _counted(name, values) if name in COUNTED else values
        for name, values in columns.items()
    }


def _averaged_columns(path: Path) -> Columns:
    columns = _training_columns(path)
    return columns | {"n": _counted("n", columns["n"])}


def _evaluation_columns(path: Path, measure: Measure) -> Columns:
    """The columns of the evaluation. `read_columns` is not used, because a seed may have more
    digits than a float keeps.
    """
    episodes = read_episodes(path, measure)
    rows = read_rows(path)
    games = [name for name in OF_A_GAME if rows and name in rows[0]]
    return {
        "episode": np.array([one.episode for one in episodes], np.int64),
        "seed": np.array([one.seed for one in episodes], np.int64),
        measure.column: np.array([one.value for one in episodes], np.float64),
        "length": np.array([one.length for one in episodes], np.int64),
        **{name: np.array([row[name] for row in rows], object) for name in games},
    }


def _counted(name: str, values: np.ndarray) -> np.ndarray:
    """Convert float64 to int64. Raises `ValueError` if a cell is empty or not a whole number."""
    with np.errstate(invalid="ignore"):  # NaN becomes some integer, which the comparison finds
        whole = values.astype(np.int64)
    if not np.array_equal(whole, values):
        raise ValueError(f"column {name!r} holds what is no whole number")
    return whole


def _last(path: Path) -> dict[str, int]:
    """Epoch and step of the last whole row, or 0 without one."""
    try:
        row = last_row(path)
        return {name: 0 if row is None else int(row[name]) for name in ("epoch", "step")}
    except (OSError, *NO_TABLE):
        return {"epoch": 0, "step": 0}
