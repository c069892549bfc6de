"""A trained policy, as it is evaluated: on the CPU, its observation statistics frozen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from agents.actions import make_actions, masked
from agents.environments.spaces import Interface
from agents.interfaces import State
from agents.networks import make_actor_critic
from agents.normalisation import ObservationNormaliser
from agents.states import check_format, to_tensors
from config.resolve import Resolved


class TrainedPolicy:
    """`agents.interfaces.Policy`: the network of a checkpoint. Raises `NoUsableState` for one of
    another version of this program.
    """

    def __init__(self, resolved: Resolved, state: State) -> None:
        check_format(state)
        torch.set_num_threads(resolved.experiment.threads)
        hyper = resolved.hyperparameters
        self.spaces = Interface.from_dict(state["interface"])
        self.network = make_actor_critic(
            self.spaces, hidden_sizes=hyper.hidden_sizes, log_std_init=hyper.log_std_init, precision="fp32",
            generator=torch.Generator(), torso=hyper.network,
        )  # fmt: skip
        self.network.load_state_dict(to_tensors(state["network"]))
        self.actions = make_actions(self.spaces)
        self.normaliser: ObservationNormaliser | None = None
        if state["observation_normaliser"]:
            self.normaliser = ObservationNormaliser(self.spaces.environment_shape)
            self.normaliser.load_state_dict(state["observation_normaliser"])
        self.generators = list[torch.Generator]()

    def seed(self, seeds: Sequence[int]) -> None:
        """Start the generators of sampled actions anew, one for each row of what is observed
        then.
        """
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    @torch.inference_mode()
    def act(
        self, observations: np.ndarray, *, sample: bool, masks: np.ndarray | None = None
    ) -> np.ndarray:
        """Observations [N, ...] as the environment gives them -> actions [N] or [N, ...] as it
        takes them.

        sample: N generators must have been seeded; masks [N, P]: of allowed actions.
        """
        if self.normaliser is not None:
            observations = self.normaliser(observations)
        policy, _ = self.network(
            self.network.encode(torch.from_numpy(np.ascontiguousarray(observations)))
        )
        policy = masked(policy, None if masks is None else torch.from_numpy(masks))
        if not sample:
            return self.spaces.environment_actions(self.actions.mode(policy).numpy())
        rows = zip(self.generators, policy, strict=True)
        noise = torch.cat([self.actions.noise((1,), generator) for generator, _ in rows])
        return self.spaces.environment_actions(self.actions.choose(policy, noise).numpy())
