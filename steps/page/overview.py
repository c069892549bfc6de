"""The page of all experiments below a folder: one HTML file that needs no server and no network."""

from __future__ import annotations

import datetime
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from config.errors import printable
from config.numbers import byte_size, counted, hours, number
from steps.browsing.rows import STATES, Row
from steps.browsing.served_files import Entry
from steps.directory.cost import Cost, total
from steps.page.cost import said_of_cost
from steps.page.render import FOLDER, environment, policy_of, trusted

GENERATOR = "steps.browse"
"""How a page is known to be one of this program's, so that it may be replaced."""
OPEN_NOTE = 120
"""Characters of a reason that are shown; the whole stands in the tooltip."""
ABSENT = "–"


def render(rows: Sequence[Row], root: Path, *, is_served: bool) -> str:
    """The whole page. is_served: whether a server makes the reports of experiments that still run."""
    counts = Counter(row.state for row in rows)
    experiments = [row for row in rows if row.place.kind == "experiment"]
    script = (FOLDER / "overview.js").read_text()
    style = (FOLDER / "report.css").read_text() + (FOLDER / "overview.css").read_text()
    return (
        environment()
        .get_template("overview.html")
        .render(
            title=f"{printable(root.name or str(root))}: {counted(len(experiments), 'experiment')}",
            generator=GENERATOR,
            root=printable(str(root)),
            lines=[_line(row, root, is_served=is_served) for row in rows],
            states=[(state, counts[state]) for state in STATES if counts[state]],
            experiments=len(experiments),
            cost=said_of_cost(total(row.cost for row in experiments)),
            made=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
            is_served=is_served,
            style=trusted(style),
            script=trusted(script),
            policy=policy_of(script),
        )
    )


def render_folder(entries: Sequence[Entry], relative: Path) -> str:
    """The page of a folder that is no experiment. relative: to the folder that is served."""
    listed = [
        {
            "name": printable(one.name) + ("/" if one.size_bytes is None else ""),
            # A dot before it: `a:b` would be an address of the scheme a.
            "link": "./" + quote(os.fsencode(one.name)) + ("/" if one.size_bytes is None else ""),
            "size": "" if one.size_bytes is None else byte_size(one.size_bytes),
        }
        for one in entries
    ]
    return (
        environment()
        .get_template("folder.html")
        .render(
            title=printable(relative.as_posix()),
            entries=listed,
            style=trusted((FOLDER / "report.css").read_text()),
            policy="default-src 'none'; style-src 'unsafe-inline'; img-src data:",
        )
    )


def script_policies() -> str:
    """The sources of scripts that a served page may run: those of this program's own pages."""
    policies = [policy_of((FOLDER / name).read_text()) for name in ("report.js", "overview.js")]
    return " ".join(policy.partition("script-src ")[2].partition(";")[0] for policy in policies)


def _line(row: Row, root: Path, *, is_served: bool) -> dict[str, Any]:
    """What the template shows of one row, and by what it sorts."""
    path = row.place.path.relative_to(root).as_posix()
    # A dot before it: `a:b` would be an address of the scheme a.
    folder = "./" if path == "." else "./" + quote(os.fsencode(path)) + "/"
    has_page = row.report or (is_served and row.place.kind == "experiment" and row.started != "")
    return {
        "kind": row.place.kind,
        "state": row.state,
        "name": printable(root.name if path == "." else path),
        "link": f"{folder}report.html" if has_page else folder,
        "has_page": has_page,
        "note": row.note if len(row.note) <= OPEN_NOTE else f"{row.note[: OPEN_NOTE - 1]}…",
        "whole_note": row.note,
        "algorithm": row.algorithm,
        "game": row.game,
        "started": row.started.replace("T", " ")[:16],
        "value": "" if row.value is None else repr(row.value),
        "shown": row.shown,
        "measure": row.measure,
        "interval": row.interval,
        "n": row.n,
        "headline": row.headline,
        "runs": _of(row.runs, "runs"),
        "epochs": _of(row.epochs, "epochs"),
        "fraction": f"{row.fraction:.4f}",
        "cost": _cost(row.cost),
        "spent": f"{(row.cost.gpu_h or 0.0) * 1e6 + (row.cost.processor_h or 0.0):.6f}",
        "twice": f"{hours(row.cost.repeated_h)} h twice" if row.cost.repeated_h else "",
    }


def _of(done: tuple[int, int], what: str) -> str:
    return f"{number(done[0])} of {number(done[1])} {what}" if done[1] else ""


def _cost(cost: Cost) -> str:
    parts = [(cost.gpu_h, "GPU-h"), (cost.processor_h, "CPU-h")]
    return ", ".join(f"{hours(value)} {unit}" for value, unit in parts if value) or ABSENT
