"""Deletes what old experiments no longer need: `python -m steps.prune results --keep last=5`.

Looks at the experiments below a folder and keeps those that at least one rule names: the N newest
(`last=N`), those in which something was written within N days (`days=N`), the N best of each game
(`best=N`). Of the others it deletes the state, which only further training and evaluation need
(`--what state`), or everything (`--what all`). Says what it would delete; does so only with `--yes`.
What a workflow works on, what is damaged, what no experiment is and what links lead to is left alone.
No step of the DAG.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from config.ending import end
from config.errors import BadInput, ExperimentError, on_one_line, printable
from config.numbers import byte_size, counted
from steps import report
from steps.browsing.overview import Overview
from steps.browsing.places import folder_named, kind_of
from steps.command.main import guarded
from steps.directory.layout import ExperimentDirectory
from steps.directory.status import read_status
from steps.pruning.deleting import (
    deletable,
    delete_all,
    delete_state,
    finish,
    size_of,
    unfinished,
)
from steps.pruning.rules import kept_by, never, parse_rule


@dataclass(frozen=True)
class Planned:
    """What is done to one experiment. folders: what goes. kept: why nothing goes; empty if something does."""

    path: Path
    folders: tuple[Path, ...] = ()
    size_bytes: int = 0
    kept: str = ""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 1 if something could not be deleted."""
    parsed = _parser().parse_args(argv)
    return guarded("prune", lambda: prune(parsed))


def prune(parsed: argparse.Namespace) -> int:
    """Say what would be deleted, or delete it. Raises `BadInput`."""
    root = folder_named(parsed.root)
    is_whole = parsed.what == "all"
    if is_whole and kind_of(root) is not None:
        raise BadInput(
            f"root {root} is itself the directory of one {kind_of(root)}; allowed with --what all: "
            "a folder above it"
        )
    plans = list(planned(root, parsed.keep, is_whole=is_whole))
    left = [path for folder in _folders_of(root, plans) for path in unfinished(folder)]
    for path in left:
        print(f"left by an interrupted call: {printable(str(path))}")
    for one in plans:
        print(_said(one, root, is_whole=is_whole))
    going = [one for one in plans if not one.kept]
    size = byte_size(sum(one.size_bytes for one in going))
    count = counted(len(going), "experiment")
    if not parsed.yes:
        print(f"{size} of {count} would be deleted; --yes deletes")
        return 0
    failed = [_done(one, is_whole=is_whole) for one in going].count(False)
    failed += [_finished(path) for path in left].count(False)
    print(f"{size} of {count} deleted" if not failed else f"{failed} of {count} not deleted")
    return 1 if failed else 0


def planned(root: Path, keep: Sequence[str], *, is_whole: bool) -> Iterator[Planned]:
    """What is to be done to each experiment, in the order of their paths."""
    rules = [parse_rule(text) for text in keep]
    rows = Overview(root).rows()
    wholes = {row.place.path: row for row in rows if row.place.kind in ("study", "search")}
    experiments = [row for row in rows if row.place.kind == "experiment"]
    alone = {row.place.path: never(row, wholes, is_whole=is_whole) for row in experiments}
    kept = kept_by(rules, [row for row in experiments if not alone[row.place.path]])
    for row in experiments:
        path = row.place.path
        why = alone[path] or kept.get(path, "")
        yield Planned(path, kept=why) if why else _to_delete(path, is_whole=is_whole)


def _to_delete(path: Path, *, is_whole: bool) -> Planned:
    try:
        folders = deletable(ExperimentDirectory(path), is_whole=is_whole)
    except (ExperimentError, OSError) as error:
        return Planned(path, kept=on_one_line(error))
    if not folders:
        return Planned(path, kept="it has no state")
    return Planned(path, tuple(folders), size_of(folders))


def _said(one: Planned, root: Path, *, is_whole: bool) -> str:
    name = printable(one.path.relative_to(root).as_posix())
    if one.kept:
        return f"keep    {name}: {one.kept}"
    what = "everything"
    if not is_whole:
        what = ", ".join(dict.fromkeys(folder.name for folder in one.folders))
    return f"delete  {name}: {what}, {byte_size(one.size_bytes)}"


def _done(one: Planned, *, is_whole: bool) -> bool:
    """Delete; whether that went well. A refusal is one line, and the others are done all the same."""
    directory = ExperimentDirectory(one.path)
    try:
        if is_whole:
            delete_all(directory)
        else:
            delete_state(directory)
            _report_again(directory)
    except (ExperimentError, OSError) as error:
        print(f"prune: {printable(str(one.path))}: {on_one_line(error)}", file=sys.stderr)
        return False
    return True


def _finished(path: Path) -> bool:
    try:
        finish(path)
    except OSError as error:
        print(f"prune: {printable(str(path))}: {on_one_line(error)}", file=sys.stderr)
        return False
    return True


def _report_again(directory: ExperimentDirectory) -> None:
    """Let the report, if there is one, say that the state is gone."""
    if not directory.report_html.is_file():
        return
    before = read_status(directory.status / "report.json")
    inputs = before.inputs if before is not None else None
    status = str((inputs or {}).get("workflow_status") or "")
    words = [f"--outdir={directory.root}", f"--workflow-status={status}"]
    # What it prints is not about pruning, and an incomplete experiment stays one.
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        report.main(words)


def _folders_of(root: Path, plans: Sequence[Planned]) -> list[Path]:
    """Where an interrupted call may have left something: beside experiments that are there, and in the root
    and the folders directly below it.
    """
    below = [path for path in root.iterdir() if path.is_dir() and not path.is_symlink()]
    return list(dict.fromkeys([root, *below, *(one.path.parent for one in plans)]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m steps.prune",
        description=inspect.cleandoc(__doc__ or ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("root", metavar="ROOT", help="the folder that contains the experiments")
    parser.add_argument(
        "--keep",
        action="append",
        required=True,
        metavar="RULE",
        help="last=N, days=N or best=N; as often as needed; last=0 keeps nothing",
    )
    parser.add_argument(
        "--what",
        choices=("state", "all"),
        default="state",
        help="checkpoints, snapshots and replays alone, or whole directories (default: %(default)s)",
    )
    parser.add_argument("--yes", action="store_true", help="delete")
    return parser


if __name__ == "__main__":
    end(main())
