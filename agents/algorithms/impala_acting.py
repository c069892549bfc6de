"""How IMPALA acts and records the probability of each action: with an actor's copy of the policy,
or in the learner for all actors at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from agents.devices import arrays, is_accelerator, on_device
from agents.distributed.actors import Actor, ObservingActor
from agents.distributed.central import Turn
from agents.distributed.protocol import Columns, Link, Spec, Specs, Weights
from agents.distributed.stepping import Acted, one_environment, row_specs
from agents.distributed.unrolls import ActingMemory
from agents.distributed.weights import PolicyWeights
from agents.environments.normalisation import make_observation_normaliser
from agents.environments.training import TrainingEnvironments
from agents.networks import make_actor_critic, make_recurrent_actor_critic
from agents.networks.action_distributions import NoiseRows, make_actions, masked
from agents.networks.actor_critic import ActorCritic, RecurrentActorCritic
from agents.networks.torsos import TorsoState
from agents.optimisation.graphs import Graphed
from agents.spaces import Interface
from config.resolved import Resolved
from config.seeds import integer_seed


def make_network(
    hyper: Any, spaces: Interface, precision: str, generator: torch.Generator
) -> ActorCritic | RecurrentActorCritic:
    """PPO's network, recurrent or not. hyper: IMPALA's hyperparameters."""
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


class Memory(ActingMemory):
    """A policy's memory of one actor's E environments: the recurrent states of their episodes, and
    the noise of their actions. Implements `agents.distributed.stepping.Remembers`.
    """

    def __init__(self, rows: Specs, first_state: TorsoState, noise: NoiseRows) -> None:
        super().__init__(first_state)
        self.rows = rows
        self.first = self.specs
        self.noise = noise

    def before_next(self, environments: slice | np.ndarray) -> Columns:
        """The recurrent states before the next observation, whether or not episodes have ended."""
        return self.columns(environments)

    def of_final(self, environments: np.ndarray, observations: np.ndarray) -> Columns:
        """Nothing: the learner computes values with its own weights."""
        return {}


class ActorCriticPolicy:
    """Acts for batches of environments and records log μ of each action. Implements
    `agents.distributed.central.BatchedActing`.

    pads: whether batches are filled up to a power of two, so that a GPU sees few shapes.
    """

    def __init__(
        self, resolved: Resolved, environments: TrainingEnvironments, *, run: int,
        device: str = "cpu", precision: str = "fp32",
    ) -> None:  # fmt: skip
        """environments: examples of those in which it will act."""
        torch.set_num_threads(resolved.experiment.threads)
        spaces = environments.interface
        self._seed = resolved.experiment.seed
        self._run = run
        self.device = torch.device(device)
        self.pads = self.device.type != "cpu"
        # The initial weights do not matter: the learner's replace them before the first action.
        unused = torch.Generator().manual_seed(0)
        network = make_network(resolved.hyperparameters, spaces, precision, unused)
        self.network = network.to(self.device)
        graphed = Graphed(self.network, self.device, "central inference")
        self._graphed = lambda encoded: graphed(encoded)[0]
        self._freeze()
        self.actions = make_actions(spaces)
        self.normaliser = make_observation_normaliser(resolved, spaces)
        self.weights = PolicyWeights(self.network, self.normaliser)
        self._first = self._first_state(environments.observation[:1])
        self.rows: Specs = {"log_probability": Spec("float32", ())}
        self.first = ActingMemory(self._first).specs

    def load(self, weights: Weights) -> None:
        """Load the network's weights and the statistics of observations."""
        self.weights.load(weights)
        self._freeze()

    def _freeze(self) -> None:
        # With numpy alone an actor's step of 8 CartPoles takes 112 µs instead of 199: torch's calls
        # cost more than the arithmetic of small networks.
        by_numpy = self.network.acting_by_numpy()
        self.needs_torch = by_numpy is None
        self.network_now: Callable[..., Any] = by_numpy or self.network.acting()
        if is_accelerator(self.device) and isinstance(self.network, ActorCritic):
            # It reads the weights where they are, so that it need not be made anew for others.
            self.network_now = self._graphed

    def begin(self, environments: int, number: int, again: int = 0) -> Memory:
        """A new memory: zero states, and a noise generator of its own."""
        # A stream that begins again draws other noise than its predecessor.
        purpose = f"actions {again}" if again else "actions"
        seed = integer_seed(self._seed, self._run, purpose, number)
        parts = (part.repeat(environments, *[1] * (part.ndim - 1)) for part in self._first)
        noise = NoiseRows(self.actions, torch.Generator().manual_seed(seed))
        return Memory(self.rows, tuple(parts), noise)

    def act(self, turns: Sequence[Turn]) -> list[Acted]:
        """Sample actions."""
        firsts = [turn.memory.before_next(turn.places) for turn in turns]
        noise = _joined([turn.memory.noise.take(len(turn.begins)) for turn in turns])
        taken, log_probability = self.actions.drawn(self._allowed(turns), noise)
        start = 0
        acted = list[Acted]()
        for turn, first in zip(turns, firsts, strict=True):
            own = slice(start, start + len(turn.begins))
            acted.append(Acted(taken[own], {"log_probability": log_probability[own]}, first))
            start = own.stop
        return acted

    def _allowed(self, turns: Sequence[Turn]) -> np.ndarray:
        """The head's output [N, P] with forbidden actions masked. The memories advance."""
        observations = _joined([turn.observations for turn in turns])
        if self.normaliser is not None:
            observations = self.normaliser(observations)
        policy: np.ndarray
        if self.needs_torch:
            policy = self._by_torch(turns, observations)
        else:
            policy = self.network_now(observations)
        masks = [turn.masks for turn in turns if turn.masks is not None]
        if masks:
            policy = masked(torch.from_numpy(policy), torch.from_numpy(_joined(masks))).numpy()
        return policy

    @torch.inference_mode()
    def _by_torch(self, turns: Sequence[Turn], observations: np.ndarray) -> np.ndarray:
        """The head's output [N, P], computed by torch."""
        encoded = self._encoded(observations)
        rows = len(observations)
        after: TorsoState = ()
        if isinstance(self.network, RecurrentActorCritic):
            remembered = zip(*(turn.memory.parts(turn.places) for turn in turns), strict=True)
            before = tuple(self._to_device(self._padded(_joined(parts))) for parts in remembered)
            begins = self._to_device(self._padded(_joined([turn.begins for turn in turns])))
            policy, after = self.network_now(encoded, before, begins)
        else:
            policy = self.network_now(encoded)
        # A GPU is waited for once.
        found, *states = arrays([policy, *after])
        self._remember(turns, tuple(map(torch.from_numpy, states)))
        # The padding's rows are cut off.
        return found[:rows]

    def _remember(self, turns: Sequence[Turn], after: TorsoState) -> None:
        """Store states [N, ...] in the memories, one turn after the other."""
        start = 0
        for turn in turns:
            own = slice(start, start + len(turn.begins))
            turn.memory.keep(turn.places, tuple(part[own] for part in after))
            start = own.stop

    def _encoded(self, observations: np.ndarray) -> torch.Tensor:
        """Normalised observations [N, ...] as the network takes them, padded."""
        return self._to_device(self.network.encode(self._padded(observations)))

    def _to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        return on_device(tensor, self.device)

    def _padded(self, rows: np.ndarray) -> torch.Tensor:
        """[N, ...] -> [size, ...] on the CPU, filled up with zeros."""
        if self.pads:
            # Batches are filled up to the next power of two.
            missing = (1 << (len(rows) - 1).bit_length()) - len(rows)
            rows = np.concatenate((rows, np.zeros((missing, *rows.shape[1:]), rows.dtype)))
        return torch.from_numpy(rows)

    def _first_state(self, observations: np.ndarray) -> TorsoState:
        """The recurrent state of one environment before its first observation."""
        if not isinstance(self.network, RecurrentActorCritic):
            return ()
        return self.network.first_state(self._encoded(observations))


def _joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Concatenate arrays [n, ...] to [N, ...]. The result is a copy, because torch warns of
    read-only arrays, and received ones are.
    """
    if len(arrays) == 1 and arrays[0].flags.writeable:
        return arrays[0]
    return np.concatenate(arrays)


class ActorCriticActing:
    """The policy of one actor, on its CPU. Implements `agents.distributed.stepping.Acting`."""

    def __init__(
        self, resolved: Resolved, environments: TrainingEnvironments, *, run: int, number: int
    ) -> None:
        self.policy = ActorCriticPolicy(resolved, environments, run=run)
        self.rows = self.policy.rows
        self.first = self.policy.first
        self.memory = self.policy.begin(environments.count, number)

    def load(self, weights: Weights) -> None:
        """Load the network's weights and the statistics of observations."""
        self.policy.load(weights)

    def act(
        self,
        places: slice,
        observations: np.ndarray,
        begins: np.ndarray,
        masks: np.ndarray | None,
    ) -> Acted:
        """Sample actions."""
        return self.policy.act([Turn(self.memory, places, observations, begins, masks)])[0]

    def before_next(self, environments: np.ndarray) -> Columns:
        """The recurrent states of the episodes before the next observation."""
        return self.memory.before_next(environments)

    def of_final(self, environments: np.ndarray, observations: np.ndarray) -> Columns:
        """Nothing: the learner computes values with its own weights."""
        return self.memory.of_final(environments, observations)


def look(
    resolved: Resolved, run: int, device: str, precision: str
) -> tuple[ActorCriticPolicy, dict[str, Spec], Interface]:
    """A policy for these environments, the columns of their rows, and their spaces."""
    with one_environment(resolved, run) as environments:
        policy = ActorCriticPolicy(
            resolved, environments, run=run, device=device, precision=precision
        )
        rows = row_specs(environments.interface, environments.observation.dtype)
        return policy, rows, environments.interface


def make_actor(resolved: Resolved, *, run: int, member: int, link: Link) -> Actor | ObservingActor:
    """The function that the descriptor names; an `agents.interfaces.MakeActor`."""
    if resolved.hyperparameters.inference == "learner":
        observing: Any = link
        return ObservingActor(resolved, run=run, member=member, link=observing)
    return Actor(resolved, run=run, member=member, link=link, make_acting=ActorCriticActing)
