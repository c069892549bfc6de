"""Two halves that alternate, the memory that grows, and machine code where no folder keeps it."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from agents.games.compiled import compiled
from agents.games.connect_four import ConnectFour
from agents.games.rules import States
from agents.search.evaluator import SearchSettings
from agents.search.tree_search import Search, search_all
from agents.selfplay.worker import Alternation
from tests.search_reference import Hashed

GAME = ConnectFour()
LONGEST_WAIT_S = 20


def halves(simulations: int) -> list[Search]:
    made = [Search(GAME, 4, SearchSettings()) for _ in range(2)]
    for half in made:
        half.begin(np.arange(4), GAME.start(4), np.full(4, simulations), [None] * 4)
    return made


def test_one_half_searches_while_the_other_is_evaluated() -> None:
    other_searched, network, names = threading.Event(), Hashed(GAME), set[str]()
    both = halves(5)

    def evaluate(states: States, legal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        names.add(threading.current_thread().name)
        assert other_searched.wait(LONGEST_WAIT_S), "it is evaluated before the other half searches"
        return network(states, legal)

    for half in Alternation(both, evaluate).rounds():
        if half is both[1]:
            other_searched.set()
        half.results(half.finished())
    assert len(names) == 1 and threading.current_thread().name not in names


def test_an_evaluation_that_fails_ends_the_rounds() -> None:
    def fail(states: States, legal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        raise RuntimeError("the network is gone")

    with pytest.raises(RuntimeError, match="the network is gone"):
        for _ in Alternation(halves(5), fail).rounds():
            pass


def test_a_tree_grows_while_another_one_is_searched() -> None:
    """More simulations and more edges than there was room for, in the middle of a search."""
    states = GAME.play(GAME.start(2), np.array([3, 1]))
    grown, network = Search(GAME, 2, SearchSettings()), Hashed(GAME)
    grown.begin(np.array([0]), states[:1], np.array([30]), [None])
    for _ in range(9):
        grown.receive(*network(*grown.leaves()))
    grown.begin(np.array([1]), states[1:], np.array([900]), [None])
    while len((leaves := grown.leaves()).states):
        grown.receive(*network(*leaves))
    found = grown.results(grown.finished())
    for row, simulations in enumerate((30, 900)):
        alone = Search(GAME, 1, SearchSettings())
        given = states[row : row + 1]
        expected = search_all(alone, given, network, np.array([simulations]), [None])
        assert found.visits[row].tolist() == expected.visits[0].tolist()


def test_where_nothing_can_be_kept_it_is_compiled_all_the_same() -> None:
    written = dict[str, object]()
    exec("def twice(number):\n    return 2 * number", written)  # noqa: S102 - of no file
    function = written["twice"]
    assert callable(function) and compiled(function)(21) == 42
