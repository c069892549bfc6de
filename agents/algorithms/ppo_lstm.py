"""PPO with a memory: agents/algorithms/ppo.py, of which everything holds, with a recurrent network.

What differs:

    the policy is π(a_t | o_1 … o_t): a torso remembers what it saw of the episode (an LSTM, or a
        person's own); the state is cleared where an episode begins, in the middle of a rollout, too
    the rollout is cut into sequences of L steps of one environment, each stored with the state that
        acted before its first step (Kapturowski et al. 2019, R2D2, "stored state")
    minibatches are whole sequences; the gradient goes back through a sequence and no further
        (Huang et al. 2022, "The 37 implementation details of PPO", LSTM)

What others got wrong and this does not: the state before a sequence's first step is stored, not the
one after it; it is cleared before the row that begins an episode, not before the next; the value of
the final observation of a truncated episode is that episode's, by its state, not by a cleared one;
rows whose action was forced are remembered and not learnt from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from agents.algorithms.ppo import PPOTrainer
from agents.devices import on_device
from agents.experience.policy_batches import Batch
from agents.experience.recurrent_rollouts import Memory, collect_sequences
from agents.networks import make_recurrent_actor_critic
from agents.networks.actor_critic import RecurrentActorCritic, Sequences
from config.resolved import Resolved


class RecurrentPPOTrainer(PPOTrainer):
    """The training of one run. Implements `agents.interfaces.Trainer`."""

    network: RecurrentActorCritic

    def __init__(self, resolved: Resolved, *, run: int, device: str, precision: str) -> None:
        super().__init__(resolved, run=run, device=device, precision=precision)
        length = self.hyper.rollout_length
        sequence_length = self.hyper.sequence_length
        self.memory = Memory(self.network, self.rollout.encoded[0], length, sequence_length)
        self.steps = _steps_of_sequences(length, sequence_length, self.settings.count)

    def _make_network(self, precision: str) -> RecurrentActorCritic:
        return make_recurrent_actor_critic(
            self.environments.interface, lstm_size=self.hyper.lstm_size,
            hidden_sizes=self.hyper.hidden_sizes, log_std_init=self.hyper.log_std_init,
            precision=precision, generator=self.initial_weights, torso=self.hyper.network,
        )  # fmt: skip

    def _fill_rollout(self) -> None:
        collect_sequences(
            self.rollout, self.memory, self.environments, self.network, self.actions,
            self.observation_normaliser, self.action_noise, step=self.step,
        )  # fmt: skip

    def _passes(self, batch: Batch) -> Iterator[Iterable[Batch]]:
        """All sequences K times, each time in nearly equal minibatches and a new order. A single
        minibatch is not shuffled.
        """
        count = self.steps.shape[1]
        parts = self.hyper.minibatches
        # The batch holds valid rows only, but sequences run through all steps. So each step needs
        # its place among the valid ones.
        valid = torch.from_numpy(self.rollout.valid.ravel())
        places = torch.where(valid, valid.cumsum(0) - 1, -1)
        # The batch's own encoded rows are not used: sequences take theirs from the rollout. An
        # empty column spares the copy.
        columns = batch._replace(encoded=torch.empty(len(batch.returns), 0, device=self.device))
        if parts == 1:
            everything = self._of_sequences(columns, torch.arange(count), places)
            yield from [[everything]] * self.hyper.update_epochs
            return
        for _ in range(self.hyper.update_epochs):
            order = torch.randperm(count, generator=self.permutations)
            yield (self._of_sequences(columns, one, places) for one in order.tensor_split(parts))

    def _of_sequences(self, columns: Batch, chosen: Tensor, places: Tensor) -> Batch:
        """The minibatch of the sequences `chosen` [S]. places [T · N]: for each step of the rollout
        its index among the valid steps, or -1.
        """
        # Minibatches are whole sequences, of whose steps only the valid ones are learnt from.
        steps = self.steps[:, chosen]
        place = places[steps].flatten()
        rows = (place >= 0).nonzero().flatten()
        taken = on_device(place[rows], self.device)
        steps = on_device(steps, self.device)
        chosen = on_device(chosen, self.device)
        rows = on_device(rows, self.device)
        sequences = Sequences(
            self.rollout.encoded[:-1].flatten(0, 1)[steps],
            tuple(first.flatten(0, 1)[chosen] for first in self.memory.first),
            self.memory.resets.flatten()[steps],
            rows,
        )
        return self.minibatch(columns.take(taken)._replace(encoded=sequences))

    def _parts(self) -> dict[str, Any]:
        return super()._parts() | {"memory": self.memory}


def _steps_of_sequences(length: int, sequence_length: int, environments: int) -> Tensor:
    """The steps of each sequence, [L, T / L · N], among T steps of N environments, counted time
    first.

    Sequence s belongs to environment s mod N and begins at step L · ⌊s / N⌋.
    """
    steps = torch.arange(length * environments)
    parts = steps.view(length // sequence_length, sequence_length, environments)
    return parts.transpose(0, 1).flatten(1)
