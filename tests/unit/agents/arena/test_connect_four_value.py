"""The measure `moves that keep the value` knows an exact player from one that guesses."""

from __future__ import annotations

import numpy as np
import pytest

from agents.arena.opponents import load_player
from agents.arena.players import Choices, Generators
from agents.games.connect_four import ConnectFour
from agents.games.rules import States
from tests.connect_four_solver import Solver
from tests.connect_four_value import late_positions


class Exact:
    """Asks the solver."""

    name = "solver"

    def __init__(self, sign: int) -> None:
        self.sign, self.solver = sign, Solver()

    def choose(self, states: States, generators: Generators) -> Choices:
        scores = [self.solver.move_scores(int(one["own"]), int(one["taken"])) for one in states]
        best = [max(one, key=lambda column, of=one: self.sign * of[column]) for one in scores]
        return Choices(np.array(best))


def test_the_share_is_1_of_the_exact_moves_and_0_of_the_worst() -> None:
    late = late_positions(40, seed=0, least_stones=28)
    assert len(np.unique(late.states)) == 40
    assert (np.bitwise_count(late.states["taken"]) >= 28).all()
    assert (late.share(Exact(1)), late.share(Exact(-1))) == (1, 0)
    random, lookahead, searching = (
        late.share(load_player(name, ConnectFour())) for name in ("random", "lookahead", "mcts-200")
    )
    assert random < lookahead < searching and random < 0.6 and searching > 0.8


@pytest.mark.slow
@pytest.mark.soak
def test_a_thousand_positions_with_at_least_24_stones() -> None:
    late = late_positions(1000, seed=0)
    shares = [
        late.share(load_player(name, ConnectFour()))
        for name in ("random", "lookahead", "mcts-100", "mcts-1000")
    ]
    assert shares == sorted(shares) and shares[0] < 0.6 and shares[-1] > 0.95, shares
