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
import statistics
from collections.abc import Callable

from agents.algorithms.impala_acting import ActorCriticActing
from agents.distributed.protocol import Version, Weights
from agents.distributed.stepping import Play
from agents.distributed.weights import weights_of
from agents.environments.training import TrainingEnvironments
from tests.benchmarks.alone import SETTLES_S, SideBySide
from tests.benchmarks.together import Rate, experiment, together

GAMES = ("tests.own_games:Catch", "cartpole", "breakout")


def play(game: str, environments: int) -> Callable[[], int]:
    """A step of the process without transport."""
    resolved = experiment(game, environments)
    made = TrainingEnvironments(resolved, 0, 100)
    acting = ActorCriticActing(resolved, made, run=0, number=0)
    network = acting.policy.network
    acting.load(
        Weights(version=Version(1, 0), arrays=weights_of(network, acting.policy.normaliser))
    )
    playing = Play(made, acting, resolved.hyperparameters.unroll_length)

    def step() -> int:
        steps = playing.step().steps
        playing.take(1)
        return steps

    return step


def compare(
    game: str, actors: int, environments: int, seconds: float, rounds: int
) -> list[tuple[Rate, Rate]]:
    """Print both rates; returns those of every round, over gRPC and in one process."""
    small = {"inference": "learner", "actors": str(actors)}
    small["batch_size"] = str(environments)  # whole batches are counted
    pairs = list[tuple[Rate, Rate]]()
    with (
        SideBySide(play, [(game, actors * environments)]) as alone,
        together(experiment(game, environments, **small), actors) as one,
    ):
        for _ in range(rounds):
            one.take(SETTLES_S)
            pairs.append((one.take(seconds), alone.measure(seconds)))
    said = (
        f"{statistics.median(one.a_second for one in rates):,.0f} steps/s, "
        f"{1e6 * statistics.median(one.busy_a_step_s for one in rates):.0f} µs of a core a step"
        for rates in zip(*pairs, strict=True)
    )
    ratio = statistics.median(central.a_second / one.a_second for central, one in pairs)
    print(
        f"{game}, {actors} actors x {environments}: {next(said)} over gRPC, {next(said)} in one "
        f"process: {ratio:.2f} x"
    )
    return pairs


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
