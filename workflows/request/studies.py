"""Submissions of studies: `python -m workflows.submit study.yaml`, checked before anything is sent or written."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from config.cluster import Cluster
from config.errors import BadInput, WrongDirectory
from config.numbers import duration
from config.resolve import Resolved, resolve
from config.strict_yaml import dump
from config.study import Cell, Study, read_study
from steps.directory.speeds import earlier_speeds
from steps.directory.study import MOST_PODS, pods
from workflows.dag.render import rendered_study, with_values
from workflows.request.command_line import Request
from workflows.request.preflight import Place, check_this_machine, cluster_outdir, place
from workflows.request.submission import Submission

SUFFIXES = (".yaml", ".yml")
LARGEST_BYTES = 64 * 1024
NAMES = 3
"""The first columns of a plan, which hold no numbers."""
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


def of_cells(study: Study) -> dict[str, Resolved]:
    """The parameters of every experiment, by the names of the cells."""
    return {cell.name: resolve(cell.algorithm, cell.given) for cell in study.cells}


def checked(request: Request, study: Study, cluster: Cluster, *, local: bool) -> list[Submission]:
    """The workflows of a study: one, or several where the status of one has no room for all its pods.
    Raises `BadInput` for what cannot work. Writes nothing.
    """
    outdir = request.given.get("outdir", study.outdir)
    where = place(outdir, request.storage) if local and not request.manifest else None
    resolved = of_cells(study)
    if where is not None:
        _check_here(where, study.cells, resolved)
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
    title = f"study of {len(study.cells)} experiments, {_sum_of_runs(resolved.values())} runs"
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


def plan(
    study: Study, submissions: Sequence[Submission], *, where: str, storage: Path | None
) -> str:
    """What would run: a row for each experiment. storage: the folder with earlier experiments, whose
    speeds give an estimate of the hours.
    """
    speeds = {} if storage is None else earlier_speeds(storage)
    rows = [("experiment", "algorithm", "game", "runs", "steps of a run", "pods", "training")]
    resolved = of_cells(study)
    took_s = dict[str, float]()
    for cell in study.cells:
        one = resolved[cell.name]
        speed = speeds.get((one.algorithm, one.game.name))
        if speed is not None:
            took_s[cell.name] = _steps(one) / speed
        rows.append(
            (
                cell.name,
                cell.label,
                one.game.name,
                f"{one.experiment.runs}",
                f"{one.total_steps:,}",
                f"{pods(one)}",
                duration(took_s[cell.name]) if cell.name in took_s else "",
            )
        )
    total = (
        f"{len(resolved)} experiments, {_sum_of_runs(resolved.values())} runs, "
        f"{sum(map(pods, resolved.values())):,} pods, {sum(map(_steps, resolved.values())):,} steps"
    )
    facts = {
        "where": where,
        "directory": submissions[0].seen_directory,
        "workflows": str(len(submissions)),
        "total": total,
        "training": _estimate(took_s, len(resolved)),
    }
    width = max(map(len, facts))
    head = [f"{name:<{width}}  {fact}" for name, fact in facts.items()]
    return "\n".join([*head, "", *_table(rows)])


def _estimate(took_s: Mapping[str, float], experiments: int) -> str:
    """The time of all trainings, in words."""
    if not took_s:
        return "no earlier experiment in this storage says how long it takes"
    whole = duration(sum(took_s.values()))
    said = f"{whole} one after the other, by earlier experiments in this storage"
    unknown = experiments - len(took_s)
    return f"{said}; {unknown} of {experiments} experiments are unknown" if unknown else said


def _steps(resolved: Resolved) -> int:
    return resolved.experiment.runs * resolved.total_steps


def _sum_of_runs(resolved: Iterable[Resolved]) -> int:
    return sum(one.experiment.runs for one in resolved)


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Lines with names to the left and numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        names, numbers = row[:NAMES], row[NAMES:]
        cells = [text.ljust(width) for text, width in zip(names, widths, strict=False)]
        cells += [text.rjust(width) for text, width in zip(numbers, widths[NAMES:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return lines
