"""Environment steps per second of training: ours, Stable-Baselines3's, XLA's, and what this machine
could do at best.

Part of `make benchmark`; by itself `python -m tests.benchmarks.throughput [--threads 2] [--rounds 5] [--case
dqn-cartpole]` with Stable-Baselines3 installed in `.venv-benchmark`: `python -m venv .venv-benchmark
&& .venv-benchmark/bin/python -m pip install 'stable-baselines3[extra]' sb3-contrib ale-py`, and for
PPO on CartPole rejax in `.venv-rejax` (`make benchmark` makes both).

All processes stay alive and take turns, one segment each, in every round. A ratio is the median
over the rounds of the ratios within one round, so a machine that changes its speed changes both
sides of it. Everybody has the same number of torch threads. The serial limit is 1 / (1/emulator +
1/inference + 1/learning), each in isolation. Ours computes in the precision that a training's probe
chooses here, which is printed with its figures. Machines differ a lot: only ratios count. Exits
with 1 when a bound is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from config.resolve import resolve
from config.resolved import Resolved
from tests.benchmarks.recorded import Row, measured, record

if TYPE_CHECKING:
    from agents.devices import Decision

ROOT = Path(__file__).parents[2]
REFERENCE_PYTHON = ROOT / ".venv-benchmark/bin/python"
REFERENCE = "Stable-Baselines3"
XLA_PYTHON = ROOT / ".venv-rejax/bin/python"
XLA = "rejax"
OURS_COMPILED, XLA_COMPILED = "training, with compilation", "rejax, with compilation"
"""So many steps from nothing compiled; imports are not counted."""
STEPS_COMPILED = 50_000
PARTS = ("emulator", "inference", "learning")
SHOWN = {"cartpole-no-velocity": ("CartPole-v1", [0, 2])}
"""Of our own games, those of gymnasium of which a part of each observation is shown."""


LIMIT = "serial limit"
LONGEST_END_S = 20.0


@dataclass(frozen=True, kw_only=True)
class Case:
    """One algorithm on one game beside theirs, with the same settings.

    reference: their class; given: what differs from the preset; segment_s: of the training's turn;
    bounds: what the training must be at least, times the reference or the limit; either: one of
    these is enough. With a bound on rejax, that is measured, too.
    """

    algorithm: str
    game: str
    reference: str
    segment_s: float
    bounds: Mapping[str, float]
    given: Mapping[str, str] = field(default_factory=dict)
    either: bool = False


NOW = {"learning_starts": "1000", "exploration_fraction": "0"}
"""They learn, and choose by their network, from the first segment on."""
CASES = {
    "ppo-breakout": Case(
        algorithm="ppo", game="breakout", reference="PPO", segment_s=8.0,
        bounds={REFERENCE: 1.4, LIMIT: 0.8},
    ),
    "ppo-cartpole": Case(
        algorithm="ppo", game="cartpole", reference="PPO", segment_s=4.0,
        bounds={REFERENCE: 3.0, XLA: 1.1, XLA_COMPILED: 1.5},
    ),
    "ppo-halfcheetah": Case(
        algorithm="ppo", game="halfcheetah", reference="PPO", segment_s=4.0, bounds={REFERENCE: 2.0}
    ),
    "ppo-lstm-cartpole": Case(
        algorithm="ppo-lstm", game="cartpole-no-velocity", reference="RecurrentPPO", segment_s=6.0,
        bounds={REFERENCE: 2.0, LIMIT: 0.85}, either=True,
    ),
    "dqn-cartpole": Case(
        algorithm="dqn", game="cartpole", reference="DQN", segment_s=4.0, given=NOW,
        bounds={REFERENCE: 2.5},
    ),
    "qr-dqn-cartpole": Case(
        algorithm="dqn", game="cartpole", reference="QRDQN", segment_s=4.0,
        given={**NOW, "quantiles": "50"}, bounds={REFERENCE: 1.5, LIMIT: 0.85}, either=True,
    ),
    "dqn-breakout": Case(
        algorithm="dqn", game="breakout", reference="DQN", segment_s=8.0,
        given={**NOW, "replay_size": "20000"}, bounds={REFERENCE: 1.3, LIMIT: 0.85}, either=True,
    ),
    "sac-pendulum": Case(
        algorithm="sac", game="pendulum", reference="SAC", segment_s=6.0,
        bounds={REFERENCE: 1.8, LIMIT: 0.85},
    ),
    "td3-pendulum": Case(
        algorithm="td3", game="pendulum", reference="TD3", segment_s=6.0,
        given={"learning_starts": "1000"},
        bounds={REFERENCE: 1.8},
    ),
}  # fmt: skip


class Worker:
    """A process that works for a segment when told to."""

    def __init__(
        self,
        command: list[str],
        threads: int,
        clock: str,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._clock = clock
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": str(threads),
            "PYTHONPATH": str(ROOT),
            **(variables or {}),
        }
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._ready = self._answer()

    @property
    def compilation_s(self) -> float:
        """What it took before the first segment, where the worker says so."""
        return float(self._ready["compilation_s" if self._clock == "wall" else "compilation_cpu_s"])

    def rate(self, seconds: float) -> float:
        """Environment steps per second over a segment of at least so many seconds."""
        assert self._process.stdin is not None
        print(seconds, file=self._process.stdin, flush=True)
        answer = self._answer()
        return float(answer["steps"]) / float(
            answer["seconds" if self._clock == "wall" else "cpu_seconds"]
        )

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise SystemExit(
            f"{' '.join(map(str, self._process.args))} ended with exit code {self._process.wait()}"
        )  # type: ignore[arg-type]

    def end(self) -> None:
        """Leave nothing running: with the end of its input a worker ends what it has started, too."""
        try:
            self._process.communicate(timeout=LONGEST_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


def measure(name: str, threads: int, rounds: int, clock: str) -> dict[str, list[float]]:
    """Name -> environment steps per second in every round."""
    case = CASES[name]
    given = {"game": case.game, "threads": str(threads), "epochs": "1000000", "device": "cpu"}
    resolved = resolve(case.algorithm, given | dict(case.given))
    decision = decided(resolved)
    print(f"{name}: {decision.precision}; {decision.reason}; {figures(decision)}")
    name_of_game, shown = SHOWN.get(case.game, (resolved.game.id, None))
    settings = {
        "algorithm": case.algorithm, "reference": case.reference, "given": given | dict(case.given),
        "threads": threads, "precision": decision.precision, "kind": resolved.game.kind,
        "id": name_of_game, "sticky_actions": resolved.environment.sticky_actions, "shown": shown,
        "hyperparameters": asdict(resolved.environment) | asdict(resolved.hyperparameters),
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "settings.json"
        path.write_text(json.dumps(settings))
        ours = [sys.executable, "-m", "tests.benchmarks.our_worker", str(path)]
        reference = [
            str(REFERENCE_PYTHON),
            str(Path(__file__).with_name("stable_baselines3_worker.py")),
            str(path),
        ]
        commands = {"training": [*ours, "training"], REFERENCE: reference} | {
            part: [*ours, part] for part in PARTS
        }
        if XLA in case.bounds:
            worker = Path(__file__).with_name("rejax_worker.py")
            commands[XLA] = [str(XLA_PYTHON), str(worker), str(path)]
        workers = {part: Worker(command, threads, clock) for part, command in commands.items()}
        rates: dict[str, list[float]] = {part: [] for part in workers}
        try:
            for number in range(1, rounds + 1):
                for part, worker in workers.items():
                    shorter = 4 if part in ("emulator", "inference") else 1
                    rates[part].append(worker.rate(case.segment_s / shorter))
                newest = ", ".join(f"{part} {values[-1]:.0f}" for part, values in rates.items())
                print(f"{name}, round {number} of {rounds}: {newest}", flush=True)
            if XLA in workers:
                compilations = {
                    OURS_COMPILED: ("training", from_nothing(commands["training"], threads, clock)),
                    XLA_COMPILED: (XLA, workers[XLA].compilation_s),
                }
                for part, (of, compilation_s) in compilations.items():
                    print(f"{name}: {of} compiles in {compilation_s:.1f} s")
                    rates[part] = [with_compilation(rate, compilation_s) for rate in rates[of]]
        finally:
            for worker in workers.values():
                worker.end()
    return rates | {
        LIMIT: [1 / sum(1 / rates[part][number] for part in PARTS) for number in range(rounds)]
    }


def from_nothing(command: list[str], threads: int, clock: str) -> float:
    """Seconds until our training has learnt from its first rollout, with an empty cache of machine code."""
    with tempfile.TemporaryDirectory() as cache:
        worker = Worker(command, threads, clock, {"NUMBA_CACHE_DIR": cache})
        worker.end()
    return worker.compilation_s


def with_compilation(rate: float, compilation_s: float) -> float:
    """Steps per second of a training of `STEPS_COMPILED` that is compiled first."""
    return STEPS_COMPILED / (compilation_s + STEPS_COMPILED / rate)


def decided(resolved: Resolved) -> Decision:
    """What a training of this experiment would choose here, with its threads."""
    import torch

    from agents.load import decide

    torch.set_num_threads(resolved.experiment.threads)
    return decide(resolved)


def figures(decision: Decision) -> str:
    """The probe's, in milliseconds."""
    if decision.trials is None:
        return "no probe needed"
    trials = decision.trials
    fp32, bf16 = (
        " ".join(f"{1000 * one:.1f}" for one in times) for times in (trials.fp32_s, trials.bf16_s)
    )
    return f"{trials.rows} rows forward and backward: fp32 {fp32} ms, bf16 {bf16} ms"


def ratio(numerators: list[float], denominators: list[float]) -> float:
    """The median of the ratios, round by round."""
    return statistics.median(
        one / other for one, other in zip(numerators, denominators, strict=True)
    )


def facts(threads: int) -> str:
    """The machine, in one line."""
    import torch

    from agents.devices import computes_bf16, processor_name

    cpu = processor_name("cpu")
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"{cpu}, {os.cpu_count()} cores, {torch.backends.cpu.get_cpu_capability()}, bf16 {'yes' if computes_bf16('cpu') else 'no'}; "
        f"torch {torch.__version__}, {threads} torch threads for everybody; load before {load}"
    )


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print the table, and say with the exit code whether every bound holds. words: of the
    command line.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--threads", type=int, default=1, help="torch threads of every process (default 1)"
    )
    parser.add_argument("--rounds", type=int, default=5, help="turns of every process (default 5)")
    parser.add_argument(
        "--clock",
        choices=("wall", "cpu"),
        default="wall",
        help="cpu: per second of CPU time; for a busy machine, with one thread",
    )
    parser.add_argument("--case", choices=CASES, action="append", help="only this one")
    parser.add_argument(
        "--record", type=Path, help="write what was measured as JSON into this folder"
    )
    arguments = parser.parse_args(words)
    if not REFERENCE_PYTHON.exists():
        parser.error(
            f"{REFERENCE_PYTHON.relative_to(ROOT)} is missing: `make benchmark` installs Stable-Baselines3 there"
        )
    wanted = [CASES[name] for name in arguments.case or CASES]
    if any(XLA in case.bounds for case in wanted) and not XLA_PYTHON.exists():
        parser.error(
            f"{XLA_PYTHON.relative_to(ROOT)} is missing: `make benchmark` installs rejax there"
        )
    print(facts(arguments.threads))
    missed = 0
    for name in arguments.case or CASES:
        rates = measure(name, arguments.threads, arguments.rounds, arguments.clock)
        print(f"\n{name:30}{'steps/s':>10}{'training is':>16}")
        for part, each in rates.items():
            print(
                f"  {part:28}{statistics.median(each):10.0f}{ratio(rates['training'], each):14.2f} x"
            )
        missed += not holds(CASES[name], rates)
        if arguments.record:
            record(arguments.record / "speed.json", [row(name, rates, arguments)], "case", "clock")
        print(flush=True)
    return 1 if missed else 0


def row(name: str, rates: Mapping[str, list[float]], given: argparse.Namespace) -> Row:
    """What docs/results/speed.json keeps of a case: medians over the rounds."""
    return {
        "case": name,
        "clock": given.clock,
        "threads": given.threads,
        "rounds": given.rounds,
        "steps_per_second": {part: round(statistics.median(each)) for part, each in rates.items()},
        "ratios": {
            part: round(ratio(rates[compared_with(part)], rates[part]), 2)
            for part in (REFERENCE, LIMIT, XLA, XLA_COMPILED)
            if part in rates
        },
        "bounds": dict(CASES[name].bounds),
        "measured": measured(),
    }


def compared_with(part: str) -> str:
    """Which of our rates is held against this one."""
    return OURS_COMPILED if part == XLA_COMPILED else "training"


def holds(case: Case, rates: Mapping[str, list[float]]) -> bool:
    """Whether the training is as fast as it must be; prints a line for each bound."""
    verdicts = []
    for name, least in case.bounds.items():
        reached = ratio(rates[compared_with(name)], rates[name])
        verdicts.append(reached >= least)
        verdict = "holds" if verdicts[-1] else "below" if case.either else "MISSED"
        print(f"  training / {name} = {reached:.2f}, at least {least}: {verdict}")
    enough = any(verdicts) if case.either else all(verdicts)
    if case.either:
        print(f"  one of these is enough: {'holds' if enough else 'MISSED'}")
    return enough


if __name__ == "__main__":
    sys.exit(main())
