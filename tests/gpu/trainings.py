"""Short trainings of every algorithm and kind of network, the same every time, on any device."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from agents.checks.kept_streams import KeptStreams
from agents.interfaces import Progress, State
from agents.load import make_learner, make_self_play_trainer, make_trainer
from agents.selfplay.roles import Games, Published
from agents.selfplay.worker import Worker
from config.algorithms.descriptor import SELF_PLAY, SINGLE
from config.described import parameters
from config.resolve import resolve
from config.resolved import Resolved
from tests.local_actors import in_turn

SMALL = {
    "epochs": "2", "num_envs": "2", "rollout_length": "16", "update_epochs": "1", "minibatches": "2",
    "epoch_steps": "40", "learning_starts": "40", "train_every": "4", "updates": "2",
    "batch_size": "8", "epoch_updates": "2", "unroll_length": "5", "burn_in": "2",
    "envs_per_actor": "2", "lstm_size": "16", "hidden_sizes": "16,16", "sequence_length": "8",
    "replay_size": "2000", "max_ahead": "30",
}  # fmt: skip
"""As far as an algorithm has them."""
SELF_PLAYED = {
    "game": "tic-tac-toe", "blocks": "1", "channels": "8", "batch_size": "32", "epochs": "2",
    "generation_positions": "128", "learning_starts": "64", "window": "1000", "max_ahead": "2",
    "simulations": "8", "cheap_simulations": "2", "games_per_worker": "8", "sampled_plies": "4",
}  # fmt: skip
PICTURE = "tests.own_games:Picture"


@dataclass(frozen=True)
class Case:
    """An algorithm on a game, with parameters that differ from `SMALL`."""

    algorithm: str
    game: str
    given: dict[str, str] = field(default_factory=dict)

    def resolved(self) -> Resolved:
        """Its parameters."""
        known = {info.name for info in parameters(self.algorithm)}
        if self.algorithm == "alphazero":
            return resolve(self.algorithm, SELF_PLAYED | self.given)
        small = {name: text for name, text in SMALL.items() if name in known}
        if self.algorithm == "impala":
            small.pop("lstm_size")  # it has no memory unless it is asked for
        return resolve(self.algorithm, {"game": self.game, "outdir": "/x", **small, **self.given})


LOCKS = "tests.lab_environments:Locks"
EVERY_SWITCH = {"double": "true", "dueling": "true", "n_step": "3", "prioritised": "true"}
CASES = {
    "ppo": Case("ppo", "cartpole"),
    "ppo, real-valued actions": Case("ppo", "pendulum"),
    "ppo, several actions, masks": Case("ppo", LOCKS, {"env_options": "acts=several"}),
    "ppo, images": Case("ppo", PICTURE),
    "ppo, own network": Case("ppo", "cartpole", {"network": "my_lab.nets:Residual"}),
    "a2c": Case("a2c", "cartpole"),
    "ppo-lstm": Case("ppo-lstm", "cartpole"),
    "ppo-lstm, images": Case("ppo-lstm", PICTURE),
    "dqn": Case("dqn", "cartpole"),
    "dqn, every switch, masks": Case("dqn", LOCKS, EVERY_SWITCH),
    "dqn, quantiles, images": Case("dqn", PICTURE, {"quantiles": "5"}),
    "sac": Case("sac", "pendulum"),
    "td3": Case("td3", "pendulum"),
    "impala": Case("impala", "cartpole"),
    "impala, a memory": Case("impala", "cartpole", {"lstm_size": "16"}),
    "impala, images": Case("impala", PICTURE),
    "r2d2": Case("r2d2", "cartpole"),
    "r2d2, images": Case("r2d2", PICTURE),
    "async-sac": Case("async-sac", "pendulum"),
    "alphazero": Case("alphazero", "tic-tac-toe"),
}  # fmt: skip


UNLIKE = ("exchange", "counted")
"""Parts of a state that depend on the clock, or on who joined when."""


@dataclass
class Outcome:
    """What a training left: its epochs, its states after the first and the last of them, and the rows
    of its streams after the first.
    """

    epochs: list[Progress]
    first: State
    kept: KeptStreams
    last: State


def trained(case: Case, device: str, precision: str = "fp32") -> Outcome:
    """To the end, on this device."""
    trainer = made(case.resolved(), device, precision)
    kept, epochs, first = KeptStreams(), list[Progress](), dict[str, Any]()
    for progress in progress_of(trainer):
        epochs.append(progress)
        if len(epochs) == 1:
            kept.take(trainer)
            first = trainer.state_dict()
    last = trainer.state_dict()
    trainer.close()
    return Outcome(epochs, first, kept, last)


def made(resolved: Resolved, device: str, precision: str = "fp32") -> Any:
    """The trainer of run 0, whichever kind it is; it waits for nothing."""
    where = {"run": 0, "device": device, "precision": precision}
    if resolved.descriptor.topology == SINGLE:
        return make_trainer(resolved, **where)
    if resolved.descriptor.topology == SELF_PLAY:
        return make_self_play_trainer(resolved, **where)
    learner: Any = make_learner(resolved, **where)
    getattr(learner, "experience", learner).wait_s = 0
    return learner


def progress_of(trainer: Any) -> Iterator[Progress]:
    """Its epochs; actors and workers play in turn with it, in this thread, on the CPU."""
    if trainer.resolved.descriptor.topology == SINGLE:
        return iter(trainer.train())
    if trainer.resolved.descriptor.topology == SELF_PLAY:
        games = iter(self_played())
        return filter(None, trainer.train(lambda wait_s: next(games, None)))
    return in_turn(trainer)


@cache
def self_played() -> list[Games]:
    """More games than a training of `SELF_PLAYED` takes, by a network without experience."""
    case = CASES["alphazero"]
    start = made(case.resolved(), "cpu").playing()
    worker = Worker(case.resolved(), run=0, member=0, attempt=1)
    networks = itertools.chain([Published(0, start)], itertools.repeat(None))
    playing = worker.play(lambda: next(networks))
    found = list[Games]()
    while sum(len(one.rows["value"]) for one in found) < 512:
        for one in next(playing):
            found.append(Games(one.rows, [one.score], [len(one.rows["value"])], 0, 1.0, 0.5))
    playing.close()
    return found


def learnt(state: State) -> State:
    """What is the same whenever a training is repeated."""
    return {name: part for name, part in state.items() if name not in UNLIKE}


def metrics(epochs: list[Progress]) -> list[dict[str, Any]]:
    """Of every epoch, without what the clock says."""
    return [
        {name: value for name, value in dataclasses.asdict(one).items() if name != "metrics"}
        | {name: value for name, value in one.metrics.items() if not name.endswith("_s")}
        for one in epochs
    ]


def largest_difference(one: Any, other: Any, path: str = "") -> tuple[float, str]:
    """Between two nested states, relative to the larger number, from 1 on; and where it is."""
    if isinstance(one, dict):
        if one.keys() != other.keys():
            return float("inf"), path
        found = (largest_difference(one[name], other[name], f"{path}/{name}") for name in one)
        return max(found, default=(0.0, path))
    if isinstance(one, list | tuple):
        if len(one) != len(other):
            return float("inf"), path
        pairs = zip(one, other, strict=True)
        found = (largest_difference(*pair, f"{path}/{n}") for n, pair in enumerate(pairs))
        return max(found, default=(0.0, path))
    if one is None or isinstance(one, str | bool):
        return (0.0 if one == other else float("inf")), path
    mine, theirs = np.asarray(one, np.float64), np.asarray(other, np.float64)
    if mine.shape != theirs.shape:
        return float("inf"), path
    if not mine.size:
        return 0.0, path
    size = np.maximum(1, np.maximum(np.abs(mine), np.abs(theirs)))
    return float((np.abs(mine - theirs) / size).max()), path
