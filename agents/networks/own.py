"""A network of a person's own: a torso by import path, under the heads of the algorithm.

The contract. The constructor takes the shape of one encoded observation: (n,) for vectors, whatever
their own shape; (C, H, W) for images, whose pixels are divided by 255, and for small grids, whose
cells are numbers. `forward(encoded, state, reset) -> (features, state)`: encoded float32 [T, B,
*shape], time first; features float32 [T, B, F]. All parameters are float32, all weights are drawn by
torch's global generator, which is seeded for it, and a row's features depend on no other row of B.

state: what is remembered, a tuple of tensors float32 [B, ...], before the first row and after the
last one. `()` is given where nothing was ever seen; a torso without a memory returns `()`, too, and
its rows are independent in time as well. reset bool [T, B]: whether row t begins an episode, which
clears the state before it, so that zeros are as good as any state there. T rows at once give the
features of one after the other. What remembers is trained by ppo-lstm.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from agents.networks.torsos import Features, FeedForward, TorsoState, planes
from agents.spaces import Interface
from config.errors import BadInput
from config.imports import imported, reason


class OwnTorso(FeedForward):
    """A person's torso, always in fp32; what has a memory is never asked for independent `rows`."""

    def __init__(
        self, spaces: Interface, path: str, generator: torch.Generator, *, may_remember: bool
    ) -> None:
        super().__init__(spaces)
        with torch.random.fork_rng(devices=[]):
            # A person's torso draws its weights from torch's global generator, which is put back
            # afterwards.
            torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
            made = make_torso(path, encoded_shape(spaces), may_remember=may_remember)
            self.torso = made.torso
            self.features = made.features

    def encode(self, observations: Tensor) -> Tensor:
        """[N, ...] as the environment gives them -> [N, *shape]; an image's pixels stay bytes."""
        if not (self.spaces.image or self.spaces.grid):
            return super().encode(observations)
        images = planes(observations, self.spaces).contiguous()
        return images if self.spaces.image else images.to(torch.float32)

    def rows(self, encoded: Tensor) -> Tensor:
        """Encoded [B, *shape] -> features [B, F]."""
        reset = torch.zeros(1, len(encoded), dtype=torch.bool, device=encoded.device)
        features: Tensor = self.torso(self._scaled(encoded)[None], (), reset)[0][0]
        return features

    def forward(
        self, encoded: Tensor, state: TorsoState, reset: Tensor
    ) -> tuple[Features, TorsoState]:
        """Encoded [T, B, *shape], state, reset [T, B] -> features [T, B, F], state."""
        features, after = self.torso(self._scaled(encoded), state, reset)
        return features, after

    def _scaled(self, encoded: Tensor) -> Tensor:
        return encoded.to(torch.float32) / 255 if self.spaces.image else encoded


def encoded_shape(spaces: Interface) -> tuple[int, ...]:
    """The shape of one observation as a torso receives it."""
    if spaces.image or spaces.grid:
        return spaces.observation_shape
    return (math.prod(spaces.observation_shape),)


class MadeTorso(NamedTuple):
    """A person's torso, the number of its features, and whether it remembers."""

    torso: nn.Module
    features: int
    remembers: bool


def make_torso(path: str, shape: tuple[int, ...], *, may_remember: bool) -> MadeTorso:
    """Made and tried; may_remember: whether the algorithm trains a memory. Raises `BadInput` for the
    first promise that it breaks.
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
    # Tried before anything is trained: a broken promise is one line at the start, not an error
    # hours later.
    features, state = _answer(path, torso, shape)
    if state and not may_remember:
        raise BadInput(
            f"network {path!r} keeps a state between steps; allowed here: the empty one, (); ppo-lstm trains what remembers"
        )
    if state:
        _check_memory(path, torso, shape, state)
    return MadeTorso(torso, int(features.shape[2]), bool(state))


STEPS = 2
ROWS = 3
"""The sizes with which a torso is tried."""


def _answer(path: str, torso: nn.Module, shape: tuple[int, ...]) -> tuple[Tensor, TorsoState]:
    """The torso's output for two steps of three rows."""
    answer = _tried(path, torso, torch.zeros(STEPS, ROWS, *shape), (), _resets(False, False))
    if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[0], Tensor):
        raise BadInput(
            f"network {path!r} returns a {type(answer).__name__}; allowed: (features, state)"
        )
    features, state = answer
    of_steps = features.dim() == 3 and features.shape[:2] == (STEPS, ROWS)
    if features.dtype != torch.float32 or not of_steps:
        raise BadInput(
            f"network {path!r} returns features of {features.dtype} {list(features.shape)} for 2 steps of 3 rows; "
            "allowed: torch.float32 [2, 3, F]"
        )
    of_rows = isinstance(state, tuple) and all(
        isinstance(part, Tensor) and part.dtype == torch.float32 and part.shape[:1] == (ROWS,)
        for part in state
    )
    if not of_rows:
        raise BadInput(
            f"network {path!r} returns a state {_described(state)} for 3 rows; "
            "allowed: (), or a tuple of torch.float32 [3, ...]"
        )
    return features, state


def _check_memory(path: str, torso: nn.Module, shape: tuple[int, ...], state: TorsoState) -> None:
    """Check that a torso continues from the state that it returned, that a reset clears the state,
    and that several steps at once equal the steps one by one.
    """
    generator = torch.Generator().manual_seed(0)
    seen = torch.rand(STEPS, ROWS, *shape, generator=generator)
    full = tuple(torch.rand(part.shape, generator=generator) for part in state)
    empty = tuple(torch.zeros_like(part) for part in state)
    # The torso is tried with two steps at once, from a state that is not empty.
    together, after = _tried(path, torso, seen, full, _resets(False, False))
    if [part.shape for part in after] != [part.shape for part in state]:
        raise BadInput(
            f"network {path!r} returns a state {_described(after)} where it was given {_described(state)}"
        )
    # It must give the same features step by step, each from the state that it returned before.
    for step in range(STEPS):
        alone, full = _tried(path, torso, seen[step : step + 1], full, _resets(False))
        if not torch.allclose(alone[0], together[step], atol=1e-4):
            raise BadInput(
                f"network {path!r} gives step {step} of two other features than the step by itself"
            )
    # The second step begins an episode: it must be as if nothing had been seen before it.
    cleared, _ = _tried(path, torso, seen, full, _resets(False, True))
    for begun in (empty, ()):
        fresh, _ = _tried(path, torso, seen[1:], begun, _resets(True))
        if not torch.allclose(cleared[1], fresh[0], atol=1e-4):
            raise BadInput(
                f"network {path!r} remembers what was before a reset; reset[t] clears the state before row t"
            )


def _tried(path: str, torso: nn.Module, encoded: Tensor, state: TorsoState, reset: Tensor) -> Any:
    try:
        with torch.no_grad():
            return torso(encoded, state, reset)
    except Exception as error:
        raise BadInput(
            f"network {path!r} fails on observations {tuple(encoded.shape[2:])}: {reason(error)}"
        ) from error


def _resets(*of_steps: bool) -> Tensor:
    """Whether each step begins an episode, in all rows: bool [T, ROWS]."""
    return torch.tensor(of_steps)[:, None].expand(-1, ROWS)


def _described(state: Any) -> str:
    """The type of a value, or the shapes of its parts."""
    if not isinstance(state, tuple):
        return f"of type {type(state).__name__}"
    parts = list[str]()
    for part in state:
        if isinstance(part, Tensor):
            parts.append(f"{part.dtype} {list(part.shape)}")
        else:
            parts.append(type(part).__name__)
    return f"({', '.join(parts)})"
