"""One page for all experiments, studies and searches below a folder: `python -m steps.browse results`.

Writes results/index.html, which opens from the file system. With `--serve` it serves the same page and
the files below the folder to whoever knows the address that it prints, and makes the report of an
experiment that still runs whenever its files have changed. No step of the DAG: it writes nothing else.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Sequence
from pathlib import Path

from config.ending import end
from config.errors import BadInput
from config.numbers import counted
from steps.browsing.overview import Overview
from steps.browsing.places import folder_named, kind_of
from steps.command.main import guarded
from steps.directory.files import open_regular, unwritable, write_if_changed
from steps.page.overview import GENERATOR, render

INTERRUPTED = 130
HEAD_BYTES = 4096
"""Of a page, in which its generator stands."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0, or 130 after Ctrl-C."""
    parsed = _parser().parse_args(argv)
    return guarded("browse", lambda: browse(parsed))


def browse(parsed: argparse.Namespace) -> int:
    """Write the page, or serve it until Ctrl-C. Raises `BadInput`."""
    root = folder_named(parsed.root)
    if parsed.serve:
        return _serve(root, parsed)
    for name in ("port", "host"):
        if getattr(parsed, name) is not None:
            raise BadInput(f"option --{name} needs --serve")
    _write(root)
    return 0


def _write(root: Path) -> None:
    """Write index.html. Raises `BadInput` where that would replace or disturb something else."""
    page = root / "index.html"
    kind = kind_of(root)
    if kind is not None:
        raise BadInput(
            f"root {root} is the directory of one {kind}, whose page is report.html; allowed: a "
            "folder above it, or --serve, which writes nothing"
        )
    if not _is_ours(page):
        raise BadInput(f"{page} was not written by this command; remove it, or use --serve")
    rows = Overview(root).rows()
    try:
        write_if_changed(page, render(rows, root, is_served=False))
    except OSError as error:
        raise unwritable(page, error) or error from error
    print(f"{counted(sum(row.place.kind == 'experiment' for row in rows), 'experiment')}: {page}")


def _is_ours(page: Path) -> bool:
    """Whether a page may be replaced: there is none, or this command has written it."""
    try:
        with open_regular(page) as file:
            return f'content="{GENERATOR}"'.encode() in file.read(HEAD_BYTES)
    except FileNotFoundError:
        return not page.is_symlink()
    except OSError:
        return False


def _serve(root: Path, parsed: argparse.Namespace) -> int:
    from steps.browsing.server import HOST, BrowseServer

    try:
        with BrowseServer(root, parsed.host or HOST, parsed.port or 0) as server:
            print(f"Open {server.address} in a browser; Ctrl-C ends.", flush=True)
            server.serve_forever()
    except KeyboardInterrupt:
        print("\nbrowse: interrupted", file=sys.stderr)
        return INTERRUPTED
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m steps.browse",
        description=inspect.cleandoc(__doc__ or ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("root", metavar="ROOT", help="the folder that contains the experiments")
    parser.add_argument("--serve", action="store_true", help="serve the page until Ctrl-C")
    parser.add_argument("--port", type=int, help="where to listen (default: any free port)")
    parser.add_argument(
        "--host", help="the address to listen on (default: 127.0.0.1, this machine alone)"
    )
    return parser


if __name__ == "__main__":
    end(main())
