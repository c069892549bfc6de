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
