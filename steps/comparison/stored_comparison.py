"""The files of a comparison, `comparison/` in its directory.

comparison.json has everything, and figures and page are made from it. Tables are for people and other
programs:

| file | a row for each |
|---|---|
| standings.csv | label and game: scores with intervals, rank |
| overall.csv | label: aggregates over games |
| tests.csv | label and game: the difference to the baseline |
| profiles.csv | label and threshold: share of runs above it |
| curves.csv | label, game, kind of curve and point |
| efficiency.csv | label and share of the steps |
| grid.csv | parameter, value and label; only with a grid |
| sensitivity.csv | label and game: what one setting for all games loses; only with a grid |
| cost.csv | label and game |
| missing.csv | run that enters no number, and whatever else is missing |
| scores.json, scores.npz | see `scores_for_rliable` |

The same entries give the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from config.errors import BadInput, WrongDirectory, on_one_line
from steps.comparison.compared import Comparison
from steps.comparison.comparison_tables import OPTIONAL, TABLES
from steps.comparison.json_records import from_document, to_document
from steps.comparison.scores_for_rliable import as_json, as_npz
from steps.directory.files import read_bytes, refuse_link, write_if_changed
from steps.directory.study import StudyDirectory
from steps.directory.tables import format_table
from steps.statistics.intervals import CURVE_RESAMPLES, LEVEL, TABLE_RESAMPLES

LARGEST_BYTES = 2**29


def write_comparison(comparison: Comparison, directory: Path) -> bool:
    """Write all files below `directory`. comparison.json comes last. Returns whether that is another
    one than before.
    """
    study = StudyDirectory(directory)
    folder = study.comparison
    refuse_link(folder, is_folder=True)
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in TABLES.items():
        rows = list(table.rows(comparison))
        if rows or name not in OPTIONAL:
            write_if_changed(folder / name, format_table(table.columns, rows))
        else:
            (folder / name).unlink(missing_ok=True)
    write_if_changed(folder / "scores.json", as_json(comparison))
    write_if_changed(folder / "scores.npz", as_npz(comparison))
    return write_if_changed(study.comparison_json, _text(to_document(comparison, directory)))


def read_comparison(directory: Path) -> Comparison:
    """The comparison that was written below `directory`. Raises `BadInput` for a missing one,
    `WrongDirectory` for one that cannot be read.
    """
    path = StudyDirectory(directory).comparison_json
    try:
        document = json.loads(read_bytes(path, LARGEST_BYTES))
        found: Comparison = from_document(Comparison, document["comparison"], directory)
    except FileNotFoundError:
        raise BadInput(f"no file {path}: compare makes it") from None
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        reason = on_one_line(error)
        raise WrongDirectory(f"{path} is no comparison ({reason}): compare makes it") from error
    return found


def _text(document: object) -> str:
    bootstrap: Mapping[str, object] = {
        "level": LEVEL,
        "resamples_curves": CURVE_RESAMPLES,
        "resamples_tables": TABLE_RESAMPLES,
    }
    whole = {"bootstrap": bootstrap, "comparison": document}
    return json.dumps(whole, sort_keys=True, allow_nan=False, separators=(",", ":")) + "\n"
