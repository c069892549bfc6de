"""The plot of one evaluation: `python -m steps.plot_evaluation --outdir results/cartpole --run 0`.

Writes plots/evaluation of the run, as PNG and as SVG.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from config.errors import BadInput
from config.pipeline import EVALUATE
from steps.command.context import StepContext
from steps.command.main import run_step
from steps.directory.usable import evaluation_episodes, faulty_value, fingerprint


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code of the step."""
    return run_step(
        "plot-evaluation",
        plot_evaluation,
        inputs=inputs,
        complete=_is_written,
        argv=argv,
    )


def inputs(context: StepContext) -> Mapping[str, Any]:
    """The numbers that are drawn."""
    return {
        "identity": context.record.identity_hash,
        "files": fingerprint(
            context.directory.root, [context.run.evaluated(context.resolved.measure)]
        ),
    }


def plot_evaluation(context: StepContext) -> dict[str, Any]:
    """Draw how one run's evaluation episodes are spread."""
    resolved, measure = context.resolved, context.resolved.measure
    path = context.require(context.run.evaluated(measure), EVALUATE)
    episodes = evaluation_episodes(context.run, measure)
    if fault := faulty_value(episodes, measure) if episodes else "there is no episode":
        raise BadInput(f"{path}: {fault}: {EVALUATE} makes it")
    from steps.figures.run import evaluation
    from steps.figures.style import experiment_line, look, write

    with look():
        figure = evaluation(
            [one.value for one in episodes],
            measure,
            title=f"Run {context.run.index}: evaluation",
            subtitle=experiment_line(resolved),
            policy=resolved.evaluation_policy,
            solved=resolved.solved,
        )
        write(figure, context.run.plots / "evaluation")
    return {"plots": ["evaluation"]}


def _is_written(context: StepContext) -> bool:
    return all((context.run.plots / f"evaluation.{kind}").is_file() for kind in ("png", "svg"))


if __name__ == "__main__":
    sys.exit(main())
