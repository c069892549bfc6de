"""From the texts that a person gave to one complete, checked experiment.

Precedence: dataclass default < `config/algorithms/<algorithm>.yaml` < the algorithm's section in
`config/games/<game>.yaml` < given. An empty hyperparameter means the preset's value. Everything
that needs no file system is checked here, by `workflows.submit` before anything is sent and by
`prepare` again.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config.errors import BadInput, shown, unknown
from config.experiment import Experiment
from config.games import Game, find_game, is_well_formed, preset
from config.parameters import Parameter, declared, refuse_hostile, to_text
from config.ppo import PPO
from config.strict_yaml import load_mapping

ALGORITHMS: dict[str, type[PPO]] = {"ppo": PPO}
"""Adding one: its dataclass (with `topology`, `steps_per_epoch` and `check`),
`config/algorithms/<name>.yaml`, an entry here."""
FOLDER = Path(__file__).parent / "algorithms"

ATARI_ONLY = ("sticky_actions", "full_action_set", "episodic_life", "noop_max")
LONGEST_TRAINING = 10**11
"""Environment steps; a checkpoint's name has twelve digits."""
DONE_AGAIN = 50
"""At most one of so many epochs is done again, by default and if there are twice as many: one
interval and the one under way."""
LONGEST_INTERVAL_STEPS = 250_000
"""Between two checkpoints by default: in long trainings a preemption costs minutes, not hours."""


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """An experiment with every parameter decided; `experiment.epochs` and `.evaluation_policy` are
    never None here.
    """

    algorithm: str
    experiment: Experiment
    hyperparameters: PPO
    game: Game

    @property
    def epochs(self) -> int:
        """Epochs of one training."""
        if self.experiment.epochs is None:
            raise ValueError("a resolved experiment has its epochs")
        return self.experiment.epochs

    @property
    def steps_per_epoch(self) -> int:
        """Environment steps of one epoch, over all environments."""
        return self.hyperparameters.steps_per_epoch

    @property
    def total_steps(self) -> int:
        """Environment steps of one training."""
        return self.warm_up_steps + self.epochs * self.steps_per_epoch

    @property
    def warm_up_steps(self) -> int:
        """Steps before the first epoch's own, which fill the statistics of observations; not for
        images.
        """
        return self.hyperparameters.warm_up_steps

    @property
    def checkpoint_interval(self) -> int:
        """Epochs from one checkpoint to the next."""
        if self.experiment.checkpoint_interval is not None:
            return self.experiment.checkpoint_interval
        return max(
            1, min(self.epochs // DONE_AGAIN - 1, LONGEST_INTERVAL_STEPS // self.steps_per_epoch)
        )

    @property
    def min_runs(self) -> int:
        """Usable runs without which the experiment has failed."""
        return (
            self.experiment.runs if self.experiment.min_runs is None else self.experiment.min_runs
        )

    @property
    def evaluation_policy(self) -> str:
        """`greedy` or `sample`."""
        if self.experiment.evaluation_policy is None:
            raise ValueError("a resolved experiment has its evaluation policy")
        return self.experiment.evaluation_policy

    @property
    def topology(self) -> str:
        """How the train stage is laid out over pods."""
        return self.hyperparameters.topology

    def identity(self) -> dict[str, Any]:
        """Everything that can change a result: what the directory belongs to."""
        experiment = {
            name: getattr(self.experiment, name)
            for name, one in declared(Experiment).items()
            if one.identity
        }
        del experiment["game"]  # several names may mean one game
        experiment["checkpoint_interval"] = self.checkpoint_interval
        return {
            "algorithm": self.algorithm,
            "game": self.game.identity(),
            "experiment": experiment,
            "hyperparameters": _as_json(self.hyperparameters),
        }

    @property
    def identity_hash(self) -> str:
        """SHA-256 of the identity as canonical JSON, in hexadecimal."""
        canonical = json.dumps(
            self.identity(), sort_keys=True, separators=(",", ":"), allow_nan=False
        )
        return hashlib.sha256(canonical.encode()).hexdigest()

    def as_dict(self) -> dict[str, Any]:
        """For experiment.yaml: only dicts, lists, text, numbers, true, false and null."""
        return {
            "algorithm": self.algorithm,
            "game": _as_json(self.game),
            "experiment": _as_json(self.experiment),
            "hyperparameters": _as_json(self.hyperparameters),
        }

    @staticmethod
    def from_dict(written: Mapping[str, Any]) -> Resolved:
        """The experiment that `as_dict` wrote, checked again; raises `BadInput` naming what is
        missing, unknown or wrong.
        """
        _same_keys("experiment", written, [field.name for field in dataclasses.fields(Resolved)])
        algorithm = written["algorithm"]
        resolved = Resolved(
            algorithm=algorithm,
            experiment=_read(Experiment, "experiment", written["experiment"]),
            hyperparameters=_read(
                algorithm_class(algorithm), "hyperparameters", written["hyperparameters"]
            ),
            game=_read_game(written["game"]),
        )
        for name in ("epochs", "evaluation_policy"):
            if getattr(resolved.experiment, name) is None:
                raise BadInput(f"experiment: {name} is null; written by another program?")
        _check(resolved)
        return resolved


def resolve(algorithm: str, given: Mapping[str, str]) -> Resolved:
    """Decide and check every parameter; raises `BadInput` with one line for the first that is
    wrong.
    """
    hyperclass = algorithm_class(algorithm)
    shared, own = declared(Experiment), declared(hyperclass)
    for name, value in given.items():
        if name not in shared and name not in own:
            raise unknown("parameter", name, [*shared, *own])
        if not isinstance(value, str):
            raise BadInput(f"parameter {name!r} cannot be {shown(value)}; allowed: text")
    experiment = {
        name: shared[name].parse(value) for name, value in given.items() if name in shared
    }
    game = find_game(experiment.get("game", Experiment.game))
    preset_values = preset_hyperparameters(algorithm, game)
    goal_steps = preset_values.pop("steps")
    given_values = {
        name: own[name].parse(value) for name, value in given.items() if name in own and value != ""
    }
    hyperparameters = hyperclass(**(preset_values | given_values))
    if experiment.get("epochs") is None:
        learnt_steps = max(1, goal_steps - hyperparameters.warm_up_steps)
        experiment["epochs"] = -(-learnt_steps // hyperparameters.steps_per_epoch)
    if (
        experiment.get("evaluation_policy") is None
    ):  # as rl-baselines3-zoo: a greedy agent may stand still for 27 000 steps
        experiment["evaluation_policy"] = "sample" if game.kind == "atari" else "greedy"
    resolved = Resolved(
        algorithm=algorithm,
        experiment=Experiment(**experiment),
        hyperparameters=hyperparameters,
        game=game,
    )
    _check(resolved)
    return resolved


def algorithm_class(algorithm: str) -> type[PPO]:
    """The dataclass of an algorithm's hyperparameters; raises `BadInput`."""
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise unknown("algorithm", str(algorithm)[:64], ALGORITHMS)
    return ALGORITHMS[algorithm]


def preset_hyperparameters(algorithm: str, game: Game) -> dict[str, Any]:
    """The algorithm's preset overlaid by the game's, by name, with `steps`, the goal of a training;
    raises `BadInput`.
    """
    goal = Parameter("steps", int, None, "goal of a training", low=1, high=LONGEST_TRAINING)
    known = {**declared(algorithm_class(algorithm)), "steps": goal}
    values: dict[str, Any] = {}
    for section in (_algorithm_preset(algorithm), preset(game).get(algorithm, {})):
        for name, value in section.items():
            if name not in known:
                raise unknown("parameter in a preset", name, known)
            values[name] = known[name].parse(value)
    return values


@functools.cache
def _algorithm_preset(algorithm: str) -> Mapping[str, Any]:
    return load_mapping(FOLDER / f"{algorithm}.yaml")


def _check(resolved: Resolved) -> None:
    """What no single parameter can say."""
    experiment = resolved.experiment
    resolved.hyperparameters.check()
    check_outdir_text(experiment.outdir)
    if resolved.min_runs > experiment.runs:
        raise BadInput(
            f"parameter 'min_runs' cannot be {experiment.min_runs}; allowed: at most runs, {experiment.runs}"
        )
    if experiment.video_episodes > experiment.evaluation_episodes:
        given, most = experiment.video_episodes, experiment.evaluation_episodes
        refused = f"parameter 'video_episodes' cannot be {given}"
        raise BadInput(f"{refused}; allowed: at most evaluation_episodes, {most}")
    if experiment.device == "cuda" and experiment.gpus == 0:
        raise BadInput(
            "parameter 'device' cannot be 'cuda' with gpus=0; allowed: device=auto, device=cpu, or gpus=1"
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
    _check_game(resolved)


def _check_game(resolved: Resolved) -> None:
    """Refuse what this game would silently ignore."""
    is_atari = resolved.game.kind == "atari"
    for chosen in (resolved.experiment, resolved.hyperparameters):
        for name, one in declared(type(chosen)).items():
            value = getattr(chosen, name)
            if name in ATARI_ONLY and not is_atari and value != one.default:
                allowed = to_text(one.default)
                raise BadInput(
                    f"parameter {name!r} cannot be {to_text(value)}: {resolved.game.name} is no Atari game; allowed: {allowed}"
                )
            if name == "normalise_observations" and is_atari and value:
                raise BadInput(
                    f"parameter {name!r} cannot be true: {resolved.game.name} shows images; allowed: false"
                )


def check_outdir_text(outdir: str) -> None:
    """Refuse what no directory of results may be called; raises `BadInput`."""
    refuse_hostile("outdir", outdir)
    parts = outdir.split("/")
    if (
        ".." in parts
        or outdir.startswith(("~", "-"))
        or any(len(part.encode()) > 255 for part in parts)
    ):
        raise BadInput(
            f"parameter 'outdir' cannot be {shown(outdir)}; allowed: a path without '..', not starting with '~' or '-'"
        )


def check_outdir(outdir: str, storage_root: str | Path | None) -> Path:
    """The absolute directory, symbolic links followed; below `storage_root` unless that is None.
    Raises `BadInput`.
    """
    if outdir == "":
        raise BadInput("empty value for 'outdir'; allowed: a path")
    check_outdir_text(outdir)
    try:
        path = _followed(outdir)
        root = None if storage_root is None else _followed(storage_root)
    except (OSError, RuntimeError) as error:
        raise BadInput(f"parameter 'outdir' cannot be {shown(outdir)}: {error}") from None
    _refuse_other_encoding(path)
    if root is not None and (path == root or not path.is_relative_to(root)):
        raise BadInput(
            f"parameter 'outdir' cannot be {shown(outdir)}; allowed: a directory below {root}"
        )
    return path


def _refuse_other_encoding(path: Path) -> None:
    """Everything that handles the path must mean the same bytes: programs of other locales, files
    of UTF-8, Argo.
    """
    encoding = sys.getfilesystemencoding()
    try:
        path.as_posix().encode("ascii" if encoding.lower() not in ("utf-8", "utf8") else "utf-8")
    except UnicodeEncodeError:
        raise BadInput(
            f"parameter 'outdir' cannot be {shown(str(path))} where names of files are {encoding}; "
            "allowed: ASCII, or a path that is UTF-8 in a locale of UTF-8 (LC_ALL=C.UTF-8)"
        ) from None


def _followed(path: str | Path) -> Path:
    """The path without symbolic links; from Python 3.13 on `resolve` itself accepts one that leads
    to itself.
    """
    followed = Path(path).resolve()
    for part in (followed, *followed.parents):
        if os.path.islink(part):  # noqa: PTH114 - `Path.is_symlink` raises below a folder that may not be entered
            raise OSError(f"the symbolic link {part} leads to itself")
    return followed


@dataclass(frozen=True)
class ParameterInfo:
    """One parameter as manifests, `--help`, `--list` and the README show it.

    default: as text; empty where the preset or the rest decides; texts: all that may be given, if
    they can be listed; section: "experiment" or the algorithm's name.
    """

    name: str
    default: str
    help: str
    unit: str
    allowed: str
    texts: tuple[str, ...]
    identity: bool
    section: str


def parameters(algorithm: str) -> list[ParameterInfo]:
    """Every parameter of an algorithm: first the shared ones, then its hyperparameters, whose
    default is the preset's.
    """
    shared = [
        _info(one, to_text(one.default), "experiment") for one in declared(Experiment).values()
    ]
    return shared + [
        _info(one, "", algorithm) for one in declared(algorithm_class(algorithm)).values()
    ]


def _info(one: Parameter, default: str, section: str) -> ParameterInfo:
    texts = ("", *one.texts) if one.texts and default == "" else one.texts
    return ParameterInfo(
        one.name, default, one.help, one.unit, one.allowed, texts, one.identity, section
    )


def _as_json(section: Any) -> dict[str, Any]:
    """A flat dataclass with lists for tuples."""
    values = dataclasses.asdict(section)
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in values.items()
    }


def _same_keys(where: str, written: object, expected: list[str]) -> None:
    if not isinstance(written, Mapping):
        raise BadInput(f"{where}: a mapping is expected, this is {type(written).__name__}")
    for name in written:
        if name not in expected:
            raise unknown(f"entry of {where}", str(name), expected)
    missing = [name for name in expected if name not in written]
    if missing:
        raise BadInput(f"{where}: {', '.join(missing)} missing; written by another version?")


def _read(owner: type[Any], where: str, written: Any) -> Any:
    own = declared(owner)
    _same_keys(where, written, list(own))
    return owner(**{name: own[name].parse(value) for name, value in written.items()})


def _read_game(written: Any) -> Game:
    _same_keys("game", written, [field.name for field in dataclasses.fields(Game)])
    game = Game(**written)
    if not is_well_formed(game):
        raise BadInput(f"game: {shown(dict(written))} was not written by this program")
    return game
