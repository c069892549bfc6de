"""Submissions of searches: a study's file with the key `search`, checked before anything is sent or written."""

from __future__ import annotations

import importlib.util
import secrets
from collections.abc import Mapping
from typing import Any

from config.cluster import Cluster
from config.errors import BadInput
from config.numbers import counted, duration
from config.parameters import to_text
from config.strict_yaml import dump
from config.study import Search, Study
from config.study.search import Varied
from config.study.workflow_parameters import of_workflow
from steps.directory.search import pods_of_search, refuse_too_large
from workflows.dag.render import SEARCH, rendered_study, with_values
from workflows.local import detect
from workflows.request.command_line import Request
from workflows.request.preflight import Place, check_can_be_trained, check_writable, cluster_outdir
from workflows.request.submission import Submission, check_name
from workflows.sharing import fitted_to_all

OPTUNA = "optuna"


def checked(
    request: Request,
    study: Study,
    search: Search,
    cluster: Cluster,
    where: Place | None,
    *,
    jobs: bool = False,
) -> Submission:
    """The workflow of a search. where: None for a cluster. jobs: whether its pods run elsewhere. Raises `BadInput` for what cannot work. Writes
    nothing.
    """
    (resolved,) = study.resolved.values()
    refuse_too_large(study, search)
    active = cluster.parallel_experiments
    sharing = ""
    document: dict[str, Any] = dict(study.document)
    if where is not None:
        if importlib.util.find_spec(OPTUNA) is None:
            raise BadInput(
                "a search needs the extra 'search' (Optuna): pip install 'rl-training-dag[search]'"
            )
        check_writable(where.directory)
    if where is not None and not jobs:
        check_can_be_trained(resolved)
        machine = detect()
        cluster, room, sharing = fitted_to_all(
            cluster, search.parallel, [resolved], machine.cpus, len(machine.gpus)
        )
        document["search"] = {**document["search"], "parallel": min(room, search.parallel)}
        active = min(active, room) if resolved.members is not None else active
    values = {
        "study": dump(document),
        "outdir": where.outdir if where else cluster_outdir(study.outdir),
    }
    values |= of_workflow(request.given)
    name = request.name or ("" if request.manifest else f"search-{secrets.token_hex(3)}")
    name = check_name(name) if name else ""
    manifest = rendered_study(cluster, active, kind=SEARCH)
    each = counted(resolved.experiment.runs, "run")
    return Submission(
        name=name,
        resolved=None,
        title=f"search of {search.trials} trials of {each}, {resolved.algorithm} on {resolved.game.name}",
        given=frozenset(values),
        manifest=with_values(manifest, values, name=name, deadline_s=request.deadline_s),
        place=where,
        sharing=sharing,
        kind=SEARCH,
        values=values,
        deadline_s=request.deadline_s,
    )


def plan(
    study: Study,
    search: Search,
    submission: Submission,
    *,
    where: str,
    speeds: Mapping[tuple[str, str], float],
) -> str:
    """What would run. speeds: steps per second of earlier experiments, by algorithm and game."""
    (resolved,) = study.resolved.values()
    runs = resolved.experiment.runs
    most = search.trials * runs * resolved.total_steps
    speed = speeds.get((resolved.algorithm, resolved.game.name))
    epochs = search.rung_epochs(resolved.epochs)
    pruned = f"of {search.prune.reduction} one goes on" if search.prune else "nothing is pruned"
    facts = {
        "where": where,
        "directory": submission.seen_directory,
        "what": str(submission),
        "sampler": f"{search.sampler}, {counted(search.parallel, 'trial')} at once",
        "objective": f"{search.objective.measure}, {search.objective.over_runs} over the runs",
        "rungs": f"epochs {', '.join(map(str, epochs))}; {pruned}",
        "then": f"{counted(search.then.best, 'trial')} and the preset again, "
        f"{counted(search.then.runs, 'run')} each, seed {search.then.seed}",
        "total": f"at most {most:,} steps of trials, {pods_of_search(study, search):,} pods",
        "training": "no earlier experiment in this storage says how long it takes"
        if speed is None
        else f"at most {duration(most / speed)} one after the other, by earlier experiments",
        **{name: _range(one) for name, one in search.parameters.items()},
    }
    width = max(map(len, facts))
    return "\n".join(f"{name:<{width}}  {fact}" for name, fact in facts.items())


def _range(one: Varied) -> str:
    if one.choices:
        return " or ".join(to_text(choice) for choice in one.choices)
    kind = ", equal ratios equally likely" if one.is_log else ""
    return f"{to_text(one.low)} to {to_text(one.high)}{kind}"
