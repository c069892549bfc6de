"""The evaluation of one run: `python -m steps.evaluate --outdir results/cartpole --run 0`.

Plays `evaluation_episodes` fresh, seeded episodes with the policy of the last checkpoint and writes
evaluation.csv, or the table that the algorithm's measure names, one row each, and before it the
actions of those that are filmed. The final policy, and no other: the best of several checkpoints
would be chosen by the very numbers that are to judge it. After self-play it is an arena
(`steps.arena`): a row of evaluation.csv is a game, `evaluation_episodes` of them against each player of
the ladder.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from config.ending import end
from config.errors import BadInput
from config.measures import Measure
from steps.command.argo_progress import ArgoProgress
from steps.command.context import StepContext
from steps.command.main import run_step
from steps.directory.arrays import read_actions, write_actions
from steps.directory.files import remove_temporaries, write_atomically
from steps.directory.status import Score
from steps.directory.tables import Cell, format_table
from steps.policy import final_policy, final_policy_inputs

if TYPE_CHECKING:
    import numpy as np

SNAPSHOTS = "--snapshots"
SAY_EVERY = 10
SAY_EVERY_S = 30.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the step and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if SNAPSHOTS in words:
        from steps import evaluate_snapshots

        return evaluate_snapshots.main([word for word in words if word != SNAPSHOTS])
    return run_step(
        "evaluate",
        evaluate,
        inputs=inputs,
        complete=_is_written,
        arguments=_arguments,
        argv=argv,
    )


def inputs(context: StepContext) -> Mapping[str, Any]:
    """What the episodes depend on."""
    if context.resolved.descriptor.has_workers:
        from steps.arena.entrants import arena_inputs

        return arena_inputs(context)
    return final_policy_inputs(context)


def evaluate(context: StepContext) -> dict[str, Any]:
    """Play fresh episodes with the final policy of one run (after self-play, games in an arena),
    and write their table.
    """
    if context.resolved.descriptor.has_workers:
        from steps.arena.play_matches import evaluate_arena

        return evaluate_arena(context)
    policy, step = final_policy(context)
    from agents.evaluation.episodes import evaluate as episodes_of

    experiment = context.resolved.experiment
    measure = context.resolved.measure
    columns = ("episode", "seed", measure.column, "length")
    remove_temporaries(context.run.root, of="evaluation")
    rows: list[dict[str, Cell]] = []
    filmed: list[np.ndarray] = []
    planned = experiment.evaluation_episodes
    watch = _Watch(context)
    argo = ArgoProgress()
    cut = 0
    for one in episodes_of(
        policy,
        context.resolved,
        context.run.index,
        planned,
        context.resolved.evaluation_policy == "sample",
        watch.step,
    ):
        context.check_stop()
        row = (one.episode, one.seed, one.return_, one.length)
        rows.append(dict(zip(columns, row, strict=True)))
        if one.episode < experiment.video_episodes:
            filmed.append(one.actions)
        if one.cut:
            cut += 1
            print(
                f"warning: episode {one.episode} (seed {one.seed}) was cut after {one.length} steps, "
                "evaluation_steps: it did not end by itself; a time limit of the environment ends it "
                "in training, too"
            )
        argo.at(len(rows), planned)
        if len(rows) % SAY_EVERY == 0 or len(rows) == planned:
            mean = Score(measure.name, _mean(rows, measure), measure.unit).written(".6g")
            print(f"episode {len(rows)} of {planned}: mean {mean}")
    # Before the table: whoever finds evaluation.csv also finds the actions.
    if filmed:
        write_actions(context.run.evaluation_actions, filmed)
    write_atomically(context.run.evaluated(measure), format_table(columns, rows))
    return {
        f"{measure.column}_mean": _mean(rows, measure),
        "episodes": len(rows),
        "cut": cut,
        "policy": context.resolved.evaluation_policy,
        "step": step,
    }


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        SNAPSHOTS,
        action="store_true",
        help="evaluate the snapshots that there are, also while the training still runs, in place "
        "of the final policy: what steps.evaluate_snapshots does",
    )


class _Watch:
    """Ends an evaluation that is to stop, and says what is played where that takes long."""

    def __init__(self, context: StepContext) -> None:
        self._context = context
        self._said_s = time.monotonic()

    def step(self, steps: int, playing: int) -> None:
        """Called after every step of the episodes that are played together."""
        self._context.check_stop()
        now_s = time.monotonic()
        if now_s - self._said_s >= SAY_EVERY_S:
            self._said_s = now_s
            print(f"after {steps} steps {playing} episodes have not ended yet")


def _is_written(context: StepContext) -> bool:
    """Whether the results are intact. The file of actions is read, too: otherwise a damaged one
    would never be made again.
    """
    if context.resolved.descriptor.has_workers:
        from steps.arena.play_matches import arena_is_written

        return arena_is_written(context)
    try:
        if filmed := context.resolved.experiment.video_episodes:
            read_actions(context.run.evaluation_actions, filmed)
    except (OSError, BadInput):
        return False
    return context.run.evaluated(context.resolved.measure).is_file()


def _mean(rows: Sequence[Mapping[str, Cell]], measure: Measure) -> float:
    return measure.of_run([float(row[measure.column] or 0) for row in rows])


if __name__ == "__main__":
    end(main())
