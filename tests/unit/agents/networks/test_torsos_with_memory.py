"""A torso of a person's own that remembers, `-p network=my_lab.nets:Gated`: ppo-lstm trains it, ppo
refuses it, and one line for each promise that another one breaks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from my_lab.nets import Gated
from torch import Tensor, nn

from agents.environments.game_check import check_game
from agents.networks.own import make_torso
from config.errors import BadInput
from config.resolve import resolve
from config.resolved import Resolved

OWN = "my_lab.nets:Gated"
SMALL = {
    "num_envs": "4", "rollout_length": "16", "sequence_length": "8", "minibatches": "2",
    "epochs": "4",
}  # fmt: skip


def small(game: str, network: str = OWN, **given: str) -> Resolved:
    return resolve("ppo-lstm", {"game": game, "network": network, **SMALL, **given})


def test_it_is_known_to_remember_and_another_is_known_not_to() -> None:
    assert make_torso(OWN, (4,), may_remember=True)[1:] == (32, True)
    assert make_torso("my_lab.nets:Residual", (4,), may_remember=True)[1:] == (32, False)
    assert check_game(small("cartpole")).observation_shape == (4,)


def test_ppo_refuses_it_and_names_what_trains_it() -> None:
    with pytest.raises(BadInput) as refusal:
        check_game(resolve("ppo", {"game": "cartpole", "network": OWN}))
    assert "keeps a state between steps; allowed here: the empty one, ();" in str(refusal.value)
    assert "ppo-lstm trains what remembers" in str(refusal.value)


class Deaf(Gated):
    """Never hears of an end."""

    def forward(self, encoded: Tensor, state: Any, reset: Tensor) -> Any:
        return super().forward(encoded, state, torch.zeros_like(reset))


class Late(Gated):
    """Clears the state after the row that begins an episode."""

    def forward(self, encoded: Tensor, state: Any, reset: Tensor) -> Any:
        return super().forward(encoded, state, reset.roll(1, dims=0))


class Eager(Gated):
    """Begins with something else than after a reset."""

    def forward(self, encoded: Tensor, state: Any, reset: Tensor) -> Any:
        begun = state or (torch.ones(encoded.shape[1], 32),)
        return super().forward(encoded, begun, reset if state else torch.zeros_like(reset))


class Forgetful(Gated):
    """Its steps together are not its steps one by one: it returns the state that it was given."""

    def forward(self, encoded: Tensor, state: Any, reset: Tensor) -> Any:
        features, after = super().forward(encoded, state, reset)
        return features, state or after


class TimeLast(Gated):
    def forward(self, encoded: Tensor, state: Any, reset: Tensor) -> Any:
        features, (hidden,) = super().forward(encoded, (state[0].T,) if state else (), reset)
        return features, (hidden.T,)


class Growing(Gated):
    def forward(self, encoded: Tensor, state: Any, reset: Tensor) -> Any:
        features, (hidden,) = super().forward(encoded, state and (state[0][:, :32],), reset)
        return features, (torch.cat((hidden, *(state or ())), dim=1),)


class Listing(Gated):
    def forward(self, encoded: Tensor, state: Any, reset: Tensor) -> Any:
        features, after = super().forward(encoded, state, reset)
        return features, list(after)


class Doubling(Gated):
    def forward(self, encoded: Tensor, state: Any, reset: Tensor) -> Any:
        given = tuple(part.float() for part in state)
        features, after = super().forward(encoded, given, reset)
        return features, tuple(part.double() for part in after)


class Unready(Gated):
    """Takes no state but its own."""

    def forward(self, encoded: Tensor, state: Any, reset: Tensor) -> Any:
        return super().forward(encoded, (state[0],), reset)


BROKEN = [
    (Deaf, "remembers what was before a reset; reset[t] clears the state before row t"),
    (Late, "remembers what was before a reset"),
    (Eager, "remembers what was before a reset"),
    (Forgetful, "gives step 1 of two other features than the step by itself"),
    (TimeLast, "returns a state (torch.float32 [32, 3]) for 3 rows"),
    (Growing, "returns a state (torch.float32 [3, 64]) where it was given (torch.float32 [3, 32])"),
    (Listing, "returns a state of type list for 3 rows; allowed: (), or a tuple of torch.float32"),
    (Doubling, "returns a state (torch.float64 [3, 32]) for 3 rows"),
    (Unready, "fails on observations (4,): IndexError"),
]


@pytest.mark.parametrize(("broken", "reason"), BROKEN, ids=lambda one: str(one)[-30:])
def test_a_network_that_breaks_a_promise(broken: type[nn.Module], reason: str) -> None:
    with pytest.raises(BadInput) as refusal:
        check_game(small("cartpole", f"{__name__}:{broken.__name__}"))
    assert reason in str(refusal.value)
    assert str(refusal.value).isprintable()
