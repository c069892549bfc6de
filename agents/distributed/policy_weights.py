"""What an actor takes of a policy: the network's parameters and buffers, and the statistics of
observations.
"""

from __future__ import annotations

import itertools

import torch
from torch import nn

from agents.distributed.interfaces import Columns, Weights
from agents.distributed.weights import named, prefixed
from agents.normalisation import ObservationNormaliser
from agents.states import to_tensors

NETWORK, STATISTICS = "network.", "observations."
"""With these the names of weights begin."""


def weights_of(network: nn.Module, normaliser: ObservationNormaliser | None) -> Columns:
    """What `PolicyWeights` takes; views of the network's own memory where that is the CPU's."""
    arrays = {name: tensor.numpy(force=True) for name, tensor in network.state_dict().items()}
    statistics = {} if normaliser is None else normaliser.state_dict()
    return prefixed(arrays, NETWORK) | prefixed(statistics, STATISTICS)


class PolicyWeights:
    """A network that goes on with a learner's weights again and again: these are copied to where its
    own are, which takes a third of the time of `load_state_dict`.
    """

    def __init__(self, network: nn.Module, normaliser: ObservationNormaliser | None) -> None:
        """The network stays where it is."""
        self._network, self._normaliser = network, normaliser
        own = itertools.chain(
            network.named_parameters(remove_duplicate=False),
            network.named_buffers(remove_duplicate=False),
        )
        names = network.state_dict().keys()
        self._own = {name: tensor.detach() for name, tensor in own if name in names}
        self._shapes = {name: tuple(tensor.shape) for name, tensor in self._own.items()}
        self._views = {  # with numpy's copies small weights load in two thirds of torch's time
            name: tensor.numpy()
            for name, tensor in self._own.items()
            if tensor.device.type == "cpu"
        }

    def load(self, weights: Weights) -> None:
        """What `weights_of` gave. Raises `RuntimeError` for those of another network."""
        arrays = named(weights.arrays, NETWORK)
        if {name: array.shape for name, array in arrays.items()} != self._shapes:
            self._network.load_state_dict(to_tensors(arrays))
        elif self._views:
            for name, view in self._views.items():
                view[...] = arrays[name]
        else:
            for name, tensor in self._own.items():
                tensor.copy_(torch.from_numpy(arrays[name].copy()))
        if self._normaliser is not None:
            self._normaliser.load_state_dict(named(weights.arrays, STATISTICS))
