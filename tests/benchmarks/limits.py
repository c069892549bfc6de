"""Learner and actors against what this machine could do at best: one table of ratios, each with its
bound. `python -m tests.benchmarks.limits [--case central-breakout] [--rounds 3] [--minutes 20]`

What is compared takes turns within every round, and a ratio is the median over the rounds of the ratios
within one round; beside it the same in processor time, which says more where other programs run. One
torch thread each. Exits with 1 when a bound is missed.

    central-breakout    the learner acts for 8 actors of 4: against one process without transport
    central-…           the same for cheap games, against the slowest of E, I, T (`alone.py`): Acrobot, where
                        the emulators are, with 256 environments an actor and with 1024; CartPole with 4,
                        where every four steps are a message, each of which finds the caches of two cores
                        full of eight other actors' programs; and, `wide`, with 256 and a network of
                        1024 x 1024, where the inference is the slowest
    impala-…            actors that act, and a learner that learns: against all cores at work on nothing
                        but the parts (`impala_parts.py`); Acrobot with 64 environments an actor; CartPole
                        with 8, and with 64, where it is five times as fast
    publishing          10M parameters: against a copy of as many bytes
    pulling             the same: against a plain socket, and over TLS against a socket with TLS
    killing             one of 8 actors: what is left of the rate
    memory              of a learner that takes a tenth of what comes: what is left of it when it grows
    rllib-…             IMPALA's steps a second against RLlib's (`rllib.py`)
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks import rllib, transport
from tests.benchmarks.alone import SETTLES_S, echo, emulators, inference
from tests.benchmarks.central_inference import compare
from tests.benchmarks.faults import killing, memory
from tests.benchmarks.impala_parts import limit, parts
from tests.benchmarks.pulling import pulling
from tests.benchmarks.recorded import Row, measured, record
from tests.benchmarks.throughput import facts
from tests.benchmarks.together import Rate, experiment, together

ACTORS, ENVIRONMENTS = 8, 4
SEGMENT_S = 4.0


@dataclass(frozen=True)
class Given:
    """Of the command line."""

    rounds: int
    minutes: float


@dataclass(frozen=True)
class Reached:
    """name: of what is compared; ratios: of every round; busy: the same in processor time."""

    name: str
    least: float
    ratios: list[float]
    busy: list[float] | None = None

    @property
    def holds(self) -> bool:
        return statistics.median(self.ratios) >= self.least

    def as_dict(self) -> Row:
        """What docs/results/limits.json keeps."""
        return {
            "name": self.name,
            "least": round(self.least, 3),
            "median": round(statistics.median(self.ratios), 2),
            "lowest": round(min(self.ratios), 2),
            "highest": round(max(self.ratios), 2),
            "rounds": len(self.ratios),
            "measured": measured(),
        }

    def __str__(self) -> str:
        spread = f"{min(self.ratios):.2f} … {max(self.ratios):.2f}"
        busy = f"{statistics.median(self.busy):10.2f}" if self.busy else f"{'':10}"
        verdict = "holds" if self.holds else "MISSED"
        return (
            f"{self.name:62}{statistics.median(self.ratios):8.2f}{spread:>16}{busy}"
            f"{self.least:10.3g}  {verdict}"
        )


def central_breakout(given: Given) -> list[Reached]:
    pairs = compare("breakout", ACTORS, ENVIRONMENTS, SEGMENT_S, given.rounds)
    ratios = [central.a_second / alone.a_second for central, alone in pairs]
    busy = [alone.busy_a_step_s / central.busy_a_step_s for central, alone in pairs]
    return [Reached("central inference / one process, Breakout", 0.95, ratios, busy)]


def central(game: str, environments: int, given: Given, **chosen: str) -> list[Reached]:
    """Actors stand still while the parts are measured."""
    resolved = experiment(game, environments, inference="learner", actors=str(ACTORS), **chosen)
    ratios, busy = list[float](), list[float]()
    with (
        emulators(resolved, ACTORS) as stepping,
        echo(resolved, ACTORS) as echoing,
        together(resolved, ACTORS) as one,
    ):
        for _ in range(given.rounds):
            one.take(SETTLES_S)
            whole = one.act(2 * SEGMENT_S)
            with one.halted():
                found = {
                    "E": stepping.measure(SEGMENT_S),
                    "I": inference(resolved, ACTORS, SEGMENT_S / 4),
                    "T": echoing(SEGMENT_S / 4),
                }
            said({**found, "central inference": whole})
            ratios.append(whole.a_second / min(rate.a_second for rate in found.values()))
            busy.append(busy_share(found, whole))
    size = f"{ACTORS} x {environments}"
    name = f"central inference / min(E, I, T), {game}, {size}"
    return [Reached(name, 0.9, ratios, busy)]


def impala(game: str, actors: int, environments: int, given: Given, **chosen: str) -> list[Reached]:
    resolved = experiment(game, environments, **chosen)
    ratios, busy = list[float](), list[float]()
    with together(resolved, actors) as one:
        one.learn(1.0)
        for _ in range(given.rounds):
            whole, found = one.learn(SEGMENT_S), parts(resolved, actors, SEGMENT_S / 4)
            said({**found, "all together": whole})
            ratios.append(whole.a_second / limit(found))
            busy.append(busy_share(found, whole))
    size = f"{actors} x {environments}"
    return [Reached(f"IMPALA / all cores on its parts, {game}, {size}", 0.85, ratios, busy)]


def busy_share(found: Mapping[str, Rate], whole: Rate) -> float:
    """Processor time of a step in all parts, each alone, by that of the whole."""
    return sum(rate.busy_a_step_s for rate in found.values()) / whole.busy_a_step_s


def publishing(given: Given) -> list[Reached]:
    return [
        Reached("a copy / publishing 10M parameters", 1 / 1.5, transport.publishing(given.rounds))
    ]


def pulled(given: Given) -> list[Reached]:
    found = pulling(given.rounds)
    return [Reached(f"pulling {what}", 0.6, ratios) for what, ratios in found.items()]


def killed(given: Given) -> list[Reached]:
    ratios = [killing(ACTORS, ENVIRONMENTS, SEGMENT_S) for _ in range(given.rounds)]
    least = 1 - 1 / ACTORS - 0.02
    return [Reached(f"the rate after / before one of {ACTORS} actors is killed", least, ratios)]


def flat_memory(given: Given) -> list[Reached]:
    ratios = [memory(ACTORS, ENVIRONMENTS, 60 * given.minutes)]
    return [Reached("memory before / after, the learner slowed tenfold", 0.98, ratios)]


def against_rllib(game: str, least: float, given: Given) -> list[Reached]:
    return [Reached(f"IMPALA / RLlib's IMPALA, {game}", least, rllib.compare(game, given.rounds))]


CASES: Mapping[str, Callable[[Given], list[Reached]]] = {
    "central-breakout": central_breakout,
    "central-acrobot": lambda given: central("acrobot", 256, given, vectorisation="sync"),
    "central-acrobot-1024": lambda given: central("acrobot", 1024, given, vectorisation="sync"),
    "central-cartpole": lambda given: central("cartpole", 4, given),
    "central-cartpole-wide": lambda given: central(
        "cartpole", 256, given, hidden_sizes="1024,1024"
    ),
    "impala-breakout": lambda given: impala("breakout", 2, 8, given),
    "impala-acrobot": lambda given: impala("acrobot", 2, 64, given, vectorisation="sync"),
    "impala-cartpole": lambda given: impala("cartpole", 2, 8, given),
    "impala-cartpole-64": lambda given: impala("cartpole", 2, 64, given, batch_size="128"),
    "publishing": publishing,
    "pulling": pulled,
    "killing": killed,
    "memory": flat_memory,
    "rllib-breakout": lambda given: against_rllib("breakout", 2.0, given),
    "rllib-cartpole": lambda given: against_rllib("cartpole", 5.0, given),
}


def said(rates: Mapping[str, Rate]) -> None:
    """One line."""
    each = (
        f"{name} {rate.a_second:,.0f} steps/s, {1e6 * rate.busy_a_step_s:.0f} µs of a core a step"
        for name, rate in rates.items()
    )
    print("; ".join(each), flush=True)


def main(words: Sequence[str] | None = None) -> int:
    """Measure, and print the table. words: of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--case", choices=CASES, action="append", help="only this one")
    parser.add_argument(
        "--record", type=Path, help="write what was measured as JSON into this folder"
    )
    parser.add_argument("--rounds", type=int, default=3, help="turns of everything (default 3)")
    parser.add_argument(
        "--minutes", type=float, default=0.5, help="for which memory must stay flat (default 0.5)"
    )
    arguments = parser.parse_args(words)
    given, rows = Given(arguments.rounds, arguments.minutes), list[Reached]()
    print(facts(1))
    for name in arguments.case or CASES:
        print(f"\n{name}", flush=True)
        found = CASES[name](given)
        rows += found
        for row in found:
            print(row, flush=True)
        if arguments.record:
            record(arguments.record / "limits.json", [row.as_dict() for row in found], "name")
    print(f"\n{'':62}{'ratio':>8}{'rounds':>16}{'of a core':>10}{'at least':>10}")
    print(*rows, sep="\n", flush=True)
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
