"""Whether an experiment's game can be made here, and played by its algorithm."""

from __future__ import annotations

from config.resolve import Resolved


def check_playable(resolved: Resolved) -> None:
    """Make the game once, and a person's own network for it; raises `BadInput` for the first thing
    that cannot be. Knows torch only where a network has to be tried, or a board game.
    """
    if resolved.game.is_board:
        from agents.selfplay.network import check_board_game

        check_board_game(resolved)
        return
    from agents.environments.training import check_game

    check_game(resolved)
