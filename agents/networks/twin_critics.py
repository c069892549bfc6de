"""The networks of SAC and TD3: a policy and two critics on one torso, and what the targets need."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from agents.networks.torsos import FeedForward
from agents.spaces import Interface


class Flat(FeedForward):
    """The torso for vectors: none. Policy and critics each have layers of their own."""

    small = True

    def __init__(self, spaces: Interface) -> None:
        super().__init__(spaces)
        self.features = spaces.observation_size

    def rows(self, encoded: Tensor) -> Tensor:
        """Return the rows unchanged."""
        return encoded


class TwinCritics(nn.Module):
    """`network(encoded) -> (policy [B, P], value [B])`: what a trained policy is asked.

    Images, and whatever a person's own torso sees, are encoded once: by one torso for policy and
    critics, which learns from the critics' loss alone (Yarats et al. 2021, arXiv:1910.01741, and the
    pixel-based SACs since). The targets are slow copies of the critics and of their torso.

    outputs: P, what the policy says of one observation; the first A of them are the actions of
    largest probability, before the tanh.
    """

    def __init__(
        self,
        spaces: Interface,
        torso: FeedForward,
        hidden_sizes: Sequence[int],
        generator: torch.Generator,
        *,
        outputs: int,
    ) -> None:
        super().__init__()
        self.spaces = spaces
        self.torso = torso
        features = torso.features
        self.actor = Perceptrons(1, (features, *hidden_sizes, outputs), generator)
        self.critics = Perceptrons(2, (features + spaces.actions, *hidden_sizes, 1), generator)
        # The slow copies begin as copies, so that the first targets are the critics' own.
        self.target_torso = copy.deepcopy(torso).requires_grad_(False)
        self.target_critics = copy.deepcopy(self.critics).requires_grad_(False)

    @property
    def is_small(self) -> bool:
        """Whether it is one of our own, on the CPU, whose calls cost as much as the arithmetic."""
        return self.torso.small and next(self.actor.parameters()).device.type == "cpu"

    @property
    def learnt_by_critics(self) -> list[nn.Parameter]:
        """The parameters of the torso and of both critics."""
        return [*self.torso.parameters(), *self.critics.parameters()]

    @property
    def targets(self) -> list[nn.Parameter]:
        """The slow copies."""
        return [*self.target_torso.parameters(), *self.target_critics.parameters()]

    @property
    def followed(self) -> list[nn.Parameter]:
        """What `targets` are the slow copies of, in the same order."""
        return self.learnt_by_critics

    @torch.no_grad()
    def follow(self, rate: float) -> None:
        """Move the slow copies by this share of the way."""
        slow = list[Tensor](self.targets)
        fast = list[Tensor](self.followed)
        torch._foreach_lerp_(slow, fast, rate)

    def encode(self, observations: Tensor) -> Tensor:
        """Observations [N, ...] as the environment gives them -> [N, ...] as the torso takes them."""
        return self.torso.encode(observations)

    def features(self, encoded: Tensor) -> Tensor:
        """Encoded [B, ...] -> [B, F]."""
        return _only(self.torso.rows(encoded))

    def policy(self, features: Tensor) -> Tensor:
        """Features [B, F] -> [B, P], before the tanh."""
        policy: Tensor = self.actor(features)[0]
        return policy

    def values(self, features: Tensor, actions: Tensor) -> Tensor:
        """Features [B, F], actions [B, A] -> Q of both critics, [2, B]."""
        values: Tensor = self.critics(torch.cat((features, actions), dim=1))
        return values[..., 0]

    def values_of_actions(self, features: Tensor, actions: Tensor) -> Tensor:
        """As `values`, with gradients for the actions only."""
        return self.critics.without_gradients(torch.cat((features, actions), dim=1))[..., 0]

    def target_features(self, encoded: Tensor) -> Tensor:
        """As `features`, by the slow torso."""
        return _only(self.target_torso.rows(encoded))

    def target_values(self, features: Tensor, actions: Tensor) -> Tensor:
        """As `values`, of the slow copies; features: those of the slow torso."""
        values: Tensor = self.target_critics(torch.cat((features, actions), dim=1))
        return values[..., 0]

    def forward(self, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """Encoded [B, ...] -> policy [B, P], and the smaller Q of its first A outputs as actions, [B]."""
        features = self.features(encoded)
        policy = self.policy(features)
        action = policy[:, : self.spaces.actions].tanh()
        return policy, self.values(features, action).amin(dim=0)

    def acting(self) -> Callable[[Tensor], Tensor]:
        """Encoded [N, ...] of a few environments -> policy [N, P], in `torch.no_grad`; it follows the
        weights.
        """
        if not self.is_small:
            return lambda encoded: self.policy(self.features(encoded))
        frozen = self.actor.frozen()
        return lambda encoded: frozen(encoded)[0]


class SoftActorCritic(TwinCritics):
    """SAC's. The policy: means and log standard deviations before the tanh, [B, 2 A]."""

    def __init__(
        self,
        spaces: Interface,
        torso: FeedForward,
        hidden_sizes: Sequence[int],
        generator: torch.Generator,
    ) -> None:
        super().__init__(spaces, torso, hidden_sizes, generator, outputs=2 * spaces.actions)


class DeterministicActorCritic(TwinCritics):
    """TD3's. The policy: actions before the tanh, [B, A]; it has a slow copy, too."""

    def __init__(
        self,
        spaces: Interface,
        torso: FeedForward,
        hidden_sizes: Sequence[int],
        generator: torch.Generator,
    ) -> None:
        super().__init__(spaces, torso, hidden_sizes, generator, outputs=spaces.actions)
        self.target_actor = copy.deepcopy(self.actor).requires_grad_(False)

    @property
    def targets(self) -> list[nn.Parameter]:
        """The slow copies, the policy's last."""
        return [*super().targets, *self.target_actor.parameters()]

    @property
    def followed(self) -> list[nn.Parameter]:
        """What `targets` are the slow copies of, in the same order."""
        return [*super().followed, *self.actor.parameters()]

    def target_policy(self, features: Tensor) -> Tensor:
        """As `policy`, of the slow copy; features: those of the slow torso."""
        policy: Tensor = self.target_actor(features)[0]
        return policy

    def first_value_of_actions(self, features: Tensor, actions: Tensor) -> Tensor:
        """As `values_of_actions`, of the first critic alone, [B]."""
        rows = torch.cat((features, actions), dim=1)
        return self.critics.without_gradients(rows, count=1)[0, :, 0]


def _only(features: Tensor | tuple[Tensor, Tensor]) -> Tensor:
    """The features of a torso that has the same ones for policy and critics."""
    if isinstance(features, tuple):
        raise TypeError("the torso of SAC and TD3 gives one tensor of features")
    return features


class Perceptrons(nn.Module):
    """K networks of linear layers with ReLU between them, computed together: half the calls of two.

    weight1, weight2, … [K, in, out]; bias1, … [K, 1, out], as `torch.nn.Linear` draws its own:
    uniform in ±1/√in.
    """

    def __init__(self, count: int, sizes: Sequence[int], generator: torch.Generator) -> None:
        super().__init__()
        self._layers = list[tuple[nn.Parameter, nn.Parameter]]()
        for number, (inputs, outputs) in enumerate(itertools.pairwise(sizes), start=1):
            bound = 1 / math.sqrt(inputs)
            weights = torch.empty(count, inputs, outputs)
            weight = nn.Parameter(weights.uniform_(-bound, bound, generator=generator))
            biases = torch.empty(count, 1, outputs)
            bias = nn.Parameter(biases.uniform_(-bound, bound, generator=generator))
            self.register_parameter(f"weight{number}", weight)
            self.register_parameter(f"bias{number}", bias)
            self._layers.append((weight, bias))

    def forward(self, rows: Tensor) -> Tensor:
        """[B, in] -> [K, B, out]."""
        return self._answers(rows, self._layers)

    def without_gradients(self, rows: Tensor, count: int | None = None) -> Tensor:
        """As `forward`, but gradients flow to the rows and not to the weights. count: of how many of
        the K networks, the first ones; None: all.
        """
        # The actor's loss goes through the critics, which it must not change.
        layers = [(weight.detach()[:count], bias.detach()[:count]) for weight, bias in self._layers]
        return self._answers(rows, layers)

    def frozen(self) -> Callable[[Tensor], Tensor]:
        """`forward` for a few rows on the CPU, without gradients: by numpy, whose calls take a
        fifth of torch's time. It follows the weights as long as these are changed in place.
        """
        layers = [(weight.detach().numpy(), bias.detach().numpy()) for weight, bias in self._layers]

        def answers(rows: Tensor) -> Tensor:
            hidden = rows.numpy()
            for number, (weight, bias) in enumerate(layers):
                if number:
                    hidden = np.maximum(hidden, 0)
                hidden = np.matmul(hidden, weight) + bias
            return torch.from_numpy(hidden)

        return answers

    def _answers(self, rows: Tensor, layers: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        # One batched product for all K networks; `expand` copies nothing.
        hidden = rows.expand(len(layers[0][0]), *rows.shape)
        for number, (weight, bias) in enumerate(layers):
            if number:
                hidden = hidden.relu_()
            hidden = torch.baddbmm(bias, hidden, weight)
        return hidden
