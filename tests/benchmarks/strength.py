"""How strong does AlphaZero become at Connect Four? `make strength`, `make learning-long`:
`python -m tests.benchmarks.strength [--runs 3] [--minutes 10 --minutes 30] [--outdir results/strength]`

A run is trained as by hand, by a trainer and a worker of one thread each, until its minutes are over;
then both are stopped, and the network that plays is measured, by its search without noise:

    win rates   100 games against each player of the ladder, 50 openings with both colours
    value kept  of 1000 late positions, in how many its move keeps the exact value
    opening     the column of its first move, from the left

With several budgets a run goes on from where the smaller one ended. What was measured is in
<outdir>/strength.json, and is not measured again. Exits with 1 when a row of BOUNDS is missed.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agents.arena.matches import after, play_games
from agents.arena.opponents import load_player, trained
from agents.arena.players import Player
from agents.games.rules import Game
from agents.load import load_policy
from config.ladder import AGENT, LADDER
from config.resolved import Resolved
from steps.arena.entrants import arena_seed, openings_of
from steps.directory.experiment import read_experiment
from steps.directory.files import write_atomically
from steps.directory.layout import ExperimentDirectory, RunDirectory
from steps.directory.self_play import kept_generations, read_generation
from tests.connect_four_value import late_positions

SEED = 1000
OUTDIR = Path("results/strength")
GAMES, LATE = 100, 1000
MINUTES = (10, 30, 60)
CENTRE = 3
EPOCHS = 100_000
"""More than any budget has room for."""
STOPS_S = 60.0
Row = Mapping[str, float]
Holds = Callable[[Row], bool]
BOUNDS: dict[int, dict[str, Holds]] = {
    10: {
        "≥ 95 % against random": lambda row: row["random"] >= 95,
        "≥ 80 % against look-ahead": lambda row: row["lookahead"] >= 80,
    },
    30: {
        "≥ 95 % against look-ahead": lambda row: row["lookahead"] >= 95,
        "above MCTS-100": lambda row: row["mcts-100"] > 50,
    },
    60: {
        "above MCTS-1000": lambda row: row["mcts-1000"] > 50,
        "opens in the centre": lambda row: row["opening"] == CENTRE,
        "≥ 90 % of moves keep the value": lambda row: row["value kept"] >= 90,
    },
}
COLUMNS = (*LADDER, "value kept", "opening", "generation", "positions")


def main(words: Sequence[str] | None = None) -> int:
    """Train and measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--minutes", type=int, action="append", choices=MINUTES)
    parser.add_argument("--outdir", type=Path, default=OUTDIR)
    given = parser.parse_args(words)
    budgets = sorted(set(given.minutes or MINUTES[:1]))
    outdir, results = given.outdir, given.outdir / "strength.json"
    prepare(outdir, given.runs)
    rows: dict[str, Row] = json.loads(results.read_text()) if results.exists() else {}
    for run in range(given.runs):
        spent = max((m for m in MINUTES if f"{run} {m}" in rows), default=0)
        for minutes in (one for one in budgets if one > spent):
            train(outdir, run, 60 * (minutes - spent))
            rows[f"{run} {minutes}"] = measured(outdir, run)
            write_atomically(results, json.dumps(rows, indent=1))
            spent = minutes
    return report({key: rows[key] for key in sorted(rows)}, budgets)


def prepare(outdir: Path, runs: int) -> None:
    """Claim the directory; may come again."""
    given = {
        "game": "connect-four", "outdir": str(outdir), "runs": str(runs), "seed": str(SEED),
        "epochs": str(EPOCHS), "workers": "1", "threads": "1", "device": "cpu",
        "evaluation_episodes": str(GAMES), "checkpoint_interval": "1",
    }  # fmt: skip
    words = [word for item in given.items() for word in ("-p", "=".join(item))]
    step("steps.prepare", "--algorithm", "alphazero", *words).wait()


def train(outdir: Path, run: int, seconds: float) -> None:
    """Trainer and worker, from the first one's newest checkpoint; raises `SystemExit` where one of
    them ends by itself.
    """
    of_run = ["--outdir", str(outdir), "--run", str(run)]
    members = [
        step("steps.train", *of_run, "--role", "trainer"),
        step("steps.train", *of_run, "--role", "worker", "--member", "0"),
    ]
    end = time.monotonic() + seconds
    while time.monotonic() < end and all(member.poll() is None for member in members):
        time.sleep(1)
    ended = [member.poll() for member in members]
    for member in members:
        member.send_signal(signal.SIGTERM)
    for member in members:
        member.wait(STOPS_S)
    if any(code is not None for code in ended):
        raise SystemExit(f"run {run}: trainer and worker ended by themselves: {ended}")


def step(module: str, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", module, *words], stdout=subprocess.DEVNULL)


def measured(outdir: Path, run: int) -> Row:
    """Of the newest network."""
    directory = ExperimentDirectory(outdir)
    resolved, of_run = read_experiment(directory).resolved, directory.run(run)
    generation = kept_generations(of_run)[-1]
    policy: Any = load_policy(resolved, read_generation(of_run, generation))
    agent = trained(AGENT, policy)
    row = {name: win_rate(resolved, policy.game, agent, name, run) for name in LADDER}
    return row | {
        "value kept": 100 * late_positions(LATE, SEED).share(agent),
        "opening": opening(policy.game, agent),
        "generation": generation,
        "positions": positions(of_run),
    }


def win_rate(resolved: Resolved, game: Game, agent: Player, opponent: str, run: int) -> float:
    """In %, a draw is half a win."""
    starts, seed = after(game, openings_of(resolved, game, run)), arena_seed(resolved, run)
    scores = play_games(game, agent, load_player(opponent, game), starts, seed).scores
    return 100 * float(scores.mean())


def opening(game: Game, agent: Player) -> int:
    """The column of its first move."""
    return int(agent.choose(game.start(1), [np.random.default_rng(0)]).actions[0])


def positions(run: RunDirectory) -> int:
    """Of the newest checkpoint: those that were learnt from."""
    return [0, *run.checkpoint_steps()][-1]


def report(rows: Mapping[str, Row], budgets: Sequence[int]) -> int:
    """Print the table and what is missed."""
    print("| minutes | run |", " | ".join(COLUMNS), "|")
    print("|" + "---|" * (2 + len(COLUMNS)))
    missed = list[str]()
    for key, row in sorted(rows.items(), key=lambda item: item[0].split()[::-1]):
        run, minutes = map(int, key.split())
        print(f"| {minutes} | {run} |", " | ".join(f"{row[name]:.5g}" for name in COLUMNS), "|")
        if minutes in budgets:
            missed += [
                f"run {run} after {minutes} minutes: not {bound}"
                for smaller in MINUTES if smaller <= minutes
                for bound, holds in BOUNDS[smaller].items() if not holds(row)
            ]  # fmt: skip
    print("", *missed, sep="\n")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
