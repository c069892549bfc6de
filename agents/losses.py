"""The two losses of PPO with their gradients, written out: autograd takes four times as many small
calls for the same numbers.

Each returns (loss [], its gradient [B]); a test compares the gradients with autograd's.
"""

from __future__ import annotations

import torch
from torch import Tensor


def clipped_policy_loss(
    log_ratio: Tensor, advantages: Tensor, clip: float
) -> tuple[Tensor, Tensor]:
    """Schulman et al. 2017, eq. 7, negated: −mean(min(ρA, clip(ρ, 1 − ε, 1 + ε) A)) and its
    gradient by log π.

    log_ratio (log ρ), advantages [B]. Where the clipped term is the smaller one, it is constant: no
    gradient.
    """
    ratio = log_ratio.exp()
    free, bounded = ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages
    loss = torch.minimum(free, bounded).mean().neg()
    return loss, torch.where(free <= bounded, free, 0.0).mul_(-1 / len(ratio))


def squared_value_loss(
    values: Tensor, returns: Tensor, old_values: Tensor, clip: float | None
) -> tuple[Tensor, Tensor]:
    """½ mean((V − R)²) and its gradient by V; all [B].

    With `clip`, the larger of this and of V moved at most `clip` from its old value, as in
    openai/baselines.
    """
    errors = values - returns
    squares = errors.square()
    gradient = errors * (1 / len(errors))
    if clip is not None:
        near = old_values + (values - old_values).clamp(-clip, clip)
        near_squares = (near - returns).square()
        # Within the clip both squares are the same but for rounding, which must not decide: it took
        # one row in 700 its gradient.
        gradient *= (squares >= near_squares) | ((values - old_values).abs() <= clip)
        squares = torch.maximum(squares, near_squares)
    return 0.5 * squares.mean(), gradient


def approximate_divergence(log_ratio: Tensor) -> float:
    """KL(π_old ‖ π) estimated as mean((ρ − 1) − log ρ), never negative (Schulman 2020,
    "Approximating KL divergence", k3).
    """
    return float((log_ratio.expm1() - log_ratio).mean())
