"""What an arena's plots and films show, by their texts and pixels."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from agents.arena.matches import Turn, watched
from agents.arena.opponents import load_player
from agents.games.boards import board_of
from agents.games.named import OURS, load_game
from steps.figures.board import film, frame
from steps.figures.ratings import cross_table_plot, rating_plot
from steps.figures.style import BLUE, VERMILION, look

NAMES = ["random", "a_long_package.with_modules.players:Name", "mcts-100"]
SHARES = np.array([[np.nan, 0.5, 0.05], [0.5, np.nan, np.nan], [0.95, np.nan, np.nan]])


def pixels(image: np.ndarray, colour: str) -> np.ndarray:
    """Where exactly this colour is, [H, W]."""
    return (image == np.round(255 * np.array(to_rgb(colour))).astype(np.uint8)).all(axis=2)


def test_ratings_are_drawn_from_the_strongest_to_the_weakest() -> None:
    ratings = np.array([0.0, 250.4, 900.6])
    with look():
        figure = rating_plot(
            NAMES,
            ratings,
            ratings - 30,
            ratings + 40,
            title="t",
            subtitle="s",
            caption="over 50 openings",
        )
    axes = figure.axes[0]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels[0] == "random" and labels[2] == "mcts-100"
    assert labels[1].startswith("…") and labels[1].endswith("players:Name") and len(labels[1]) == 28
    assert [text.get_text() for text in axes.texts] == ["0", "250", "901"]
    ends = [segment[:, 0].tolist() for segment in axes.collections[0].get_segments()]
    assert ends == [
        [-30, 40],
        [pytest.approx(220.4), pytest.approx(290.4)],
        [pytest.approx(870.6), pytest.approx(940.6)],
    ]
    assert any("50 openings" in text.get_text() for text in figure.texts)


def test_the_cross_table_has_a_number_where_two_met() -> None:
    with look():
        figure = cross_table_plot(NAMES, NAMES, SHARES, title="t", subtitle="s", games=100)
    placed = {text.get_position(): text.get_text() for text in figure.axes[0].texts}
    assert placed == {(1, 0): "50.0 %", (2, 0): "5.0 %", (0, 1): "50.0 %", (0, 2): "95.0 %"}


@pytest.mark.parametrize("name", [*OURS, "my_lab.games:Nim"])
def test_a_film_has_a_frame_of_one_size_for_each_turn(name: str) -> None:
    game = load_game(name)
    players = [load_player(one, game) for one in ("minimax-2", "random")]
    turns = list(watched(game, players, game.start(1), 0))
    chosen = [*turns[:2], turns[-1]]
    frames = list(film(game, chosen, ["minimax-2", "random"]))
    assert {(one.shape, str(one.dtype)) for one in frames} == {((580, 540, 3), "uint8")}
    assert (frames[0] != frames[1]).any() and (frames[1] != frames[2]).any()
    assert (frame(game, turns[0], ["minimax-2", "random"], 0) == frames[0]).all()


def test_stones_are_where_they_are() -> None:
    """Whose turn it is changes no colour: X is blue, O vermilion."""
    game = load_game("connect-four")
    state = game.start(1)
    for action in (0, 6, 0):
        state = game.play(state, np.array([action]))
        board = board_of(game, state[0])
        assert board is not None and board.cells[5, 0] == 1
    assert board.cells[4, 0] == 1 and board.cells[5, 6] == 2 and board.cells.sum() == 4
    image = frame(game, Turn(state[0], -1, None, None), ["", ""], 3)
    blue, red = (np.argwhere(pixels(image, colour)) for colour in (BLUE, VERMILION))
    stones = (
        blue[(blue[:, 0] > 120) & (blue[:, 1] < 460)],
        red[(red[:, 0] > 120) & (red[:, 1] < 460)],
    )
    assert len(stones[0]) > 1500 and stones[0][:, 1].max() < 80
    assert len(stones[1]) > 500 and stones[1][:, 1].min() > 380


def test_what_the_player_thinks_is_drawn_and_for_the_first_player() -> None:
    game = load_game("connect-four")
    state = game.play(game.start(1), np.array([3]))[0]  # O's turn
    policy = np.array([0.6, 0.4, 0, 0, 0, 0, 0])
    silent = frame(game, Turn(state, 0, None, None), ["", ""], 1)
    thinking = frame(game, Turn(state, 0, policy, 0.5), ["", ""], 1)
    bar = thinking[:, 490:510]
    assert pixels(bar, VERMILION).sum() > 1000, "good for O"
    assert (
        pixels(frame(game, Turn(state, 0, policy, -0.5), ["", ""], 1)[:, 490:510], BLUE).sum()
        > 1000
    )
    assert pixels(silent[:, 490:510], VERMILION).sum() < 100
    changed = np.argwhere((silent != thinking).any(axis=2) & (np.arange(540) < 450))
    above = changed[(changed[:, 0] > 100) & (changed[:, 0] < 200)]
    assert len(above) > 50 and above[:, 1].max() < 140, "shares above the first two columns"


def test_a_game_whose_planes_are_no_stones_has_no_board() -> None:
    for name in OURS:
        game = load_game(name)
        board = board_of(game, game.start(1)[0])
        assert board is not None and board.cell_actions != board.column_actions
    nim = load_game("my_lab.games:Nim")
    assert board_of(nim, nim.start(1)[0]) is None
