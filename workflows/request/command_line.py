"""The command line of `workflows.submit`: its options, and the request made from them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from config.algorithms import ALGORITHMS
from config.errors import BadInput, shown
from config.given import from_assignments
from config.webhook import NOTIFY
from workflows.request.preflight import MOUNT

LONGEST_DEADLINE_S = 366 * 24 * 3600


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request as the command line states it; nothing else has been read.

    algorithm: or the file of a study; None if none was named. given: the parameters, `-p name=value`. local, argo: where to
    run, if that was said. presets, cluster: the user's own files. storage: the folder that pods see
    as /storage. whole: whether an installed template is passed over. dry_run, manifest, templates, list, follow and detach exclude each other.
    """

    algorithm: str | None
    given: Mapping[str, str]
    local: bool
    argo: bool
    slurm: bool
    engine_job: bool
    dry_run: bool
    manifest: bool
    templates: bool
    whole: bool
    list: bool
    follow: str | None
    detach: bool
    name: str | None
    deadline_s: int | None
    presets: Path | None
    cluster: Path | None
    storage: Path | None
    help: bool
    version: bool

    @property
    def only_shows(self) -> bool:
        """Whether the request only prints something and runs no experiment."""
        return self.help or self.version or self.list or self.prints or self.dry_run

    @property
    def prints(self) -> bool:
        """Whether the request prints YAML for a cluster."""
        return self.manifest or self.templates


def parse(arguments: Sequence[str]) -> Request:
    """The request of a command line. Raises `BadInput`."""
    options, rest = parser().parse_known_args(arguments)
    if rest:
        if "=" in rest[0] and not rest[0].startswith("-"):
            hint = f"; did you mean -p {rest[0]}?"
        else:
            hint = "; --help lists the options"
        raise BadInput(f"unknown argument {shown(rest[0])}{hint}")
    given = vars(options)
    assignments = given.pop("p")
    if (address := given.pop(NOTIFY)) is not None:
        assignments = [*assignments, f"{NOTIFY}={address}"]
    only_shows = options.help or options.version or options.list
    return Request(**given, given={} if only_shows else from_assignments(assignments))


def parser() -> argparse.ArgumentParser:
    """The parser of the command's options. Each option fills the field of `Request` with its name."""
    parser = _Parser(
        prog="python -m workflows.submit",
        description="Run a whole experiment: on this machine, or on a cluster through the Argo Server that ARGO_SERVER names.",
        add_help=False,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "algorithm",
        nargs="?",
        help=f"what to train with: {', '.join(ALGORITHMS)}, or package.module:NAME of your own; or "
        "the file of a study, such as study.yaml",
    )
    add(
        "-p",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a parameter; as often as needed",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--local", action="store_true", help="run on this machine, whatever ARGO_SERVER says"
    )
    where.add_argument(
        "--argo",
        action="store_true",
        help="submit to the Argo Server of ARGO_SERVER, never run here",
    )
    where.add_argument(
        "--slurm",
        action="store_true",
        help="run on the Slurm cluster of this login node, as its jobs",
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--dry-run", action="store_true", help="show what would run, with every resolved parameter"
    )
    instead.add_argument(
        "--manifest", action="store_true", help="print the workflow as YAML, for `argo submit`"
    )
    instead.add_argument(
        "--templates",
        action="store_true",
        help="print workflow templates as YAML, for `kubectl apply -f -`: of one algorithm, or all",
    )
    instead.add_argument(
        "--list", action="store_true", help="show algorithms, games and parameters"
    )
    instead.add_argument(
        "--follow",
        metavar="NAME",
        help="follow a workflow on the Argo Server again; with --slurm, the experiment in a directory",
    )
    instead.add_argument(
        "--engine-job",
        action="store_true",
        help="with --slurm: follow and steer the experiment in a job of its own, not in this process",
    )
    instead.add_argument(
        "--detach", action="store_true", help="submit to the Argo Server and do not follow"
    )
    add(
        "--whole",
        action="store_true",
        help="send the whole workflow to the Argo Server, even where its template is installed",
    )
    add("--name", help="name of the workflow; default: made from algorithm and game")
    add(
        "--deadline",
        metavar="SECONDS",
        dest="deadline_s",
        type=_deadline,
        help="stop after so many seconds; the report is still made",
    )
    add(
        "--notify",
        metavar="URL",
        help="web address that is told how it ended; the same as -p notify=URL",
    )
    add(
        "--presets",
        metavar="FILE",
        type=Path,
        help="values of your own, in a section for each algorithm as in config/games/*.yaml; -p wins",
    )
    add(
        "--cluster",
        metavar="FILE",
        type=Path,
        help="settings of your own cluster, which override those of config/cluster.yaml; those of Slurm "
        "are in its section slurm",
    )
    add(
        "--storage",
        metavar="DIR",
        type=Path,
        help=f"the folder that pods see as {MOUNT}; default here: storage/",
    )
    add(
        "-h", "--help", action="store_true", help="show this; with an algorithm, its parameters too"
    )
    add("--version", action="store_true", help="show the version")
    return parser


def _deadline(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text) or int(text) > LONGEST_DEADLINE_S:
        raise argparse.ArgumentTypeError(
            f"cannot be {shown(text)}; allowed: an integer from 1 to {LONGEST_DEADLINE_S} (seconds)"
        )
    return int(text)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadInput(message)
