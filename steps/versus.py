"""Play against a player as a command: `python -m steps.versus --game connect-four --opponent mcts-100`.

No step of the DAG: it writes nothing.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Sequence

from agents.arena.load import NAMES, load_player
from agents.games.load import OPENSPIEL, OURS, load_game
from config.errors import BadInput, shown
from steps.command.main import guarded
from steps.playing import terminal
from steps.playing.server import GameServer
from steps.playing.session import Session

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code of the command: 0 when the game was played or left, 130 after Ctrl-C."""
    parsed = _parser().parse_args(argv)
    return guarded("versus", lambda: versus(parsed))


def versus(parsed: argparse.Namespace) -> int:
    """Play the game that is asked for. Raises `BadInput` for an unknown game or opponent."""
    try:
        game = load_game(parsed.game)
        opponent = load_player(parsed.opponent, game)
        seed = secrets.randbits(32) if parsed.seed is None else parsed.seed
        if seed < 0:
            raise BadInput(f"--seed {shown(seed)}; allowed: 0 and more")
        session = Session(game, opponent, int(parsed.second), seed)
        if parsed.serve:
            serve(session)
        else:
            terminal.play(session)
    except KeyboardInterrupt:
        print("\nversus: interrupted", file=sys.stderr)
        return INTERRUPTED
    return 0


def serve(session: Session) -> None:
    """One page until Ctrl-C."""
    with GameServer(session) as server:
        print(f"Play at {server.address} in a browser of this machine; Ctrl-C ends.", flush=True)
        server.serve_forever()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m steps.versus",
        description="Play a game of two players against a player of this project. In the terminal, "
        f"{terminal.COMMANDS}.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--game",
        required=True,
        help=f"{', '.join(OURS)}, {OPENSPIEL}NAME, or your own as package.module:Name",
    )
    parser.add_argument(
        "--opponent",
        default="mcts-100",
        help=f"{', '.join(NAMES)}; the numbers are rollouts for each move (mcts) and plies ahead "
        "(minimax); by default %(default)s",
    )
    parser.add_argument("--second", action="store_true", help="the opponent begins")
    parser.add_argument(
        "--serve",
        action="store_true",
        help="on a page, for browsers of this machine only, instead of in the terminal",
    )
    parser.add_argument(
        "--seed", type=int, help="of the opponent's chance; by default another one each time"
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
