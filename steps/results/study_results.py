"""A study, or any other comparison, for analysis in Python."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path

import pandas as pd

from config.errors import BadInput
from steps.comparison.compared import Comparison, Standing
from steps.comparison.comparison_tables import TABLES
from steps.comparison.standings import normalised
from steps.comparison.stored_comparison import read_comparison
from steps.directory.study import StudyDirectory, read_cells
from steps.results.read_results import Results

TEXT = ("label", "game", "run", "kind", "measure", "evaluation", "made_by", "remarks")
COUNTED = ("n", "planned")


class Study:
    """The directory of a study, or of `python -m steps.compare A B C --outdir DIR`; read and never
    written.

    The frames are what `compare` has written last: what experiments have added since is in them after it
    ran again. Raises `BadInput` for a directory without a comparison, `WrongDirectory` for one that
    cannot be read.
    """

    def __init__(self, outdir: str | Path) -> None:
        self._directory = StudyDirectory(Path(outdir).absolute())
        if not self._directory.root.is_dir():
            raise BadInput(f"no directory {self._directory.root}: plan makes it")

    def __repr__(self) -> str:
        """The call that makes this object."""
        return f"Study({str(self._directory.root)!r})"

    @cached_property
    def comparison(self) -> Comparison:
        """Everything that the page shows, aggregates, tests and effects among it."""
        return read_comparison(self._directory.root)

    @cached_property
    def scores(self) -> pd.DataFrame:
        """One row per run that enters the numbers.

        Columns: `label`, `game`, `run` (text); `score`, in the unit of the game's measure; `normalised`,
        0 and 1 at the ends of the game's range, NaN for a game without one: float.
        """
        columns = ("label", "game", "run", "score", "normalised")
        rows = [
            (standing.label, standing.game, *of_run)
            for standing in self.comparison.standings.values()
            for of_run in self._runs(standing)
        ]
        return _typed(pd.DataFrame(rows, columns=list(columns)))

    @cached_property
    def standings(self) -> pd.DataFrame:
        """One row per label and game, the columns of comparison/standings.csv: `n` of `planned` runs
        (int), `mean` and `iqm` with the ends of their intervals (`mean_low`, …; NaN where n allows
        none), normalised `score`, `rank` (1 is best).
        """
        return self._table("standings.csv")

    @cached_property
    def curves(self) -> pd.DataFrame:
        """One row per point of an averaged curve, the columns of comparison/curves.csv: `label`,
        `game`, `kind` (training and policy against environment steps, hours), `x`, `value`, `low`,
        `high` (pointwise), `n` (runs).
        """
        return self._table("curves.csv")

    @cached_property
    def experiments(self) -> Mapping[str, Results]:
        """The experiments that were begun, by the name of their directory; none without a study."""
        if not self._directory.cells_json.exists():
            return {}
        begun = [
            (cell.name, self._directory.experiment(cell.name))
            for cell in read_cells(self._directory)
        ]
        return {
            name: Results(experiment.root)
            for name, experiment in begun
            if experiment.experiment_yaml.exists()
        }

    def _table(self, name: str) -> pd.DataFrame:
        table = TABLES[name]
        rows = list(table.rows(self.comparison))
        return _typed(pd.DataFrame(rows, columns=list(table.columns)))

    def _runs(self, standing: Standing) -> Iterable[tuple[str, float, float]]:
        """Name, score and normalised score of each run."""
        scores = standing.scores
        score_range = self.comparison.ranges.get(standing.game)
        if score_range is None:
            return zip(standing.runs, scores, [math.nan] * len(scores), strict=True)
        return zip(standing.runs, scores, normalised(scores, score_range), strict=True)


def _typed(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with types that do not depend on its rows."""
    kinds = {
        name: "str" if name in TEXT else "int64" if name in COUNTED else "float64" for name in frame
    }
    return frame.astype(kinds)
