"""A trained network of action values, as it is evaluated: on the CPU, its observation statistics
frozen.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from agents.actions import masked
from agents.environments.spaces import Interface
from agents.experience.exploration import random_actions
from agents.interfaces import State
from agents.networks import make_action_values
from agents.normalisation import ObservationNormaliser
from agents.states import check_format, to_tensors
from config.resolve import Resolved


class ValuePolicy:
    """`agents.interfaces.Policy`: greedy by Q; sampled: a random action with the probability ε that
    the training ended with. Raises `NoUsableState` for a checkpoint of another version of this
    program.
    """

    def __init__(self, resolved: Resolved, state: State) -> None:
        check_format(state)
        torch.set_num_threads(resolved.experiment.threads)
        hyper = resolved.hyperparameters
        self.spaces, self.epsilon = Interface.from_dict(state["interface"]), hyper.final_epsilon
        self.network = make_action_values(
            self.spaces, hidden_sizes=hyper.hidden_sizes, dueling=hyper.dueling,
            quantiles=hyper.quantiles, precision="fp32", generator=torch.Generator(),
            torso=hyper.network,
        )  # fmt: skip
        self.network.load_state_dict(to_tensors(state["network"]))
        self.normaliser: ObservationNormaliser | None = None
        statistics = state["collection"]["observation_normaliser"]
        if statistics:
            self.normaliser = ObservationNormaliser(self.spaces.environment_shape)
            self.normaliser.load_state_dict(statistics)
        self.generators = list[np.random.Generator]()

    def seed(self, seeds: Sequence[int]) -> None:
        """Start the generators of random actions anew, one for each row of what is observed then."""
        self.generators = [np.random.default_rng(seed) for seed in seeds]

    @torch.inference_mode()
    def act(
        self, observations: np.ndarray, *, sample: bool, masks: np.ndarray | None = None
    ) -> np.ndarray:
        """Observations [N, ...] as the environment gives them -> actions [N] as it takes them.

        sample: N generators must have been seeded; masks [N, A]: of allowed actions.
        """
        if self.normaliser is not None:
            observations = self.normaliser(observations)
        encoded = self.network.encode(torch.from_numpy(np.ascontiguousarray(observations)))
        values = self.network.means(self.network(encoded))
        allowed = None if masks is None else torch.from_numpy(masks)
        actions = masked(values, allowed).argmax(dim=1).numpy()
        for row, generator in enumerate(self.generators if sample else ()):
            if generator.random() < self.epsilon:
                mask = None if masks is None else masks[row : row + 1]
                actions[row] = random_actions(1, self.spaces.actions, mask, generator)[0]
        return self.spaces.environment_actions(actions)
