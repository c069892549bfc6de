"""A person's game: its rules, the terminal, and the real command in a pseudo-terminal to the end."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from agents.arena.opponents import load_player
from agents.arena.players import Choices
from agents.games.named import load_game
from config.errors import BadInput
from steps import versus
from steps.playing import terminal
from steps.playing.server import GameServer
from steps.playing.session import Session
from tests.waiting import PATIENCE_S


def session(game: str, opponent: str, person: int = 0, seed: int = 0) -> Session:
    made = load_game(game)
    return Session(made, load_player(opponent, made), person, seed)


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes these lines the input, with its end after them."""

    def given(*lines: str) -> None:
        rest = iter(lines)

        def answer(prompt: str = "") -> str:
            for line in rest:
                return line
            raise EOFError

        monkeypatch.setattr("builtins.input", answer)

    return given


@pytest.mark.parametrize("person", [0, 1])
@pytest.mark.parametrize("game", ["tic-tac-toe", "connect-four", "othello6", "my_lab.games:Nim"])
def test_a_game_is_played_to_its_end_by_either_colour(game: str, person: int) -> None:
    played = session(game, "lookahead", person)
    while not played.is_over:
        assert played.game.mover(played.state)[0] == person
        played.play(played.legal()[0])
    assert played.result in (-1, 0, 1) and played.legal() == []
    for refused in (lambda: played.play(0), played.opinion):
        with pytest.raises(BadInput, match="the game is over"):
            refused()
    won_by_first = Session(played.game, played.opponent, 0, 0)
    won_by_first.states = played.states
    assert played.result == won_by_first.result * (1 - 2 * person)


def test_a_move_taken_back_and_played_again_gets_the_same_answer() -> None:
    played = session("connect-four", "random")
    for action in (3, 2, 4):
        played.play(action)
    answers = list(played.actions)
    while played.actions:
        played.undo()
        assert played.is_over is False and len(played.states) == len(played.actions) + 1
    with pytest.raises(BadInput, match="nothing can be taken back"):
        played.undo()
    for action in (3, 2, 4):
        played.play(action)
    assert played.actions == answers
    assert session("connect-four", "random", 1, seed=0).actions != (
        session("connect-four", "random", 1, seed=1).actions
    )


def test_who_begins_second_keeps_the_opening_when_everything_is_taken_back() -> None:
    played = session("tic-tac-toe", "minimax", 1)
    opening = list(played.actions)
    played.play(played.legal()[0])
    played.undo()
    assert played.actions == opening and len(opening) == 1
    with pytest.raises(BadInput, match="nothing can be taken back"):
        played.undo()


def test_a_move_that_is_not_legal_changes_nothing() -> None:
    played = session("connect-four", "random")
    for action in (7, -1, 99):
        with pytest.raises(BadInput, match=rf"{action} is not legal; allowed: 0, 1, 2, 3, 4, 5, 6"):
            played.play(action)
    assert played.actions == []


def test_an_opponent_that_breaks_a_rule_leaves_the_game_as_it_was() -> None:
    played = session("connect-four", "my_lab.players:Cheat")
    with pytest.raises(BadInput, match="plays -1"):
        played.play(3)
    assert played.actions == [] and len(played.states) == 1


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (RuntimeError("no idea"), "breaks cannot move: RuntimeError: no idea"),
        (MemoryError(), "breaks cannot move: MemoryError"),
        (9, "breaks chose 9, which is not legal"),
        ("nothing", "breaks cannot move: "),
    ],
)
def test_an_opponent_that_breaks_leaves_the_person_its_colour(answer: Any, says: str) -> None:
    class Breaks:
        name = "breaks"

        def choose(self, states: Any, generators: Any) -> Choices:
            if isinstance(answer, Exception):
                raise answer
            return Choices(np.array([answer]))

    played = Session(load_game("connect-four"), Breaks(), 0, 0)
    with pytest.raises(BadInput) as caught:
        played.play(3)
    assert str(caught.value).startswith(says)
    assert played.actions == [] and len(played.states) == 1


def test_a_browser_that_leaves_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with GameServer(session("tic-tac-toe", "random")) as server:
        for error in (BrokenPipeError, ConnectionResetError, TimeoutError, ValueError):
            try:
                raise error
            except error:
                server.handle_error(None, ("127.0.0.1", 1))
    printed = capfd.readouterr().err
    assert "ValueError" in printed
    assert "Pipe" not in printed and "Reset" not in printed and "Timeout" not in printed


def test_an_opinion_is_that_of_a_searching_opponent() -> None:
    played = session("tic-tac-toe", "minimax")
    for action in (0, 1):
        if action in played.legal():
            played.play(action)
    assert re.fullmatch(
        r"minimax would play \d; value [+-]\d\.\d\d for you \(-1 lost … 1 won\); policy (\d: \d+%(, )?)+",
        terminal.opinion_text(played),
    )
    assert terminal.opinion_text(session("tic-tac-toe", "random")).startswith("random would play")
    assert "value" not in terminal.opinion_text(session("tic-tac-toe", "random"))


def test_the_board_numbers_what_can_be_played() -> None:
    played = session("tic-tac-toe", "minimax", 1)
    opening = played.actions[0]
    cells = [str(cell) if cell != opening else "X" for cell in range(9)]
    rows = [" ".join(cells[row : row + 3]) for row in (0, 3, 6)]
    assert terminal.board_text(played).splitlines()[1:5] == [*rows, f"minimax played {opening}"]
    four = session("connect-four", "random")
    assert terminal.board_text(four).splitlines()[7] == "0 1 2 3 4 5 6"
    othello = terminal.board_text(session("othello6", "random")).splitlines()
    assert othello[2] == " .  .  8  .  .  ." and othello[3] == " . 13  O  X  .  ."


def test_lines_that_are_no_move_are_one_line_each(
    typed: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    typed("", "frog", "9", "-1", "u", "\x1b[2J", "4" * 5000, "h")
    terminal.play(session("connect-four", "random"))
    lines = capsys.readouterr().out.splitlines()[9:]
    starts = ["legal", "a number", "'frog' is no", "9 is not legal; allowed: 0, 1"]
    starts += [
        "'-1' is no",
        "you have not",
        r"'\x1b[2j' is no",
        "'444",
        "random would",
        "",
        "You leave",
    ]
    assert len(lines) == len(starts), lines
    for line, start in zip(lines, starts, strict=True):
        assert line.startswith(start) and len(line) < 200


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--game", "connectfour"], "did you mean 'connect-four'"),
        (["--game", "tic-tac-toe", "--opponent", "minmax"], "did you mean 'minimax'"),
        (["--game", "tic-tac-toe", "--seed", "-1"], "--seed -1; allowed: 0 and more"),
        (["--game", "my_lab.games:Nobody"], "cannot be imported"),
    ],
)
def test_bad_input_is_one_line_and_2(
    arguments: Sequence[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert versus.main(arguments) == 2
    said = capsys.readouterr()
    assert line in said.err and said.err.count("\n") == 1 and said.out == ""


class Terminal:
    """The real command with a pseudo-terminal of its own, in which Ctrl-C and Ctrl-D are keys."""

    def __init__(self, *arguments: str) -> None:
        self.ours, theirs = pty.openpty()
        keyboard: dict[str, Any] = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
        program = "import fcntl, runpy, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        program += (
            "sys.argv[:] = sys.argv[1:]; runpy.run_module('steps.versus', run_name='__main__')"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, "versus", *arguments],
            start_new_session=True,
            **keyboard,
        )
        os.close(theirs)
        self.text = ""

    def until_asked(self) -> bool:
        """Read up to the next prompt; False at the end of the program."""
        self.text = ""
        while not self.text.endswith("> "):
            try:
                self.text += os.read(self.ours, 4096).decode()
            except OSError:  # nobody holds the other side any more
                return False
        return True

    def type(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    def end(self) -> int:
        while self.until_asked():
            pass
        os.close(self.ours)
        return self.process.wait(PATIENCE_S)

    def interrupt(self) -> None:
        """Ctrl-C, and again after a while, as a person does: one that falls between the prompt and the
        reading waits in Python for the next key.
        """
        for _ in range(6):
            self.type("\x03")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(10)
                return


@pytest.fixture
def started() -> Iterator[Callable[..., Terminal]]:
    terminals: list[Terminal] = []

    def start(*arguments: str) -> Terminal:
        terminals.append(Terminal(*arguments))
        return terminals[-1]

    yield start
    for one in terminals:
        one.process.kill()
        one.process.wait()


def test_a_game_in_a_terminal_to_its_end(started: Callable[..., Terminal]) -> None:
    command = started("--game", "tic-tac-toe", "--opponent", "minimax", "--second", "--seed", "3")
    asked = 0
    while command.until_asked():
        asked += 1
        command.type(re.findall(r"legal: (\d)", command.text)[-1] + "\n")
    assert asked >= 2
    assert re.search(r"(minimax wins|A draw) after \d plies\.\s*$", command.text), command.text
    assert command.process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize(
    ("key", "code"),
    [
        pytest.param("\x03", 130, marks=pytest.mark.slow),
        pytest.param("\x04", 0, marks=pytest.mark.slow),
        pytest.param("q\n", 0, marks=pytest.mark.slow),
    ],
)
def test_quitting_has_the_exit_code_of_how(
    key: str, code: int, started: Callable[..., Terminal]
) -> None:
    command = started("--game", "tic-tac-toe", "--opponent", "random")
    assert command.until_asked() and "You are X, random is O" in command.text
    if key == "\x03":
        command.interrupt()
    else:
        command.type(key)
    assert command.end() == code
    assert "Traceback" not in command.text
    assert ("versus: interrupted" if code else "You leave the game.") in command.text
