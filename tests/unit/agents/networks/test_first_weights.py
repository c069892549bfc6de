"""The weights with which a network for images begins: those of PPO's sources are orthogonal, those of
DQN's, SAC's and TD3's what torch draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

from agents.networks import (
    make_action_values,
    make_actor_critic,
    make_deterministic_actor_critic,
    make_recurrent_action_values,
    make_soft_actor_critic,
)
from agents.networks.torsos import Torso
from agents.spaces import Interface

PIXELS = Interface(
    observation_shape=(4, 84, 84), image=True, channels_last=False, actions=4, discrete=True
)
GRID = Interface(
    observation_shape=(4, 10, 10), image=False, grid=True, channels_last=False, actions=4,
    discrete=True,
)  # fmt: skip


def of_ppo(spaces: Interface, generator: torch.Generator) -> Torso:
    return make_actor_critic(
        spaces, hidden_sizes=(64,), log_std_init=0, precision="fp32", generator=generator
    ).torso


def of_dqn(spaces: Interface, generator: torch.Generator) -> Torso:
    return make_action_values(
        spaces, hidden_sizes=(64,), dueling=False, quantiles=0, precision="fp32", generator=generator
    ).torso  # fmt: skip


def of_r2d2(spaces: Interface, generator: torch.Generator) -> Torso:
    network = make_recurrent_action_values(
        spaces, lstm_size=8, hidden_sizes=(64,), dueling=True, precision="fp32", generator=generator
    )
    eyes: Torso = network.torso.eyes  # type: ignore[assignment]
    return eyes


def of_sac(spaces: Interface, generator: torch.Generator) -> Torso:
    return make_soft_actor_critic(
        spaces, hidden_sizes=(64,), precision="fp32", generator=generator
    ).torso


def of_td3(spaces: Interface, generator: torch.Generator) -> Torso:
    return make_deterministic_actor_critic(
        spaces, hidden_sizes=(64,), precision="fp32", generator=generator
    ).torso


def layers(torso: Torso) -> list[tuple[nn.Parameter, nn.Parameter]]:
    """Weights and biases, from the first layer to the last."""
    named = dict(torso.named_parameters())
    return [(named[f"weight{i}"], named[f"bias{i}"]) for i in range(1, len(named) // 2 + 1)]


@pytest.mark.parametrize("spaces", [PIXELS, GRID], ids=("pixels", "grid"))
@pytest.mark.parametrize("make", [of_dqn, of_r2d2, of_sac, of_td3])
def test_action_values_begin_as_torch_draws_a_layer(
    make: Callable[[Interface, torch.Generator], Torso], spaces: Interface
) -> None:
    for weight, bias in layers(make(spaces, torch.Generator().manual_seed(0))):
        bound = 1 / math.sqrt(weight[0].numel())
        assert weight.abs().max() <= bound and bias.abs().max() <= bound
        # A uniform number's standard deviation is its bound / √3.
        assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)
        assert bias.std().item() > bound / 4


@pytest.mark.parametrize("spaces", [PIXELS, GRID], ids=("pixels", "grid"))
def test_a_policy_begins_orthogonal(spaces: Interface) -> None:
    for weight, bias in layers(of_ppo(spaces, torch.Generator().manual_seed(0))):
        flat = weight.flatten(1)
        smaller = flat @ flat.T if flat.shape[0] <= flat.shape[1] else flat.T @ flat
        assert torch.allclose(smaller, 2 * torch.eye(len(smaller)), atol=1e-4)
        assert not bias.any()
