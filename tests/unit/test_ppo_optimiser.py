"""The flat Adam against the paper's algorithm, torch's own and its own checkpoint; small enough to
be done by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from agents.optimiser import FlatAdam


def layer() -> nn.Linear:
    """2 weights and a bias, of known values."""
    module = nn.Linear(2, 1)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[3.0, -1.0]]))
        module.bias.copy_(torch.tensor([0.5]))
    return module


def stepped(optimiser: FlatAdam, *gradients: tuple[float, float, float]) -> None:
    for gradient in gradients:
        optimiser.gradients.copy_(torch.tensor(gradient))
        optimiser.step(0.1)


def test_parameters_and_their_gradients_are_views_into_one_vector() -> None:
    module = layer()
    optimiser = FlatAdam(module, epsilon=1e-5)
    assert optimiser.values.tolist() == [3, -1, 0.5]
    assert optimiser.gradients.tolist() == [0, 0, 0]
    (2 * module(torch.tensor([[5.0, 7.0]])).sum()).backward()
    assert optimiser.gradients.tolist() == [10, 14, 2]
    optimiser.clear_gradients()
    assert module.bias.grad is not None and module.bias.grad.tolist() == [0]


def test_one_step_by_hand() -> None:
    """Algorithm 1 with t = 1: m = 0.1 g, v = 0.001 g²; the step is lr · g / (|g| + ε)."""
    module = layer()
    optimiser = FlatAdam(module, epsilon=1.0)
    stepped(optimiser, (4.0, -9.0, 0.0))
    assert module.weight.tolist() == [pytest.approx([3 - 0.1 * 4 / 5, -1 + 0.1 * 9 / 10])]
    assert module.bias.tolist() == [0.5]
    state = optimiser.state_dict()
    assert state["moment_1"] == pytest.approx([0.4, -0.9, 0])
    assert state["moment_2"] == pytest.approx([0.016, 0.081, 0])
    assert state["updates"] == 1


def test_a_resumed_one_goes_on_equally() -> None:
    first, second = layer(), layer()
    undisturbed, before = (FlatAdam(module, epsilon=1e-5) for module in (first, second))
    stepped(before, (1.0, 2.0, -3.0), (0.5, -1.0, 2.0))
    state = before.state_dict()
    stepped(before, (9.0, 9.0, 9.0))
    assert state["updates"] == 2
    assert not np.array_equal(state["moment_1"], before.state_dict()["moment_1"])
    stepped(undisturbed, (1.0, 2.0, -3.0), (0.5, -1.0, 2.0))
    third = layer()
    third.load_state_dict(first.state_dict())
    resumed = FlatAdam(third, epsilon=1e-5)
    resumed.load_state_dict(state)
    for optimiser in (undisturbed, resumed):
        stepped(optimiser, (-2.0, 0.1, 0.2))
    assert torch.equal(undisturbed.values, resumed.values)
    assert np.array_equal(undisturbed.state_dict()["moment_2"], resumed.state_dict()["moment_2"])


@pytest.mark.parametrize(
    ("gradient", "largest"),
    [
        ((3.0, 0.0, 4.0), 1.0),
        ((3.0, 0.0, 4.0), 5.0),
        ((3e-6, 0.0, 4e-6), 1e-6),
        ((0.0, 0.0, 0.0), 1.0),
    ],
)
def test_clipping_is_torch_s(gradient: tuple[float, float, float], largest: float) -> None:
    """Also where the norm is as small as the 1e-6 that is added to it."""
    optimiser = FlatAdam(layer(), epsilon=1e-5)
    optimiser.gradients.copy_(torch.tensor(gradient))
    reference = nn.Parameter(torch.zeros(3))
    reference.grad = torch.tensor(gradient)
    norm = nn.utils.clip_grad_norm_([reference], largest)
    assert optimiser.clip_gradients(largest) == pytest.approx(float(norm), rel=1e-6)
    assert torch.allclose(optimiser.gradients, reference.grad, rtol=1e-4, atol=0)


def test_everything_is_on_the_device_of_the_parameters() -> None:
    optimiser = FlatAdam(nn.Linear(2, 1, device="meta"), epsilon=1e-5)
    tensors = [value for value in vars(optimiser).values() if isinstance(value, Tensor)]
    assert len(tensors) == 5
    assert {tensor.device.type for tensor in tensors} == {"meta"}
