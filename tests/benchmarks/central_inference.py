"""Central inference against one process that does the same without transport: environment steps per
second of actors over gRPC, whose learner acts for all of them, and of as many environments that a
policy plays in its own process; both make unrolls, and nobody learns from them.
`python -m tests.benchmarks.central_inference [--game breakout] [--actors 8] [--environments 4]`

The two take turns within every round, and a ratio is the median over the rounds of the ratios within
one round. While it is the other's turn, nothing is taken from the learner's queue, which holds its
actors. One torch thread each; actors are processes of their own, so cores are shared as the machine
has them.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from multiprocessing.connection import Connection as Pipe
from typing import Any

import torch

from agents.algorithms.impala import IMPALATrainer
from agents.algorithms.impala_acting import ActorCriticActing, make_actor
from agents.distributed.interfaces import Unreachable, Version, Weights
from agents.distributed.play import Play
from agents.distributed.policy_weights import weights_of
from agents.distributed.weights import unpack
from agents.environments.training import TrainingEnvironments
from agents.transport.address import Address
from agents.transport.client import Client
from agents.transport.credentials import make_certificate
from agents.transport.server import Server
from config.resolve import Resolved, resolve

GAMES = ("tests.own_games:Catch", "cartpole", "breakout")
SETTLES_S = 1.0
"""Of each turn, before it is measured."""


def experiment(game: str, environments: int, inference: str) -> Resolved:
    given = {
        "game": game, "outdir": "/x", "envs_per_actor": str(environments), "inference": inference,
        "device": "cpu", "batch_size": str(environments),  # small, because whole batches are counted
    }  # fmt: skip
    if ":" in game:
        given["vectorisation"] = "sync"
    return resolve("impala", given)


def act(address: Address, game: str, environments: int, member: int) -> None:
    """An actor's process, until its learner has gone."""
    torch.set_num_threads(1)
    link = Client(lambda: address, unpack=unpack, reconnect_timeout_s=1)
    resolved = experiment(game, environments, "learner")
    actor = make_actor(resolved, run=0, member=member, link=link)
    try:
        for _ in actor.act():
            pass
    except Unreachable:
        actor.close()


def play(pipe: Pipe, game: str, environments: int) -> None:
    """The process without transport: plays for as long as it is told to, and answers its rate."""
    resolved = experiment(game, environments, "actor")
    made = TrainingEnvironments(resolved, 0, 100)
    acting = ActorCriticActing(resolved, made, run=0, number=0)
    network = acting.policy.network
    acting.load(
        Weights(version=Version(1, 0), arrays=weights_of(network, acting.policy.normaliser))
    )
    playing = Play(made, acting, resolved.hyperparameters.unroll_length)

    def steps_in(seconds: float) -> float:
        steps, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            steps += playing.step().steps
            playing.take(1)
        return steps / (time.perf_counter() - began)

    while (seconds := pipe.recv()) is not None:
        steps_in(SETTLES_S)
        pipe.send(steps_in(seconds))
    made.close()


def taken(trainer: IMPALATrainer, seconds: float) -> float:
    """Environment steps per second that came through the queue."""
    hyper, steps, began = trainer.hyper, 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        batch = trainer.exchange.take(1.0)
        if batch is not None:
            steps += hyper.batch_size * hyper.unroll_length
            trainer.exchange.give_back(batch)
    return steps / (time.perf_counter() - began)


def compare(game: str, actors: int, environments: int, seconds: float, rounds: int) -> float:
    """Print both rates, and return their ratio."""
    context: Any = multiprocessing.get_context("spawn")
    trainer = IMPALATrainer(
        experiment(game, environments, "learner"), run=0, device="cpu", precision="fp32"
    )
    ours, theirs = context.Pipe()
    alone = context.Process(target=play, args=(theirs, game, actors * environments))
    alone.start()
    server = Server(
        trainer.receiver(1), token="t", generation=1, environments=environments, host="127.0.0.1",
        certificate=make_certificate(), actors=2 * actors,
    )  # fmt: skip
    members = [
        context.Process(target=act, args=(server.address, game, environments, member))
        for member in range(actors)
    ]
    for member in members:
        member.start()
    central, without = list[float](), list[float]()
    while server.traffic().messages < 30 * actors:  # to make Atari's environments takes seconds
        taken(trainer, 0.5)
    for _ in range(rounds):
        taken(trainer, SETTLES_S)
        central.append(taken(trainer, seconds))
        ours.send(seconds)
        without.append(ours.recv())
    ours.send(None)
    trainer.close()
    server.close()
    for process in (alone, *members):
        process.join()
    ratio = statistics.median(one / other for one, other in zip(central, without, strict=True))
    print(
        f"{game}, {actors} actors x {environments}: {statistics.median(central):,.0f} steps/s over "
        f"gRPC, {statistics.median(without):,.0f} in one process: {ratio:.2f} x"
    )
    return ratio


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--game", choices=GAMES, action="append", help="only this one")
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--environments", type=int, default=4, help="of each actor")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each turn")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    for game in given.game or GAMES:
        compare(game, given.actors, given.environments, given.seconds, given.rounds)


if __name__ == "__main__":
    main()
