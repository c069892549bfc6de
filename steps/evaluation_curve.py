"""The evaluation curve of one run: `python -m steps.evaluation_curve --outdir results/cartpole --run 0`.

Joins the episodes of all snapshots of the policy (`evaluations`) into evaluation-curve.csv, one row each,
names the best snapshot and measures it again, `evaluation_episodes` episodes with other seeds than those
that chose it, in best-snapshot.csv. Draws plots/evaluation-curve, and adds the curve to TensorBoard's
files. The run is judged by its final policy alone, see `steps.evaluate`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from config.ending import end
from steps.command.context import Skipped, StepContext
from steps.command.main import run_step
from steps.directory import checkpoints, snapshots
from steps.directory.files import write_atomically
from steps.directory.status import Score, pause_of
from steps.directory.tables import Cell, format_table
from steps.directory.usable import fingerprint, training_columns
from steps.evaluations.curve import Point, best_of, columns, curve_row, point
from steps.evaluations.event_file import write_curve
from steps.evaluations.play_snapshot import BEST, play_snapshot

if TYPE_CHECKING:
    from steps.statistics.curves import Curve


def main(argv: Sequence[str] | None = None) -> int:
    """Run the step and return its exit code."""
    return run_step(
        "evaluation-curve", evaluation_curve, inputs=inputs, complete=_are_written, argv=argv
    )


def inputs(context: StepContext) -> Mapping[str, Any]:
    """What the curve depends on: the snapshots and their episodes."""
    run = context.run
    experiment = context.resolved.experiment
    steps = run.snapshot_steps()
    files = [run.train_csv, *(snapshots.table(run, step) for step in steps)]
    files += [run.snapshot(step) / checkpoints.MANIFEST for step in steps]
    return {
        "identity": context.record.identity_hash,
        "asked": bool(experiment.evaluations),
        "episodes": [experiment.snapshot_episodes, experiment.evaluation_episodes],
        "files": fingerprint(context.directory.root, files),
    }


def evaluation_curve(context: StepContext) -> dict[str, Any] | Skipped:
    """Write and draw the evaluation curve of one run, and measure its best snapshot again with other
    seeds.
    """
    run = context.run
    resolved = context.resolved
    measure = resolved.measure
    if not resolved.experiment.evaluations:
        return Skipped("evaluations is 0")
    if paused := pause_of(run):
        return Skipped(paused)
    steps = run.snapshot_steps()
    if not steps:
        return Skipped(f"there is no snapshot in {run.snapshots}")
    for step in steps:
        context.require(snapshots.table(run, step), "evaluate-snapshots")
    rows = [curve_row(run, step, resolved) for step in steps]
    best = best_of([point(row, measure) for row in rows], measure)
    again = _measured_again(context, best)
    # The curve comes last: where it exists, its best snapshot has been measured again.
    write_atomically(run.evaluation_curve_csv, format_table(columns(measure), rows))
    _draw(context, [point(row, measure) for row in rows], best, again.value)
    write_curve(run, rows, measure)
    print(
        f"best of {len(rows)} snapshots: step {best.step}, {measure.name} {measure.shown(best.mean)}; "
        f"measured again: {again.written('.6g')}"
    )
    return {
        "snapshots": len(rows),
        "best_step": best.step,
        "best_chosen": best.mean,
        "best_again": again.value,
        "plots": ["evaluation-curve"],
    }


def _measured_again(context: StepContext, best: Point) -> Score:
    """Play with the best snapshot on other seeds, and write the table."""
    resolved = context.resolved
    measure = resolved.measure
    snapshot = snapshots.load(context.run, best.step, resolved)
    episodes = resolved.experiment.evaluation_episodes
    played = play_snapshot(context, snapshot, episodes=episodes, purpose=BEST)
    of_all: dict[str, Cell] = {"step": best.step, "epoch": best.epoch}
    rows = [of_all | row for row in played.rows]
    context.require_ours()
    write_atomically(context.run.best_snapshot_csv, format_table([*of_all, *played.columns], rows))
    return Score(measure.name, played.score(measure), measure.unit)


def _draw(context: StepContext, points: Sequence[Point], best: Point, again: float) -> None:
    from steps.figures.evaluations import run_curve
    from steps.figures.style import experiment_line, look, write

    resolved = context.resolved
    with look():
        figure = run_curve(
            points,
            best,
            again,
            resolved.measure,
            _training(context),
            title=f"Run {context.run.index}: evaluation over the training",
            subtitle=experiment_line(resolved),
            frames_per_step=resolved.game.frames_per_step,
            again_episodes=resolved.evaluated_episodes,
            solved=resolved.solved,
        )
        write(figure, context.run.plots / "evaluation-curve")


def _training(context: StepContext) -> Curve:
    """The training's own curve; empty if it measures something else."""
    from steps.statistics.curves import curve, training_curve_of

    measure = context.resolved.measure
    if measure.training_name:
        return curve([], [])
    return training_curve_of(training_columns(context.run, finished=True), measure)


def _are_written(context: StepContext) -> bool:
    if context.previous is not None and context.previous.state == "skipped":
        return True
    run = context.run
    plots = [run.plots / f"evaluation-curve.{kind}" for kind in ("png", "svg")]
    return all(path.is_file() for path in (run.evaluation_curve_csv, run.best_snapshot_csv, *plots))


if __name__ == "__main__":
    end(main())
