"""A trained policy, as it is evaluated: on the CPU, its observation statistics frozen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from agents.environments.normalisation import ObservationNormaliser
from agents.interfaces import PolicyState, State
from agents.networks import (
    make_actor_critic,
    make_deterministic_actor_critic,
    make_recurrent_actor_critic,
    make_soft_actor_critic,
)
from agents.networks.action_distributions import (
    Choice,
    NoisyActions,
    SquashedActions,
    make_actions,
    masked,
)
from agents.networks.actor_critic import ActorCritic, RecurrentActorCritic
from agents.networks.twin_critics import TwinCritics
from agents.spaces import Interface
from agents.states import check_format, to_tensors
from config.resolved import Resolved

Network = ActorCritic | RecurrentActorCritic | TwinCritics


class Trained:
    """The network of a checkpoint. Raises `NoUsableState` for one of another version of this
    program.
    """

    def __init__(self, resolved: Resolved, state: State) -> None:
        check_format(state)
        torch.set_num_threads(resolved.experiment.threads)
        self.spaces = Interface.from_dict(state["interface"])
        self.network, self.actions = self._make(resolved)
        self.network.load_state_dict(to_tensors(state["network"]))
        self.normaliser: ObservationNormaliser | None = None
        if state["observation_normaliser"]:
            self.normaliser = ObservationNormaliser(self.spaces.environment_shape)
            self.normaliser.load_state_dict(state["observation_normaliser"])
        self.generators = list[torch.Generator]()

    def _make(self, resolved: Resolved) -> tuple[Network, Choice]:
        """The network with any weights, and how it chooses."""
        raise NotImplementedError

    def seed(self, seeds: Sequence[int]) -> None:
        """Start the generators of sampled actions anew, one for each row of what is observed
        then.
        """
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def _encoded(self, observations: np.ndarray) -> Tensor:
        """Observations [N, ...] as the environment gives them -> as the network takes them."""
        if self.normaliser is not None:
            observations = self.normaliser(observations)
        return self.network.encode(torch.from_numpy(np.ascontiguousarray(observations)))

    def _chosen(self, policy: Tensor, sample: bool, masks: np.ndarray | None) -> np.ndarray:
        """Policy [N, P] -> actions [N] or [N, ...] as the environment takes them."""
        allowed = None if masks is None else torch.from_numpy(masks)
        policy = masked(policy, allowed)
        if not sample:
            return self.spaces.environment_actions(self.actions.mode(policy).numpy())
        # Each row draws from its own generator: its action depends on no other row.
        rows = zip(self.generators, policy, strict=True)
        noise = torch.cat([self.actions.noise((1,), generator) for generator, _ in rows])
        return self.spaces.environment_actions(self.actions.choose(policy, noise).numpy())


class TrainedPolicy(Trained):
    """`agents.interfaces.Policy`."""

    network: ActorCritic | TwinCritics

    def _make(self, resolved: Resolved) -> tuple[Network, Choice]:
        hyper = resolved.hyperparameters
        network = make_actor_critic(
            self.spaces, hidden_sizes=hyper.hidden_sizes, log_std_init=hyper.log_std_init,
            precision="fp32", generator=torch.Generator(), torso=hyper.network,
        )  # fmt: skip
        return network, make_actions(self.spaces)

    @torch.inference_mode()
    def act(
        self, observations: np.ndarray, *, sample: bool, masks: np.ndarray | None = None
    ) -> np.ndarray:
        """Observations [N, ...] as the environment gives them -> actions [N] or [N, ...] as it
        takes them.

        sample: N generators must have been seeded; masks [N, P]: of allowed actions.
        """
        policy, _ = self.network(self._encoded(observations))
        return self._chosen(policy, sample, masks)


class SquashedPolicy(TrainedPolicy):
    """SAC's: the most probable action is the tanh of the mean."""

    def _make(self, resolved: Resolved) -> tuple[Network, Choice]:
        hyper = resolved.hyperparameters
        network = make_soft_actor_critic(
            self.spaces, hidden_sizes=hyper.hidden_sizes, precision="fp32",
            generator=torch.Generator(), torso=hyper.network,
        )  # fmt: skip
        return network, SquashedActions(self.spaces.actions)


class NoisyPolicy(TrainedPolicy):
    """TD3's: a sampled action has the noise with which the training explores."""

    def _make(self, resolved: Resolved) -> tuple[Network, Choice]:
        hyper = resolved.hyperparameters
        network = make_deterministic_actor_critic(
            self.spaces, hidden_sizes=hyper.hidden_sizes, precision="fp32",
            generator=torch.Generator(), torso=hyper.network,
        )  # fmt: skip
        return network, NoisyActions(self.spaces.actions, hyper.exploration_noise)


class TrainedRecurrentPolicy(Trained):
    """`agents.interfaces.RecurrentPolicy`."""

    network: RecurrentActorCritic

    def __init__(self, resolved: Resolved, state: State) -> None:
        super().__init__(resolved, state)
        self._step = self.network.frozen()

    def _make(self, resolved: Resolved) -> tuple[Network, Choice]:
        hyper = resolved.hyperparameters
        network = make_recurrent_actor_critic(
            self.spaces, lstm_size=hyper.lstm_size, hidden_sizes=hyper.hidden_sizes,
            log_std_init=hyper.log_std_init, precision="fp32", generator=torch.Generator(),
            torso=hyper.network,
        )  # fmt: skip
        return network, make_actions(self.spaces)

    def first_state(self, count: int) -> PolicyState:
        """Zeros [count, ...] each."""
        dtype = np.uint8 if self.spaces.image else np.float32
        nothing = np.zeros((count, *self.spaces.environment_shape), dtype)
        first = self.network.first_state(self.network.encode(torch.from_numpy(nothing)))
        return tuple(part.numpy() for part in first)

    @torch.inference_mode()
    def act(
        self, observations: np.ndarray, state: PolicyState, reset: np.ndarray, *, sample: bool,
        masks: np.ndarray | None = None,
    ) -> tuple[np.ndarray, PolicyState]:  # fmt: skip
        """As `TrainedPolicy.act`. state [N, ...] each: the recurrent state before. reset bool [N]:
        whether an episode begins. Returns the actions and the new state.
        """
        before = tuple(torch.from_numpy(np.ascontiguousarray(part, np.float32)) for part in state)
        policy, _, after = self._step(self._encoded(observations), before, torch.from_numpy(reset))
        return self._chosen(policy, sample, masks), tuple(part.numpy() for part in after)


def actor_critic_policy(resolved: Resolved, state: State) -> TrainedPolicy | TrainedRecurrentPolicy:
    """The policy of an algorithm that trains both kinds, recurrent or not as its hyperparameters
    say.
    """
    if resolved.hyperparameters.remembers:
        return TrainedRecurrentPolicy(resolved, state)
    return TrainedPolicy(resolved, state)
