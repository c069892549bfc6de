"""The updates of PPO's epoch as one function of machine code."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from agents.compiled import clipped_loss, dense, descent, lanes, passes
from agents.compiled.clipped_loss import Rows, Rule, loss
from agents.compiled.dense import Floats, Ints
from agents.compiled.descent import Descent, descend, norm
from agents.compiled.passes import CHUNK, Layout, Scratch, backward, forward, turn_weights
from agents.games.compiled import compiled_from, part


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
        squares += (found[row] - mean) ** 2
    # The constant keeps equal advantages from being divided by 0.
    deviation = math.sqrt(squares / (count - 1)) + 1e-8
    for row in range(count):
        found[row] = (found[row] - mean) / deviation


@part
def add_gradients(
    layout: Layout, parameters: Floats, gradients: Floats, scratch: Scratch, batch: Rows, order: Ints,
    first: int, last: int, advantages: Floats, rule: Rule, log_ratios: Floats,
    sums: npt.NDArray[np.float64],
) -> None:  # fmt: skip
    """The gradients of the loss of the rows order[first:last]; log_ratios [last − first] and sums [3] as
    `loss` has them.
    """
    gradients[:] = 0
    sums[:] = 0
    turn_weights(layout, parameters, scratch)
    size = layout.sizes[0]
    for begin in range(first, last, CHUNK):
        rows = min(CHUNK, last - begin)
        for row in range(rows):
            at = order[begin + row]
            for one in range(size):
                scratch.seen[row * size + one] = batch.encoded[at, one]
        forward(layout, parameters, scratch, rows)
        loss(
            layout, parameters, gradients, scratch, rows, order, begin, batch,
            advantages[begin - first :], rule, 1 / (last - first), log_ratios[begin - first :], sums,
        )  # fmt: skip
        backward(layout, parameters, gradients, scratch, rows)


@compiled_from(clipped_loss, dense, descent, lanes, passes)
def update(
    layout: Layout, parameters: Floats, gradients: Floats, scratch: Scratch, state: Descent,
    batch: Rows, order: Ints, bounds: Ints, updates: tuple[int, int], normalise: bool, rule: Rule,
    learning_rate: float, log_ratios: Floats, found: npt.NDArray[np.float64],
) -> int:  # fmt: skip
    """Make the updates of these numbers; the number after the last one, or that of one whose loss or
    gradient is not finite and which is not made.

    Update u learns from the rows order[bounds[u] : bounds[u + 1]]; log_ratios, by the same places, and
    found [updates, 4], its last column the gradient's norm, say what it saw.
    """
    longest = 0
    for number in range(updates[0], updates[1]):
        longest = max(longest, bounds[number + 1] - bounds[number])
    advantages = np.empty(longest, np.float32)
    for number in range(updates[0], updates[1]):
        first = bounds[number]
        last = bounds[number + 1]
        _advantages(batch, order, first, last, normalise, advantages)
        add_gradients(
            layout, parameters, gradients, scratch, batch, order, first, last, advantages, rule,
            log_ratios[first:], found[number],
        )  # fmt: skip
        norm_now = norm(gradients)
        found[number, 3] = norm_now
        whole = (
            0.5 * rule.value_coefficient * found[number, 1] - found[number, 0]
            - rule.entropy_coefficient * found[number, 2]
        )  # fmt: skip
        if not math.isfinite(norm_now + whole):
            return number
        descend(parameters, gradients, state, learning_rate, norm_now)
    return updates[1]
