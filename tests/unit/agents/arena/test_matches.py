"""Matches: both colours, different openings, one seed, one result."""

from __future__ import annotations

import numpy as np
import pytest

from agents.arena.matches import everybody, openings, play_match, watched
from agents.arena.opponents import load_player
from agents.arena.players import Choices, Generators
from agents.games.connect_four import ConnectFour
from agents.games.named import OURS, load_game
from agents.games.rules import Game, States
from agents.games.tic_tac_toe import TicTacToe
from config.errors import BadInput
from steps.statistics.elo import ratings


class First:
    """Always the first legal action: leaves nothing to chance, and records what it was asked."""

    name = "first"

    def __init__(self, game: Game) -> None:
        self.game, self.calls = game, list[int]()

    def choose(self, states: States, generators: Generators) -> Choices:
        self.calls.append(len(states))
        return Choices(self.game.legal(states).argmax(axis=1))


def test_scores_are_the_first_player_s_whichever_colour_it_has() -> None:
    """Both in order: X has 0, 2, 4, 6 and wins; so the first player wins as player 0 only."""
    game, player = TicTacToe(), First(TicTacToe())
    scores = play_match(game, player, First(game), game.start(3), 0)
    assert scores.tolist() == [[1, 0]] * 3


def test_a_drawn_game_is_half_a_point_for_both() -> None:
    game = TicTacToe()
    exact = load_player("minimax", game)
    assert play_match(game, exact, exact, game.start(2), 0).tolist() == [[0.5, 0.5]] * 2


def test_games_are_played_in_lock_step() -> None:
    game, player = ConnectFour(), First(ConnectFour())
    play_match(game, player, First(game), openings(game, 8, np.random.default_rng(0)), 0)
    assert player.calls[0] == 8 and len(player.calls) <= 2 * game.longest
    assert max(player.calls) <= 16


def test_a_game_where_players_move_twice() -> None:
    pytest.importorskip("pyspiel")
    game = load_game("openspiel:dots_and_boxes(num_rows=1,num_cols=2)")
    greedy, weak = load_player("minimax-3", game), load_player("random", game)
    scores = play_match(game, greedy, weak, game.start(24), 0)
    swapped = play_match(game, weak, greedy, game.start(24), 0)
    assert scores.mean() > 0.58 and swapped.mean() < 0.42


def test_one_seed_one_result_and_another_seed_another() -> None:
    game = ConnectFour()
    players = [load_player(name, game) for name in ("random", "lookahead", "mcts-5")]
    one, again, other = (everybody(game, players, 6, seed) for seed in (1, 1, 2))
    assert one.names == ["random", "lookahead", "mcts-5"]
    assert one.pairings == [(0, 1), (0, 2), (1, 2)]
    assert one.scores.shape == (3, 6, 2)
    assert one.scores.tolist() == again.scores.tolist() != other.scores.tolist()


def test_a_ladder_has_ratings_in_its_order() -> None:
    game = ConnectFour()
    players = [load_player(name, game) for name in ("lookahead", "random", "minimax-4")]
    names, pairings, scores = everybody(game, players, 12, 0)
    rating, low, high = ratings(3, pairings, scores, names.index("random"), seed=0, resamples=500)
    assert rating[1] == 0 < 100 < rating[0] < rating[2]
    assert (low <= rating).all() and (rating <= high).all()


def test_a_further_player_changes_no_other_match() -> None:
    game = ConnectFour()
    two = [load_player(name, game) for name in ("random", "lookahead")]
    three = [load_player("minimax-1", game), *two]
    assert everybody(game, two, 9, 0).scores[0].tolist() == (
        everybody(game, three, 9, 0).scores[2].tolist()
    )


def test_two_players_of_one_name_are_refused() -> None:
    game = TicTacToe()
    with pytest.raises(BadInput, match="each name only once"):
        everybody(game, [load_player("random", game)] * 2, 1, 0)


@pytest.mark.parametrize("name", OURS)
def test_openings_are_different_even_when_mirrored(name: str) -> None:
    game = load_game(name)
    found = openings(game, 11, np.random.default_rng(0))
    assert not game.outcome(found)[0].any()
    pictures = [
        frozenset(
            bytes(planes.reshape(game.planes[0], -1)[:, one.board].tobytes())
            for one in game.symmetries()
        )
        for planes in game.encode(found)
    ]
    assert len(set(pictures)) == 11
    again = openings(game, 11, np.random.default_rng(0))
    assert (again == found).all()


def test_openings_by_known_numbers() -> None:
    """Of tic-tac-toe up to symmetry: 1, 3, 12, 38 positions after 0 to 3 plies."""
    game = TicTacToe()
    for count, plies in ((1, 0), (2, 1), (3, 1), (4, 2), (12, 2), (13, 3), (38, 3), (39, 4)):
        found = openings(game, count, np.random.default_rng(0))
        assert (np.count_nonzero(found["cells"], axis=1) == plies).all()


def test_more_openings_than_there_are_is_one_line() -> None:
    with pytest.raises(BadInput, match="no 5000 different openings"):
        openings(TicTacToe(), 5000, np.random.default_rng(0))


def test_without_openings_two_players_repeat_one_game() -> None:
    """The reason for them: deterministic players, and the same score again and again."""
    game, player = ConnectFour(), First(ConnectFour())
    same = play_match(game, player, First(game), game.start(10), 0)
    varied = play_match(game, player, First(game), openings(game, 40, np.random.default_rng(0)), 0)
    assert len(np.unique(same, axis=0)) == 1 < len(np.unique(varied, axis=0))


def test_a_watched_game_is_told_turn_by_turn() -> None:
    game = TicTacToe()
    players = [load_player("mcts-30", game), load_player("random", game)]
    *turns, end = watched(game, players, game.start(1), 3)
    assert end.action == -1 and end.policy is None and game.outcome(end.state.reshape(1))[0][0]
    state = game.start(1)
    for ply, turn in enumerate(turns):
        assert turn.state == state[0]
        assert (turn.policy is not None) == (turn.value is not None) == (ply % 2 == 0)
        state = game.play(state, np.array([turn.action]))
    assert state[0] == end.state
