"""Reads an experiment's directory once, as plain values. Needs no plot library."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config import pipeline
from config.described import parameters, section_title
from config.errors import BadInput, WrongDirectory
from config.measures import Measure
from config.numbers import number
from config.parameters import to_text
from config.resolve import resolve
from config.resolved import NOT_RECORDED, Resolved
from steps.directory.cost import Cost, experiment_cost
from steps.directory.experiment import ExperimentRecord, read_compute
from steps.directory.files import last_lines, read_bytes
from steps.directory.layout import ExperimentDirectory, RunDirectory
from steps.directory.pruned import Pruned, read_pruned
from steps.directory.status import Progress, Status, read_progress, read_status
from steps.directory.usable import (
    Episode,
    Usable,
    evaluation_episodes,
    training_episodes,
    training_score,
    usability,
)
from steps.evaluations.curve import Best, read_best
from steps.page.damage import damaged_files
from steps.page.summary import parsed

TAIL_LINES = 14
TAIL_BYTES = 8192
FILM = re.compile(r"episode-[0-9]{1,6}\.mp4")
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[^\t\n\x20-\x7e\x80-\U0010ffff]")


@dataclass(frozen=True, kw_only=True)
class Task:
    """One step of the pipeline and how it ended. status: None before its first start. log: relative
    link, empty without one. members: the other processes of a step that has several.
    """

    name: str
    run: int | None
    status: Status | None
    log: str
    tail: str
    members: tuple[Task, ...] = ()

    @property
    def title(self) -> str:
        """The step in words: `play of run 1`."""
        return self.name if self.run is None else f"{self.name} of run {self.run}"

    @property
    def state(self) -> str:
        """The state, or that it has not started."""
        if self.status is None:
            return "not started"
        return self.status.state

    @property
    def is_done(self) -> bool:
        """Whether the task has nothing left to do."""
        return self.state in {"succeeded", "skipped"}

    @property
    def is_problem(self) -> bool:
        """Whether something went wrong, or is under way."""
        return self.status is not None and not self.status.ended_well

    @property
    def reason(self) -> str:
        """Why it ended as it did, in one line."""
        if self.status is None:
            return ""
        return self.status.reason or ""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One planned run. fraction: finished share of its training, by epochs. training_score: mean of
    its last 100 training episodes, training_episodes: of how many if fewer have ended.
    """

    index: int
    directory: RunDirectory
    usable: Usable
    tasks: Mapping[str, Task]
    episodes: tuple[Episode, ...]
    step: int
    fraction: float
    measure: Measure
    training_score: float | None
    training_episodes: int | None
    machine: str
    films: tuple[str, ...]
    files: tuple[str, ...]

    @property
    def score(self) -> float | None:
        """The run's score, computed by the measure from the evaluation's episodes."""
        return self.measure.of_run(self.values) if self.episodes else None

    @property
    def values(self) -> list[float]:
        """The measure's value for each episode."""
        return [one.value for one in self.episodes]

    @property
    def spread(self) -> float | None:
        """The standard deviation over the episodes."""
        return statistics.stdev(self.values) if len(self.episodes) > 1 else None

    @property
    def cut_episodes(self) -> int:
        """How many episodes of the evaluation did not end by themselves."""
        status = self.tasks["evaluate"].status
        noted = status.details.get("cut") if status else None
        return noted if isinstance(noted, int) else 0

    @property
    def learning(self) -> str:
        """The film of how it learnt; empty without one."""
        task = self.tasks.get("play-learning")
        status = None if task is None else task.status
        name = status.details.get("file") if status else None
        return name if name == "learning.mp4" and (self.directory.videos / name).is_file() else ""

    @property
    def best(self) -> Best | None:
        """The best of its snapshots, if it was chosen and measured again."""
        return read_best(self.directory, self.measure)

    def film_note(self, name: str) -> str:
        """What `play` recorded about a film: its length, whether it was cut, whether it is the
        evaluated episode, and as the environment drew it.
        """
        for one in _noted_films(self.tasks["play"].status):
            if one.get("file") == name:
                cut = ", cut there" if one.get("cut") else ""
                other = ", not the evaluated episode" if one.get("differs") else ""
                drawn = ", not as the environment drew it" if one.get("irregular") else ""
                return f"{one.get('seconds', '?')} s{cut}{other}{drawn}"
        return ""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One parameter. preset: the value without `-p`; empty if it is the same."""

    name: str
    value: str
    unit: str
    help: str
    preset: str
    is_changed: bool


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Everything that the page shows. pruned: the runs whose state was deleted."""

    directory: ExperimentDirectory
    record: ExperimentRecord
    runs: tuple[Run, ...]
    tasks: Mapping[str, Task]
    summary: Mapping[str, Any] | None
    files: tuple[str, ...]
    workflow_status: str
    damaged: tuple[str, ...]
    cost: Cost
    pruned: Mapping[int, Pruned]

    @property
    def resolved(self) -> Resolved:
        """The experiment's parameters."""
        return self.record.resolved

    @property
    def tasks_and_members(self) -> list[Task]:
        """All tasks, each followed by its members."""
        return [one for task in self.all_tasks for one in (task, *task.members)]

    @property
    def all_tasks(self) -> list[Task]:
        """The tasks of the experiment and of every run, in the order of the pipeline."""
        listed = [step.name for step in pipeline.STEPS]
        shared = list(self.tasks.values())
        first = listed.index(pipeline.names("run")[0])
        before = [task for task in shared if listed.index(task.name) < first]
        of_runs = [task for run in self.runs for task in run.tasks.values()]
        return [*before, *of_runs, *shared[len(before) :]]


def read_facts(
    directory: ExperimentDirectory, record: ExperimentRecord, workflow_status: str
) -> Facts:
    """Read the directory. A missing or damaged file is recorded as a fact and is not an error."""
    resolved = record.resolved
    return Facts(
        directory=directory,
        record=record,
        runs=tuple(
            _read_run(directory.run(index), resolved) for index in range(resolved.experiment.runs)
        ),
        tasks={name: _task(name, None, directory) for name in pipeline.names("experiment")},
        summary=_summary(directory),
        files=_files(
            directory.root, (*pipeline.left_by("experiment"), "average/arena.csv", "compute.json")
        ),
        workflow_status=workflow_status,
        damaged=tuple(damaged_files(directory, resolved.experiment.runs, resolved.measure)),
        cost=experiment_cost(directory, resolved.experiment.runs),
        pruned={
            index: found
            for index in range(resolved.experiment.runs)
            if (found := read_pruned(directory.run(index))) is not None
        },
    )


def settings(resolved: Resolved) -> dict[str, list[Setting]]:
    """Section -> its parameters, each with the value of the game's preset."""
    try:
        preset: Resolved | None = resolve(resolved.algorithm, {"game": resolved.experiment.game})
    except BadInput:
        preset = None
    sections: dict[str, list[Setting]] = {}
    for info in parameters(resolved.algorithm):
        if info.name in NOT_RECORDED:  # the steps are among the derived quantities
            continue
        value = to_text(getattr(getattr(resolved, info.section), info.name))
        default = value
        if preset is not None:
            default = to_text(getattr(getattr(preset, info.section), info.name))
        title = section_title(resolved.algorithm, info.section)
        sections.setdefault(title, []).append(
            Setting(
                name=info.name,
                value=value,
                unit=info.unit,
                help=info.help,
                preset=default,
                is_changed=value != default and info.name not in {"game", "outdir"},
            )
        )
    return sections


def derived(resolved: Resolved) -> dict[str, str]:
    """Quantities that follow from the parameters."""
    frames = resolved.game.frames_per_step
    steps = number(resolved.total_steps)
    if frames > 1:
        steps += f" ({number(resolved.total_steps * frames)} frames)"
    return {
        "steps of one training": steps,
        "epochs": number(resolved.epochs),
        "rows of one epoch": number(resolved.steps_per_epoch),
        "epochs between checkpoints": str(resolved.checkpoint_interval),
        "usable runs needed": str(resolved.min_runs),
        "environment": resolved.game.id,
    }


def computed(directory: ExperimentDirectory, vectorisation: str = "auto") -> dict[str, str]:
    """Device, precision and vectorisation of the trainings, and the reasons; empty before the first
    training has started. vectorisation: the one requested last.
    """
    try:
        compute = read_compute(directory.compute_json)
    except (OSError, WrongDirectory):
        return {"computed on": f"unknown: {directory.compute_json.name} cannot be read"}
    if compute is None:
        return {}
    said = {"computed on": str(compute)}
    stepped = compute.vectorisation
    reason = compute.vectorisation_reason
    if vectorisation != "auto" and stepped != "native":
        stepped = vectorisation
        reason = f"{vectorisation} was asked for"
    if stepped:
        said["environments stepped"] = f"{stepped} ({reason})"
    return said


def _read_run(run: RunDirectory, resolved: Resolved) -> Run:
    usable = usability(run, resolved)
    measure = resolved.measure
    train = read_status(run.status / f"{pipeline.TRAIN}.json")
    tasks = {name: _task(name, run.index, run) for name in pipeline.names("run")}
    progress = _progress(run, resolved)
    episodes: tuple[Episode, ...] = ()
    if usable.state == "complete":
        episodes = tuple(evaluation_episodes(run, measure))
    return Run(
        index=run.index,
        directory=run,
        usable=usable,
        tasks=tasks,
        episodes=episodes,
        step=progress.step,
        fraction=1.0 if usable else progress.fraction,
        measure=measure,
        training_score=training_score(train, measure),
        training_episodes=training_episodes(train),
        machine="" if train is None else _machine(train),
        films=_films(run.videos, tasks["play"].status),
        files=_files(
            run.root, dict.fromkeys((*pipeline.left_by("run"), measure.table, run.arena_csv.name))
        ),
    )


def _progress(run: RunDirectory, resolved: Resolved) -> Progress:
    """The run's progress from its tables; step 0 if they cannot be read."""
    try:
        return read_progress(run, resolved)
    except (OSError, ValueError, TypeError):
        return Progress(
            step=0,
            total_steps=resolved.total_steps,
            epoch=0,
            epochs=resolved.epochs,
            score=None,
            steps_per_second=None,
        )


def _machine(train: Status) -> str:
    """The machine in short: `cpu fp32, 2 800 steps/s`."""
    speed = train.number("steps_per_second")
    named = [train.details.get(name) for name in ("device", "precision")]
    parts = [" ".join(text for text in named if isinstance(text, str))]
    if speed is not None:
        parts.append(f"{number(round(speed))} steps/s")
    return ", ".join(part for part in parts if part)


def _films(folder: Path, play: Status | None) -> tuple[str, ...]:
    """File names of the films that `play` made last, episode 10 after episode 2, without empty files.
    Others in the folder show episodes of an earlier evaluation.
    """
    names = {str(one.get("file")) for one in _noted_films(play)}
    found = [name for name in names if FILM.fullmatch(name) and _has_content(folder / name)]
    return tuple(sorted(found, key=lambda name: (len(name), name)))


def _noted_films(play: Status | None) -> list[Mapping[str, Any]]:
    """What `play` recorded about each film."""
    noted = play.details.get("videos") if play else None
    # A status file may be damaged or made by another version: its details can be anything.
    return [one for one in noted if isinstance(one, Mapping)] if isinstance(noted, list) else []


def _has_content(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


def _files(root: Path, left: Iterable[str]) -> tuple[str, ...]:
    """The existing files among those that the steps leave, with their descriptions."""
    listed = (*(name.rstrip("/") for name in left), "logs", "status")
    return tuple(name for name in listed if (root / name).exists())


def _task(name: str, run: int | None, own: ExperimentDirectory | RunDirectory) -> Task:
    status = read_status(own.status / f"{name}.json")
    members = _members(name, own) if isinstance(own, RunDirectory) else ()
    if members and _is_shared(name):
        # Its own status, if there is one, tells of a start by hand, perhaps long before these.
        status = _together(members)
    log = own.logs / f"{name}.log"
    prefix = "" if run is None else f"runs/{run}/"
    tail = ""
    if status is not None and not status.ended_well:
        tail = _tail(log)
    return Task(
        name=name,
        run=run,
        status=status,
        log=f"{prefix}logs/{name}.log" if log.is_file() else "",
        tail=tail,
        members=members,
    )


def _is_shared(name: str) -> bool:
    """Whether each pod of a step does a part of its work, and none represents it."""
    return any(step.over for step in pipeline.steps("run") if step.name == name)


def _together(parts: tuple[Task, ...]) -> Status | None:
    """How a step ended whose pods share its work: as the first of them that did not succeed, else as
    the one that took longest. None before any has started.
    """
    known = [part.status for part in parts if part.status is not None]
    unfinished = [status for status in known if status.state not in {"succeeded", "skipped"}]
    longest = sorted(known, key=lambda status: -(status.duration_s or 0))
    return next(iter([*unfinished, *longest]), None)


def _members(task: str, run: RunDirectory) -> tuple[Task, ...]:
    return tuple(_task(name, run.index, run) for of, name in run.members() if of == task)


def _tail(path: Path) -> str:
    """The last lines of a log, without colours and control characters."""
    lines = last_lines(path, TAIL_BYTES)[-TAIL_LINES:]
    return "\n".join(CONTROL.sub("", line)[:400] for line in lines)


def _summary(directory: ExperimentDirectory) -> Mapping[str, Any] | None:
    try:
        return parsed(read_bytes(directory.average / "summary.json"))
    except (OSError, ValueError, TypeError, RecursionError, BadInput):
        return None
