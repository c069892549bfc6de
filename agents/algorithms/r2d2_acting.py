"""How R2D2 acts: with an actor's copy of the action values, ε-greedily, each environment with an ε
of its own. The values of its actions are sent along, for the first priority of a sequence.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agents.distributed.actors import Actor
from agents.distributed.protocol import Columns, Link, Spec, Specs, Weights
from agents.distributed.stepping import Acted
from agents.distributed.unrolls import ActingMemory, as_state
from agents.distributed.weights import PolicyWeights
from agents.environments.normalisation import make_observation_normaliser
from agents.environments.training import TrainingEnvironments
from agents.networks import make_recurrent_action_values
from agents.networks.action_distributions import masked
from agents.networks.action_values import (
    RecurrentActionValues,
    epsilon_of_actor,
    random_actions,
    taken,
)
from agents.spaces import Interface
from config.resolved import Resolved
from config.seeds import seed_sequence

TAKEN = "value"
BEST = "best_value"
"""Columns: Q of the action that was taken, and the largest Q of the allowed actions."""


def make_network(
    hyper: Any, spaces: Interface, precision: str, generator: torch.Generator
) -> RecurrentActionValues:
    """The recurrent action-value network. hyper: R2D2's hyperparameters."""
    return make_recurrent_action_values(
        spaces, lstm_size=hyper.lstm_size, hidden_sizes=hyper.hidden_sizes, dueling=hyper.dueling,
        precision=precision, generator=generator, torso=hyper.network,
    )  # fmt: skip


class RecurrentValueActing:
    """Acts on the CPU. Implements `agents.distributed.stepping.Acting`. epsilons [E]: every
    environment explores like one of the paper's actors, which have one environment each. member:
    which of the experiment's actors this is.
    """

    def __init__(
        self,
        resolved: Resolved,
        environments: TrainingEnvironments,
        *,
        run: int,
        number: int,
        member: int = 0,
    ) -> None:
        torch.set_num_threads(resolved.experiment.threads)
        hyper = resolved.hyperparameters
        self.spaces = environments.interface
        count = environments.count
        # The first weights do not matter: the learner's replace them before the first action.
        self.network = make_network(hyper, self.spaces, "fp32", torch.Generator().manual_seed(0))
        self.network_now = self.network.frozen()
        self.normaliser = make_observation_normaliser(resolved, self.spaces)
        self.weights = PolicyWeights(self.network, self.normaliser)
        seeds = seed_sequence(resolved.experiment.seed, run, "actions", number)
        self.generator = np.random.default_rng(seeds)
        # ε_i of Horgan et al. 2018: each environment counts as one of the paper's actors.
        self.epsilons = np.array(
            [
                epsilon_of_actor(
                    member * count + place, resolved.actors.actors * count,
                    largest=hyper.epsilon, exponent=hyper.epsilon_exponent,
                )
                for place in range(count)
            ]
        )  # fmt: skip
        encoded = self.network.encode(torch.from_numpy(environments.observation))
        self.memory = ActingMemory(self.network.torso.first_state(encoded))
        self.rows: Specs = {TAKEN: Spec("float32", ()), BEST: Spec("float32", ())}
        self.first = self.memory.specs

    def load(self, weights: Weights) -> None:
        """Load the network's weights and the statistics of observations."""
        self.weights.load(weights)
        self.network_now = self.network.frozen()

    @torch.inference_mode()
    def act(
        self,
        places: slice,
        observations: np.ndarray,
        begins: np.ndarray,
        masks: np.ndarray | None,
    ) -> Acted:
        """The best actions, or random ones with probability ε."""
        # The state before this step: it is stored where an unroll begins with this row.
        first = self.memory.columns(places)
        before = as_state(first, self.first)
        values, after = self.network_now(
            self._encoded(observations), before, torch.from_numpy(begins)
        )
        self.memory.keep(places, after)
        allowed = None if masks is None else torch.from_numpy(masks)
        best, greedy = masked(values, allowed).max(dim=1)
        explores = self.generator.random(len(begins)) < self.epsilons[places]
        chosen = random_actions(len(begins), self.spaces.actions, masks, self.generator)
        actions = np.where(explores, chosen, greedy.numpy())
        of_taken = taken(values, torch.from_numpy(actions))
        return Acted(actions, {TAKEN: of_taken.numpy(), BEST: best.numpy()}, first)

    def _encoded(self, observations: np.ndarray) -> Tensor:
        if self.normaliser is not None:
            observations = self.normaliser(observations)
        return self.network.encode(torch.from_numpy(observations))

    def before_next(self, environments: np.ndarray) -> Columns:
        """The recurrent states before the next observation, whether or not episodes have ended."""
        return self.memory.columns(environments)

    @torch.inference_mode()
    def of_final(self, environments: np.ndarray, observations: np.ndarray) -> Columns:
        """The value of the best action at the final observations."""
        before = as_state(self.memory.columns(environments), self.first)
        # The final observation belongs to the episode that ended, so its state is not cleared.
        goes_on = torch.zeros(len(environments), dtype=torch.bool)
        values, _ = self.network_now(self._encoded(observations), before, goes_on)
        return {BEST: values.amax(dim=1).numpy()}


def make_actor(resolved: Resolved, *, run: int, member: int, link: Link) -> Actor:
    """The function that the descriptor names; an `agents.interfaces.MakeActor`."""
    return Actor(
        resolved, run=run, member=member, link=link, overlap=resolved.hyperparameters.burn_in,
        gathers=False, make_acting=functools.partial(RecurrentValueActing, member=member),
    )  # fmt: skip
