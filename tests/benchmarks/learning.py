"""Does it learn? `make learning [GAMES="cartpole acrobot"]` tests the presets' returns.

`python -m tests.benchmarks.learning [--game cartpole] [--outdir results/learning] [--report]`

Every experiment is the whole pipeline, `python -m workflows.submit`, in <outdir>/ours/<game>; what
counts is the evaluation of its final policies. A score is one run's mean return, and a bound is for
the mean over the runs; bounds lie below the published returns of rl-baselines3-zoo and CleanRL.
Breakout's bound is measured: Stable-Baselines3 with the same budget, see `breakout.py`.

What lies in the outdir is not made again, also when the code has changed since: so the commits are
printed with the table, and another outdir begins anew. Two calls with different games may work in
one outdir at the same time; `--report` then makes one table of all.
Exit codes: 0 all bounds hold, 1 one is missed, 2 refused, 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks import breakout
from tests.benchmarks.experiments import Experiment
from tests.benchmarks.throughput import REFERENCE_PYTHON, ROOT
from tests.benchmarks.verdicts import (
    HEADER_LINES,
    HOLDS,
    Bounded,
    Compared,
    bounded_table,
    compared_table,
)

SEED = 1000
"""Nothing was ever tuned with it; the presets were with 0, 1 and 2. Run i draws from (seed, i)."""
OUTDIR = Path("results/learning")
RUNS = 3
BOUNDS = {
    "cartpole": (100_000, 490.0),
    "acrobot": (300_000, -90.0),
    "pendulum": (200_000, -250.0),
    "lunarlander": (1_000_000, 200.0),
    "mountaincar": (1_000_000, -115.0),
    "lunarlander_continuous": (1_000_000, 230.0),
}
"""Game -> environment steps of a run (its preset's, to the end of an epoch), least mean return."""
BREAKOUT = "breakout"
GAMES = (*BOUNDS, BREAKOUT)
REFUSED, INTERRUPTED = 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Train what is missing, then print the tables; the exit code says whether all bounds hold."""
    options = parse(arguments)
    games = [game for game in GAMES if game in (options.game or GAMES)]
    failed: list[str] = []
    if not options.report:
        if BREAKOUT in games and not REFERENCE_PYTHON.exists():
            place = REFERENCE_PYTHON.relative_to(ROOT)
            reason = f"no Stable-Baselines3 for breakout: {place} is missing"
            print(f"refused: {reason}; `make learning` installs it there", file=sys.stderr)
            return REFUSED
        try:
            failed = [game for game in games if not train(game, options.outdir)]
        except KeyboardInterrupt:
            return INTERRUPTED
    return report(games, options.outdir, failed)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    description = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(description=description)
    only, kept = "only this one; may be given several times", f"for the results (default {OUTDIR})"
    parser.add_argument("--game", choices=GAMES, action="append", help=only)
    parser.add_argument("--outdir", type=Path, default=OUTDIR, help=kept)
    parser.add_argument("--report", action="store_true", help="only the tables of what is there")
    return parser.parse_args(arguments)


def train(game: str, outdir: Path) -> bool:
    """Whatever of a game is not there yet; whether that succeeded."""
    return breakout.train(outdir, SEED) if game == BREAKOUT else experiment(game, outdir).run()


def experiment(game: str, outdir: Path) -> Experiment:
    """A game with a bound, with its preset."""
    return Experiment(
        directory=outdir / "ours" / game,
        given={"game": game, "seed": str(SEED)},
        runs=RUNS,
        evaluations=outdir / "evaluations",
    )


def report(games: Sequence[str], outdir: Path, failed: Sequence[str]) -> int:
    """Print what there is; 1 if a bound is missed, a run is missing or an experiment failed."""
    bounded = [bounded_row(game, outdir) for game in games if game != BREAKOUT]
    compared = breakout.comparisons(outdir, SEED) if BREAKOUT in games else []
    for table in (bounded_table(bounded), compared_table(compared)):
        if len(table) > HEADER_LINES:
            print("", *table, sep="\n")
    print(f"\nSeed {SEED}. Commits: {commits(games, outdir)}.", *notes(bounded, compared), sep="\n")
    for game in failed:
        print(f"{game}: a command above did not succeed")
    verdicts = [*(row.verdict for row in bounded), *(row.verdict for row in compared)]
    return int(bool(failed) or set(verdicts) != {HOLDS})


def bounded_row(game: str, outdir: Path) -> Bounded:
    made = experiment(game, outdir)
    return Bounded(game=game, policy=made.policy(), ours=made.outcome(), least=BOUNDS[game][1])


def commits(games: Sequence[str], outdir: Path) -> str:
    """`cartpole 8033658, acrobot 8033658 dc9092d`: two where another one went on."""
    made = [experiment(game, outdir) for game in games if game != BREAKOUT]
    made += breakout.experiments(outdir, SEED) if BREAKOUT in games else []
    return ", ".join(f"{one.directory.name} {' '.join(one.commits()) or '–'}" for one in made)


def notes(bounded: Sequence[Bounded], compared: Sequence[Compared]) -> list[str]:
    """Why a run is missing, a line each."""
    reasons = [(row.game, row.ours.missing) for row in bounded]
    reasons += [(row.game, row.ours.missing + row.theirs.missing) for row in compared]
    lines = [f"{game}: {reason}" for game, missing in reasons for reason in missing]
    return list(dict.fromkeys(lines))  # what lacks both policies says it once


if __name__ == "__main__":
    sys.exit(main())
