"""Submissions of studies: `python -m workflows.submit study.yaml`, checked before anything is sent or written."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from config.cluster import Cluster
from config.errors import BadInput, WrongDirectory
from config.experiment import Experiment
from config.numbers import duration
from config.parameters import declared
from config.resolved import Resolved
from config.strict_yaml import dump
from config.study import AdaptiveRuns, Cell, Study, read_study, read_text, with_other_values
from config.study.workflow_parameters import OF_WORKFLOW_ALONE, PART, of_workflow
from steps.directory.speeds import earlier_speeds
from steps.directory.study import MOST_PODS, pods
from workflows import searches
from workflows.dag.render import STUDY, rendered_study, with_values
from workflows.local import detect
from workflows.request.command_line import Request
from workflows.request.directories import READ_FROM, seen_in_a_study
from workflows.request.preflight import (
    Place,
    check_can_be_trained,
    check_directory,
    cluster_outdir,
    place,
)
from workflows.request.submission import Submission, check_name
from workflows.sharing import fitted_to_all

SUFFIXES = (".yaml", ".yml")
NAMES = 3
"""The first columns of a plan, which hold no numbers."""


def is_study(request: Request) -> bool:
    """Whether the command names a study's file in the place of an algorithm."""
    return request.algorithm is not None and request.algorithm.endswith(SUFFIXES)


def read(request: Request, *, local: bool) -> Study:
    """The study that a command asks for, with the parameters of `-p` for all experiments, and with
    directories that experiments read as their pods see them. Raises `BadInput`.
    """
    path = Path(request.algorithm or "")
    if request.presets is not None:
        raise BadInput(
            "--presets is for one experiment; a study has `parameters` for all of its own"
        )
    text = read_text(path)
    given = {name: value for name, value in request.given.items() if name not in OF_WORKFLOW_ALONE}
    for name in OF_WORKFLOW_ALONE:
        if name in request.given:
            declared(Experiment)[name].parse(request.given[name])
    study = read_study(text, str(path), given)
    where = _place(request, study, local=local)

    def seen(name: str, value: Any) -> Any:
        return seen_in_a_study(name, value, where) if value and name in READ_FROM else value

    document = with_other_values(study.document, seen)
    return study if document == study.document else read_study(dump(document), str(path))


def _place(request: Request, study: Study, *, local: bool) -> Place | None:
    """Where the study is on this machine; None for a cluster."""
    return place(study.outdir, request.storage) if local and not request.manifest else None


def checked(
    request: Request, study: Study, cluster: Cluster, *, local: bool, jobs: bool = False
) -> list[Submission]:
    """The workflows of a study: one, or several where the status of one has no room for all its pods.
    jobs: whether its pods run elsewhere, over a directory of this machine. Raises `BadInput` for what
    cannot work. Writes nothing.
    """
    where = _place(request, study, local=local)
    if study.search is not None:
        return [searches.checked(request, study, study.search, cluster, where, jobs=jobs)]
    active = study.parallel_experiments or cluster.parallel_experiments
    sharing = ""
    resolved = study.resolved
    if where is not None:
        _check_here(where, study.cells, resolved, jobs=jobs)
    if where is not None and not jobs:
        machine = detect()
        cluster, active, sharing = fitted_to_all(
            cluster, active, resolved.values(), machine.cpus, len(machine.gpus)
        )
    count = -(-sum(map(pods, resolved.values())) // MOST_PODS)
    if count > 1 and isinstance(study.runs, AdaptiveRuns):
        raise BadInput(
            f"the study has more pods than the {MOST_PODS} of one workflow, and one workflow must decide "
            "how many runs it needs; allowed: a fixed number of runs, or fewer experiments"
        )
    manifest = rendered_study(cluster, active)
    values = {
        "study": dump(study.document),
        "outdir": where.outdir if where else cluster_outdir(study.outdir),
    }
    values |= of_workflow(request.given)
    title = f"study of {len(study.cells)} experiments, {_sum_of_runs(resolved.values())} runs"
    name = request.name or ("" if request.manifest else f"study-{secrets.token_hex(3)}")
    found = []
    for part in range(1, count + 1):
        own_name = f"{name}-{part}" if name and count > 1 else name
        told = {**values, PART: f"{part}/{count}"}
        found.append(
            Submission(
                name=check_name(own_name) if own_name else "",
                resolved=None,
                title=f"part {part} of {count} of a {title}" if count > 1 else title,
                given=frozenset(values),
                manifest=with_values(manifest, told, name=own_name, deadline_s=request.deadline_s),
                place=where,
                sharing=sharing,
                kind=STUDY,
                values=told,
                deadline_s=request.deadline_s,
                own="parallel_experiments" if study.parallel_experiments else "",
            )
        )
    return found


def _check_here(
    where: Place, cells: Sequence[Cell], resolved: Mapping[str, Resolved], *, jobs: bool
) -> None:
    """Raise `BadInput` for an experiment that cannot work on this machine. One that belongs to another
    workflow is left to its `prepare`: the others do not depend on it. What is the same for several is
    checked once. jobs: whether it trains elsewhere.
    """
    trained = set[str]()
    for cell in cells:
        one = resolved[cell.name]
        own = replace(
            where,
            outdir=f"{where.outdir}/experiments/{cell.name}",
            directory=where.directory / "experiments" / cell.name,
        )
        kind = repr((one.algorithm, one.game, one.environment, one.network, one.experiment.device))
        try:
            check_directory(own, one)
            if kind not in trained and not jobs:
                check_can_be_trained(one)
        except (BadInput, WrongDirectory) as error:
            raise BadInput(f"experiment {cell.name}: {error}") from None
        trained.add(kind)


def plan(
    study: Study, submissions: Sequence[Submission], *, where: str, storage: Path | None
) -> str:
    """What would run: a row for each experiment. storage: the folder with earlier experiments, whose
    speeds give an estimate of the hours.
    """
    speeds = {} if storage is None else earlier_speeds(storage)
    if study.search is not None:
        return searches.plan(study, study.search, submissions[0], where=where, speeds=speeds)
    rows = [("experiment", "algorithm", "game", "runs", "steps of a run", "pods", "training")]
    resolved = study.resolved
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
