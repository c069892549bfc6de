"""The settings of the environment: how many there are, and how the game is shown to the learner.

They are not hyperparameters of an algorithm, because evaluation and films need those that change
the game. Presets may set them. Which of the classes below an algorithm uses depends on its
topology, and so does the name of the parameter that counts environments: `num_envs` in a single
process, `envs_per_actor` in each actor, `games_per_worker` in each worker of self-play. Self-play
plays board games, to which the settings of Gymnasium's environments do not apply.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from config.imports import is_import_path
from config.parameters import INTEGER, NUMBER, parameter

Scalar = bool | int | float | str
Option = Scalar | list[Scalar]
OPTION_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def read_options(text: str) -> dict[str, Option]:
    """Parse `map=4,slippery=false,goals=[1;2]` to `{"map": 4, "slippery": False, "goals": [1, 2]}`.

    A value that reads as an integer, a number, true or false becomes one; everything else stays
    text. The elements of a list are separated by semicolons, because commas separate the options.
    Raises `ValueError` with the reason.
    """
    options: dict[str, Option] = {}
    for assignment in text.split(","):
        name, _, value = assignment.partition("=")
        if not OPTION_NAME.fullmatch(name) or not value or "=" in value:
            raise ValueError(f"{assignment[:64]!r} is no name=value")
        if name in options:
            raise ValueError(f"{name!r} is given twice")
        if name == "render_mode":
            raise ValueError("'render_mode' is chosen by those who film")
        options[name] = _list(value) if value[0] == "[" or value[-1] == "]" else _typed(value)
    return options


def _list(value: str) -> list[Scalar]:
    inside = value[1:-1]
    elements = inside.split(";") if inside else []
    if value[0] + value[-1] != "[]" or not all(elements) or re.search(r"[\[\]]", inside):
        raise ValueError(f"{value[:64]!r} is no list; a list is [1;2;3]")
    return [_typed(element) for element in elements]


def _typed(value: str) -> Scalar:
    if value in ("true", "false"):
        return value == "true"
    if INTEGER.fullmatch(value):
        return int(value)
    if not NUMBER.fullmatch(value):
        return value
    if not math.isfinite(float(value)):
        raise ValueError(f"{value} is too large")
    return float(value)


def _canonical_options(text: str) -> str:
    """The same options sorted by name, each value in its shortest form. A float stays a float."""
    options = sorted(read_options(text).items())
    return ",".join(f"{name}={_written(value)}" for name, value in options)


def _written(value: Option) -> str:
    if isinstance(value, list):
        return f"[{';'.join(map(_written, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _import_paths(text: str) -> str:
    for path in text.split(","):
        if not is_import_path(path):
            raise ValueError(f"{path[:64]!r} is no import path")
    return text


@dataclass(frozen=True, kw_only=True)
class Environments:
    """How many environments step together in one process.

    counted_by: the name of the parameter that holds this number; each subclass declares it.
    """

    counted_by: ClassVar[str]

    @property
    def count(self) -> int:
        """Number of environments that step together in one process."""
        count: int = getattr(self, self.counted_by)
        return count

    def with_count(self, count: int) -> Self:
        """The same settings with another number of environments."""
        counted: dict[str, Any] = {self.counted_by: count}
        return replace(self, **counted)

    @property
    def options(self) -> dict[str, Option]:
        """Keyword arguments for the constructor of each environment."""
        return {}

    @property
    def wrapper_paths(self) -> list[str]:
        """Import paths of the wrappers, the innermost first."""
        return []


@dataclass(frozen=True, kw_only=True)
class EnvironmentSettings(Environments):
    """The settings of Gymnasium and Atari environments, for training, evaluation and films."""

    env_options: str | None = parameter(
        None,
        optional=True,
        canonical=_canonical_options,
        form="name=value with commas between",
        help="keyword arguments of the environment's constructor; a value is an integer, a "
        "number, true, false, text, or a list of these such as [1;2;3]",
    )
    wrappers: str | None = parameter(
        None,
        optional=True,
        canonical=_import_paths,
        form="package.module:Name with commas between",
        help="wrappers applied to each environment, the innermost first; each is called with "
        "the environment and returns the wrapped one; not for Atari",
    )
    vectorisation: str = parameter(
        "auto",
        choices=("auto", "sync", "async"),
        identity=False,
        help="how training steps environments that have no vectorised version: all in one "
        "process (sync) or each in its own (async); auto: the choice that the duration of "
        "a step favours",
    )
    normalise_observations: bool = parameter(
        False,
        help="scale observations by their running mean and variance, which are saved with the "
        "agent; not for images",
    )
    normalise_rewards: bool = parameter(
        False,
        help="divide the rewards used for learning by the running standard deviation of the "
        "discounted return",
    )
    clip_rewards: bool = parameter(
        False,
        help="clip the rewards used for learning to -1 ... 1; reported returns are not clipped",
    )
    sticky_actions: float = parameter(
        0.25, low=0, high=1, help="Atari: probability that the emulator repeats the last action"
    )
    full_action_set: bool = parameter(
        False, help="Atari: use all 18 actions instead of only those that the game needs"
    )
    episodic_life: bool = parameter(
        False, help="Atari: losing a life ends the episode in training, but not in evaluation"
    )
    fire_after_life_loss: bool = parameter(
        True,
        help="Atari: press FIRE automatically after a reset and after a lost life, in games "
        "that have it",
    )
    noop_max: int = parameter(
        30,
        low=0,
        high=1000,
        unit="frames",
        help="Atari: largest random number of idle frames after a reset",
    )

    evaluation_steps: int = parameter(
        100_000,
        low=1,
        high=10**8,
        unit="steps",
        later=True,
        help="longest episode of an evaluation; one that does not end by itself is cut there, as by "
        "a time limit, and the page says so",
    )

    @property
    def options(self) -> dict[str, Option]:
        """`env_options`, parsed to keyword arguments."""
        return read_options(self.env_options) if self.env_options else {}

    @property
    def wrapper_paths(self) -> list[str]:
        """The import paths in `wrappers`, in their order."""
        return self.wrappers.split(",") if self.wrappers else []


@dataclass(frozen=True, kw_only=True)
class OneProcess(EnvironmentSettings):
    """The environment settings of an algorithm that trains in one process."""

    counted_by = "num_envs"

    num_envs: int = parameter(8, low=1, high=1024, help="environments that are stepped together")


@dataclass(frozen=True, kw_only=True)
class EachActor(EnvironmentSettings):
    """The environment settings of an algorithm with actors."""

    counted_by = "envs_per_actor"

    envs_per_actor: int = parameter(
        8, low=1, high=1024, help="environments that each actor steps together"
    )


@dataclass(frozen=True, kw_only=True)
class EachWorker(Environments):
    """The settings of self-play, whose environments are board games."""

    counted_by = "games_per_worker"

    games_per_worker: int = parameter(
        64, low=1, high=65_536, help="games that each worker plays at the same time"
    )


COUNTED_BY = (OneProcess.counted_by, EachActor.counted_by, EachWorker.counted_by)
ATARI_OPTIONS = ("img_height", "img_width", "max_num_frames_per_episode", "maxpool", "stack_num")
"""Options of ale-py's vector environment that no other setting controls."""
ATARI_ONLY = ("sticky_actions", "full_action_set", "episodic_life", "noop_max")
"""Settings that are refused for other games, where they would silently be ignored.
`fire_after_life_loss` is not among them: it is on by default, and switching it off changes nothing
for other games.
"""
