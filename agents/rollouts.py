"""One rollout: T steps of N environments, collected with one network call for all environments per step."""

from __future__ import annotations

from dataclasses import dataclass

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

    encoded [T + 1, N, ...], policy [T, N, P], values [T + 1, N], actions [T, N] or [T, N, A]: tensors where the network is;
    observations [T, N, ...]: as the environment gave them, kept only for the normaliser;
    rewards (the game's own), terminated, truncated, life_lost, valid [T, N]: arrays. valid: False in the dummy row that
    follows an end. Row T is where the next rollout starts: its value is what row T - 1 bootstraps from.
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

    @staticmethod
    def allocate(environments: TrainingEnvironments, network: Network, actions: Actions, length: int, *, observations: bool) -> Rollout:
        """Space for `length` steps."""
        count, spaces = environments.count, environments.interface
        device = next(network.parameters()).device
        example = network.encode(torch.from_numpy(environments.observation[:1]))
        flags = (np.zeros((length, count), np.bool_) for _ in range(4))
        return Rollout(
            torch.zeros(length + 1, count, *example.shape[1:], dtype=example.dtype, device=device),
            torch.zeros(length, count, actions.parameters, device=device),
            torch.zeros(length + 1, count, device=device),
            torch.zeros(length, count, dtype=torch.int64, device=device)
            if spaces.discrete
            else torch.zeros(length, count, spaces.actions, device=device),
            np.zeros((length, *environments.observation.shape), environments.observation.dtype) if observations else None,
            np.zeros((length, count), np.float32),
            *flags,
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
    for t in range(length):
        for group, (encoded, policies, values, taken, noises) in enumerate(views):
            if t > 0:
                _receive(rollout, environments, group, t - 1, step)
            encoded[t].copy_(_encoded(rollout, environments, network, normaliser, group, t))
            policy, value = network_now(encoded[t])
            action = actions.choose(policy, noises[t])
            policies[t].copy_(policy)
            values[t].copy_(value)
            taken[t].copy_(action)
            environments.send(group, action.numpy(force=True))
    for group, (encoded, _, values, _, _) in enumerate(views):
        _receive(rollout, environments, group, length - 1, step)
        encoded[length].copy_(_encoded(rollout, environments, network, normaliser, group, length))
        values[length].copy_(network_now(encoded[length])[1])
    environments.remember(rollout.actions.numpy(force=True))
    bad_rows = np.flatnonzero(~np.isfinite(rollout.rewards).all(axis=1))
    if len(bad_rows):
        first = int(bad_rows[0])
        raise _not_finite("reward", rollout.rewards[first], step + int(rollout.valid[: first + 1].sum()))


def _receive(rollout: Rollout, environments: TrainingEnvironments, group: int, t: int, step: int) -> None:
    """The answers of one group to the actions of row t."""
    rows = environments.groups[group]
    rollout.valid[t, rows] = environments.valid[rows]
    answer = environments.receive(group)
    rollout.rewards[t, rows], rollout.terminated[t, rows], rollout.truncated[t, rows] = answer.reward, answer.terminated, answer.truncated
    if answer.life_lost is not None:
        rollout.life_lost[t, rows] = answer.life_lost
    if answer.observation.dtype.kind == "f" and not np.isfinite(answer.observation).all():
        raise _not_finite("observation", answer.observation, step + int(rollout.valid[: t + 1].sum()))


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


def _not_finite(field: str, numbers: np.ndarray, step: int) -> Diverged:
    """Numbers [N, ...]: the first environment with a number that is not finite."""
    environment = int(np.flatnonzero(~np.isfinite(numbers).reshape(len(numbers), -1).all(axis=1))[0])
    return Diverged(f"environment {environment} gave a {field} that is not finite, {numbers[environment]}, at step {step}")


class Episodes:
    """Returns and lengths of episodes, in the game's own rewards and in environment steps, across rollouts."""

    def __init__(self, num_envs: int) -> None:
        self._return, self._length = np.zeros(num_envs), np.zeros(num_envs, np.int64)

    def finish(self, rewards: np.ndarray, ended: np.ndarray, valid: np.ndarray) -> tuple[list[float], list[int]]:
        """rewards, ended, valid [T, N] -> (returns, lengths) of the episodes that ended, in the order of their ends."""
        totals = np.cumsum(rewards * valid, axis=0, dtype=np.float64) + self._return
        steps = np.cumsum(valid, axis=0) + self._length
        returns, lengths = list[float](), list[int]()
        return_before, steps_before = np.zeros_like(self._return), np.zeros_like(self._length)
        for t, n in np.argwhere(ended):
            returns.append(float(totals[t, n] - return_before[n]))
            lengths.append(int(steps[t, n] - steps_before[n]))
            return_before[n], steps_before[n] = totals[t, n], steps[t, n]
        self._return, self._length = totals[-1] - return_before, steps[-1] - steps_before
        return returns, lengths

    def restart(self) -> None:
        """The environments were seeded anew: the episodes in flight are left out."""
        self._return, self._length = np.zeros_like(self._return), np.zeros_like(self._length)

    def state_dict(self) -> State:
        """return, length [N] of the episodes in flight."""
        return {"return": self._return.copy(), "length": self._length.copy()}

    def load_state_dict(self, state: State) -> None:
        """What `state_dict` gave."""
        self._return, self._length = np.array(state["return"]), np.array(state["length"])
