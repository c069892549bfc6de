"""The experience of an off-policy algorithm: environments that step, and the replay that they fill."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from agents.environments.masks import check_some_action
from agents.environments.normalisation import make_observation_normaliser
from agents.environments.training import TrainingEnvironments
from agents.experience.replay import Replay, replay_settings
from agents.experience.rollouts import Episodes, check_finite, not_finite
from agents.interfaces import Growth, State
from config.resolved import Resolved

Act = Callable[[np.ndarray, np.ndarray | None], np.ndarray]
"""Observations [N, ...], normalised where that is asked for, and the actions that are allowed there
[N, P] or None -> actions [N] or [N, A], in the policy's own units."""


class Collection:
    """One training's environments, their replay, and the record of their episodes.

    step: environment steps so far. The statistics of observations change between epochs only.
    """

    def __init__(self, resolved: Resolved, run: int) -> None:
        self.environments = TrainingEnvironments(resolved, run)
        self.spaces = self.environments.interface
        self.step = 0
        self.replay = Replay(self.spaces, self.environments.observation, replay_settings(resolved))
        self.normaliser = make_observation_normaliser(resolved, self.spaces)
        self._episodes = Episodes(self.environments.count)
        self._observed = list[np.ndarray]()
        self._rewards = list[np.ndarray]()
        self._ends = list[np.ndarray]()
        self._lost = np.zeros(self.environments.count, np.bool_)

    def take_step(self, act: Act) -> None:
        """Make one step of all environments. Raises `Diverged` if they return NaN."""
        environments = self.environments
        count = self.environments.count
        observation = environments.observation
        masks = environments.masks
        check_finite(observation, self.step)
        if masks is not None:
            choices = self.spaces.choices or (self.spaces.actions,)
            check_some_action(masks, choices, f"step {self.step}")
        if self.normaliser is not None:
            # The statistics leave out rows with a forced action, as all learning does.
            self._observed.append(observation[~environments.forced])
        actions = act(self.normalised(observation), masks)
        # The replay stores the observations before the step overwrites them.
        self.replay.see(observation, actions, environments.forced, masks)
        # All groups begin their step before the first answer is waited for.
        for group, rows in enumerate(environments.groups):
            environments.send(group, actions[rows])
        rewards = np.zeros(count, np.float32)
        ends = np.zeros(count, np.bool_)
        for group, rows in enumerate(environments.groups):
            answer = environments.receive(group)
            rewards[rows] = answer.reward
            ends[rows] = answer.terminated | answer.truncated
            if len(answer.ended):
                # A final observation is seen nowhere else than in the replay, so it is checked
                # here.
                check_finite(answer.observation, self.step + count)
            self.replay.answer(rows, answer)
        for group in range(len(environments.groups)):
            environments.settle(group)
        self.step += count
        if not np.isfinite(rewards).all():
            raise not_finite("reward", rewards, self.step)
        self._rewards.append(rewards)
        self._ends.append(ends)

    def normalised(self, observations: np.ndarray) -> np.ndarray:
        """[N, ...] as the networks see them, before they are encoded."""
        return observations if self.normaliser is None else self.normaliser(observations)

    def end_epoch(self) -> tuple[list[float], list[int]]:
        """Returns and lengths of the episodes that ended since this was last called; the statistics
        of observations learn.
        """
        ended = self._episodes.finish(np.stack(self._rewards), np.stack(self._ends))
        self._rewards = []
        self._ends = []
        if self.normaliser is not None:
            # Within an epoch all observations are normalised alike.
            self.normaliser.update(np.concatenate(self._observed))
            self._observed = []
        return ended

    def state_dict(self) -> State:
        """Everything but the replay's rows, which are streams; taken between epochs."""
        return {
            "step": self.step,
            "environments": self.environments.state_dict(),
            "replay": self.replay.state_dict(),
            "episodes": self._episodes.state_dict(),
            "observation_normaliser": self.normaliser.state_dict() if self.normaliser else {},
        }

    def load_state_dict(self, state: State, between: Callable[[], None] = lambda: None) -> None:
        """Load what `state_dict` gave. `load_streams` must follow."""
        self.step = int(state["step"])
        self.replay.load_state_dict(state["replay"])
        self._episodes.load_state_dict(state["episodes"])
        if self.normaliser is not None:
            self.normaliser.load_state_dict(state["observation_normaliser"])
        self._lost = self.environments.load_state_dict(state["environments"], between)
        # The record was just loaded, and still holds the lost episodes.
        self._episodes.forget(self._lost)

    def grown(self) -> dict[str, Growth]:
        """The replay's streams, as `agents.interfaces.HasStreams` has them."""
        return self.replay.grown()

    def load_streams(self, streams: Mapping[str, Iterator[dict[str, np.ndarray]]]) -> None:
        """Take back the replay's rows; raises `NoUsableState` for fewer than there were."""
        self.replay.load_streams(streams)
        # The last step of a lost episode can only be marked when its row is there.
        self.replay.lose(self._lost)

    def close(self) -> None:
        """Release the environments."""
        self.environments.close()
