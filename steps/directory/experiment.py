"""`experiment.yaml` and `compute.json`: what an experiment is, and what its trainings compute on.

experiment.yaml: `identity` and `identity_hash` never change, also where an earlier version recorded
more than decides a training. Parameters outside of the identity (`runs`, `evaluation_episodes`,
images, …), versions, source and image may change between submissions: the top level holds the newest
values, and `history` has an entry for each submission that changed something.

compute.json: results depend on the device and the precision, so the first training that starts
decides `auto` once, and every run and every resume uses that decision. How the environments are
vectorised affects only the speed; it is recorded here too, so that one file shows what was chosen and
it is measured once. When two trainings start at the same time, both may measure; the one that creates
the file first decides for both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config.algorithms import algorithm_path
from config.errors import BadInput, WrongDirectory, shown
from config.identity import LENGTH, comparable, hash_of
from config.imports import lies_in
from config.resolve import resolved_from_dict
from config.resolved import Resolved
from config.strict_yaml import dump, load
from steps.directory.files import create_once, read_bytes, write_if_changed
from steps.directory.layout import ExperimentDirectory

FORMAT = 1
RECORD_LIMIT_BYTES = 256 * 1024
HISTORY_LIMIT_BYTES = 64 * 1024
"""A submission that changed something takes some 200 bytes: the oldest make room for the newest, so
that the file stays readable."""


@dataclass(frozen=True, kw_only=True)
class ExperimentRecord:
    """What `prepare` wrote.

    versions: package -> version. source: commit, and whether the tree had changes. image: that of
    the preparing pod. started: time of the first submission, ISO 8601 in UTC. workflow: its name.
    history: one mapping per submission that changed something, with `time` and `changed` (dotted name -> [before, after]); if older
    ones had to make room, the first says how many, `left_out`.
    """

    resolved: Resolved
    identity: dict[str, Any]
    identity_hash: str
    versions: dict[str, str]
    source: dict[str, Any]
    image: str | None
    started: str
    workflow: str | None
    history: tuple[dict[str, Any], ...] = ()


def read_experiment(
    directory: ExperimentDirectory, results: Path | None = None
) -> ExperimentRecord:
    """The record of an experiment. results: the folder of all results that came with it, from which
    no code is imported; by default its directory. Raises `BadInput`, which names the step that makes
    a missing one, and `WrongDirectory` for a damaged one.
    """
    path = directory.experiment_yaml
    try:
        document = load(read_bytes(path, RECORD_LIMIT_BYTES), str(path))
    except FileNotFoundError:
        raise BadInput(f"no file {path}: prepare makes it") from None
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from error
    except (BadInput, RecursionError) as error:
        raise WrongDirectory(f"{path} cannot be read: {error}") from error
    parameters = document.get("parameters") if isinstance(document, Mapping) else None
    if isinstance(parameters, Mapping):
        refuse_code_inside(parameters.get("algorithm"), results or directory.root)
    return _parse(document, str(path))


def refuse_code_inside(algorithm: object, results: Path) -> None:
    """Raise `WrongDirectory` if the algorithm's module lies among the results: whoever opens results
    that came from elsewhere must not run code that came with them.
    """
    path = algorithm_path(algorithm) if isinstance(algorithm, str) else None
    if path is not None and lies_in(path, results):
        raise WrongDirectory(
            f"the module of algorithm {path!r} lies in {results}, among the results, where it is "
            "never imported from; if you trust it, move it elsewhere on the Python path"
        )


def write_experiment(directory: ExperimentDirectory, record: ExperimentRecord) -> bool:
    """Write the record unless the file has the same content. Returns whether it wrote."""
    return write_if_changed(directory.experiment_yaml, dump(as_document(record)))


def continued(before: ExperimentRecord, now: ExperimentRecord) -> ExperimentRecord:
    """The record of a repeated submission: `before` if nothing changed, else `now` with one more
    entry in its history.

    Raises `WrongDirectory` with every difference if the identity differs.
    """
    if differences := other_parameters(before, now.resolved):
        raise WrongDirectory(
            f"the directory belongs to other parameters: {differences}; choose another outdir"
        )
    changed = {
        name: [_plain(a), _plain(b)]
        for name, a, b in changes(_changeable(before), _changeable(now))
    }
    if not changed:
        return before
    entry = {"time": now.started, "workflow": now.workflow, "changed": changed}
    history = _newest((*before.history, entry))
    fields = {
        **vars(now),
        "resolved": now.resolved.continuing(before.resolved),
        "identity": before.identity,
        "identity_hash": before.identity_hash,
        "started": before.started,
        "workflow": before.workflow,
        "history": history,
    }
    return ExperimentRecord(**fields)


def other_parameters(before: ExperimentRecord, now: Resolved) -> str:
    """How the parameters that decide a training differ from those of a directory, in words; empty if
    they do not.
    """
    identity = now.identity()
    recorded = comparable(before.identity, identity)
    return difference(recorded, identity, left="in the directory", right="now")


def training_inputs(record: ExperimentRecord) -> dict[str, Any]:
    """What the result of a training depends on, for the status of a step; with equal inputs a finished
    one is not repeated.
    """
    length = {"experiment": {LENGTH: record.resolved.epochs}}
    return {"identity": record.identity_hash, **_beside_identity(record, length)}


def evaluation_inputs(record: ExperimentRecord) -> dict[str, Any]:
    """The same of a step that also depends on parameters of later steps."""
    return training_inputs(record) | _beside_identity(record, record.resolved.later())


def _beside_identity(
    record: ExperimentRecord, values: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Those of these parameters, by name, of which the recorded identity says nothing, or another value:
    what a step of an earlier version has finished counts as long as nothing has changed.
    """
    return {
        name: value
        for section, parameters in values.items()
        for name, value in parameters.items()
        if record.identity.get(section, {}).get(name, ...) != value
    }


def _newest(history: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    """The newest entries within `HISTORY_LIMIT_BYTES`. The first one counts those that are left
    out.
    """
    size_bytes = 0
    first = len(history)
    while (
        first
        and (size_bytes := size_bytes + len(json.dumps(history[first - 1]))) <= HISTORY_LIMIT_BYTES
    ):
        first -= 1
    first = min(first, len(history) - 1)
    if first == 0:
        return history
    left_out = first + history[0].get("left_out", 0)
    return ({**history[first], "left_out": left_out}, *history[first + 1 :])


def _changeable(record: ExperimentRecord) -> dict[str, Any]:
    """The parameters that another submission may change. `outdir` may be spelled differently for
    the same directory.
    """
    parameters = record.resolved.as_dict()
    parameters.pop("first_epochs", None)  # it follows from `epochs`, which is among them
    parameters["experiment"] = {
        name: value
        for name, value in parameters["experiment"].items()
        if name not in {"outdir", "game"}
    }
    return {
        "parameters": parameters,
        "versions": record.versions,
        "source": record.source,
        "image": record.image,
    }


def as_document(record: ExperimentRecord) -> dict[str, Any]:
    """The record as `experiment.yaml` holds it."""
    return {
        "format": FORMAT,
        "started": record.started,
        "workflow": record.workflow,
        "identity_hash": record.identity_hash,
        "parameters": record.resolved.as_dict(),
        "identity": record.identity,
        "image": record.image,
        "source": record.source,
        "versions": record.versions,
        "history": list(record.history),
    }


def _parse(document: Any, source: str) -> ExperimentRecord:
    if not isinstance(document, Mapping) or not isinstance(document.get("format"), int):
        raise WrongDirectory(f"{source} was not written by prepare")
    if document["format"] > FORMAT:
        raise WrongDirectory(
            f"{source} has format {document['format']}, this program reads up to {FORMAT}: use the newer one"
        )
    try:
        fields = {name: document[name] for name in _FIELDS}
        resolved = resolved_from_dict(_as_today(document["parameters"]))
        record = ExperimentRecord(
            resolved=resolved, **{**fields, "history": tuple(fields["history"])}
        )
    except KeyError as error:
        raise WrongDirectory(f"{source} has no entry {error}") from error
    except (BadInput, TypeError, ValueError) as error:
        raise WrongDirectory(f"{source}: {error}") from error
    _check_identity(record, source)
    return record


def _check_identity(record: ExperimentRecord, source: str) -> None:
    """Raise `WrongDirectory` unless a record's hash, identity and parameters belong together."""
    identity = record.resolved.identity()
    try:
        recorded = comparable(record.identity, identity)
        found = difference(recorded, identity, left="in its identity", right="in its parameters")
        if not found and hash_of(record.identity) != record.identity_hash:
            found = "identity_hash differs"
    except (AttributeError, TypeError, ValueError) as error:
        found = f"its identity cannot be read: {error}"
    if found:
        raise WrongDirectory(f"{source} was changed by hand or made by another version: {found}")


ADDED_LATER: Mapping[str, Any] = {
    "start_from": None,
    "evaluations": 0,
    "snapshot_episodes": 10,
    "runs_per_gpu": 1,
    "track": None,
}
"""The parameters that older documents do not have, with the values that mean what they did."""


def _as_today(parameters: Any) -> Any:
    """Convert a document of an older version, which had none of `ADDED_LATER`, and
    allowed `gpus` up to 64, of which a training used one. None of them belongs to the identity that
    it wrote.
    """
    try:
        gpus = parameters["experiment"]["gpus"]
        parameters = {
            **parameters,
            "experiment": {**ADDED_LATER, **parameters["experiment"]},
        }
    except (KeyError, TypeError):
        return parameters
    if not isinstance(gpus, int) or not 1 < gpus <= 64:
        return parameters
    return {**parameters, "experiment": {**parameters["experiment"], "gpus": 1}}


def _plain(value: Any) -> Any:
    return None if value is ... else value


_FIELDS = (
    "identity",
    "identity_hash",
    "versions",
    "source",
    "image",
    "started",
    "workflow",
    "history",
)


COMPUTE_LIMIT_BYTES = 65536
ALLOWED: Mapping[str, tuple[str | None, ...]] = {
    "device": ("cpu", "cuda"),
    "precision": ("fp32", "bf16"),
    "vectorisation": ("native", "sync", "async", None),  # files of an older version have none
}


@dataclass(frozen=True, kw_only=True)
class Compute:
    """The part of the file that the program uses; its other figures are for people. vectorisation:
    see `agents.environments.vectors`; None in a file of an older version.
    """

    device: str
    precision: str
    reason: str
    vectorisation: str | None = None
    vectorisation_reason: str = ""

    def __str__(self) -> str:
        return f"{self.device}, {self.precision} ({self.reason})"


def read_compute(path: Path) -> Compute | None:
    """The recorded decision; None before a training has started. Raises `WrongDirectory` if the
    file is damaged.
    """
    try:
        return _parse_compute(json.loads(read_bytes(path, COMPUTE_LIMIT_BYTES)))
    except FileNotFoundError:
        return None
    except (BadInput, ValueError, TypeError, RecursionError) as error:
        remedy = "delete it, and the next training that starts decides again"
        raise WrongDirectory(f"{path} cannot be read ({error}); {remedy}") from error


def settle(path: Path, decided: Mapping[str, Any]) -> Compute:
    """Record a decision unless another training was first. Returns the recorded one."""
    # What stands there counts, even if another training wrote it a moment before this one.
    create_once(path, f"{json.dumps(decided, indent=1)}\n".encode())
    return read_compute(path) or _parse_compute(decided)


def _parse_compute(document: Any) -> Compute:
    if not isinstance(document, Mapping):
        raise ValueError("no mapping")
    for name, allowed in ALLOWED.items():
        if document.get(name) not in allowed:
            said = shown(document.get(name))
            raise ValueError(f"{name} is {said}, allowed: {', '.join(filter(None, allowed))}")
    return Compute(
        device=document["device"],
        precision=document["precision"],
        reason=_line_of_text(document, "reason"),
        vectorisation=document.get("vectorisation"),
        vectorisation_reason=_line_of_text(
            {"vectorisation_reason": "", **document}, "vectorisation_reason"
        ),
    )


def _line_of_text(document: Mapping[str, Any], name: str) -> str:
    line = document.get(name)
    if not isinstance(line, str) or not line.isprintable():
        raise ValueError(f"{name} is no line of text")
    return line


def difference(
    there: Mapping[str, Any], here: Mapping[str, Any], *, left: str = "there", right: str = "here"
) -> str:
    """`seed: 0 there, 1 here; …` for nested mappings; empty if nothing differs."""
    return "; ".join(
        f"{name}: {_shown_or_absent(a)} {left}, {_shown_or_absent(b)} {right}"
        for name, a, b in changes(there, here)
    )


def changes(there: Any, here: Any, path: str = "") -> list[tuple[str, Any, Any]]:
    """(dotted name, there, here) of every leaf that differs. `...` marks a missing one."""
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        names = [*there, *(name for name in here if name not in there)]
        return [
            change
            for name in names
            for change in changes(
                there.get(name, ...), here.get(name, ...), f"{path}.{name}" if path else str(name)
            )
        ]
    return [] if there == here and type(there) is type(here) else [(path, there, here)]


def _shown_or_absent(value: Any) -> str:
    return "absent" if value is ... else repr(value)
