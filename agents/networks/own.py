"""A network of a person's own: a torso by import path, under the heads of the algorithm.

The contract. The constructor takes the shape of one encoded observation: (n,) for vectors, whatever
their own shape; (C, H, W) for images, whose pixels are divided by 255, and for small grids, whose
cells are numbers. `forward(encoded, state, reset) -> (features, state)`: encoded float32 [T, B,
*shape], time first; features float32 [T, B, F]. The state is for recurrent torsos, which PPO does
not train yet: `()` is given and expected; reset bool [T, B]: whether row t begins an episode. All
parameters are float32, all weights are drawn by torch's global generator, which is seeded for it,
and a row's features depend on no other row.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from agents.environments.spaces import Interface
from agents.networks.torsos import FeedForward, planes
from config.errors import BadInput
from config.imports import imported, reason


class OwnTorso(FeedForward):
    """A person's torso, given one step of rows at a time; always in fp32."""

    def __init__(self, spaces: Interface, path: str, generator: torch.Generator) -> None:
        super().__init__(spaces)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
            self.torso, self.features = make_torso(path, encoded_shape(spaces))

    def encode(self, observations: Tensor) -> Tensor:
        """[N, ...] as the environment gives them -> [N, *shape]; an image's pixels stay bytes."""
        if not (self.spaces.image or self.spaces.grid):
            return observations.to(torch.float32).flatten(1)
        images = planes(observations, self.spaces).contiguous()
        return images if self.spaces.image else images.to(torch.float32)

    def rows(self, encoded: Tensor) -> Tensor:
        """Encoded [B, *shape] -> features [B, F]."""
        rows = encoded.to(torch.float32) / 255 if self.spaces.image else encoded
        reset = torch.zeros(1, len(rows), dtype=torch.bool, device=rows.device)
        features: Tensor = self.torso(rows[None], (), reset)[0][0]
        return features


def encoded_shape(spaces: Interface) -> tuple[int, ...]:
    """Of one observation as a torso sees it."""
    if spaces.image or spaces.grid:
        return spaces.observation_shape
    return (math.prod(spaces.observation_shape),)


def make_torso(path: str, shape: tuple[int, ...]) -> tuple[nn.Module, int]:
    """The torso and the number of its features; raises `BadInput` for the first promise that it
    breaks.
    """
    make = imported(path, "network")
    try:
        torso = make(shape)
    except (Exception, SystemExit) as error:
        raise BadInput(
            f"network {path!r} cannot be made for observations {shape}: {reason(error)}"
        ) from error
    if not isinstance(torso, nn.Module):
        raise BadInput(f"network {path!r} is a {type(torso).__name__}; allowed: torch.nn.Module")
    for name, parameter in torso.named_parameters():
        if parameter.dtype != torch.float32:
            raise BadInput(
                f"network {path!r} has {name} of {parameter.dtype}; allowed: torch.float32"
            )
        if torch.empty_like(parameter).stride() != parameter.stride():
            raise BadInput(
                f"network {path!r} has {name}, which is a part of another tensor; "
                "allowed: parameters with a memory of their own"
            )
    return torso, _features(path, torso, shape)


def _features(path: str, torso: nn.Module, shape: tuple[int, ...]) -> int:
    """What comes out for two steps of three rows."""
    encoded, reset = torch.zeros(2, 3, *shape), torch.zeros(2, 3, dtype=torch.bool)
    try:
        with torch.no_grad():
            answer: Any = torso(encoded, (), reset)
    except Exception as error:
        raise BadInput(
            f"network {path!r} fails on observations {shape}: {reason(error)}"
        ) from error
    if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[0], Tensor):
        raise BadInput(
            f"network {path!r} returns a {type(answer).__name__}; allowed: (features, state)"
        )
    features, state = answer
    if features.dtype != torch.float32 or features.dim() != 3 or features.shape[:2] != (2, 3):
        raise BadInput(
            f"network {path!r} returns features of {features.dtype} {list(features.shape)} for 2 steps of 3 rows; "
            "allowed: torch.float32 [2, 3, F]"
        )
    if not isinstance(state, tuple) or state:
        raise BadInput(
            f"network {path!r} keeps a state between steps; allowed here: the empty one, ()"
        )
    return int(features.shape[2])
