"""Targets of n steps over sequences in which episodes end, and the scale on which values are learnt:
R2D2, Kapturowski et al. 2019 (openreview.net/forum?id=r1lyTjAqYX), section 2.3.
"""

from __future__ import annotations

import torch
from torch import Tensor

SLOPE = 1e-3
"""ε of h, which keeps its inverse from growing without bound."""


def rescaled(values: Tensor) -> Tensor:
    """h(x) = sign(x)(√(|x| + 1) − 1) + ε x, Pohlen et al. 2018 (arXiv:1805.11593), in place of clipped
    rewards.
    """
    return values.sign() * ((values.abs() + 1).sqrt() - 1) + SLOPE * values


def unrescaled(values: Tensor) -> Tensor:
    """h⁻¹(x) = sign(x)(((√(1 + 4 ε a) − 1) / 2 ε)² − 1), a = |x| + 1 + ε; the root's numerator is
    multiplied out, because float32 would lose it in the difference to 1.
    """
    a = values.abs() + 1 + SLOPE
    return values.sign() * ((2 * a / ((1 + 4 * SLOPE * a).sqrt() + 1)).square() - 1)


def n_step_returns(
    rewards: Tensor, values: Tensor, terminated: Tensor, final: Tensor, *, discount: float, n: int
) -> Tensor:
    """G [T, B], n times, from G = V on: G_t = r_t + γ (1 − terminated_t) G_{t+1}.

    rewards [T, B]; values [T + 1, B]: V of each row's observation; terminated, final bool [T, B]. In a
    final row, which only holds the observation with which an episode was truncated, and in the last
    one, G stays V: what would have followed is not there, and bootstraps earlier.
    """
    discounts = discount * (~terminated).to(rewards.dtype)
    returns = values
    for _ in range(n):
        following = torch.cat((torch.where(final, values[:-1], returns[:-1])[1:], values[-1:]))
        returns = torch.cat((torch.addcmul(rewards, discounts, following), values[-1:]))
    return returns[:-1]
