"""Compares algorithms over games: `python -m steps.compare A B C --outdir DIR`.

Each of A, B, C is a directory or a file with trainings: our experiments and studies, those of
Stable-Baselines3, TensorBoard's event files (CleanRL and others), exports of W&B, any CSV. What a
source does not say is written behind it: `PATH:label=PPO:game=hopper`. Writes `comparison/` below DIR,
with numbers, tables and figures, and the page DIR/report.html.

In the workflow of a study it is `python -m steps.compare --outdir STUDY`, which compares the study's
experiments by its file, as far as they are done, and writes numbers and tables alone.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from config.ending import end
from config.errors import BadInput, WrongDirectory, on_one_line, shown, unknown
from config.games import LARGEST_RETURN, find_game
from config.outdir import check_outdir
from steps.command.main import guarded
from steps.comparison.compare import SEED, compare
from steps.comparison.compared import Comparison, Decided
from steps.comparison.entries import Entry
from steps.comparison.readers import OPTIONS, read
from steps.comparison.stored_comparison import read_comparison, write_comparison
from steps.comparison.study_entries import study_entries
from steps.comparison.unequal import listed
from steps.directory.files import make_and_probe, read_bytes
from steps.directory.layout import ExperimentDirectory
from steps.directory.study import StudyDirectory

OF_SOURCES = ("baseline", "score", "title")
"""Options that a study's file decides."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the step and return its exit code."""
    arguments = _parser().parse_args(argv)
    work = _compare_sources if arguments.sources else _compare_own
    return guarded("compare", lambda: work(arguments))


def _compare_own(arguments: argparse.Namespace) -> int:
    """Compare the experiments of the study in `outdir`."""
    for name in OF_SOURCES:
        if getattr(arguments, name):
            raise BadInput(
                f"option --{name} needs directories or files to compare; a study says it in its "
                "file, below 'compare'"
            )
    outdir = check_outdir(arguments.outdir, os.environ.get("STORAGE") or None)
    compare_study(StudyDirectory(outdir))
    return 0


def compare_study(directory: StudyDirectory) -> bool:
    """Compare the experiments of a study, as far as they are done, and write numbers and tables. Returns
    whether the comparison is another one than before.
    """
    found = study_entries(directory)
    comparison = compare(
        found.entries,
        title=title_of(found.entries, directory.root.name),
        baseline=found.baseline,
        settings=found.settings,
        ranges=found.ranges,
        seed=SEED,
        missing=found.missing,
        asked=found.asked,
    )
    comparison = replace(comparison, decided=read_decided(directory))
    is_new = write_comparison(comparison, directory.root)
    _print(comparison)
    return is_new


def read_decided(directory: StudyDirectory) -> tuple[Decided, ...]:
    """What `decide` has written; nothing of a study whose number of runs is fixed. Raises
    `WrongDirectory` for a damaged file.
    """
    path = directory.decisions_json
    try:
        return tuple(Decided(**one) for one in json.loads(read_bytes(path)))
    except FileNotFoundError:
        return ()
    except (ValueError, TypeError, RecursionError) as error:
        raise WrongDirectory(f"{path} cannot be read: {on_one_line(error)}") from error


def _compare_sources(arguments: argparse.Namespace) -> int:
    """Compare whatever lies in the sources, and make figures and page."""
    directory = StudyDirectory(check_outdir(arguments.outdir, os.environ.get("STORAGE") or None))
    _refuse_other_results(directory)
    entries = [entry for source in arguments.sources for entry in read(source)]
    comparison = compare(
        entries,
        title=arguments.title or title_of(entries, directory.root.name),
        baseline=arguments.baseline or None,
        ranges=read_ranges(arguments.score, [entry.game for entry in entries]),
        seed=SEED,
        asked={"sources": ", ".join(arguments.sources)},
    )
    make_and_probe(directory.root)
    write_comparison(comparison, directory.root)
    _print(comparison)
    show(directory)
    return 0


def show(directory: StudyDirectory, *, redraw: bool = True) -> None:
    """Write the page of the comparison that lies there. redraw: and its figures."""
    # Imported here because matplotlib takes a second, and only figures and page need it.
    from steps.figures.comparison import draw
    from steps.page.comparison import write_page

    comparison = read_comparison(directory.root)
    if redraw:
        draw(comparison, directory.plots)
    links = links_from(directory.root, comparison)
    write_page(comparison, plots=directory.plots, path=directory.report_html, links=links)
    print(f"page: {directory.report_html}")


def links_from(folder: Path, comparison: Comparison) -> dict[tuple[str, str], str]:
    """By label and game the page of the experiment, relative to a folder."""
    return {
        place: Path(os.path.relpath(standing.page, folder)).as_posix()
        for place, standing in comparison.standings.items()
        if standing.page is not None
    }


def title_of(entries: Sequence[Entry], fallback: str) -> str:
    """What is compared, in a few words."""
    labels = list(dict.fromkeys(entry.label for entry in entries))
    games = list(dict.fromkeys(entry.game for entry in entries))
    if not labels:
        return fallback
    return f"{listed(labels, 'labels')} on {listed(games, 'games')}"


def read_ranges(given: Sequence[str], games: Sequence[str]) -> Mapping[str, tuple[float, float]]:
    """The ranges of scores in texts such as `hopper=-20,3234`. Raises `BadInput`."""
    ranges: dict[str, tuple[float, float]] = {}
    for text in given:
        name, equals, ends = text.rpartition("=")
        score_range = _range(ends)
        if not equals or score_range is None:
            raise BadInput(
                f"option --score cannot be {shown(text)}; allowed: GAME=LOW,HIGH, two different "
                "values, which are score 0 and score 1"
            )
        game = _game(name, games)
        if game in ranges:
            raise BadInput(f"option --score is given twice for {shown(game)}")
        ranges[game] = score_range
    return ranges


def _range(ends: str) -> tuple[float, float] | None:
    """Two different numbers with a comma between; None for anything else."""
    try:
        low, high = (float(end) for end in ends.split(","))
    except ValueError:
        return None
    is_range = low != high and abs(low) <= LARGEST_RETURN and abs(high) <= LARGEST_RETURN
    return (low, high) if is_range else None


def _game(name: str, games: Sequence[str]) -> str:
    """A game of the comparison by its name or its id."""
    if name in games:
        return name
    try:
        known = find_game(name).name
    except BadInput:
        known = name
    if known not in games:
        raise unknown("game in --score", name, set(games))
    return known


def _refuse_other_results(directory: StudyDirectory) -> None:
    """Raise `BadInput` for a directory whose page and comparison are of something else."""
    for path, what in (
        (ExperimentDirectory(directory.root).experiment_yaml, "an experiment"),
        (directory.cells_json, "a study"),
    ):
        if path.exists():
            raise BadInput(
                f"outdir {directory.root} is the directory of {what}; allowed: a directory for "
                "this comparison alone"
            )


def _print(comparison: Comparison) -> None:
    print(f"{comparison.title}: {len(comparison.standings)} entries")
    for sentence in (*comparison.unequal, *comparison.missing):
        print(f"  {sentence}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m steps.compare",
        description=f"{inspect.cleandoc(__doc__ or '')}\n\nOptions of a source:\n{_options()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("sources", nargs="*", metavar="SOURCE", help="directories and files")
    parser.add_argument(
        "--outdir", required=True, help="directory of the comparison, or of the study"
    )
    parser.add_argument(
        "--baseline", default="", metavar="LABEL", help="what others are compared with"
    )
    parser.add_argument(
        "--score",
        action="append",
        default=[],
        metavar="GAME=LOW,HIGH",
        help="the values that are score 0 and score 1 of a game, as often as needed",
    )
    parser.add_argument("--title", default="", help="heading of the page")
    return parser


def _options() -> str:
    return "\n".join(f"  {name:14}{meaning}" for name, meaning in OPTIONS.items())


if __name__ == "__main__":
    end(main())
