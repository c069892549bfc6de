"""The networks are what they claim to be: the Nature CNN, two tanh towers, Adam."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from torch import nn

from agents.environments.spaces import Interface, interface
from agents.networks import make_network
from agents.networks.built_in import MLP, NatureCNN, space_to_depth
from agents.networks.network import Network
from agents.optimiser import FlatAdam


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def image_spaces(
    channels: int = 4, height: int = 84, width: int = 84, *, channels_last: bool = False
) -> Interface:
    return Interface(
        observation_shape=(channels, height, width),
        image=True,
        channels_last=channels_last,
        actions=6,
        discrete=True,
    )


def vector_spaces(*, discrete: bool = True) -> Interface:
    return Interface(
        observation_shape=(5,), image=False, channels_last=False, actions=3, discrete=discrete
    )


def network_for(spaces: Interface, precision: str = "fp32") -> Network:
    generator = torch.Generator().manual_seed(1)
    return make_network(
        spaces, hidden_sizes=(16, 8), log_std_init=-0.5, precision=precision, generator=generator
    )


def plain_nature(network: NatureCNN, channels: int) -> nn.Sequential:
    """The network as Mnih et al. wrote it, with the weights of ours."""
    plain = nn.Sequential(
        nn.Conv2d(channels, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1), nn.ReLU(),
    )  # fmt: skip
    first = network.weight1.detach().view(
        32, channels, 2, 2, 4, 4
    )  # out, c, y, x, block row, block column
    with torch.no_grad():
        plain[0].weight.copy_(first.permute(0, 1, 4, 2, 5, 3).reshape(32, channels, 8, 8))
        plain[2].weight.copy_(network.weight2)
        plain[4].weight.copy_(network.weight3)
        for index, bias in zip(
            (0, 2, 4), (network.bias1, network.bias2, network.bias3), strict=True
        ):
            plain[index].bias.copy_(bias.normal_(generator=torch.Generator().manual_seed(index)))
    return plain


@pytest.mark.parametrize(
    ("channels", "height", "width", "last"), [(4, 84, 84, False), (3, 50, 41, True)]
)
def test_space_to_depth_is_exactly_the_nature_cnn(
    channels: int, height: int, width: int, last: bool
) -> None:
    network = network_for(image_spaces(channels, height, width, channels_last=last))
    assert isinstance(network, NatureCNN)
    plain = plain_nature(network, channels)
    pixels = torch.randint(
        0,
        256,
        (3, channels, height, width),
        dtype=torch.uint8,
        generator=torch.Generator().manual_seed(0),
    )
    features = plain(pixels.float() / 255).permute(0, 2, 3, 1).flatten(1)
    hidden = torch.relu(features @ network.weight4.T + network.bias4)
    given = pixels.permute(0, 2, 3, 1).contiguous() if last else pixels
    policy, value = network(network.encode(given))
    assert torch.allclose(policy, hidden @ network.policy_weight.T, atol=1e-5)
    assert torch.allclose(value, (hidden @ network.value_weight.T).squeeze(1), atol=1e-5)


def test_space_to_depth_moves_every_pixel() -> None:
    pixels = torch.arange(2 * 8 * 12).to(torch.uint8).view(1, 2, 8, 12)
    blocks = space_to_depth(pixels)
    assert blocks.shape == (1, 4, 6, 8)
    for c, y, x in [(0, 0, 0), (1, 5, 7), (0, 7, 11), (1, 2, 4)]:
        assert blocks[0, y // 2, x // 2, 4 * c + 2 * (y % 2) + x % 2] == pixels[0, c, y, x]


def test_bf16_is_near_fp32() -> None:
    pixels = torch.randint(
        0, 256, (4, 4, 84, 84), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    full, half = network_for(image_spaces()), network_for(image_spaces(), "bf16")
    value, value_bf16 = full(full.encode(pixels))[1], half(half.encode(pixels))[1]
    assert value_bf16.dtype == torch.float32
    assert not torch.equal(value, value_bf16)
    assert torch.allclose(value, value_bf16, atol=0.05, rtol=0.05)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_frozen_network_answers_bit_for_bit_as_the_live_one(precision: str) -> None:
    """The precision is read when it is frozen: a second freezing follows the weights."""
    network = network_for(image_spaces(), precision)
    pixels = torch.randint(
        0, 256, (4, 4, 84, 84), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    encoded = network.encode(pixels)
    for _ in range(2):
        with torch.inference_mode():
            frozen, live = network.frozen()(encoded), network(encoded)
        assert all(torch.equal(a, b) for a, b in zip(frozen, live, strict=True))
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.mul_(1.1)


def test_towers_are_two_tanh_networks() -> None:
    network = network_for(vector_spaces())
    assert isinstance(network, MLP)
    parameters = dict(network.named_parameters())
    observations = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
    hidden = []
    for tower in range(2):
        x = observations
        for layer in (1, 2):
            x = torch.tanh(
                x @ parameters[f"weight{layer}"][tower] + parameters[f"bias{layer}"][tower]
            )
        hidden.append(x)
    policy, value = network(observations)
    assert torch.allclose(
        policy, hidden[0] @ network.policy_weight + network.policy_bias, atol=1e-6
    )
    assert torch.allclose(
        value, (hidden[1] @ network.value_weight + network.value_bias).squeeze(1), atol=1e-6
    )


@pytest.mark.parametrize(
    "spaces", [vector_spaces(), vector_spaces(discrete=False), image_spaces(1, 40, 44)]
)
def test_backward_by_hand_is_autograd_s(spaces: Interface) -> None:
    network = network_for(spaces)
    optimiser = FlatAdam(network, epsilon=1e-5)
    generator = torch.Generator().manual_seed(0)
    shape = (9, *spaces.observation_shape)
    seen = (
        torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
        if spaces.image
        else torch.randn(shape, generator=generator)
    )
    encoded = network.encode(seen)
    expected_policy, expected_value = network(encoded)
    by_policy, by_value = (
        torch.randn(expected_policy.shape, generator=generator),
        torch.randn(9, generator=generator),
    )
    expected = torch.autograd.grad(
        (expected_policy, expected_value), list(network.parameters()), (by_policy, by_value)
    )
    with torch.no_grad():
        optimiser.clear_gradients()
        policy, value, backward = network.differentiate(encoded)
        backward(by_policy, by_value)
    assert torch.equal(policy, expected_policy) and torch.equal(value, expected_value)
    for parameter, gradient in zip(network.parameters(), expected, strict=True):
        assert parameter.grad is not None
        assert torch.allclose(parameter.grad, gradient, atol=1e-5, rtol=1e-4)


def test_initial_weights_are_orthogonal() -> None:
    network = network_for(vector_spaces())
    assert isinstance(network, MLP)
    weight = dict(network.named_parameters())["weight2"][0]  # [16, 8]
    assert torch.allclose(weight.T @ weight, 2 * torch.eye(8), atol=1e-5)
    assert float(network.policy_weight.detach().norm()) == pytest.approx(
        0.01 * math.sqrt(3), rel=1e-4
    )
    assert float(network.value_weight.detach().norm()) == pytest.approx(1, rel=1e-4)


def test_only_the_own_generator_is_used() -> None:
    before = torch.get_rng_state()
    one, two = network_for(image_spaces()), network_for(image_spaces())
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))


def test_flat_adam_is_adam() -> None:
    ours, reference = network_for(image_spaces(1, 40, 40)), network_for(image_spaces(1, 40, 40))
    flat, adam = (
        FlatAdam(ours, epsilon=1e-5),
        torch.optim.Adam(reference.parameters(), lr=1e-3, eps=1e-5),
    )
    pixels = torch.randint(
        0, 256, (4, 1, 40, 40), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    for _ in range(5):
        for network in (ours, reference):
            flat.clear_gradients() if network is ours else adam.zero_grad()
            policy, value = network(network.encode(pixels))
            (policy.square().sum() + value.sum()).backward()
        norm = float(nn.utils.clip_grad_norm_(reference.parameters(), 0.5))
        assert flat.clip_gradients(0.5) == pytest.approx(norm, rel=1e-5)
        adam.step()
        flat.step(1e-3)
    for a, b in zip(ours.parameters(), reference.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-6)
    assert ours.state_dict()["weight2"].stride() == reference.state_dict()["weight2"].stride()


def test_a_partly_bounded_action_is_clipped_where_it_has_a_bound() -> None:
    action = Box(np.array([0, -np.inf], np.float32), np.array([np.inf, 1], np.float32))
    spaces = interface("x", Box(-1, 1, (1,), np.float32), action)
    given = spaces.environment_actions(np.array([[-9.0, -9.0], [9, 9], [0.5, 0.5]], np.float32))
    assert given.tolist() == [[0, -9], [9, 1], [0.5, 0.5]]
    assert Interface.from_dict(json.loads(json.dumps(spaces.as_dict()))) == spaces
    free = interface("x", Box(-1, 1, (1,), np.float32), Box(-np.inf, np.inf, (2,), np.float32))
    assert free.environment_actions(np.array([[-9.0, 9.0]], np.float32)).tolist() == [[-9, 9]]


def test_actions_are_learnt_in_units_of_the_half_range() -> None:
    bounds = {"action_shape": (2,), "low": (2.0, -1.0), "high": (6.0, 1.0)}
    spaces = Interface(
        observation_shape=(1,),
        image=False,
        channels_last=False,
        actions=2,
        discrete=False,
        **bounds,
    )  # type: ignore[arg-type]
    given = spaces.environment_actions(np.array([[0.0, 0.5], [-9, 9]], np.float32))
    assert given.dtype == np.float32
    assert given.tolist() == [[4, 0.5], [2, 1]]
    assert Interface.from_dict(spaces.as_dict()) == spaces
