"""How much memory the experience of an algorithm without a replay takes. Knows no torch, because
`prepare` asks.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from agents.distributed.queues import WAITING
from agents.spaces import Interface
from config.resolved import Resolved

FLOAT_BYTES = 4


def of_rollout(resolved: Resolved, spaces: Interface, dtype: np.dtype[Any]) -> int:
    """`agents.interfaces.ExperienceBytes` of an algorithm with `rollout_length`: the observations of a
    rollout, and of a minibatch, which is a copy.
    """
    size = math.prod(spaces.environment_shape)
    is_picture = spaces.image or spaces.grid
    encoded = size * (dtype.itemsize if is_picture else FLOAT_BYTES)
    is_normalised = resolved.environment.normalise_observations and not spaces.image
    as_given = size * dtype.itemsize if is_normalised else 0
    hyper = resolved.hyperparameters
    rows = hyper.rollout_length * resolved.environment.count
    in_minibatch = rows // hyper.minibatches
    return int(rows * (encoded + as_given) + in_minibatch * encoded)


def of_batches(resolved: Resolved, spaces: Interface, dtype: np.dtype[Any]) -> int:
    """`agents.interfaces.ExperienceBytes` of an algorithm with batches of unrolls: the observations of
    the batch that is learnt from and of those that wait.
    """
    hyper = resolved.hyperparameters
    rows = hyper.batch_size * (hyper.unroll_length + 1)
    return int((1 + WAITING) * rows * math.prod(spaces.environment_shape) * dtype.itemsize)
