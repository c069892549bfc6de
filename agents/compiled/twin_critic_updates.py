"""What the updates of SAC (`soft_updates.py`) and TD3 (`smoothed_updates.py`) have in common as machine
code: the smaller value of the slow critics, the critics' step, the way through the critics to the slopes
of actions, and the policy's step.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from agents.compiled.dense import CHUNK, START, Floats, fewer
from agents.compiled.descent import Descent, descend, descent_by_pointers, norm
from agents.compiled.lanes import pointer
from agents.compiled.parts import part
from agents.compiled.perceptrons import (
    Memory,
    Network,
    backward,
    by_inputs,
    clear_gradients,
    complete_gradients,
    forward,
    memory_by_pointers,
    network_by_pointers,
    outputs_at,
    see,
    turn_weights,
)

Found = npt.NDArray[np.float64]
"""What a step says: the loss first, the gradient's norm last."""


class Rows(NamedTuple):
    """A batch, as `agents.algorithms.twin_critic_learning.Batch` has it: encoded, next_encoded [B, O];
    actions [B, A]; rewards, discounts, weights [B].
    """

    rows: int
    components: int
    encoded: Floats
    actions: Floats
    rewards: Floats
    discounts: Floats
    next_encoded: Floats
    weights: Floats


class Side(NamedTuple):
    """One learner: its networks, their parameters, gradients, memory and optimiser."""

    network: Network
    parameters: Floats
    gradients: Floats
    memory: Memory
    descent: Descent


class Chosen(NamedTuple):
    """Of a batch: actions of a policy [B, A] and targets y [B]; of K critics the values of these actions
    [K, B], and their derivatives by the actions, [K, B, A]; the derivatives of the policy's loss by the
    policy [B, P].
    """

    actions: Floats
    targets: Floats
    values: Floats
    slopes: Floats
    by_policy: Floats


@part
def rows_by_pointers(batch: Rows) -> Rows:
    """The batch as all that is below takes it."""
    return Rows(
        batch.rows, batch.components, pointer(batch.encoded), pointer(batch.actions),
        pointer(batch.rewards), pointer(batch.discounts), pointer(batch.next_encoded),
        pointer(batch.weights),
    )  # fmt: skip


@part
def side_by_pointers(side: Side) -> Side:
    """Likewise."""
    return Side(
        network_by_pointers(side.network), pointer(side.parameters), pointer(side.gradients),
        memory_by_pointers(side.memory), descent_by_pointers(side.descent),
    )  # fmt: skip


@part
def chosen_by_pointers(chosen: Chosen) -> Chosen:
    """Likewise."""
    return Chosen(
        pointer(chosen.actions), pointer(chosen.targets), pointer(chosen.values),
        pointer(chosen.slopes), pointer(chosen.by_policy),
    )  # fmt: skip


@part
def policy_at(
    actor: Side, parameters: Floats, encoded: Floats, first: int, rows: int
) -> int:  # fmt: skip
    """A policy at these rows of a chunk, whose memory keeps them: where it begins in `hidden`."""
    network = actor.network
    slot = first // CHUNK
    see(network, actor.memory, slot, START, encoded, first, rows, network.sizes[0])
    forward(network, parameters, actor.memory, START, slot, rows)
    return outputs_at(network, actor.memory, slot)


@part
def _values_at(
    critics: Side, parameters: Floats, which: int, encoded: Floats, actions: Floats, first: int,
    rows: int, components: int,
) -> int:  # fmt: skip
    """Likewise the values of one critic, which sees [encoded, actions]."""
    network = critics.network
    memory = critics.memory
    size = network.sizes[0] - components
    see(network, memory, START, START, encoded, first, rows, size)
    see(network, memory, START, size, actions, first, rows, components)
    forward(network, parameters, memory, which, START, rows)
    return outputs_at(network, memory, START)


@part
def smaller(one: float, other: float) -> float:
    """The smaller one; NaN where one is NaN."""
    if one < other or one != one:
        return one
    return other


@part
def slow_values(critics: Side, target: Floats, batch: Rows, chosen: Chosen) -> None:
    """The smaller values of the slow critics, whose parameters are `target`, instead of the targets."""
    network = critics.network
    hidden = critics.memory.hidden
    stride = network.strides[network.layers]
    turn_weights(network, target, critics.memory, False)
    # One network after the other, because its weights stay in the cache for all chunks.
    for which in range(network.networks):
        for first in range(0, batch.rows, CHUNK):
            rows = fewer(CHUNK, batch.rows - first)
            place = _values_at(
                critics, target, which, batch.next_encoded, chosen.actions, first, rows,
                batch.components,
            )  # fmt: skip
            for row in range(rows):
                value = hidden[place + row * stride]
                if which == 1:
                    value = smaller(chosen.targets[first + row], value)
                chosen.targets[first + row] = value


@part
def _critic_slopes(
    critics: Side, place: int, batch: Rows, first: int, rows: int, chosen: Chosen, scale: float,
    found: Found,
) -> None:  # fmt: skip
    """The derivatives by one critic's values; add to the first three numbers of `found`."""
    network = critics.network
    stride = network.strides[network.layers]
    share = 1 / (network.networks * batch.rows)
    for row in range(rows):
        value = critics.memory.hidden[place + row * stride]
        error = value - chosen.targets[first + row]
        weight = batch.weights[first + row]
        found[0] += scale * weight * error * error
        found[1] += share * value
        found[2] += share * abs(error)
        critics.memory.deltas[row * stride] = 2 * scale * weight * error


@part
def step_critics(
    critics: Side, batch: Rows, chosen: Chosen, scale: float, learning_rate: float, found: Found
) -> bool:
    """Make one step by the loss scale · Σ_i E[(Q_i − y)²], unless it or its gradient is not finite; whether
    it was made. found [4]: the loss, the means of Q and of |Q − y|, the gradient's norm.
    """
    network = critics.network
    memory = critics.memory
    for one in range(3):
        found[one] = 0
    turn_weights(network, critics.parameters, memory, True)
    clear_gradients(network, critics.gradients, memory)
    for which in range(network.networks):
        for first in range(0, batch.rows, CHUNK):
            rows = fewer(CHUNK, batch.rows - first)
            place = _values_at(
                critics, critics.parameters, which, batch.encoded, batch.actions, first, rows,
                batch.components,
            )  # fmt: skip
            _critic_slopes(critics, place, batch, first, rows, chosen, scale, found)
            backward(
                network, critics.parameters, critics.gradients, memory, which, START, rows, True
            )
    complete_gradients(network, critics.gradients, memory)
    found[3] = norm(critics.gradients, network.parameters)
    return _step(critics, learning_rate, found[0], found[3])


@part
def _step(side: Side, learning_rate: float, loss: float, norm_now: float) -> bool:
    if not math.isfinite(norm_now + loss):
        return False
    descend(
        side.network.parameters, side.parameters, side.gradients, side.descent, learning_rate,
        norm_now,
    )  # fmt: skip
    return True


@part
def through_critics(critics: Side, batch: Rows, chosen: Chosen) -> None:
    """Values and slopes of the chosen actions."""
    network = critics.network
    memory = critics.memory
    components = batch.components
    stride = network.strides[network.layers]
    turn_weights(network, critics.parameters, memory, True)
    for which in range(network.networks):
        for first in range(0, batch.rows, CHUNK):
            rows = fewer(CHUNK, batch.rows - first)
            outputs = _values_at(
                critics, critics.parameters, which, batch.encoded, chosen.actions, first, rows,
                components,
            )  # fmt: skip
            place = which * batch.rows + first
            for row in range(rows):
                chosen.values[place + row] = memory.hidden[outputs + row * stride]
                memory.deltas[row * stride] = 1
            behind = backward(
                network, critics.parameters, critics.gradients, memory, which, START, rows, False
            )
            by_inputs(
                network, critics.parameters, memory, which, rows, behind,
                network.sizes[0] - components, chosen.slopes, place * components,
            )  # fmt: skip


@part
def step_actor(
    actor: Side, batch: Rows, chosen: Chosen, learning_rate: float, found: Found, last: int
) -> bool:
    """Make one step by the derivatives by a policy that `policy_at` has left, unless the loss, found[0], or
    its gradient is not finite; whether it was made. The gradient's norm becomes found[last].
    """
    network = actor.network
    memory = actor.memory
    outputs = network.sizes[network.layers]
    stride = network.strides[network.layers]
    clear_gradients(network, actor.gradients, memory)
    for first in range(0, batch.rows, CHUNK):
        rows = fewer(CHUNK, batch.rows - first)
        for row in range(rows):
            for one in range(outputs):
                slope = chosen.by_policy[(first + row) * outputs + one]
                memory.deltas[row * stride + one] = slope
        backward(
            network, actor.parameters, actor.gradients, memory, START, first // CHUNK, rows, True
        )
    complete_gradients(network, actor.gradients, memory)
    found[last] = norm(actor.gradients, network.parameters)
    return _step(actor, learning_rate, found[0], found[last])
