"""Does it learn? `make learning [ALGORITHMS=dqn] [GAMES="cartpole acrobot"]`: returns of presets.

`python -m tests.benchmarks.learning [--algorithm dqn] [--game cartpole] [--outdir results/learning]
[--report] [--long]`

Every experiment is the whole pipeline, `python -m workflows.submit`, in
<outdir>/ours/<algorithm>-<game>; what counts is the evaluation of its final policies. A score is
one run's mean return, and a bound is for the mean over the runs. Bounds lie below the published
returns of rl-baselines3-zoo and CleanRL; upper ones say what an algorithm without memory cannot
reach where velocities are hidden, drawn in <outdir>/without-velocities.png. Breakout's bound is
measured: Stable-Baselines3 with the same budget, see `breakout.py`.

`make learning-long` (`--long`) is SAC's LunarLanderContinuous for the 500k steps of its preset.
`make learning` trains it for 200k, as an experiment of its own: the learning rate falls to 0 over
the training, so the first 200k steps of the long one would end with a policy in the middle of its
schedule, and another number of epochs is another experiment for the pipeline, too. Nobody needs
both: neither waits for the other.

What lies in the outdir is not made again, also when the code has changed since: so the commits are
printed with the table, and another outdir begins anew. Two calls with different goals may work in
one outdir at the same time; `--report` then makes one table of all.
Exit codes: 0 all bounds hold, 1 one is missed, 2 refused, 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from steps.figures.style import look, write
from tests.benchmarks import breakout
from tests.benchmarks.curves import Learnt, side_by_side
from tests.benchmarks.experiments import Experiment
from tests.benchmarks.goals import GOALS, LONG, SEED, Goal
from tests.benchmarks.recorded import measured, record
from tests.benchmarks.throughput import REFERENCE_PYTHON, ROOT
from tests.benchmarks.verdicts import (
    HEADER_LINES,
    HOLDS,
    Bounded,
    Compared,
    bounded_table,
    compared_table,
)

OUTDIR = Path("results/learning")
WITHOUT_VELOCITIES = ("cartpole-no-velocity", "pendulum-no-velocity")
DRAWN = ("ppo-lstm", "ppo")
TITLES = (
    "Velocities must be remembered",
    "return of training episodes of PPO with a memory (ppo-lstm) and without (ppo)",
)
NOTE = "Diamonds: the final policies, 20 greedy episodes of each run; dashed: the bound for their mean."
BREAKOUT = ("ppo", "breakout")
"""Neither a number of steps nor a bound of its own."""
REFUSED, INTERRUPTED = 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Train what is missing, then print the tables; the exit code says whether all bounds hold."""
    options = parse(arguments)
    goals, with_breakout = chosen(options.algorithm, options.game, long=options.long)
    failed: list[str] = []
    if not options.report:
        if with_breakout and not REFERENCE_PYTHON.exists():
            place = REFERENCE_PYTHON.relative_to(ROOT)
            reason = f"no Stable-Baselines3 for breakout: {place} is missing"
            print(f"refused: {reason}; `make learning` installs it there", file=sys.stderr)
            return REFUSED
        try:
            failed = [one.name for one in goals if not experiment(one, options.outdir).run()]
            if with_breakout and not breakout.train(options.outdir, SEED):
                failed.append("-".join(BREAKOUT))
        except KeyboardInterrupt:
            return INTERRUPTED
    code = report(goals, options.outdir, failed, with_breakout=with_breakout)
    if options.record:
        keep(goals, options.outdir, options.record, with_breakout=with_breakout)
    draw(goals, options.outdir)
    return code


def chosen(
    algorithms: Sequence[str] | None,
    games: Sequence[str] | None,
    *,
    long: bool = False,
) -> tuple[list[Goal], bool]:
    """Those of these algorithms and these games, None: of all; and whether Breakout is one."""

    def is_chosen(algorithm: str, game: str) -> bool:
        return algorithm in (algorithms or [algorithm]) and game in (games or [game])

    goals = [one for one in (LONG if long else GOALS) if is_chosen(one.called, one.on)]
    return goals, not long and is_chosen(*BREAKOUT)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    description = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(description=description)
    only, kept = "only this one; may be given several times", f"for the results (default {OUTDIR})"
    tasks = [*((one.called, one.on) for one in GOALS), BREAKOUT]
    for number, name in enumerate(("--algorithm", "--game")):
        choices = list(dict.fromkeys(task[number] for task in tasks))
        parser.add_argument(name, choices=choices, action="append", help=only)
    parser.add_argument("--outdir", type=Path, default=OUTDIR, help=kept)
    parser.add_argument("--report", action="store_true", help="only the tables of what is there")
    parser.add_argument(
        "--record", type=Path, help="write what was measured as JSON into this folder"
    )
    parser.add_argument("--long", action="store_true", help="what takes hours, and only that")
    return parser.parse_args(arguments)


def experiment(one: Goal, outdir: Path) -> Experiment:
    """A goal's, with its preset."""
    return Experiment(
        algorithm=one.algorithm,
        directory=outdir / "ours" / one.name,
        given={"game": one.game, "seed": str(SEED), **one.given},
        runs=one.runs,
        evaluations=outdir / "evaluations",
    )


def report(
    goals: Sequence[Goal], outdir: Path, failed: Sequence[str], *, with_breakout: bool
) -> int:
    """Print what there is; 1 if a bound is missed, a run is missing or an experiment failed."""
    bounded = [bounded_row(one, outdir) for one in goals]
    compared = breakout.comparisons(outdir, SEED) if with_breakout else []
    for table in (bounded_table(bounded), compared_table(compared)):
        if len(table) > HEADER_LINES:
            print("", *table, sep="\n")
    made = [experiment(one, outdir) for one in goals]
    made += breakout.experiments(outdir, SEED) if with_breakout else []
    print(f"\nSeed {SEED}. Commits: {commits(made)}.", *notes(bounded, compared), sep="\n")
    for name in failed:
        print(f"{name}: a command above did not succeed")
    verdicts = [*(row.verdict for row in bounded), *(row.verdict for row in compared)]
    return int(bool(failed) or set(verdicts) != {HOLDS})


def bounded_row(one: Goal, outdir: Path) -> Bounded:
    made = experiment(one, outdir)
    return Bounded(
        algorithm=one.called,
        game=one.on,
        policy=made.policy(),
        ours=made.outcome(),
        bound=one.bound,
    )


def keep(goals: Sequence[Goal], outdir: Path, folder: Path, *, with_breakout: bool) -> None:
    """Write the complete rows into the folder as JSON: the documentation's tables."""
    bounded = [bounded_row(one, outdir) for one in goals]
    trained = [experiment(one, outdir).commits() for one in goals]
    compared = breakout.comparisons(outdir, SEED) if with_breakout else []
    rows = [
        {
            "algorithm": row.algorithm,
            "game": row.game,
            "steps": row.ours.steps,
            "policy": row.policy,
            "returns": [round(one, 1) for one in row.ours.scores],
            "mean": round(fmean(row.ours.scores), 1),
            "bound": {"value": row.bound.value, "is_upper": row.bound.is_upper},
            "measured": measured(" ".join(of)),
        }
        for row, of in zip(bounded, trained, strict=True)
        if row.ours.is_complete
    ]
    beside = [
        {
            "game": row.game,
            "steps": row.ours.steps,
            "policy": row.policy,
            "ours": [round(one, 1) for one in row.ours.scores],
            "reference": [round(one, 1) for one in row.theirs.scores],
            "measured": measured(),
        }
        for row in compared
        if row.ours.is_complete and row.theirs.is_complete
    ]
    record(folder / "learning.json", rows, "algorithm", "game", "steps")
    record(folder / "breakout.json", beside, "game", "policy")


def commits(made: Sequence[Experiment]) -> str:
    """`ppo-cartpole 8033658, dqn-acrobot 8033658 dc9092d`: two where another one went on."""
    return ", ".join(f"{one.directory.name} {' '.join(one.commits()) or '–'}" for one in made)


def notes(bounded: Sequence[Bounded], compared: Sequence[Compared]) -> list[str]:
    """Why a run is missing, a line each."""
    reasons = [(f"{row.algorithm} {row.game}", row.ours.missing) for row in bounded]
    reasons += [(row.game, row.ours.missing + row.theirs.missing) for row in compared]
    lines = [f"{task}: {reason}" for task, missing in reasons for reason in missing]
    return list(dict.fromkeys(lines))  # what lacks both policies says it once


def draw(goals: Sequence[Goal], outdir: Path) -> None:
    """PPO with and without memory where velocities are hidden, of what was trained so far."""
    if not any(one.on in WITHOUT_VELOCITIES for one in goals):
        return
    games = {game: learnt(game, outdir) for game in WITHOUT_VELOCITIES}
    if not all(games.values()):
        return
    stem = outdir / "without-velocities"
    with look():
        write(side_by_side(*TITLES, games, NOTE), stem)
    print(f"Figure: {stem}.png")


def learnt(game: str, outdir: Path) -> list[Learnt]:
    """Of the figure's algorithms on this game; one that has no curve yet is left out."""
    found = []
    for one in (goal for goal in reversed(GOALS) if goal.on == game and goal.called in DRAWN):
        made = experiment(one, outdir)
        scores, curves = made.outcome().scores, made.curves()
        if curves:
            found.append(
                Learnt(algorithm=one.algorithm, bound=one.bound, curves=curves, scores=scores)
            )
    return found


if __name__ == "__main__":
    sys.exit(main())
