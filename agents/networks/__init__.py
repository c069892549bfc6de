"""The networks by what is observed, and a person's own torso by import path."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from agents.environments.spaces import Interface
from agents.networks.built_in import MLP, NatureCNN, SmallCNN
from agents.networks.network import Network
from agents.networks.torsos import TorsoNetwork


def make_network(
    spaces: Interface,
    *,
    hidden_sizes: Sequence[int],
    log_std_init: float,
    precision: str,
    generator: torch.Generator,
    torso: str | None = None,
) -> Network:
    """The network for these spaces, on the CPU, its weights drawn from `generator` alone; torso:
    import path of a person's own, see `agents.networks.torsos`.
    """
    if torso is not None:
        return TorsoNetwork(spaces, torso, log_std_init, generator)
    if spaces.image:
        return NatureCNN(spaces, log_std_init, precision, generator)
    if spaces.grid:
        return SmallCNN(spaces, log_std_init, generator)
    return MLP(spaces, hidden_sizes, log_std_init, generator)
