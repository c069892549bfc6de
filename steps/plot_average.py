"""The plots over all runs: `python -m steps.plot_average --outdir results/cartpole`.

Writes average/plots/training, training-hours, evaluation, losses and resources, as PNG and as SVG;
with `evaluations` also evaluation-curve; after self-play also
elo, opponents, ratings and strength. Unfinished and failed runs are drawn as curves of their own;
without a usable run nothing is drawn, and the status says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from config.ending import end
from config.errors import WrongDirectory
from steps.average import CURVE, bootstrap_seed
from steps.command.context import Skipped, StepContext
from steps.command.main import run_step
from steps.directory.experiment import evaluation_inputs
from steps.directory.files import read_bytes
from steps.directory.layout import RunDirectory
from steps.directory.tables import read_columns
from steps.directory.usable import (
    evaluation_episodes,
    fingerprint,
    resource_columns,
    training_columns,
    usability,
)
from steps.page.summary import parsed

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from steps.figures.averaged_runs import Heading, Lines
    from steps.statistics.curves import Curve
    from steps.statistics.rule import Aggregate

    Numbers = Mapping[str, NDArray[np.float64]]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the step and return its exit code."""
    return run_step("plot-average", plot_average, inputs=inputs, complete=_are_written, argv=argv)


def inputs(context: StepContext) -> Mapping[str, Any]:
    """What the plots depend on: the averages, and the runs below them."""
    context.wait_for_runs()
    averages = [
        context.directory.average / name for name in ("train.csv", "evaluation.csv", "summary.json")
    ]
    tables = [
        path
        for run in _runs(context)
        for path in (run.train_csv, run.evaluated(context.resolved.measure), run.resources_csv)
    ]
    if context.resolved.descriptor.has_workers:
        tables += [run.arena_csv for run in _runs(context)]
    if context.resolved.experiment.evaluations:
        averages.append(context.directory.average / CURVE)
        tables += [run.evaluation_curve_csv for run in _runs(context)]
    return {
        **evaluation_inputs(context.record),
        "files": fingerprint(context.directory.root, [*averages, *tables]),
    }


def plot_average(context: StepContext) -> dict[str, Any] | Skipped:
    """Draw the averaged training curve, the evaluation, the losses and the resources of all
    runs.
    """
    context.require(context.directory.average / "train.csv", "average")
    usable = [run.index for run in _runs(context) if usability(run, context.resolved)]
    if not usable:
        return Skipped("no usable run to draw")
    from steps.figures.style import look, write

    with look():
        figures = {
            name: figure for name, figure in _figures(context, usable).items() if figure is not None
        }
        for name, figure in figures.items():
            write(figure, _plots(context) / name)
    return {"plots": list(figures)}


def _figures(context: StepContext, usable: Sequence[int]) -> dict[str, Figure | None]:
    """File name -> figure; None if there is nothing to draw."""
    from steps.figures import averaged_runs as draw
    from steps.statistics.curves import training_curve_of

    frames = context.resolved.game.frames_per_step
    measure = context.resolved.measure
    wanted = partial(draw.is_drawn, measure=measure)
    curves: dict[int, Curve] = {}
    losses: dict[int, Lines] = {}
    for run in _runs(context):  # one table after the other: those of a hundred runs take a gigabyte
        columns = training_columns(run, finished=run.index in usable, wanted=wanted)
        curves[run.index] = training_curve_of(columns, measure)
        if columns and run.index in usable:
            losses[run.index] = draw.thin_losses(columns, measure)
    measured = {index: resource_columns(context.directory.run(index)) for index in usable}
    resources = {
        index: draw.thin_resources(columns) for index, columns in measured.items() if columns
    }
    return {
        "training": _training(
            context, usable, {index: one for index, one in curves.items() if len(one)}
        ),
        "training-hours": _over_time(context, usable, curves, measured),
        "evaluation": _evaluation(context),
        "losses": draw.losses(
            _heading(context, "Learning", len(losses)), losses, frames_per_step=frames
        ),
        "resources": draw.resources(
            _heading(context, "Speed and resources", len(resources)), resources
        ),
        "evaluation-curve": _evaluation_curve(context),
        **_arena(context),
    }


def _evaluation_curve(context: StepContext) -> Figure | None:
    """The averaged evaluations of the whole training; None if there are none."""
    from steps.evaluations.curve import read_curve
    from steps.figures.evaluations import averaged_curve

    resolved = context.resolved
    path = context.directory.average / CURVE
    if not resolved.experiment.evaluations:
        return None
    averages = read_columns(context.require(path, "average"))
    if len(averages["step"]) == 0:
        return None
    complete = [run for run in _runs(context) if usability(run, resolved).state == "complete"]
    curves = {run.index: read_curve(run, resolved.measure) for run in complete}
    count = int(averages["n"][0])
    return averaged_curve(
        _heading(context, "Evaluation over the training", count),
        resolved.measure,
        averages["step"],
        _aggregate(count, averages),
        {index: curve for index, curve in curves.items() if curve},
        frames_per_step=resolved.game.frames_per_step,
        solved=resolved.solved,
    )


def _arena(context: StepContext) -> dict[str, Figure | None]:
    """The additional figures of an arena; none after other trainings than self-play."""
    complete = [
        run for run in _runs(context) if usability(run, context.resolved).state == "complete"
    ]
    if not context.resolved.descriptor.has_workers or not complete:
        return {}
    from steps.arena.plots import average_figures

    heading = _heading(context, "", len(complete))
    return average_figures(
        context.resolved, complete, heading, seed=bootstrap_seed(context.resolved)
    )


def _training(
    context: StepContext, usable: Sequence[int], curves: Mapping[int, Curve]
) -> Figure | None:
    """The curve over all usable runs, by the rules of average/train.csv but over parts of the steps."""
    from steps.figures.averaged_runs import training_curve

    used = {index: one for index, one in curves.items() if index in usable}
    return training_curve(
        _heading(context, "Training", len(used)),
        context.resolved.measure,
        used,
        {index: one for index, one in curves.items() if index not in usable},
        seed=bootstrap_seed(context.resolved),
        frames_per_step=context.resolved.game.frames_per_step,
        solved=context.resolved.solved,
    )


def _over_time(
    context: StepContext,
    usable: Sequence[int],
    curves: Mapping[int, Curve],
    resources: Mapping[int, Numbers],
) -> Figure | None:
    """The curves of the usable runs over the time of their trainings, averaged by the same rules;
    None where no run's times are known. A machine's speed is in it, so it is drawn and kept nowhere
    else.
    """
    from steps.figures.averaged_runs import training_curve
    from steps.statistics.curves import against_time

    timed = {index: against_time(curves[index], resources[index]) for index in usable}
    used = {index: one for index, one in timed.items() if len(one)}
    return training_curve(
        _heading(context, "Training over time", len(used)),
        context.resolved.measure,
        used,
        {},
        seed=bootstrap_seed(context.resolved),
        frames_per_step=context.resolved.game.frames_per_step,
        solved=context.resolved.solved,
        over_time=True,
    )


def _aggregate(count: int, columns: Numbers) -> Aggregate:
    """The computed averages. A column is empty if this number of runs does not allow it."""
    import numpy as np

    from steps.statistics.rule import Aggregate

    optional = {
        name: columns[name]
        for name in ("sd", "low", "high", "iqm", "iqm_low", "iqm_high")
        if np.isfinite(columns[name]).all()
    }
    return Aggregate(
        n=count, mean=columns["mean"], minimum=columns["min"], maximum=columns["max"], **optional
    )


def _summary(context: StepContext) -> Mapping[str, Any]:
    """average/summary.json. Raises `WrongDirectory` if it is damaged."""
    path = context.directory.average / "summary.json"
    try:
        return parsed(read_bytes(path))
    except (ValueError, RecursionError) as error:
        remedy = "delete it, and average makes it again"
        raise WrongDirectory(f"{path} is damaged ({error}); {remedy}") from None


def _evaluation(context: StepContext) -> Figure | None:
    """The evaluation. Its interval comes from average/summary.json; the episodes come from the
    runs' own files.
    """
    import numpy as np

    from steps.figures.averaged_runs import evaluation

    scores = _summary(context)["evaluation"]
    if scores["n"] == 0:
        return None
    low, high = scores.get("t_interval") or (None, None)
    iqm_low, iqm_high = scores.get("iqm_interval") or (None, None)
    values = {**scores, "low": low, "high": high, "iqm_low": iqm_low, "iqm_high": iqm_high}
    numbers = {
        name: np.array([values.get(name)], np.float64)
        for name in ("mean", "min", "max", "sd", "low", "high", "iqm", "iqm_low", "iqm_high")
    }
    states = {run.index: usability(run, context.resolved).state for run in _runs(context)}
    measure = context.resolved.measure
    values_of, dots = _values(context)
    return evaluation(
        _heading(
            context,
            "Evaluation",
            scores["n"],
            "runs: those above the threshold" if "skipped" in states.values() else "runs",
        ),
        measure,
        {index: values_of[index] for index, state in states.items() if state == "complete"},
        {
            index: "below the threshold" if state == "skipped" else state
            for index, state in states.items()
            if state != "complete"
        },
        _aggregate(scores["n"], numbers),
        dots=dots,
        of="" if context.resolved.descriptor.has_workers else "an episode",
        solved=context.resolved.solved,
    )


def _values(context: StepContext) -> tuple[dict[int, list[float]], str]:
    """The values of each run that are drawn, their means, and what they are, in words."""
    measure = context.resolved.measure
    if context.resolved.descriptor.has_workers:
        from steps.arena.plots import rates_of_ladder

        dots = "each player of the ladder, all with equally many games"
        return {run.index: rates_of_ladder(run) for run in _runs(context)}, dots
    values = {
        run.index: [one.value for one in evaluation_episodes(run, measure)]
        for run in _runs(context)
    }
    return values, f"fresh episodes of the final policy ({context.resolved.evaluation_policy})"


def _heading(context: StepContext, title: str, used: int, kind: str = "runs") -> Heading:
    """The texts above a plot. kind: which runs the sample consists of, if they were selected by
    their results.
    """
    from steps.figures.averaged_runs import Heading
    from steps.figures.style import experiment_line

    sample = f"n = {used} of {context.resolved.experiment.runs} {kind}"
    return Heading(
        title=title, subtitle=f"{experiment_line(context.resolved)} in each run", sample=sample
    )


def _runs(context: StepContext) -> list[RunDirectory]:
    return [context.directory.run(index) for index in range(context.resolved.experiment.runs)]


def _plots(context: StepContext) -> Path:
    return context.directory.average / "plots"


def _are_written(context: StepContext) -> bool:
    names = context.previous.names("plots") if context.previous is not None else []
    return all(
        (_plots(context) / f"{name}.{kind}").is_file() for name in names for kind in ("png", "svg")
    )


if __name__ == "__main__":
    end(main())
