"""One person's game against a player, however it is shown."""

from __future__ import annotations

import numpy as np

from agents.arena.players import Choices, Player, results
from agents.games.rules import Game, States
from config.errors import BadInput, shown
from config.imports import reason

COLOURS = "XO"


class Session:
    """person: the person's colour; 0 moves first. Whenever a method returns, the opponent has
    answered: it is the person's turn, or the game is over.

    All chance comes from the seed and the number of plies, so whoever takes a move back and plays
    it again gets the same answer.
    """

    def __init__(self, game: Game, opponent: Player, person: int, seed: int) -> None:
        self.game = game
        self.opponent = opponent
        self.person = person
        self.seed = seed
        self.states = [game.start(1)]
        self.actions = list[int]()
        self._answer()

    @property
    def state(self) -> States:
        """The position [1]."""
        return self.states[-1]

    @property
    def is_over(self) -> bool:
        """Whether the game has ended."""
        return bool(self.game.outcome(self.state)[0][0])

    @property
    def result(self) -> int:
        """1 if the person has won, -1 if the opponent has, else 0."""
        return int(results(self.game, self.state, np.array([self.person]))[1][0])

    @property
    def movers(self) -> list[int]:
        """The player of each action."""
        return [int(self.game.mover(state)[0]) for state in self.states[:-1]]

    def legal(self) -> list[int]:
        """The person's legal actions; none at the end."""
        actions: list[int] = np.flatnonzero(self.game.legal(self.state)[0]).tolist()
        return actions

    def play(self, action: int) -> None:
        """Play the person's action and the opponent's answer. Raises `BadInput` for an illegal
        action, and if the opponent cannot answer.
        """
        if self.is_over:
            raise BadInput("the game is over")
        legal = self.legal()
        if action not in legal:
            allowed = ", ".join(map(str, legal))
            raise BadInput(f"{shown(action)} is not legal; allowed: {allowed}")
        kept = len(self.actions)
        try:
            self._do(action)
            self._answer()
        except BaseException:
            # The opponent could not move: without its answer, the person's move is taken back, too.
            # Otherwise the person would play the opponent's colour from now on.
            self._cut(kept)
            raise

    def undo(self) -> None:
        """Take back the person's latest action and everything after it. Raises `BadInput` if there
        is none.
        """
        own = [ply for ply, mover in enumerate(self.movers) if mover == self.person]
        if not own:
            raise BadInput("you have not played yet: nothing can be taken back")
        self._cut(own[-1])

    def opinion(self) -> Choices:
        """What the opponent would do in the person's place, and its value of the position [1].

        Raises `BadInput` at the end.
        """
        if self.is_over:
            raise BadInput("the game is over")
        return self._choose()

    def _answer(self) -> None:
        while not self.is_over and int(self.game.mover(self.state)[0]) != self.person:
            self._do(int(self._choose().actions[0]))

    def _choose(self) -> Choices:
        """The opponent's choice here. Raises `BadInput` if it fails or chooses what is not allowed."""
        generator = np.random.default_rng([self.seed, len(self.actions)])
        try:
            choices = self.opponent.choose(self.state, [generator])
            action = int(choices.actions[0])
        except BadInput:
            raise
        except Exception as error:
            raise BadInput(f"{self.opponent.name} cannot move: {reason(error)}") from error
        if action not in self.legal():
            raise BadInput(f"{self.opponent.name} chose {action}, which is not legal")
        return choices

    def _do(self, action: int) -> None:
        self.states.append(self.game.play(self.state, np.array([action])))
        self.actions.append(action)

    def _cut(self, plies: int) -> None:
        del self.states[plies + 1 :], self.actions[plies:]
