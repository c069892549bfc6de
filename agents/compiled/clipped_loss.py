"""PPO's loss (`agents.algorithms.ppo`) of the rows of one chunk, and its derivatives by the outputs of
the network's heads.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from agents.compiled.dense import Floats, Ints, within
from agents.compiled.lanes import pointer
from agents.compiled.parts import part
from agents.compiled.passes import Layout, Scratch

FORBIDDEN = -1e9
LARGEST_LOG_RATIO = 80.0
LOG_2_PI = math.log(2 * math.pi)


class Rows(NamedTuple):
    """The batch, as `agents.algorithms.ppo.Batch` has it: encoded [B, O]; its actions in one of choices
    [B, C] and continuous [B, A], so that one machine code serves both; masks [B, P] of 0 and 1 if it is
    masked.
    """

    is_masked: bool
    encoded: npt.NDArray[np.float32]
    choices: Ints
    continuous: Floats
    log_probabilities: Floats
    values: Floats
    advantages: Floats
    returns: Floats
    masks: npt.NDArray[np.uint8]


@part
def rows_by_pointers(batch: Rows) -> Rows:
    """The batch as the loss takes it."""
    return Rows(
        batch.is_masked, pointer(batch.encoded), pointer(batch.choices),
        pointer(batch.continuous), pointer(batch.log_probabilities), pointer(batch.values),
        pointer(batch.advantages), pointer(batch.returns), pointer(batch.masks),
    )  # fmt: skip


class Rule(NamedTuple):
    """The loss' numbers."""

    clip: float
    clip_value_loss: bool
    entropy_coefficient: float
    value_coefficient: float


@part
def _categorical(
    layout: Layout, scratch: Scratch, row: int, batch: Rows, at: int
) -> tuple[float, float]:
    """Mask a row's logits, and leave log π of all choices in their place; log π of what was done, and
    the entropy.
    """
    log_probability = 0.0
    entropy = 0.0
    first = row * layout.outputs
    if batch.is_masked:
        for one in range(layout.outputs):
            if batch.masks[at * layout.outputs + one] == 0:
                scratch.output[first + one] = FORBIDDEN
    for component in range(layout.components):
        count = layout.choices[component]
        largest = scratch.output[first]
        for one in range(first + 1, first + count):
            # A NaN would be lost in a maximum, but not in the sum below.
            if scratch.output[one] > largest:
                largest = scratch.output[one]
        exponentials = 0.0
        for one in range(first, first + count):
            exponentials += math.exp(scratch.output[one] - largest)
        logarithm = math.log(exponentials) + largest
        for one in range(first, first + count):
            log_p = scratch.output[one] - logarithm
            scratch.output[one] = log_p
            entropy -= math.exp(log_p) * log_p
        log_probability += scratch.output[first + batch.choices[at * layout.components + component]]
        first += count
    return log_probability, entropy


@part
def _categorical_backward(
    layout: Layout,
    scratch: Scratch,
    row: int,
    batch: Rows,
    at: int,
    slope: float,
    of_entropy: float,
) -> None:
    """Derivatives by the logits of slope · log π(a) + of_entropy · H, from what `_categorical` left."""
    first = row * layout.outputs
    for component in range(layout.components):
        count = layout.choices[component]
        entropy = 0.0
        if of_entropy != 0:
            for one in range(first, first + count):
                entropy -= math.exp(scratch.output[one]) * scratch.output[one]
        for one in range(first, first + count):
            log_p = scratch.output[one]
            p = math.exp(log_p)
            scratch.d_output[one] = -slope * p - of_entropy * p * (log_p + entropy)
        scratch.d_output[first + batch.choices[at * layout.components + component]] += slope
        first += count
    if batch.is_masked:
        for one in range(layout.outputs):
            if batch.masks[at * layout.outputs + one] == 0:
                scratch.d_output[row * layout.outputs + one] = 0


@part
def _normal(
    layout: Layout, parameters: Floats, scratch: Scratch, row: int, batch: Rows, at: int
) -> tuple[float, float]:
    """Return log π of what was done, and the entropy."""
    log_probability = 0.0
    entropy = 0.0
    for one in range(layout.outputs):
        log_std = parameters[layout.log_std + one]
        mean = scratch.output[row * layout.outputs + one]
        z = (batch.continuous[at * layout.outputs + one] - mean) * math.exp(-log_std)
        log_probability -= 0.5 * z * z + log_std + 0.5 * LOG_2_PI
        entropy += log_std + 0.5 * (LOG_2_PI + 1)
    return log_probability, entropy


@part
def _normal_backward(
    layout: Layout, parameters: Floats, gradients: Floats, scratch: Scratch, row: int, batch: Rows,
    at: int, slope: float, of_entropy: float,
) -> None:  # fmt: skip
    """As `_categorical_backward`, by the means; the derivatives by log σ are added to the gradients."""
    for one in range(layout.outputs):
        place = row * layout.outputs + one
        precision = math.exp(-parameters[layout.log_std + one])
        z = (batch.continuous[at * layout.outputs + one] - scratch.output[place]) * precision
        scratch.d_output[place] = slope * z * precision
        gradients[layout.log_std + one] += slope * (z * z - 1) + of_entropy


@part
def _value_loss(value: float, target: float, old: float, rule: Rule) -> tuple[float, float]:
    """The squared error, and its derivative by the value."""
    error = value - target
    if not rule.clip_value_loss:
        return error * error, 2 * error
    change = value - old
    near = old + within(change, -rule.clip, rule.clip) - target
    of_near = 2 * near if -rule.clip <= change <= rule.clip else 0.0
    if error * error > near * near:
        return error * error, 2 * error
    if error * error < near * near:
        return near * near, of_near
    # Both are equal, or one is NaN.
    return error * error, 0.5 * (2 * error + of_near)


@part
def loss(
    layout: Layout, parameters: Floats, gradients: Floats, scratch: Scratch, rows: int,
    order: Ints, first: int, batch: Rows, advantages: Floats, offset: int, rule: Rule, share: float,
    log_ratios: Floats, sums: npt.NDArray[np.float64], sums0: int,
) -> None:  # fmt: skip
    """Of the rows order[first : first + rows] of the batch, whose
    advantages begin at `offset`, each counted `share` times: fill d_output and
    d_value, log_ratios by the same places as the order, and add to three sums the parts of an
    `agents.algorithms.ppo.Update`.
    """
    for row in range(rows):
        at = order[first + row]
        if layout.log_std >= 0:
            log_probability, entropy = _normal(layout, parameters, scratch, row, batch, at)
        else:
            log_probability, entropy = _categorical(layout, scratch, row, batch, at)
        log_ratio = log_probability - batch.log_probabilities[at]
        log_ratios[first + row] = log_ratio
        # Written so that a NaN stays one, which `min` does not promise.
        bounded = LARGEST_LOG_RATIO if log_ratio > LARGEST_LOG_RATIO else log_ratio
        ratio = math.exp(bounded)
        advantage = advantages[offset + row]
        free = ratio * advantage
        clipped = within(ratio, 1 - rule.clip, 1 + rule.clip) * advantage
        slope = 0.0
        if free <= clipped:
            sums[sums0 + 0] += share * free
            if log_ratio <= LARGEST_LOG_RATIO:
                slope = -share * free
        elif free > clipped:
            sums[sums0 + 0] += share * clipped
        else:
            sums[sums0 + 0] = np.nan
        squared, by_value = _value_loss(
            scratch.value[row], batch.returns[at], batch.values[at], rule
        )
        sums[sums0 + 1] += share * squared
        sums[sums0 + 2] += share * entropy
        scratch.d_value[row] = 0.5 * rule.value_coefficient * share * by_value
        of_entropy = -rule.entropy_coefficient * share
        if layout.log_std >= 0:
            _normal_backward(
                layout, parameters, gradients, scratch, row, batch, at, slope, of_entropy
            )
        else:
            _categorical_backward(layout, scratch, row, batch, at, slope, of_entropy)
