"""The updates of deep Q-learning (`agents.algorithms.dqn`) as one function of machine code."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from agents.compiled import dense, descent, lanes, perceptrons
from agents.compiled.dense import CHUNK, START, Floats, Ints, clear, fewer
from agents.compiled.descent import Descent, descend, descent_by_pointers, norm
from agents.compiled.lanes import pointer
from agents.compiled.parts import compiled_from, part
from agents.compiled.perceptrons import (
    Memory,
    Network,
    backward,
    clear_gradients,
    complete_gradients,
    forward,
    memory_by_pointers,
    network_by_pointers,
    outputs_at,
    see,
    turn_weights,
)


class Rows(NamedTuple):
    """Transitions of several updates, as `agents.algorithms.dqn.Batch` has them: encoded, next_encoded
    [N, O]; actions, rewards, discounts, weights [N]; next_masks [N, A] of 0 and 1 if they are masked.
    """

    is_masked: bool
    encoded: Floats
    actions: Ints
    rewards: Floats
    discounts: Floats
    next_encoded: Floats
    weights: Floats
    next_masks: npt.NDArray[np.uint8]


@part
def _rows_by_pointers(batch: Rows) -> Rows:
    return Rows(
        batch.is_masked, pointer(batch.encoded), pointer(batch.actions), pointer(batch.rewards),
        pointer(batch.discounts), pointer(batch.next_encoded), pointer(batch.weights),
        pointer(batch.next_masks),
    )  # fmt: skip


@part
def _best(batch: Rows, at: int, values: Floats, place: int, actions: int) -> int:
    """The first action of the largest value of those that are allowed, or of all where none is."""
    some_allowed = False
    if batch.is_masked:
        for one in range(actions):
            some_allowed = some_allowed or batch.next_masks[at * actions + one] != 0
    best = -1
    for one in range(actions):
        if some_allowed and batch.next_masks[at * actions + one] == 0:
            continue
        value = values[place + one]
        # A NaN is the largest one, so that it is seen.
        if best < 0 or value > values[place + best] or value != value:
            best = one
    return best


@part
def _add_gradients(
    network: Network, parameters: Floats, target: Floats, gradients: Floats, memory: Memory,
    of_target: Memory, batch: Rows, first: int, last: int, double: bool, errors: Floats,
    values: Floats,
) -> float:  # fmt: skip
    """Add the gradients of the loss of these rows, and return the loss; errors and values by the same
    places.
    """
    clear_gradients(network, gradients, memory)
    turn_weights(network, parameters, memory, True)
    size = network.sizes[0]
    actions = network.sizes[network.layers]
    stride = network.strides[network.layers]
    outputs = outputs_at(network, memory, START)
    loss = 0.0
    for begin in range(first, last, CHUNK):
        rows = fewer(CHUNK, last - begin)
        see(network, of_target, START, START, batch.next_encoded, begin, rows, size)
        forward(network, target, of_target, START, START, rows)
        chosen_by = of_target.hidden
        if double:
            see(network, memory, START, START, batch.next_encoded, begin, rows, size)
            forward(network, parameters, memory, START, START, rows)
            chosen_by = memory.hidden
        for row in range(rows):
            at = begin + row
            place = outputs + row * stride
            best = _best(batch, at, chosen_by, place, actions)
            errors[at] = batch.rewards[at] + batch.discounts[at] * of_target.hidden[place + best]
        see(network, memory, START, START, batch.encoded, begin, rows, size)
        forward(network, parameters, memory, START, START, rows)
        clear(memory.deltas, START, rows * stride)
        for row in range(rows):
            at = begin + row
            action = batch.actions[at]
            value = memory.hidden[outputs + row * stride + action]
            error = errors[at] - value
            errors[at] = error
            values[at] = value
            weight = batch.weights[at]
            if abs(error) < 1:
                loss += weight * 0.5 * error * error
                slope = -error
            else:
                loss += weight * (abs(error) - 0.5)
                slope = -math.copysign(1.0, error)
            memory.deltas[row * stride + action] = weight * slope
        backward(network, parameters, gradients, memory, START, START, rows, True)
    complete_gradients(network, gradients, memory)
    return loss


@compiled_from(dense, descent, lanes, perceptrons)
def update(
    network: Network, parameters: Floats, target: Floats, gradients: Floats, memory: Memory,
    of_target: Memory, descent: Descent, batch: Rows, size: int, updates: tuple[int, int],
    double: bool, learning_rate: float, errors: Floats, values: Floats,
    found: npt.NDArray[np.float64],
) -> int:  # fmt: skip
    """Make the updates of these numbers; the number after the last one, or that of one whose loss or
    gradient is not finite and which is not made.

    Update u learns from the rows size · u … size · (u + 1); errors, values [N] and found [updates, 2],
    the loss and the gradient's norm, say what it saw.
    """
    layout = network_by_pointers(network)
    online = memory_by_pointers(memory)
    slow = memory_by_pointers(of_target)
    rows = _rows_by_pointers(batch)
    state = descent_by_pointers(descent)
    weights = pointer(parameters)
    slopes = pointer(gradients)
    turn_weights(layout, pointer(target), slow, False)
    start, end = updates
    for number in range(start, end):
        loss = _add_gradients(
            layout, weights, pointer(target), slopes, online, slow, rows, number * size,
            (number + 1) * size, double, pointer(errors), pointer(values),
        )  # fmt: skip
        norm_now = norm(slopes, layout.parameters)
        found[number, 0] = loss
        found[number, 1] = norm_now
        if not math.isfinite(norm_now + loss):
            return number
        descend(layout.parameters, weights, slopes, state, learning_rate, norm_now)
    return end
