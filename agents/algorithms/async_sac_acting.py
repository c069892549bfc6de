"""How the actors of asynchronous SAC act: with a copy of the policy and its torso."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from agents.distributed.actors import Actor
from agents.distributed.protocol import Columns, Link, Specs, Weights
from agents.distributed.stepping import Acted
from agents.distributed.weights import PolicyWeights
from agents.environments.normalisation import make_observation_normaliser
from agents.environments.training import TrainingEnvironments
from agents.networks import make_soft_actor_critic
from agents.networks.action_distributions import SquashedActions
from agents.networks.twin_critics import SoftActorCritic
from config.resolved import Resolved
from config.seeds import seed_sequence


class SquashedActing:
    """Acts on the CPU: uniformly until something was learnt, then by the policy. Implements
    `agents.distributed.stepping.Acting`.
    """

    def __init__(
        self, resolved: Resolved, environments: TrainingEnvironments, *, run: int, number: int
    ) -> None:
        torch.set_num_threads(resolved.experiment.threads)
        self.spaces = environments.interface
        hyper = resolved.hyperparameters
        self.network = make_soft_actor_critic(
            self.spaces, hidden_sizes=hyper.hidden_sizes, precision="fp32",
            generator=torch.Generator(), torso=hyper.network,
        )  # fmt: skip
        # A frozen policy follows the network's weights, into which `load` copies the learner's.
        self.policy = self.network.acting()
        self.actions = SquashedActions(self.spaces.actions)
        self.normaliser = make_observation_normaliser(resolved, self.spaces)
        self.weights = PolicyWeights(of_policy(self.network), self.normaliser)
        seeds = seed_sequence(resolved.experiment.seed, run, "actions", number)
        self.generator = np.random.default_rng(seeds)
        self.knows_nothing = True
        self.rows: Specs = {}
        self.first: Specs = {}

    def load(self, weights: Weights) -> None:
        """Load the policy's weights and the statistics of observations."""
        self.weights.load(weights)
        self.knows_nothing = weights.version.update == 0

    @torch.no_grad()
    def act(
        self,
        places: slice,
        observations: np.ndarray,
        begins: np.ndarray,
        masks: np.ndarray | None,
    ) -> Acted:
        """Sample actions. Continuous actions have no masks."""
        if self.knows_nothing:
            return Acted(self.actions.uniform(len(begins), self.generator), {}, {})
        if self.normaliser is not None:
            observations = self.normaliser(observations)
        policy = self.policy(self.network.encode(torch.from_numpy(observations)))
        return Acted(self.actions.drawn(policy, self.generator), {}, {})

    def before_next(self, environments: np.ndarray) -> Columns:
        """Nothing: this policy has no memory."""
        return {}

    def of_final(self, environments: np.ndarray, observations: np.ndarray) -> Columns:
        """Nothing: the learner needs no columns about final observations."""
        return {}


def of_policy(network: SoftActorCritic) -> nn.ModuleDict:
    """The parameters that act: a quarter of all."""
    return nn.ModuleDict({"torso": network.torso, "actor": network.actor})


def make_actor(resolved: Resolved, *, run: int, member: int, link: Link) -> Actor:
    """The function that the descriptor names; an `agents.interfaces.MakeActor`."""
    return Actor(
        resolved, run=run, member=member, link=link, make_acting=SquashedActing, gathers=False
    )
