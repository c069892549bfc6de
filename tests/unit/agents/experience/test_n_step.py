"""R2D2's targets against known answers and against loops over rows, in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from agents.experience.returns import n_step_returns, rescaled, unrescaled

R, V = (1.0, 0.0, 2.0, 0.0, 1.0), (9.0, 3.0, 3.5, 4.0, 4.5, 5.0)
"""V of the six rows; the first one's is nobody's bootstrap."""


def column(values: tuple[float, ...]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


def returns(
    rewards: tuple[float, ...] = R, values: tuple[float, ...] = V, *, terminated: int | None = None,
    final: int | None = None, discount: float = 0.9, n: int = 3,
) -> list[float]:  # fmt: skip
    flags = [torch.zeros(len(rewards), 1, dtype=torch.bool) for _ in range(2)]
    for flag, row in zip(flags, (terminated, final), strict=True):
        if row is not None:
            flag[row] = True
    found = n_step_returns(column(rewards), column(values), *flags, discount=discount, n=n)
    return found[:, 0].tolist()


def test_known_answers() -> None:
    assert returns() == pytest.approx([5.536, 5.0805, 6.455, 4.95, 5.5])
    assert returns(terminated=1)[:2] == pytest.approx([1, 0])
    truncated = returns((1, 0, 0, 2, 0), V, final=2)  # row 2 holds what the episode ended with
    assert truncated[:2] == pytest.approx([3.835, 3.15])
    assert returns(terminated=1)[2:] == returns()[2:]


def test_five_steps_on_the_scale_of_h() -> None:
    value = unrescaled(column((4.2,)))
    values = tuple(torch.cat([column((0.0,)).expand(5, 1), value])[:, 0].tolist())
    first = returns(R, values, discount=0.997, n=5)[0]
    assert float(rescaled(column((first,)))) == pytest.approx(4.5397567816, abs=1e-9)


def test_the_scale_of_h() -> None:
    assert float(rescaled(column((1.0,)))) == pytest.approx(0.4152135624, abs=1e-10)
    assert float(rescaled(column((100.0,)))) == pytest.approx(9.1498756211, abs=1e-10)
    x = torch.linspace(-1e4, 1e4, 20_001, dtype=torch.float64)
    assert float((unrescaled(rescaled(x)) - x).abs().max()) < 1e-10
    assert (rescaled(-x) == -rescaled(x)).all()


def test_float32_loses_little_on_the_way_back() -> None:
    """Which the formula as it is printed does: 5e-5 at 0.1."""
    x = torch.tensor([0.1, 1.0, 10.0, 500.0])
    assert torch.allclose(unrescaled(rescaled(x)), x, rtol=2e-6, atol=2e-6)


def slow(
    rewards: np.ndarray, values: np.ndarray, terminated: np.ndarray, final: np.ndarray,
    discount: float, n: int, row: int,
) -> float:  # fmt: skip
    """Of one row, forwards: reward after reward until something ends it."""
    total, weight, now = 0.0, 1.0, row
    for _ in range(n):
        total += weight * rewards[now]
        if terminated[now]:
            return total
        weight, now = weight * discount, now + 1
        if now == len(rewards) or final[now]:
            break
    return total + weight * values[now]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(1, 12))
def test_it_is_what_loops_find(seed: int, n: int, length: int) -> None:
    generator = np.random.default_rng(seed)
    rewards, values = generator.normal(size=(length, 3)), generator.normal(size=(length + 1, 3))
    terminated, final = (generator.random((2, length, 3)) < 0.15).astype(bool)
    found = n_step_returns(
        *map(torch.from_numpy, (rewards, values, terminated, final)), discount=0.8, n=n
    )
    for row, column_ in np.ndindex(length, 3):
        if final[row, column_]:
            continue  # nothing is learnt from it
        given_ = (one[:, column_] for one in (rewards, values, terminated, final))
        assert float(found[row, column_]) == pytest.approx(slow(*given_, 0.8, n, row), abs=1e-12)
