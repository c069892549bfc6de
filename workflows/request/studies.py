"""Submissions of studies: `python -m workflows.submit study.yaml`, checked before anything is sent or written."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from config.cluster import Cluster
from config.errors import BadInput, WrongDirectory
from config.resolve import Resolved, resolve
from config.strict_yaml import dump
from config.study import Cell, Study, read_study
from steps.directory.study import MOST_PODS, pods
from workflows.dag.render import rendered_study, with_values
from workflows.local import detect
from workflows.request.command_line import Request
from workflows.request.preflight import Place, check_this_machine, cluster_outdir, place
from workflows.request.submission import Submission
from workflows.sharing import fitted, needs, with_gpus

SUFFIXES = (".yaml", ".yml")
LARGEST_BYTES = 64 * 1024
OF_WORKFLOW = ("claim", "training_memory", "gpu_image", "cpu_image")
"""Parameters that are given to the workflow, not to its experiments."""


def is_study(request: Request) -> bool:
    """Whether the command names a study's file in the place of an algorithm."""
    return request.algorithm is not None and request.algorithm.endswith(SUFFIXES)


def read(request: Request) -> Study:
    """The study that a command asks for, with the parameters of `-p` for all experiments. Raises
    `BadInput`.
    """
    path = Path(request.algorithm or "")
    if request.presets is not None:
        raise BadInput(
            "--presets is for one experiment; a study has `parameters` for all of its own"
        )
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST_BYTES + 1).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from None
    given = {name: value for name, value in request.given.items() if name != "outdir"}
    return read_study(text, str(path), given)


def checked(request: Request, study: Study, cluster: Cluster, *, local: bool) -> list[Submission]:
    """The workflows of a study: one, or several where the status of one has no room for all its pods.
    Raises `BadInput` for what cannot work. Writes nothing.
    """
    outdir = request.given.get("outdir", study.outdir)
    where = place(outdir, request.storage) if local and not request.manifest else None
    resolved = {cell.name: resolve(cell.algorithm, cell.given) for cell in study.cells}
    sharing = ""
    if where is not None:
        _check_here(where, study.cells, resolved)
        cluster = _fitted(cluster, list(resolved.values()))
    count = 1 if local else -(-sum(map(pods, resolved.values())) // MOST_PODS)
    manifest = rendered_study(cluster, study.parallel_experiments)
    values = {
        "study": dump(study.document),
        "outdir": where.outdir if where else cluster_outdir(outdir),
    }
    values |= {name: text for name, text in request.given.items() if name in OF_WORKFLOW}
    name = request.name or f"study-{secrets.token_hex(3)}"
    if request.manifest and not request.name:
        name = ""
    title = f"study of {len(study.cells)} experiments, {sum(one.experiment.runs for one in resolved.values())} runs"
    return [
        Submission(
            name=name if count == 1 else f"{name}-{part}",
            resolved=None,
            title=title if count == 1 else f"part {part} of {count} of a {title}",
            given=frozenset(values),
            manifest=with_values(
                manifest,
                {**values, "part": f"{part}/{count}"},
                name=name if count == 1 else f"{name}-{part}",
                deadline_s=request.deadline_s,
            ),
            place=where,
            sharing=sharing,
        )
        for part in range(1, count + 1)
    ]


def _check_here(where: Place, cells: Sequence[Cell], resolved: Mapping[str, Resolved]) -> None:
    """Raise `BadInput` for an experiment that cannot work on this machine. Of those of one game and one
    algorithm, only the first one's game is made.
    """
    for cell in cells:
        own = replace(
            where,
            outdir=f"{where.outdir}/experiments/{cell.name}",
            directory=where.directory / "experiments" / cell.name,
        )
        try:
            check_this_machine(own, resolved[cell.name])
        except (BadInput, WrongDirectory) as error:
            raise BadInput(f"experiment {cell.name}: {error}") from None


def _fitted(cluster: Cluster, resolved: Sequence[Resolved]) -> Cluster:
    """The settings with which the experiments with several processes fit on this machine."""
    machine = detect()
    several = [(one, members) for one in resolved if (members := one.members) is not None]
    if not several:
        return cluster
    largest, members = max(several, key=lambda pair: needs(cluster, pair[1]))
    return with_gpus(fitted(cluster, members, machine.cpus), largest, len(machine.gpus))


def plan(study: Study, submissions: Sequence[Submission], *, where: str) -> str:
    """What would run: a row for each experiment."""
    header = ("experiment", "algorithm", "game", "runs", "steps of a run", "pods")
    rows = [header]
    total_pods, total_steps, total_runs = 0, 0, 0
    for cell in study.cells:
        one = resolve(cell.algorithm, cell.given)
        runs = one.experiment.runs
        total_pods += pods(one)
        total_runs += runs
        total_steps += runs * one.total_steps
        rows.append(
            (
                cell.name, cell.label, one.game.name, str(runs), f"{one.total_steps:,}", str(pods(one)),
            )
        )  # fmt: skip
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    lines = [
        f"where      {where}",
        f"directory  {submissions[0].seen_directory}",
        f"workflows  {len(submissions)}",
        f"total      {len(study.cells)} experiments, {total_runs} runs, {total_pods:,} pods, {total_steps:,} steps",
        "",
    ]
    for row in rows:
        cells = [
            text.rjust(width) if column > 2 else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
