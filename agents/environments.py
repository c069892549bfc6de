"""Environments for training, evaluation and film; knows no torch.

Vectorised natively where the game offers it (ale-py, gymnasium's `vector_entry_point`), else one after the other: processes
are slower for cheap environments (measured: CartPole x 8, native 200 k steps/s, sync 130 k, async 18 k). All of them are in
`AutoresetMode.NEXT_STEP`: the step that ends an episode returns its final observation, and the next one ignores its action
and returns reward 0 and the reset observation. That row is a dummy: nothing may be learnt from it or counted.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import SyncVectorEnv, VectorEnv

from agents.atari import life_lost, make_atari
from agents.games import make_environment, make_or_refuse
from agents.interfaces import State
from agents.spaces import Interface, interface
from config.errors import ExperimentError
from config.games import check_installed
from config.resolve import Resolved
from config.seeds import integer_seed, seed_sequence

log = logging.getLogger(__name__)

RESEED_STEPS = 100_000
"""Environment steps between two re-seedings at least: bounds the log of actions and the time to replay it."""


@dataclass(slots=True)
class Transition:
    """What n environments answered to one action each; everything [n], observation [n, ...].

    life_lost: a training trick's end of an episode (Atari's `episodic_life`), no end of the game.
    """

    observation: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    life_lost: np.ndarray | None


class TrainingEnvironments:
    """N environments that a checkpoint can bring back: seeds, and the actions taken since they were seeded.

    Environments have no state that could be saved faithfully (gymnasium has no interface for it). So a checkpoint keeps the
    actions since the last seeding, and loading replays them through environments made anew. At a scheduled epoch, in
    undisturbed runs too, `reseed` starts over; the episodes in flight then count as truncated.

    observation [N, ...], valid [N]: where the next step starts, and whether its row is one to learn from.
    groups: the environments that step together. Atari's step on threads of their own: where torch has more than one, too, one
    half is emulated while the network looks at the other.
    """

    def __init__(self, resolved: Resolved, run: int) -> None:
        self._resolved, self._run = resolved, run
        self.count = resolved.hyperparameters.num_envs
        halves = resolved.game.kind == "atari" and resolved.experiment.threads > 1 and self.count > 1
        middle = -(-self.count // 2)
        self.groups = (slice(0, middle), slice(middle, self.count)) if halves else (slice(0, self.count),)
        self._episodic_life = resolved.game.kind == "atari" and resolved.hyperparameters.episodic_life
        self._made = list[VectorEnv[Any, Any, Any]]()
        self._answers = dict[int, Callable[[], Any]]()
        self.reseed(0)
        self.interface = interface(resolved.game.name, self._made[0].single_observation_space, self._made[0].single_action_space)

    def reseed(self, epoch: int) -> None:
        """Make the environments anew and reset them with seeds that belong to this epoch."""
        self.close()
        seeds = seed_sequence(self._resolved.experiment.seed, self._run, "environments", epoch).generate_state(self.count)
        self._made = [make_environments(self._resolved, rows.stop - rows.start) for rows in self.groups]
        resets = [reset(made, (seeds[rows] >> 1).astype(np.int64)) for made, rows in zip(self._made, self.groups, strict=True)]
        self.observation = np.concatenate([observation for observation, _ in resets])
        self.valid = np.ones(self.count, np.bool_)
        self._lives = np.concatenate([info["lives"] for _, info in resets]) if self._episodic_life else None
        self.seeded_at, self.actions = epoch, list[np.ndarray]()

    def send(self, group: int, actions: np.ndarray) -> None:
        """Start one step of a group; actions [n] or [n, A] in the policy's own units. Raises `ExperimentError` after `close`."""
        if not self._made:
            raise ExperimentError("the environments are closed")
        made: Any = self._made[group]
        taken = self.interface.environment_actions(actions)
        if len(self.groups) > 1:
            made.send(taken)
            self._answers[group] = made.recv
        else:
            self._answers[group] = functools.partial(made.step, taken)

    def receive(self, group: int) -> Transition:
        """The answer to what was sent, [n]."""
        rows = self.groups[group]
        observation, reward, terminated, truncated, info = self._answers[group]()
        self.observation[rows] = observation
        self.valid[rows] = ~(terminated | truncated)
        lost = None
        if self._lives is not None:
            lost = life_lost(self._lives[rows], info["lives"])
            self._lives[rows] = info["lives"]
        return Transition(observation, reward, terminated, truncated, lost)

    def step(self, actions: np.ndarray) -> list[Transition]:
        """One step of all groups; actions [N] or [N, A]."""
        for group, rows in enumerate(self.groups):
            self.send(group, actions[rows])
        return [self.receive(group) for group in range(len(self.groups))]

    def remember(self, actions: np.ndarray) -> None:
        """Log a rollout's actions, [T, N] or [T, N, A], in as few bytes as they need."""
        kind = np.min_scalar_type(self.interface.actions - 1) if self.interface.discrete else np.dtype(np.float32)
        self.actions.append(actions.astype(kind))

    def due(self) -> bool:
        """Enough steps since the last seeding."""
        return sum(len(block) for block in self.actions) * self.count >= RESEED_STEPS

    def state_dict(self) -> State:
        """seeded_at, actions [T, N, ...], and the observation [N, ...] that a replay must arrive at."""
        shape = (0, self.count) if self.interface.discrete else (0, self.count, self.interface.actions)
        actions = np.concatenate(self.actions) if self.actions else np.zeros(shape, np.uint8)
        return {"seeded_at": self.seeded_at, "actions": actions, "observation": self.observation.copy(), "valid": self.valid.copy()}

    def load_state_dict(self, state: State, epoch: int) -> bool:
        """Replay; False when the environment did not arrive where it was, and was re-seeded for `epoch` instead."""
        self.reseed(state["seeded_at"])
        for actions in state["actions"]:
            self.step(actions if not self.interface.discrete else actions.astype(np.int64))
        if np.array_equal(self.observation, state["observation"]) and np.array_equal(self.valid, state["valid"]):
            self.actions = [state["actions"]] if len(state["actions"]) else []
            return True
        log.warning(
            "%s is not a function of its seed and actions: the episodes in flight count as truncated, and equality with an "
            "undisturbed run is lost", self._resolved.game.name,
        )  # fmt: skip
        self.reseed(epoch)
        return False

    def close(self) -> None:
        """Release the environments."""
        for made in self._made:
            made.close()
        self._made = []


def make_environments(resolved: Resolved, count: int) -> VectorEnv[Any, Any, Any]:
    """`count` environments for training; raises `BadInput` when the game cannot be made."""
    game = resolved.game
    if game.kind == "atari":
        return make_atari(resolved, count)
    if game.kind == "native":
        environments: VectorEnv[Any, Any, Any] = make_or_refuse(
            game, lambda: gymnasium.make_vec(game.id, count, "vector_entry_point", vector_kwargs=dict(game.options))
        )
        if environments.metadata.get("autoreset_mode") is gymnasium.vector.AutoresetMode.NEXT_STEP:
            return environments
        environments.close()
    return SyncVectorEnv([lambda: make_environment(game)] * count, autoreset_mode=gymnasium.vector.AutoresetMode.NEXT_STEP)


def reset(environments: VectorEnv[Any, Any, Any], seeds: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
    """Reset with one seed for each environment, seeds [N]; gymnasium's native ones take only the first."""
    accepted: Any = int(seeds[0])
    if isinstance(environments, SyncVectorEnv):
        accepted = seeds.tolist()
    elif type(environments).__module__.startswith("ale_py"):
        accepted = seeds
    observations, info = environments.reset(seed=accepted)
    return observations, info


def check_game(resolved: Resolved) -> Interface:
    """Make the game once and look at its spaces; raises `BadInput` naming what is not supported."""
    check_installed(resolved.game)
    environments = make_environments(resolved, 1)
    try:
        return interface(resolved.game.name, environments.single_observation_space, environments.single_action_space)
    finally:
        environments.close()


def episode_seed(resolved: Resolved, run: int, episode: int) -> int:
    """The seed of one episode of evaluation; filming the same episode starts from the same one."""
    return integer_seed(resolved.experiment.seed, run, "evaluation", episode)
