"""Estimates of advantages and value targets: generalised advantage estimation, V-trace and n-step
returns. Pure functions; arrays are time first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
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
    # δ bootstraps from the final observation of a truncated episode, but not after a termination.
    deltas = rewards + discount * ~terminated * next_values - values
    # The trace ends with the episode, however that ended: the next row belongs to another one.
    decays = discount * gae_lambda * ~(terminated | truncated)
    advantages: np.ndarray = np.empty_like(deltas)
    following = np.zeros_like(deltas[0])
    for t in range(len(deltas) - 1, -1, -1):
        following = deltas[t] + decays[t] * following
        advantages[t] = following
    return advantages


@torch.no_grad()
def gae_by_doubling(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    discount: float,
    gae_lambda: float,
) -> Tensor:
    """`gae` for tensors of a GPU, in log2 T rounds instead of T steps: a loop over single rows would
    start more kernels than all else of an epoch.

    After a round with span k row t holds what the 2 k rows from it on add to A_t, and the product of
    their decays, with which it takes up the rows after these.
    """
    lives = (~terminated).double()
    advantages = rewards.double() + discount * lives * next_values - values
    decays = discount * gae_lambda * lives * (~truncated)
    span = 1
    while span < len(rewards):
        following = advantages[:-span] + decays[:-span] * advantages[span:]
        advantages = torch.cat((following, advantages[-span:]))
        # Nothing follows the last rows.
        decays = torch.cat((decays[:-span] * decays[span:], torch.zeros_like(decays[-span:])))
        span *= 2
    return advantages


def explained_variance(values: np.ndarray, returns: np.ndarray) -> float:
    """1 − Var(R − V) / Var(R); 1 is a perfect value function, 0 no better than a constant. Both
    [B]; 0 for constant returns.
    """
    spread = float(np.var(returns))
    if spread > 0:
        return 1.0 - float(np.var(returns - values)) / spread
    return 0.0


def explained_variance_of_tensors(values: Tensor, returns: Tensor) -> Tensor:
    """`explained_variance`, [], where the tensors are: nothing waits for it."""
    spread = returns.double().var(correction=0)
    unexplained = (returns - values).double().var(correction=0)
    return torch.where(spread > 0, 1 - unexplained / spread, 0.0)


def approximate_divergence(log_ratio: Tensor) -> Tensor:
    """KL(π_old ‖ π), [], estimated as mean((ρ − 1) − log ρ), never negative (Schulman 2020,
    "Approximating KL divergence", k3).
    """
    # expm1 keeps its precision where ρ is near 1, and ρ − 1 near 0.
    return (log_ratio.expm1() - log_ratio).mean()


class VTrace(NamedTuple):
    """Both [T, B], without a gradient: what V learns, and what weights ∇ log π."""

    targets: Tensor
    advantages: Tensor


@torch.no_grad()
def vtrace(
    log_ratios: Tensor,
    rewards: Tensor,
    values: Tensor,
    terminated: Tensor,
    final: Tensor,
    *,
    discount: float,
    rho_bar: float,
    c_bar: float,
    trace_lambda: float,
) -> VTrace:
    """V-trace, Espeholt et al. 2018 (IMPALA, arXiv:1802.01561), section 4.1: the value of states under
    the policy that learns, estimated from experience of an older one.

        ρ_t = min(ρ̄, π/μ)    c_t = λ min(c̄, π/μ)    d_t = γ (1 − terminated)
        δ_t = ρ_t (r_{t+1} + d_t V(o_{t+1}) − V(o_t))
        v_t = V(o_t) + δ_t + d_t c_t (v_{t+1} − V(o_{t+1}))        remark 1; v_T = V(o_T)
        A_t = ρ_t (r_{t+1} + d_t v_{t+1} − V(o_t))                 section 4.2

    A truncated episode has one more row, its final observation, which is the o_{t+1} of the row before
    it. Nothing follows that row, so its δ and c are 0 and its v is its V; there the trace of the
    truncated row ends.


    log_ratios (log π − log μ), rewards [T, B]; values [T + 1, B], the last row bootstraps;
    terminated bool [T, B]; final bool [T, B]: rows that only hold a final observation.
    """
    ratios = log_ratios.exp()
    # Nothing follows a final observation: both its δ and its c are 0.
    lives = (~final).to(values.dtype)
    discounts = discount * (~terminated).to(values.dtype)
    rho = ratios.clamp(max=rho_bar) * lives
    traces = trace_lambda * ratios.clamp(max=c_bar) * lives * discounts
    # These are the δ_t.
    corrections = rho * (rewards + discounts * values[1:] - values[:-1])
    # The v_t − V(o_t) follow from the last row back (remark 1).
    following = torch.zeros_like(values[0])
    differences = list[Tensor]()
    for correction, trace in zip(
        reversed(corrections.unbind()), reversed(traces.unbind()), strict=True
    ):
        following = torch.addcmul(correction, trace, following)
        differences.append(following)
    differences.reverse()
    # v_T = V(o_T): the last row only bootstraps.
    above = torch.stack([*differences, torch.zeros_like(following)])
    targets = values + above
    # The policy's gradient bootstraps from v_{t+1}, not from V (section 4.2).
    advantages = rho * (rewards + discounts * targets[1:] - values[:-1])
    return VTrace(targets[:-1], advantages)


SLOPE = 1e-3
"""ε of the value rescaling h; it keeps the inverse of h Lipschitz continuous."""


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
    # (√(1 + 4 ε a) − 1) / 2 ε = 2 a / (√(1 + 4 ε a) + 1).
    return values.sign() * ((2 * a / ((1 + 4 * SLOPE * a).sqrt() + 1)).square() - 1)


def n_step_returns(
    rewards: Tensor, values: Tensor, terminated: Tensor, final: Tensor, *, discount: float, n: int
) -> Tensor:
    """R2D2's n-step targets, Kapturowski et al. 2019 (openreview.net/forum?id=r1lyTjAqYX), section 2.3.

    Returns G [T, B]: start with G = V and apply G_t = r_t + γ (1 − terminated_t) G_{t+1} n times.

    rewards [T, B]; values [T + 1, B]: V of each row's observation; terminated, final bool [T, B]. In a
    final row, which only holds the observation with which an episode was truncated, and in the last
    one, G stays V: what would have followed is not there, and bootstraps earlier.
    """
    discounts = discount * (~terminated).to(rewards.dtype)
    returns = values
    for _ in range(n):
        # G of the next row; a row that only holds a final observation keeps its V, as the last row
        # does.
        following = torch.cat((torch.where(final, values[:-1], returns[:-1])[1:], values[-1:]))
        returns = torch.cat((torch.addcmul(rewards, discounts, following), values[-1:]))
    return returns[:-1]
