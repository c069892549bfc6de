"""The Gumbel root: its numbers by hand, and that it improves a policy with few simulations."""

from __future__ import annotations

import numpy as np
import pytest

from agents.games.connect_four import ConnectFour
from agents.search.evaluator import SearchSettings
from agents.search.gumbel import advantages, considered_visits, improved_policy, mixed_values
from agents.search.tree_search import Search, search_all

PRIORS = np.array([[0.5, 0.3, 0.2]])
VISITS = np.array([[2, 1, 0]], np.int32)
ACTION_VALUES = np.array([[0.1, 0.4, 0.0]])
NETWORK_VALUE = np.array([0.05])


def test_the_mixed_value_by_hand() -> None:
    mixed = mixed_values(PRIORS, VISITS, ACTION_VALUES, NETWORK_VALUE)
    assert mixed == pytest.approx([0.171875])
    nothing_visited = mixed_values(PRIORS, VISITS * 0, ACTION_VALUES * 0, NETWORK_VALUE)
    assert nothing_visited == pytest.approx([0.05])


def test_the_improved_policy_by_hand() -> None:
    of_root = advantages(PRIORS, VISITS, ACTION_VALUES, NETWORK_VALUE, 50.0, 0.1)
    assert improved_policy(of_root)[0] == pytest.approx([0.2253997, 0.6435823, 0.1310180], abs=1e-7)


def test_what_is_not_legal_gets_nothing() -> None:
    priors = np.array([[0.5, 0.0, 0.5]])
    of_root = advantages(priors, VISITS * 0, ACTION_VALUES * 0, NETWORK_VALUE, 50.0, 1.0)
    assert improved_policy(of_root)[0].tolist() == [0.5, 0, 0.5]


@pytest.mark.parametrize(
    ("actions", "simulations", "plan"),
    [
        # two rounds of 8: twice each of four, then four times each of two
        (4, 16, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]),
        # ceil(log2 7) = 3 rounds: once each of seven, once each of three, then of two
        (7, 16, [0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 4, 4]),
        (2, 5, [0, 0, 1, 1, 2]),
        (1, 4, [0, 1, 2, 3]),
        (16, 3, [0, 0, 0]),
    ],
)
def test_sequential_halving_by_hand(actions: int, simulations: int, plan: list[int]) -> None:
    assert considered_visits(actions, simulations).tolist() == plan


def win_in_column_three(states: np.ndarray, legal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A network that thinks least of the column that wins."""
    logits = np.tile(np.array([1, 1, 1, -2, 1, 1, 1], np.float32), (len(states), 1))
    return logits, np.zeros(len(states), np.float32)


def test_the_root_considers_so_many_actions_and_finds_the_win_that_its_network_does_not() -> None:
    game = ConnectFour()
    text = ". . . . . . .\n" * 5 + "X X X . O O O\nX to move"
    states = np.repeat(np.asarray(game.parse(text)).reshape(1), 2)
    for considered, found in ((7, True), (4, False)):
        search = Search(game, 2, SearchSettings(gumbel=True, considered=considered))
        budget = np.full(2, 16)
        result = search_all(search, states, win_in_column_three, budget, [None, None])
        assert np.count_nonzero(result.visits[0]) == considered
        assert result.visits[0].sum() == 16
        assert (result.action[0] == 3) == found
        assert (result.policy[0, 3] > 0.5) == found


def test_a_generator_draws_other_actions_each_time_and_none_draws_the_best() -> None:
    game = ConnectFour()
    search = Search(game, 40, SearchSettings(gumbel=True, considered=2))
    generators = [np.random.default_rng(seed) for seed in range(40)]
    budget = np.full(40, 2)

    def evaluate(states: np.ndarray, legal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        logits = np.tile(np.arange(7, dtype=np.float32) / 4, (len(states), 1))
        return logits, np.zeros(len(states), np.float32)

    drawn = search_all(search, game.start(40), evaluate, budget, list(generators))
    assert len({tuple(np.flatnonzero(row)) for row in drawn.visits}) > 5
    greedy = search_all(search, game.start(40), evaluate, budget, [None] * 40)
    assert {tuple(np.flatnonzero(row)) for row in greedy.visits} == {(5, 6)}
    assert drawn.policy[0] == pytest.approx(drawn.policy[1], abs=1e-9), "the target has no noise"
