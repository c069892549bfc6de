"""A trained network of action values, with or without a memory, as it is evaluated: on the CPU, its
observation statistics frozen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from agents.environments.normalisation import ObservationNormaliser
from agents.interfaces import PolicyState, State
from agents.networks import make_action_values, make_recurrent_action_values
from agents.networks.action_distributions import masked
from agents.networks.action_values import ActionValues, Head, RecurrentActionValues, random_actions
from agents.spaces import Interface
from agents.states import check_format, to_tensors
from config.resolved import Resolved

MakeNetwork = Callable[[Interface], Head]
"""With any weights."""


class Values:
    """The part that both kinds share. Greedy by Q; when sampling, a random action with the
    probability ε at which the training ended. Raises `NoUsableState` for a checkpoint of another
    version of this program.
    """

    def __init__(
        self, resolved: Resolved, state: State, statistics: State, network: MakeNetwork
    ) -> None:
        """statistics: of observations, empty where there are none."""
        check_format(state)
        torch.set_num_threads(resolved.experiment.threads)
        self.spaces = Interface.from_dict(state["interface"])
        self.epsilon: float = resolved.hyperparameters.final_epsilon
        made = network(self.spaces)
        made.load_state_dict(to_tensors(state["network"]))
        self.normaliser: ObservationNormaliser | None = None
        if statistics:
            self.normaliser = ObservationNormaliser(self.spaces.environment_shape)
            self.normaliser.load_state_dict(statistics)
        self.generators = list[np.random.Generator]()

    def seed(self, seeds: Sequence[int]) -> None:
        """Start the generators of random actions anew, one for each row of what is observed then."""
        self.generators = [np.random.default_rng(seed) for seed in seeds]

    def _encoded(self, network: Head, observations: np.ndarray) -> Tensor:
        """Observations [N, ...] as the environment gives them -> as the network takes them."""
        if self.normaliser is not None:
            observations = self.normaliser(observations)
        return network.encode(torch.from_numpy(np.ascontiguousarray(observations)))

    def _chosen(self, values: Tensor, sample: bool, masks: np.ndarray | None) -> np.ndarray:
        """Q [N, A] -> actions [N] as the environment takes them."""
        allowed = None if masks is None else torch.from_numpy(masks)
        actions = masked(values, allowed).argmax(dim=1).numpy()
        if not sample:
            return self.spaces.environment_actions(actions)
        # ε-greedy, each row by its own generator: its action depends on no other row.
        for row, generator in enumerate(self.generators):
            if generator.random() < self.epsilon:
                mask = None if masks is None else masks[row : row + 1]
                actions[row] = random_actions(1, self.spaces.actions, mask, generator)[0]
        return self.spaces.environment_actions(actions)


class ValuePolicy(Values):
    """`agents.interfaces.Policy`."""

    def __init__(self, resolved: Resolved, state: State) -> None:
        hyper = resolved.hyperparameters

        def make(spaces: Interface) -> ActionValues:
            self.network = make_action_values(
                spaces, hidden_sizes=hyper.hidden_sizes, dueling=hyper.dueling,
                quantiles=hyper.quantiles, precision="fp32", generator=torch.Generator(),
                torso=hyper.network,
            )  # fmt: skip
            return self.network

        super().__init__(resolved, state, state["collection"]["observation_normaliser"], make)

    @torch.inference_mode()
    def act(
        self, observations: np.ndarray, *, sample: bool, masks: np.ndarray | None = None
    ) -> np.ndarray:
        """Observations [N, ...] as the environment gives them -> actions [N] as it takes them.

        sample: N generators must have been seeded; masks [N, A]: of allowed actions.
        """
        values = self.network.means(self.network(self._encoded(self.network, observations)))
        return self._chosen(values, sample, masks)


class RecurrentValuePolicy(Values):
    """`agents.interfaces.RecurrentPolicy`."""

    def __init__(self, resolved: Resolved, state: State) -> None:
        hyper = resolved.hyperparameters

        def make(spaces: Interface) -> RecurrentActionValues:
            self.network = make_recurrent_action_values(
                spaces, lstm_size=hyper.lstm_size, hidden_sizes=hyper.hidden_sizes,
                dueling=hyper.dueling, precision="fp32", generator=torch.Generator(),
                torso=hyper.network,
            )  # fmt: skip
            return self.network

        super().__init__(resolved, state, state["observation_normaliser"], make)
        self._step = self.network.frozen()

    def first_state(self, count: int) -> PolicyState:
        """Zeros [count, ...] each."""
        dtype = np.uint8 if self.spaces.image else np.float32
        nothing = np.zeros((count, *self.spaces.environment_shape), dtype)
        encoded = self.network.encode(torch.from_numpy(nothing))
        return tuple(part.numpy() for part in self.network.torso.first_state(encoded))

    @torch.inference_mode()
    def act(
        self, observations: np.ndarray, state: PolicyState, reset: np.ndarray, *, sample: bool,
        masks: np.ndarray | None = None,
    ) -> tuple[np.ndarray, PolicyState]:  # fmt: skip
        """As `ValuePolicy.act`. state [N, ...] each: the recurrent state before. reset bool [N]:
        whether an episode begins. Returns the actions and the new state.
        """
        before = tuple(torch.from_numpy(np.ascontiguousarray(part, np.float32)) for part in state)
        encoded = self._encoded(self.network, observations)
        values, after = self._step(encoded, before, torch.from_numpy(reset))
        return self._chosen(values, sample, masks), tuple(part.numpy() for part in after)
