"""Finds files of an experiment that exist and cannot be read. The page names them and is made
without them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from config import pipeline
from config.errors import BadInput, on_one_line
from config.measures import Measure
from steps.arena.games import read_games
from steps.directory.files import open_regular, read_bytes
from steps.directory.layout import ExperimentDirectory
from steps.directory.status import damage as status_damage
from steps.directory.tables import TAIL_BYTES, last_row
from steps.directory.usable import read_episodes
from steps.evaluations.curve import parsed_curve
from steps.page.summary import parsed

LONGEST_REASON = 200
Read = Callable[[Path], object]


def damaged_files(directory: ExperimentDirectory, runs: int, measure: Measure) -> Iterator[str]:
    """`runs/0/status/train.json: details cannot be []`, one line for each file."""
    statuses = [directory.status / f"{task}.json" for task in pipeline.names("experiment")]
    statuses += [
        directory.run(index).status / f"{task}.json"
        for index in range(runs)
        for task in pipeline.names("run")
    ]
    tables: list[tuple[Path, Read]] = [
        (directory.average / "summary.json", lambda path: parsed(read_bytes(path)))
    ]
    for index in range(runs):
        run = directory.run(index)
        tables += [
            (run.train_csv, _ends_in_numbers),
            (run.evaluated(measure), partial(read_episodes, measure=measure)),
            (run.arena_csv, read_games),
            (run.resources_csv, _ends_in_numbers),
            (run.evaluation_curve_csv, partial(parsed_curve, measure=measure)),
            (run.best_snapshot_csv, _ends_in_numbers),
        ]
    runs_there = [directory.run(index) for index in range(runs)]
    statuses += [run.status / f"{name}.json" for run in runs_there for _, name in run.members()]
    faults = [(path, status_damage(path)) for path in statuses] + [
        (path, _damage(path, read)) for path, read in tables
    ]
    yield from (
        f"{path.relative_to(directory.root).as_posix()}: {fault}" for path, fault in faults if fault
    )


def _ends_in_numbers(path: Path) -> None:
    """Whether the end of a table is readable. That is enough here: the steps that draw and average
    read the whole table.
    """
    with open_regular(path) as file:
        first = file.readline(TAIL_BYTES)
    if len(first) == TAIL_BYTES:
        raise ValueError(f"its first line has {TAIL_BYTES} bytes or more")
    for name, text in (last_row(path) or {}).items():
        if text:
            try:
                float(text)
            except (ValueError, TypeError):
                raise ValueError(f"{name} cannot be {text!r}") from None


def _damage(path: Path, read: Read) -> str | None:
    try:
        read(path)
    except FileNotFoundError:
        return None
    except (OSError, BadInput, KeyError, ValueError, TypeError, RecursionError) as error:
        said = f"no column {error}" if isinstance(error, KeyError) else on_one_line(error)
        return said[:LONGEST_REASON] or type(error).__name__
    return None
