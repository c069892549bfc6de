"""Experiments of this project, and studies, which have many of them.

No code that came with the results runs: an algorithm whose module lies anywhere in the source is
refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from config.environment import EnvironmentSettings
from config.errors import BadInput, ExperimentError, shown
from config.parameters import to_text
from config.resolved import Resolved
from steps.average import RunResult, read_run
from steps.comparison.entries import EMPTY, ComparedRun, Entry
from steps.comparison.readers.run_names import natural
from steps.comparison.readers.source import Reader, Source
from steps.directory.cost import cost_of
from steps.directory.experiment import changes, read_experiment
from steps.directory.layout import ExperimentDirectory, RunDirectory
from steps.directory.usable import resource_columns
from steps.evaluations.curve import read_curve
from steps.statistics.curves import Curve, against_time, curve

EXPERIMENTS = "experiments"
"""The folder of a study with a directory for each of its experiments."""
MADE_BY = "rl-training-dag"
OF_ATARI = ("sticky_actions", "full_action_set", "noop_max", "fire_after_life_loss")
OF_ANY_GAME = ("env_options", "wrappers")
NOT_COMPARED = ("experiment.seed",)
"""Parameters of the identity in which two experiments with the same settings may differ."""


def recognises(path: Path) -> bool:
    """Whether an experiment or a study lies here."""
    return _is_experiment(path) or bool(_experiments_of(path))


def read(source: Source) -> list[Entry]:
    """One entry for an experiment; for a study one for each of its experiments, in their order."""
    listed = [source.path] if _is_experiment(source.path) else _experiments_of(source.path)
    label = source.options.get("label", "")
    if label and len(listed) > 1:
        raise BadInput(
            f"{source.path} is a study with {len(listed)} experiments, which cannot all have the "
            f"label {shown(label)}; allowed: no label, or {EXPERIMENTS}/NAME:label=…"
        )
    read_here = [_resolved(path, source.path) for path in listed]
    settings = differences(read_here)
    return [
        entry_of(ExperimentDirectory(path), resolved, label=label, settings=own)
        for path, resolved, own in zip(listed, read_here, settings, strict=True)
    ]


READER = Reader(
    title="our experiments and studies",
    form=f"a directory with experiment.yaml, or with {EXPERIMENTS}/*/experiment.yaml",
    options=("label",),
    recognises=recognises,
    read=read,
)


def entry_of(
    directory: ExperimentDirectory,
    resolved: Resolved,
    *,
    label: str = "",
    settings: Mapping[str, str] | None = None,
) -> Entry:
    """The entry of an experiment. label: by default its algorithm."""
    runs = (directory.run(index) for index in range(resolved.experiment.runs))
    report = directory.report_html
    return Entry(
        label=label or resolved.algorithm,
        game=resolved.game.name,
        runs=tuple(_compared(run, resolved) for run in runs),
        directory=directory.root,
        made_by=MADE_BY,
        settings=settings or {},
        steps=resolved.total_steps,
        frames=resolved.game.frames_per_step,
        measure=resolved.measure,
        evaluation=_evaluation(resolved),
        conditions=_conditions(resolved),
        page=report if report.is_file() else None,
    )


def differences(experiments: Sequence[Resolved]) -> list[dict[str, str]]:
    """For each experiment the parameters in which those of its algorithm differ, by name. Presets
    differ from game to game, so only experiments on one game are held against each other.
    """
    identities = [one.identity() for one in experiments]
    kinds = [(one.algorithm, one.game.id) for one in experiments]
    differing: dict[str, set[str]] = {}
    for kind, identity in zip(kinds, identities, strict=True):
        first = identities[kinds.index(kind)]
        found = {name for name, _, _ in changes(first, identity)} - set(NOT_COMPARED)
        differing.setdefault(kind[0], set()).update(found)
    return [
        {name.rpartition(".")[2]: _text(identity, name) for name in sorted(differing[kind[0]])}
        for kind, identity in zip(kinds, identities, strict=True)
    ]


def _text(identity: Mapping[str, object], name: str) -> str:
    value: object = identity
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return to_text(value)


def _resolved(path: Path, source: Path) -> Resolved:
    try:
        return read_experiment(ExperimentDirectory(path), source).resolved
    except ExperimentError as error:
        raise BadInput(str(error)) from error


def _compared(run: RunDirectory, resolved: Resolved) -> ComparedRun:
    """A run as `average` sees it, with what the comparison needs beyond that."""
    resources = resource_columns(run)
    with np.errstate(invalid="ignore"):  # a damaged table may have steps that no integer holds
        result = read_run(run, resolved)
        training = EMPTY if resolved.measure.training_name else _sound(result.curve)
        times = _sound(against_time(training, resources))
        policy = _sound(_policy(run, resolved))
    return ComparedRun(
        name=str(run.index),
        score=result.score if result.episodes else None,
        episodes=len(result.episodes),
        steps=result.step,
        training=training,
        times=times,
        policy=policy,
        left_out=_left_out(result),
        cost=cost_of(run, resources),
    )


def _policy(run: RunDirectory, resolved: Resolved) -> Curve:
    points = read_curve(run, resolved.measure)
    try:
        return curve([one.step for one in points], [one.mean for one in points])
    except OverflowError:
        return EMPTY


def _sound(one: Curve) -> Curve:
    """The curve, or none if its steps do not rise, as in a damaged table whose checksum nobody knows."""
    return one if (np.diff(one.steps) > 0).all() else EMPTY


def _left_out(result: RunResult) -> str:
    if result.is_evaluated:
        return ""
    return f"{result.usable.state}: {result.usable.reason}"


def _evaluation(resolved: Resolved) -> str:
    how = {"greedy": "greedy", "sample": "sampled"}[resolved.evaluation_policy]
    what = "games" if resolved.descriptor.has_workers else "episodes"
    return f"{resolved.evaluated_episodes} {how} {what} of the final policy"


def _conditions(resolved: Resolved) -> dict[str, str]:
    environment = resolved.environment
    if not isinstance(environment, EnvironmentSettings):
        return {}
    values = dataclasses.asdict(environment)
    names = OF_ATARI if resolved.game.is_atari else ()
    found = {name: to_text(values[name]) for name in names}
    return found | {name: to_text(values[name]) for name in OF_ANY_GAME if values[name]}


def _is_experiment(path: Path) -> bool:
    return ExperimentDirectory(path).experiment_yaml.is_file()


def _experiments_of(path: Path) -> list[Path]:
    """The directories of a study's experiments; empty if it is none."""
    folder = path / EXPERIMENTS
    if not folder.is_dir():
        return []
    found = [one for one in folder.iterdir() if _is_experiment(one)]
    return sorted(found, key=lambda one: natural(one.name))
