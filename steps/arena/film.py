"""Films evaluated games. A game is replayed move by move, and at each of the agent's own moves
after the opening its search is run once more, to show what it thinks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from agents.arena.matches import Turn, after
from agents.arena.opponents import trained
from agents.arena.players import Player, results
from agents.games.rules import Game
from config.errors import BadInput
from config.ladder import AGENT
from config.measures import WIN_RATE
from steps.arena.entrants import openings_of
from steps.arena.games import COLOURS, POINTS, Played, read_games
from steps.command.context import StepContext
from steps.figures.board import film
from steps.policy import final_policy

FRAMES_PER_SECOND = 1.0
END_S = 3
"""For how long the last position is shown."""


class GameFilm:
    """One evaluated game as frames [H, W, 3]. opening: number of its first plies that no player
    chose.
    """

    def __init__(self, player: Player, game: Game, played: Played, opening: int) -> None:
        self.player = player
        self.game = game
        self.played = played
        self.opening = opening

    def frames(self) -> Iterator[npt.NDArray[np.uint8]]:
        """Yield one frame for each turn. Raises `BadInput` for actions that are not a legal game."""
        names = [AGENT, self.played.opponent]
        if self.played.colour != COLOURS[0]:
            names.reverse()
        frame = None
        for frame in film(self.game, self._turns(), names):
            yield frame
        for _ in range(END_S - 1):
            if frame is not None:
                yield frame

    def difference(self) -> str | None:
        """Why this is not the game of the row, or None if it is."""
        state = after(self.game, np.array([self.played.actions]))
        colour = np.array([COLOURS.index(self.played.colour)])
        over, won = results(self.game, state, colour)
        points = POINTS * (1 + int(won[0])) / 2
        if not over[0]:
            return "the game goes on after its last move"
        same = points == self.played.points
        return None if same else f"it ends with {points:g} points, not {self.played.points:g}"

    def _turns(self) -> Iterator[Turn]:
        state = self.game.start(1)
        chance = [np.random.default_rng(0)]
        for ply, action in enumerate(self.played.actions):
            if self.game.outcome(state)[0][0] or not self.game.legal(state)[0, action]:
                raise BadInput(f"evaluation.csv: {action} is not legal in one of its games")
            mover = COLOURS[int(self.game.mover(state)[0])]
            policy = value = None
            if ply >= self.opening and mover == self.played.colour:
                thought = self.player.choose(state, chance)
                policy = None if thought.policy is None else thought.policy[0]
                value = None if thought.value is None else float(thought.value[0])
            yield Turn(state[0], action, policy, value)
            state = self.game.play(state, np.array([action]))
        yield Turn(state[0], -1, None, None)


def filmed_games(context: StepContext) -> list[GameFilm]:
    """The first games of evaluation.csv. Raises `BadInput` if there are too few."""
    path = context.require(context.run.evaluated(WIN_RATE), "evaluate")
    wanted = context.resolved.experiment.video_episodes
    games = read_games(path)
    if len(games) < wanted:
        raise BadInput(f"{path} has {len(games)} of {wanted} games: evaluate makes it")
    policy: Any = final_policy(context)[0]
    opening = openings_of(context.resolved, policy.game, context.run.index).shape[1]
    return [GameFilm(trained(AGENT, policy), policy.game, one, opening) for one in games[:wanted]]
