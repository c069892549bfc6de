"""Collects one rollout: T steps of N environments, with one network call for all environments per
step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agents.devices import Ferry, copy_into, on_device
from agents.environments.masks import check_some_action
from agents.environments.normalisation import ObservationNormaliser
from agents.environments.training import TrainingEnvironments
from agents.interfaces import State
from agents.networks.action_distributions import Actions, masked
from agents.networks.actor_critic import Heads
from config.errors import Diverged


@dataclass(slots=True)
class Rollout:
    """Row t of environment n: what was seen, done and answered. Allocated once, overwritten by
    every rollout.

    encoded [T + 1, N, ...], policy [T, N, P], values [T + 1, N], actions [T, N] or [T, N, A]:
    tensors where the network is. Row T is where the next rollout starts: its value is what row T -
    1 bootstraps from. observations [T, N, ...]: as the environment gave them, kept only for the
    normaliser; rewards (the game's own), terminated, truncated, life_lost, valid [T, N]: arrays.
    valid: False where the action was forced: nothing is learnt from it. final_values: of the
    observations that truncated episodes ended with, by (t, n). masks [T, N, P]: the actions that
    were allowed, where the environment says so; `policy` is masked already.
    """

    encoded: Tensor
    policy: Tensor
    values: Tensor
    actions: Tensor
    observations: np.ndarray | None
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    life_lost: np.ndarray
    valid: np.ndarray
    ferries: list[Ferry]
    masks: Tensor | None = None
    final_values: dict[tuple[int, int], Tensor | float] = field(default_factory=dict)

    @property
    def next_values(self) -> Tensor:
        """V of what followed each row, [T, N]; after a truncation that is the final observation."""
        values = self.values[1:].clone()
        for place, value in self.final_values.items():
            values[place] = value
        return values

    @staticmethod
    def allocate(
        environments: TrainingEnvironments,
        network: Heads,
        actions: Actions,
        length: int,
        *,
        observations: bool,
    ) -> Rollout:
        """Space for `length` steps."""
        count = environments.count
        spaces = environments.interface
        device = next(network.parameters()).device
        example = network.encode(torch.from_numpy(environments.observation[:1]))
        of_action = () if spaces.discrete else (spaces.actions,)
        kind = torch.float32 if spaces.continuous else torch.int64
        seen: np.ndarray | None = None
        if observations:
            shape = (length, *environments.observation.shape)
            seen = np.zeros(shape, environments.observation.dtype)
        masks: Tensor | None = None
        if spaces.masked:
            shape = (length, count, actions.parameters)
            masks = torch.ones(shape, dtype=torch.bool, device=device)
        return Rollout(
            encoded=torch.zeros(
                length + 1, count, *example.shape[1:], dtype=example.dtype, device=device
            ),
            policy=torch.zeros(length, count, actions.parameters, device=device),
            values=torch.zeros(length + 1, count, device=device),
            actions=torch.zeros((length, count, *of_action), dtype=kind, device=device),
            observations=seen,
            rewards=np.zeros((length, count), np.float32),
            terminated=np.zeros((length, count), np.bool_),
            truncated=np.zeros((length, count), np.bool_),
            life_lost=np.zeros((length, count), np.bool_),
            valid=np.zeros((length, count), np.bool_),
            ferries=[Ferry(device) for _ in environments.groups],
            masks=masks,
        )


@torch.inference_mode()
def collect(
    rollout: Rollout,
    environments: TrainingEnvironments,
    network: Heads,
    actions: Actions,
    normaliser: ObservationNormaliser | None,
    generator: torch.Generator,
    *,
    step: int,
    network_now: Callable[..., tuple[Any, ...]] | None = None,
) -> None:
    """Fill `rollout` with the policy's sampled actions; raises `Diverged` for a NaN, counting from
    environment step `step`. network_now: the network in another form; its frozen functions without.

    A GPU is waited for once a step of each group: for the group's actions.
    """
    # Noise for the whole rollout is drawn at once: choosing an action is then one addition and one
    # comparison per step.
    noise = actions.noise(tuple(rollout.rewards.shape), generator)
    noise = on_device(noise, rollout.values.device)
    collection = Collection(
        rollout, environments, network, network_now or network.frozen(), actions, normaliser,
        noise, step,
    )  # fmt: skip
    fill(collection)


def fill(collection: Collection) -> None:
    """While one group of environments is looked at, the other ones step."""
    rollout = collection.rollout
    environments = collection.environments
    step = collection.step
    # Each group is a generator that pauses where another one may go on.
    turns = deque(collection.play(group) for group in range(len(environments.groups)))
    while turns:
        one = turns.popleft()
        if next(one, False):
            turns.append(one)
    # Rewards are checked once for the whole rollout, observations at every step, before the network
    # sees them.
    rollout.final_values = collection.final_values()
    bad_rows = np.flatnonzero(~np.isfinite(rollout.rewards).all(axis=1))
    if len(bad_rows):
        first = int(bad_rows[0])
        raise not_finite("reward", rollout.rewards[first], step + (first + 1) * environments.count)


@dataclass(slots=True)
class Collection:
    """The state that all groups share while a rollout is collected. network_now: the network's
    frozen functions. noise [T, N, ...]. step: where the rollout begins.

    finals: the final observations of truncated episodes, by (t, n). ready: the groups that have
    finished their rollout.
    """

    rollout: Rollout
    environments: TrainingEnvironments
    network: Heads
    network_now: Callable[..., tuple[Any, ...]]
    actions: Actions
    normaliser: ObservationNormaliser | None
    noise: Tensor
    step: int
    finals: dict[tuple[int, int], np.ndarray] = field(default_factory=dict)
    ready: set[int] = field(default_factory=set)

    def play(self, group: int) -> Iterator[bool]:
        """Collect one group's rollout. Yields True where another group may go on, because this
        one's environments step or reset.
        """
        environments = self.environments
        rollout = self.rollout
        rows = environments.groups[group]
        length = len(rollout.rewards)
        ferry = rollout.ferries[group]
        columns = (rollout.encoded, rollout.policy, rollout.values, rollout.actions, self.noise)
        # Views of all rows are made once: slicing five tensors at every step would cost more.
        encoded, policies, values, taken, noises = (column[:, rows].unbind() for column in columns)
        # Row T has a value, from which row T − 1 bootstraps, but no action.
        for t in range(length + 1):
            if t > 0:
                self._receive(group, t - 1)
            while self._others_go_first(group):
                yield True
            # Observations of new episodes are in place only now.
            environments.settle(group)
            ferry.send(encoded[t], self._encoded(group, t))
            policy, value = self._answer(group, t, encoded[t])
            values[t].copy_(value)
            if t < length:
                policy = masked(policy, self._masks(group, t))
                action = self.actions.choose(policy, noises[t])
                policies[t].copy_(policy)
                taken[t].copy_(action)
                np.logical_not(environments.forced[rows], out=rollout.valid[t, rows])
                # The next group is looked at while this one steps.
                environments.send(group, ferry.fetch(action))
                yield True
        self.ready.add(group)

    def _answer(self, group: int, t: int, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """Policy [n, P] and value [n] of the environments of a group in row t."""
        policy, value = self.network_now(encoded)
        return policy, value

    def _masks(self, group: int, t: int) -> Tensor | None:
        """The masks of a group in row t, [n, P]."""
        environments = self.environments
        rows = self.environments.groups[group]
        if environments.masks is None or self.rollout.masks is None:
            return None
        allowed = environments.masks[rows]
        spaces = environments.interface
        step = f"step {self.step + t * environments.count}"
        check_some_action(allowed, spaces.choices or (spaces.actions,), step)
        kept = self.rollout.masks[t, rows]
        copy_into(kept, torch.from_numpy(allowed))
        return kept

    def _others_go_first(self, group: int) -> bool:
        """Whether this group is being reset, and another one is not."""
        if not self.environments.resets(group):
            return False
        others = set(range(len(self.environments.groups))) - self.ready - {group}
        return not all(self.environments.resets(other) for other in others)

    def _receive(self, group: int, t: int) -> None:
        """The answers of one group to the actions of row t."""
        rollout = self.rollout
        rows = self.environments.groups[group]
        answer = self.environments.receive(group)
        rollout.rewards[t, rows] = answer.reward
        rollout.terminated[t, rows] = answer.terminated
        rollout.truncated[t, rows] = answer.truncated
        if answer.life_lost is not None:
            rollout.life_lost[t, rows] = answer.life_lost
        if len(answer.ended):
            check_finite(answer.observation, self.step + (t + 1) * self.environments.count)
        for n in answer.ended.tolist():
            if answer.truncated[n] and not answer.terminated[n]:
                # The observation is copied, because the next step overwrites it.
                self.finals[t, rows.start + n] = answer.observation[n].copy()

    def _encoded(self, group: int, t: int) -> Tensor:
        """The observation of row t, normalised and encoded, on the CPU."""
        observation = self.environments.observation[self.environments.groups[group]]
        check_finite(observation, self.step + t * self.environments.count)
        if self.normaliser is not None:
            kept = self.rollout.observations
            # Row T is row 0 of the next rollout, and counts there.
            if kept is not None and t < len(kept):
                kept[t, self.environments.groups[group]] = observation
            observation = self.normaliser(observation)
        return self.network.encode(torch.from_numpy(observation))

    def final_values(self) -> dict[tuple[int, int], Tensor | float]:
        """V of the final observations, [] each, by (t, n); a step's number of rows at once, which
        take no more memory than it does.
        """
        found = dict[tuple[int, int], Tensor | float]()
        places = sorted(self.finals)
        for first in range(0, len(places), self.environments.count):
            part = places[first : first + self.environments.count]
            observations = np.stack([self.finals[place] for place in part])
            if self.normaliser is not None:
                observations = self.normaliser(observations)
            encoded = self.network.encode(torch.from_numpy(observations))
            encoded = on_device(encoded, self.rollout.values.device)
            values = self._values(part, encoded).clone()
            found.update(zip(part, values.unbind(), strict=True))
        return found

    def _values(self, places: list[tuple[int, int]], encoded: Tensor) -> Tensor:
        """The values [n] of these episodes' final observations, encoded [n, ...]."""
        values: Tensor = self.network_now(encoded)[1]
        return values


def check_finite(observation: np.ndarray, step: int) -> None:
    """Raise `Diverged` for an observation [n, ...] with a number that is not finite."""
    if observation.dtype.kind == "f" and not np.isfinite(observation).all():
        raise not_finite("observation", observation, step)


def not_finite(field: str, numbers: np.ndarray, step: int) -> Diverged:
    """Numbers [N, ...]: the first environment with a number that is not finite."""
    finite = np.isfinite(numbers).reshape(len(numbers), -1).all(axis=1)
    environment = int(np.flatnonzero(~finite)[0])
    return Diverged(
        f"environment {environment} gave a {field} that is not finite, {numbers[environment]}, at step {step}"
    )


class Episodes:
    """Returns and lengths of episodes, in the game's own rewards and in environment steps, across
    rollouts.

    Every row counts: the lengths of all that ended and of those in flight are the steps of the
    training.
    """

    def __init__(self, num_envs: int) -> None:
        self._return = np.zeros(num_envs)
        self._length = np.zeros(num_envs, np.int64)

    def finish(self, rewards: np.ndarray, ended: np.ndarray) -> tuple[list[float], list[int]]:
        """rewards, ended [T, N] -> (returns, lengths) of the episodes that ended, in the order of
        their ends.
        """
        # Returns are differences of running totals. float64 keeps these exact for rewards that are
        # whole numbers.
        totals = np.cumsum(rewards, axis=0, dtype=np.float64) + self._return
        returns = list[float]()
        lengths = list[int]()
        return_before = np.zeros_like(self._return)
        rows_before = -self._length
        for t, n in np.argwhere(ended):
            returns.append(float(totals[t, n] - return_before[n]))
            lengths.append(int(t + 1 - rows_before[n]))
            return_before[n] = totals[t, n]
            rows_before[n] = t + 1
        self._return = totals[-1] - return_before
        self._length = len(rewards) - rows_before
        return returns, lengths

    def step(self, rewards: np.ndarray, ended: np.ndarray) -> tuple[list[float], list[int]]:
        """`finish` for one step; rewards [N], ended [k]: the places of episodes that ended."""
        self._return += rewards
        self._length += 1
        if not len(ended):
            return [], []
        returns = self._return[ended].tolist()
        lengths = self._length[ended].tolist()
        self._return[ended] = 0
        self._length[ended] = 0
        return returns, lengths

    def forget(self, environments: np.ndarray) -> None:
        """Drop the records of these environments, bool [N], whose episodes could not be brought
        back.
        """
        self._return[environments] = 0
        self._length[environments] = 0

    def state_dict(self) -> State:
        """return, length [N] of the episodes in flight."""
        return {"return": self._return.copy(), "length": self._length.copy()}

    def load_state_dict(self, state: State) -> None:
        """Load what `state_dict` gave."""
        self._return = np.array(state["return"])
        self._length = np.array(state["length"])
