"""Where every file of an experiment lies: the tree of docs/output.md as attributes, and nothing else."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from config.measures import Measure

STEP_DIGITS = 12
"""Checkpoint names have a fixed width, so that the order of the text is the order of the steps."""


MEMBER = re.compile(r"(?P<task>[a-z-]+)-(?P<role>[a-z]+)-(?P<number>\d+)")


def task_name(task: str, member: str = "") -> str:
    """The name of the log and the status of a task, or of one of its members."""
    return f"{task}-{member}" if member else task


@dataclass(frozen=True)
class RunDirectory:
    """One training run: `<outdir>/runs/<index>/`."""

    root: Path
    index: int

    @property
    def checkpoints(self) -> Path:
        """Contains the directories `<step>/`, see `steps.directory.checkpoints`."""
        return self.root / "checkpoints"

    @property
    def snapshots(self) -> Path:
        """With `evaluations`: contains the directories `<step>/`, see `steps.directory.snapshots`."""
        return self.root / "snapshots"

    def snapshot(self, step: int) -> Path:
        """The directory of the policy's snapshot at an environment step."""
        return self.snapshots / f"{step:0{STEP_DIGITS}d}"

    def snapshot_steps(self) -> list[int]:
        """Steps of the complete snapshots, oldest first."""
        return _numbered(self.snapshots)

    @property
    def snapshot_evaluations(self) -> Path:
        """With `evaluations`: the episodes of each snapshot, see `steps.directory.snapshots`."""
        return self.root / "snapshot-evaluations"

    @property
    def evaluation_curve_csv(self) -> Path:
        """With `evaluations`: one row per snapshot, see `steps.evaluation_curve`."""
        return self.root / "evaluation-curve.csv"

    @property
    def best_snapshot_csv(self) -> Path:
        """With `evaluations`: the best snapshot's episodes on other seeds than those that chose it."""
        return self.root / "best-snapshot.csv"

    @property
    def pruned_json(self) -> Path:
        """That the run's state was deleted, see `steps.directory.pruned`."""
        return self.root / "pruned.json"

    @property
    def train_csv(self) -> Path:
        """One row per log interval; nothing in it depends on the clock."""
        return self.root / "train.csv"

    @property
    def tensorboard(self) -> Path:
        """Event files, one per attempt."""
        return self.root / "tensorboard"

    @property
    def tracking(self) -> Path:
        """What was sent to trackers: `<tracker>.json`, see `steps.tracking.journal`."""
        return self.root / "tracking"

    def evaluated(self, measure: Measure) -> Path:
        """One row per evaluation episode, in the table that the measure names."""
        return self.root / measure.table

    @property
    def arena_csv(self) -> Path:
        """Self-play: one row per game of the evaluation that does not count for the run's score,
        see `steps.arena.games`.
        """
        return self.root / "arena.csv"

    @property
    def evaluation_actions(self) -> Path:
        """The actions of the filmed episodes, see `steps.directory.arrays`."""
        return self.root / "evaluation-actions.safetensors"

    @property
    def resources_csv(self) -> Path:
        """Speed and use of processors, memory and GPU over time."""
        return self.root / "resources.csv"

    def member_resources_csv(self, member: str) -> Path:
        """The same for a member of the train stage: `resources-actor-3.csv`."""
        return self.root / f"resources-{member}.csv"

    @property
    def learner_json(self) -> Path:
        """The address of this run's learner while there is one, and its access token. Readable for
        the owner only. See `steps.training.meeting`.
        """
        return self.root / "learner.json"

    def address_json(self, learner: int) -> Path:
        """The address of one of the run's learners, numbered from 0."""
        return self.root / f"learner-{learner}.json" if learner else self.learner_json

    @property
    def learners_json(self) -> Path:
        """Where several learners of this run meet, while the first of them runs; see
        `steps.training.gathering`.
        """
        return self.root / "learners.json"

    @property
    def videos(self) -> Path:
        """Films of the trained policy: `episode-<n>.mp4`."""
        return self.root / "videos"

    @property
    def plots(self) -> Path:
        """Figures of this run."""
        return self.root / "plots"

    @property
    def logs(self) -> Path:
        """`<task>.log`: what the pod printed, `<task>-<member>.log` of a task with several."""
        return self.root / "logs"

    @property
    def status(self) -> Path:
        """`<task>.json`: how the task ended, `<task>-<member>.json` of a task with several."""
        return self.root / "status"

    def members(self) -> list[tuple[str, str]]:
        """(task, `train-actor-3`) of all members that have left a status, in order."""
        try:
            names = [path.stem for path in self.status.iterdir() if path.suffix == ".json"]
        except (FileNotFoundError, NotADirectoryError):
            return []
        found = [match for match in map(MEMBER.fullmatch, names) if match is not None]
        found.sort(key=lambda match: (match["task"], match["role"], int(match["number"])))
        return [(match["task"], match[0]) for match in found]

    def stream(self, name: str) -> Path:
        """The segments of a growing stream of the training, such as its replay; see
        `steps.directory.segments`.
        """
        return self.root / name

    @property
    def networks(self) -> Path:
        """Self-play: contains the directories `<generation>/`, see `steps.directory.self_play`."""
        return self.root / "networks"

    @property
    def positions(self) -> Path:
        """Self-play: the games that workers have played, see `steps.directory.self_play`."""
        return self.root / "positions"

    def generations(self) -> list[int]:
        """The generations whose networks exist, oldest first."""
        return _numbered(self.networks)

    def network(self, generation: int) -> Path:
        """The directory of a generation's network."""
        return self.networks / f"{generation:0{STEP_DIGITS}d}"

    def checkpoint_steps(self) -> list[int]:
        """Steps of the complete checkpoint directories, oldest first; temporaries and leftovers of
        NFS never count.
        """
        return _numbered(self.checkpoints)

    def checkpoint(self, step: int) -> Path:
        """The directory of the checkpoint at an environment step."""
        return self.checkpoints / f"{step:0{STEP_DIGITS}d}"


def _numbered(folder: Path) -> list[int]:
    """The subdirectories named by numbers of a fixed width, ascending."""
    try:
        names = [path.name for path in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(int(name) for name in names if name.isdecimal() and len(name) == STEP_DIGITS)


@dataclass(frozen=True)
class ExperimentDirectory:
    """The output directory of one experiment."""

    root: Path

    @property
    def experiment_yaml(self) -> Path:
        """Resolved parameters, versions, source commit, image, start time; written by `prepare`."""
        return self.root / "experiment.yaml"

    @property
    def owner_json(self) -> Path:
        """The workflow that may write here, see `steps.directory.owner`."""
        return self.root / "owner.json"

    @property
    def compute_json(self) -> Path:
        """Device and precision of all trainings, and the reasons, see `steps.directory.experiment`."""
        return self.root / "compute.json"

    @property
    def report_html(self) -> Path:
        """The page to look at."""
        return self.root / "report.html"

    @property
    def runs(self) -> Path:
        """Contains one directory per run."""
        return self.root / "runs"

    @property
    def average(self) -> Path:
        """`train.csv`, `evaluation.csv`, `summary.json` and `plots/` over the runs."""
        return self.root / "average"

    @property
    def logs(self) -> Path:
        """`<task>.log` of the tasks outside of the runs."""
        return self.root / "logs"

    @property
    def status(self) -> Path:
        """`<task>.json` of the tasks outside of the runs."""
        return self.root / "status"

    def run(self, index: int) -> RunDirectory:
        """The directory of one run (it need not exist)."""
        return RunDirectory(self.runs / str(index), index)
