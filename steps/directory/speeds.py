"""How fast earlier trainings were: what an estimate of a study's hours is made from."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from statistics import median

from config.errors import ExperimentError
from config.strict_yaml import load
from steps.directory.experiment import RECORD_LIMIT_BYTES
from steps.directory.files import read_bytes
from steps.directory.layout import ExperimentDirectory
from steps.directory.tables import last_row

PLACES = ("*/experiment.yaml", "*/*/experiment.yaml", "*/experiments/*/experiment.yaml")
"""Where experiments lie below a storage: in it, in somebody's folder, in a study."""
MOST_EXPERIMENTS = 500
Kind = tuple[str, str]
"""An algorithm and a game, by name."""


def earlier_speeds(storage: Path) -> Mapping[Kind, float]:
    """Environment steps per second of a run, the median of the runs below a folder, by algorithm and
    game. What cannot be read is left out.
    """
    found = defaultdict[Kind, list[float]](list)
    records = chain.from_iterable(storage.glob(place) for place in PLACES)
    for path in islice(records, MOST_EXPERIMENTS):
        with contextlib.suppress(ExperimentError, OSError, LookupError, TypeError, ValueError):
            parameters = load(read_bytes(path, RECORD_LIMIT_BYTES), str(path))["parameters"]
            kind = (parameters["algorithm"], parameters["game"]["name"])
            runs = int(parameters["experiment"]["runs"])
            found[kind] += _speeds(ExperimentDirectory(path.parent), runs)
    return {kind: median(speeds) for kind, speeds in found.items() if speeds}


def _speeds(experiment: ExperimentDirectory, runs: int) -> Iterator[float]:
    """Of each run that has begun, its steps by its time, waiting between attempts not counted."""
    for index in range(runs):
        with contextlib.suppress(ExperimentError, OSError, LookupError, TypeError, ValueError):
            row = last_row(experiment.run(index).resources_csv)
            if row is not None and float(row["wall_s"]) > 0 and float(row["step"]) > 0:
                yield float(row["step"]) / float(row["wall_s"])
