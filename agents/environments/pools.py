"""Environments of the package envpool, which steps many of them in one call, on threads of its own.

One gets its seed when it is made, and its generator goes on from there. One that has ended is reset
by itself in the next step, unless it was reset before. Where it lies, and beside which others, makes
no difference (executed with envpool 1.2.5: classic control, Box2D, MuJoCo, Atari, MiniGrid and
FrozenLake). An end in the very step of the time limit is a truncation to envpool, whatever else ended
the episode. Imports envpool where an environment is made, and no torch.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from agents.environments.masks import KEY, is_in_observation
from config.errors import BadInput
from config.games import Game

SEED_STEPS = 10_000
"""An environment is seeded at the first end after so many steps of its own. To seed one, all are made
anew, and each of Atari's games takes 70 to 150 ms; a longer log of actions makes a larger checkpoint
(2 MB for eight walkers) and a longer replay."""
DECIDED_HERE = (
    "num_envs", "batch_size", "num_threads", "thread_affinity_offset", "max_num_players", "base_path",
    "seed", "env_seed", "gym_reset_return_info",
)  # fmt: skip
"""Those of envpool's options that a person does not give."""


class Pools(VectorEnv[Any, Any, Any]):
    """`count` environments of one game, which never reset by themselves.

    All are in one pool of envpool's until one is seeded anew. Then a second pool is made, where all
    have their next seeds; each goes there when it is seeded, and the first pool is closed when it is
    empty.
    """

    def __init__(
        self, game: Game, count: int, options: Mapping[str, Any], threads: int = 1
    ) -> None:
        """threads: on which they step; changes no result. Raises `BadInput` for a game that envpool
        does not have, or that one player cannot play.
        """
        self._game = game
        self._options = {**options, "num_envs": count, "num_threads": min(threads, count)}
        spec = _specification(game, self._options)
        if spec.config.max_num_players > 1:
            raise BadInput(
                f"game {game.name!r} cannot be made: it is for {spec.config.max_num_players} players; "
                "allowed: those of envpool's for one"
            )
        self.num_envs = count
        self.metadata = {"autoreset_mode": AutoresetMode.DISABLED}
        with _quiet():
            self._envpools_space: Any = spec.gymnasium_observation_space
            self.single_action_space = spec.gymnasium_action_space
        self._is_masked = is_in_observation(self._envpools_space)
        self._seen: Any = self._envpools_space
        if self._is_masked:
            kept = {name: part for name, part in self._seen.items() if name != KEY}
            self._seen = spaces.Dict(kept) if len(kept) > 1 else next(iter(kept.values()))
        self.single_observation_space = self._seen
        if not isinstance(self._seen, spaces.Box):
            self.single_observation_space = spaces.flatten_space(self._seen)
        self.observation_space = batch_space(self.single_observation_space, count)
        self.action_space = batch_space(self.single_action_space, count)
        self._pools = list[_Pool]()
        # The pool of each environment.
        self._homes: list[_Pool | None] = [None] * count
        self._expected: np.ndarray | None = None
        space = self.single_observation_space
        self._observations = np.zeros((count, *(space.shape or ())), space.dtype)

    def expect(self, seeds: np.ndarray) -> None:
        """Take note of the seeds [N] that the environments will be given next. Changes no result, only
        how many pools are made.
        """
        self._expected = seeds

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin in the environments of `options["reset_mask"]` [N], in all without one. seed [n]: one
        for each of them; without it, their generators go on.
        """
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, np.bool_))
        places = np.flatnonzero(mask)
        if seed is None and not self._pools:
            seed = np.random.default_rng().integers(2**31, size=self.num_envs)
        if seed is not None:
            for place, given in zip(places.tolist(), np.asarray(seed).tolist(), strict=True):
                self._seed(place, given)
        self._close_empty()
        answers = []
        for pool in self._pools:
            inside = self._inside(pool, places)
            if len(inside):
                answers.append(_Answer(inside, *pool.environments.reset(inside)[:1]))
        return self._gathered(answers)

    def step(self, actions: Any) -> Any:
        """See `gymnasium.vector.VectorEnv.step`."""
        everywhere = np.arange(self.num_envs)
        insides = [self._inside(pool, everywhere) for pool in self._pools]
        for pool, inside in zip(self._pools, insides, strict=True):
            pool.environments.send(np.asarray(actions)[inside], inside)
        rewards = np.zeros(self.num_envs)
        terminated = np.zeros(self.num_envs, np.bool_)
        truncated = np.zeros(self.num_envs, np.bool_)
        answers = []
        for pool, inside in zip(self._pools, insides, strict=True):
            observation, rewards[inside], terminated[inside], truncated[inside], _ = (
                pool.environments.recv()
            )
            answers.append(_Answer(inside, observation))
        observations, info = self._gathered(answers)
        return observations, rewards, terminated, truncated, info

    def render(self) -> Any:
        """The picture of the first environment, with the option `render_mode`."""
        home = self._homes[0]
        return None if home is None else home.environments.render(0)[0]

    def close_extras(self, **arguments: Any) -> None:
        """Close every pool."""
        self._homes = [None] * self.num_envs
        self._close_empty()

    def _inside(self, pool: _Pool, places: np.ndarray) -> np.ndarray:
        """Those of these places whose environments are in this pool, as envpool takes them."""
        return np.array([n for n in places.tolist() if self._homes[n] is pool], np.int32)

    def _seed(self, place: int, seed: int) -> None:
        """Have a fresh environment of this seed at a place."""
        newest = self._pools[-1] if self._pools else None
        if newest is None or newest.unused.get(place) != seed:
            seeds = np.arange(self.num_envs) if self._expected is None else self._expected.copy()
            seeds[place] = seed
            newest = self._made(seeds.tolist())
            self._pools.append(newest)
        del newest.unused[place]
        self._homes[place] = newest

    def _made(self, seeds: list[int]) -> _Pool:
        envpool = importlib.import_module("envpool")
        with _quiet():
            made = envpool.make(
                _envpools_id(self._game), env_type="gymnasium", env_seed=seeds, **self._options
            )
            # Asked for once, because it warns, and is kept then.
            _ = made.observation_space, made.action_space
        return _Pool(made, dict(enumerate(seeds)))

    def _close_empty(self) -> None:
        for pool in [one for one in self._pools if not any(one is home for home in self._homes)]:
            pool.environments.close()
            self._pools.remove(pool)

    def _gathered(self, answers: list[_Answer]) -> tuple[np.ndarray, dict[str, Any]]:
        """Observations [N, ...], elsewhere those of before, and the info with the masks that came
        with them, if they have any.
        """
        # A copy, because who asked before keeps the others.
        observations = self._observations.copy()
        info: dict[str, Any] = {}
        if self._is_masked:
            masks: Any = self._envpools_space[KEY]
            info = {
                KEY: np.ones((self.num_envs, *masks.shape), np.bool_),
                f"_{KEY}": np.ones(self.num_envs, np.bool_),
            }
        for places, seen in answers:
            shown = seen
            if self._is_masked:
                info[KEY][places] = seen[KEY]
                kept = {name: part for name, part in seen.items() if name != KEY}
                shown = kept if isinstance(self._seen, spaces.Dict) else next(iter(kept.values()))
            if isinstance(self._seen, spaces.Box):
                observations[places] = shown
                continue
            for row, place in enumerate(places):
                observations[place] = spaces.flatten(self._seen, _row(shown, row))
        self._observations = observations
        return observations, info


class _Pool(NamedTuple):
    """environments: envpool's object; unused: place -> seed of those that have never been reset."""

    environments: Any
    unused: dict[int, int]


class _Answer(NamedTuple):
    """places [n]: in increasing order, as envpool answers; observations: theirs, an array or a
    mapping of arrays, each [n, ...].
    """

    places: np.ndarray
    observations: Any


class PooledEnvironment(gymnasium.Env[Any, Any]):
    """One of envpool's environments, alone; a new one is made for every seed."""

    def __init__(self, game: Game, options: Mapping[str, Any]) -> None:
        """Raises as `Pools` does."""
        self._pool = Pools(game, 1, options)
        self.metadata = {"render_modes": ["rgb_array"]}
        self.observation_space = self._pool.single_observation_space
        self.action_space = self._pool.single_action_space
        self.render_mode = options.get("render_mode")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """See `gymnasium.Env.reset`."""
        super().reset(seed=seed)
        observations, info = self._pool.reset(seed=None if seed is None else [seed])
        return observations[0], _of_first(info)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """See `gymnasium.Env.step`."""
        observations, rewards, terminated, truncated, info = self._pool.step(
            np.asarray(action)[np.newaxis]
        )
        return (
            observations[0], float(rewards[0]), bool(terminated[0]), bool(truncated[0]),
            _of_first(info),
        )  # fmt: skip

    def render(self) -> Any:
        """See `gymnasium.Env.render`."""
        return self._pool.render()

    def close(self) -> None:
        """See `gymnasium.Env.close`."""
        self._pool.close()


def options_taken(game: Game) -> list[str]:
    """The names of the options of a game. Raises `BadInput` if envpool does not have it."""
    names = _specification(game, {}).config._fields
    return [name for name in names if name not in DECIDED_HERE]


def _specification(game: Game, options: Mapping[str, Any]) -> Any:
    envpool = importlib.import_module("envpool")
    name = _envpools_id(game)
    known = envpool.list_all_envs()
    if name not in known:
        nearest = difflib.get_close_matches(name, known, n=1)
        question = f"did you mean 'envpool:{nearest[0]}'? " if nearest else ""
        raise BadInput(
            f"unknown game {game.name!r}; {question}known: those of envpool.list_all_envs()"
        )
    with _quiet():
        return envpool.make_spec(name, **options)


def _envpools_id(game: Game) -> str:
    return game.id.partition(":")[2]


def _of_first(info: dict[str, Any]) -> dict[str, Any]:
    return {KEY: info[KEY][0]} if KEY in info else {}


def _row(observations: Any, row: int) -> Any:
    """One environment's part of arrays [n, ...], or of mappings of them."""
    if isinstance(observations, Mapping):
        return {name: _row(part, row) for name, part in observations.items()}
    return observations[row]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without gymnasium's warning that float32 holds the bounds of envpool's spaces less exactly."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*precision lowered by casting", UserWarning)
        yield
