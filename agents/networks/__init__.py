"""The networks by what is observed, and a person's own torso by import path."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from agents.environments.spaces import Interface
from agents.networks.actor_critic import ActorCritic
from agents.networks.images import NatureCNN, SmallCNN
from agents.networks.own import OwnTorso
from agents.networks.torsos import FeedForward
from agents.networks.towers import Towers


def make_actor_critic(
    spaces: Interface,
    *,
    hidden_sizes: Sequence[int],
    log_std_init: float,
    precision: str,
    generator: torch.Generator,
    torso: str | None = None,
) -> ActorCritic:
    """The network for these spaces, on the CPU, its weights drawn from `generator` alone; torso:
    import path of a person's own, see `agents.networks.own`.
    """
    chosen: FeedForward
    if torso is not None:
        chosen = OwnTorso(spaces, torso, generator)
    elif spaces.image:
        chosen = NatureCNN(spaces, precision, generator)
    elif spaces.grid:
        chosen = SmallCNN(spaces, generator)
    else:
        chosen = Towers(spaces, hidden_sizes, generator)
    return ActorCritic(spaces, chosen, log_std_init, generator)
