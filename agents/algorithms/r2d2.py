"""R2D2, Kapturowski et al. 2019 (openreview.net/forum?id=r1lyTjAqYX), in the order of its section 2.3:
the learner.

    actors: act ε_i-greedily by the newest Q that they have, and send sequences of T rows that repeat the
            last `burn_in` of the one before, each with the state remembered before its first row
            (`r2d2_acting.py`); the first priority is by what they thought of their actions
    learner, repeat: take over what has come in, into the replay
            as soon as that is due, sample sequences by priority; from the stored state, both Q and Q⁻
            go through the first `burn_in` rows, which are not learnt from; on the others
                y_t = h(Σ_{k<n} γ^k r_{t+k+1} + γ^n h⁻¹(Q⁻(o_{t+n}, argmax_a Q(o_{t+n}, a))))
                L = E[w ½ (y − Q(o, a))²],  p = η max_t |y − Q| + (1 − η) mean_t |y − Q|
            every C updates Q⁻ ← Q; publish Q

Sequences overlap by what is burnt in, as the paper's do (80 rows, 40 of them burnt in, every 40): so
every row is learnt from in one sequence, and has a history in it. They go on across episodes, where
what is remembered is cleared and no sum of rewards goes on. E is the mean over valid rows.

What others got wrong and this does not: the state is that before the first row, and each network burns
in its own; no gradient flows into the burn-in; the target's action is Q's choice; sums of rewards end
with the episode, and bootstrap from the final observation where it was truncated, from the last row
where the sequence ends; a priority belongs to a sequence's number, not to its slot; evaluation explores
as little as the most careful actor, or not at all; a non-finite number never reaches the optimiser.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from agents.algorithms.r2d2_acting import BEST, TAKEN, RecurrentValueActing, make_network
from agents.devices import on_device
from agents.distributed.protocol import Columns, Spec
from agents.distributed.replayed import LearnsFromReplay, ReplayedExperience
from agents.distributed.stepping import Play, one_environment, row_specs
from agents.distributed.unrolls import as_state, bytes_of, final_rows, unroll_specs
from agents.distributed.weights import weights_of
from agents.experience.priorities import Priorities, importance_weights
from agents.experience.returns import n_step_returns, rescaled, unrescaled
from agents.interfaces import Progress, State
from agents.networks.action_values import RecurrentActionValues, bootstrapped, taken
from agents.networks.torsos import TorsoState
from agents.optimisation.gradients import Gradients
from agents.optimisation.optimiser import Adam
from agents.spaces import Interface
from agents.states import FORMAT, check_format, ranges, to_arrays, to_tensors
from config.errors import Diverged
from config.resolved import Resolved
from config.seeds import integer_seed, seed_sequence

METRICS = ("loss", "q_mean", "td_error", "gradient_norm")
"""The metrics of one update, in the order in which `_learn` measures them. An epoch's metrics are
their means.
"""


class Seen(NamedTuple):
    """B sequences as a network takes them, time first: encoded [T + 1, B, ...]; state [B, ...]
    each, before the first row; begins bool [T + 1, B].
    """

    encoded: Tensor
    state: TorsoState
    begins: Tensor


class Rows(NamedTuple):
    """The other columns of the T' = T − burn_in rows that are learnt from: actions [T', B], int64;
    rewards [T', B]; terminated, final, valid bool [T', B], where final marks rows that only hold
    the observation with which an episode was truncated; masks bool [T' + 1, B, A] if there are any.
    """

    actions: Tensor
    rewards: Tensor
    terminated: Tensor
    final: Tensor
    valid: Tensor
    masks: Tensor | None


def sequence_priorities(errors: np.ndarray, valid: np.ndarray, mixed: float) -> np.ndarray:
    """η max_t |δ_t| + (1 − η) mean_t |δ_t|, [B], over the valid rows of [T', B]; mixed: η."""
    sizes = np.abs(errors) * valid
    means = sizes.sum(axis=0) / np.maximum(1, valid.sum(axis=0))
    found: np.ndarray = mixed * sizes.max(axis=0) + (1 - mixed) * means
    return found


class R2D2Trainer(LearnsFromReplay):
    """The learner of one run. Implements `agents.interfaces.Learner` and `HasStreams`."""

    learnt = ("network", "target", "observation_normaliser")
    policy_entries = ("format", "interface", "network", "observation_normaliser")

    def __init__(self, resolved: Resolved, *, run: int, device: str, precision: str) -> None:
        torch.set_num_threads(resolved.experiment.threads)
        self.resolved = resolved
        self.hyper = resolved.hyperparameters
        self.device = torch.device(device)
        self.epoch = 0
        self.step = 0
        seed = resolved.experiment.seed
        # The columns of unrolls follow from the environment and the network, of which one each is
        # made to look at.
        with one_environment(resolved, run) as environments:
            acting = RecurrentValueActing(resolved, environments, run=run, number=0)
            specs = Play(environments, acting, self.hyper.unroll_length).specs
        self.spaces = acting.spaces
        self.remembered = acting.first
        weights = torch.Generator().manual_seed(integer_seed(seed, run, "weights"))
        network = make_network(self.hyper, self.spaces, precision, weights)
        target = make_network(self.hyper, self.spaces, precision, weights)
        self.network = network.to(self.device)
        self.target = target.to(self.device)
        self._copy_target()
        self.optimiser = Adam(self.network.parameters(), epsilon=self.hyper.adam_epsilon)
        self.gradients = Gradients(self._loss, self.network.parameters())
        self.sampling = np.random.default_rng(seed_sequence(seed, run, "replay"))
        slots = self.hyper.replay_slots
        self.priorities = Priorities(slots, exponent=self.hyper.priority_exponent)
        self.experience = ReplayedExperience(
            specs, self.hyper.ratio, identity=resolved.identity_hash, slots=slots,
            weights=lambda: weights_of(self.network, acting.normaliser),
            normaliser=acting.normaliser, overlap=self.hyper.burn_in, added=self._added,
        )  # fmt: skip
        self.measured = list[list[float]]()

    def _copy_target(self) -> None:
        self.target.load_state_dict(self.network.state_dict())

    def train(self) -> Iterator[Progress | None]:
        """Yield one `Progress` for each epoch, and None while there is nothing to learn from.
        Raises `Diverged` before a non-finite update.
        """
        while self.epoch < self.resolved.epochs:
            epoch = self.epoch + 1
            step = self.resolved.warm_up_steps + epoch * self.resolved.steps_per_epoch
            yield from self.experience.until(step, epoch * self.hyper.epoch_updates, self._learn)
            self.epoch = epoch
            self.step = step
            yield self._progress()
        self.experience.exchange.end()

    def _added(self, numbers: np.ndarray, columns: Columns) -> None:
        """The first priorities of sequences [n], from the errors that Q had when it acted."""
        learnt = slice(self.hyper.burn_in, None)
        best = torch.tensor(columns[BEST][:, learnt]).transpose(0, 1)
        found = torch.tensor(columns[TAKEN][:, learnt]).transpose(0, 1)
        rows = self._rows(columns, torch.device("cpu"))
        # Both columns are values of the network that acted, so that first priorities need no pass
        # of the learner's networks.
        errors = self._targets(rows, best) - found[:-1]
        # The new sequences must be in the tree before their priorities can be set.
        self.priorities.follow(self.experience.replay.unrolls)
        self._set_priorities(numbers, errors, rows.valid)

    def _set_priorities(self, numbers: np.ndarray, errors: Tensor, valid: Tensor) -> None:
        priorities = sequence_priorities(
            errors.numpy(force=True), valid.numpy(force=True), self.hyper.priority_mix
        )
        self.priorities.update(numbers, priorities)

    def _learn(self) -> None:
        """Make one update and return its metrics."""
        unrolls, probabilities = self.priorities.sample(self.hyper.batch_size, self.sampling)
        count = len(self.experience.replay.unrolls)
        weights = importance_weights(probabilities, count, self.hyper.importance_exponent)
        columns = self.experience.replay.take(unrolls)
        rows = self._rows(columns, self.device)
        loss, errors, values, norm = self._update(self._seen(columns), rows, weights)
        self._set_priorities(unrolls, errors, rows.valid)
        # The queue counts this update only when it is given back, after this function.
        updates = self.experience.updates + 1
        if updates % self.hyper.target_every == 0:
            self._copy_target()
        if rows.valid.any():
            means = [float(one[rows.valid].mean()) for one in (values, errors.abs())]
            self.measured.append([float(loss), *means, norm])

    def _rows(self, columns: Columns, device: torch.device) -> Rows:
        """The columns of sequences [B, T + 1, ...] besides the network's inputs, after the burn-in."""
        terminated = columns["terminated"]
        final = final_rows(columns)
        rewards = columns["reward"]
        if self.resolved.environment.clip_rewards:
            rewards = np.clip(rewards, -1, 1)
        learnt = slice(self.hyper.burn_in, -1)

        def time_first(column: np.ndarray) -> Tensor:
            # torch.tensor copies. Arrays that came in a message are read-only, of which from_numpy
            # warns.
            return on_device(torch.tensor(column), device).transpose(0, 1)

        masks = columns.get("mask")
        return Rows(
            actions=time_first(columns["action"][:, learnt]),
            rewards=time_first(rewards[:, learnt]),
            terminated=time_first(terminated[:, learnt]),
            final=time_first(final[:, self.hyper.burn_in :]),
            valid=time_first(columns["valid"][:, learnt]),
            masks=None if masks is None else time_first(masks[:, self.hyper.burn_in :]),
        )

    def _seen(self, columns: Columns) -> Seen:
        """Sequences [B, T + 1, ...] as both networks take them."""
        observations = columns["observation"]
        begins = columns["begins"]
        of_rows = observations.reshape(-1, *observations.shape[2:])
        normalised = self.experience.normalised(of_rows)
        encoded = on_device(self.network.encode(torch.from_numpy(normalised)), self.device)
        return Seen(
            encoded.view(*begins.shape, *encoded.shape[1:]).transpose(0, 1),
            as_state(columns, self.remembered, self.device),
            on_device(torch.from_numpy(begins), self.device).transpose(0, 1),
        )

    def _values(self, network: RecurrentActionValues, seen: Seen) -> Tensor:
        """Q of the rows after the burn-in, [T' + 1, B, A]. No gradient flows through the burn-in."""
        burn_in = self.hyper.burn_in
        state = seen.state
        if burn_in:
            with torch.no_grad():
                state = network(seen.encoded[:burn_in], state, seen.begins[:burn_in])[1]
        values: Tensor = network(seen.encoded[burn_in:], state, seen.begins[burn_in:])[0]
        return values

    def _targets(self, rows: Rows, values: Tensor) -> Tensor:
        """The targets Y [T', B], from the values h(V) [T' + 1, B] that they bootstrap from."""
        returns = n_step_returns(
            rows.rewards, self._unscaled(values), rows.terminated, rows.final,
            discount=self.hyper.discount, n=self.hyper.n_step,
        )  # fmt: skip
        return rescaled(returns) if self.hyper.rescale_values else returns

    def _unscaled(self, values: Tensor) -> Tensor:
        return unrescaled(values) if self.hyper.rescale_values else values

    def _loss(
        self, seen: Seen, rows: Rows, weights: Tensor, target_values: Tensor
    ) -> tuple[Tensor, ...]:
        """The loss, y − Q(o, a), and Q(o, a), [T', B]. weights [B]; target_values: Q⁻ [T' + 1, B,
        A].
        """
        values = self._values(self.network, seen)
        masks = None if rows.masks is None else rows.masks.flatten(0, 1)
        # Double Q-learning: Q chooses the action, Q⁻ says what it is worth.
        best = bootstrapped(target_values.flatten(0, 1), values.detach().flatten(0, 1), masks)
        targets = self._targets(rows, best.view(values.shape[:2]))
        of_taken = taken(values[:-1].flatten(0, 1), rows.actions.flatten()).view(targets.shape)
        errors = targets - of_taken
        # Importance weights belong to whole sequences, means to valid rows.
        shares = rows.valid * weights / rows.valid.sum().clamp(min=1)
        return (shares * 0.5 * errors.square()).sum(), errors, of_taken

    def _update(
        self, seen: Seen, rows: Rows, weights: np.ndarray
    ) -> tuple[Tensor, Tensor, Tensor, float]:
        """Make one step of Adam. Returns what `_loss` returns, and the gradient's norm."""
        with torch.no_grad():
            # Both networks start from the stored state, and each burns in its own.
            target_values = self._values(self.target, seen)
        of_each = on_device(torch.from_numpy(weights), self.device)
        loss, errors, values = self.gradients(seen, rows, of_each, target_values)  # type: ignore[arg-type]
        norm = self.optimiser.clip_gradients(self.hyper.max_gradient_norm)
        if not math.isfinite(norm + float(loss)):
            raise self._diverged(rows, float(loss), errors, values, norm)
        self.optimiser.step(self.learning_rate)
        return loss, errors, values, norm

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next update."""
        first: float = self.hyper.learning_rate
        if not self.hyper.anneal_learning_rate:
            return first
        updates: int = self.resolved.epochs * self.hyper.epoch_updates
        return first * (1 - self.experience.updates / updates)

    def _diverged(
        self, rows: Rows, loss: float, errors: Tensor, values: Tensor, norm: float
    ) -> Diverged:
        """The error with statistics of the batch that must not be learnt from."""
        columns = {"Q": values, "errors": errors, "rewards": rows.rewards}
        return Diverged(
            f"loss or gradient is not finite in epoch {self.epoch + 1}, after step "
            f"{self.experience.steps}: loss {loss:.4g}; gradient norm {norm:.4g}; batch of "
            f"{rows.rewards.numel()} rows: {ranges(columns)}"
        )

    def _progress(self) -> Progress:
        """The progress of the epoch that has ended. Its episodes are those that were received in
        it.
        """
        returns, lengths = self.experience.exchange.ended_episodes()
        metrics: dict[str, float | None] = dict.fromkeys(METRICS)
        if self.measured:
            metrics |= zip(METRICS, np.mean(self.measured, axis=0).tolist(), strict=True)
        metrics |= {"replayed": self.experience.replayed, "learning_rate": self.learning_rate}
        self.measured = []
        return Progress(
            epoch=self.epoch, step=self.step, frame=self.step * self.resolved.game.frames_per_step,
            returns=returns, lengths=lengths, metrics=metrics,
        )  # fmt: skip

    def state_dict(self) -> State:
        """Everything that affects the future, except the replay's sequences and the actors. To be
        called after an epoch.
        """
        return {
            "format": FORMAT, "epoch": self.epoch, "step": self.step,
            "interface": self.spaces.as_dict(),
            "network": to_arrays(self.network.state_dict()),
            "target": to_arrays(self.target.state_dict()),
            "optimiser": self.optimiser.state_dict(),
            "priorities": self.priorities.state_dict(),
            "generator": self.sampling.bit_generator.state,
            **self.experience.state_dict(),
        }  # fmt: skip

    def load_state_dict(self, state: State, between: Callable[[], None] = lambda: None) -> None:
        """Continue where `state_dict` was taken, with any actors. `load_streams` must follow.
        Raises `NoUsableState` for a state of another format.
        """
        check_format(state)
        self.epoch = int(state["epoch"])
        self.step = int(state["step"])
        self.network.load_state_dict(to_tensors(state["network"]))
        self.target.load_state_dict(to_tensors(state["target"]))
        self.optimiser.load_state_dict(state["optimiser"])
        self.priorities.load_state_dict(state["priorities"])
        self.sampling.bit_generator.state = state["generator"]
        self.experience.load_state_dict(state)


def replay_bytes(resolved: Resolved, spaces: Interface, dtype: np.dtype[Any]) -> int:
    """Size of the replay; an `agents.interfaces.ExperienceBytes`. The state of a user's own network is
    taken to be as large as the LSTM's.
    """
    hyper = resolved.hyperparameters
    rows = {**row_specs(spaces, dtype), TAKEN: Spec("float32", ()), BEST: Spec("float32", ())}
    state = {"state": Spec("float32", (2, hyper.lstm_size))}
    slots: int = hyper.replay_slots
    return slots * bytes_of(unroll_specs(rows, state, hyper.unroll_length))
