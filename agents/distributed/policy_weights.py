"""What an actor takes of a policy: the network's parameters and buffers, and the statistics of
observations.
"""

from __future__ import annotations

from torch import nn

from agents.distributed.interfaces import Columns, Weights
from agents.distributed.weights import named, prefixed
from agents.normalisation import ObservationNormaliser
from agents.states import to_tensors

NETWORK, STATISTICS = "network.", "observations."
"""With these the names of weights begin."""


def weights_of(network: nn.Module, normaliser: ObservationNormaliser | None) -> Columns:
    """What `load_weights` takes; views of the network's own memory where that is the CPU's."""
    arrays = {name: tensor.numpy(force=True) for name, tensor in network.state_dict().items()}
    statistics = {} if normaliser is None else normaliser.state_dict()
    return prefixed(arrays, NETWORK) | prefixed(statistics, STATISTICS)


def load_weights(
    weights: Weights, network: nn.Module, normaliser: ObservationNormaliser | None
) -> None:
    """Both go on with these; the arrays are copied."""
    network.load_state_dict(to_tensors(named(weights.arrays, NETWORK)))
    if normaliser is not None:
        normaliser.load_state_dict(named(weights.arrays, STATISTICS))
