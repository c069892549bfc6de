"""The settings of a Slurm cluster: the section `slurm` of the file that `--cluster` names. What a pod
requests comes from the same file's other settings, as on Kubernetes.

Source: the manual pages of sbatch and slurm.conf (Slurm 22.05).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config.errors import BadInput, shown
from config.parameters import parameter, refuse_hostile
from config.sections import list_of, section, setting
from config.strict_yaml import load_mapping

SECTION = "slurm"
POOLS = ("gpu", "actor", "cpu")
NAME: dict[str, Any] = {
    "optional": True,
    "pattern": r"[A-Za-z0-9][\w.,:@+-]{0,127}",
    "form": "a name as Slurm knows it",
}
TIME = re.compile(r"(?:(\d{1,3})-)?(\d{1,5})(?::(\d{1,2}))?(?::(\d{1,2}))?")
TIME_FORM = "minutes, or a time such as 2-00:00:00, 8:00:00 or 30:00"
OPTION = re.compile(r"--[a-z][a-z-]*(=[^\s]{1,200})?")
OWN_OPTIONS = (
    "--job-name", "--array", "--output", "--error", "--open-mode", "--parsable", "--wrap", "--export", "--chdir", "--signal",
    "--requeue", "--no-requeue", "--cpus-per-task", "--mem", "--gres", "--nodes", "--ntasks", "--test-only", "--time", "--time-min",
    "--partition", "--account", "--qos", "--constraint", "--reservation", "--wait", "--hold", "--dependency", "--input", "--clusters",
)  # fmt: skip
"""Options that the executor sets itself or that would break it. sbatch takes the beginnings of their names,
too.
"""
ADDRESS = r"name|default|interface:[A-Za-z0-9][\w.:-]{0,14}"


def seconds(text: str) -> int:
    """The seconds of a time limit in one of Slurm's forms. Raises `ValueError`."""
    found = TIME.fullmatch(text)
    if found is None:
        raise ValueError("it is no time")
    days, first, second, third = (None if part is None else int(part) for part in found.groups())
    if days is not None:  # days-hours[:minutes[:seconds]]
        total = ((days * 24 + (first or 0)) * 60 + (second or 0)) * 60 + (third or 0)
    elif third is not None:
        total = ((first or 0) * 60 + (second or 0)) * 60 + third
    else:
        total = (first or 0) * 60 + (second or 0)
    if total < 60:
        raise ValueError("it is shorter than a minute")
    return total


def _time(text: str) -> str:
    seconds(text)
    return text


def _is_own(name: str) -> bool:
    return any(own.startswith(name) for own in OWN_OPTIONS)


def _option(value: Any, path: str) -> str:
    text = str(value)
    refuse_hostile(path, text)
    name = text.partition("=")[0]
    if not isinstance(value, str) or not OPTION.fullmatch(text) or _is_own(name):
        raise BadInput(
            f"{path!r} cannot be {shown(value)}; allowed: an option of sbatch such as --nice=100, "
            f"none of {', '.join(OWN_OPTIONS)}"
        )
    return text


def _word(value: Any, path: str) -> str:
    if not isinstance(value, str) or not value:
        raise BadInput(f"{path!r} cannot be {shown(value)}; allowed: a word of a command")
    refuse_hostile(path, value)
    return value


WORDS = list_of(_word, "a list of words")


@dataclass(frozen=True, kw_only=True)
class Jobs:
    """How the jobs of one pool are submitted, and what wraps their commands."""

    partition: str | None = parameter(
        None, help="partition of the jobs; empty: the cluster's default", **NAME
    )
    account: str | None = parameter(None, help="account that is charged", **NAME)
    qos: str | None = parameter(None, help="quality of service", **NAME)
    time_limit: str | None = parameter(
        None,
        optional=True,
        canonical=_time,
        form=TIME_FORM,
        help="time limit of a job, after which a training goes on in another job; empty: the partition's",
    )
    gres: str = parameter(
        "gpu",
        pattern=r"[a-z][\w-]{0,31}(:[\w.-]{1,32})?",
        form="a generic resource such as gpu or gpu:a100",
        help="resource of which a pod gets as many as it requests GPUs",
    )
    constraint: str | None = parameter(
        None,
        optional=True,
        pattern=r"[\w.,:@+&|*()\[\]-]{1,200}",
        form="features as sbatch --constraint takes them",
        help="features that the nodes must have",
    )
    reservation: str | None = parameter(None, help="reservation that the jobs use", **NAME)
    options: tuple[str, ...] = setting(
        list_of(_option, "a list of options"),
        default=[],
        form="a list of options of sbatch, such as --nice=100",
        help="further options",
    )
    image: str | None = parameter(
        None,
        optional=True,
        pattern=r"[^\s,]{1,512}",
        form="a file such as /shared/rl-gpu.sif, or an address that Apptainer knows",
        help="image in which Apptainer runs the commands; empty: they run as they are",
    )
    apptainer_options: tuple[str, ...] = setting(
        WORDS, default=[], form="a list of words", help="further options of apptainer exec"
    )
    before: tuple[str, ...] = setting(
        WORDS,
        default=[],
        form="a list of words, such as [numactl, --localalloc]",
        help="words of your own before the command",
    )

    @property
    def time_limit_s(self) -> int | None:
        """The time limit in seconds."""
        return None if self.time_limit is None else seconds(self.time_limit)


@dataclass(frozen=True, kw_only=True)
class Slurm:
    """All settings of the section `slurm`."""

    python: str | None = parameter(
        None,
        optional=True,
        pattern=r"/[^\s]{1,512}",
        form="an absolute path",
        help="Python of the jobs, on a file system that all nodes share; empty: that of this command",
    )
    setup: tuple[str, ...] = setting(
        list_of(_word, "a list of lines"),
        default=[],
        form="a list of lines of bash, such as module load cuda",
        help="what each job does first",
    )
    scratch: str = parameter(
        "/tmp",  # noqa: S108 - the nodes' own, below which each pod gets a folder
        pattern=r"/[\w./-]{0,255}",
        form="an absolute path",
        help="folder of each node for temporary files",
    )
    address: str = parameter(
        "default",
        pattern=ADDRESS,
        form="default, name or interface:NAME",
        help="where a learner listens: the node's address by its name or its route (default), by its "
        "name alone, or at one network interface such as interface:ib0",
    )
    warning: int = parameter(
        120,
        low=5,
        high=86_400,
        unit="s",
        help="time before a job's limit at which its pod is asked to save",
    )
    max_jobs: int = parameter(
        100, low=1, high=100_000, help="jobs that are in the queue or run at the same time"
    )
    array_size: int = parameter(
        50,
        low=1,
        high=1000,
        help="largest number of equal pods that are submitted as one array; 1: no arrays",
    )
    requeue: bool = parameter(
        True, help="whether Slurm itself begins a preempted job, or one whose node failed, again"
    )
    answer: int = parameter(
        60, low=1, high=3600, unit="s", help="deadline of each of Slurm's commands"
    )
    late: int = parameter(
        75,
        low=1,
        high=3600,
        unit="s",
        help="longest time after which a file is seen on another node",
    )
    gpu: Jobs
    actor: Jobs
    cpu: Jobs

    def pool(self, name: str) -> Jobs:
        """The settings of one of `POOLS`."""
        pool: Jobs = getattr(self, name)
        return pool


def load_slurm(path: Path | None = None) -> Slurm:
    """The settings of a file; without a file, or without the section, the defaults. Raises `BadInput`."""
    given: Any = None if path is None else load_mapping(path).get(SECTION)
    try:
        return read_slurm(given)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


def read_slurm(document: Any) -> Slurm:
    """The settings of a section. Raises `BadInput`."""
    given = {} if document is None else document
    if isinstance(given, dict):
        given = given | {name: given.get(name) or {} for name in POOLS}
    slurm: Slurm = section(Slurm, given, SECTION)
    for name in POOLS:
        limit_s = slurm.pool(name).time_limit_s
        if limit_s is not None and limit_s <= slurm.warning:
            raise BadInput(
                f"'{SECTION}.warning' cannot be {slurm.warning} with '{SECTION}.{name}.time_limit' "
                f"{slurm.pool(name).time_limit}; allowed: less than the {limit_s} s of that limit"
            )
    return slurm
