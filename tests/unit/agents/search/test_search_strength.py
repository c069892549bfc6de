"""What can be proved about the moves of a search without training: tic-tac-toe against every line of
play, Connect Four against a solver."""

from __future__ import annotations

import numpy as np
import pytest

from agents.games.connect_four import ConnectFour
from agents.games.named import load_game
from agents.games.rules import Game, States
from agents.games.tic_tac_toe import TicTacToe
from agents.search.evaluator import EvaluatePositions, Rollouts, SearchSettings
from agents.search.tree_search import Search, search_all
from tests.connect_four_solver import Solver, from_moves


def best_moves(
    game: Game, states: States, evaluate: EvaluatePositions, simulations: int
) -> np.ndarray:
    search = Search(game, len(states), SearchSettings())
    budget = np.full(len(states), simulations)
    return search_all(search, states, evaluate, budget, [None] * len(states)).action


def losses_in_all_lines(player: int, simulations: int) -> tuple[int, int]:
    """How many ends are lost, and how many there are, when the other one tries every move."""
    game = TicTacToe()
    evaluate = Rollouts(game, np.random.default_rng(player))
    states, lost, ends = game.start(1), 0, 0
    while len(states):
        over, value = game.outcome(states)
        mover = game.mover(states)
        lost += int((over & (np.where(mover == player, value, -value) < 0)).sum())
        ends += int(over.sum())
        states, mover = states[~over], mover[~over]
        own, others = states[mover == player], states[mover != player]
        following = [game.start(0)]
        if len(own):
            following.append(game.play(own, best_moves(game, own, evaluate, simulations)))
        rows, actions = np.nonzero(game.legal(others))
        following.append(game.play(others[rows], actions))
        states = np.unique(np.concatenate(following))
    return lost, ends


@pytest.mark.slow
@pytest.mark.parametrize("player", [0, 1])
def test_tic_tac_toe_with_rollouts_loses_in_none_of_all_lines(player: int) -> None:
    """Of four further seeds the second player lost lines with 1000 and 3000, and none with 10 000."""
    lost, ends = losses_in_all_lines(player, 10_000)
    assert lost == 0 and ends > 20
    weak, _ = losses_in_all_lines(player, 3)
    assert weak > 0, "with three simulations it does"


@pytest.mark.parametrize(
    ("moves", "score"),
    [  # of Pascal Pons's published set of late, easy positions
        ("2252576253462244111563365343671351441", -1),
        ("7422341735647741166133573473242566", 1),
        ("23163416124767223154467471272416755633", 0),
    ],
)
def test_the_solver_against_published_scores(moves: str, score: int) -> None:
    assert Solver().score(*from_moves(moves)) == score


def late_positions(stones: int, count: int, seed: int) -> States:
    """Of random games that are not over."""
    game, draws, found = ConnectFour(), np.random.default_rng(seed), []
    while sum(map(len, found)) < count:
        states = game.start(4000)
        for _ in range(stones):
            legal = game.legal(states)
            states = game.play(states, np.argmax(draws.random(legal.shape) * legal, axis=1))
            states = states[~game.outcome(states)[0]]
        found.append(states)
    return np.concatenate(found)[:count]


def test_the_solver_against_plain_minimax_by_the_rules_of_the_game() -> None:
    game, solver = ConnectFour(), Solver()

    def score(state: States) -> int:
        over, value = game.outcome(state)
        if over[0]:
            left = 42 - int(np.bitwise_count(state["taken"])[0])
            return int(value[0]) * (left // 2 + 1)
        actions = np.flatnonzero(game.legal(state)[0])
        return max(-score(game.play(state, np.array([action]))) for action in actions)

    seen = set()
    for state in late_positions(36, 60, seed=0):
        exact = solver.score(int(state["own"]), int(state["taken"]))
        assert exact == score(state.reshape(1))
        seen.add(np.sign(exact))
    assert seen == {-1, 0, 1}


def test_moves_of_a_search_without_a_network_keep_the_value_of_late_positions() -> None:
    game, solver, kept = ConnectFour(), Solver(), 0
    states = late_positions(28, 100, seed=1)
    free = best_moves(game, states, Rollouts(game, np.random.default_rng(0)), 1500)
    for state, action in zip(states, free, strict=True):
        scores = solver.move_scores(int(state["own"]), int(state["taken"]))
        kept += np.sign(scores[int(action)]) == np.sign(max(scores.values()))
    assert kept >= 97


def test_rollouts_are_for_the_mover_whoever_moves_at_the_end() -> None:
    pytest.importorskip("pyspiel")
    game = load_game("openspiel:dots_and_boxes(num_rows=1,num_cols=2)")
    states, draws = game.start(400), np.random.default_rng(0)
    for _ in range(6):  # one edge is left: who closes the last boxes wins
        legal = game.legal(states)
        states = game.play(states, np.argmax(draws.random(legal.shape) * legal, axis=1))
    states = states[~game.outcome(states)[0]]
    last = game.play(states, game.legal(states).argmax(axis=1))
    over, value = game.outcome(last)
    assert over.all()
    exact = np.where(game.mover(last) == game.mover(states), value, -value)
    _, values = Rollouts(game, draws)(states, game.legal(states))
    assert values.tolist() == exact.tolist() and len(np.unique(exact)) > 1
