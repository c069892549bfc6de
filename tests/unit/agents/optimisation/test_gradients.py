"""Gradients are those of one call, and what a loss returns has no graph."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from agents.optimisation.gradients import Gradients


def test_a_call_leaves_its_own_gradients_and_no_graph() -> None:
    network = nn.Linear(3, 2)

    def loss(rows: Tensor) -> tuple[Tensor, ...]:
        outputs = network(rows)
        return outputs.square().mean(), outputs

    gradients = Gradients(loss, network.parameters())
    gradients(torch.ones(4, 3))
    rows = torch.arange(12.0).reshape(4, 3)
    found, outputs = gradients(rows)
    expected = torch.autograd.grad(network(rows).square().mean(), list(network.parameters()))
    for parameter, gradient in zip(network.parameters(), expected, strict=True):
        assert parameter.grad is not None and torch.equal(parameter.grad, gradient)
    assert torch.equal(outputs, network(rows)) and found == outputs.square().mean()
    assert not found.requires_grad and not outputs.requires_grad
