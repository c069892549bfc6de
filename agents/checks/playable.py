"""Whether an experiment's game can be made here, and played by its algorithm."""

from __future__ import annotations

from config.errors import BadInput
from config.imports import is_import_path
from config.resolved import Resolved


def check_playable(resolved: Resolved) -> None:
    """Make the game once, and a person's own network for it; raises `BadInput` for the first thing
    that cannot be. Knows torch only where a network has to be tried, or a board game.
    """
    if resolved.game.is_board:
        # Imports torch, which a game for one player is checked without.
        from agents.selfplay.policy import check_board_game

        check_board_game(resolved)
        if is_import_path(resolved.game.id):
            _check_rules(resolved.game.id)
        return
    from agents.environments.game_check import check_game

    check_game(resolved)


def _check_rules(name: str) -> None:
    """Refuse a person's own board game that breaks a promise: workers would find it hours later."""
    from agents.checks.game_checks import GameChecks
    from agents.checks.promises import tried
    from agents.games.named import load_game

    for finding in tried(GameChecks(lambda: load_game(name)).all()):
        if not finding.kept:
            raise BadInput(
                f"game {name!r} breaks a promise, {finding.promise}: {finding.seen}; "
                f"python -m steps.check {name} tries them all"
            )
