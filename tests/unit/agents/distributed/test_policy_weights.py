"""An actor's network goes on with the learner's weights, and with no others."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from agents.distributed.protocol import Version, Weights
from agents.distributed.weights import PolicyWeights, weights_of
from agents.environments.normalisation import ObservationNormaliser


class Tied(nn.Module):
    """With a parameter of two names, statistics, and a buffer that is nobody else's."""

    def __init__(self, size: int = 3) -> None:
        super().__init__()
        self.first = nn.Linear(size, size, bias=False)
        self.second = nn.Linear(size, size)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(size)
        self.register_buffer("own", torch.zeros(1), persistent=False)


def other_numbers(network: nn.Module) -> nn.Module:
    network.load_state_dict({n: torch.rand(t.shape) for n, t in network.state_dict().items()})
    return network


def weights(network: nn.Module, normaliser: ObservationNormaliser | None = None) -> Weights:
    """That nobody may write to, as they come."""
    arrays = {name: array.copy() for name, array in weights_of(network, normaliser).items()}
    for array in arrays.values():
        array.flags.writeable = False
    return Weights(version=Version(1, 1), arrays=arrays)


def test_it_has_the_learner_s_weights_where_its_own_were(monkeypatch: pytest.MonkeyPatch) -> None:
    network, kept = Tied(), list[torch.Tensor]()
    places = {name: tensor.data_ptr() for name, tensor in network.state_dict().items()}
    policy = PolicyWeights(network, None)
    monkeypatch.setattr(network, "load_state_dict", None)  # which takes three times as long
    for _ in range(2):
        learner = other_numbers(Tied())
        policy.load(weights(learner))
        now = network.state_dict()
        assert {name: tensor.data_ptr() for name, tensor in now.items()} == places
        for name, tensor in learner.state_dict().items():
            assert torch.equal(now[name], tensor), name
        kept.append(network.first.weight.clone())
    assert not torch.equal(*kept)


def test_statistics_come_along() -> None:
    learner, own = ObservationNormaliser((3,)), ObservationNormaliser((3,))
    learner.update(np.random.default_rng(0).normal(2, 3, (10, 3)))
    PolicyWeights(Tied(), own).load(weights(Tied(), learner))
    assert own.mean.tolist() == learner.mean.tolist() and own.mean.any()


@pytest.mark.parametrize(
    ("other", "what"), [(Tied(1), "size mismatch"), (nn.Linear(3, 3), "Missing key")]
)
def test_weights_of_another_network_are_refused(other: nn.Module, what: str) -> None:
    network = Tied()
    with pytest.raises(RuntimeError, match=what):
        PolicyWeights(network, None).load(weights(other))
