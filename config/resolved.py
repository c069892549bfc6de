"""What an experiment comes to when every parameter is decided."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from config.actors import ActorSettings
from config.algorithms import find_algorithm
from config.algorithms.descriptor import MEMBERS, READ_BY_ARGO, Algorithm
from config.environment import EnvironmentSettings
from config.errors import BadInput, shown
from config.experiment import Experiment
from config.games import Game
from config.identity import LENGTH, hash_of
from config.ladder import LADDER
from config.measures import RETURN, Measure
from config.parameters import declared, to_text
from config.webhook import NOTIFY
from config.workers import WorkerSettings

DONE_AGAIN = 50
"""A restart repeats at most one in this many epochs by default (in trainings of at least twice as
many): one checkpoint interval and the epoch under way.
"""
STEPS = "steps"
"""The parameter that gives the length of a training in environment steps, in place of `epochs`. A
resolved experiment holds epochs only.
"""
NOT_RECORDED = (STEPS, NOTIFY)
"""The parameters that experiment.yaml does not hold."""
LONGEST_INTERVAL_STEPS = 250_000
"""The largest default distance of two checkpoints, in environment steps, so that a preemption of a
long training costs minutes and not hours.
"""


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """An experiment with every parameter decided; `experiment.epochs` and `.evaluation_policy` are
    never None here.

    algorithm: its name or import path. environment, hyperparameters: instances of the dataclasses
    that the algorithm declares. packages: name -> version of the packages with the user's own code.
    actor_settings, worker_settings: None without actors, or without workers. origin: the identity
    hash of the experiment at `start_from`; empty without one, and until it has been read there.
    recorded: SHA-256 of the file of games to imitate; empty without one, and until it has been read.
    first_epochs: the length that the trainings had when the directory was made, if they have another
    one now; else 0.
    """

    algorithm: str
    experiment: Experiment
    environment: Any
    hyperparameters: Any
    game: Game
    packages: Mapping[str, str] = field(default_factory=dict)
    actor_settings: ActorSettings | None = None
    worker_settings: WorkerSettings | None = None
    origin: str = ""
    recorded: str = ""
    first_epochs: int = 0

    @property
    def actors(self) -> ActorSettings:
        """The actors' settings, for an algorithm with actors."""
        if self.actor_settings is None:
            raise ValueError(f"{self.algorithm} has no actors")
        return self.actor_settings

    @property
    def workers(self) -> WorkerSettings:
        """The workers' settings, for an algorithm with workers."""
        if self.worker_settings is None:
            raise ValueError(f"{self.algorithm} has no workers")
        return self.worker_settings

    @property
    def members(self) -> ActorSettings | WorkerSettings | None:
        """The settings of a training with several processes; None if it is one process."""
        return self.actor_settings or self.worker_settings

    @property
    def vectorisation(self) -> str:
        """How environments that have no vectorised version step together. Board games always step
        in arrays.
        """
        environment = self.environment
        return environment.vectorisation if isinstance(environment, EnvironmentSettings) else "auto"

    @property
    def descriptor(self) -> Algorithm:
        """The algorithm's descriptor."""
        return find_algorithm(self.algorithm)

    @property
    def network(self) -> str | None:
        """The import path of the user's own network; None without one."""
        return own_network(self.hyperparameters)

    @property
    def epochs(self) -> int:
        """Number of epochs of one training."""
        if self.experiment.epochs is None:
            raise ValueError("a resolved experiment has its epochs")
        return self.experiment.epochs

    @property
    def steps_per_epoch(self) -> int:
        """Environment steps of one epoch, over all environments."""
        steps: int = self.hyperparameters.steps_per_epoch(self.environment)
        return steps

    @property
    def total_steps(self) -> int:
        """Environment steps of one training."""
        return self.warm_up_steps + self.epochs * self.steps_per_epoch

    @property
    def warm_up_steps(self) -> int:
        """Environment steps before the first epoch; they fill the statistics of observations."""
        steps: int = self.hyperparameters.warm_up_steps(self.environment)
        return steps

    @property
    def checkpoint_interval(self) -> int:
        """Number of epochs from one checkpoint to the next. A training that grows keeps it."""
        if self.experiment.checkpoint_interval is not None:
            return self.experiment.checkpoint_interval
        longest = LONGEST_INTERVAL_STEPS // self.steps_per_epoch
        return max(1, min(self.first_length // DONE_AGAIN - 1, longest))

    @property
    def first_length(self) -> int:
        """The number of epochs by which checkpoints and snapshots are spaced."""
        return self.first_epochs or self.epochs

    @property
    def tied_to_length(self) -> tuple[str, ...] | None:
        """The hyperparameters that make a training depend on its length; None if the algorithm
        does not say. Raises `BadInput` for a name that is no hyperparameter.
        """
        # Not a subclass's inherited one: the subclass may have a schedule more.
        method = vars(type(self.hyperparameters)).get("tied_to_length")
        if method is None:
            return None
        tied = tuple(method(self.hyperparameters))
        for name in tied:
            if name not in declared(type(self.hyperparameters)):
                raise BadInput(
                    f"tied_to_length of {self.algorithm} names {shown(name)}, which is no hyperparameter"
                )
        return tied

    @property
    def min_runs(self) -> int:
        """Number of usable runs that the experiment needs to succeed."""
        if self.experiment.min_runs is None:
            return self.experiment.runs
        return self.experiment.min_runs

    @property
    def evaluation_policy(self) -> str:
        """`greedy` or `sample`."""
        if self.experiment.evaluation_policy is None:
            raise ValueError("a resolved experiment has its evaluation policy")
        return self.experiment.evaluation_policy

    @property
    def topology(self) -> str:
        """How the train stage is laid out over pods."""
        return self.descriptor.topology

    @property
    def evaluated_episodes(self) -> int:
        """Number of rows of the evaluation's table: `evaluation_episodes`, in self-play so many
        against each player of the ladder.
        """
        return self._each_player * self.experiment.evaluation_episodes

    @property
    def snapshot_rows(self) -> int:
        """Number of rows of the table of one snapshot's episodes."""
        return self._each_player * self.experiment.snapshot_episodes

    @property
    def _each_player(self) -> int:
        return len(LADDER) if self.descriptor.has_workers else 1

    @property
    def snapshot_epochs(self) -> list[int]:
        """The epochs after which a snapshot of the policy is taken: `evaluations` of them, 0 and the
        last included; fewer if the training has fewer epochs. A training that has grown keeps the
        first spacing, and so has more of them.
        """
        count = self.experiment.evaluations
        if not count:
            return []
        spaced = (round(k * self.first_length / (count - 1)) for k in itertools.count())
        return sorted(
            {*itertools.takewhile(lambda epoch: epoch < self.epochs, spaced), self.epochs}
        )

    @property
    def measure(self) -> Measure:
        """The measure by which a run is judged."""
        return self.descriptor.measure

    @property
    def family(self) -> str:
        """The game's family as far as it is known without making the environment. Options and
        wrappers may change the action space.
        """
        changed = self.environment.options or self.environment.wrapper_paths
        return "" if changed and not self.game.is_atari else self.game.family

    @property
    def solved(self) -> float | None:
        """The value of the measure at which the game counts as solved. Only games judged by returns
        have one.
        """
        return self.game.solved if self.measure == RETURN else None

    def value_of(self, section: str, name: str) -> Any:
        """The value of a parameter; for `steps` the steps of a whole training, however its length
        was given.
        """
        return self.total_steps if name == STEPS else getattr(getattr(self, section), name)

    def read_by_argo(self) -> dict[str, str]:
        """The parameters that Argo itself reads of this experiment, as text."""
        sections = [one for one in (self.experiment, self.members) if one is not None]
        return {
            name: to_text(getattr(section, name))
            for name in READ_BY_ARGO[self.topology]
            for section in sections
            if name in declared(type(section))
        }

    def later(self) -> dict[str, dict[str, Any]]:
        """Section -> parameters that only steps after the training read, with their values."""
        found = {}
        for section in ("experiment", "environment", "hyperparameters"):
            values = getattr(self, section)
            known = declared(type(values))
            found[section] = {
                name: one for name, one in _as_json(values).items() if known[name].later
            }
        return found

    def continuing(self, before: Resolved) -> Resolved:
        """The same experiment as the continuation of what its directory holds."""
        first = before.first_length
        return dataclasses.replace(self, first_epochs=0 if first == self.epochs else first)

    def with_directories(self, texts: Mapping[str, str]) -> Resolved:
        """The same experiment with other values of the parameters that name a directory or a file.
        No other parameter depends on them. Raises `BadInput`.
        """
        changed = {}
        for section in ("experiment", "hyperparameters", *(name for name, _ in MEMBERS.values())):
            settings = getattr(self, section)
            known = {} if settings is None else declared(type(settings))
            own = {name: known[name].parse(text) for name, text in texts.items() if name in known}
            if own:
                changed[section] = dataclasses.replace(settings, **own)
        return dataclasses.replace(self, **changed)

    def identity(self) -> dict[str, Any]:
        """Everything that can change a training. An output directory belongs to one identity. The
        number of epochs is in it only if a schedule depends on it.
        """
        experiment = _of_identity(self.experiment)
        environment = _of_identity(self.environment)
        if self.tied_to_length == ():
            del experiment[LENGTH]
        # The game is in the identity by its id, because several names may mean one game.
        del experiment["game"]
        del experiment[STEPS]
        if experiment.pop("start_from") is not None:
            # What was learnt counts, not the folder in which it lies on this machine.
            experiment["start_from"] = self.origin
        later = declared(type(self.hyperparameters))
        hyperparameters = {
            name: value
            for name, value in _as_json(self.hyperparameters).items()
            if not later[name].later
        }
        if self.recorded:
            hyperparameters["imitate"] = self.recorded
        of_members = {} if self.members is None else _of_identity(self.members)
        return {
            "algorithm": self.algorithm,
            "game": self.game.identity(),
            "experiment": experiment,
            "environment": environment,
            "hyperparameters": hyperparameters,
            "packages": dict(self.packages),
            **({MEMBERS[self.topology][0]: of_members} if of_members else {}),
        }

    @property
    def identity_hash(self) -> str:
        """SHA-256 of the identity as canonical JSON, in hexadecimal."""
        return hash_of(self.identity())

    def as_dict(self) -> dict[str, Any]:
        """The content of experiment.yaml, made of dicts, lists, texts, numbers, true, false and
        null.
        """
        members = {} if self.members is None else _as_json(self.members)
        experiment = _as_json(self.experiment)
        for name in NOT_RECORDED:
            del experiment[name]
        return {
            "algorithm": self.algorithm,
            "game": _as_json(self.game),
            "experiment": experiment,
            "environment": _as_json(self.environment),
            "hyperparameters": _as_json(self.hyperparameters),
            "packages": dict(self.packages),
            **({MEMBERS[self.topology][0]: members} if members else {}),
            **({"origin": self.origin} if self.origin else {}),
            **({"recorded": self.recorded} if self.recorded else {}),
            **({"first_epochs": self.first_epochs} if self.first_epochs else {}),
        }


def own_network(hyperparameters: Any) -> str | None:
    """The import path of the user's own network; None without one, and for an algorithm whose network
    cannot be replaced.
    """
    network: str | None = getattr(hyperparameters, "network", None)
    return network


def _of_identity(section: Any) -> dict[str, Any]:
    """The parameters of a section that can change a result."""
    own = declared(type(section))
    return {name: written for name, written in _as_json(section).items() if own[name].identity}


def _as_json(section: Any) -> dict[str, Any]:
    """A flat dataclass as a dict, with lists for tuples."""
    values = dataclasses.asdict(section)
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in values.items()
    }
