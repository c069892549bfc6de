"""The scores of all runs in the form that rliable and others read: label -> [runs × games].

Scores are normalised. The games are those that numbers over games are about, in the order of
`shared` in comparison.json. Labels without runs are absent. Where a game has fewer runs than another,
the rows behind them are filled up: with null in scores.json, with NaN in scores.npz. rliable takes
neither, so cut such arrays to the rows that are whole.
"""

from __future__ import annotations

import io
import json
import zipfile

import numpy as np

from steps.comparison.compared import Comparison
from steps.comparison.standings import normalised
from steps.statistics.scores import Floats


def score_matrices(comparison: Comparison) -> dict[str, Floats]:
    """Label -> [largest number of runs, games]; NaN where a game has fewer runs."""
    return {
        label: _matrix(comparison, label)
        for label in comparison.labels
        if comparison.overall[label].aggregates is not None
    }


def _matrix(comparison: Comparison, label: str) -> Floats:
    columns = [
        normalised(comparison.standings[label, game].scores, comparison.ranges[game])
        for game in comparison.shared
    ]
    matrix = np.full((max(map(len, columns)), len(columns)), np.nan)
    for index, column in enumerate(columns):
        matrix[: len(column), index] = column
    return matrix


def as_json(comparison: Comparison) -> str:
    """The content of scores.json."""
    rows = {
        label: [[None if np.isnan(one) else one for one in row] for row in matrix.tolist()]
        for label, matrix in score_matrices(comparison).items()
    }
    return json.dumps(rows, sort_keys=True, allow_nan=False, ensure_ascii=False, indent=1) + "\n"


def as_npz(comparison: Comparison) -> bytes:
    """The content of scores.npz, for `numpy.load`. Unlike that of `numpy.savez` it never depends on
    the time.
    """
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for label, matrix in score_matrices(comparison).items():
            array = io.BytesIO()
            np.save(array, matrix)
            archive.writestr(zipfile.ZipInfo(f"{label}.npy"), array.getvalue())
    return content.getvalue()
