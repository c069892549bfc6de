"""The evaluations of one run's training: `python -m steps.evaluate_snapshots --outdir results/cartpole
--run 0`.

Plays `snapshot_episodes` fresh, seeded episodes with each snapshot of the policy (`evaluations`) and
writes a table for each, snapshot-evaluations/<step>.csv. A snapshot that is evaluated is never
evaluated again, so a killed or stopped step continues with the next one. In a workflow several pods
share the snapshots, each with a part of them; by hand the step evaluates all that there are, also while
the training still takes more.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from config.ending import end
from config.errors import BadInput
from steps.command.argo_progress import ArgoProgress
from steps.command.context import Skipped, StepContext
from steps.command.main import run_step
from steps.command.members import add_roles
from steps.directory import snapshots
from steps.directory.arrays import write_actions
from steps.directory.files import remove_temporaries, write_atomically
from steps.directory.status import Score
from steps.directory.tables import format_table
from steps.evaluations.play_snapshot import SNAPSHOTS, play_snapshot

ALL, PART = "all", "part"
"""What a process evaluates."""
EPOCH = "epoch"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the step and return its exit code."""
    return run_step(
        "evaluate-snapshots",
        evaluate_snapshots,
        inputs=inputs,
        complete=_are_written,
        arguments=_arguments,
        argv=argv,
        # Its tables appear as a whole, with the bytes that a pod of the workflow would write.
        beside_workflow=True,
    )


def inputs(context: StepContext) -> Mapping[str, Any]:
    """What the episodes depend on: the parameters and the snapshots."""
    steps = chosen_steps(context)
    return {
        "identity": context.record.identity_hash,
        "asked": bool(context.resolved.experiment.evaluations),
        "episodes": context.resolved.experiment.snapshot_episodes,
        "snapshots": {
            str(step): snapshots.digest(context.run, step, context.resolved) for step in steps
        },
    }


def evaluate_snapshots(context: StepContext) -> dict[str, Any] | Skipped:
    """Play fresh episodes with those snapshots of one run's policy that are not evaluated yet, and
    write a table for each. With `--role part` only one part of the snapshots is played.
    """
    if not context.resolved.experiment.evaluations:
        return Skipped("evaluations is 0")
    steps = chosen_steps(context)
    if not steps:
        return Skipped(f"there is no snapshot in {context.run.snapshots}")
    played = [step for step in steps if not is_evaluated(context, step)]
    argo = ArgoProgress()
    for number, step in enumerate(played, 1):
        context.check_stop()
        score = _evaluate(context, step)
        argo.at(number, len(played))
        print(f"snapshot {number} of {len(played)}: step {step}: mean {score.written('.6g')}")
    return {"snapshots": len(steps), "played": len(played)}


def chosen_steps(context: StepContext) -> list[int]:
    """The snapshots of this process: a part of them or all. Raises `BadInput` for a part that does
    not exist.
    """
    steps = context.run.snapshot_steps()
    if not context.member:
        return steps
    listed = snapshots.parts(steps)
    part = context.arguments.member
    if part >= len(listed):
        raise BadInput(f"no part {part}: {len(steps)} snapshots make {len(listed)} parts")
    return listed[part]


def is_evaluated(context: StepContext, step: int) -> bool:
    """Whether the episodes of a snapshot are there."""
    return snapshots.evaluated(context.run, step, context.resolved) is not None


def _evaluate(context: StepContext, step: int) -> Score:
    """Play and write the table, and before it the actions of the first episode."""
    run = context.run
    experiment = context.resolved.experiment
    measure = context.resolved.measure
    table = snapshots.table(run, step)
    remove_temporaries(run.snapshot_evaluations, of=run.snapshot(step).name)
    weights = snapshots.digest(run, step, context.resolved)
    snapshot = snapshots.load(run, step, context.resolved)
    played = play_snapshot(
        context, snapshot, episodes=experiment.snapshot_episodes, purpose=SNAPSHOTS
    )
    context.require_ours()
    if played.first is not None:
        write_actions(snapshots.actions(run, step), [played.first])
    columns = (*played.columns, EPOCH, snapshots.DIGEST)
    rows = [{**row, EPOCH: snapshot.epoch, snapshots.DIGEST: weights} for row in played.rows]
    write_atomically(table, format_table(columns, rows))
    return Score(measure.name, played.score(measure), measure.unit)


def _are_written(context: StepContext) -> bool:
    if context.previous is not None and context.previous.state == "skipped":
        return True
    return all(is_evaluated(context, step) for step in chosen_steps(context))


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_roles(parser, (ALL, PART))


if __name__ == "__main__":
    end(main())
