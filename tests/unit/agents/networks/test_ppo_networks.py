"""The networks are what they claim to be: the Nature CNN, two tanh towers, linear heads."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from torch import nn

from agents.networks import make_actor_critic
from agents.networks.actor_critic import ActorCritic
from agents.networks.images import NatureCNN, space_to_depth
from agents.networks.towers import Towers
from agents.spaces import Interface, interface


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


def network_for(spaces: Interface, precision: str = "fp32") -> ActorCritic:
    generator = torch.Generator().manual_seed(1)
    return make_actor_critic(
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
    torso = network.torso
    assert isinstance(torso, NatureCNN)
    plain = plain_nature(torso, channels)
    pixels = torch.randint(
        0,
        256,
        (3, channels, height, width),
        dtype=torch.uint8,
        generator=torch.Generator().manual_seed(0),
    )
    features = plain(pixels.float() / 255).permute(0, 2, 3, 1).flatten(1)
    hidden = torch.relu(features @ torso.weight4.T + torso.bias4)
    given = pixels.permute(0, 2, 3, 1).contiguous() if last else pixels
    policy, value = network(network.encode(given))
    assert torch.allclose(policy, hidden @ network.policy_weight.T, atol=1e-5)
    assert torch.allclose(value, hidden @ network.value_weight, atol=1e-5)


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


@pytest.mark.parametrize(
    ("spaces", "precision"),
    [
        (image_spaces(), "fp32"), (image_spaces(), "bf16"), (vector_spaces(), "fp32"),
        (vector_spaces(discrete=False), "fp32"),
    ],
)  # fmt: skip
def test_a_frozen_network_answers_as_the_live_one(spaces: Interface, precision: str) -> None:
    """To the rounding of another library's sums. The weights are read when it is frozen: a second
    freezing follows them."""
    network = network_for(spaces, precision)
    seen = seen_by(spaces, 4)
    encoded = network.encode(seen)
    for _ in range(2):
        with torch.inference_mode():
            frozen, live = network.frozen()(encoded), network(encoded)
            assert torch.allclose(network.acting()(encoded), live[0], atol=1e-6)
        by_numpy = network.acting_by_numpy()
        assert (by_numpy is None) == spaces.image
        if by_numpy is not None:
            np.testing.assert_allclose(by_numpy(seen.numpy()), live[0].numpy(), atol=1e-6)
        assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(frozen, live, strict=True))
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.add_(0.1)


def seen_by(spaces: Interface, count: int) -> torch.Tensor:
    generator, shape = torch.Generator().manual_seed(0), (count, *spaces.observation_shape)
    if spaces.image:
        return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    return torch.randn(shape, generator=generator)


def test_towers_are_two_tanh_networks() -> None:
    network = network_for(vector_spaces())
    assert isinstance(network.torso, Towers)
    parameters = dict(network.torso.named_parameters())
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
        policy, hidden[0] @ network.policy_weight.T + network.policy_bias, atol=1e-6
    )
    assert torch.allclose(value, hidden[1] @ network.value_weight + network.value_bias, atol=1e-6)


def test_initial_weights_are_orthogonal() -> None:
    network = network_for(vector_spaces())
    weight = dict(network.named_parameters())["torso.weight2"][0]  # [16, 8]
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
