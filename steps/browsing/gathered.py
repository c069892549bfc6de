"""What a study or a search shows in a line of the overview: what its experiments show, together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from config.errors import BadInput, ExperimentError, on_one_line
from config.numbers import counted, number
from steps.browsing.life import look
from steps.browsing.places import Place
from steps.browsing.rows import STATES, Row
from steps.directory.cost import total
from steps.directory.files import open_regular
from steps.directory.search import SearchDirectory
from steps.directory.study import StudyDirectory, asked_cells, read_asked

AT_MOST_NAMED = 3
WINNER = re.compile(r"# trial (?P<number>\d+): (?P<value>-?[0-9][0-9.e+-]*) in the search")
"""The first line of a search's `best.yaml`, see `steps.choose`."""
LINE_BYTES = 4096


def gather(place: Place, parts: Sequence[Row]) -> Row:
    """The line of a study or a search. parts: those of its experiments. Never raises."""
    directory = SearchDirectory(place.path)
    try:
        planned = _planned(place, directory)
        damage = ""
    except (ExperimentError, OSError, ValueError, LookupError, TypeError) as error:
        planned = len(parts)
        damage = on_one_line(error) or type(error).__name__
    own = [row for row in parts if row.place.path.parent == directory.experiments]
    done = sum(row.state == "succeeded" for row in own)
    value, winner = _winner(place, directory)
    return Row(
        place=place,
        state="damaged" if damage else _state(place, directory, parts, done, planned),
        note=damage or _note(own, planned),
        algorithm=_named([row.algorithm for row in parts]),
        game=_named([row.game for row in parts]),
        started=min((row.started for row in parts if row.started), default=""),
        value=value,
        shown="" if value is None else number(value),
        measure=winner,
        epochs=(sum(row.epochs[0] for row in parts), sum(row.epochs[1] for row in parts)),
        share=min(1.0, sum(row.fraction for row in own) / planned) if planned else 0.0,
        runs=(sum(row.runs[0] for row in parts), sum(row.runs[1] for row in parts)),
        cost=total(row.cost for row in parts),
        report=directory.report_html.is_file(),
    )


def _planned(place: Place, directory: SearchDirectory) -> int:
    """How many experiments the study's file asks for, or trials the search's."""
    study = read_asked(directory)
    if place.kind == "search":
        if study.search is None:
            raise BadInput(f"{directory.study_yaml} has no key 'search'")
        return study.search.trials
    return len(asked_cells(StudyDirectory(place.path), study))


def _state(
    place: Place, directory: SearchDirectory, parts: Sequence[Row], done: int, planned: int
) -> str:
    """The state of the whole: it runs while anything of it does."""
    states = {row.state for row in parts}
    life = look(directory.owner_json).state if place.kind == "search" else "free"
    if life == "running" or "running" in states:
        return "running"
    if life == "silent" or "silent" in states:
        return "silent"
    if place.kind == "search":
        return "succeeded" if directory.best_yaml.is_file() and life == "ended" else "incomplete"
    if done >= planned and states <= {"succeeded"}:
        return "succeeded"
    if states == {"failed"}:
        return "failed"
    return "stopped" if "stopped" in states else "incomplete"


def _note(own: Sequence[Row], planned: int) -> str:
    """`7 of 12 experiments begun: 5 succeeded, 2 running`."""
    counts = Counter(row.state for row in own)
    said = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    begun = f"{len(own)} of {counted(planned, 'experiment')} begun"
    return f"{begun}: {said}" if said else begun


def _winner(place: Place, directory: SearchDirectory) -> tuple[float | None, str]:
    """The value of the winner of a search, and its name; a study claims no single number."""
    if place.kind != "search":
        return None, ""
    try:
        with open_regular(directory.best_yaml) as file:
            line = file.readline(LINE_BYTES).decode(errors="replace").rstrip()
        found = WINNER.fullmatch(line)
        value = None if found is None else float(found["value"])
    except (OSError, ValueError):
        return None, ""
    return value, "" if found is None else f"trial {found['number']}, the best in the search"


def _named(names: Sequence[str]) -> str:
    """The first few different names."""
    different = list(dict.fromkeys(name for name in names if name))
    more = len(different) - AT_MOST_NAMED
    listed = ", ".join(different[:AT_MOST_NAMED])
    return f"{listed} and {more} more" if more > 0 else listed
