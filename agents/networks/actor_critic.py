"""Policy and value of observations: two linear heads on a torso, as PPO and its kin learn them; for
rows that are independent of each other, and for sequences of which something is remembered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from agents.networks.torsos import Features, FeedForward, Torso, TorsoState, each, orthogonal
from agents.spaces import Interface

OfHeads = tuple[Tensor, Tensor]
"""policy [B, P], value [B]."""
Forward = Callable[[Tensor], OfHeads]
"""Encoded [B, ...] -> policy [B, P], value [B]."""
ForwardStep = Callable[[Tensor, TorsoState, Tensor], tuple[Tensor, Tensor, TorsoState]]
"""Encoded [B, ...], state, reset [B] -> policy [B, P], value [B], state."""


class Heads(nn.Module):
    """Both heads, on a torso.

    P: logits of discrete actions, or means and log standard deviations of continuous ones, the
    latter the same for every observation. Initial weights of the heads are orthogonal, scaled by
    0.01 for the policy and 1 for the value.
    """

    torso: Torso

    def __init__(
        self,
        spaces: Interface,
        torso: Torso,
        log_std_init: float,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.spaces = spaces
        self.torso = torso
        outputs = spaces.policy_outputs
        features = torso.features
        # With a gain of 0.01 the first policy is nearly uniform.
        self.policy_weight = nn.Parameter(orthogonal((outputs, features), 0.01, generator))
        self.policy_bias = nn.Parameter(torch.zeros(outputs))
        self.value_weight = nn.Parameter(orthogonal((1, features), 1.0, generator)[0])
        self.value_bias = nn.Parameter(torch.zeros(1))
        log_std: nn.Parameter | None = None
        if spaces.continuous:
            log_std = nn.Parameter(torch.full((spaces.actions,), log_std_init))
        self.log_std = log_std

    @property
    def is_small(self) -> bool:
        """Whether it is one of our own, on the CPU, whose calls cost more than the arithmetic."""
        return self.torso.small and self.policy_weight.device.type == "cpu"

    def encode(self, observations: Tensor) -> Tensor:
        """Observations [N, ...] as the environment gives them -> [N, ...] as rollouts store
        them.
        """
        return self.torso.encode(observations)

    def frozen(self) -> Callable[..., tuple[Any, ...]]:
        """The network for a rollout's many small batches: to be called in `torch.inference_mode`,
        and before the next update.
        """
        raise NotImplementedError

    def acting_by_numpy(self) -> Callable[[np.ndarray], np.ndarray] | None:
        """The policy alone, of rows that are independent of each other: observations [N, ...] as the
        environment gives them -> [N, P]. None where torch is needed.
        """
        return None

    def _frozen_heads(self) -> Callable[[Features], OfHeads]:
        """On the CPU by numpy, whose calls take a fifth of torch's time on a few rows."""
        if self.policy_weight.device.type != "cpu":
            return self.heads
        policy = self._frozen_policy_head()
        value_weight = self.value_weight.numpy(force=True)
        value_bias = self.value_bias.numpy(force=True)

        def heads(features: Features) -> OfHeads:
            of_policy, of_value = _pair(features)
            value = torch.from_numpy(of_value.numpy() @ value_weight + value_bias)
            return policy(of_policy), value

        return heads

    def _frozen_policy_head(self) -> Callable[[Tensor], Tensor]:
        """As `_frozen_heads`, for the policy's head only."""
        if self.policy_weight.device.type != "cpu":
            return self._policy_head
        policy = self._policy_head_by_numpy()
        return lambda features: torch.from_numpy(policy(features.numpy()))

    def _policy_head_by_numpy(self) -> Callable[[np.ndarray], np.ndarray]:
        weight = self.policy_weight.numpy(force=True).T
        bias = self.policy_bias.numpy(force=True)
        log_std = None if self.log_std is None else self.log_std.numpy(force=True)

        def policy(features: np.ndarray) -> np.ndarray:
            output: np.ndarray = features @ weight + bias
            if log_std is None:
                return output
            return np.concatenate((output, np.broadcast_to(log_std, output.shape)), axis=1)

        return policy

    def heads(self, features: Features) -> OfHeads:
        """Features [B, F] -> policy [B, P], value [B]."""
        of_policy, of_value = _pair(features)
        output = self._policy_head(of_policy)
        return output, torch.addmv(self.value_bias, of_value, self.value_weight)

    def _policy_head(self, features: Tensor) -> Tensor:
        return self._with_deviations(
            functional.linear(features, self.policy_weight, self.policy_bias)
        )

    def _with_deviations(self, output: Tensor) -> Tensor:
        """The policy head's output [B, A] -> [B, P]."""
        if self.log_std is None:
            return output
        return torch.cat((output, self.log_std.expand_as(output)), dim=1)


class ActorCritic(Heads):
    """`network(encoded) -> (policy [B, P], value [B])`.

    encoded: what `encode` made of observations, once, when they came from the environment; rollouts
    store that.
    """

    torso: FeedForward

    def forward(self, encoded: Tensor) -> OfHeads:
        """Encoded [B, ...] -> policy [B, P], value [B]."""
        return self.heads(self.torso.rows(encoded))

    def frozen(self) -> Forward:
        """`forward` for a rollout's many small batches."""
        features_of = self.torso.frozen()
        heads = self._frozen_heads()
        return lambda encoded: heads(features_of(encoded))

    def acting(self) -> Callable[[Tensor], Tensor]:
        """`frozen`, the policy alone."""
        features_of = self.torso.frozen_for_policy()
        head = self._frozen_policy_head()
        return lambda encoded: head(_pair(features_of(encoded))[0])

    def acting_by_numpy(self) -> Callable[[np.ndarray], np.ndarray] | None:
        """As in the base class, for small networks on the CPU."""
        features_of = self.torso.by_numpy()
        size = self.spaces.observation_size
        if features_of is None:
            return None
        head = self._policy_head_by_numpy()

        def policy(observations: np.ndarray) -> np.ndarray:
            flat = observations.reshape(-1, size).astype(np.float32, copy=False)
            return head(features_of(flat))

        return policy


class Sequences(NamedTuple):
    """S sequences of L steps, each of one environment: encoded [L, S, ...].

    state [S, ...]: before the first step; reset bool [L, S]: whether step t begins an episode; rows
    [B]: which of the L · S steps, counted time first, are asked for.
    """

    encoded: Tensor
    state: TorsoState
    reset: Tensor
    rows: Tensor


class RecurrentActorCritic(Heads):
    """`network(sequences) -> (policy [B, P], value [B])` of the steps that are asked for."""

    def forward(self, sequences: Sequences) -> OfHeads:
        """The sequences are gone through as a whole, whichever of their steps are asked for."""
        features, _ = self.torso(sequences.encoded, sequences.state, sequences.reset)
        return self.heads(
            each(lambda one: one.flatten(0, 1).index_select(0, sequences.rows), features)
        )

    def frozen(self) -> ForwardStep:
        """Make one step of N environments."""
        step = self.torso.step()
        heads = self._frozen_heads()

        def forward(
            encoded: Tensor, state: TorsoState, reset: Tensor
        ) -> tuple[Tensor, Tensor, TorsoState]:
            features, after = step(encoded, state, reset)
            return *heads(features), after

        return forward

    def acting(self) -> Callable[[Tensor, TorsoState, Tensor], tuple[Tensor, TorsoState]]:
        """`frozen`, the policy alone."""
        step = self.torso.step()
        head = self._frozen_policy_head()

        def policy(encoded: Tensor, state: TorsoState, reset: Tensor) -> tuple[Tensor, TorsoState]:
            features, after = step(encoded, state, reset)
            return head(_pair(features)[0]), after

        return policy

    def first_state(self, encoded: Tensor) -> TorsoState:
        """See the torso's `first_state`."""
        return self.torso.first_state(encoded)


def _pair(features: Features) -> tuple[Tensor, Tensor]:
    return features if isinstance(features, tuple) else (features, features)
