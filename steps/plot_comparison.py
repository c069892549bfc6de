"""The figures of a comparison: `python -m steps.plot_comparison --outdir results/gae`.

Draws what comparison/comparison.json says into comparison/plots, each figure as PNG, SVG and PDF.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from config.ending import end
from config.outdir import check_outdir
from steps.command.main import command_parser, guarded
from steps.comparison.stored_comparison import read_comparison
from steps.directory.study import StudyDirectory


def main(argv: Sequence[str] | None = None) -> int:
    """Run the step and return its exit code."""
    parser = command_parser("steps.plot_comparison", sys.modules[__name__], in_run=False)
    arguments = parser.parse_args(argv)
    return guarded("plot-comparison", lambda: plot_comparison(arguments))


def plot_comparison(arguments: argparse.Namespace) -> int:
    """Draw all figures. Raises `BadInput` where nothing was compared."""
    outdir = check_outdir(arguments.outdir, os.environ.get("STORAGE") or None)
    draw_figures(StudyDirectory(outdir))
    return 0


def draw_figures(directory: StudyDirectory) -> None:
    """Draw the figures of the comparison that lies in a directory."""
    comparison = read_comparison(directory.root)
    # Imported here because matplotlib takes a second, and a wrong directory needs none of it.
    from steps.figures.comparison import draw

    written = draw(comparison, directory.plots)
    print(f"drew {len({path.stem for path in written})} figures in {directory.plots}")


if __name__ == "__main__":
    end(main())
