"""How IMPALA acts: an actor's copy of the policy, which writes down how probable each action was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from agents.actions import make_actions, masked
from agents.distributed.actor import Actor
from agents.distributed.interfaces import Columns, Link, Spec, Specs, Weights
from agents.distributed.memory import ActingMemory, as_state
from agents.distributed.play import Acted
from agents.distributed.policy_weights import load_weights
from agents.environments.spaces import Interface
from agents.environments.training import TrainingEnvironments
from agents.networks import make_actor_critic, make_recurrent_actor_critic
from agents.networks.actor_critic import ActorCritic, RecurrentActorCritic
from agents.normalisation import make_observation_normaliser
from config.resolve import Resolved
from config.seeds import integer_seed


def make_network(
    hyper: Any, spaces: Interface, precision: str, generator: torch.Generator
) -> ActorCritic | RecurrentActorCritic:
    """PPO's, or PPO's with a memory; hyper: IMPALA's hyperparameters."""
    if not hyper.remembers:
        return make_actor_critic(
            spaces, hidden_sizes=hyper.hidden_sizes, log_std_init=hyper.log_std_init,
            precision=precision, generator=generator, torso=hyper.network,
        )  # fmt: skip
    return make_recurrent_actor_critic(
        spaces, lstm_size=hyper.lstm_size, hidden_sizes=hyper.hidden_sizes,
        log_std_init=hyper.log_std_init, precision=precision, generator=generator,
        torso=hyper.network,
    )  # fmt: skip


class ActorCriticActing:
    """`agents.distributed.play.Acting`, on the CPU; row: log μ of each action."""

    def __init__(
        self, resolved: Resolved, environments: TrainingEnvironments, *, run: int, number: int
    ) -> None:
        torch.set_num_threads(resolved.experiment.threads)
        spaces = environments.interface
        self.network = make_network(
            resolved.hyperparameters, spaces, "fp32", torch.Generator().manual_seed(0)
        )
        self.network_now: Callable[..., tuple[Any, ...]] = self.network.frozen()
        self.actions = make_actions(spaces)
        self.normaliser = make_observation_normaliser(resolved, spaces)
        seed = integer_seed(resolved.experiment.seed, run, "actions", number)
        self.noise = torch.Generator().manual_seed(seed)
        self.memory = ActingMemory(())
        if isinstance(self.network, RecurrentActorCritic):
            encoded = self.network.encode(torch.from_numpy(environments.observation))
            self.memory = ActingMemory(self.network.first_state(encoded))
        self.rows: Specs = {"log_probability": Spec("float32", ())}
        self.first = self.memory.specs

    def load(self, weights: Weights) -> None:
        """The network's, and the statistics of observations."""
        load_weights(weights, self.network, self.normaliser)
        self.network_now = self.network.frozen()

    @torch.inference_mode()
    def act(
        self,
        places: slice,
        observations: np.ndarray,
        begins: np.ndarray,
        masks: np.ndarray | None,
    ) -> Acted:
        """Sampled actions."""
        if self.normaliser is not None:
            observations = self.normaliser(observations)
        encoded = self.network.encode(torch.from_numpy(observations))
        first = self.before_next(places)
        if isinstance(self.network, RecurrentActorCritic):
            before = as_state(first, self.first)
            policy, _, after = self.network_now(encoded, before, torch.from_numpy(begins))
            self.memory.keep(places, after)
        else:
            policy, _ = self.network_now(encoded)
        policy = masked(policy, None if masks is None else torch.from_numpy(masks))
        noise = self.actions.noise((len(begins),), self.noise)
        actions = self.actions.choose(policy, noise)
        rows = {"log_probability": self.actions.log_probability(policy, actions).numpy()}
        return Acted(actions.numpy(), rows, first)

    def before_next(self, environments: slice | np.ndarray) -> Columns:
        """What is remembered of their episodes, whether or not these have ended."""
        return self.memory.columns(environments)

    def of_final(self, environments: np.ndarray, observations: np.ndarray) -> Columns:
        """Nothing is done there."""
        return {}


def make_actor(resolved: Resolved, *, run: int, member: int, link: Link) -> Actor:
    """What the descriptor names; `agents.interfaces.MakeActor`."""
    return Actor(resolved, run=run, member=member, link=link, make_acting=ActorCriticActing)
