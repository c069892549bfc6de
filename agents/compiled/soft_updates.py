"""The updates of soft actor-critic (`agents.algorithms.sac`) as two functions of machine code: of the
critics, and of the policy with all that follows it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from agents.compiled import clipped_loss, dense, descent, lanes, perceptrons
from agents.compiled.clipped_loss import LOG_2_PI
from agents.compiled.dense import CHUNK, START, Floats, fewer
from agents.compiled.descent import Descent, descend, descent_by_pointers, norm
from agents.compiled.lanes import LANES, pointer
from agents.compiled.parts import compiled_from, part
from agents.compiled.perceptrons import (
    Memory,
    Network,
    backward,
    by_inputs,
    clear_gradients,
    complete_gradients,
    forward,
    inputs_at,
    memory_by_pointers,
    network_by_pointers,
    outputs_at,
    turn_weights,
)

LEAST_LOG_STD = -20.0
LARGEST_LOG_STD = 2.0
LOG_2 = math.log(2)


class Rows(NamedTuple):
    """A batch, as `agents.algorithms.twin_critic_learning.Batch` has it: encoded, next_encoded [B, O];
    actions [B, A]; rewards, discounts, weights [B]; and noise [2, B, A] for the actions at both ends.
    """

    rows: int
    encoded: Floats
    actions: Floats
    rewards: Floats
    discounts: Floats
    next_encoded: Floats
    weights: Floats
    noise: Floats


class Side(NamedTuple):
    """One learner: its networks, their parameters, gradients, memory and optimiser."""

    network: Network
    parameters: Floats
    gradients: Floats
    memory: Memory
    descent: Descent


class Sampled(NamedTuple):
    """Of a batch: actions [B, A], log π [B], targets y [B]; of both critics the values of these actions
    [2, B], and their derivatives by the actions, [2, B, A].
    """

    actions: Floats
    log_probabilities: Floats
    targets: Floats
    values: Floats
    slopes: Floats


@part
def _rows_by_pointers(batch: Rows) -> Rows:
    return Rows(
        batch.rows, pointer(batch.encoded), pointer(batch.actions), pointer(batch.rewards),
        pointer(batch.discounts), pointer(batch.next_encoded), pointer(batch.weights),
        pointer(batch.noise),
    )  # fmt: skip


@part
def _side_by_pointers(side: Side) -> Side:
    return Side(
        network_by_pointers(side.network), pointer(side.parameters), pointer(side.gradients),
        memory_by_pointers(side.memory), descent_by_pointers(side.descent),
    )  # fmt: skip


@part
def _sampled_by_pointers(sampled: Sampled) -> Sampled:
    return Sampled(
        pointer(sampled.actions), pointer(sampled.log_probabilities), pointer(sampled.targets),
        pointer(sampled.values), pointer(sampled.slopes),
    )  # fmt: skip


@part
def _sample(
    actor: Side, encoded: Floats, noise: Floats, noise0: int, count: int, sampled: Sampled
) -> None:
    """Actions of the policy at these rows, and log π of them, as
    `agents.networks.action_distributions.SquashedActions` has them.
    """
    network = actor.network
    hidden = actor.memory.hidden
    size = network.sizes[0]
    for first in range(0, count, CHUNK):
        rows = fewer(CHUNK, count - first)
        slot = first // CHUNK
        place = inputs_at(network, actor.memory, slot)
        for row in range(rows):
            for one in range(size):
                number = encoded[(first + row) * size + one]
                hidden[place + row * network.strides[0] + one] = number
        forward(network, actor.parameters, actor.memory, START, slot, rows)
        place = outputs_at(network, actor.memory, slot)
        for row in range(rows):
            _squash(network, hidden, place, noise, noise0, first + row, sampled)
            place += network.strides[network.layers]


@part
def _squash(
    network: Network, policy: Floats, place: int, noise: Floats, noise0: int, at: int,
    sampled: Sampled,
) -> None:  # fmt: skip
    """One row of the above, whose policy begins at `place`."""
    actions = network.sizes[network.layers] // 2
    log_probability = 0.0
    for one in range(actions):
        # Written so that a NaN stays one, which `min` does not promise.
        log_std = float(policy[place + actions + one])
        if log_std < LEAST_LOG_STD:
            log_std = LEAST_LOG_STD
        if log_std > LARGEST_LOG_STD:
            log_std = LARGEST_LOG_STD
        drawn = float(noise[noise0 + at * actions + one])
        u = policy[place + one] + math.exp(log_std) * drawn
        softplus = math.log1p(math.exp(-abs(2 * u)))
        if u < 0:
            softplus -= 2 * u
        log_probability += -0.5 * drawn * drawn - log_std - 0.5 * LOG_2_PI
        # log(1 − tanh²u) itself would be log 0 where tanh u rounds to 1.
        log_probability -= 2 * (LOG_2 - u - softplus)
        sampled.actions[at * actions + one] = math.tanh(u)
    sampled.log_probabilities[at] = log_probability


@part
def _see(
    critics: Network, memory: Memory, encoded: Floats, actions: Floats, first: int, rows: int,
    count: int,
) -> None:  # fmt: skip
    """Put rows [encoded, actions] where the inputs are; count: A."""
    size = critics.sizes[0] - count
    for row in range(rows):
        place = row * critics.strides[0]
        at = first + row
        for one in range(size):
            memory.hidden[place + one] = encoded[at * size + one]
        for one in range(count):
            memory.hidden[place + size + one] = actions[at * count + one]


@part
def _smaller(one: float, other: float) -> float:
    """The smaller one; NaN where one is NaN."""
    if one < other or one != one:
        return one
    return other


@part
def _targets(
    critics: Network, target: Floats, slow: Memory, batch: Rows, alpha: float, actions: int,
    sampled: Sampled,
) -> None:  # fmt: skip
    """The y of eq. 5, from the slow critics' values."""
    outputs = outputs_at(critics, slow, START)
    stride = critics.strides[critics.layers]
    # One network after the other, because its weights stay in the cache for all chunks.
    for which in range(critics.networks):
        for first in range(0, batch.rows, CHUNK):
            rows = fewer(CHUNK, batch.rows - first)
            _see(critics, slow, batch.next_encoded, sampled.actions, first, rows, actions)
            forward(critics, target, slow, which, START, rows)
            for row in range(rows):
                value = slow.hidden[outputs + row * stride]
                if which == 1:
                    value = _smaller(sampled.targets[first + row], value)
                sampled.targets[first + row] = value
    for at in range(batch.rows):
        soft = sampled.targets[at] - alpha * sampled.log_probabilities[at]
        sampled.targets[at] = batch.rewards[at] + batch.discounts[at] * soft


@part
def _critic_slopes(
    critics: Network, memory: Memory, batch: Rows, first: int, rows: int, sampled: Sampled,
    found: npt.NDArray[np.float64],
) -> None:  # fmt: skip
    """The derivatives of eq. 5 by one critic's values; add to the three sums of `found`."""
    stride = critics.strides[critics.layers]
    place = outputs_at(critics, memory, START)
    share = 1 / (critics.networks * batch.rows)
    for row in range(rows):
        value = memory.hidden[place + row * stride]
        error = value - sampled.targets[first + row]
        weight = batch.weights[first + row]
        found[0] += 0.5 * weight * error * error
        found[1] += share * value
        found[2] += share * abs(error)
        memory.deltas[row * stride] = weight * error


@part
def _add_critic_gradients(
    critics: Side, actor: Side, batch: Rows, sampled: Sampled, found: npt.NDArray[np.float64]
) -> None:
    network = critics.network
    memory = critics.memory
    actions = actor.network.sizes[actor.network.layers] // 2
    for which in range(network.networks):
        for first in range(0, batch.rows, CHUNK):
            rows = fewer(CHUNK, batch.rows - first)
            _see(network, memory, batch.encoded, batch.actions, first, rows, actions)
            forward(network, critics.parameters, memory, which, START, rows)
            _critic_slopes(network, memory, batch, first, rows, sampled, found)
            backward(
                network, critics.parameters, critics.gradients, memory, which, START, rows, True
            )


@compiled_from(clipped_loss, dense, descent, lanes, perceptrons)
def update_critics(
    critics_: Side, actor_: Side, target: Floats, slow_: Memory, batch_: Rows, sampled_: Sampled,
    alpha: float, learning_rate: float, found: npt.NDArray[np.float64],
) -> bool:  # fmt: skip
    """Make one step of the critics' optimiser, unless loss or gradient is not finite; whether it was
    made. found [4]: the loss, the means of Q and of |Q − y|, the gradient's norm.
    """
    critics = _side_by_pointers(critics_)
    actor = _side_by_pointers(actor_)
    slow = memory_by_pointers(slow_)
    batch = _rows_by_pointers(batch_)
    sampled = _sampled_by_pointers(sampled_)
    network = critics.network
    actions = actor.network.sizes[actor.network.layers] // 2
    found[:] = 0
    turn_weights(network, pointer(target), slow, False)
    turn_weights(actor.network, actor.parameters, actor.memory, True)
    # The second half of the noise is for the targets.
    _sample(actor, batch.next_encoded, batch.noise, batch.rows * actions, batch.rows, sampled)
    _targets(network, pointer(target), slow, batch, alpha, actions, sampled)
    turn_weights(network, critics.parameters, critics.memory, True)
    clear_gradients(network, critics.gradients, critics.memory)
    _add_critic_gradients(critics, actor, batch, sampled, pointer(found))
    complete_gradients(network, critics.gradients, critics.memory)
    count = network.parameters
    found[3] = norm(critics.gradients, count)
    if not math.isfinite(found[3] + found[0]):
        return False
    descend(count, critics.parameters, critics.gradients, critics.descent, learning_rate, found[3])
    return True


@part
def _through_critics(critics: Side, batch: Rows, actions: int, sampled: Sampled) -> None:
    """Values and slopes of what was sampled."""
    network = critics.network
    memory = critics.memory
    stride = network.strides[network.layers]
    outputs = outputs_at(network, memory, START)
    for which in range(network.networks):
        for first in range(0, batch.rows, CHUNK):
            rows = fewer(CHUNK, batch.rows - first)
            _see(network, memory, batch.encoded, sampled.actions, first, rows, actions)
            forward(network, critics.parameters, memory, which, START, rows)
            place = which * batch.rows + first
            for row in range(rows):
                sampled.values[place + row] = memory.hidden[outputs + row * stride]
                memory.deltas[row * stride] = 1
            behind = backward(
                network, critics.parameters, critics.gradients, memory, which, START, rows, False
            )
            by_inputs(
                network, critics.parameters, memory, which, rows, behind,
                network.sizes[0] - actions, sampled.slopes, place * actions,
            )  # fmt: skip


@part
def _policy_slopes(
    actor: Side, batch: Rows, first: int, rows: int, alpha: float, actions: int, sampled: Sampled
) -> None:
    """The derivatives of eq. 7 by the policy's outputs."""
    network = actor.network
    memory = actor.memory
    stride = network.strides[network.layers]
    outputs = outputs_at(network, memory, first // CHUNK)
    share = 1 / batch.rows
    for row in range(rows):
        at = first + row
        second = batch.rows + at
        # The share of each critic in the derivative of the smaller value.
        of_first = 0.5
        if sampled.values[at] < sampled.values[second]:
            of_first = 1.0
        if sampled.values[at] > sampled.values[second]:
            of_first = 0.0
        for one in range(actions):
            action = float(sampled.actions[at * actions + one])
            by_action = (
                of_first * sampled.slopes[at * actions + one]
                + (1 - of_first) * sampled.slopes[second * actions + one]
            )
            # The derivative of log π by u, of −log(1 − tanh²u), is 2 tanh u.
            slope = share * (2 * alpha * action - by_action * (1 - action * action))
            memory.deltas[row * stride + one] = slope
            log_std = float(memory.hidden[outputs + row * stride + actions + one])
            by_log_std = 0.0
            if LEAST_LOG_STD <= log_std <= LARGEST_LOG_STD:
                drawn = float(batch.noise[at * actions + one])
                by_log_std = slope * drawn * math.exp(log_std) - share * alpha
            memory.deltas[row * stride + actions + one] = by_log_std


@compiled_from(clipped_loss, dense, descent, lanes, perceptrons)
def update_actor(
    critics_: Side, actor_: Side, batch_: Rows, sampled_: Sampled, alpha: float,
    learning_rate: float, found: npt.NDArray[np.float64],
) -> bool:  # fmt: skip
    """Make one step of the policy's optimiser, after `update_critics` and unless loss or gradient is not
    finite; whether it was made. found [3]: the loss, the entropy, the gradient's norm.
    """
    critics = _side_by_pointers(critics_)
    actor = _side_by_pointers(actor_)
    batch = _rows_by_pointers(batch_)
    sampled = _sampled_by_pointers(sampled_)
    network = actor.network
    actions = network.sizes[network.layers] // 2
    found[:] = 0
    # The policy's weights are as they were for the critics' targets, and turned.
    _sample(actor, batch.encoded, batch.noise, START, batch.rows, sampled)
    turn_weights(critics.network, critics.parameters, critics.memory, True)
    _through_critics(critics, batch, actions, sampled)
    share = 1 / batch.rows
    for at in range(batch.rows):
        log_probability = sampled.log_probabilities[at]
        smaller = _smaller(sampled.values[at], sampled.values[batch.rows + at])
        found[0] += share * (alpha * log_probability - smaller)
        found[1] -= share * log_probability
    clear_gradients(network, actor.gradients, actor.memory)
    for first in range(0, batch.rows, CHUNK):
        rows = fewer(CHUNK, batch.rows - first)
        _policy_slopes(actor, batch, first, rows, alpha, actions, sampled)
        backward(
            network, actor.parameters, actor.gradients, actor.memory, START, first // CHUNK, rows,
            True,
        )  # fmt: skip
    complete_gradients(network, actor.gradients, actor.memory)
    count = network.parameters
    found[2] = norm(actor.gradients, count)
    if not math.isfinite(found[2] + found[0]):
        return False
    descend(count, actor.parameters, actor.gradients, actor.descent, learning_rate, found[2])
    return True


@compiled_from(descent, lanes)
def update_temperature(
    log_alpha: Floats, gradient: Floats, surplus: float, descent: Descent, learning_rate: float
) -> bool:
    """Make one step by the derivative of eq. 18, α times the entropy's surplus, unless that is not
    finite; whether it was made. log_alpha, gradient: one number in a vector of 16.
    """
    gradient[0] = math.exp(log_alpha[0]) * surplus
    if not math.isfinite(gradient[0]):
        return False
    descend(
        LANES, pointer(log_alpha), pointer(gradient), descent_by_pointers(descent), learning_rate,
        abs(gradient[0]),
    )  # fmt: skip
    return True
