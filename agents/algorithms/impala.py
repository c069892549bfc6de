"""IMPALA, Espeholt et al. 2018 (arXiv:1802.01561), in the order of its section 4: the learner.

    actors: act by the newest policy that they have, μ, and send unrolls of T steps (`actor.py`); or
            the learner acts for them (`inference=learner`, SEED; `central.py`)
    learner, repeat: take a batch of B unrolls
            V-trace targets v and advantages A of π (`vtrace.py`; eq. 1 and section 4.2)
            one step of the optimiser on
                L = −E[log π(a) A] + c_v ½ E[(V − v)²] − c_e E[H]
            publish the weights

E is the mean over rows, where the paper has a sum: with B·T rows, a gradient norm that is clipped at
40 there is clipped at 40 / BT here, and RMSProp's ε is as much smaller. With `vtrace=false` all
importance weights are 1: advantage actor-critic with asynchronous actors, the place of A3C (Mnih et
al. 2016, arXiv:1602.01783).

What others got wrong and this does not: log μ is the actor's, computed when it acted; the last row of
an unroll only bootstraps, and is the first one of the next; a truncated episode bootstraps from its
final observation, by what was remembered of that episode; rows whose action was forced are left out
of every loss and mean; the state that an unroll begins with is the one before its first row, and it
is cleared inside, where an episode begins; an update that is not finite is never kept.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from agents.algorithms.impala_acting import look, make_network
from agents.devices import is_accelerator, on_device
from agents.distributed import joint_learning as together
from agents.distributed.central import CentralInference
from agents.distributed.exchange import Exchange
from agents.distributed.protocol import Columns, Peers, Receiver
from agents.distributed.queues import Batch, BatchQueue
from agents.distributed.unrolls import as_state, environment_steps, final_rows, unroll_specs
from agents.distributed.weights import weights_of
from agents.experience.returns import vtrace
from agents.interfaces import Progress, State
from agents.networks.action_distributions import make_actions, masked
from agents.networks.actor_critic import RecurrentActorCritic, Sequences
from agents.optimisation.blocks import Block
from agents.optimisation.gradients import Gradients
from agents.optimisation.graphs import Graphed
from agents.optimisation.optimiser import OPTIMISERS
from agents.states import FORMAT, check_format, ranges, to_arrays, to_tensors
from config.errors import Diverged
from config.resolved import Resolved
from config.seeds import integer_seed

LARGEST_LOG_RATIO = 80.0
"""The exponential of this is finite in float32."""
SHARED = ("epoch", "step", "updates", "network", "optimiser", "observation_normaliser")
"""Entries of the state that are equal for several learners."""
METRICS = (
    "policy_loss", "value_loss", "entropy", "ratio_mean", "ratio_deviation", "gradient_norm",
    "policy_lag", "policy_lag_deviation", "policy_lag_max",
)  # fmt: skip
"""The metrics of one update, in the order in which `_learn` measures them. An epoch's metrics are
their means, and the largest lag.
"""


class Rows(NamedTuple):
    """B unrolls, time first: T + 1 rows of network inputs, T rows of everything else.

    encoded: [B · (T + 1), ...], one unroll after the other, or `Sequences`; actions [T, B] or [T,
    B, A]; log_mu, rewards [T, B]; terminated, valid bool [T, B]; final bool [T, B]: rows that only
    hold the observation with which an episode was truncated; masks bool [T, B, P] if there are any.
    """

    encoded: Any
    actions: Tensor
    log_mu: Tensor
    rewards: Tensor
    terminated: Tensor
    valid: Tensor
    final: Tensor
    masks: Tensor | None


class Update(NamedTuple):
    """What the optimiser saw: the loss; log π/μ, targets and advantages [T, B]; the loss's parts
    [3] (E[log π A], E[(V − v)²], E[H]); the gradient's norm; and the number of environment steps, of
    all learners. On a GPU the norm is a tensor [], and for several learners the steps are.
    """

    loss: Tensor
    log_ratio: Tensor
    targets: Tensor
    advantages: Tensor
    parts: Tensor
    gradient_norm: Any
    steps: Any


def ratio_moments(log_ratio: Tensor, valid: Tensor) -> tuple[float | Tensor, float | Tensor]:
    """Mean and standard deviation of π/μ where a row is valid, both [T, B]; 1 and 0 without such. On
    a GPU both are tensors [], for which nothing waits.
    """
    if is_accelerator(valid.device):
        weights = valid.to(log_ratio.dtype)
        count = weights.sum()
        ratios = log_ratio.exp()
        mean = (weights * ratios).sum() / count
        deviation = ((weights * (ratios - mean).square()).sum() / count).sqrt()
        return torch.where(count > 0, mean, 1.0), torch.where(count > 0, deviation, 0.0)
    ratios = log_ratio[valid].exp()
    if not len(ratios):
        return 1.0, 0.0
    spread, middle = torch.std_mean(ratios, correction=0)
    return middle, spread


class IMPALATrainer:
    """The learner of one run. Implements `agents.interfaces.Learner`. wait_s: `train` yields None
    after this long without a batch.
    """

    learnt = ("network", "observation_normaliser")
    policy_entries = ("format", "interface", "network", "observation_normaliser")

    def __init__(self, resolved: Resolved, *, run: int, device: str, precision: str) -> None:
        torch.set_num_threads(resolved.experiment.threads)
        self.resolved = resolved
        self.hyper = resolved.hyperparameters
        self.device = torch.device(device)
        self.wait_s = 1.0
        self.epoch = self.updates = self.step = 0
        # Columns and spaces are those of an environment that is made here, looked at and closed.
        acting, self.rows, self.spaces = look(resolved, run, device, precision)
        self.acting = acting if self.hyper.inference == "learner" else None
        self.remembered = acting.first
        rows = {**self.rows, **acting.rows}
        self.specs = unroll_specs(rows, acting.first, self.hyper.unroll_length)
        weights = torch.Generator().manual_seed(
            integer_seed(resolved.experiment.seed, run, "weights")
        )
        self.network = make_network(self.hyper, self.spaces, precision, weights).to(self.device)
        self.actions = make_actions(self.spaces)
        self.optimiser = OPTIMISERS[self.hyper.optimiser](
            self.network.parameters(), epsilon=self.hyper.adam_epsilon
        )
        self.gradients = Gradients(self._loss, self.network.parameters())
        # Every update is published, and so its numbers are looked at.
        changed = self.optimiser.changed()
        self.block = Block[Update](self.device, changed)
        self.unseen_update = Graphed(self._unseen_update, self.device, "an update", changed)
        self.observation_normaliser = copy.deepcopy(acting.normaliser)
        # Each of several learners takes its share of the batch, so that the settings mean the same
        # with any number of learners.
        self.share = self.hyper.batch_size // resolved.actors.learners
        self.peers: Peers | None = None
        self.exchange = Exchange(
            self.specs, identity=resolved.identity_hash, max_lag=self.hyper.max_lag,
            queue=BatchQueue(self.specs, self.share),
        )  # fmt: skip
        self.central: CentralInference | None = None
        self.measured = list[list[float]]()

    def learn_with(self, peers: Peers) -> None:
        """Become one of several learners, starting from the first one's state. To be called before
        `receiver`. Raises `PeersLost`, as `train` does.
        """
        self.peers = peers
        state = together.with_the_first(peers, self.exchange, self.state_dict(), SHARED)
        self.load_state_dict(state)

    def receiver(self, generation: int) -> Receiver:
        """The receiver for actors of this start of the learner. To be called once, before `train`
        and after `load_state_dict`. generation: higher than at any start before.
        """
        self.exchange.begin(generation)
        self._publish()
        if self.acting is None:
            return self.exchange
        self.central = CentralInference(
            self.exchange, self.acting, rows=self.rows,
            choices=self.spaces.choices or (self.spaces.actions,),
            environments=self.resolved.environment.count, unroll_length=self.hyper.unroll_length,
        )  # fmt: skip
        return self.central

    def counters(self) -> Mapping[str, float]:
        """The counters of its exchange."""
        return self.exchange.counters()

    def train(self) -> Iterator[Progress | None]:
        """Yield one `Progress` for each epoch, and None while there is nothing to learn from.
        Raises `Diverged` for an update that is not finite.
        """
        while self.epoch < self.resolved.epochs:
            while self.updates < (self.epoch + 1) * self.hyper.epoch_updates:
                batch = self.exchange.take(self.wait_s)
                # An error in the inference thread ends the training here; otherwise its actors
                # would wait for ever.
                if self.central is not None:
                    self.central.check()
                if batch is None:
                    yield None
                    continue
                self._learn(batch)
                self.exchange.give_back(batch)
            yield self._progress()
        # A learner that ended before the others would look lost to them.
        together.wait_for_all(self.peers)
        self.exchange.end()

    def _learn(self, batch: Batch) -> None:
        """Make one update, and keep its metrics for those of the epoch."""
        # The policy lag is the number of updates by which the weights that began an unroll are
        # behind.
        lags = self.updates - batch.oldest
        columns = batch.columns
        steps = environment_steps(columns, self.hyper.unroll_length)
        valid = int(columns["valid"][:, :-1].sum())
        with together.whole_update(self.peers, self.observation_normaliser):
            rows = self._rows(columns)
            made = self.block.make(lambda: [self._update(rows, valid, steps)])
            measured = self.block.look(lambda: self._measured(rows, made[0]))
        self.updates += 1
        self.step += int(measured.pop("steps"))
        self._publish()
        of_lags = (float(lags.mean()), float(lags.std()), float(lags.max()))
        self.measured.append([*measured.values(), *of_lags])

    def _measured(self, rows: Rows, update: Update) -> dict[str, float | Tensor]:
        """The first of `METRICS`, and the steps. Tensors [] have not been looked at."""
        objective, squared_error, entropy = update.parts
        # A mean of π/μ that is exactly 1 in every update would mean that log μ is not the actor's.
        mean, deviation = ratio_moments(update.log_ratio, rows.valid)
        measured = (
            -objective, 0.5 * squared_error, entropy, mean, deviation, update.gradient_norm,
        )  # fmt: skip
        return {**dict(zip(METRICS, measured, strict=False)), "steps": update.steps}

    def _progress(self) -> Progress:
        """The progress of the epoch that ends here. Its episodes are those that were received in
        it.
        """
        own = np.array(self.measured).reshape(-1, len(METRICS))
        returns, lengths, measured = together.epoch_of_all(self.peers, self.exchange, own)
        metrics = {
            "learning_rate": self.learning_rate,
            **dict(zip(METRICS, measured.mean(axis=0).tolist(), strict=True)),
            "policy_lag_max": float(measured[:, -1].max()),
        }
        self.measured = []
        self.epoch += 1
        return Progress(
            epoch=self.epoch, step=self.step, frame=self.step * self.resolved.game.frames_per_step,
            returns=returns, lengths=lengths, metrics=metrics,
        )  # fmt: skip

    def _publish(self) -> None:
        self.exchange.publish(self.updates, weights_of(self.network, self.observation_normaliser))

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next update."""
        first: float = self.hyper.learning_rate
        if not self.hyper.anneal_learning_rate:
            return first
        updates: int = self.resolved.epochs * self.hyper.epoch_updates
        return first * (1 - self.updates / updates)

    def _rows(self, columns: Columns) -> Rows:
        """A batch [B, T + 1, ...] as it is learnt from. The statistics of observations are updated
        first: how the observations were normalised when acting does not matter, because log μ is
        known.
        """
        observation = columns["observation"]
        valid = columns["valid"][:, :-1]
        if self.observation_normaliser is not None:
            # The last row is the next unroll's first one, and counts there.
            learnt = observation[:, :-1][valid]
            together.learn_statistics(self.observation_normaliser, learnt, self.peers)
            shape = observation.shape
            normalised = self.observation_normaliser(observation.reshape(-1, *shape[2:]))
            observation = normalised.reshape(shape)
        begins = columns["begins"]
        final = final_rows(columns)
        rewards = columns["reward"]
        if self.resolved.environment.clip_rewards:
            rewards = np.clip(rewards, -1, 1)
        rewards = rewards * np.float32(self.hyper.reward_scale)
        masks = columns.get("mask")
        return Rows(
            encoded=self._encoded(observation, begins, columns),
            actions=self._time_first(columns["action"][:, :-1]),
            log_mu=self._time_first(columns["log_probability"][:, :-1]),
            rewards=self._time_first(rewards[:, :-1]),
            terminated=self._time_first(columns["terminated"][:, :-1]),
            valid=self._time_first(valid),
            final=self._time_first(final),
            masks=None if masks is None else self._time_first(masks[:, :-1]),
        )

    def _time_first(self, column: np.ndarray) -> Tensor:
        """Move time to the front: [B, T, ...] -> [T, B, ...]."""
        return on_device(torch.from_numpy(column), self.device).transpose(0, 1)

    def _encoded(self, observation: np.ndarray, begins: np.ndarray, columns: Columns) -> Any:
        """Observations [B, T + 1, ...] as the network takes them."""
        flat = torch.from_numpy(observation.reshape(-1, *observation.shape[2:]))
        encoded = on_device(self.network.encode(flat), self.device)
        if not isinstance(self.network, RecurrentActorCritic):
            return encoded
        # The state before the unroll's first row, as it was when the actor acted there.
        state = as_state(columns, self.remembered, self.device)
        sequences = encoded.view(*begins.shape, *encoded.shape[1:]).transpose(0, 1)
        every = torch.arange(begins.size, device=self.device)
        return Sequences(sequences, state, self._time_first(begins), every)

    def _heads(self, encoded: Any) -> tuple[Tensor, Tensor]:
        """The policy [T + 1, B, P] and the values [T + 1, B]."""
        policy, values = self.network(encoded)
        length = self.hyper.unroll_length + 1
        size = self.share
        if isinstance(encoded, Sequences):
            return policy.view(length, size, -1), values.view(length, size)
        return policy.view(size, length, -1).transpose(0, 1), values.view(size, length).T

    def _loss(self, *inputs: Any) -> tuple[Tensor, ...]:
        """The loss of `Rows`, and the other parts of an `Update`."""
        rows = Rows(*inputs)
        hyper = self.hyper
        policy, values = self._heads(rows.encoded)
        policy = masked(policy[:-1], rows.masks)
        log_pi = self.actions.log_probability(policy, rows.actions)
        # V-trace's targets and advantages are constants: no gradient flows through π/μ. Rows that
        # nobody acted in count as on-policy.
        log_ratio = torch.where(rows.valid, log_pi.detach() - rows.log_mu, 0.0)
        log_ratio = log_ratio.clamp(max=LARGEST_LOG_RATIO)
        # Without V-trace all importance weights are 1, as if π had acted.
        corrected = log_ratio if hyper.vtrace else torch.zeros_like(log_ratio)
        targets, advantages = vtrace(
            corrected, rows.rewards, values.detach(), rows.terminated, rows.final,
            discount=hyper.discount, rho_bar=hyper.rho_bar, c_bar=hyper.c_bar,
            trace_lambda=hyper.trace_lambda,
        )  # fmt: skip
        # Means run over the valid rows of the batch.
        weights = rows.valid.to(values.dtype)
        weights = weights / weights.sum().clamp(min=1)
        objective = (weights * advantages * log_pi).sum()
        squared_error = (weights * (values[:-1] - targets).square()).sum()
        with torch.set_grad_enabled(hyper.entropy_coefficient > 0):
            entropy = (weights * self.actions.entropy(policy)).sum()
        loss = 0.5 * hyper.value_coefficient * squared_error - objective
        if hyper.entropy_coefficient > 0:
            loss = loss - hyper.entropy_coefficient * entropy
        parts = torch.stack((objective, squared_error, entropy))
        return loss, log_ratio, targets, advantages, parts

    def _update(self, rows: Rows, valid: int, steps: int) -> Update:
        """Make one step of the optimiser. steps: the number of environment steps in these rows, of
        which so many are valid.
        """
        rate = self.block.constant(self.learning_rate)
        if self.peers is None and not self.block.looks_at_each:
            found = [one.clone() for one in self.unseen_update(*rows, rate)]
            update = Update._make((*found, steps))
            self.block.note(update.loss, update.gradient_norm)
            return update
        loss, *others = self.gradients(*rows)
        of_all: int | Tensor = steps
        # Gradients are joined before the norm is clipped, so that all learners make the same step.
        if self.peers is not None:
            parameters = self.optimiser.parameters
            loss, of_all = together.average_gradients(self.peers, parameters, loss, valid, steps)
        norm = self._clip(loss)
        update = Update._make((loss, *others, norm, of_all))
        if self.block.looks_at_each and not math.isfinite(norm + float(loss)):
            raise self._diverged(rows, update)
        self.optimiser.step(rate)
        return update

    def _clip(self, loss: Tensor) -> Any:
        """Clip the gradients; their norm, which nobody has seen where the block is looked at."""
        largest = self.hyper.max_gradient_norm
        if self.block.looks_at_each:
            return self.optimiser.clip_gradients(largest)
        norm = self.optimiser.clip_unseen_gradients(largest)
        self.block.note(loss, norm)
        return norm

    def _unseen_update(self, *inputs: Any) -> tuple[Tensor, ...]:
        """`Rows` and the learning rate [] -> an `Update` without its steps, of which nobody has seen
        a number.
        """
        outputs = self.gradients(*inputs[:-1])
        norm = self.optimiser.clip_unseen_gradients(self.hyper.max_gradient_norm)
        self.optimiser.step(inputs[-1])
        return *outputs, norm

    def _diverged(self, rows: Rows, update: Update) -> Diverged:
        """The error with statistics of the batch that must not be learnt from."""
        objective, squared_error, entropy = update.parts.tolist()
        columns = {
            "rewards": rows.rewards, "targets": update.targets, "advantages": update.advantages,
            "log ratio": update.log_ratio,
        }  # fmt: skip
        return Diverged(
            f"loss or gradient is not finite in epoch {self.epoch + 1}, after step {self.step}: "
            f"losses: policy {-objective:.4g}, value {0.5 * squared_error:.4g}, "
            f"entropy {entropy:.4g}; gradient norm {update.gradient_norm:.4g}; batch of "
            f"{rows.rewards.numel()} rows: {ranges(columns)}"
        )

    def state_dict(self) -> State:
        """Everything that affects the future, except the actors. May be called between any two
        updates.
        """
        normaliser = self.observation_normaliser
        return {
            "format": FORMAT, "epoch": self.epoch, "step": self.step, "updates": self.updates,
            "interface": self.spaces.as_dict(),
            "network": to_arrays(self.network.state_dict()),
            "optimiser": self.optimiser.state_dict(),
            "observation_normaliser": normaliser.state_dict() if normaliser else {},
            "exchange": self.exchange.state_dict(),
            "measured": [list(one) for one in self.measured],
        }  # fmt: skip

    def load_state_dict(self, state: State, between: Callable[[], None] = lambda: None) -> None:
        """Continue where `state_dict` was taken, with any actors. Raises `NoUsableState` for a
        state of another format.
        """
        check_format(state)
        self.epoch = int(state["epoch"])
        self.step = int(state["step"])
        self.updates = int(state["updates"])
        self.network.load_state_dict(to_tensors(state["network"]))
        self.optimiser.load_state_dict(state["optimiser"])
        if self.observation_normaliser is not None:
            self.observation_normaliser.load_state_dict(state["observation_normaliser"])
        self.exchange.load_state_dict(state["exchange"])
        self.measured = [list(map(float, one)) for one in state["measured"]]

    def close(self) -> None:
        """Release actors that wait for room or for actions."""
        self.exchange.close()
        if self.central is not None:
            self.central.close()
