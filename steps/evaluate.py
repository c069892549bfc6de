"""The evaluation of one run: `python -m steps.evaluate --outdir results/cartpole --run 0`.

Plays `evaluation_episodes` fresh, seeded episodes with the policy of the last checkpoint and writes
evaluation.csv, one row each, and before it the actions of those that are filmed. The final policy,
and no other: the best of several checkpoints would be chosen by the very numbers that are to judge
it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from config.errors import BadInput
from steps.command.context import StepContext
from steps.command.main import run_step
from steps.directory.actions import read_actions, write_actions
from steps.directory.files import remove_temporaries, write_atomically
from steps.directory.tables import Cell, format_table
from steps.policy import final_policy, final_policy_inputs

if TYPE_CHECKING:
    import numpy as np

COLUMNS = ("episode", "seed", "return", "length")
SAY_EVERY = 10


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code of the step."""
    return run_step(
        "evaluate",
        evaluate,
        inputs=final_policy_inputs,
        complete=_is_written,
        argv=argv,
    )


def evaluate(context: StepContext) -> dict[str, Any]:
    """Play fresh episodes with the final policy of one run and write evaluation.csv."""
    policy, step = final_policy(context)
    from agents.evaluation.episodes import evaluate as episodes_of

    experiment = context.resolved.experiment
    remove_temporaries(context.run.root, of="evaluation")
    rows: list[dict[str, Cell]] = []
    filmed: list[np.ndarray] = []
    planned = experiment.evaluation_episodes
    for one in episodes_of(
        policy,
        context.resolved,
        context.run.index,
        planned,
        context.resolved.evaluation_policy == "sample",
    ):
        context.check_stop()
        rows.append(
            {"episode": one.episode, "seed": one.seed, "return": one.return_, "length": one.length}
        )
        if one.episode < experiment.video_episodes:
            filmed.append(one.actions)
        if len(rows) % SAY_EVERY == 0 or len(rows) == planned:
            print(f"episode {len(rows)} of {planned}: mean return {_mean(rows):.6g}")
    if filmed:
        write_actions(context.run.evaluation_actions, filmed)
    write_atomically(context.run.evaluation_csv, format_table(COLUMNS, rows))
    return {
        "return_mean": _mean(rows),
        "episodes": len(rows),
        "policy": context.resolved.evaluation_policy,
        "step": step,
    }


def _is_written(context: StepContext) -> bool:
    """Unread, a damaged file of actions would never be made again."""
    try:
        if filmed := context.resolved.experiment.video_episodes:
            read_actions(context.run.evaluation_actions, filmed)
    except (OSError, BadInput):
        return False
    return context.run.evaluation_csv.is_file()


def _mean(rows: Sequence[Mapping[str, Cell]]) -> float:
    return math.fsum(float(row["return"] or 0) for row in rows) / len(rows)


if __name__ == "__main__":
    sys.exit(main())
