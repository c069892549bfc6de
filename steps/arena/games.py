"""The games of an arena as rows. evaluation.csv holds the games by which the run is judged, those
of its agent against the ladder; arena.csv holds all others.

A row is a whole game: its actions lead from the first position to the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from config.errors import BadInput, shown
from config.ladder import AGENT, LADDER
from config.measures import WIN_RATE
from steps.directory.files import write_atomically
from steps.directory.layout import RunDirectory
from steps.directory.tables import Cell, format_table, read_rows

if TYPE_CHECKING:
    from agents.arena.matches import Games

COLOURS = ("X", "O")
"""X moves first."""
POINTS = 100
"""Points for a win; a draw gives half of them, so the mean is a win rate in %."""
OF_A_GAME = ("opponent", "opening", "colour", "seed", WIN_RATE.column, "length", "actions")
ARENA = ("player", *OF_A_GAME)
EVALUATION = ("episode", *OF_A_GAME)


@dataclass(frozen=True)
class Played:
    """One game. colour: the player's; X moves first. points: the player's, 100 won, 50 drawn, 0
    lost. actions: those of both sides, including the opening.
    """

    player: str
    opponent: str
    opening: int
    colour: str
    seed: int
    points: float
    actions: tuple[int, ...]

    @property
    def is_judged(self) -> bool:
        """Whether the run is judged by this game."""
        return self.player == AGENT and self.opponent in LADDER

    def row(self) -> dict[str, Cell]:
        """The row of arena.csv."""
        values = (
            self.player, self.opponent, self.opening, self.colour, self.seed, self.points,
            len(self.actions), " ".join(map(str, self.actions)),
        )  # fmt: skip
        return dict(zip(ARENA, values, strict=True))


def played(
    player: str, opponent: str, games: Games, lines: Sequence[Sequence[int]], seed: int
) -> list[Played]:
    """The rows of a match. lines: the actions of its openings."""
    rows = []
    for number, actions in enumerate(games.actions):
        opening, colour = divmod(number, len(COLOURS))
        points = POINTS * float(games.scores[opening, colour])
        whole = (*map(int, lines[opening]), *map(int, actions))
        rows.append(Played(player, opponent, opening, COLOURS[colour], seed, points, whole))
    return rows


def write_arena(path: Path, games: Iterable[Played]) -> None:
    """Replace a table of games."""
    write_atomically(path, format_table(ARENA, [one.row() for one in games]))


def write_evaluation(path: Path, games: Sequence[Played]) -> None:
    """Replace the table by which the run is judged."""
    rows = [{"episode": number, **one.row()} for number, one in enumerate(games)]
    write_atomically(path, format_table(EVALUATION, rows))


def read_games(path: Path) -> list[Played]:
    """Read either table. Raises `FileNotFoundError`, and `BadInput` for a damaged table."""
    try:
        return [_read(row) for row in read_rows(path)]
    except (KeyError, ValueError, TypeError) as error:
        raise BadInput(f"{path} is no table of games ({error}): evaluate makes it") from error


def read_all(run: RunDirectory) -> list[Played]:
    """Read both tables of a run. Raises as `read_games`."""
    return [*read_games(run.evaluated(WIN_RATE)), *read_games(run.arena_csv)]


def _read(row: dict[str, str]) -> Played:
    points = float(row[WIN_RATE.column])
    colour = row["colour"]
    if colour not in COLOURS or points not in (0, POINTS / 2, POINTS):
        raise ValueError(f"a game of {shown(colour)} with {points:g} points")
    return Played(
        row.get("player", AGENT), row["opponent"], int(row["opening"]), colour, int(row["seed"]),
        points, tuple(map(int, row["actions"].split())),
    )  # fmt: skip
