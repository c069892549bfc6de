"""V-trace against the paper's sum, closed forms, and what each of its parts is for."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.experience.returns import VTrace, vtrace

PUBLISHED = {"discount": 0.9, "rho_bar": 1.0, "c_bar": 1.0, "trace_lambda": 1.0}


def of_one(
    ratios: list[float], rewards: list[float], values: list[float],
    terminated: tuple[int, ...] = (), final: tuple[int, ...] = (), **settings: float,
) -> tuple[list[float], list[float]]:  # fmt: skip
    """Targets and advantages of one unroll; terminated, final: the numbers of these rows."""
    length = len(rewards)
    flags = [torch.tensor([[t in rows] for t in range(length)]) for rows in (terminated, final)]
    columns = [torch.tensor(one, dtype=torch.float64)[:, None] for one in (ratios, rewards, values)]
    found = vtrace(columns[0].log(), columns[1], columns[2], *flags, **(PUBLISHED | settings))
    return found.targets[:, 0].tolist(), found.advantages[:, 0].tolist()


SHORT = {"ratios": [2, 0.5, 1], "rewards": [1, 2, 3], "values": [0.5, 1, 1.5, 2]}
ENDED = {"ratios": [2, 0.5, 1, 1], "rewards": [1, 2, 0, 3], "values": [0.5, 1, 4, 1.5, 2]}


def test_the_known_answers() -> None:
    targets, advantages = of_one(**SHORT)
    assert targets == pytest.approx([4.294, 3.66, 4.8])
    assert advantages == pytest.approx([3.794, 2.66, 3.3])
    targets, advantages = of_one(**SHORT, terminated=(1,))
    assert targets == pytest.approx([2.35, 1.5, 4.8])
    assert advantages == pytest.approx([1.85, 0.5, 3.3])
    assert of_one(**SHORT, trace_lambda=0.95)[0][0] == pytest.approx(4.11081625)


def test_a_truncation_bootstraps_from_the_final_observation_and_ends_the_trace() -> None:
    targets, advantages = of_one(**ENDED, final=(2,))
    assert targets == pytest.approx([3.97, 3.3, 4, 4.8])
    assert advantages == pytest.approx([3.47, 2.3, 0, 3.3])
    targets, advantages = of_one(**ENDED, terminated=(1,), final=(2,))
    assert targets == pytest.approx([2.35, 1.5, 4, 4.8])
    assert advantages == pytest.approx([1.85, 0.5, 0, 3.3])
    assert of_one(**ENDED)[0] != pytest.approx([3.97, 3.3, 4, 4.8])


def test_without_a_difference_of_policies_targets_are_returns() -> None:
    targets, advantages = of_one([1, 1, 1], SHORT["rewards"], SHORT["values"])
    assert targets == pytest.approx([6.688, 6.32, 4.8])
    assert advantages == pytest.approx([6.188, 5.32, 3.3])


def test_what_the_policy_would_never_do_teaches_nothing() -> None:
    targets, advantages = of_one([1e-30] * 3, SHORT["rewards"], SHORT["values"])
    assert targets == pytest.approx([0.5, 1, 1.5])
    assert advantages == pytest.approx([0, 0, 0])


def test_an_infinite_ratio_is_cut_like_any_other() -> None:
    largest = of_one([math.exp(700)] * 3, SHORT["rewards"], SHORT["values"])
    single = torch.full((3, 1), 1000.0)
    columns = (torch.tensor(SHORT[name])[:, None] for name in ("rewards", "values"))
    none = torch.zeros(3, 1, dtype=torch.bool)
    found = vtrace(single, *columns, none, none, **PUBLISHED)
    assert found.targets[:, 0].tolist() == pytest.approx(largest[0])


def test_there_is_no_gradient_in_them() -> None:
    parameter = torch.ones(3, 1, requires_grad=True)
    none = torch.zeros(3, 1, dtype=torch.bool)
    values = torch.cat((parameter, parameter[:1]))
    found = vtrace(parameter, parameter, values, none, none, **PUBLISHED)
    assert not any(one.requires_grad for one in found)


def slow(
    ratios: np.ndarray, rewards: np.ndarray, values: np.ndarray, terminated: np.ndarray,
    final: np.ndarray, gamma: float, rho_bar: float, c_bar: float, lam: float,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Eq. 1 as it stands, of one environment: each episode's rows by themselves.

    v_s = V(x_s) + Σ_t γ^(t−s) (Π_{i<t} c_i) ρ_t (r_t + γ V(x_{t+1}) − V(x_t)), t up to the end of
    the episode or of the unroll. final rows begin and end a piece of their own.
    """
    length = len(rewards)
    targets = values[:-1].copy()
    cuts = {0, length} | {t + 1 for t in np.flatnonzero(terminated)}
    cuts |= set(np.flatnonzero(final)) | {t + 1 for t in np.flatnonzero(final)}
    for first, end in pairwise(sorted(cuts)):
        if final[first]:
            continue
        after = 0.0 if terminated[end - 1] else values[end]
        v = [*values[first:end], after]
        for s in range(end - first):
            for t in range(s, end - first):
                product = math.prod(lam * min(c_bar, ratios[first + i]) for i in range(s, t))
                delta = rewards[first + t] + gamma * v[t + 1] - v[t]
                step = gamma ** (t - s) * product * min(rho_bar, ratios[first + t]) * delta
                targets[first + s] += step
    advantages = np.zeros(length)
    following = [*targets, values[-1]]
    for t in range(length):
        if not final[t]:
            bootstrap = 0.0 if terminated[t] else following[t + 1]
            rho = min(rho_bar, ratios[t])
            advantages[t] = rho * (rewards[t] + gamma * bootstrap - values[t])
    return targets, advantages


def drawn(seed: int, length: int, rows: int) -> tuple[np.ndarray, ...]:
    generator = np.random.default_rng(seed)
    log_ratios = generator.uniform(-2.5, 2.5, (length, rows))
    rewards, values = (
        generator.normal(size=(length, rows)),
        generator.normal(size=(length + 1, rows)),
    )
    ends = generator.random((length, rows))
    terminated, truncated = ends < 0.15, (ends >= 0.15) & (ends < 0.3)
    final = np.zeros_like(terminated)
    final[0] = generator.random(rows) < 0.3
    for t in range(length):
        terminated[t] &= ~final[t]
        if t + 1 < length:
            final[t + 1] = truncated[t] & ~final[t]
    return log_ratios, rewards, values, terminated, final


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1), length=st.integers(1, 12), rows=st.integers(1, 4),
    lam=st.sampled_from([0.0, 0.7, 1.0]), gamma=st.sampled_from([0.0, 0.9, 1.0]),
    bars=st.sampled_from([(1.0, 1.0), (3.7, 2.2), (1.0, 0.5)]),
)  # fmt: skip
def test_it_is_the_sum_of_the_paper(
    seed: int, length: int, rows: int, lam: float, gamma: float, bars: tuple[float, float]
) -> None:
    columns = drawn(seed, length, rows)
    rho_bar, c_bar = bars
    found: VTrace = vtrace(
        *map(torch.from_numpy, columns),
        discount=gamma, rho_bar=rho_bar, c_bar=c_bar, trace_lambda=lam,
    )  # fmt: skip
    for n in range(rows):
        one = [column[:, n] for column in columns]
        targets, advantages = slow(np.exp(one[0]), *one[1:], gamma, rho_bar, c_bar, lam)
        assert found.targets[:, n].numpy() == pytest.approx(targets, rel=1e-9, abs=1e-9)
        assert found.advantages[:, n].numpy() == pytest.approx(advantages, rel=1e-9, abs=1e-9)
