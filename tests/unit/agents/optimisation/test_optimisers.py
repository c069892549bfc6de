"""Our optimisers against steps by hand, torch's own and their own checkpoints."""

from __future__ import annotations

import copy
import functools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from agents.optimisation.optimiser import OPTIMISERS, Adam, Optimiser, RMSProp

BOTH = pytest.mark.parametrize("kind", OPTIMISERS.values())


def layer() -> nn.Linear:
    """2 weights and a bias, of known values."""
    module = nn.Linear(2, 1)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[3.0, -1.0]]))
        module.bias.copy_(torch.tensor([0.5]))
    return module


def give(module: nn.Linear, gradient: tuple[float, float, float]) -> None:
    """The gradient of both weights and the bias."""
    module.weight.grad = torch.tensor([gradient[:2]])
    module.bias.grad = torch.tensor(gradient[2:])


def stepped(
    optimiser: Optimiser, module: nn.Linear, *gradients: tuple[float, float, float]
) -> None:
    for gradient in gradients:
        give(module, gradient)
        optimiser.step(0.1)


def test_one_step_of_adam_by_hand() -> None:
    """Algorithm 1 with t = 1: m = 0.1 g, v = 0.001 g²; the step is lr · g / (|g| + ε)."""
    module = layer()
    optimiser = Adam(module.parameters(), epsilon=1.0)
    stepped(optimiser, module, (4.0, -9.0, 0.0))
    assert module.weight.tolist() == [pytest.approx([3 - 0.1 * 4 / 5, -1 + 0.1 * 9 / 10])]
    assert module.bias.tolist() == [0.5]
    state = optimiser.state_dict()
    assert state["moments_1"]["0"] == pytest.approx(np.array([[0.4, -0.9]]))
    assert state["moments_2"]["0"] == pytest.approx(np.array([[0.016, 0.081]]))
    assert state["updates"] == 1


def test_two_steps_of_rmsprop_by_hand() -> None:
    """v = 0.01 g² of 4 is 0.16, its root 0.4; then 0.99 · 0.16 + 0.01 · 9² = 0.9684."""
    module = layer()
    optimiser = RMSProp(module.parameters(), epsilon=1.0)
    stepped(optimiser, module, (4.0, -9.0, 0.0))
    assert module.weight.tolist() == [pytest.approx([3 - 0.1 * 4 / 1.4, -1 + 0.1 * 9 / 1.9])]
    assert module.bias.tolist() == [0.5]
    assert optimiser.state_dict()["squares"]["0"] == pytest.approx(np.array([[0.16, 0.81]]))
    stepped(optimiser, module, (9.0, 0.0, 0.0))
    expected = 3 - 0.1 * 4 / 1.4 - 0.1 * 9 / (1 + 0.9684**0.5)
    assert module.weight.tolist() == [pytest.approx([expected, -1 + 0.1 * 9 / 1.9])]


@pytest.mark.parametrize(
    ("kind", "torch_s", "tolerance"),
    [
        (Adam, torch.optim.Adam, 1e-9),
        (RMSProp, functools.partial(torch.optim.RMSprop, alpha=0.99), 1e-12),
    ],
    ids=["adam", "rmsprop"],
)
def test_many_steps_are_torch_s(kind: type[Optimiser], torch_s: Any, tolerance: float) -> None:
    """With clipped gradients, in the parameters' own precision and memory format."""
    ours, theirs = (
        nn.Conv2d(3, 4, 3, dtype=torch.float64).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        for _ in range(2)
    )
    theirs.load_state_dict(ours.state_dict())
    optimiser = kind(ours.parameters(), epsilon=1e-5)
    reference = torch_s(theirs.parameters(), lr=1e-3, eps=1e-5)
    images = torch.randn(2, 3, 5, 5, dtype=torch.float64)
    for _ in range(5):
        for network in (ours, theirs):
            network.zero_grad()
            network(images).square().sum().backward()
        norm = float(nn.utils.clip_grad_norm_(theirs.parameters(), 0.5))
        assert optimiser.clip_gradients(0.5) == pytest.approx(norm, rel=1e-9)
        reference.step()
        optimiser.step(1e-3)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert a.dtype == torch.float64 and a.stride() == b.stride()
        assert torch.allclose(a, b, atol=tolerance, rtol=0)


def test_others_may_clear_the_gradients_and_put_the_weights_elsewhere() -> None:
    """As `Module.zero_grad` and an LSTM that flattens its weights on a GPU do."""
    module, untouched = layer(), layer()
    optimisers = [Adam(one.parameters(), epsilon=1e-5) for one in (module, untouched)]
    module.zero_grad()
    module.weight.data = module.weight.data.clone()
    for optimiser, one in zip(optimisers, (module, untouched), strict=True):
        one(torch.tensor([[5.0, 7.0]])).sum().backward()
        optimiser.step(0.1)
    assert module.weight.tolist() == untouched.weight.tolist() != layer().weight.tolist()


@BOTH
def test_a_parameter_without_a_gradient_stays(kind: type[Optimiser]) -> None:
    module = layer()
    optimiser = kind(module.parameters(), epsilon=1e-5)
    module.weight.grad = torch.tensor([[3.0, 4.0]])
    assert optimiser.clip_gradients(1.0) == pytest.approx(5)
    optimiser.step(0.1)
    assert module.bias.tolist() == [0.5] and module.weight.tolist() != [[3.0, -1.0]]


@BOTH
def test_a_resumed_one_goes_on_equally(kind: type[Optimiser]) -> None:
    first, second = layer(), layer()
    undisturbed, before = (kind(one.parameters(), epsilon=1e-5) for one in (first, second))
    stepped(before, second, (1.0, 2.0, -3.0), (0.5, -1.0, 2.0))
    state, as_saved = before.state_dict(), copy.deepcopy(before.state_dict())
    stepped(before, second, (9.0, 9.0, 9.0))
    np.testing.assert_equal(state, as_saved)  # a copy, which later steps do not change
    stepped(undisturbed, first, (1.0, 2.0, -3.0), (0.5, -1.0, 2.0))
    third = layer()
    third.load_state_dict(first.state_dict())
    resumed = kind(third.parameters(), epsilon=1e-5)
    resumed.load_state_dict(state)
    for optimiser, module in ((undisturbed, first), (resumed, third)):
        stepped(optimiser, module, (-2.0, 0.1, 0.2))
    assert torch.equal(first.weight, third.weight) and torch.equal(first.bias, third.bias)
    np.testing.assert_equal(resumed.state_dict(), undisturbed.state_dict())


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
    module = layer()
    optimiser = Adam(module.parameters(), epsilon=1e-5)
    give(module, gradient)
    reference = nn.Parameter(torch.zeros(3))
    reference.grad = torch.tensor(gradient)
    norm = nn.utils.clip_grad_norm_([reference], largest)
    assert optimiser.clip_gradients(largest) == pytest.approx(float(norm), rel=1e-6)
    found = torch.cat([parameter.grad.flatten() for parameter in module.parameters()])  # type: ignore[union-attr]
    assert torch.allclose(found, reference.grad, rtol=1e-4, atol=0)


@BOTH
@pytest.mark.parametrize("largest", [1.0, 100.0, float("inf")])
def test_nothing_is_looked_at_and_the_step_is_the_same(
    kind: type[Optimiser], largest: float
) -> None:
    """As on a GPU, whose norm and learning rate are tensors."""
    seen, unseen = layer(), layer()
    looking, other = (kind(one.parameters(), epsilon=1e-5) for one in (seen, unseen))
    rate = torch.tensor(0.1)
    for gradient in ((3.0, 0.0, -4.0), (0.1, 2.0, 0.3)):
        give(seen, gradient)
        give(unseen, gradient)
        norm = other.clip_unseen_gradients(largest)
        assert norm.shape == () and float(norm) == looking.clip_gradients(largest)
        looking.step(0.1)
        other.step(rate)
    for one, another in zip(looking.changed(), other.changed(), strict=True):
        torch.testing.assert_close(one, another)
    assert all(one is two for one, two in zip(other.changed(), unseen.parameters(), strict=False))


def test_everything_is_on_the_device_of_the_parameters() -> None:
    optimiser = Adam(nn.Linear(2, 1, device="meta").parameters(), epsilon=1e-5)
    found = [value if isinstance(value, list) else [value] for value in vars(optimiser).values()]
    tensors = [one for values in found for one in values if isinstance(one, Tensor)]
    assert len(tensors) == 7
    assert {tensor.device.type for tensor in tensors} == {"meta"}


def test_adam_s_decay_is_the_gradient_of_a_square_in_the_loss() -> None:
    """c of c |theta|^2 adds 2 c theta to the gradients (AlphaZero's loss)."""
    decayed, explicit = layer(), layer()
    of_decay = Adam(decayed.parameters(), epsilon=1e-8, decay=0.25)
    stepped(of_decay, decayed, (1.0, -2.0, 0.5))
    weights = torch.cat([explicit.weight.flatten(), explicit.bias]).detach()
    sums = (torch.tensor([1.0, -2.0, 0.5]) + 2 * 0.25 * weights).tolist()
    optimiser = Adam(explicit.parameters(), epsilon=1e-8)
    stepped(optimiser, explicit, (sums[0], sums[1], sums[2]))
    # After one step of Adam the moments tell the size of the gradient, which the step does not.
    for name in ("moments_1", "moments_2"):
        assert np.allclose(of_decay.state_dict()[name]["0"], optimiser.state_dict()[name]["0"])
