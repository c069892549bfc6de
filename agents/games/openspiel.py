"""OpenSpiel's games (Lanctot et al. 2019, arXiv:1908.09453), one position at a time: `openspiel:hex`,
`openspiel:hex(board_size=5)`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from agents.games.one_at_a_time import OneAtATime
from config.errors import BadInput, on_one_line, shown, unknown

LONGEST = 512
"""A game that is still going on then is a draw, as AlphaZero's were after a maximum of moves
(arXiv:1712.01815): chess may by its rules take 17 695."""


class OpenSpielGame(OneAtATime):
    """states: `pyspiel.State`, copied before each action."""

    def __init__(self, name: str) -> None:
        """name: as OpenSpiel writes it. Raises `BadInput` for a game that is unknown, or has chance,
        hidden information, simultaneous moves, other than two players or no winner and loser, and
        where OpenSpiel is not installed.
        """
        self.spiel = _loaded(name)
        self.actions = int(self.spiel.num_distinct_actions())
        self.longest = min(int(self.spiel.max_game_length()), LONGEST)
        self._largest = float(self.spiel.max_utility())
        shape = list(self.spiel.observation_tensor_shape())
        # Networks take [C, H, W]: shorter shapes get leading ones.
        self._shape = [*[1] * (3 - len(shape)), *shape] if len(shape) < 3 else shape[-3:]

    def start(self) -> Any:
        """The first state."""
        return self.spiel.new_initial_state()

    def legal(self, state: Any) -> Iterable[int]:
        """The actions' numbers."""
        actions: list[int] = state.legal_actions()
        return actions

    def play(self, state: Any, action: int) -> Any:
        """On a copy."""
        after = state.clone()
        after.apply_action(action)
        return after

    def mover(self, state: Any) -> int:
        """The player's number."""
        return int(state.current_player())

    def result(self, state: Any) -> float | None:
        """What player 0 has won, as a share of the most that can be won."""
        if state.is_terminal():
            return float(state.returns()[0]) / self._largest
        return 0.0 if state.move_number() >= self.longest else None

    def encode(self, state: Any, mover: int) -> npt.ArrayLike:
        """OpenSpiel's own planes, most of which show both colours as they are, and one more that
        says whose turn it is.
        """
        seen = np.array(state.observation_tensor(mover), np.float32).reshape(self._shape)
        return np.concatenate([seen, np.full((1, *seen.shape[1:]), mover, np.float32)])

    def show(self, state: Any) -> str:
        """OpenSpiel's own text."""
        return str(state)


def _loaded(name: str) -> Any:
    try:
        import pyspiel
    except ImportError as error:
        raise BadInput(
            f"game {shown('openspiel:' + name)} needs OpenSpiel, which is not installed; "
            "allowed: pip install 'rl-training-dag[openspiel]'"
        ) from error
    # A name may have parameters: `hex(board_size=5)`.
    bare = name.partition("(")[0]
    if bare not in pyspiel.registered_names():
        known = (
            one.short_name for one in pyspiel.registered_games() if not _refusals(pyspiel, one)
        )
        raise unknown("game of OpenSpiel", bare, known)
    try:
        game = pyspiel.load_game(name)
    except Exception as error:
        raise BadInput(
            f"game {shown('openspiel:' + name)} cannot be made: {on_one_line(error)}"
        ) from error
    # The type allows a range of players, the loaded game has a number of them.
    refused = _refusals(pyspiel, game.get_type())
    if game.num_players() != 2:
        refused = [f"{game.num_players()} players", *refused]
    if refused:
        raise BadInput(
            f"game {shown('openspiel:' + name)} has {', '.join(refused)}; allowed: two players who take "
            "turns, no chance, nothing hidden, one wins what the other loses"
        )
    return game


def _refusals(pyspiel: Any, kind: Any) -> list[str]:
    """The reasons for which self-play cannot learn a game."""
    asked = pyspiel.GameType
    wrong = {
        "chance": kind.chance_mode != asked.ChanceMode.DETERMINISTIC,
        "simultaneous moves": kind.dynamics != asked.Dynamics.SEQUENTIAL,
        "hidden information": kind.information != asked.Information.PERFECT_INFORMATION,
        "returns that are not zero-sum": kind.utility != asked.Utility.ZERO_SUM,
        "no observation tensor": not kind.provides_observation_tensor,
        f"at least {kind.min_num_players} players": kind.min_num_players > 2,
        f"at most {kind.max_num_players} player": kind.max_num_players < 2,
    }
    return [what for what, is_so in wrong.items() if is_so]
