"""The tables of results.md, made from docs/results/*.json.

`conf.py` calls `write` at each build. `make learning` and `make benchmark` write the JSON files; by
hand, `python docs/result_tables.py` prints the tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
REFERENCE, XLA, LIMIT = "Stable-Baselines3", "rejax", "serial limit"

Row = Mapping[str, Any]


def write(folder: Path) -> None:
    """Write a file for each table into the folder: `results-learning.md` and so on."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in TABLES.items():
        rows = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        text = f"{make(rows)}\n\n{where(rows)}\n"
        (folder / f"results-{name}.md").write_text(text, encoding="utf-8")


def learning(rows: Sequence[Row]) -> str:
    """Returns of presets, with their bounds."""
    head = ("Algorithm", "Game", "Steps of a run", "Mean return of each run", "Mean", "Bound", "")
    lines = []
    for row in rows:
        value, is_upper = row["bound"]["value"], row["bound"]["is_upper"]
        holds = row["mean"] < value if is_upper else row["mean"] >= value
        bound = f"{'<' if is_upper else '≥'} {number(value, 0 if value == int(value) else 1)}"
        returns = ", ".join(number(one) for one in row["returns"])
        lines.append(
            (
                row["algorithm"],
                row["game"],
                f"{row['steps']:,}",
                returns,
                number(row["mean"]),
                bound,
                verdict(holds),
                commit(row),
            )
        )
    return table((*head, "Commit"), lines)


def breakout(rows: Sequence[Row]) -> str:
    """Our returns beside those of Stable-Baselines3, which may differ by the spread of the runs."""
    lines = [(row["game"], row["policy"], *compared(row), commit(row)) for row in rows]
    return table(("Game", "Policy", *COMPARED, "Commit"), lines)


def beside(rows: Sequence[Row]) -> str:
    """The same for pairs of trainings whose settings are the same, or the reference's own."""
    head = ("Algorithm", "Game", "Settings of the reference", "Steps of a run", *COMPARED, "Commit")
    lines = [
        (
            row["algorithm"],
            row["game"],
            row["settings"],
            f"{row['steps']:,}",
            *compared(row),
            commit(row),
        )
        for row in rows
    ]
    return table(head, lines)


COMPARED = ("Ours", "Mean", REFERENCE, "Mean", "Spread", "")


def compared(row: Row) -> tuple[str, ...]:
    """Cells under `COMPARED`: the runs of both, and whether ours are below theirs by more than the
    spread.
    """
    both = (row["ours"], row["reference"])
    means = row.get("means") or [sum(one) / len(one) for one in both]
    spread = row.get("spread") or max(max(one) - min(one) for one in both)
    ours, theirs = (", ".join(number(score) for score in one) for one in both)
    holds = verdict(means[0] >= means[1] - spread)
    return ours, number(means[0]), theirs, number(means[1]), number(spread), holds


def strength(rows: Sequence[Row]) -> str:
    """Win rates of AlphaZero against players of known strength."""
    players = list(rows[0]["win_rates"])
    head = ("Minutes", "Run", *players, "Value kept, %", "First move in column")
    lines = [
        (
            str(row["minutes"]),
            str(row["run"]),
            *(f"{row['win_rates'][player]:g}" for player in players),
            f"{row['value_kept']:g}",
            str(row["first_column"]),
            str(row["generation"]),
            f"{row['positions'] // 1000:,}k",
            commit(row),
        )
        for row in rows
    ]
    return table((*head, "Generation", "Positions", "Commit"), lines)


def speed(rows: Sequence[Row]) -> str:
    """Environment steps per second of training, beside the reference, XLA and the serial limit."""
    ratios_of = {f"× {REFERENCE}": REFERENCE, f"× {XLA}": XLA, f"Of the {LIMIT}": LIMIT}
    head = ("Case", "Machine", "Clock", "Threads", "Steps/s", REFERENCE, *ratios_of)
    lines = []
    for row in rows:
        rates, ratios = row["steps_per_second"], row["ratios"]
        theirs = f"{rates[REFERENCE]:,}" if REFERENCE in rates else ""
        relative = [f"{ratios[one]:g}" if one in ratios else "" for one in ratios_of.values()]
        lines.append(
            (
                f"`{row['case']}`",
                row["measured"]["processor"],
                CLOCKS[row["clock"]],
                str(row["threads"]),
                f"{rates['training']:,}",
                theirs,
                *relative,
                commit(row),
            )
        )
    return table((*head, "Commit"), lines)


def limits(rows: Sequence[Row]) -> str:
    """Ratios, a column for each machine; what was measured twice there stands twice."""
    machines = list(dict.fromkeys(row["measured"]["processor"] for row in rows))
    lines = []
    for name in dict.fromkeys(row["name"] for row in rows):
        same = [row for row in rows if row["name"] == name]
        cells = [
            ", ".join(ratio(row) for row in same if row["measured"]["processor"] == machine)
            for machine in machines
        ]
        lines.append((name, f"{same[0]['least']:g}", *cells))
    return table(("Ratio", "At least", *machines), lines)


def ratio(row: Row) -> str:
    """`0.71 (0.66 … 0.86), missed`."""
    spread = f"{row['lowest']:.2f} … {row['highest']:.2f}" if "lowest" in row else row["lasted"]
    missed = "" if row["median"] >= row["least"] else " **missed**"
    return f"{row['median']:.2f} ({spread}){missed}"


def where(rows: Iterable[Row]) -> str:
    """On which machines the rows were measured, and from which commits."""
    machines: dict[str, list[str]] = {}
    for row in rows:
        of = row["measured"]
        known = [of["processor"]]
        known += [f"{of['cores']} cores"] if of.get("cores") else []
        known += [f"torch {of['torch']}"] if of.get("torch") else []
        commits = machines.setdefault(", ".join(known), [])
        if of["commit"] and of["commit"] not in commits:
            commits.append(of["commit"])
    each = [
        f"{machine} ({', '.join(of) or 'commit not noted'})" for machine, of in machines.items()
    ]
    return f"Measured on: {'; '.join(each)}."


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Markdown."""
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def commit(row: Row) -> str:
    """The commit that was measured, as far as it was noted."""
    return str(row["measured"]["commit"])


def verdict(holds: bool) -> str:
    """Whether a bound holds."""
    return "holds" if holds else "**missed**"


def number(value: float, digits: int = 1) -> str:
    """With a real minus sign."""
    return f"{value:.{digits}f}".replace("-", "−")


CLOCKS = {"wall": "wall", "cpu": "processor"}
TABLES = {
    "learning": learning,
    "breakout": breakout,
    "beside-stable-baselines3": beside,
    "strength": strength,
    "speed": speed,
    "limits": limits,
}

if __name__ == "__main__":
    for name, make in TABLES.items():
        print(make(json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))), "\n")
