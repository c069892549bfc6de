"""One rollout: T steps of N environments, collected with one network call for all environments per step."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from agents.actions import Actions
from agents.environments import TrainingEnvironments
from agents.interfaces import State
from agents.networks import Network
from agents.normalisation import ObservationNormaliser
from config.errors import Diverged


@dataclass(slots=True)
class Rollout:
    """Row t of environment n: what was seen, done and answered. Allocated once, overwritten by every rollout.

    encoded [T + 1, N, ...], policy [T, N, P], values [T + 1, N], actions [T, N] or [T, N, A]: tensors where the network is.
    Row T is where the next rollout starts: its value is what row T - 1 bootstraps from.
    observations [T, N, ...]: as the environment gave them, kept only for the normaliser;
    rewards (the game's own), terminated, truncated, life_lost, valid [T, N]: arrays. valid: False where the action was forced:
    nothing is learnt from it. final_values: of the observations that truncated episodes ended with, by (t, n).
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
    final_values: dict[tuple[int, int], float] = field(default_factory=dict)

    @property
    def next_values(self) -> np.ndarray:
        """V of what followed each row, [T, N]; after a truncation that is the final observation."""
        values: np.ndarray = self.values[1:].numpy(force=True).copy()
        for place, value in self.final_values.items():
            values[place] = value
        return values

    @staticmethod
    def allocate(environments: TrainingEnvironments, network: Network, actions: Actions, length: int, *, observations: bool) -> Rollout:
        """Space for `length` steps."""
        count, spaces = environments.count, environments.interface
        device = next(network.parameters()).device
        example = network.encode(torch.from_numpy(environments.observation[:1]))
        terminated, truncated, life_lost, valid = (np.zeros((length, count), np.bool_) for _ in range(4))
        return Rollout(
            torch.zeros(length + 1, count, *example.shape[1:], dtype=example.dtype, device=device),
            torch.zeros(length, count, actions.parameters, device=device),
            torch.zeros(length + 1, count, device=device),
            torch.zeros(length, count, dtype=torch.int64, device=device)
            if spaces.discrete
            else torch.zeros(length, count, spaces.actions, device=device),
            np.zeros((length, *environments.observation.shape), environments.observation.dtype) if observations else None,
            np.zeros((length, count), np.float32),
            terminated,
            truncated,
            life_lost,
            valid,
        )


@torch.inference_mode()
def collect(
    rollout: Rollout,
    environments: TrainingEnvironments,
    network: Network,
    actions: Actions,
    normaliser: ObservationNormaliser | None,
    generator: torch.Generator,
    *,
    step: int,
) -> None:
    """Fill `rollout` with the policy's sampled actions; raises `Diverged` for a NaN, counting from environment step `step`.

    While one group of environments is looked at, the other ones step.
    """
    length, device = len(rollout.rewards), rollout.values.device
    network_now = network.frozen()
    noise = actions.noise(tuple(rollout.rewards.shape), generator).to(device)
    columns = (rollout.encoded, rollout.policy, rollout.values, rollout.actions, noise)
    views = [[column[:, rows].unbind() for column in columns] for rows in environments.groups]
    finals = dict[tuple[int, int], np.ndarray]()
    for t in range(length):
        for group, (encoded, policies, values, taken, noises) in enumerate(views):
            if t > 0:
                _receive(rollout, environments, group, t - 1, step, finals)
            encoded[t].copy_(_encoded(rollout, environments, network, normaliser, group, t))
            policy, value = network_now(encoded[t])
            action = actions.choose(policy, noises[t])
            policies[t].copy_(policy)
            values[t].copy_(value)
            taken[t].copy_(action)
            rollout.valid[t, environments.groups[group]] = ~environments.forced[environments.groups[group]]
            environments.send(group, action.numpy(force=True))
    for group, (encoded, _, values, _, _) in enumerate(views):
        _receive(rollout, environments, group, length - 1, step, finals)
        encoded[length].copy_(_encoded(rollout, environments, network, normaliser, group, length))
        values[length].copy_(network_now(encoded[length])[1])
    rollout.final_values = _final_values(finals, network, normaliser, device, environments.count)
    bad_rows = np.flatnonzero(~np.isfinite(rollout.rewards).all(axis=1))
    if len(bad_rows):
        first = int(bad_rows[0])
        raise _not_finite("reward", rollout.rewards[first], step + (first + 1) * environments.count)


def _receive(
    rollout: Rollout,
    environments: TrainingEnvironments,
    group: int,
    t: int,
    step: int,
    finals: dict[tuple[int, int], np.ndarray],
) -> None:
    """The answers of one group to the actions of row t; finals: what truncated episodes ended with, by (t, n)."""
    rows = environments.groups[group]
    answer = environments.receive(group)
    rollout.rewards[t, rows], rollout.terminated[t, rows], rollout.truncated[t, rows] = answer.reward, answer.terminated, answer.truncated
    if answer.life_lost is not None:
        rollout.life_lost[t, rows] = answer.life_lost
    _check_finite(answer.observation, step + (t + 1) * environments.count)
    if len(answer.ended):
        _check_finite(environments.observation[rows], step + (t + 1) * environments.count)
    for n in answer.ended.tolist():
        if answer.truncated[n] and not answer.terminated[n]:
            finals[t, rows.start + n] = answer.observation[n].copy()


def _final_values(
    finals: dict[tuple[int, int], np.ndarray],
    network: Network,
    normaliser: ObservationNormaliser | None,
    device: torch.device,
    at_once: int,
) -> dict[tuple[int, int], float]:
    """V of the final observations, by (t, n); at most `at_once` rows a pass, no more memory than a step takes."""
    network_now = network.frozen()
    found = dict[tuple[int, int], float]()
    places = sorted(finals)
    for first in range(0, len(places), at_once):
        part = places[first : first + at_once]
        observations = np.stack([finals[place] for place in part])
        if normaliser is not None:
            observations = normaliser(observations)
        values = network_now(network.encode(torch.from_numpy(observations)).to(device))[1]
        found.update(zip(part, values.tolist(), strict=True))
    return found


def _encoded(
    rollout: Rollout, environments: TrainingEnvironments, network: Network, normaliser: ObservationNormaliser | None, group: int, t: int
) -> Tensor:
    """The observation of row t, normalised and encoded, on the CPU."""
    rows = environments.groups[group]
    observation = environments.observation[rows]
    if normaliser is not None:
        if rollout.observations is not None and t < len(rollout.observations):
            rollout.observations[t, rows] = observation
        observation = normaliser(observation)
    return network.encode(torch.from_numpy(observation))


def _check_finite(observation: np.ndarray, step: int) -> None:
    """Raise `Diverged` for an observation [n, ...] with a number that is not finite."""
    if observation.dtype.kind == "f" and not np.isfinite(observation).all():
        raise _not_finite("observation", observation, step)


def _not_finite(field: str, numbers: np.ndarray, step: int) -> Diverged:
    """Numbers [N, ...]: the first environment with a number that is not finite."""
    environment = int(np.flatnonzero(~np.isfinite(numbers).reshape(len(numbers), -1).all(axis=1))[0])
    return Diverged(f"environment {environment} gave a {field} that is not finite, {numbers[environment]}, at step {step}")


class Episodes:
    """Returns and lengths of episodes, in the game's own rewards and in environment steps, across rollouts.

    Every row counts: the lengths of all that ended and of those in flight are the steps of the training.
    """

    def __init__(self, num_envs: int) -> None:
        self._return, self._length = np.zeros(num_envs), np.zeros(num_envs, np.int64)

    def finish(self, rewards: np.ndarray, ended: np.ndarray) -> tuple[list[float], list[int]]:
        """rewards, ended [T, N] -> (returns, lengths) of the episodes that ended, in the order of their ends."""
        totals = np.cumsum(rewards, axis=0, dtype=np.float64) + self._return
        returns, lengths = list[float](), list[int]()
        return_before, rows_before = np.zeros_like(self._return), -self._length
        for t, n in np.argwhere(ended):
            returns.append(float(totals[t, n] - return_before[n]))
            lengths.append(int(t + 1 - rows_before[n]))
            return_before[n], rows_before[n] = totals[t, n], t + 1
        self._return, self._length = totals[-1] - return_before, len(rewards) - rows_before
        return returns, lengths

    def forget(self, environments: np.ndarray) -> None:
        """What is in flight in these environments, bool [N], could not be brought back."""
        self._return[environments], self._length[environments] = 0, 0

    def state_dict(self) -> State:
        """return, length [N] of the episodes in flight."""
        return {"return": self._return.copy(), "length": self._length.copy()}

    def load_state_dict(self, state: State) -> None:
        """What `state_dict` gave."""
        self._return, self._length = np.array(state["return"]), np.array(state["length"])
