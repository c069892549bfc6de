"""Turns the texts that a user gave into one complete, checked experiment.

Precedence: dataclass default < the algorithm's preset < its section in the game's preset < given.
An empty hyperparameter or environment setting means the preset's value. Everything that needs no
file system is checked here: by `workflows.submit` before anything is sent, and again by `prepare`.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from config.actors import ActorSettings
from config.algorithms import ALGORITHMS, algorithm_path, find_algorithm
from config.algorithms.descriptor import BOARD, MEMBERS, READ_BY_ARGO, Algorithm
from config.described import own_defaults
from config.environment import (
    ATARI_ONLY,
    ATARI_OPTIONS,
    Environments,
    EnvironmentSettings,
)
from config.errors import BadInput, shown, unknown
from config.experiment import LONGEST_TRAINING, Experiment
from config.games import OPENSPIEL_ID, Game, find_game, games, is_well_formed
from config.identity import LENGTH, hash_of
from config.imports import package_versions
from config.ladder import LADDER
from config.measures import RETURN, Measure
from config.outdir import check_outdir_text
from config.parameters import Parameter, declared, to_text
from config.presets import preset_values, unknown_parameter
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
        return _network(self.hyperparameters)

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

    @staticmethod
    def from_dict(written: Mapping[str, Any]) -> Resolved:
        """Rebuild and check the experiment that `as_dict` wrote. Raises `BadInput`, which names
        what is missing, unknown or wrong.
        """
        sections = [field.name for field in dataclasses.fields(Resolved)]
        of_inputs = ["origin", "recorded", "first_epochs"]
        of_some = [*(name for name, _ in MEMBERS.values()), *of_inputs]
        of_all = [name for name in sections if name not in of_some]
        _same_keys("experiment", written, sections, needed=of_all)
        descriptor = find_algorithm(_text("algorithm", written["algorithm"]))
        members = dict([MEMBERS[descriptor.topology]]) if descriptor.topology in MEMBERS else {}
        own = [*of_all, *members]
        _same_keys("experiment", written, [*own, *of_inputs], needed=own)
        resolved = Resolved(
            algorithm=written["algorithm"],
            experiment=_read(Experiment, "experiment", written["experiment"], without=NOT_RECORDED),
            environment=_read(descriptor.environment, "environment", written["environment"]),
            hyperparameters=_read(
                descriptor.hyperparameters, "hyperparameters", written["hyperparameters"]
            ),
            game=_read_game(written["game"]),
            packages=_read_packages(written["packages"]),
            **{name: _read(settings, name, written[name]) for name, settings in members.items()},
            origin=_text("origin", written.get("origin", "")),
            recorded=_text("recorded", written.get("recorded", "")),
            first_epochs=_read_first_epochs(written.get("first_epochs", 0)),
        )
        if bool(resolved.origin) != (resolved.experiment.start_from is not None):
            raise BadInput("experiment: origin and start_from belong together")
        for name in ("epochs", "evaluation_policy"):
            if getattr(resolved.experiment, name) is None:
                raise BadInput(f"experiment: {name} is null; written by another program?")
        _check(resolved)
        return resolved


def resolve(algorithm: str, given: Mapping[str, str]) -> Resolved:
    """Decide and check every parameter. Raises `BadInput` with one line for the first parameter
    that is wrong.
    """
    descriptor = find_algorithm(algorithm)
    shared = dict(declared(Experiment))
    settings = dict(declared(descriptor.environment))
    own = dict(declared(descriptor.hyperparameters))
    members = dict([MEMBERS[descriptor.topology]]) if descriptor.topology in MEMBERS else {}
    of_members = {name: one for owner in members.values() for name, one in declared(owner).items()}
    for name, value in given.items():
        if name not in shared | of_members | settings | own:
            raise unknown_parameter(name, [*shared, *of_members, *settings, *own])
        if not isinstance(value, str):
            raise BadInput(f"parameter {name!r} cannot be {shown(value)}; allowed: text")
    experiment: dict[str, Any] = own_defaults(descriptor) | {
        name: shared[name].parse(value) for name, value in given.items() if name in shared
    }
    game = find_game(experiment["game"], descriptor.families)
    decided = preset_values(algorithm, game)
    goal_steps = _goal_steps(experiment, decided.pop(STEPS))
    either = settings | own
    decided |= {
        name: either[name].parse(value)
        for name, value in given.items()
        if name in either and value != ""
    }
    environment = descriptor.environment(
        **{name: decided[name] for name in settings if name in decided}
    )
    hyperparameters = descriptor.hyperparameters(
        **{name: decided[name] for name in own if name in decided}
    )
    if experiment.get("epochs") is None:
        learnt_steps = max(1, goal_steps - hyperparameters.warm_up_steps(environment))
        experiment["epochs"] = -(-learnt_steps // hyperparameters.steps_per_epoch(environment))
    if experiment.get("evaluation_policy") is None:
        # As in rl-baselines3-zoo: in Atari's games a greedy agent may stand still until the time
        # limit, which is 27,000 steps away.
        experiment["evaluation_policy"] = "sample" if game.is_atari else "greedy"
    resolved = Resolved(
        algorithm=algorithm,
        experiment=Experiment(**experiment),
        environment=environment,
        hyperparameters=hyperparameters,
        game=game,
        packages=package_versions(_brought(algorithm, game, environment, hyperparameters)),
        **{name: _of_members(owner, given) for name, owner in members.items()},
    )
    _check(resolved)
    return resolved


def _goal_steps(experiment: dict[str, Any], preset_steps: int) -> int:
    """The length of a training in environment steps, if its epochs are not given. Takes `steps` out
    of the given parameters. Raises `BadInput` if both are given.
    """
    given_steps = experiment.pop(STEPS, None)
    if given_steps is None:
        return preset_steps
    if (epochs := experiment.get("epochs")) is not None:
        raise BadInput(
            f"parameters 'epochs' and 'steps' cannot be given together: {epochs} and {given_steps}; "
            "allowed: one of them"
        )
    goal: int = given_steps
    return goal


def _of_members(owner: type[Any], given: Mapping[str, str]) -> Any:
    known: Mapping[str, Parameter] = declared(owner)
    return owner(
        **{name: known[name].parse(value) for name, value in given.items() if name in known}
    )


def _network(hyperparameters: Any) -> str | None:
    """The import path of the user's own network; None without one, and for an algorithm whose network
    cannot be replaced.
    """
    network: str | None = getattr(hyperparameters, "network", None)
    return network


def _brought(
    algorithm: str, game: Game, environment: Environments, hyperparameters: Any
) -> list[str]:
    """The import paths of everything that the user brought."""
    paths = [] if algorithm in ALGORITHMS else [algorithm_path(algorithm) or algorithm]
    if ":" in game.id:
        paths.append("pyspiel:Game" if OPENSPIEL_ID.fullmatch(game.id) else game.id)
    network = _network(hyperparameters)
    paths += [] if network is None else [network]
    return paths + environment.wrapper_paths


def _check(resolved: Resolved) -> None:
    """Check the rules that involve more than one parameter."""
    experiment = resolved.experiment
    resolved.hyperparameters.check(resolved.environment)
    if resolved.members is not None:
        resolved.members.check()
    check_outdir_text(experiment.outdir)
    if experiment.start_from is not None:
        check_outdir_text(experiment.start_from, "start_from")
    if resolved.min_runs > experiment.runs:
        raise BadInput(
            f"parameter 'min_runs' cannot be {experiment.min_runs}; allowed: at most runs, {experiment.runs}"
        )
    if experiment.video_episodes > experiment.evaluation_episodes:
        given = experiment.video_episodes
        most = experiment.evaluation_episodes
        refused = f"parameter 'video_episodes' cannot be {given}"
        raise BadInput(f"{refused}; allowed: at most evaluation_episodes, {most}")
    if experiment.evaluations == 1:
        raise BadInput(
            "parameter 'evaluations' cannot be 1: the first and the last policy are two; "
            "allowed: 0, or an integer from 2 to 1000"
        )
    if experiment.evaluate_above is not None and resolved.measure.training_name:
        refused = f"parameter 'evaluate_above' cannot be {to_text(experiment.evaluate_above)}"
        measured = resolved.measure.training_name
        raise BadInput(
            f"{refused}: a training of {resolved.algorithm} measures the {measured}, "
            "which does not say how good it is; allowed: empty"
        )
    if experiment.device == "cuda" and experiment.gpus == 0:
        raise BadInput(
            "parameter 'device' cannot be 'cuda' with gpus=0; allowed: device=auto, device=cpu, or gpus=1"
        )
    if experiment.runs_per_gpu > 1 and not experiment.gpus:
        raise BadInput(
            f"parameter 'runs_per_gpu' cannot be {experiment.runs_per_gpu} with gpus=0; "
            "allowed: 1, or more with gpus=1"
        )
    for name in ("log_interval", "checkpoint_interval"):
        if (getattr(experiment, name) or 0) > resolved.epochs:
            raise BadInput(
                f"parameter {name!r} cannot be {getattr(experiment, name)}; allowed: at most epochs, {resolved.epochs}"
            )
    if resolved.total_steps > LONGEST_TRAINING:
        most = (LONGEST_TRAINING - resolved.warm_up_steps) // resolved.steps_per_epoch
        raise BadInput(
            f"parameter 'epochs' cannot be {resolved.epochs}; allowed: at most {most}, that is {LONGEST_TRAINING} steps"
        )
    if resolved.actor_settings is not None and resolved.actors.learners > 1:
        _check_learners(resolved)
    if resolved.family or resolved.descriptor.has_workers:
        check_family(resolved, resolved.family)
    _check_game(resolved)


def _check_learners(resolved: Resolved) -> None:
    """Raise `BadInput` for several learners if the algorithm has only one, or if one of them would
    have no actor or a smaller share than the others.
    """
    actors = resolved.actors.actors
    learners = resolved.actors.learners
    refused = f"parameter 'learners' cannot be {learners}"
    if not resolved.descriptor.several_learners:
        raise BadInput(f"{refused}: {resolved.algorithm} learns in one process; allowed: 1")
    if learners > actors:
        raise BadInput(f"{refused}; allowed: at most actors, {actors}")
    batch_size = resolved.hyperparameters.batch_size
    if batch_size % learners:
        raise BadInput(f"{refused}; allowed: what divides batch_size, {batch_size}")


def check_family(resolved: Resolved, family: str) -> None:
    """Raise `BadInput` if the algorithm does not play games of this family."""
    algorithm = resolved.descriptor
    refused = f"{resolved.algorithm} cannot play {resolved.game.name}"
    if algorithm.has_workers and family != BOARD:
        known = ", ".join(name for name, game in games().items() if game.is_board)
        raise BadInput(
            f"{refused}, which is no board game for two players; allowed: {known}, openspiel:NAME, "
            "package.module:Name of your own"
        )
    if family == BOARD and not algorithm.has_workers:
        players = [name for name, one in ALGORITHMS.items() if one.has_workers]
        raise BadInput(
            f"{refused}, a board game for two players; {' and '.join(players)} learns those"
        )
    if family not in algorithm.families:
        plays = " and ".join(algorithm.families)
        raise BadInput(
            f"{refused}: the game's actions are {family}; "
            f"{algorithm.name} plays games whose actions are {plays}"
        )


def _check_game(resolved: Resolved) -> None:
    """Raise `BadInput` for settings that this game would silently ignore."""
    game = resolved.game
    settings = resolved.environment
    if game.is_board:
        _check_board(resolved)
        return
    if game.is_atari and settings.normalise_observations:
        raise BadInput(
            f"parameter 'normalise_observations' cannot be true: {game.name} shows images; allowed: false"
        )
    if (game.is_atari or game.is_pooled) and settings.wrappers:
        remedy = "game=package.module:function that makes and wraps this game with gymnasium"
        kind = ", an Atari game," if game.is_atari else ""
        raise BadInput(
            f"parameter 'wrappers' cannot be {shown(settings.wrappers)}: the environments of {game.name}{kind} "
            f"are made all at once; allowed: empty, or {remedy}"
        )
    for name in settings.options if game.is_atari else ():
        if name not in ATARI_OPTIONS:
            raise unknown(f"option of {game.name!r} in 'env_options'", name, ATARI_OPTIONS)
    for name in () if game.is_atari else ATARI_ONLY:
        value = getattr(settings, name)
        default = declared(EnvironmentSettings)[name].default
        if value != default:
            raise BadInput(
                f"parameter {name!r} cannot be {to_text(value)}: {game.name} is no Atari game; allowed: {to_text(default)}"
            )


def _check_board(resolved: Resolved) -> None:
    """Raise `BadInput` for evaluation settings that board games do not have."""
    experiment = resolved.experiment
    for name in ("evaluation_episodes", "snapshot_episodes"):
        if (given := getattr(experiment, name)) % 2:
            raise BadInput(
                f"parameter {name!r} cannot be {given}: each opening is played "
                "with both colours; allowed: even numbers"
            )
    if resolved.evaluation_policy != "greedy":
        raise BadInput(
            f"parameter 'evaluation_policy' cannot be {resolved.evaluation_policy!r}: the trained player takes the "
            "best action of its search, from different openings; allowed: greedy, or empty"
        )


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


def _same_keys(
    where: str, written: object, expected: list[str], needed: list[str] | None = None
) -> None:
    """Raise `BadInput` unless a mapping has these keys. needed: the keys that must be there; by
    default all that are expected.
    """
    if not isinstance(written, Mapping):
        raise BadInput(f"{where}: a mapping is expected, this is {type(written).__name__}")
    for name in written:
        if name not in expected:
            raise unknown(f"entry of {where}", str(name), expected)
    missing = [name for name in (needed or expected) if name not in written]
    if missing:
        raise BadInput(f"{where}: {', '.join(missing)} missing; written by another version?")


def _text(where: str, written: object) -> str:
    if not isinstance(written, str):
        raise BadInput(f"{where} cannot be {shown(written)}; allowed: text")
    return written


def _read_first_epochs(written: object) -> int:
    if type(written) is not int or written < 0:
        raise BadInput(f"first_epochs cannot be {shown(written)}; allowed: an integer from 0")
    return written


def _read_packages(written: object) -> dict[str, str]:
    if not isinstance(written, Mapping):
        raise BadInput(f"packages: a mapping is expected, this is {type(written).__name__}")
    return {_text("packages", name): _text("packages", value) for name, value in written.items()}


def _read(owner: type[Any], where: str, written: Any, without: Sequence[str] = ()) -> Any:
    """An instance of a section's dataclass. without: the parameters that are never written."""
    own = declared(owner)
    _same_keys(where, written, [name for name in own if name not in without])
    return owner(**{name: own[name].parse(value) for name, value in written.items()})


def _read_game(written: Any) -> Game:
    _same_keys("game", written, [field.name for field in dataclasses.fields(Game)])
    game = Game(**written)
    if not is_well_formed(game):
        raise BadInput(f"game: {shown(dict(written))} was not written by this program")
    return game
