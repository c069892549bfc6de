"""How IMPALA acts: an actor's copy of the policy, which writes down how probable each action was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from agents.actions import make_actions, masked
from agents.distributed.actor import Actor
from agents.distributed.interfaces import Columns, Link, Spec, Specs, Weights
from agents.distributed.play import Acted
from agents.distributed.weights import named, prefixed
from agents.environments.spaces import Interface
from agents.environments.training import TrainingEnvironments
from agents.networks import make_actor_critic, make_recurrent_actor_critic
from agents.networks.actor_critic import ActorCritic, RecurrentActorCritic
from agents.normalisation import ObservationNormaliser, make_observation_normaliser
from agents.states import to_tensors
from config.resolve import Resolved
from config.seeds import integer_seed

NETWORK, STATISTICS = "network.", "observations."
"""With these the names of weights begin."""
STATE = "state"
"""And with this, of columns: the parts of what is remembered before an unroll's first row."""


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
        self.memory: tuple[torch.Tensor, ...] = ()
        if isinstance(self.network, RecurrentActorCritic):
            encoded = self.network.encode(torch.from_numpy(environments.observation))
            self.memory = self.network.first_state(encoded)
        self.rows: Specs = {"log_probability": Spec("float32", ())}
        self.first: Specs = {
            f"{STATE}{number}": Spec("float32", tuple(part.shape[1:]))
            for number, part in enumerate(self.memory)
        }

    def load(self, weights: Weights) -> None:
        """The network's, and the statistics of observations."""
        self.network.load_state_dict(to_tensors(named(weights.arrays, NETWORK)))
        self.network_now = self.network.frozen()
        if self.normaliser is not None:
            self.normaliser.load_state_dict(named(weights.arrays, STATISTICS))

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
            before = tuple(torch.from_numpy(part) for part in first.values())
            policy, _, after = self.network_now(encoded, before, torch.from_numpy(begins))
            for kept, part in zip(self.memory, after, strict=True):
                kept[places] = part
        else:
            policy, _ = self.network_now(encoded)
        policy = masked(policy, None if masks is None else torch.from_numpy(masks))
        noise = self.actions.noise((len(begins),), self.noise)
        actions = self.actions.choose(policy, noise)
        rows = {"log_probability": self.actions.log_probability(policy, actions).numpy()}
        return Acted(actions.numpy(), rows, first)

    def before_next(self, environments: slice | np.ndarray) -> Columns:
        """What is remembered of their episodes, whether or not these have ended."""
        return {
            name: part[environments].numpy().copy()
            for name, part in zip(self.first, self.memory, strict=True)
        }

    def of_final(self, environments: np.ndarray, observations: np.ndarray) -> Columns:
        """Nothing is done there."""
        return {}


def weights_of(
    network: ActorCritic | RecurrentActorCritic, normaliser: ObservationNormaliser | None
) -> Columns:
    """What `ActorCriticActing.load` takes; views of the network's own memory where that is the
    CPU's.
    """
    arrays = {name: tensor.numpy(force=True) for name, tensor in network.state_dict().items()}
    statistics = {} if normaliser is None else normaliser.state_dict()
    return prefixed(arrays, NETWORK) | prefixed(statistics, STATISTICS)


def make_actor(resolved: Resolved, *, run: int, member: int, link: Link) -> Actor:
    """What the descriptor names; `agents.interfaces.MakeActor`."""
    return Actor(resolved, run=run, member=member, link=link, make_acting=ActorCriticActing)
