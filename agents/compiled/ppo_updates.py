"""The updates of PPO's epoch as one function of machine code."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from agents.compiled import clipped_loss, dense, descent, lanes, passes
from agents.compiled.clipped_loss import Rows, Rule, loss, rows_by_pointers
from agents.compiled.dense import CHUNK, START, Floats, Ints, clear, fewer
from agents.compiled.descent import Descent, descend, descent_by_pointers, norm
from agents.compiled.lanes import pointer
from agents.compiled.parts import compiled_from, part
from agents.compiled.passes import (
    Layout,
    Scratch,
    backward,
    by_pointers,
    forward,
    turn_weights,
)


@part
def _advantages(
    batch: Rows, order: Ints, first: int, last: int, normalise: bool, found: Floats
) -> None:
    """Into found [last − first]: with mean 0 and deviation 1, if asked for and there are two."""
    count = last - first
    for row in range(count):
        found[row] = batch.advantages[order[first + row]]
    if not normalise or count < 2:
        return
    mean = 0.0
    for row in range(count):
        mean += found[row]
    mean /= count
    squares = 0.0
    for row in range(count):
        difference = found[row] - mean
        squares += difference * difference
    # The constant keeps equal advantages from being divided by 0.
    deviation = math.sqrt(squares / (count - 1)) + 1e-8
    for row in range(count):
        found[row] = (found[row] - mean) / deviation


@part
def _add_gradients(
    layout: Layout, parameters: Floats, gradients: Floats, scratch: Scratch, batch: Rows, order: Ints,
    first: int, last: int, advantages: Floats, rule: Rule, log_ratios: Floats,
    sums: npt.NDArray[np.float64], sums0: int,
) -> None:  # fmt: skip
    """The gradients of the loss of the rows order[first:last]; log_ratios, and three sums, as `loss` has
    them.
    """
    clear(gradients, START, layout.parameters)
    for one in range(3):
        sums[sums0 + one] = 0
    turn_weights(layout, parameters, scratch)
    size = layout.sizes[0]
    for begin in range(first, last, CHUNK):
        rows = fewer(CHUNK, last - begin)
        for row in range(rows):
            at = order[begin + row]
            for one in range(size):
                scratch.seen[row * size + one] = batch.encoded[at * size + one]
        forward(layout, parameters, scratch, rows)
        loss(
            layout, parameters, gradients, scratch, rows, order, begin, batch, advantages,
            begin - first, rule, 1 / (last - first), log_ratios, sums, sums0,
        )  # fmt: skip
        backward(layout, parameters, gradients, scratch, rows)


@compiled_from(clipped_loss, dense, descent, lanes, passes)
def update(
    layout: Layout, parameters: Floats, gradients: Floats, scratch: Scratch, descent: Descent,
    batch: Rows, order: Ints, bounds: Ints, updates: tuple[int, int], advantages: Floats,
    normalise: bool, rule: Rule, learning_rate: float, log_ratios: Floats,
    found: npt.NDArray[np.float64],
) -> int:  # fmt: skip
    """Make the updates of these numbers; the number after the last one, or that of one whose loss or
    gradient is not finite and which is not made.

    Update u learns from the rows order[bounds[u] : bounds[u + 1]]; log_ratios, by the same places, and
    found [updates, 4], its last column the gradient's norm, say what it saw. advantages: memory for those
    of the largest minibatch.
    """
    numbers, memory = by_pointers(layout, scratch)
    rows = rows_by_pointers(batch)
    state = descent_by_pointers(descent)
    weights = pointer(parameters)
    slopes = pointer(gradients)
    places = pointer(order)
    advantage = pointer(advantages)
    start, end = updates
    for number in range(start, end):
        first = bounds[number]
        last = bounds[number + 1]
        _advantages(rows, places, first, last, normalise, advantage)
        _add_gradients(
            numbers, weights, slopes, memory, rows, places, first, last, advantage, rule,
            pointer(log_ratios), pointer(found), 4 * number,
        )  # fmt: skip
        norm_now = norm(slopes, layout.parameters)
        found[number, 3] = norm_now
        whole = (
            0.5 * rule.value_coefficient * found[number, 1] - found[number, 0]
            - rule.entropy_coefficient * found[number, 2]
        )  # fmt: skip
        if not math.isfinite(norm_now + whole):
            return number
        descend(layout.parameters, weights, slopes, state, learning_rate, norm_now)
    return end
