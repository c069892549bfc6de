"""`python -m workflows.submit ppo -p game=cartpole -p runs=3`: a whole experiment by one command, which
is installed as `rl-dag`, too.

With an Argo Server configured (`ARGO_SERVER`, `ARGO_TOKEN`, `ARGO_NAMESPACE`, `ARGO_SECURE`, as the
`argo` command reads them) the manifest is submitted there and followed; otherwise it runs on this
machine. Everything that can be checked is checked before anything is sent or written.

Exit codes: 0 succeeded, 1 failed, 2 refused, 130 interrupted, also by a reader of the output that
left before the end.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import secrets
import select
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from config import VERSION
from config.algorithms import ALGORITHMS, algorithm_names, find_algorithm
from config.cluster import Cluster, defaults, load_cluster
from config.errors import BadInput, ExperimentError, on_one_line, shown
from config.given import from_assignments, over_presets
from config.ladder import with_directories
from config.outdir import default_outdir
from config.presets import presets_of_file
from config.resolve import resolve
from config.streams import prepare_streams
from workflows import on_cluster, on_this_machine
from workflows.cluster import server
from workflows.dag.render import rendered, to_yaml, with_values
from workflows.local import detect
from workflows.progress.ending import FAILED, INTERRUPTED, REFUSED, SUCCEEDED
from workflows.request import listing
from workflows.request.preflight import MOUNT, Place, check_this_machine, cluster_outdir, place
from workflows.request.submission import Submission
from workflows.sharing import fitted, how_shared, with_gpus

NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
FOLLOWED = re.compile(r"[a-z0-9][-.a-z0-9]{0,252}")
LONGEST_DEADLINE_S = 366 * 24 * 3600
EXAMPLES = """examples:
  python -m workflows.submit ppo -p game=cartpole -p runs=3
  python -m workflows.submit ppo -p game=breakout -p epochs=2000 -p outdir=results/breakout --dry-run
  python -m workflows.submit ppo --cluster my-cluster.yaml --manifest > ppo.yaml
"""


def console() -> int:
    """The command `rl-dag`: `main`, which finds modules in the working directory as `python -m` does."""
    sys.path.insert(1, "")
    return main()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; only here do exceptions become exit codes."""
    prepare_streams(
        forgiving=["stderr"]
    )  # how an experiment ended is to be told: a lost reader of that is an interruption
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows no ✔ shows a ?
    try:
        options = _parse(sys.argv[1:] if arguments is None else arguments)
        code = _dispatch(options)
        sys.stdout.flush()
        return code
    except BadInput as error:
        print(f"refused: {on_one_line(error)}", file=sys.stderr)
        return REFUSED
    except ExperimentError as error:
        print(f"failed: {on_one_line(error)}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError:
        if not _reader_has_left():
            raise
        # `… --list | head` has seen enough; how an experiment ended, nobody was told.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return (
            SUCCEEDED
            if options.help
            or options.version
            or options.list
            or options.manifest
            or options.dry_run
            else INTERRUPTED
        )


def _reader_has_left() -> bool:
    """Whether standard output is a closed pipe or a closed terminal."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _dispatch(options: argparse.Namespace) -> int:
    if options.help:
        print(_parser().format_help())
        chosen = options.algorithm
        print("\n".join(listing.parameter_table(chosen)) if chosen else EXAMPLES)
        return SUCCEEDED
    if options.version:
        print(f"rl-training-dag {VERSION}")
        return SUCCEEDED
    if options.list:
        print(listing.everything([options.algorithm] if options.algorithm else algorithm_names()))
        return SUCCEEDED
    cluster = load_cluster(options.cluster)
    address = None if options.local else server.address(os.environ, cluster.namespace)
    _check_together(options, address)
    if options.follow:
        if address is None:
            raise BadInput(
                "--follow needs an Argo Server: set ARGO_SERVER=host:port, ARGO_TOKEN and ARGO_NAMESPACE"
            )
        return on_cluster.follow(address, _followed(options.follow), options.storage)
    submission = _checked(options, cluster, local=address is None)
    if options.manifest:
        print(to_yaml(submission.manifest, cluster), end="")
        return SUCCEEDED
    if options.dry_run:
        print(
            _plan(
                submission,
                "this machine"
                if address is None
                else f"Argo Server {address.url}, namespace {address.namespace}",
            )
        )
        return SUCCEEDED
    if address is None:
        return on_this_machine.run(submission)
    return on_cluster.submit(address, submission, options.storage, detach=options.detach)


def _checked(options: argparse.Namespace, cluster: Cluster, *, local: bool) -> Submission:
    """The request with every parameter resolved and everything refused that cannot work; nothing is
    written.
    """
    if not options.algorithm:
        raise BadInput(f"which algorithm? known: {', '.join(algorithm_names())}")
    algorithm = find_algorithm(options.algorithm)
    given = from_assignments(options.p)
    presets = presets_of_file(options.presets, options.algorithm) if options.presets else {}
    steps = presets.pop("steps", None)
    from_file = [name for name in presets if not given.get(name)]
    given = over_presets(presets, given)
    of_cluster = defaults(cluster, algorithm)
    resolved = resolve(options.algorithm, of_cluster | given, steps=steps)
    if steps is not None and not given.get("epochs"):
        from_file.append("epochs")
        given["epochs"] = str(resolved.epochs)
    label = _label(resolved.game.name)
    is_for_any_game = options.manifest and "game" not in given
    named = default_outdir(algorithm) if is_for_any_game else f"{MOUNT}/{algorithm.name}-{label}"
    outdir = given.get("outdir", named)
    where = place(outdir, options.storage) if local and not options.manifest else None
    values = {**given, "outdir": where.outdir if where else cluster_outdir(outdir)}
    if start_from := given.get("start_from"):
        values["start_from"] = _read_from(start_from, where, "start_from")
    if opponents := given.get("opponents"):
        values["opponents"] = with_directories(
            opponents, lambda outdir: _read_from(outdir, where, "opponents")
        )
    if imitate := given.get("imitate"):
        values["imitate"] = _read_from(imitate, where, "imitate")
    resolved = resolve(options.algorithm, of_cluster | values)
    if where is not None:
        check_this_machine(where, resolved)
    name = (
        ""
        if options.manifest and not options.name
        else _name(options.name or f"{algorithm.name}-{label}-{secrets.token_hex(3)}")
    )
    sharing = ""
    if where is not None and (members := resolved.members) is not None:
        machine = detect()
        sharing = how_shared(cluster, members, machine.cpus)
        cluster = with_gpus(fitted(cluster, members, machine.cpus), resolved, len(machine.gpus))
    manifest = with_values(
        rendered(options.algorithm, cluster), values, name=name, deadline_s=options.deadline
    )
    return Submission(
        name=name,
        resolved=resolved,
        given=values if "outdir" in given else given,
        manifest=manifest,
        place=where,
        presets=f"{options.presets}: {', '.join(from_file)}" if from_file else "",
        sharing=sharing,
    )


def _read_from(outdir: str, where: Place | None, name: str) -> str:
    """What an experiment reads, another one's directory or a file, as pods see it; where: this one's
    place, None on a cluster; name: the parameter's. Raises `BadInput`.
    """
    return place(outdir, where.storage, name).outdir if where else cluster_outdir(outdir, name)


def _name(text: str) -> str:
    if not NAME.fullmatch(text):
        raise BadInput(
            f"--name cannot be {shown(text)}; allowed: up to 63 of a-z, 0-9 and '-', not at the ends"
        )
    return text


def _followed(name: str) -> str:
    """Any workflow's name: it becomes a part of an address."""
    if not FOLLOWED.fullmatch(name):
        raise BadInput(
            f"--follow cannot be {shown(name)}; allowed: the name of a workflow, up to 253 of a-z, 0-9, '-' and '.'"
        )
    return name


def _label(game: str) -> str:
    """A game's name as a part of a directory's and a workflow's name: `ALE/Pong-v5` ->
    `ale-pong-v5`.
    """
    return re.sub(r"[^a-z0-9]+", "-", game.lower()).strip("-")[:40].strip("-")


def _plan(submission: Submission, where: str) -> str:
    directory = (
        submission.resolved.experiment.outdir
        if submission.place is None
        else str(submission.place.directory)
    )
    return listing.plan(
        submission.resolved,
        submission.given,
        submission.layout,
        where=where,
        directory=directory,
        presets=submission.presets,
    )


def _check_together(options: argparse.Namespace, address: server.Address | None) -> None:
    """Refuse options that exclude each other."""
    if address is None and (options.argo or options.detach):
        option = "--argo" if options.argo else "--detach"
        raise BadInput(
            f"{option} needs an Argo Server: set ARGO_SERVER=host:port, ARGO_TOKEN and ARGO_NAMESPACE"
        )
    if options.follow and (options.algorithm or options.p or options.presets):
        raise BadInput(
            "--follow takes the name of a workflow and no algorithm or parameters: they are those of the workflow"
        )


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadInput(message)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    options, rest = _parser().parse_known_args(arguments)
    if rest:
        hint = (
            f"; did you mean -p {rest[0]}?"
            if "=" in rest[0] and not rest[0].startswith("-")
            else "; --help lists the options"
        )
        raise BadInput(f"unknown argument {shown(rest[0])}{hint}")
    return options


def _parser() -> argparse.ArgumentParser:
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
        help=f"what to train with: {', '.join(ALGORITHMS)}, or package.module:NAME of your own",
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
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--dry-run", action="store_true", help="show what would run, with every resolved parameter"
    )
    instead.add_argument(
        "--manifest", action="store_true", help="print the workflow as YAML, for `argo submit`"
    )
    instead.add_argument(
        "--list", action="store_true", help="show algorithms, games and parameters"
    )
    instead.add_argument(
        "--follow", metavar="NAME", help="follow a workflow on the Argo Server again"
    )
    instead.add_argument(
        "--detach", action="store_true", help="submit to the Argo Server and do not follow"
    )
    add("--name", help="name of the workflow; default: made from algorithm and game")
    add(
        "--deadline",
        metavar="SECONDS",
        type=_deadline,
        help="stop after so many seconds; the report is still made",
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
        help="settings of your own cluster, over those of config/cluster.yaml",
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


if __name__ == "__main__":
    sys.exit(main())
