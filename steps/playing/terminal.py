"""A game in the terminal: the person types one line for each action."""

from __future__ import annotations

from agents.games.boards import STONES, board_of
from config.errors import BadInput, printable, shown
from steps.playing.session import COLOURS, Session

COMMANDS = "a number plays; u takes back, h asks the opponent for a hint, q quits, ? shows this"
SHOWN_SHARES = 5
"""Number of the opponent's favourite actions that are shown."""


def play(session: Session) -> None:
    """Play until the game is over, or the person quits with q or the end of input (Ctrl-D)."""
    person = COLOURS[session.person]
    print(
        f"You are {person}, {session.opponent.name} is {COLOURS[1 - session.person]}: {COMMANDS}."
    )
    print(board_text(session))
    while not session.is_over:
        try:
            asked = input(f"{person}> ").strip().lower()
        except EOFError:
            print()
            asked = "q"
        if asked in ("q", "quit", "exit"):
            print("You leave the game.")
            return
        try:
            answer = _answered(session, asked)
        except BadInput as error:
            answer = str(error)
        print(answer)
    print(ended(session))


def ended(session: Session) -> str:
    """The result in a sentence."""
    who = {1: "You win", -1: f"{session.opponent.name} wins", 0: "A draw"}[session.result]
    return f"{who} after {len(session.actions)} plies."


def board_text(session: Session) -> str:
    """The position with the numbers of the legal actions, and what was played since the person's
    last turn.
    """
    state = session.state[0]
    legal = session.legal()
    board = board_of(session.game, state)
    if board is None:
        lines = [printable(line) for line in session.game.show(state).splitlines()]
    else:
        texts = [[STONES[cell] for cell in row] for row in board.cells]
        height, width = board.cells.shape
        if board.cell_actions:
            for action in (one for one in legal if one < height * width):
                texts[action // width][action % width] = str(action)
        if board.column_actions:
            texts.append([str(column) if column in legal else " " for column in range(width)])
        size = len(str(session.game.actions - 1))
        lines = [" ".join(text.rjust(size) for text in row).rstrip() for row in texts]
    answers = _since_own_turn(session)
    if answers:
        lines.append(f"{session.opponent.name} played {', '.join(map(str, answers))}")
    if legal:
        lines.append(f"legal: {' '.join(map(str, legal))}")
    return "\n".join(["", *lines])


def opinion_text(session: Session) -> str:
    """What the opponent would do, and its value, in a line."""
    choices = session.opinion()
    text = f"{session.opponent.name} would play {int(choices.actions[0])}"
    if choices.value is not None:
        # Adding 0.0 turns -0.0 into 0.0, which is then written as +0.00.
        text += f"; value {choices.value[0] + 0.0:+.2f} for you (-1 lost … 1 won)"
    if choices.policy is not None:
        policy = choices.policy[0]
        best = sorted(session.legal(), key=lambda action: -policy[action])
        shares = (f"{action}: {policy[action]:.0%}" for action in best[:SHOWN_SHARES])
        text += f"; policy {', '.join(shares)}"
    return text


def _answered(session: Session, asked: str) -> str:
    """Carry out a line of the person's input. Raises `BadInput` for a line without meaning."""
    if asked in ("?", "help", ""):
        return COMMANDS
    if asked in ("h", "hint"):
        return opinion_text(session)
    if asked in ("u", "undo"):
        session.undo()
    elif asked.isascii() and asked.isdecimal() and len(asked) <= 6:
        session.play(int(asked))
    else:
        raise BadInput(f"{shown(asked)} is no move: {COMMANDS}")
    return board_text(session)


def _since_own_turn(session: Session) -> list[int]:
    movers = session.movers
    own = [ply for ply, mover in enumerate(movers) if mover == session.person]
    first = own[-1] + 1 if own else 0
    return session.actions[first:]
