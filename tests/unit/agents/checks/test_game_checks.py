"""`steps.check` of games for self-play: good ones, and broken ones, each with the rule it breaks."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from agents.checks.game_checks import GameChecks
from agents.checks.playable import check_playable
from agents.checks.promises import Finding, tried
from agents.games.boards import read_board
from agents.games.named import OURS, load_game
from agents.games.rules import Booleans, Floats, Game, Integers, States, Symmetry
from agents.games.tic_tac_toe import TicTacToe
from config.errors import BadInput
from config.resolve import resolve
from steps import check

COUNTER = itertools.count()


class AcceptsIllegal(TicTacToe):
    """A stone on a stone."""

    def play(self, states: States, actions: Integers) -> States:
        played = states.copy()
        played["cells"][np.arange(len(states)), np.clip(actions, 0, 8)] = 1 + self.mover(states)
        return played


class PlaysOnAfterTheEnd(TicTacToe):
    """An empty cell is legal for it, also when somebody has won."""

    def play(self, states: States, actions: Integers) -> States:
        rows, actions = np.arange(len(states)), np.asarray(actions)
        inside = (actions >= 0) & (actions < 9)
        if not inside.all() or states["cells"][rows, actions].any():
            raise ValueError("not empty")
        played = states.copy()
        played["cells"][rows, actions] = 1 + self.mover(states)
        return played


class OneSided(TicTacToe):
    """It is always player 0's turn."""

    def mover(self, states: States) -> np.ndarray:
        return np.zeros(len(states), np.int8)

    def outcome(self, states: States) -> tuple[Booleans, Floats]:
        return (states["cells"] != 0).all(axis=1), np.zeros(len(states), np.float32)


class FromOne(TicTacToe):
    """Players are 1 and 2."""

    def mover(self, states: States) -> np.ndarray:
        return (super().mover(states) + 1).astype(np.int8)


class Endless(TicTacToe):
    """A full board is cleared."""

    def outcome(self, states: States) -> tuple[Booleans, Floats]:
        return np.zeros(len(states), np.bool_), np.zeros(len(states), np.float32)

    def play(self, states: States, actions: Integers) -> States:
        played = super().play(states, actions)
        played["cells"][(played["cells"] != 0).all(axis=1)] = 0
        return played


class Upright(TicTacToe):
    """What the network sees is turned, but not by every symmetry."""

    def encode(self, states: States) -> Floats:
        planes = super().encode(states)
        planes[:, :, 0, 0] *= 2
        return planes


class WrongActions(TicTacToe):
    """The board is turned one way, the actions the other way."""

    def symmetries(self) -> list[Symmetry]:
        return [Symmetry(board, np.argsort(actions)) for board, actions in super().symmetries()]


class LastMoversView(TicTacToe):
    def outcome(self, states: States) -> tuple[Booleans, Floats]:
        over, value = super().outcome(states)
        return over, -value


class FirstPlayersView(TicTacToe):
    """Right whenever player 0 is the mover."""

    def outcome(self, states: States) -> tuple[Booleans, Floats]:
        over, value = super().outcome(states)
        return over, np.where(self.mover(states) == 0, value, -value).astype(np.float32)


class InPlace(TicTacToe):
    def play(self, states: States, actions: Integers) -> States:
        states["cells"] = super().play(states, actions)["cells"]
        return states.copy()


class Stuck(TicTacToe):
    """The middle is never legal, so that the last ply has no action."""

    def legal(self, states: States) -> Booleans:
        legal = super().legal(states)
        legal[:, 4] = False
        return legal


class LegalAtTheEnd(TicTacToe):
    def legal(self, states: States) -> Booleans:
        legal: Booleans = states["cells"] == 0
        return legal


class Random(TicTacToe):
    """Another network input every time."""

    def encode(self, states: States) -> Floats:
        return (super().encode(states) + next(COUNTER)).astype(np.float32)


class OtherEveryTime(TicTacToe):
    """Each instance is another game."""

    def __init__(self) -> None:
        self.middle = next(COUNTER)

    def encode(self, states: States) -> Floats:
        planes = super().encode(states)
        planes[:, :, 1, 1] += self.middle
        return planes


class Wide(TicTacToe):
    def encode(self, states: States) -> Floats:
        return super().encode(states)[:, :, np.newaxis]


class Doubles(TicTacToe):
    def outcome(self, states: States) -> tuple[Booleans, Any]:
        over, value = super().outcome(states)
        return over, value.astype(np.float64)


class Early(TicTacToe):
    """Values in the middle of a game."""

    def outcome(self, states: States) -> tuple[Booleans, Floats]:
        over, value = super().outcome(states)
        return over, np.where(over, value, 0.1).astype(np.float32)


class Shuffled(TicTacToe):
    """Reads the text from the other side."""

    def parse(self, text: str) -> States:
        read_board(text, 3, 3)
        state = super().parse(text)
        state["cells"] = state["cells"][::-1].copy()
        return state


class Trusting(TicTacToe):
    def parse(self, text: str) -> States:
        return super().parse(text) if "to move" in text else self.start(1)[0]


class Blind(TicTacToe):
    def encode(self, states: States) -> Floats:
        return np.zeros((len(states), 2, 3, 3), np.float32)


class Neighbours(TicTacToe):
    """A batch norm that learns: rows depend on each other."""

    def encode(self, states: States) -> Floats:
        planes = super().encode(states)
        return planes - planes[:1]


BROKEN: dict[type[Game], tuple[str, str]] = {
    AcceptsIllegal: ("an illegal action is refused", "action -1 is not legal and is played"),
    PlaysOnAfterTheEnd: ("an illegal action is refused", "is not legal and is played"),
    OneSided: ("player 0 begins, and both have turns", "player 1 never has a turn"),
    FromOne: ("player 0 begins, and both have turns", "player 1 begins"),
    Endless: ("a game ends within `longest` plies", "24 of 24 random games go on after 9 plies"),
    Upright: ("symmetries", "with symmetry 1 encode is not what the symmetry says"),
    WrongActions: ("symmetries", "with symmetry 1 encode is not what the symmetry says"),
    LastMoversView: ("the outcome is the mover's", "player 1 wins after [0, 1, 3, 4, 6], the"),
    FirstPlayersView: ("the outcome is the mover's", "player 1 wins after [0, 1, 3, 4, 6], the"),
    InPlace: ("no method changes what it is given", "play changes the positions"),
    Stuck: ("legal actions until the end, none then", "after 8 plies has no legal action"),
    LegalAtTheEnd: ("legal actions until the end, none then", "still has legal actions"),
    Random: ("the same actions are the same game", "encode says something else"),
    OtherEveryTime: ("the same actions are the same game", "encode says something else"),
    Wide: ("shapes and types", "encode gives float32 [0, 2, 1, 3, 3]; allowed: float32 [0, 2, 3"),
    Doubles: ("shapes and types", "outcome's second gives float64"),
    Early: ("the outcome is the mover's", "a value to a game that is not over"),
    Shuffled: ("`parse` reads what `show` writes", "reads another position"),
    Trusting: ("`parse` reads what `show` writes", "parse takes any text"),
    Blind: ("what the network sees", "looks the same after any two actions"),
    Neighbours: ("rows do not depend on each other", "encode gives a row something else"),
}


def findings(make: Callable[[], Game]) -> list[Finding]:
    checks = GameChecks(make).all()
    del checks["speed"]
    return list(tried(checks))


@pytest.mark.parametrize(
    "name",
    [
        *(
            pytest.param(name, marks=pytest.mark.slow if name == "othello6" else ())
            for name in OURS
        ),
        "my_lab.games:Nim",
        "openspiel:hex(board_size=3)",
    ],
)
def test_a_good_game_keeps_every_promise(name: str) -> None:
    if name.startswith("openspiel:"):
        pytest.importorskip("pyspiel")
    found = findings(lambda: load_game(name))
    assert [one for one in found if not one.kept] == []
    assert len(found) == 13


@pytest.mark.parametrize("name", list(OURS))
def test_our_games_have_examples_with_both_winners_and_a_draw(name: str) -> None:
    assert {example.winner for example in load_game(name).examples()} == {0, 1, None}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_a_broken_game_is_named_by_the_rule_that_it_breaks(broken: type[Game]) -> None:
    last = findings(broken)[-1]
    promise, said = BROKEN[broken]
    assert not last.kept
    assert (last.promise, said in last.seen) == (promise, True), last.seen


def test_the_command_prints_a_line_for_each_promise(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main(["my_lab.games:Nim"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 14 and all(line.startswith("ok") for line in lines)


def test_a_game_takes_no_algorithm(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main(["connect-four", "--algorithm", "ppo"]) == 2
    assert "is a game for self-play; allowed: no further option" in capsys.readouterr().err


def test_an_experiment_of_a_broken_game_is_refused_with_the_rule() -> None:
    """Before anything is written, in one line."""
    name = "tests.unit.agents.checks.test_game_checks:AcceptsIllegal"
    resolved = resolve("alphazero", {"game": name})
    with pytest.raises(BadInput) as refused:
        check_playable(resolved)
    assert str(refused.value).startswith(f"game {name!r} breaks a promise, an illegal action is ")
    assert str(refused.value).endswith(f"python -m steps.check {name} tries them all")
    check_playable(resolve("alphazero", {"game": "my_lab.games:Nim"}))
