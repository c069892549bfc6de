"""Play against a player as a command: `python -m steps.versus --game connect-four --opponent mcts-100`,
or against an agent of self-play: `python -m steps.versus --opponent results/connect-four:2`.

No step of the DAG: it writes nothing.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Sequence

from agents.arena.opponents import NAMES, load_player, trained
from agents.arena.players import Player
from agents.games.named import OPENSPIEL, OURS, load_game
from agents.games.rules import Game
from config.ending import end
from config.errors import BadInput, shown
from config.ladder import is_directory
from steps.arena.entrants import agent_at
from steps.command.main import guarded
from steps.playing import terminal
from steps.playing.server import GameServer
from steps.playing.session import Session

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns 0 if the game was played or left, 130 after Ctrl-C."""
    parsed = _parser().parse_args(argv)
    return guarded("versus", lambda: versus(parsed))


def versus(parsed: argparse.Namespace) -> int:
    """Play the requested game. Raises `BadInput` for an unknown game or opponent."""
    try:
        game, opponent = _opponent(parsed.opponent, parsed.game)
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


def _opponent(name: str, game_name: str) -> tuple[Game, Player]:
    """The opponent, and its game: an agent plays its experiment's game."""
    if is_directory(name):
        policy = agent_at(name, game_name)
        return policy.game, trained(name, policy)
    if not game_name:
        raise BadInput(
            f"--game is missing: only a trained agent, a directory, says by itself what {shown(name)} plays"
        )
    game = load_game(game_name)
    return game, load_player(name, game)


def serve(session: Session) -> None:
    """Serve one page until Ctrl-C."""
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
        default="",
        help=f"{', '.join(OURS)}, {OPENSPIEL}NAME, or your own as package.module:Name; by default a trained "
        "agent's own",
    )
    parser.add_argument(
        "--opponent",
        default="mcts-100",
        help=f"{', '.join(NAMES)}; the numbers are rollouts for each move (mcts) and plies ahead "
        "(minimax). A trained agent as DIRECTORY[:RUN] of its experiment, with a slash in it, as in "
        "results/x or ./x:2. By default %(default)s",
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
    end(main())
