"""The LSTM over sequences in which episodes begin: against a step by hand, a double loop,
`torch.nn.LSTM` and finite differences."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from agents.networks import lstm
from agents.networks.lstm import unrolled

COUNT, STEPS, ROWS, UNITS = 2, 7, 3, 5  # none of them 4, the number of gates
Given = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def some(dtype: torch.dtype = torch.float64, *, begins: bool = True) -> Given:
    """Inputs, weight, hidden, cell, keep."""
    generator = torch.Generator().manual_seed(3)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=dtype, generator=generator)

    inputs, weight = drawn(COUNT, STEPS, ROWS, 4 * UNITS), drawn(COUNT, UNITS, 4 * UNITS)
    keep = torch.rand(STEPS, ROWS, generator=generator) > 0.3 * begins
    assert keep.all() != begins
    state = drawn(COUNT, ROWS, UNITS), drawn(COUNT, ROWS, UNITS)
    return inputs.requires_grad_(), weight.requires_grad_(), *state, keep


def by_loops(inputs: Tensor, weight: Tensor, hidden: Tensor, cell: Tensor, keep: Tensor) -> Tensor:
    """h of every step [K, L, S, H]: one LSTM after the other, one row after the other."""
    found = torch.zeros(COUNT, STEPS, ROWS, UNITS, dtype=inputs.dtype)
    for tower in range(COUNT):
        for row in range(ROWS):
            h, c = hidden[tower, row].tolist(), cell[tower, row].tolist()
            for t in range(STEPS):
                if not keep[t, row]:
                    h, c = [0.0] * UNITS, [0.0] * UNITS
                z = (
                    inputs[tower, t, row] + torch.tensor(h, dtype=inputs.dtype) @ weight[tower]
                ).tolist()
                for unit in range(UNITS):
                    i, f, o = (1 / (1 + math.exp(-z[n * UNITS + unit])) for n in range(3))
                    c[unit] = f * c[unit] + i * math.tanh(z[3 * UNITS + unit])
                    h[unit] = o * math.tanh(c[unit])
                found[tower, t, row] = torch.tensor(h, dtype=inputs.dtype)
    return found


def test_one_step_by_hand() -> None:
    """z = 0 everywhere: i = f = o = ½ and g = 0, so c is halved and h = ½ tanh(½ c)."""
    inputs, weight = torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 4)
    hiddens, hidden, cell = lstm.lstm(
        inputs, weight, torch.ones(1, 1, 1), torch.full((1, 1, 1), 3.0), torch.tensor([[True]])
    )
    assert cell.item() == pytest.approx(1.5)
    assert hidden.item() == hiddens.item() == pytest.approx(0.5 * math.tanh(1.5))


@pytest.mark.parametrize("begins", [True, False])
def test_all_steps_are_those_of_the_double_loop(begins: bool) -> None:
    given = some(begins=begins)
    expected = by_loops(*(one.detach() for one in given))
    for hiddens in (lstm.lstm(*given)[0], unrolled(*given)[0]):
        assert torch.allclose(hiddens, expected, atol=1e-14, rtol=0)


def test_a_reset_a_step_later_is_something_else() -> None:
    *given, keep = some()
    later = keep.roll(1, dims=0)
    found = lstm.lstm(*given, keep)[0], lstm.lstm(*given, later)[0]
    assert (found[0] - found[1]).abs().max().item() > 0.1


@pytest.mark.parametrize("begins", [True, False])
def test_the_derivative_by_hand_is_that_of_finite_differences(begins: bool) -> None:
    inputs, weight, *rest = some(begins=begins)
    assert torch.autograd.gradcheck(lambda *two: lstm.lstm(*two, *rest)[0], (inputs, weight))


@pytest.mark.parametrize("begins", [True, False])
def test_the_derivative_by_hand_is_autograd_s(begins: bool) -> None:
    given = some(begins=begins)
    factors = torch.randn(COUNT, STEPS, ROWS, UNITS, dtype=torch.float64)
    mine, autograd_s = (
        torch.autograd.grad((hiddens * factors).sum(), given[:2])
        for hiddens in (lstm.lstm(*given)[0], unrolled(*given)[0])
    )
    for one, other in zip(mine, autograd_s, strict=True):
        assert torch.allclose(one, other, atol=1e-13, rtol=0)
    assert not lstm.lstm(*given)[2].requires_grad, "the last cell has no derivative by hand"


def test_a_sequence_of_one_step_has_a_derivative() -> None:
    inputs, weight, hidden, cell, keep = some()
    one_step = inputs.detach()[:, :1].requires_grad_(), weight, hidden, cell, keep[:1]
    mine, autograd_s = (
        torch.autograd.grad(hiddens.square().sum(), one_step[:2])
        for hiddens in (lstm.lstm(*one_step)[0], unrolled(*one_step)[0])
    )
    for one, other in zip(mine, autograd_s, strict=True):
        assert torch.allclose(one, other, atol=1e-13, rtol=0)


def test_nothing_given_is_changed() -> None:
    given = some()
    before = [one.detach().clone() for one in given]
    lstm.lstm(*given)[0].square().sum().backward()  # type: ignore[no-untyped-call]
    assert all(map(torch.equal, given, before))


def test_it_is_torch_s_where_no_episode_begins_and_of_each_episode_by_itself() -> None:
    """torch has the gates in the order i, f, g, o and the weights of what is seen inside."""
    theirs = nn.LSTM(5, UNITS, dtype=torch.float64)
    seen = torch.randn(STEPS, ROWS, 5, dtype=torch.float64)

    def ours(weight: Tensor) -> Tensor:
        i, f, g, o = weight.detach().chunk(4)
        return torch.cat((i, f, o, g)).t()

    inputs = seen @ ours(theirs.weight_ih_l0) + ours(theirs.bias_ih_l0) + ours(theirs.bias_hh_l0)
    hidden, cell = torch.randn(2, 1, ROWS, UNITS, dtype=torch.float64)
    weight, keep = ours(theirs.weight_hh_l0)[None], torch.ones(STEPS, ROWS, dtype=torch.bool)
    expected, after = theirs(seen, (hidden, cell))
    found = lstm.lstm(inputs[None], weight, hidden, cell, keep)
    assert torch.allclose(found[0][0], expected, atol=1e-14)
    assert all(torch.allclose(*pair, atol=1e-14) for pair in zip(found[1:], after, strict=True))
    keep[4] = False
    first, _ = theirs(seen[:4], (hidden, cell))
    second, after = theirs(seen[4:])
    found = lstm.lstm(inputs[None], weight, hidden, cell, keep)
    assert torch.allclose(found[0][0], torch.cat((first, second)), atol=1e-14)
    assert all(torch.allclose(*pair, atol=1e-14) for pair in zip(found[1:], after, strict=True))


def test_large_numbers_stay_finite() -> None:
    inputs, weight, *rest = some(torch.float32)
    hiddens, _, cell = lstm.lstm(inputs * 1e6, weight, *rest)
    (gradient,) = torch.autograd.grad(hiddens.sum(), (inputs,))
    assert all(bool(one.isfinite().all()) for one in (hiddens, cell, gradient))


def test_a_single_step_in_place_is_the_same() -> None:
    inputs, weight, hidden, cell, _ = (one.detach().numpy() for one in some())
    left = lstm.Step.allocate(inputs[:, 0])
    lstm.step(lstm.halved(inputs[:, 0]), lstm.halved(weight), hidden, cell, left)
    keep = torch.ones(STEPS, ROWS, dtype=torch.bool)
    expected = unrolled(*some()[:4], keep)[0][:, 0].detach().numpy()
    np.testing.assert_allclose(left.hidden, expected, atol=1e-14)
