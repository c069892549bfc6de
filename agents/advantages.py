"""Advantage estimation: pure functions, time first, [T, N]."""

from __future__ import annotations

import numpy as np


def gae(
    rewards: np.ndarray,
    values: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    valid: np.ndarray,
    *,
    discount: float,
    gae_lambda: float,
) -> np.ndarray:
    """Generalised advantage estimation, Schulman et al. 2016 (arXiv:1506.02438), eq. 16.

        δ_t = r_{t+1} + γ (1 − term_{t+1}) V(o_{t+1}) − V(o_t)
        A_t = δ_t + γλ (1 − term_{t+1}) (1 − trunc_{t+1}) A_{t+1}

    rewards, terminated, truncated [T, N]: what answered row t's action; values [T + 1, N], the last row bootstraps;
    valid [T, N]: False for the dummy row after an end. Returns float64 [T, N], 0 in dummy rows.

    In NEXT_STEP autoreset mode row t+1 of an ended episode holds its final observation, so V of the next row is what a
    truncated episode bootstraps from; a dummy row never reaches another one, because the row before it cuts the trace.
    """
    deltas = rewards + discount * ~terminated * values[1:] - values[:-1]
    decays = discount * gae_lambda * ~(terminated | truncated)
    advantages: np.ndarray = np.empty_like(deltas)
    following = np.zeros_like(deltas[0])
    for t in range(len(deltas) - 1, -1, -1):
        following = deltas[t] + decays[t] * following
        advantages[t] = following
    advantages *= valid
    return advantages


def explained_variance(values: np.ndarray, returns: np.ndarray) -> float:
    """1 − Var(R − V) / Var(R); 1 is a perfect value function, 0 no better than a constant. Both [B]; 0 for constant returns."""
    spread = float(np.var(returns))
    return 1.0 - float(np.var(returns - values)) / spread if spread > 0 else 0.0
