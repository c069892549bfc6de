"""The plots of one training: `python -m steps.plot_training --outdir results/cartpole --run 0`.

Writes plots/training, plots/training-hours (against the time of the training), plots/losses and
plots/resources of the run, as PNG and as SVG.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from config.ending import end
from steps.command.context import Skipped, StepContext
from steps.command.main import run_step
from steps.directory.experiment import training_inputs
from steps.directory.status import pause_of, read_status
from steps.directory.usable import fingerprint, resource_columns, training_columns

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from steps.figures.run import Columns


def main(argv: Sequence[str] | None = None) -> int:
    """Run the step and return its exit code."""
    return run_step("plot-training", plot_training, inputs=inputs, complete=_are_written, argv=argv)


def inputs(context: StepContext) -> Mapping[str, Any]:
    """What the plots depend on."""
    files = fingerprint(context.directory.root, [context.run.train_csv, context.run.resources_csv])
    # A later pause may come before the next row.
    paused = pause_of(context.run)
    return {
        **training_inputs(context.record),
        "files": files,
        **({"paused": paused} if paused else {}),
    }


def plot_training(context: StepContext) -> dict[str, Any] | Skipped:
    """Draw one training: the measure, the losses, and the use of the machine."""
    context.require(context.run.train_csv, "train")
    from steps.figures.style import look, write

    with look():
        figures = {name: figure for name, figure in _figures(context).items() if figure is not None}
        for name, figure in figures.items():
            write(figure, context.run.plots / name)
    return {"plots": list(figures)} if figures else Skipped("train.csv has no row to draw")


def _figures(context: StepContext) -> dict[str, Figure | None]:
    """File name -> figure; None if there is nothing to draw."""
    from steps.figures import run as draw

    train = read_status(context.run.status / "train.json")
    columns = training_columns(context.run, finished=train is not None and train.ended_well)
    resources = resource_columns(context.run)
    game = context.resolved.game
    subtitle = _subtitle(context)
    title = f"Run {context.run.index}"
    frames = game.frames_per_step
    return {
        "training": draw.training_curve(
            columns,
            context.resolved.measure,
            title=f"{title}: training",
            subtitle=subtitle,
            frames_per_step=frames,
            solved=context.resolved.solved,
        ),
        "training-hours": _over_time(context, columns, resources),
        "losses": draw.losses(
            columns,
            context.resolved.measure,
            title=f"{title}: learning",
            subtitle=subtitle,
            frames_per_step=frames,
        ),
        "resources": draw.resources(
            resources, title=f"{title}: speed and resources", subtitle=subtitle
        ),
    }


def _over_time(context: StepContext, columns: Columns, resources: Columns) -> Figure | None:
    """The training curve over hours; None where the time of no step is known."""
    from steps.figures.run import training_curve
    from steps.statistics.curves import wall_ms

    moments_ms = wall_ms(columns["step"], resources) if columns else None
    if moments_ms is None or not len(moments_ms):
        return None
    return training_curve(
        columns,
        context.resolved.measure,
        title=f"Run {context.run.index}: training over time",
        subtitle=_subtitle(context),
        frames_per_step=context.resolved.game.frames_per_step,
        solved=context.resolved.solved,
        moments_ms=moments_ms,
    )


def _subtitle(context: StepContext) -> str:
    from steps.figures.style import experiment_line

    line = experiment_line(context.resolved)
    paused = pause_of(context.run)
    return f"{line}; {paused}" if paused else line


def _are_written(context: StepContext) -> bool:
    names = context.previous.names("plots") if context.previous is not None else []
    return all(
        (context.run.plots / f"{name}.{kind}").is_file()
        for name in names
        for kind in ("png", "svg")
    )


if __name__ == "__main__":
    end(main())
