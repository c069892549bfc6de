"""The residual tower: its shape as published, its draws, and its copy for inference."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from agents.games.connect_four import ConnectFour
from agents.networks.board_games import Block, ResidualTower, evaluator


def make(seed: int = 0, blocks: int = 2, channels: int = 8) -> ResidualTower:
    generator = torch.Generator().manual_seed(seed)
    return ResidualTower((2, 6, 7), 7, blocks=blocks, channels=channels, generator=generator)


def planes(count: int) -> torch.Tensor:
    return (torch.rand(count, 2, 6, 7, generator=torch.Generator().manual_seed(1)) < 0.3).float()


def test_it_has_the_published_parts_and_no_others() -> None:
    network = make(blocks=4, channels=64)
    stem, tower = 2 * 9 * 64 + 2 * 64, 4 * 2 * (64 * 64 * 9 + 2 * 64)
    policy = 64 * 2 + 2 * 2 + 2 * 42 * 7 + 7
    value = 64 + 2 + 42 * 256 + 256 + 256 + 1
    assert sum(one.numel() for one in network.parameters()) == stem + tower + policy + value
    logits, values = network(planes(5))
    assert (logits.shape, values.shape) == ((5, 7), (5,))
    assert values.abs().max() < 1


def test_a_block_adds_what_came_in() -> None:
    block = Block(4, torch.Generator().manual_seed(0)).eval()
    torch.nn.init.zeros_(block.second.convolution.weight)
    seen = torch.rand(3, 4, 6, 7)
    assert torch.equal(block(seen), seen)


def test_its_weights_come_from_the_generator_alone() -> None:
    torch.manual_seed(1)
    first = make(seed=3).state_dict()
    torch.manual_seed(2)
    second, other = make(seed=3).state_dict(), make(seed=4).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["stem.convolution.weight"], other["stem.convolution.weight"])


def test_the_copy_for_inference_says_the_same_and_stays_as_it_is() -> None:
    network = make()
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1)
    for _ in range(10):  # statistics that are neither 0 nor 1
        logits, values = network(planes(64))
        (logits.square().mean() + (values - 0.5).square().mean()).backward()
        optimiser.step()
        optimiser.zero_grad()
    network.eval()
    expected = network(planes(20))
    evaluate = evaluator(network)
    legal = np.ones((20, 7), np.bool_)
    logits, values = evaluate(planes(20).numpy(), legal)
    assert logits == pytest.approx(expected[0].detach().numpy(), abs=1e-5)
    assert values == pytest.approx(expected[1].detach().numpy(), abs=1e-5)
    assert not any(isinstance(one, torch.nn.BatchNorm2d) for one in network.frozen().modules())
    torch.nn.init.zeros_(network.value_weight)
    assert np.array_equal(evaluate(planes(20).numpy(), legal)[1], values)
    assert network.training is False and isinstance(
        network.stem.normalisation, torch.nn.BatchNorm2d
    )


def test_it_can_learn_who_has_more_stones() -> None:
    game, draws = ConnectFour(), np.random.default_rng(0)
    seen = (draws.random((256, *game.planes)) < 0.4).astype(np.float32)
    encoded = torch.from_numpy(seen)
    target = torch.sign(encoded[:, 0].sum((1, 2)) - encoded[:, 1].sum((1, 2)))
    network = make(blocks=1, channels=16)
    optimiser = torch.optim.Adam(network.parameters(), 3e-3)
    for _ in range(60):
        loss = (network(encoded)[1] - target).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss < 0.15
