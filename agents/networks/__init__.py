"""The networks by what is observed, and a person's own torso by import path."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from agents.networks.action_values import ActionValues, RecurrentActionValues
from agents.networks.actor_critic import ActorCritic, RecurrentActorCritic
from agents.networks.images import NatureCNN, SmallCNN
from agents.networks.own import OwnTorso
from agents.networks.recurrent import LSTMTorso
from agents.networks.torsos import (
    FeedForward,
    FirstWeights,
    Layers,
    Torso,
    orthogonal_layer,
    uniform_layer,
)
from agents.networks.towers import Towers
from agents.networks.twin_critics import DeterministicActorCritic, Flat, SoftActorCritic
from agents.spaces import Interface


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
    eyes = _torso(spaces, precision, generator, torso, orthogonal_layer)
    chosen = eyes or Towers(spaces, hidden_sizes, generator)
    return ActorCritic(spaces, chosen, log_std_init, generator)


def make_recurrent_actor_critic(
    spaces: Interface,
    *,
    lstm_size: int,
    hidden_sizes: Sequence[int],
    log_std_init: float,
    precision: str,
    generator: torch.Generator,
    torso: str | None = None,
) -> RecurrentActorCritic:
    """As `make_actor_critic`, with a memory. hidden_sizes: layers after an LSTM for vectors."""
    chosen: Torso
    if torso is not None:
        chosen = OwnTorso(spaces, torso, generator, may_remember=True)
    else:
        eyes = _torso(spaces, precision, generator, None, orthogonal_layer)
        layers = hidden_sizes if eyes is None else ()
        chosen = LSTMTorso(spaces, eyes, lstm_size, layers, generator)
    return RecurrentActorCritic(spaces, chosen, log_std_init, generator)


def make_action_values(
    spaces: Interface,
    *,
    hidden_sizes: Sequence[int],
    dueling: bool,
    quantiles: int,
    precision: str,
    generator: torch.Generator,
    torso: str | None = None,
) -> ActionValues:
    """The values of discrete actions for these spaces, on the CPU, its weights drawn from
    `generator` alone. dueling: the last hidden layer is there twice, one stream for the value and
    one for the actions, as in Wang et al. 2016; a person's own torso serves both.
    """
    streams = 2 if dueling and torso is None else 1
    chosen = _torso(spaces, precision, generator, torso, uniform_layer, streams)
    if chosen is None:
        sizes = (*hidden_sizes[:-1], streams * hidden_sizes[-1])
        chosen = Layers(spaces, sizes, generator)
    return ActionValues(
        spaces, chosen, dueling=dueling, streams=streams, quantiles=quantiles, generator=generator
    )


def make_recurrent_action_values(
    spaces: Interface,
    *,
    lstm_size: int,
    hidden_sizes: Sequence[int],
    dueling: bool,
    precision: str,
    generator: torch.Generator,
    torso: str | None = None,
) -> RecurrentActionValues:
    """The same with a memory, one for value and actions: an LSTM on what the last of the hidden layers
    before it makes of vectors, or the convolutions of images; with dueling a layer of as many units
    after it, once for each stream, as in Kapturowski et al. 2019.
    """
    chosen: Torso
    # A person's own torso serves value and actions alike.
    streams = 1
    if torso is not None:
        chosen = OwnTorso(spaces, torso, generator, may_remember=True)
    else:
        streams = 2 if dueling else 1
        eyes = _torso(spaces, precision, generator, None, uniform_layer)
        eyes = eyes or Layers(spaces, hidden_sizes, generator)
        after = (streams * lstm_size,) if dueling else ()
        chosen = LSTMTorso(spaces, eyes, lstm_size, after, generator)
    return RecurrentActionValues(
        spaces, chosen, dueling=dueling, streams=streams, quantiles=0, generator=generator
    )


def make_soft_actor_critic(
    spaces: Interface,
    *,
    hidden_sizes: Sequence[int],
    precision: str,
    generator: torch.Generator,
    torso: str | None = None,
) -> SoftActorCritic:
    """SAC's networks for these spaces, as `make_actor_critic` makes PPO's."""
    chosen = _torso(spaces, precision, generator, torso, uniform_layer) or Flat(spaces)
    return SoftActorCritic(spaces, chosen, hidden_sizes, generator)


def make_deterministic_actor_critic(
    spaces: Interface,
    *,
    hidden_sizes: Sequence[int],
    precision: str,
    generator: torch.Generator,
    torso: str | None = None,
) -> DeterministicActorCritic:
    """TD3's networks for these spaces, as `make_soft_actor_critic` makes SAC's."""
    chosen = _torso(spaces, precision, generator, torso, uniform_layer) or Flat(spaces)
    return DeterministicActorCritic(spaces, chosen, hidden_sizes, generator)


def _torso(
    spaces: Interface,
    precision: str,
    generator: torch.Generator,
    path: str | None,
    first_weights: FirstWeights,
    streams: int = 1,
) -> FeedForward | None:
    """A person's own, or one for images; None for vectors. streams: how many times an image's last
    hidden layer is there.
    """
    if path is not None:
        return OwnTorso(spaces, path, generator, may_remember=False)
    if spaces.image:
        return NatureCNN(spaces, precision, generator, streams * 512, first_weights)
    if spaces.grid:
        return SmallCNN(spaces, generator, streams * 256, first_weights)
    return None
