"""What each player of the arena does where it is known what it has to do."""

from __future__ import annotations

import numpy as np
import pytest

from agents.arena.matches import play_match
from agents.arena.minimax import Minimax
from agents.arena.opponents import load_player
from agents.arena.players import Lookahead, Player, Random
from agents.games.connect_four import ConnectFour
from agents.games.named import OURS, load_game
from agents.games.rules import Game, States
from agents.games.tic_tac_toe import TicTacToe
from config.errors import BadInput

PLAYERS = ("random", "lookahead", "mcts-3", "minimax-2", "my_lab.players:Middle")


def after(game: Game, *lines: str) -> States:
    """The positions after these actions, one digit each."""
    found = []
    for line in lines:
        state = game.start(1)
        for action in line:
            state = game.play(state, np.array([int(action)]))
        found.append(state)
    return np.concatenate(found)


def generators(count: int, seed: int = 0) -> list[np.random.Generator]:
    return [np.random.default_rng([seed, row]) for row in range(count)]


def scattered(game: Game, count: int, plies: int) -> States:
    """Positions of random games, as long as they go on."""
    states, player = game.start(count), Random(game)
    for ply in range(plies):
        states = game.play(states, player.choose(states, generators(len(states), ply)).actions)
        states = states[~game.outcome(states)[0]]
    return states


@pytest.mark.parametrize("name", PLAYERS)
@pytest.mark.parametrize("game_name", [*OURS, "my_lab.games:Nim"])
def test_the_contract_of_players(name: str, game_name: str) -> None:
    game = load_game(game_name)
    player, states = load_player(name, game), scattered(game, 6, 2)
    before = states.copy()
    chosen, again = (player.choose(states, generators(len(states))) for _ in range(2))
    assert player.name == name and (states == before).all()
    assert game.legal(states)[np.arange(len(states)), chosen.actions].all()
    assert chosen.actions.tolist() == again.actions.tolist()
    if chosen.policy is not None and chosen.value is not None:
        assert chosen.policy.sum(axis=1) == pytest.approx(1)
        assert not chosen.policy[~game.legal(states)].any()
        assert (np.abs(chosen.value) <= 1).all()


def test_random_plays_everything_legal_equally_often() -> None:
    game = TicTacToe()
    states = np.repeat(after(game, "0482"), 3000)
    actions = Random(game).choose(states, generators(3000)).actions
    counts = np.bincount(actions, minlength=9)
    assert counts[[0, 2, 4, 8]].sum() == 0
    assert np.abs(counts[[1, 3, 5, 6, 7]] - 600).max() < 100  # 4.5 standard deviations


def test_lookahead_wins_and_prevents() -> None:
    game = TicTacToe()
    states = np.repeat(after(game, "0314", "041", "04215"), 40)
    actions = Lookahead(game).choose(states, generators(len(states))).actions.reshape(3, 40)
    assert set(actions[0]) == {2}, "it rather wins than prevents 5"
    assert set(actions[1]) == {2}, "it prevents"
    assert set(actions[2]) == {7}, "it wins for the second player, too"


def test_lookahead_gives_no_cell_above_its_own_stone() -> None:
    """Who plays in column 0 gives the other one the cell above it, and with it a row of four."""
    game = ConnectFour()
    state = game.parse(
        """
        . . . . . . .
        . . . . . . .
        . . . . . . .
        . . . . . . .
        . O O O X . .
        . X X O X . .
        X to move"""
    )
    played = Lookahead(game).choose(np.repeat(state, 60), generators(60)).actions
    assert set(played) == {1, 2, 3, 4, 5, 6}


def test_minimax_is_exact_in_tic_tac_toe_in_all_lines_of_both_colours() -> None:
    game, player = TicTacToe(), Minimax(TicTacToe())
    for colour in (0, 1):
        states, ends = game.start(1), 0
        while len(states):
            over, value = game.outcome(states)
            mover = game.mover(states)
            assert not (over & (np.where(mover == colour, value, -value) < 0)).any()
            ends += int(over.sum())
            states, mover = states[~over], mover[~over]
            own, others = states[mover == colour], states[mover != colour]
            following = [game.start(0)]
            if len(own):
                actions = player.choose(own, generators(len(own))).actions
                following.append(game.play(own, actions))
            rows, actions = np.nonzero(game.legal(others))
            following.append(game.play(others[rows], actions))
            states = np.unique(np.concatenate(following))
        assert ends > 20


def slow_value(game: Game, state: States, depth: int) -> float:
    """One position at a time, without anything clever."""
    over, value = game.outcome(state)
    if over[0] or depth == 0:
        return float(value[0])
    worths = []
    for action in np.flatnonzero(game.legal(state)[0]):
        following = game.play(state, np.array([action]))
        worth = slow_value(game, following, depth - 1) * (1 - 1e-3)
        worths.append(worth if game.mover(following)[0] == game.mover(state)[0] else -worth)
    return max(worths)


@pytest.mark.parametrize(
    ("game_name", "plies"),
    [
        ("connect-four", 30),
        ("othello6", 30),
        ("openspiel:dots_and_boxes(num_rows=1,num_cols=2)", 4),
    ],
)
def test_minimax_is_plain_minimax_also_where_a_player_moves_twice(
    game_name: str, plies: int
) -> None:
    if game_name.startswith("openspiel"):
        pytest.importorskip("pyspiel")
    game = load_game(game_name)
    states = scattered(game, 80, plies)[:8]
    player = Minimax(game, 3)
    fast = [player.values(state.reshape(1)).max() for state in states]
    assert fast == pytest.approx([slow_value(game, state.reshape(1), 3) for state in states])
    assert len(set(np.sign(fast))) > 1


def test_minimax_wins_as_soon_as_it_can_and_loses_as_late() -> None:
    game = load_game("my_lab.games:Nim")
    chosen = Minimax(game).choose(
        after(game, "22", "21"), generators(2)
    )  # 4 left: lost; 5 left: take 1
    assert chosen.actions[1] == 0 and chosen.value is not None
    assert chosen.value.tolist() == pytest.approx([-(0.999**2), 0.999**3])


def test_stronger_players_win() -> None:
    game = ConnectFour()
    weak, strong = Random(game), Lookahead(game)
    starts = np.unique(scattered(game, 60, 2))[:10]

    def share(first: Player, second: Player) -> float:
        return float(play_match(game, first, second, starts, 0).mean())

    assert share(strong, weak) > 0.75
    assert share(load_player("minimax-4", game), strong) > 0.6
    assert share(load_player("mcts-40", game), weak) > 0.9


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("lookahed", "did you mean 'lookahead'"),
        ("mcts", "unknown player 'mcts'"),
        ("mcts-0", "mcts-1 … mcts-100000"),
        ("minimax-99", "minimax-1 … minimax-12"),
        ("my_lab.players:Nobody", "cannot be imported"),
        ("my_lab.players:Motionless", "has no move"),
        ("my_lab.games:Nim", "cannot be made: TypeError"),
        ("my_lab.players:HEAP", "cannot be imported"),
    ],
)
def test_what_is_no_player_is_refused_in_one_line(name: str, line: str) -> None:
    with pytest.raises(BadInput, match=line) as caught:
        load_player(name, ConnectFour())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "line"),
    [("Cheat", r"plays -1; allowed: \[0, 1"), ("Fragile", "RuntimeError: no idea at all")],
)
def test_a_person_s_player_that_breaks_a_rule_is_named(name: str, line: str) -> None:
    game = ConnectFour()
    with pytest.raises(BadInput, match=line):
        load_player(f"my_lab.players:{name}", game).choose(game.start(1), generators(1))
