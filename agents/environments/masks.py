"""Action masks: which actions an environment allows next; knows no torch.

An environment offers them as gymnasium's do, `info["action_mask"]` of every reset and step, or as an
entry "action_mask" of its Dict observations, which is then taken out of what the network sees. Ones
are allowed: [n] for Discrete; for several actions at once the masks of all components one after the
other, or a tuple of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from agents.spaces import Interface
from config.errors import BadInput, Diverged

KEY = "action_mask"


class MaskFromObservation(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Takes the mask out of a Dict observation and puts it into the info; a single entry that is
    left is the observation itself, so that an image stays one.
    """

    def __init__(self, environment: gymnasium.Env[Any, Any]) -> None:
        super().__init__(environment)
        entries: Any = environment.observation_space
        kept = {name: space for name, space in entries.items() if name != KEY}
        self._only = next(iter(kept)) if len(kept) == 1 else None
        self.observation_space = kept[self._only] if self._only else spaces.Dict(kept)

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """See `gymnasium.Env.reset`."""
        return self._taken_out(*self.env.reset(**arguments))

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """See `gymnasium.Env.step`."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        observation, info = self._taken_out(observation, info)
        return observation, reward, terminated, truncated, info

    def _taken_out(self, observation: Any, info: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        info = {**info, KEY: observation[KEY]}
        if self._only:
            return observation[self._only], info
        return {name: value for name, value in observation.items() if name != KEY}, info


def is_in_observation(space: spaces.Space[Any]) -> bool:
    """Whether observations hold a mask and something else."""
    return isinstance(space, spaces.Dict) and KEY in space.spaces and len(space.spaces) > 1


def mask(info: Mapping[str, Any], interface: Interface, game: str) -> np.ndarray | None:
    """The mask in a single environment's info, bool [P], or None. Raises `BadInput` for another
    size.
    """
    given = info.get(KEY)
    if given is None or interface.continuous:
        return None
    parts = given if isinstance(given, tuple | list) else (given,)
    found = np.concatenate([np.ravel(part) for part in parts])
    if len(found) != interface.policy_outputs:
        raise BadInput(
            f"game {game!r} gives an action mask of {len(found)} numbers; allowed: {interface.policy_outputs}, one for each action"
        )
    return found.astype(np.bool_)


def masks(info: Mapping[str, Any], count: int, interface: Interface, game: str) -> np.ndarray:
    """The masks in a vector environment's info, bool [count, P]. Environments without one allow
    everything.
    """
    found = np.ones((count, interface.policy_outputs), np.bool_)
    # gymnasium's vectors mark in "_name" which environments gave the entry "name".
    for place in np.flatnonzero(info.get(f"_{KEY}", ())):
        found[place] = mask({KEY: info[KEY][place]}, interface, game)
    return found


def allowed_action(space: spaces.Space[Any], info: Mapping[str, Any]) -> Any:
    """A random one, of a Discrete space one that the mask of this info allows."""
    if KEY not in info or not isinstance(space, spaces.Discrete):
        return space.sample()
    return space.sample(mask=np.asarray(info[KEY], np.int8))


def check_some_action(masks: np.ndarray, choices: Sequence[int], when: str) -> None:
    """Raise `Diverged` for an environment that allows nothing; masks [N, P], choices: of each
    component.
    """
    begins = np.cumsum([0, *choices[:-1]])
    # Every component must allow at least one of its choices.
    (stuck,) = np.nonzero(~np.logical_or.reduceat(masks, begins, axis=1).all(axis=1))
    if len(stuck):
        raise Diverged(f"environment {stuck[0]} allows no action, at {when}: {KEY} has only zeros")
