"""Films of board games: the board, and on it what the player to move thinks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle

from agents.arena.matches import Turn
from agents.games.boards import Board, board_of
from agents.games.rules import Game
from steps.figures.style import ABSENT, BLUE, GREY, INK, RULE, VERMILION, look

WIDTH_IN, HEIGHT_IN, DOTS_PER_INCH = 5.4, 5.8, 100
"""540 by 580 pixels: even numbers, as video encoders need them."""
COLOURS = ("X", "O")
STONES = (BLUE, VERMILION)
NAME_CHARACTERS = 26
LEAST_SHOWN = 0.005
"""The smallest share of a policy that is shown; less would be written as 0 %."""
TEXT_LINES = 26


def film(
    game: Game, turns: Iterable[Turn], names: Sequence[str]
) -> Iterator[npt.NDArray[np.uint8]]:
    """Yield a frame [H, W, 3] for each turn, all of one size. names [2]: the players' names by
    colour.
    """
    for ply, turn in enumerate(turns):
        yield frame(game, turn, names, ply)


def frame(game: Game, turn: Turn, names: Sequence[str], ply: int) -> npt.NDArray[np.uint8]:
    """The frame of the turn after this many plies, uint8 [H, W, 3]."""
    with look():
        figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN), dpi=DOTS_PER_INCH)
        canvas: Any = FigureCanvasAgg(figure)
        mover = int(game.mover(turn.state.reshape(1))[0])
        _write_heading(figure, game, turn, names, ply, mover)
        board = board_of(game, turn.state)
        if board is None:
            lines = game.show(turn.state).splitlines()[:TEXT_LINES]
            figure.text(0.05, 0.84, "\n".join(lines), family="DejaVu Sans Mono", size=10, va="top")
        else:
            _draw_board(figure.add_axes((0.03, 0.03, 0.8, 0.8)), board, turn)
        _draw_value(figure.add_axes((0.9, 0.09, 0.05, 0.68)), turn.value, mover)
        canvas.draw()
        pixels: npt.NDArray[np.uint8] = np.asarray(canvas.buffer_rgba())[..., :3].copy()
    return pixels


def _write_heading(
    figure: Figure, game: Game, turn: Turn, names: Sequence[str], ply: int, mover: int
) -> None:
    for colour, left, side in ((0, 0.03, "left"), (1, 0.97, "right")):
        text = f"{COLOURS[colour]}  {names[colour][:NAME_CHARACTERS]}"
        figure.text(left, 0.955, text, color=STONES[colour], size=11, weight="bold", ha=side)
    _, value = game.outcome(turn.state.reshape(1))
    if turn.action >= 0:
        text = f"ply {ply + 1}: {COLOURS[mover]} plays {turn.action}"
    elif value[0] == 0:
        text = f"a draw after {ply} plies"
    else:
        winner = mover if value[0] > 0 else 1 - mover
        text = f"{COLOURS[winner]} wins after {ply} plies"
    figure.text(0.03, 0.905, text, size=10, color=GREY)
    if turn.value is not None:
        text = f"value {_for_first(turn.value, mover) + 0.0:+.2f}".replace("-", "−")
        figure.text(0.97, 0.905, text, size=10, color=GREY, ha="right")


def _draw_board(axes: Axes, board: Board, turn: Turn) -> None:
    """Draw the cells from above, with the policy in empty cells or above the columns."""
    height, width = board.cells.shape
    axes.set_axis_off()
    axes.set_aspect("equal")
    axes.set_xlim(-0.05, width + 0.05)
    axes.set_ylim(height + 0.05, -0.75 if board.column_actions else -0.05)
    for (row, column), stone in np.ndenumerate(board.cells):
        action = row * width + column if board.cell_actions else -1
        is_played = action >= 0 and action == turn.action
        axes.add_patch(
            Rectangle(
                (column + 0.03, row + 0.03),
                0.94,
                0.94,
                facecolor="white",
                edgecolor=INK if is_played else RULE,
                linewidth=2.5 if is_played else 1,
            )
        )
        if stone:
            _draw_stone(axes, column + 0.5, row + 0.5, int(stone) - 1)
        elif action >= 0:
            _write_share(axes, column + 0.5, row + 0.5, turn, action)
    if board.column_actions:
        for column in range(width):
            _write_share(axes, column + 0.5, -0.5, turn, column)
            if column == turn.action:
                axes.plot(column + 0.5, -0.15, "v", color=INK, markersize=9)


def _draw_stone(axes: Axes, x: float, y: float, colour: int) -> None:
    """Draw a stone. The second player's are rings, so that they can be told apart without colours."""
    paint = STONES[colour]
    if colour == 1:
        stone = Circle((x, y), 0.3, facecolor="white", edgecolor=paint, linewidth=7)
    else:
        stone = Circle((x, y), 0.36, facecolor=paint, edgecolor=paint, linewidth=1)
    axes.add_patch(stone)


def _write_share(axes: Axes, x: float, y: float, turn: Turn, action: int) -> None:
    if turn.policy is None or turn.policy[action] < LEAST_SHOWN:
        return
    weight = "bold" if action == turn.action else "normal"
    text = f"{turn.policy[action]:.0%}"
    axes.text(x, y, text, ha="center", va="center", size=10, weight=weight, color=INK)


def _draw_value(axes: Axes, value: float | None, mover: int) -> None:
    """Draw the value from -1 (O wins) to 1 (X wins); empty if the player gives none."""
    axes.set_xlim(0, 1)
    axes.set_ylim(-1, 1)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(visible=False)
    for side in axes.spines.values():
        side.set(visible=True, color=ABSENT)
    axes.axhline(0, color=ABSENT, linewidth=1)
    axes.set_title("X wins", fontsize=8.5, loc="center", color=STONES[0], pad=4)
    axes.set_xlabel("O wins", fontsize=8.5, color=STONES[1], labelpad=3)
    if value is None:
        return
    of_first = _for_first(value, mover)
    leader = 0 if of_first > 0 else 1
    axes.add_patch(Rectangle((0, 0), 1, of_first, facecolor=STONES[leader]))


def _for_first(value: float, mover: int) -> float:
    """Convert the mover's value to that of player 0."""
    return value if mover == 0 else -value
