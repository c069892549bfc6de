"""Reads the key `search` of a study's file, and refuses what cannot work."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from config.algorithms import find_algorithm
from config.errors import BadInput, shown, unknown
from config.experiment import Experiment
from config.located import Located
from config.parameters import Parameter, declared, to_text
from config.presets import preset_parameters, unknown_parameter
from config.resolve import resolve
from config.resolved import STEPS, Resolved
from config.study.cells import Cell
from config.study.compared import MOST_RUNS
from config.study.search import (
    AREA,
    EVALUATION,
    KEY,
    MEASURES,
    MOST_RUNGS,
    MOST_TURNS,
    SAMPLERS,
    Again,
    Objective,
    Pruning,
    Search,
    Varied,
)

KEYS = (
    "parameters",
    "sampler",
    "seed",
    "trials",
    "parallel",
    "objective",
    "prune",
    "then",
    "plots",
)
BESIDE = ("outdir", "runs", "algorithms", "games", "parameters", KEY)
"""Keys of a study's file that may stand in one with a search."""
OVER_RUNS = ("iqm", "mean", "median")
TRIALS = Parameter("trials", int, None, "trials in all", low=1, high=10_000)
PARALLEL = Parameter("parallel", int, None, "trials under way at once", low=1, high=256)
REDUCTION = Parameter("reduction", int, None, "of so many trials one goes on", low=2, high=100)
BEST = Parameter("best", int, None, "trials that are trained again", low=1, high=20)
AGAIN_RUNS = Parameter("runs", int, None, "runs of each of them", low=1, high=MOST_RUNS)
SEED = declared(Experiment)["seed"]
DRAWN = Parameter("plots", bool, False, "whether trials have figures, films and pages")
DEFAULT_AGAIN = {"best": 1, "runs": 5, "seed": 1000}


def refuse_beside(entries: Mapping[str, Located]) -> None:
    """Raise `BadInput` for what cannot stand in one file with a search."""
    for key, node in entries.items():
        if key not in BESIDE:
            raise node.refused(
                f"key {key!r} cannot stand beside 'search', which proposes the experiments itself; "
                f"allowed: {', '.join(BESIDE)}"
            )


def read_search(node: Located, preset: Cell, resolved: Resolved) -> Search:
    """Read the key `search`. preset: the experiment without searched values, which is `resolved`. Raises
    `BadInput`.
    """
    entries = node.entries(KEY, KEYS)
    missing = [key for key in ("parameters", "trials") if key not in entries]
    if missing:
        raise node.refused(f"the search has no {' and no '.join(missing)}")
    if resolved.experiment.evaluate_above is not None:
        raise node.refused(
            "a search with the parameter 'evaluate_above', below which a trial would have no value; "
            "allowed: without it"
        )
    search = Search(
        parameters=_read_varied(entries["parameters"], preset),
        sampler=_one_of(entries, "sampler", SAMPLERS, KEY),
        seed=_number(entries, SEED, 0),
        trials=_number(entries, TRIALS),
        parallel=_number(entries, PARALLEL, 1),
        objective=_read_objective(entries.get("objective"), resolved),
        prune=_read_pruning(entries["prune"], resolved) if "prune" in entries else None,
        then=_read_again(entries.get("then")),
        plots=_number(entries, DRAWN, False),
    )
    _refuse_deep(search, entries)
    _refuse_sampler(search, entries)
    _refuse_known_seed(search, entries.get("then", node), resolved)
    return search


def refuse_unresolved(node: Located, search: Search, preset: Cell) -> None:
    """Raise `BadInput`, with the line, for a value that the experiment cannot have while the other
    parameters are as in the file.
    """
    varied = node.below("parameters")
    for name, one in search.parameters.items():
        for value in one.ends:
            try:
                resolve(preset.algorithm, {**preset.given, name: to_text(value)})
            except BadInput as error:
                raise varied.below(name).refused(
                    f"search: {name} {shown(value)}: {error}"
                ) from None


def _read_varied(node: Located, preset: Cell) -> dict[str, Varied]:
    known = preset_parameters(find_algorithm(preset.algorithm))
    known.pop(STEPS)
    entries = node.entries("parameters of the search")
    if not entries:
        raise node.refused(
            "parameters of the search: an empty mapping; allowed: at least one entry"
        )
    found = {}
    for name, entry in entries.items():
        if name not in known:
            with entry.named():
                raise unknown_parameter(name, known, "parameter to search")
        found[name] = _read_one(entry, known[name])
    return found


def _read_one(node: Located, parameter: Parameter) -> Varied:
    what = f"search: {parameter.name}"
    entries = node.entries(what, ("low", "high", "scale", "step", "choices"))
    if "choices" in entries:
        if len(entries) > 1:
            raise node.refused(f"{what}: choices stand alone; allowed: choices, or low and high")
        return _read_choices(entries["choices"], parameter, what)
    if not {"low", "high"} <= entries.keys():
        raise node.refused(f"{what}: allowed: {{low: …, high: …}} or {{choices: […]}}")
    if parameter.kind not in (int, float):
        raise node.refused(
            f"{what} has no range, because it is {parameter.allowed}; allowed: choices"
        )
    low, high = (_typed(entries[end], parameter) for end in ("low", "high"))
    if low >= high:
        raise node.refused(f"{what}: low {to_text(low)} is not below high {to_text(high)}")
    is_log = _one_of(entries, "scale", ("linear", "log"), what) == "log"
    if is_log and low <= 0:
        raise entries["low"].refused(
            f"{what}: low {to_text(low)} has no logarithm; allowed: above 0"
        )
    return Varied(
        name=parameter.name,
        is_integer=parameter.kind is int,
        low=low,
        high=high,
        is_log=is_log,
        step=_read_step(entries.get("step"), parameter, high - low, is_log=is_log, what=what),
    )


def _read_step(
    node: Located | None, parameter: Parameter, width: float, *, is_log: bool, what: str
) -> float | None:
    if node is None:
        return 1 if parameter.kind is int and not is_log else None
    if is_log:
        raise node.refused(f"{what}: a logarithmic scale has no step; allowed: without it")
    is_right = isinstance(node.value, parameter.kind | int) and not isinstance(node.value, bool)
    if not is_right or not 0 < node.value <= width:
        raise node.refused(
            f"{what}: step cannot be {shown(node.value)}; allowed: above 0, at most high - low"
        )
    return parameter.kind(node.value)  # type: ignore[no-any-return]


def _read_choices(node: Located, parameter: Parameter, what: str) -> Varied:
    choices: list[Any] = []
    for element in node.elements(f"{what}: choices"):
        value = _typed(element, parameter)
        written = to_text(value) if isinstance(value, tuple) else value
        if written in choices:
            raise element.refused(f"{what}: choice {shown(written)} stands twice")
        choices.append(written)
    if len(choices) < 2:
        raise node.refused(f"{what}: one choice is no search; allowed: two or more")
    return Varied(name=parameter.name, choices=tuple(choices))


def _typed(node: Located, parameter: Parameter) -> Any:
    with node.named():
        return parameter.parse(node.value)


def _number(entries: Mapping[str, Located], parameter: Parameter, fallback: Any = None) -> Any:
    if parameter.name not in entries:
        return fallback
    return _typed(entries[parameter.name], parameter)


def _one_of(entries: Mapping[str, Located], key: str, known: Sequence[str], what: str) -> str:
    if key not in entries:
        return known[0]
    text = entries[key].text(key)
    if text not in known:
        raise entries[key].refused(unknown(f"{key} of {what}", text, known))
    return text


def _read_objective(node: Located | None, resolved: Resolved) -> Objective:
    if node is None:
        return Objective()
    entries = node.entries("objective", ("measure", "over_runs"))
    found = Objective(
        measure=_one_of(entries, "measure", MEASURES, "objective"),
        over_runs=_one_of(entries, "over_runs", OVER_RUNS, "objective"),
    )
    if found.measure == AREA and not has_training_curve(resolved):
        raise entries["measure"].refused(
            f"objective {AREA}: {_curveless(resolved)}; allowed: {EVALUATION}"
        )
    return found


def has_training_curve(resolved: Resolved) -> bool:
    """Whether the rows of a training say what its policy is worth: in self-play both sides are equal."""
    return not resolved.measure.training_name


def _curveless(resolved: Resolved) -> str:
    return f"{resolved.algorithm} is judged by its {resolved.measure.name}, of which its training has no curve"


def _read_pruning(node: Located, resolved: Resolved) -> Pruning:
    entries = node.entries("prune", ("rungs", "reduction"))
    if "rungs" not in entries:
        raise node.refused("prune has no rungs; allowed: {rungs: [0.1, 0.3, 1.0], reduction: 3}")
    if not has_training_curve(resolved):
        raise node.refused(f"prune: {_curveless(resolved)}; allowed: a search without prune")
    place = entries["rungs"]
    rungs = [_share(one) for one in place.elements("rungs")]
    if sorted(set(rungs)) != rungs:
        raise place.refused(f"rungs {shown(rungs)} do not rise; allowed: such as [0.1, 0.3, 1.0]")
    if rungs[-1] != 1:
        raise place.refused(f"rungs end with {rungs[-1]:g}; allowed: with 1.0, the whole training")
    if not 2 <= len(rungs) <= MOST_RUNGS:
        raise place.refused(f"{len(rungs)} rungs; allowed: 2 to {MOST_RUNGS}")
    pruning = Pruning(rungs=tuple(rungs), reduction=_number(entries, REDUCTION, 3))
    epochs = [max(1, math.ceil(share * resolved.epochs - 1e-9)) for share in rungs]
    if len(set(epochs)) < len(epochs):
        raise place.refused(
            f"rungs {shown(rungs)} are the epochs {epochs} of a training of {resolved.epochs}; "
            "allowed: a different epoch for each"
        )
    return pruning


def _share(node: Located) -> float:
    value = node.value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < value <= 1:
        raise node.refused(f"a rung cannot be {shown(value)}; allowed: a share above 0, at most 1")
    return float(value)


def _read_again(node: Located | None) -> Again:
    entries = node.entries("then", ("best", "runs", "seed")) if node else {}
    listed = (BEST, AGAIN_RUNS, SEED)
    return Again(**{one.name: _number(entries, one, DEFAULT_AGAIN[one.name]) for one in listed})


def _refuse_deep(search: Search, entries: Mapping[str, Located]) -> None:
    room = MOST_TURNS * search.parallel
    if search.trials > room:
        raise entries["trials"].refused(
            f"{search.trials} trials in {search.parallel} lanes, and a lane has at most {MOST_TURNS}; "
            f"allowed: up to {room} trials, or parallel: {-(-search.trials // MOST_TURNS)}"
        )
    if search.parallel > search.trials:
        raise entries["parallel"].refused(
            f"parallel cannot be {search.parallel}: there are {search.trials} trials; allowed: at most that"
        )


def _refuse_sampler(search: Search, entries: Mapping[str, Located]) -> None:
    """Raise `BadInput` for a sampler that cannot vary these parameters."""
    if search.sampler == "grid":
        for name, one in search.parameters.items():
            if not one.values():
                raise (
                    entries["parameters"]
                    .below(name)
                    .refused(
                        f"sampler grid cannot vary {name}, which has endless values; allowed: choices or a step"
                    )
                )
        points = math.prod(len(one.values()) for one in search.parameters.values())
        if search.trials > points:
            raise entries["trials"].refused(
                f"trials cannot be {search.trials}: the grid has {points} points; allowed: at most that"
            )
    if search.sampler == "cmaes":
        choices = [name for name, one in search.parameters.items() if one.choices]
        if choices:
            raise entries["sampler"].refused(
                f"sampler cmaes cannot vary choices, as {choices[0]} has; allowed: tpe, or a range"
            )
        if len(search.parameters) < 2:
            raise entries["sampler"].refused(
                "sampler cmaes needs two parameters at least; allowed: tpe, or another parameter"
            )


def _refuse_known_seed(search: Search, node: Located, resolved: Resolved) -> None:
    if search.then.seed == resolved.experiment.seed:
        raise node.refused(
            f"then: seed cannot be {search.then.seed}, which the trials have; allowed: another one, "
            "because the winner is measured again with fresh seeds"
        )
