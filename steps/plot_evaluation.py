"""The plot of one evaluation: `python -m steps.plot_evaluation --outdir results/cartpole --run 0`.

Writes plots/evaluation of the run, as PNG and as SVG; after self-play that is who beats whom, and
plots/ratings and plots/strength stand beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from config.ending import end
from config.errors import BadInput
from config.pipeline import EVALUATE
from steps.command.context import StepContext
from steps.command.main import run_step
from steps.directory.experiment import evaluation_inputs
from steps.directory.usable import evaluation_episodes, faulty_value, fingerprint

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def main(argv: Sequence[str] | None = None) -> int:
    """Run the step and return its exit code."""
    return run_step(
        "plot-evaluation",
        plot_evaluation,
        inputs=inputs,
        complete=_is_written,
        argv=argv,
    )


def inputs(context: StepContext) -> Mapping[str, Any]:
    """What the plots depend on."""
    tables = [context.run.evaluated(context.resolved.measure)]
    if context.resolved.descriptor.has_workers:
        tables.append(context.run.arena_csv)
    return {
        **evaluation_inputs(context.record),
        "files": fingerprint(context.directory.root, tables),
    }


def plot_evaluation(context: StepContext) -> dict[str, Any]:
    """Draw the distribution of one run's evaluation episodes, or the standing of its arena."""
    from steps.figures.style import look, write

    with look():
        figures = _figures(context)
        for name, figure in figures.items():
            write(figure, context.run.plots / name)
    return {"plots": list(figures)}


def _figures(context: StepContext) -> dict[str, Figure]:
    """File name -> figure."""
    resolved = context.resolved
    measure = context.resolved.measure
    path = context.require(context.run.evaluated(measure), EVALUATE)
    episodes = evaluation_episodes(context.run, measure)
    if fault := faulty_value(episodes, measure) if episodes else "there is no episode":
        raise BadInput(f"{path}: {fault}: {EVALUATE} makes it")
    if resolved.descriptor.has_workers:
        from steps.arena.plots import run_figures

        context.require(context.run.arena_csv, EVALUATE)
        return run_figures(context)
    from steps.figures.run import evaluation
    from steps.figures.style import experiment_line

    figure = evaluation(
        [one.value for one in episodes],
        measure,
        title=f"Run {context.run.index}: evaluation",
        subtitle=experiment_line(resolved),
        policy=resolved.evaluation_policy,
        solved=resolved.solved,
    )
    return {"evaluation": figure}


def _is_written(context: StepContext) -> bool:
    names = context.previous.names("plots") if context.previous is not None else []
    return all(
        (context.run.plots / f"{name}.{kind}").is_file()
        for name in names or ["evaluation"]
        for kind in ("png", "svg")
    )


if __name__ == "__main__":
    end(main())
