"""The games for self-play: counts of positions that others published, examples, texts, names."""

from __future__ import annotations

import sys
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from agents.games import batched
from agents.games.batched import Batched
from agents.games.connect_four import ConnectFour
from agents.games.named import load_game
from agents.games.othello6 import Othello6
from agents.games.rules import Game
from agents.games.tic_tac_toe import TicTacToe
from config.errors import BadInput
from tests.stranger.my_lab.games import Nim


class Othello8(Othello6):
    size = 8


def perft(game: Game, depth: int) -> list[int]:
    """Positions after 1 … depth plies; a game that is over goes no further."""
    states, counts = game.start(1), []
    for _ in range(depth):
        rows, actions = np.nonzero(game.legal(states))
        states = game.play(states[rows], actions)
        counts.append(len(states))
    return counts


@pytest.mark.parametrize(
    ("game", "expected"),
    [
        # of all 255 168 games, 5 end after 5 plies times symmetries, and so on
        (TicTacToe(), [9, 72, 504, 3024, 15_120, 54_720, 148_176, 200_448, 127_872]),
        # John Tromp's table, wins ending the line
        (ConnectFour(), [7, 49, 343, 2401, 16_807, 117_649, 823_536]),
        # the published counts of 8 x 8, by the rules of 6 x 6
        (Othello8(), [4, 12, 56, 244, 1396, 8200, 55_092]),
    ],
    ids=["tic-tac-toe", "connect-four", "othello 8 x 8"],
)
def test_perft(game: Game, expected: list[int]) -> None:
    assert perft(game, len(expected)) == expected


def test_tic_tac_toe_has_5478_positions_and_255168_games() -> None:
    game = TicTacToe()
    states, games, positions = game.start(1), 0, {game.start(1)[0].tobytes()}
    while len(states):
        over, _ = game.outcome(states)
        games += int(over.sum())
        rows, actions = np.nonzero(game.legal(states))
        states = game.play(states[rows], actions)
        positions |= {state.tobytes() for state in states}
    assert (games, len(positions)) == (255_168, 5478)


def test_othello_against_openspiels_rules_on_every_ply_of_random_games() -> None:
    pyspiel = pytest.importorskip("pyspiel")
    ours, theirs = Othello8(), pyspiel.load_game("othello")
    for seed in range(6):
        draws, states = np.random.default_rng(seed), ours.start(1)
        state = theirs.new_initial_state()
        while not state.is_terminal():
            legal = np.flatnonzero(ours.legal(states)[0])
            assert legal.tolist() == sorted(state.legal_actions())
            assert ours.mover(states)[0] == state.current_player()
            action = int(draws.choice(legal))
            states = ours.play(states, np.array([action]))
            state.apply_action(action)
        over, value = ours.outcome(states)
        sign = 1 if ours.mover(states)[0] == 0 else -1
        assert over[0] and sign * value[0] == state.returns()[0]


def test_a_player_without_a_move_passes_and_only_then() -> None:
    game = Othello6()
    rows = ["X X O . . ."] + [". . . . . ."] * 5
    position = np.asarray(game.parse("\n".join([*rows, "O to move"]))).reshape(1)
    assert np.flatnonzero(game.legal(position)[0]).tolist() == [36]
    after = game.play(position, np.array([36]))
    assert game.mover(after)[0] == 0 and not game.outcome(after)[0][0]
    assert np.flatnonzero(game.legal(after)[0]).tolist() == [3]
    with pytest.raises(ValueError, match="action 36"):
        game.play(after, np.array([36]))


def test_a_win_with_the_stone_that_fills_the_board_is_a_win() -> None:
    game = ConnectFour()
    text = """
        O X X O . O O
        X X O X X O O
        O X O X O X O
        X O X X O X X
        O O X O X O O
        X X X O X X O
        O to move"""
    almost = np.asarray(game.parse(text)).reshape(1)
    assert not game.outcome(almost)[0][0]
    last = game.play(almost, np.array([4]))
    assert np.bitwise_count(last["taken"])[0] == 42
    over, value = game.outcome(last)
    assert over[0] and value[0] == -1, "a diagonal of O"


@pytest.mark.parametrize(
    ("game", "text"),
    [
        (TicTacToe(), "X X . . . . . . .\nO to move"),
        (TicTacToe(), "X X .\n. . .\n. . .\nO to move"),
        (ConnectFour(), "X . . . . . .\n" + ". . . . . . .\n" * 5 + "O to move"),
        (ConnectFour(), ". . . . . . .\n" * 6),
        (Othello6(), ". . . . . .\n" * 6 + "Y to move"),
        (Batched(Nim(), "nim"), "||\nmoves: 0 3"),
        (Batched(Nim(), "nim"), "||\nmoves: -1"),
        (Batched(Nim(), "nim"), ""),
    ],
)
def test_a_text_that_is_no_position_is_refused(game: Game, text: str) -> None:
    with pytest.raises(BadInput, match="is no "):
        game.parse(text)


def test_states_of_ones_own_game_are_made_again_when_they_are_no_longer_kept() -> None:
    first, second = (Batched(Nim(), "nim") for _ in range(2))
    states = first.play(first.play(first.start(2), np.array([0, 1])), np.array([2, 2]))
    assert second.encode(states).sum(axis=(1, 2, 3)).tolist() == [6, 5]
    assert second.show(states[1]) == "|||||\nmoves: 1 2"
    with pytest.raises(ValueError, match="action 3 in row 0 is not legal"):
        second.play(states, np.array([3, 0]))


class Interrupted(OrderedDict[bytes, Any]):
    """Lets the other thread go on between looking up and what follows."""

    def get(self, key: bytes, default: Any = None) -> Any:
        found = super().get(key, default)
        time.sleep(1e-4)
        return found


def test_two_threads_ask_at_once_while_few_states_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batched, "KEPT", 1)
    game = Batched(Nim(), "nim")
    game._positions = Interrupted()
    states = np.repeat(game.play(game.start(3), np.arange(3)), 4)
    expected = game.encode(states)
    with ThreadPoolExecutor(2) as threads:
        seen = list(threads.map(lambda _: game.encode(states), range(20)))
    assert all(np.array_equal(one, expected) for one in seen)


def test_a_game_that_goes_on_after_its_longest_is_refused() -> None:
    game = Nim()
    game.longest = 2
    endless = Batched(game, "nim")
    states = endless.play(endless.start(1), np.array([0]))
    with pytest.raises(BadInput, match="goes on after 2 actions, but says longest = 2"):
        endless.play(states, np.array([0]))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("connect4", "did you mean 'connect-four'"),
        ("openspiel:hexx", "did you mean 'hex'"),
        ("openspiel:kuhn_poker", "has chance, hidden information; allowed"),
        ("openspiel:goofspiel", "simultaneous moves"),
        ("openspiel:2048", "at most 1 player"),
        ("openspiel:hex(size=3)", "cannot be made: Unknown parameter 'size'"),
        ("my_lab.games:Nothing", "cannot be imported"),
        ("my_lab.games:Heap", "cannot be made: TypeError"),
        (
            "my_lab.envs:Maze",
            "has no actions, longest, start, legal, play, mover, result, encode, show",
        ),
    ],
)
def test_what_is_no_game_is_refused_with_one_line(name: str, said: str) -> None:
    if name.startswith("openspiel:"):
        pytest.importorskip("pyspiel")
    with pytest.raises(BadInput) as refused:
        load_game(name)
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_without_openspiel_its_games_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspiel", None)
    with pytest.raises(BadInput, match=r"pip install 'rl-training-dag\[openspiel\]'"):
        load_game("openspiel:hex")


def test_a_game_of_openspiel_that_never_ends_by_itself_is_a_draw_after_512_plies() -> None:
    pytest.importorskip("pyspiel")
    game = load_game("openspiel:chess")
    assert game.longest == 512
    draws, states, plies = np.random.default_rng(7), game.start(1), 0
    while not game.outcome(states)[0][0]:
        states = game.play(states, draws.choice(np.flatnonzero(game.legal(states)[0]), 1))
        plies += 1
    assert plies == 512 and game.outcome(states)[1][0] == 0
