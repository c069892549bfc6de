"""A rollout by a network with a memory: what it remembers of each environment's episode goes from
step to step and from rollout to rollout, and is stored where sequences begin.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from agents.devices import on_device
from agents.environments.normalisation import ObservationNormaliser
from agents.environments.training import TrainingEnvironments
from agents.experience.rollouts import Collection, Rollout, fill
from agents.interfaces import State
from agents.networks.action_distributions import Actions
from agents.networks.actor_critic import RecurrentActorCritic
from agents.networks.torsos import TorsoState
from agents.states import to_arrays, to_tensors


class Memory:
    """What is remembered of the episodes of N environments.

    state [N, ...] each: before the next row; begins bool [N]: whether that row begins an episode,
    which clears the state. Of the last rollout, T steps in sequences of L: first [T / L, N, ...]
    each, the state before the first row of each sequence; resets bool [T, N]: whether row t began
    an episode.
    """

    def __init__(
        self, network: RecurrentActorCritic, encoded: Tensor, length: int, sequence_length: int
    ) -> None:
        """Encoded [N, ...]: a row as rollouts store them."""
        count = len(encoded)
        self.sequence_length = sequence_length
        self.state = network.first_state(encoded)
        self.begins = np.ones(count, np.bool_)
        sequences = length // sequence_length
        self.first = tuple(part.new_zeros(sequences, *part.shape) for part in self.state)
        self.resets = torch.zeros(length, count, dtype=torch.bool, device=encoded.device)

    def forget(self, environments: np.ndarray) -> None:
        """Drop the states of these environments, bool [N], whose episodes could not be brought
        back.
        """
        self.begins[environments] = True

    def state_dict(self) -> State:
        """State by its parts' numbers, and begins: what the next rollout depends on."""
        return {"state": to_arrays(dict(enumerate(self.state))), "begins": self.begins.copy()}

    def load_state_dict(self, state: State) -> None:
        """Load what `state_dict` gave."""
        self.state = tuple(
            to_tensors(state["state"][str(number)]).to(part.device)
            for number, part in enumerate(self.state)
        )
        self.begins = np.array(state["begins"])


@torch.inference_mode()
def collect_sequences(
    rollout: Rollout,
    memory: Memory,
    environments: TrainingEnvironments,
    network: RecurrentActorCritic,
    actions: Actions,
    normaliser: ObservationNormaliser | None,
    generator: torch.Generator,
    *,
    step: int,
) -> None:
    """`agents.experience.rollouts.collect`, with a memory."""
    noise = actions.noise(tuple(rollout.rewards.shape), generator)
    noise = on_device(noise, rollout.values.device)
    collection = RecurrentCollection(
        rollout, environments, network, network.frozen(), actions, normaliser, noise, step,
        memory=memory,
    )  # fmt: skip
    fill(collection)
    memory.state = tuple(torch.cat(parts) for parts in zip(*collection.states, strict=True))


@dataclass
class RecurrentCollection(Collection):
    """states: of each group, before its next row; final_states: with which truncated episodes ended,
    by (t, n).
    """

    memory: Memory = field(kw_only=True)
    states: list[TorsoState] = field(init=False)
    final_states: dict[tuple[int, int], TorsoState] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.states = list[TorsoState]()
        for rows in self.environments.groups:
            self.states.append(tuple(part[rows] for part in self.memory.state))

    def _answer(self, group: int, t: int, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """Row T is where the next rollout starts: it is not remembered before that."""
        memory = self.memory
        rows = self.environments.groups[group]
        before = self.states[group]
        reset = on_device(torch.from_numpy(memory.begins[rows]), encoded.device)
        policy, value, after = self.network_now(encoded, before, reset)
        # Row T is row 0 of the next rollout, and is remembered there; here it only has a value.
        if t < len(memory.resets):
            sequence, place = divmod(t, memory.sequence_length)
            if place == 0:
                for first, part in zip(memory.first, before, strict=True):
                    # The state before the sequence's first row ("stored state", R2D2).
                    first[sequence, rows] = part
            memory.resets[t, rows] = reset
            self.states[group] = after
        return policy, value

    def _receive(self, group: int, t: int) -> None:
        """An episode's final observation is judged by what was remembered of it; a lost life ends
        none, as in evaluation.
        """
        super()._receive(group, t)
        rollout = self.rollout
        rows = self.environments.groups[group]
        terminated = rollout.terminated[t, rows]
        truncated = rollout.truncated[t, rows]
        # A lost life is no end here: in evaluation episodes go on after it.
        self.memory.begins[rows] = terminated | truncated
        for n in np.flatnonzero(truncated & ~terminated).tolist():
            self.final_states[t, rows.start + n] = tuple(part[n] for part in self.states[group])

    def _values(self, places: list[tuple[int, int]], encoded: Tensor) -> Tensor:
        """With the state that each episode ended with, not the cleared one of the next."""
        of_each = [self.final_states[place] for place in places]
        state = tuple(torch.stack(parts) for parts in zip(*of_each, strict=True))
        reset = torch.zeros(len(places), dtype=torch.bool, device=encoded.device)
        values: Tensor = self.network_now(encoded, state, reset)[1]
        return values
