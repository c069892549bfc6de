"""AlphaZero, Silver et al. 2018 (Science 362, arXiv:1712.01815): the trainer. Its workers are in
`agents.selfplay`, their search in `agents.search`.

    workers: play games with themselves, each move a ~ π of a search by the network f_θ̄
             keep (s, π, z), z the end of the game with the eyes of who is to move at s
    trainer: (p, v) = f_θ(s), learns from positions of the window
                 l = (z − v)² − π · log p + c ‖θ‖²
             θ̄ ← d θ̄ + (1 − d) θ, and after every generation θ̄ plays

Other than there: a window that grows with the positions, and searches of two sizes, both KataGo's (Wu
2019, arXiv:1902.10565). Where a search was cheap the policy is not learnt; KataGo learns no value from
it either, we do (docs/algorithms.md has a measurement). The average of the weights plays (KataGo,
appendix C), and there is no gate. Each position is shown in one of its symmetries, drawn anew every time.

What others got wrong and this does not: value, planes and outcome are the mover's, whoever moves next;
log p is over legal actions alone; a symmetry turns π with the board; draws are 0; the optimiser is the
same from the first generation to the last; positions are learnt from so many times on average, however
fast either side is (`config.algorithms.replay_ratio`); a non-finite number never reaches the optimiser.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from agents.devices import on_device
from agents.interfaces import Growth, Progress, State
from agents.optimisation.optimiser import Adam
from agents.selfplay.policy import AVERAGE, check_board_game, make_network
from agents.selfplay.positions import Symmetries, Window, refusal, unpacked_states
from agents.selfplay.roles import Games, Rows, Take
from agents.states import FORMAT, check_format, ranges, to_arrays, to_tensors
from config.errors import Diverged
from config.resolved import Resolved
from config.seeds import integer_seed, seed_sequence

WINDOW = "window"
"""The name of the stream that is learnt from."""
METRICS = ("policy_loss", "value_loss", "gradient_norm")
"""The metrics of one update, in the order in which `_learn` measures them. An epoch's metrics are
their means.
"""
COUNTED = (
    "refused", "trainer_waited_s", "trainer_learnt_s", "workers_waited_s", "workers_played_s",
)  # fmt: skip
"""Metrics that are totals since the training began."""
EPSILON = 1e-8
LARGEST_NORM = 10.0
WAIT_S = 0.2
YIELD_S = 1.0


class Batch(NamedTuple):
    """B positions: planes [B, C, H, W]; legal, full bool [B, A], [B]; policies [B, A]; values [B]."""

    planes: Tensor
    legal: Tensor
    policies: Tensor
    values: Tensor
    full: Tensor


def losses(logits: Tensor, values: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """−π · log p, averaged over the positions that were searched in full, and (z − v)², averaged
    over all.
    """
    # p is over legal actions alone. Their logarithms are −∞ at illegal ones, where π is 0: the
    # product would be NaN, so 0 takes their place.
    log_p = torch.log_softmax(logits.masked_fill(~batch.legal, -math.inf), dim=1)
    crossed = -(batch.policies * log_p.masked_fill(~batch.legal, 0)).sum(dim=1)
    # KataGo's playout cap: the visits of a cheap search are no policy to learn, but its game's
    # result is a value all the same.
    policy = (crossed * batch.full).sum() / batch.full.sum().clamp(min=1)
    return policy, (batch.values - values).square().mean()


class AlphaZeroTrainer:
    """The training of one run. Implements `agents.selfplay.roles.SelfPlayTrainer` and `HasStreams`."""

    learnt = ("network", AVERAGE)
    policy_entries = ("format", AVERAGE)

    def __init__(self, resolved: Resolved, *, run: int, device: str, precision: str) -> None:
        torch.set_num_threads(resolved.experiment.threads)
        self.resolved = resolved
        self.hyper = resolved.hyperparameters
        self.device = torch.device(device)
        self.epoch = 0
        self.step = 0
        self.halved = precision == "bf16"
        seed = resolved.experiment.seed
        self.game = check_board_game(resolved)
        self.symmetries = Symmetries(self.game)
        self.window = Window(self.game)
        weights = torch.Generator().manual_seed(integer_seed(seed, run, "weights"))
        self.network = make_network(self.hyper, self.game, weights).to(self.device)
        self.network.to(memory_format=torch.channels_last)
        # The average that plays begins as the network that learns.
        self.average = copy.deepcopy(self.network).requires_grad_(False)
        self.optimiser = Adam(
            self.network.parameters(), epsilon=EPSILON, decay=self.hyper.weight_decay
        )
        self.sampling = np.random.default_rng(seed_sequence(seed, run, "replay"))
        self.updates = 0
        self.counted = dict.fromkeys(COUNTED, 0.0)
        # These lists collect what an epoch reports, until it ends.
        self.scores = list[float]()
        self.lengths = list[int]()
        self.lags = list[np.ndarray]()
        self.measured = list[tuple[float, ...]]()

    def train(self, take: Take) -> Iterator[Progress | None]:
        """Yield one `Progress` for each generation, and None about once a second in between. Raises
        `Diverged` before a non-finite update.
        """
        while self.epoch < self.resolved.epochs:
            epoch = self.epoch + 1
            step = self.resolved.warm_up_steps + epoch * self.resolved.steps_per_epoch
            yield from self._generation(take, step, self.hyper.updates_after(epoch))
            self.epoch = epoch
            self.step = step
            yield self._progress()

    def _generation(self, take: Take, positions: int, updates: int) -> Iterator[None]:
        """Take games and learn until both totals of this generation are reached. The side that is
        ahead of the replay ratio waits: games are not taken, or nothing is learnt.
        """
        ratio = self.hyper.ratio
        since_s = time.monotonic()
        while self.window.added < positions or self.updates < updates:
            # The balance is positive where more was learnt than the positions allow, and negative
            # where positions lie idle.
            balance = ratio.balance(self.updates, self.window.added)
            due = self.updates < updates and balance + ratio.batch <= ratio.slack
            learns = due and self.window.added >= ratio.starts
            # No games are taken while the workers are too far ahead. The trainer waits for games
            # only where it has nothing to learn meanwhile.
            if balance >= -ratio.slack:
                wait_s = 0.0 if learns else WAIT_S
                self._add(take, wait_s)
            if learns:
                self._learn()
            if time.monotonic() - since_s >= YIELD_S:
                yield None
                since_s = time.monotonic()

    def _add(self, take: Take, wait_s: float) -> None:
        """Take the next games, if there are any, and drop those that cannot be learnt from."""
        started_s = time.monotonic()
        games = take(wait_s)
        if wait_s:
            self.counted["trainer_waited_s"] += time.monotonic() - started_s
        if games is None:
            return
        # Games that cannot be learnt from are counted and left out; the training goes on.
        if refusal(self.game, games.rows):
            self.counted["refused"] += 1
            return
        count = len(games.rows["value"])
        self.window.add(games.rows, self.hyper.window_of(self.window.added + count))
        self._count(games)

    def _count(self, games: Games) -> None:
        self.scores += games.scores
        self.lengths += games.lengths
        self.lags.append(np.maximum(0, self.epoch - games.rows["generation"]))
        self.counted["workers_waited_s"] += games.waited_s
        self.counted["workers_played_s"] += games.played_s

    def _learn(self) -> None:
        """Make one update from the window and return its metrics."""
        started_s = time.monotonic()
        batch = self._batch(self.window.sample(self.hyper.batch_size, self.sampling))
        self.measured.append(self._update(batch))
        self.updates += 1
        self._follow()
        self.counted["trainer_learnt_s"] += time.monotonic() - started_s

    def _update(self, batch: Batch) -> tuple[float, ...]:
        """Make one step of Adam and return its `METRICS`."""
        self.network.train()
        self.network.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.halved):
            logits, values = self.network(batch.planes)
        # The losses are computed in float32 also where the network computes in bf16.
        policy, value = losses(logits.float(), values.float(), batch)
        torch.autograd.backward([policy + value])
        norm = self.optimiser.clip_gradients(LARGEST_NORM)
        measured = (float(policy.detach()), float(value.detach()), norm)
        if not math.isfinite(sum(measured)):
            raise self._diverged(measured, logits, values)
        self.optimiser.step(self.learning_rate)
        return measured

    def _batch(self, rows: Rows) -> Batch:
        """Positions on the device, each in one of its symmetries."""
        planes = self.game.encode(unpacked_states(self.game, rows["state"]))
        which = self.sampling.integers(0, len(self.symmetries), len(planes))
        turned = self._tensor(self.symmetries.of_planes(planes, which))
        return Batch(
            planes=turned.contiguous(memory_format=torch.channels_last),
            legal=self._tensor(self.symmetries.of_actions(rows["legal"], which)),
            policies=self._tensor(self.symmetries.of_actions(rows["policy"], which)),
            values=self._tensor(rows["value"]),
            full=self._tensor(rows["full"]),
        )

    def _tensor(self, array: np.ndarray) -> Tensor:
        return on_device(torch.from_numpy(array), self.device)

    @torch.no_grad()
    def _follow(self) -> None:
        """Update the average: θ̄ ← d θ̄ + (1 − d) θ, for weights and batch statistics alike."""
        averages = list[Tensor]()
        weights = list[Tensor]()
        newest = self.network.state_dict()
        for name, average in self.average.state_dict().items():
            # Batch normalisation counts its batches in an integer, which has no average.
            if average.is_floating_point():
                averages.append(average)
                weights.append(newest[name])
        torch._foreach_lerp_(averages, weights, 1 - self.hyper.average_decay)

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next update."""
        first: float = self.hyper.learning_rate
        if not self.hyper.anneal_learning_rate:
            return first
        updates: int = self.hyper.updates_after(self.resolved.epochs)
        return first * (1 - self.updates / updates)

    def _diverged(self, measured: tuple[float, ...], logits: Tensor, values: Tensor) -> Diverged:
        policy, value, norm = measured
        return Diverged(
            f"loss or gradient is not finite in epoch {self.epoch + 1}, after {self.updates} updates: "
            f"policy loss {policy:.4g}; value loss {value:.4g}; gradient norm {norm:.4g}; batch of "
            f"{len(values)} positions: {ranges({'logits': logits, 'values': values})}"
        )

    def _progress(self) -> Progress:
        """The progress of the epoch that has ended. Its games are those that were taken in it."""
        metrics: dict[str, float | None] = dict.fromkeys(METRICS)
        if self.measured:
            metrics |= zip(METRICS, np.mean(self.measured, axis=0).tolist(), strict=True)
        after_start = self.window.added - self.hyper.learning_starts
        lag_mean: float | None = None
        lag_max: float | None = None
        if self.lags:
            lags = np.concatenate(self.lags)
            lag_mean = float(lags.mean())
            lag_max = float(lags.max())
        metrics |= {
            "learning_rate": self.learning_rate,
            "positions": self.window.added,
            "window": len(self.window),
            "unique_percent": 100 * self.window.unique_share(),
            "replayed": self.updates * self.hyper.batch_size / max(1, after_start),
            "generations_behind": lag_mean,
            "generations_behind_max": lag_max,
        }
        progress = Progress(
            epoch=self.epoch, step=self.step, frame=self.step, returns=self.scores,
            lengths=self.lengths, metrics=metrics,
        )  # fmt: skip
        self.scores = []
        self.lengths = []
        self.lags = []
        self.measured = []
        return progress

    def imitate(self, rows: Rows) -> Iterator[None]:
        """Learn the players' moves and the results of recorded games, and let the workers play with
        that network. These updates do not count as updates of self-play.
        """
        # These updates have a generator of their own, so that their number has no influence on what
        # self-play samples.
        drawn = np.random.default_rng(self.sampling.integers(2**63))
        for _ in range(self.hyper.imitation_updates):
            which = drawn.integers(0, len(rows["value"]), self.hyper.batch_size)
            self._update(self._batch({name: column[which] for name, column in rows.items()}))
            yield
        # Workers play by the average, which `_update` alone does not move.
        self.average.load_state_dict(self.network.state_dict())

    def playing(self) -> State:
        """The network that workers play with: the average of the weights."""
        return {"format": FORMAT, AVERAGE: to_arrays(self.average.state_dict())}

    def counters(self) -> Mapping[str, float]:
        """See `agents.selfplay.roles.SelfPlayTrainer`. learnt: positions, each as often as it was
        learnt from.
        """
        learnt = self.updates * self.hyper.batch_size
        return {**self.counted, "positions": self.window.added, "learnt": learnt}

    def grown(self) -> dict[str, Growth]:
        """The window's stream, see `agents.interfaces.HasStreams`."""
        return {WINDOW: Growth(rows=self.window.grown(), keep=len(self.window))}

    def load_streams(self, streams: Mapping[str, Iterator[Rows]]) -> None:
        """Restore the window."""
        self.window.load(streams.get(WINDOW, iter(())), self.window.added)

    def state_dict(self) -> State:
        """Everything that affects the future, except the window's positions and the workers. To be
        called after an epoch.
        """
        return {
            **self.playing(),
            "epoch": self.epoch, "step": self.step, "interface": self._interface(),
            "network": to_arrays(self.network.state_dict()),
            "optimiser": self.optimiser.state_dict(),
            "generator": self.sampling.bit_generator.state,
            "updates": self.updates, "added": self.window.added, "counted": dict(self.counted),
        }  # fmt: skip

    def load_state_dict(self, state: State, between: Callable[[], None] = lambda: None) -> None:
        """Continue where `state_dict` was taken, with any workers. `load_streams` must follow.
        Raises `NoUsableState` for a state of another format.
        """
        check_format(state)
        self.epoch = int(state["epoch"])
        self.step = int(state["step"])
        self.network.load_state_dict(to_tensors(state["network"]))
        self.average.load_state_dict(to_tensors(state[AVERAGE]))
        self.optimiser.load_state_dict(state["optimiser"])
        self.sampling.bit_generator.state = state["generator"]
        self.updates = int(state["updates"])
        self.window.added = int(state["added"])
        self.counted |= state["counted"]

    def _interface(self) -> State:
        """What must be equal in another training whose weights this one starts from."""
        return {
            "game": self.game.name,
            "planes": list(self.game.planes),
            "actions": self.game.actions,
        }

    def close(self) -> None:
        """Do nothing; no resources are held."""
