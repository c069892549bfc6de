"""V-trace, Espeholt et al. 2018 (IMPALA, arXiv:1802.01561), section 4.1: what states are worth under
the policy that learns, from experience of an older one.

    ρ_t = min(ρ̄, π/μ)    c_t = λ min(c̄, π/μ)    d_t = γ (1 − terminated)
    δ_t = ρ_t (r_{t+1} + d_t V(o_{t+1}) − V(o_t))
    v_t = V(o_t) + δ_t + d_t c_t (v_{t+1} − V(o_{t+1}))        remark 1; v_T = V(o_T)
    A_t = ρ_t (r_{t+1} + d_t v_{t+1} − V(o_t))                 section 4.2

An episode that is truncated has one more row, its final observation, which is the o_{t+1} of the row
before it. Nothing follows from there, so δ and c are 0 in it: its v is its V, by which the trace of
the truncated row ends, too.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


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
    """Targets and advantages of B unrolls.

    log_ratios (log π − log μ), rewards [T, B]; values [T + 1, B], the last row bootstraps;
    terminated bool [T, B]; final bool [T, B]: rows that only hold a final observation.
    """
    ratios = log_ratios.exp()
    lives = (~final).to(values.dtype)
    discounts = discount * (~terminated).to(values.dtype)
    rho = ratios.clamp(max=rho_bar) * lives
    traces = trace_lambda * ratios.clamp(max=c_bar) * lives * discounts
    corrections = rho * (rewards + discounts * values[1:] - values[:-1])
    following = torch.zeros_like(values[0])
    differences = list[Tensor]()
    for correction, trace in zip(
        reversed(corrections.unbind()), reversed(traces.unbind()), strict=True
    ):
        following = torch.addcmul(correction, trace, following)
        differences.append(following)
    differences.reverse()
    above = torch.stack([*differences, torch.zeros_like(following)])
    targets = values + above
    advantages = rho * (rewards + discounts * targets[1:] - values[:-1])
    return VTrace(targets[:-1], advantages)
