"""Norm of a gradient, Adam and RMSProp on flat arrays whose length is a multiple of 16, as
`agents.optimisation.optimiser` has them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from agents.compiled.dense import Floats
from agents.compiled.lanes import (
    LANES,
    fma,
    load,
    pointer,
    product,
    quotient,
    root,
    spread,
    store,
    total,
)
from agents.compiled.parts import part

DECAY_1 = 0.9
DECAY_2 = 0.999
SQUARES_DECAY = 0.99
ADAM = 0
RMSPROP = 1


class Descent(NamedTuple):
    """What an optimiser remembers, all of a parameter at the parameter's place. moments_1 is not used by
    RMSProp, whose squares are moments_2; updates [1]: how many Adam has made.
    """

    kind: int
    epsilon: float
    largest_norm: float
    moments_1: Floats
    moments_2: Floats
    updates: Floats


@part
def descent_by_pointers(descent: Descent) -> Descent:
    """The state as `descend` takes it."""
    return Descent(
        descent.kind, descent.epsilon, descent.largest_norm, pointer(descent.moments_1),
        pointer(descent.moments_2), pointer(descent.updates),
    )  # fmt: skip


@part
def norm(gradients: Floats, count: int) -> float:
    """The Euclidean norm of so many numbers; not finite if any number is not."""
    # Four sums, because each addition waits for the one before it.
    sums_0 = spread(np.float32(0))
    sums_1 = sums_0
    sums_2 = sums_0
    sums_3 = sums_0
    whole = count - count % (4 * LANES)
    for j in range(0, whole, 4 * LANES):
        one = load(gradients, j)
        sums_0 = fma(one, one, sums_0)
        one = load(gradients, j + LANES)
        sums_1 = fma(one, one, sums_1)
        one = load(gradients, j + 2 * LANES)
        sums_2 = fma(one, one, sums_2)
        one = load(gradients, j + 3 * LANES)
        sums_3 = fma(one, one, sums_3)
    for j in range(whole, count, LANES):
        one = load(gradients, j)
        sums_0 = fma(one, one, sums_0)
    squares = (
        float(total(sums_0)) + float(total(sums_1)) + float(total(sums_2)) + float(total(sums_3))
    )
    return math.sqrt(squares)


@part
def descend(
    count: int,
    parameters: Floats,
    gradients: Floats,
    descent: Descent,
    learning_rate: float,
    norm_now: float,
) -> None:
    """Scale so many gradients down to the largest norm, and make one step."""
    scale = 1.0
    if norm_now > descent.largest_norm:
        # The constant is that of `torch.nn.utils.clip_grad_norm_`.
        scale = descent.largest_norm / (norm_now + 1e-6)
    if descent.kind == ADAM:
        descent.updates[0] += 1
        _adam(count, parameters, gradients, descent, learning_rate, scale)
    else:
        _rmsprop(count, parameters, gradients, descent, learning_rate, scale)


@part
def _adam(
    count: int,
    parameters: Floats,
    gradients: Floats,
    descent: Descent,
    learning_rate: float,
    scale: float,
) -> None:
    updates = float(descent.updates[0])
    step = spread(np.float32(-learning_rate / (1 - DECAY_1**updates)))
    of_root = spread(np.float32(1 / math.sqrt(1 - DECAY_2**updates)))
    epsilon = spread(np.float32(descent.epsilon))
    scales = spread(np.float32(scale))
    minus = spread(np.float32(-1))
    rate_1 = spread(np.float32(1 - DECAY_1))
    decay_2 = spread(np.float32(DECAY_2))
    rate_2 = spread(np.float32(1 - DECAY_2))
    for j in range(0, count, LANES):
        gradient = product(load(gradients, j), scales)
        first = load(descent.moments_1, j)
        first = fma(rate_1, fma(minus, first, gradient), first)
        second = product(load(descent.moments_2, j), decay_2)
        second = fma(rate_2, product(gradient, gradient), second)
        store(descent.moments_1, j, first)
        store(descent.moments_2, j, second)
        below = fma(root(second), of_root, epsilon)
        store(parameters, j, fma(step, quotient(first, below), load(parameters, j)))


@part
def _rmsprop(
    count: int,
    parameters: Floats,
    gradients: Floats,
    descent: Descent,
    learning_rate: float,
    scale: float,
) -> None:
    step = spread(np.float32(-learning_rate))
    epsilon = spread(np.float32(descent.epsilon))
    scales = spread(np.float32(scale))
    one = spread(np.float32(1))
    decay = spread(np.float32(SQUARES_DECAY))
    rate = spread(np.float32(1 - SQUARES_DECAY))
    for j in range(0, count, LANES):
        gradient = product(load(gradients, j), scales)
        squares = product(load(descent.moments_2, j), decay)
        squares = fma(rate, product(gradient, gradient), squares)
        store(descent.moments_2, j, squares)
        below = fma(one, root(squares), epsilon)
        store(parameters, j, fma(step, quotient(gradient, below), load(parameters, j)))
