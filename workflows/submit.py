"""`python -m workflows.submit ppo -p game=cartpole -p runs=3` runs a whole experiment. It is also
installed as `rl-dag`.

If an Argo Server is configured (`ARGO_SERVER`, `ARGO_TOKEN`, `ARGO_NAMESPACE`, `ARGO_SECURE`, as
the `argo` command reads them), the manifest is submitted there and followed; otherwise it runs on
this machine. Everything that can be checked is checked before anything is sent or written.

Exit codes: 0 succeeded, 1 failed, 2 refused, 130 interrupted, also if the reader of the output left
before the end.
"""

from __future__ import annotations

import dataclasses
import io
import os
import re
import secrets
import select
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from config import VERSION
from config.algorithms import ALGORITHMS, algorithm_names, find_algorithm
from config.algorithms.descriptor import Algorithm
from config.cluster import Cluster, defaults, load_cluster
from config.ending import end
from config.errors import BadInput, ExperimentError, on_one_line, shown
from config.given import over_presets
from config.outdir import default_outdir
from config.own_packages import refuse_foreign
from config.presets import presets_of_file
from config.resolve import resolve
from config.resolved import STEPS, Resolved
from config.slurm import load_slurm
from config.streams import prepare_streams
from workflows import on_cluster, on_slurm, on_this_machine, studies
from workflows.cluster import server
from workflows.dag.installed import workflow_template
from workflows.dag.manifest_yaml import dump
from workflows.dag.render import SEARCH, STUDY, rendered, to_yaml, with_values
from workflows.local import detect
from workflows.progress.ending import FAILED, INTERRUPTED, REFUSED, SUCCEEDED
from workflows.request import listing
from workflows.request.command_line import Request, parse, parser
from workflows.request.directories import READ_FROM, seen_by_pods
from workflows.request.preflight import (
    MOUNT,
    Place,
    check_directory,
    check_this_machine,
    cluster_outdir,
    place,
)
from workflows.request.submission import Submission, check_name, title_of
from workflows.sharing import fitted_to_all

SLURM = "Slurm"
FOLLOWED = re.compile(r"[a-z0-9][-.a-z0-9]{0,252}")
EXAMPLES = """examples:
  python -m workflows.submit ppo -p game=cartpole -p runs=3
  python -m workflows.submit ppo -p game=breakout -p epochs=2000 -p outdir=results/breakout --dry-run
  python -m workflows.submit study.yaml --dry-run
  python -m workflows.submit ppo --cluster my-cluster.yaml --manifest > ppo.yaml
"""


def console() -> int:
    """The command `rl-dag`: `main`, which finds modules in the working directory as `python -m` does."""
    sys.path.insert(1, "")
    return main()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Only here do exceptions become exit codes."""
    # Standard output must not be forgiving: how an experiment ended has to reach somebody, and a
    # reader of it that is lost counts as an interruption.
    prepare_streams(forgiving=["stderr"])
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal whose encoding has no ✔ shows a ? in its place.
            stream.reconfigure(errors="replace")
    try:
        refuse_foreign()
        request = parse(sys.argv[1:] if arguments is None else arguments)
        code = _dispatch(request)
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
        # The reader of `… --list | head` has what it wanted. Of an experiment's end nobody was told.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return SUCCEEDED if request.only_shows else INTERRUPTED


def _reader_has_left() -> bool:
    """Whether standard output is a closed pipe or a closed terminal."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _dispatch(request: Request) -> int:
    if request.help:
        print(parser().format_help())
        chosen = None if studies.is_study(request) else request.algorithm
        print("\n".join(listing.parameter_table(chosen)) if chosen else EXAMPLES)
        return SUCCEEDED
    if request.version:
        print(f"rl-training-dag {VERSION}")
        return SUCCEEDED
    if request.list:
        print(listing.everything([request.algorithm] if request.algorithm else algorithm_names()))
        return SUCCEEDED
    cluster = load_cluster(request.cluster)
    is_here = request.local or request.slurm
    address = None if is_here else server.address(os.environ, cluster.namespace)
    _check_together(request, address)
    if request.templates:
        print(_templates(request, cluster), end="")
        return SUCCEEDED
    if request.follow and request.slurm:
        return on_slurm.follow(Path(request.follow))
    if request.follow:
        if address is None:
            raise BadInput(
                "--follow needs an Argo Server: set ARGO_SERVER=host:port, ARGO_TOKEN and ARGO_NAMESPACE"
            )
        return on_cluster.follow(address, _followed(request.follow), request.storage)
    if studies.is_study(request):
        return _submit_study(request, cluster, address)
    submission = _checked(request, cluster, local=address is None)
    if request.manifest:
        print(to_yaml(submission.manifest, request.algorithm or "", cluster), end="")
        return SUCCEEDED
    if request.slurm:
        trained = [] if submission.resolved is None else [submission.resolved]
        return _on_slurm(request, cluster, trained, [submission], _plan(submission, SLURM))
    if request.dry_run:
        print(_plan(submission, _named(address)))
        return SUCCEEDED
    if address is None:
        return on_this_machine.run(submission)
    return on_cluster.submit(address, submission, _sent(request, cluster))


def _on_slurm(
    request: Request,
    cluster: Cluster,
    trained: Sequence[Resolved],
    submissions: Sequence[Submission],
    plan: str,
) -> int:
    """Show or run what was checked, on Slurm. trained: the experiments in it."""
    slurm = load_slurm(request.cluster)
    asked = on_slurm.checked(slurm, cluster, trained, [] if request.dry_run else submissions)
    if request.dry_run:
        print("\n".join([plan, "", *asked]))
        return SUCCEEDED
    if request.engine_job:
        return on_slurm.in_a_job(submissions[0], slurm)
    codes = [SUCCEEDED]
    for one in submissions:
        if INTERRUPTED not in codes:
            codes.append(on_slurm.run(one, slurm, is_named=request.name is not None))
    return max(codes)


def _submit_study(request: Request, cluster: Cluster, address: server.Address | None) -> int:
    """The same for a study, which may be too large for one workflow."""
    study = studies.read(request, local=address is None)
    local = address is None
    submissions = studies.checked(request, study, cluster, local=local, jobs=request.slurm)
    if request.manifest:
        print("---\n".join(dump(one.manifest) for one in submissions), end="")
        return SUCCEEDED
    here = submissions[0].place
    storage = here.storage if here is not None else request.storage
    if request.slurm:
        plan = studies.plan(study, submissions, where=SLURM, storage=storage)
        trained = list(study.resolved.values())
        return _on_slurm(request, cluster, trained, submissions, plan)
    if request.dry_run:
        print(studies.plan(study, submissions, where=_named(address), storage=storage))
        return SUCCEEDED
    if address is None:
        return _one_after_another(submissions)
    sent = _sent(request, cluster)
    if len(submissions) > 1:
        sent = dataclasses.replace(sent, detach=True)
    return max(on_cluster.submit(address, one, sent) for one in submissions)


def _sent(request: Request, cluster: Cluster) -> on_cluster.Sending:
    """How a request is sent to an Argo Server."""
    return on_cluster.Sending(
        storage=request.storage,
        detach=request.detach,
        whole=request.whole,
        settings=cluster if request.cluster else None,
    )


def _templates(request: Request, cluster: Cluster) -> str:
    """The workflow templates of one algorithm, or of all of them, studies and searches."""
    kinds = [request.algorithm] if request.algorithm else [*ALGORITHMS, STUDY, SEARCH]
    return "---\n".join(dump(workflow_template(kind, cluster)) for kind in kinds)


def _one_after_another(submissions: Sequence[Submission]) -> int:
    """Run the parts of a study on this machine, until one is interrupted."""
    codes = [SUCCEEDED]
    for one in submissions:
        if INTERRUPTED not in codes:
            codes.append(on_this_machine.run(one))
    return max(codes)


def _named(address: server.Address | None) -> str:
    """Where an experiment runs, in words."""
    if address is None:
        return "this machine"
    return f"Argo Server {address.url}, namespace {address.namespace}"


def _checked(request: Request, cluster: Cluster, *, local: bool) -> Submission:
    """Resolve every parameter of a request once and return the submission. Raises `BadInput` for
    what cannot work. Writes nothing.
    """
    if not request.algorithm:
        raise BadInput(f"which algorithm? known: {', '.join(algorithm_names())}")
    algorithm = find_algorithm(request.algorithm)
    presets = presets_of_file(request.presets, request.algorithm) if request.presets else {}
    if request.given.get("epochs"):
        presets.pop(STEPS, None)
    given = over_presets(presets, request.given)
    resolved = resolve(request.algorithm, defaults(cluster, algorithm) | given)
    label = _label(resolved.game.name)
    outdir = given.get("outdir", _default_directory(request, algorithm, label))
    where = place(outdir, request.storage) if local and not request.manifest else None
    directories = _directories(given, outdir, where)
    resolved = resolved.with_directories(directories)
    values = given | directories
    if where is not None:
        check = check_directory if request.slurm else check_this_machine
        resolved = check(where, resolved)
    sharing = ""
    if where is not None and resolved.members is not None and not request.slurm:
        machine = detect()
        cluster, _, sharing = fitted_to_all(cluster, 1, [resolved], machine.cpus, len(machine.gpus))
    name = request.name or f"{algorithm.name}-{label}-{secrets.token_hex(3)}"
    name = "" if request.manifest and not request.name else check_name(name)
    manifest = rendered(request.algorithm, cluster)
    from_file = [one for one in presets if not request.given.get(one)]
    return Submission(
        name=name,
        resolved=resolved,
        title=title_of(resolved),
        given=frozenset(values if "outdir" in given else set(values) - {"outdir"}),
        manifest=with_values(manifest, values, name=name, deadline_s=request.deadline_s),
        place=where,
        presets=f"{request.presets}: {', '.join(from_file)}" if from_file else "",
        sharing=sharing,
        kind=request.algorithm,
        values=values,
        deadline_s=request.deadline_s,
    )


def _default_directory(request: Request, algorithm: Algorithm, label: str) -> str:
    """The results directory if none is given. It is named after the game, unless the manifest is
    for any game.
    """
    if request.manifest and "game" not in request.given:
        return default_outdir(algorithm)
    return f"{MOUNT}/{algorithm.name}-{label}"


def _directories(given: Mapping[str, str], outdir: str, where: Place | None) -> dict[str, str]:
    """The parameters that name a directory or a file, as pods see them. Raises `BadInput`."""
    seen = {"outdir": where.outdir if where else cluster_outdir(outdir)}
    for name in READ_FROM:
        if text := given.get(name):
            seen[name] = seen_by_pods(name, text, where)
    return seen


def _followed(name: str) -> str:
    """The name of the workflow to follow. Any text is checked, because it becomes part of a URL."""
    if not FOLLOWED.fullmatch(name):
        raise BadInput(
            f"--follow cannot be {shown(name)}; allowed: the name of a workflow, up to 253 of a-z, 0-9, '-' and '.'"
        )
    return name


def _label(game: str) -> str:
    """A game's name as part of the directory's and the workflow's name: `ALE/Pong-v5` ->
    `ale-pong-v5`.
    """
    return re.sub(r"[^a-z0-9]+", "-", game.lower()).strip("-")[:40].strip("-")


def _plan(submission: Submission, where: str) -> str:
    resolved = submission.resolved
    if resolved is None:
        raise ValueError("a study has a plan of its own")
    return listing.plan(
        resolved,
        submission.given,
        submission.layout,
        where=where,
        directory=submission.seen_directory,
        presets=submission.presets,
    )


def _check_together(request: Request, address: server.Address | None) -> None:
    """Raise `BadInput` for options that exclude each other."""
    if request.slurm and request.detach:
        raise BadInput("--detach is for an Argo Server; allowed with --slurm: --engine-job")
    if address is None and (request.argo or request.detach):
        option = "--argo" if request.argo else "--detach"
        raise BadInput(
            f"{option} needs an Argo Server: set ARGO_SERVER=host:port, ARGO_TOKEN and ARGO_NAMESPACE"
        )
    if request.engine_job and not request.slurm:
        raise BadInput("--engine-job needs --slurm")
    if request.follow and (request.algorithm or request.given or request.presets):
        raise BadInput(
            "--follow takes the name of a workflow and no algorithm or parameters: they are those of the workflow"
        )


if __name__ == "__main__":
    end(main())
