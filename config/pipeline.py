"""The steps of the pipeline, one row each.

The DAG, the report and its verdict, the live view and the contract tests all read this table: a new
step is a module and a row. The functions look at `STEPS` when they are called, so an added row
counts everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from config.algorithms.descriptor import ACTOR_LEARNER, SELF_PLAY, SINGLE
from config.errors import unknown

if TYPE_CHECKING:
    from config.experiment import Experiment

Scope = Literal[
    "experiment", "run", "exit", "study", "study-round", "study-exit",
    "search", "search-lane", "search-trial", "search-again", "search-exit", "notice",
]  # fmt: skip
"""A step runs once in an experiment, once in each run, or once at the very end, however the
workflow ended. Those of a study work on a directory that contains the experiments' own: once, once
after each round of experiments, or once at the very end. Those of a search: once, once for each trial of a
lane, once for each rung of a trial, once in the study of the winner, or once at the very end. A notice comes
behind the last step of any workflow, and writes nothing into a directory, which has been released by then.
"""
Pool = Literal["gpu", "cpu"]
End = Literal["succeeded", "ended"]
"""How a needed task must have ended: successfully (a skipped one does not count), or in any way."""

PREPARE, TRAIN, EVALUATE = "prepare", "train", "evaluate"
"""The steps that other modules refer to by name: the first step of all, and the two that decide
whether a run is usable.
"""
TRACK, TRACK_REST = "track", "track-rest"
"""The steps that send to trackers: beside each training, and after the report whatever is left."""
EARLIER_JOBS = "EXPERIMENT_EARLIER_JOBS"
"""The variable that says how many jobs of the same pod have ended at their time limit, where pods are jobs of a
batch system.
"""
RUNS = "runs"
"""The name of the output of `prepare` that lists the runs. A step that needs it waits for all of
them.
"""
SNAPSHOT_PARTS = "snapshot-parts"
"""The name of the output of `train` that lists the parts in which the snapshots of its policy are
evaluated, such as `["0", "1"]`; `[]` if there is nothing to evaluate.
"""
REACHED = "reached"
"""The name of the file in which `train` leaves the number of epochs that a run has, beside its outputs: a
training may pause before its last one.
"""
TRAINED = "trained"
"""The name of the output of `prepare` that lists the runs whose training is complete, such as `,0,2,`:
resubmitted, their pods find nothing to do and ask for no GPU.
"""
PLAN, DECIDE = "plan", "decide"
ROUND = "round"
"""The need of a step of a study that waits for all experiments."""
AGAIN = "again"
"""The name of the output of `plan` that says whether the number of runs may grow, and of `decide` whether it
does.
"""
EXPERIMENTS: Mapping[str, str] = {
    SINGLE: "experiments",
    ACTOR_LEARNER: "experiments-with-actors",
    SELF_PLAY: "experiments-with-workers",
}
"""Of each topology, the name of the output of `plan` that lists the experiments of a study, and of the loop
over them.
"""
LANES, LANE, TRIAL, RUNG = "lanes", "lane", "trial", "rung"
"""The output of `plan-search` that lists the lanes of a search, and the loop over them; the template of a
lane; of a trial, and the output of `propose` that names it; and of a rung.
"""
TELL = "tell"
"""The step of a lane that the last call of it, which finds no trial, does not have."""
UNTIL = "until"
"""The output of `propose` and `judge` that says up to which epoch a trial is trained next."""
EVALUATED, WHOLE = "evaluated", "whole"
"""The outputs of `judge` for a trial that was trained to its end: the runs to evaluate; or, if trials have
figures and films, the trial itself, whose other steps are then those of an experiment.
"""


@dataclass(frozen=True, kw_only=True)
class Need:
    """A task that must have ended before a step begins. only_if: an output of that task that must
    be "true"; otherwise the step is skipped.
    """

    task: str
    end: End = "succeeded"
    only_if: str = ""


@dataclass(frozen=True, kw_only=True)
class Output:
    """A value that a step passes to the DAG. default: the value if the step ended before writing
    it; None for an output that must be written.
    """

    name: str
    default: str | None = None


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step, `python -m <module>` in a pod of its own.

    leaves: the files, and folders with a trailing "/", that it writes, relative to the run's
    directory or, for a step outside of the runs, to the experiment's. required: whether the
    experiment is incomplete without it; a run below `evaluate_above` may lack the steps that need
    an evaluation (see `may_be_left_out`). module: by default `steps.` and the name. deadline_s: for a
    step whose work is short, how long its pod may be on a node, also while its image cannot be pulled.
    over: the output of a needed task, a JSON list; the step has a pod for each item, which works on
    that part alone, and none for an empty list. asked_by: the parameter without which, at 0 or empty, no
    experiment has this step.
    """

    name: str
    scope: Scope
    pool: Pool = "cpu"
    needs: tuple[Need, ...] = ()
    leaves: tuple[str, ...] = ()
    outputs: tuple[Output, ...] = ()
    required: bool = True
    module: str = ""
    deadline_s: int | None = None
    over: str = ""
    asked_by: str = ""

    def __post_init__(self) -> None:
        """Derive the module's name from the step's."""
        if not self.module:
            object.__setattr__(self, "module", f"steps.{self.name.replace('-', '_')}")

    @property
    def in_run(self) -> bool:
        """Whether the step runs once in each run."""
        return self.scope == "run"


STEPS: tuple[Step, ...] = (
    Step(
        name=PREPARE,
        scope="experiment",
        leaves=("experiment.yaml",),
        outputs=(Output(name=RUNS), Output(name=TRAINED)),
        # The longest `trial_timeout`, and half an hour for all else.
        deadline_s=3600 + 1800,
        # Without `prepare` there is no directory, and so no report that could call it missing.
        required=False,
    ),
    Step(
        name=TRAIN,
        scope="run",
        pool="gpu",
        needs=(Need(task=PREPARE),),
        leaves=("train.csv", "resources.csv", "checkpoints/", "snapshots/", "tensorboard/"),
        outputs=(
            Output(name="evaluate", default="true"),
            Output(name=SNAPSHOT_PARTS, default="[]"),
        ),
    ),
    Step(
        name=TRACK,
        scope="run",
        # It begins together with `train`, whose files it follows.
        needs=(Need(task=PREPARE),),
        asked_by="track",
        leaves=("tracking/",),
        # What could not be sent never makes an experiment incomplete.
        required=False,
    ),
    Step(
        name=EVALUATE,
        scope="run",
        needs=(Need(task=TRAIN, only_if="evaluate"),),
        leaves=("evaluation.csv", "evaluation-actions.safetensors"),
    ),
    Step(
        name="play",
        scope="run",
        needs=(Need(task=EVALUATE),),
        leaves=("videos/",),
    ),
    Step(
        name="evaluate-snapshots",
        scope="run",
        needs=(Need(task=TRAIN),),
        over=SNAPSHOT_PARTS,
        asked_by="evaluations",
        leaves=("snapshot-evaluations/",),
        # Its pods have a status each; the next step says what is missing.
        required=False,
    ),
    Step(
        name="evaluation-curve",
        scope="run",
        needs=(Need(task="evaluate-snapshots"),),
        asked_by="evaluations",
        leaves=("evaluation-curve.csv", "best-snapshot.csv", "plots/"),
    ),
    Step(
        name="play-learning",
        scope="run",
        needs=(Need(task="evaluate-snapshots"),),
        asked_by="evaluations",
        leaves=("videos/",),
    ),
    Step(
        name="plot-training",
        scope="run",
        needs=(Need(task=TRAIN),),
        leaves=("plots/",),
    ),
    Step(
        name="plot-evaluation",
        scope="run",
        needs=(Need(task=EVALUATE),),
        leaves=("plots/",),
    ),
    Step(
        name="average",
        scope="experiment",
        needs=(Need(task=RUNS, end="ended"),),
        leaves=(
            "average/train.csv",
            "average/evaluation.csv",
            "average/evaluation-curve.csv",
            "average/summary.json",
        ),
    ),
    Step(
        name="plot-average",
        scope="experiment",
        needs=(Need(task="average"),),
        leaves=("average/plots/",),
    ),
    Step(
        name="report",
        scope="exit",
        leaves=("report.html",),
        deadline_s=1800,
        # The report is what says that something is missing, so it cannot miss itself.
        required=False,
    ),
    Step(
        name=TRACK_REST,
        scope="exit",
        # It begins together with `report` and waits for its end by itself: behind it, it would be the
        # only leaf of the exit handler, and a failed report would look like a success.
        asked_by="track",
        deadline_s=3600,
        required=False,
    ),
)
"""In the order of the figure: each step comes after those that it needs."""
STUDY_STEPS: tuple[Step, ...] = (
    Step(
        name=PLAN,
        scope="study",
        leaves=("study.yaml", "cells.json"),
        outputs=tuple(Output(name=name) for name in (*EXPERIMENTS.values(), AGAIN)),
        # Every game may be tried, as `prepare` does.
        deadline_s=12 * 3600,
    ),
    Step(
        name=DECIDE,
        scope="study-round",
        leaves=("cells.json", "decisions.json"),
        outputs=(
            *(Output(name=name) for name in EXPERIMENTS.values()),
            Output(name=AGAIN, default="false"),
        ),
        deadline_s=3600,
    ),
    Step(
        name="compare",
        scope="study",
        needs=(Need(task=ROUND, end="ended"),),
        leaves=("comparison/",),
    ),
    Step(
        name="plot-comparison",
        scope="study",
        needs=(Need(task="compare"),),
        leaves=("comparison/plots/",),
    ),
    Step(name="report-study", scope="study-exit", leaves=("report.html",), deadline_s=3600),
)
"""The steps of a study around its experiments, in their order."""
SEARCH_STEPS: tuple[Step, ...] = (
    Step(
        name="plan-search",
        scope="search",
        leaves=("study.yaml", "cells.json", "search/"),
        outputs=(Output(name=LANES),),
        deadline_s=12 * 3600,
    ),
    Step(
        name="propose",
        scope="search-lane",
        leaves=("search/", "trials/"),
        outputs=(
            *(Output(name=name, default="[]") for name in EXPERIMENTS.values()),
            Output(name=AGAIN, default="false"),
            Output(name=TRIAL, default=""),
            Output(name=UNTIL, default="0"),
        ),
        deadline_s=3600,
    ),
    Step(
        name="judge",
        scope="search-trial",
        leaves=("search/",),
        outputs=(
            Output(name=AGAIN, default="false"),
            Output(name=UNTIL, default="0"),
            Output(name=EVALUATED, default="[]"),
            Output(name=WHOLE, default="[]"),
        ),
        deadline_s=3600,
    ),
    Step(name=TELL, scope="search-lane", leaves=("search/",), deadline_s=3600),
    Step(
        name="choose",
        scope="search",
        leaves=("best.yaml", "again/"),
        outputs=tuple(Output(name=name) for name in (*EXPERIMENTS.values(), AGAIN)),
        deadline_s=3600,
    ),
    Step(name="compare", scope="search-again", leaves=("again/comparison/",)),
    Step(
        name="plot-comparison",
        scope="search-again",
        needs=(Need(task="compare"),),
        leaves=("again/comparison/plots/",),
    ),
    Step(name="report-search", scope="search-exit", leaves=("report.html",), deadline_s=3600),
)
"""The steps of a search around its trials and the experiments of the winner, in their order."""
NOTICE = Step(name="notify", scope="notice", required=False, deadline_s=600)
"""Tells a web address how a workflow of any kind ended, if its parameter `notify` names one."""


def steps(scope: Scope) -> tuple[Step, ...]:
    """The steps of a scope."""
    return tuple(step for step in STEPS if step.scope == scope)


def names(scope: Scope) -> tuple[str, ...]:
    """The names of the steps of a scope."""
    return tuple(step.name for step in steps(scope))


def find(name: str) -> Step:
    """The step of this name. Raises `BadInput`."""
    known = (*STEPS, *STUDY_STEPS, *SEARCH_STEPS, NOTICE)
    for step in known:
        if step.name == name:
            return step
    raise unknown("step", name, {step.name for step in known})


def asked(scope: Scope, experiment: Experiment) -> tuple[Step, ...]:
    """The steps of a scope that an experiment with these parameters has."""
    return tuple(
        step for step in steps(scope) if not step.asked_by or getattr(experiment, step.asked_by)
    )


def may_be_left_out(step: Step) -> bool:
    """Whether a run is complete without this step because the condition of the step, or of one that
    it needs, was not met.
    """
    known = {other.name: other for other in STEPS}
    return bool(step.over) or any(
        need.only_if or (need.task in known and may_be_left_out(known[need.task]))
        for need in step.needs
    )


def left_by(scope: Scope) -> tuple[str, ...]:
    """What the steps of a scope write, without repetitions: files first, then folders."""
    listed = [leaf for step in steps(scope) for leaf in step.leaves]
    return tuple(dict.fromkeys(sorted(listed, key=lambda leaf: leaf.endswith("/"))))


def folders(scope: Scope) -> tuple[str, ...]:
    """The folders that the steps of a scope write to, outer ones first."""
    found: dict[str, None] = {}
    for leaf in left_by(scope):
        *parents, _ = leaf.split("/")
        found |= {"/".join(parents[: depth + 1]): None for depth in range(len(parents))}
    return tuple(found)
