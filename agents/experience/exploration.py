"""Random actions, and how often they are taken."""

from __future__ import annotations

import numpy as np


def linear_epsilon(step: int, *, starts: int, length: float, final: float) -> float:
    """ε: 1 for the first `starts` steps, and on the line from 1 at step 0 to `final` at `length`."""
    if step < starts:
        return 1.0
    return final if step >= length else 1 + (final - 1) * step / length


def random_actions(
    count: int, actions: int, masks: np.ndarray | None, generator: np.random.Generator
) -> np.ndarray:
    """[count], each of those that the masks [count, A] allow equally likely."""
    if masks is None:
        return generator.integers(actions, size=count)
    chosen: np.ndarray = np.where(masks, generator.random(masks.shape), -1.0).argmax(axis=1)
    return chosen


def epsilon_of_actor(number: int, count: int, *, largest: float, exponent: float) -> float:
    """ε_i = ε^(1 + α i / (N − 1)) of actor i of N, Horgan et al. 2018 (arXiv:1803.00933): the same
    throughout the training, and different for each, so that all degrees of exploring are seen.
    """
    power = 1 + exponent * number / max(1, count - 1)
    return float(largest**power)
