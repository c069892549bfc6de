"""Advantage estimation, time first, and how well policy and value follow it: pure functions."""

from __future__ import annotations

import numpy as np
from torch import Tensor


def gae(
    rewards: np.ndarray,
    values: np.ndarray,
    next_values: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    *,
    discount: float,
    gae_lambda: float,
) -> np.ndarray:
    """Generalised advantage estimation, Schulman et al. 2016 (arXiv:1506.02438), eq. 16.

        δ_t = r_{t+1} + γ (1 − term_{t+1}) V(o_{t+1}) − V(o_t)
        A_t = δ_t + γλ (1 − term_{t+1}) (1 − trunc_{t+1}) A_{t+1}

    All [T, N]: rewards, terminated, truncated answered row t's action; values are V(o_t),
    next_values V(o_{t+1}). After a truncation o_{t+1} is the episode's final observation, which no
    row holds: the next one belongs to another episode, and the trace is cut between them. Returns
    float64 [T, N].
    """
    deltas = rewards + discount * ~terminated * next_values - values
    decays = discount * gae_lambda * ~(terminated | truncated)
    advantages: np.ndarray = np.empty_like(deltas)
    following = np.zeros_like(deltas[0])
    for t in range(len(deltas) - 1, -1, -1):
        following = deltas[t] + decays[t] * following
        advantages[t] = following
    return advantages


def explained_variance(values: np.ndarray, returns: np.ndarray) -> float:
    """1 − Var(R − V) / Var(R); 1 is a perfect value function, 0 no better than a constant. Both
    [B]; 0 for constant returns.
    """
    spread = float(np.var(returns))
    return 1.0 - float(np.var(returns - values)) / spread if spread > 0 else 0.0


def approximate_divergence(log_ratio: Tensor) -> float:
    """KL(π_old ‖ π) estimated as mean((ρ − 1) − log ρ), never negative (Schulman 2020,
    "Approximating KL divergence", k3).
    """
    return float((log_ratio.expm1() - log_ratio).mean())
