"""Asynchronous SAC: SAC's own update (`sac.py`), on what workers in other processes experience.

    workers: act by the newest policy that they have, uniformly before there is one that has learnt
             anything, and send unrolls of T steps (`async_sac_acting.py`)
    learner, repeat: take over what has come in, into the replay
             as soon as that is due: one update on a batch of its transitions; publish the policy

Neither waits for the other but to keep the replay ratio (`agents.distributed.queues`): after
`learning_starts` steps, `updates` for every `train_every` of them, as where one process does both.
Steps are those that have come in, whoever made them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from agents.algorithms.async_sac_acting import SquashedActing, of_policy
from agents.algorithms.sac import SoftActorCriticLearning
from agents.algorithms.twin_critic_learning import Update
from agents.distributed.replayed import LearnsFromReplay, ReplayedExperience, sample_transitions
from agents.distributed.stepping import Play, one_environment, row_specs
from agents.distributed.unrolls import bytes_of, unroll_specs
from agents.distributed.weights import weights_of
from agents.experience.replay import Transitions
from agents.interfaces import Progress, State
from agents.spaces import Interface
from config.resolved import Resolved


class AsyncSACTrainer(LearnsFromReplay, SoftActorCriticLearning):
    """The learner of one run. Implements `agents.interfaces.Learner` and `HasStreams`."""

    def __init__(self, resolved: Resolved, *, run: int, device: str, precision: str) -> None:
        hyper = resolved.hyperparameters
        with one_environment(resolved, run) as environments:
            acting = SquashedActing(resolved, environments, run=run, number=0)
            specs = Play(environments, acting, hyper.unroll_length).specs
        super().__init__(resolved, acting.spaces, run=run, device=device, precision=precision)
        self.experience = ReplayedExperience(
            specs, hyper.ratio, identity=resolved.identity_hash, slots=hyper.replay_slots,
            weights=lambda: weights_of(of_policy(self.network), acting.normaliser),
            normaliser=acting.normaliser,
        )  # fmt: skip
        self.updates = list[Update]()

    def train(self) -> Iterator[Progress | None]:
        """Yield one `Progress` for each epoch, and None while there is nothing to learn from.
        Raises `Diverged` for an update that is not finite.
        """
        while self.epoch < self.resolved.epochs:
            steps = (self.epoch + 1) * self.hyper.epoch_steps
            yield from self.experience.until(steps, self.hyper.ratio.updates_of(steps), self._learn)
            self.epoch += 1
            self.step = steps
            yield self._progress()
        self.experience.exchange.end()

    def _learn(self) -> None:
        self.updates.append(self._update())

    @property
    def steps_now(self) -> int:
        """Number of environment steps received so far."""
        return self.experience.steps

    def _drawn(self) -> Transitions:
        """Draw transitions from the replay."""
        return sample_transitions(
            self.experience.replay, self.hyper.batch_size, self.generators["minibatches"],
            discount=self.hyper.discount, clip_rewards=self.resolved.environment.clip_rewards,
        ).changed(self.experience.normalised)  # fmt: skip

    def _progress(self) -> Progress:
        """The progress of the epoch that has ended. Its episodes are those that were received in
        it.
        """
        returns, lengths = self.experience.exchange.ended_episodes()
        metrics = {**self._metrics(self.updates), "replayed": self.experience.replayed}
        self.updates = []
        return Progress(
            epoch=self.epoch, step=self.step, frame=self.step * self.resolved.game.frames_per_step,
            returns=returns, lengths=lengths, metrics=metrics,
        )  # fmt: skip

    def state_dict(self) -> State:
        """Everything that affects the future, except the replay's unrolls and the actors. To be
        called after an epoch.
        """
        return {**self.learnt_state(), "step": self.step, **self.experience.state_dict()}

    def load_state_dict(self, state: State, between: Callable[[], None] = lambda: None) -> None:
        """Continue where `state_dict` was taken, with any actors. `load_streams` must follow.
        Raises `NoUsableState` for a state of another format.
        """
        self.load_learnt_state(state)
        self.step = int(state["step"])
        self.experience.load_state_dict(state)


def replay_bytes(resolved: Resolved, spaces: Interface, dtype: np.dtype[np.generic]) -> int:
    """Size of the replay; an `agents.interfaces.ExperienceBytes`."""
    slots: int = resolved.hyperparameters.replay_slots
    rows = row_specs(spaces, dtype)
    return slots * bytes_of(unroll_specs(rows, {}, resolved.hyperparameters.unroll_length))
