"""A rollout of gymnasium's native CartPole as one function of machine code: the policy, the choice of
actions, the physics, and the next episodes with their seeds.

What it does to the environments is, to the last bit, what `agents.environments.vectors.CartPoles` and
`agents.environments.training` do one step after the other; `agents.compiled.fast_ppo` compares them
before a training relies on it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from agents.compiled import dense, lanes, passes
from agents.compiled.dense import CHUNK, NEXT, START, Floats, Ints, fewer, within
from agents.compiled.lanes import pointer
from agents.compiled.parts import compiled_from, part
from agents.compiled.passes import Layout, Scratch, by_pointers, forward

Doubles = npt.NDArray[np.float64]
Flags = npt.NDArray[np.uint8]
MULTIPLE = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)
NUMBERS = np.uint64(4)
S_11 = np.uint64(11)
S_27 = np.uint64(27)
S_30 = np.uint64(30)
S_31 = np.uint64(31)


class Physics(NamedTuple):
    """The attributes of gymnasium's `CartPoleVectorEnv` of these names."""

    gravity: float
    masspole: float
    total_mass: float
    length: float
    polemass_length: float
    force_mag: float
    tau: float
    theta_threshold_radians: float
    x_threshold: float
    low: float
    high: float
    max_episode_steps: int
    sutton_barto_reward: bool


class Poles(NamedTuple):
    """The environments: state [4, N], steps [N] of their episodes, seedings [N] so far."""

    state: Doubles
    steps: npt.NDArray[np.int32]
    seedings: Ints


class Seeds(NamedTuple):
    """The seed of environment n's k-th seeding: (k · N + n + first) · stride + start, in 31 bits; see
    `config.seeds.environment_seeds`.
    """

    start: int
    stride: int
    first: int


class Columns(NamedTuple):
    """What `agents.experience.rollouts.Rollout` has of these names; given [T, N, 4]: the observations
    as they are, whereas `encoded` is normalised; terminated, truncated: of 0 and 1; final_values
    [T, N]: set where an episode was truncated; last_ends [N]: the steps until the last end of an
    episode, 0 without one.
    """

    encoded: npt.NDArray[np.float32]
    given: npt.NDArray[np.float32]
    policy: npt.NDArray[np.float32]
    values: npt.NDArray[np.float32]
    actions: npt.NDArray[np.int64]
    rewards: npt.NDArray[np.float32]
    terminated: Flags
    truncated: Flags
    final_values: npt.NDArray[np.float32]
    last_ends: Ints


@part
def _columns_by_pointers(columns: Columns) -> Columns:
    """The columns as flat arrays."""
    return Columns(
        pointer(columns.encoded), pointer(columns.given), pointer(columns.policy),
        pointer(columns.values), pointer(columns.actions), pointer(columns.rewards),
        pointer(columns.terminated), pointer(columns.truncated), pointer(columns.final_values),
        pointer(columns.last_ends),
    )  # fmt: skip


@part
def _move(state: Doubles, count: int, n: int, action: int, physics: Physics) -> bool:
    """One step of environment n; whether the episode is over. In the order of gymnasium's operations."""
    x = state[n]
    x_dot = state[count + n]
    theta = state[2 * count + n]
    theta_dot = state[3 * count + n]
    force = physics.force_mag if action == 1 else -physics.force_mag
    costheta = math.cos(theta)
    sintheta = math.sin(theta)
    temp = (
        force + physics.polemass_length * (theta_dot * theta_dot) * sintheta
    ) / physics.total_mass
    thetaacc = (physics.gravity * sintheta - costheta * temp) / (
        physics.length * (4.0 / 3.0 - physics.masspole * (costheta * costheta) / physics.total_mass)
    )
    xacc = temp - physics.polemass_length * thetaacc * costheta / physics.total_mass
    x = x + physics.tau * x_dot
    x_dot = x_dot + physics.tau * xacc
    theta = theta + physics.tau * theta_dot
    theta_dot = theta_dot + physics.tau * thetaacc
    state[n] = x
    state[count + n] = x_dot
    state[2 * count + n] = theta
    state[3 * count + n] = theta_dot
    limit = physics.theta_threshold_radians
    over: bool = (
        x < -physics.x_threshold or x > physics.x_threshold or theta < -limit or theta > limit
    )
    return over


@part
def _begin(poles: Poles, n: int, count: int, seeds: Seeds, physics: Physics) -> None:
    """The first state of environment n's next episode, as `config.seeds.uniform` draws it."""
    place = poles.seedings[n] * count + n + seeds.first
    seed = np.uint64((place * seeds.stride + seeds.start) & 0x7FFFFFFF)
    for one in range(4):
        mixed = (seed * NUMBERS + np.uint64(one + 1)) * MULTIPLE
        mixed = (mixed ^ (mixed >> S_30)) * MIX_1
        mixed = (mixed ^ (mixed >> S_27)) * MIX_2
        uniform = float((mixed ^ (mixed >> S_31)) >> S_11) * 2.0**-53
        poles.state[one * count + n] = physics.low + (physics.high - physics.low) * uniform
    poles.steps[n] = 0
    poles.seedings[n] += 1


@part
def _see(
    state: Doubles,
    count: int,
    n: int,
    mean: Floats,
    inverse_deviation: Floats,
    clip: float,
    seen: Floats,
    at: int,
) -> None:
    """Into seen [at : at + 4] the observation, normalised unless `clip` is 0."""
    for one in range(4):
        number = np.float32(state[one * count + n])
        if clip > 0:
            number = (number - mean[one]) * inverse_deviation[one]
            number = np.float32(within(number, -clip, clip))
        seen[at + one] = number


@compiled_from(dense, lanes, passes)
def roll(
    layout: Layout, parameters: Floats, scratch: Scratch, poles: Poles, physics: Physics,
    seeds: Seeds, mean: Floats, inverse_deviation: Floats, clip: float,
    noise: npt.NDArray[np.float32], columns: Columns,
) -> None:  # fmt: skip
    """Fill all columns with T steps of N environments. noise [T, N, 2]: of the actions; mean and
    inverse_deviation [4]: of observations; clip: of normalised ones, 0 for those as they are.
    """
    length, count, _ = noise.shape
    numbers, memory = by_pointers(layout, scratch)
    weights = pointer(parameters)
    means = pointer(mean)
    scales = pointer(inverse_deviation)
    state = Poles(pointer(poles.state), pointer(poles.steps), pointer(poles.seedings))
    gumbel = pointer(noise)
    is_given = len(columns.given) > 0
    filled = _columns_by_pointers(columns)
    for n in range(count):
        filled.last_ends[n] = 0
    for t in range(length + 1):
        for first in range(0, count, CHUNK):
            rows = fewer(CHUNK, count - first)
            for row in range(rows):
                n = first + row
                _see(state.state, count, n, means, scales, clip, memory.seen, 4 * row)
                for one in range(4):
                    place = 4 * (t * count + n) + one
                    filled.encoded[place] = memory.seen[4 * row + one]
                    if t < length and is_given:
                        filled.given[place] = state.state[one * count + n]
            forward(numbers, weights, memory, rows)
            for row in range(rows):
                place = t * count + first + row
                filled.values[place] = memory.value[row]
                if t < length:
                    filled.policy[2 * place] = memory.output[2 * row]
                    filled.policy[2 * place + 1] = memory.output[2 * row + 1]
        if t == length:
            return
        for n in range(count):
            place = t * count + n
            left = filled.policy[2 * place] + gumbel[2 * place]
            right = filled.policy[2 * place + 1] + gumbel[2 * place + 1]
            action = 1 if right > left else 0
            filled.actions[place] = action
            terminated = _move(state.state, count, n, action, physics)
            state.steps[n] += 1
            truncated = state.steps[n] >= physics.max_episode_steps
            filled.terminated[place] = 1 if terminated else 0
            filled.truncated[place] = 1 if truncated else 0
            filled.rewards[place] = 1
            if physics.sutton_barto_reward:
                filled.rewards[place] = -1 if terminated else 0
            if not (terminated or truncated):
                continue
            if truncated and not terminated:
                _see(state.state, count, n, means, scales, clip, memory.seen, START)
                forward(numbers, weights, memory, NEXT)
                filled.final_values[place] = memory.value[0]
            filled.last_ends[n] = t + 1
            _begin(state, n, count, seeds, physics)
