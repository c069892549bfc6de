"""Vectors of environments that never reset by themselves: an ended one is reset, masked, before the
next step. Knows no torch.

Vectorised natively where the game offers it, else one after the other, or in processes where a step
is slow: for cheap environments they are slower (measured: CartPole x 8, native 200 k steps/s, sync
130 k, async 18 k). What a
reset offers (gymnasium 1.4, ale-py 0.12; all executed): gymnasium's `SyncVectorEnv` takes a mask in
`AutoresetMode.DISABLED`; ale-py refuses that mode, but in NEXT_STEP a masked reset right after the
end leaves nothing to be reset by itself; gymnasium's native CartPole ignores a mask, so it has a
subclass here.
"""

from __future__ import annotations

import functools
import logging
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.spaces import MultiDiscrete
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from agents.environments.atari import make_atari
from agents.environments.games import make_environment, make_or_refuse, options_of
from agents.environments.parallel import ParallelEnvironments, cores, pays, step_time_s
from agents.environments.pools import Pools
from config.environment import EnvironmentSettings
from config.errors import ExperimentError, on_one_line
from config.games import Game
from config.resolved import Resolved
from config.seeds import uniform

log = logging.getLogger(__name__)

Vector = VectorEnv[Any, Any, Any]


class Vectorisation(NamedTuple):
    """How environments step together, and why: `native`, in a vector of the game's own; `sync`, one
    after the other in one process; `async`, each in one of its own.
    """

    kind: str
    reason: str


def make_environments(resolved: Resolved, count: int, threads: int | None = None) -> Vector:
    """`count` environments for training; raises `BadInput` when the game cannot be made. threads: of
    those that step on threads of their own, whose number changes no result; without it as many as
    torch's.
    """
    game = resolved.game
    settings = resolved.environment
    if game.is_atari:
        return make_atari(resolved, count, threads)
    if game.is_pooled:
        return make_pools(resolved, count, threads or resolved.experiment.threads)
    if _is_native(resolved):
        cartpoles: Vector = make_or_refuse(game, lambda: _make_cartpoles(game, settings, count))
        return cartpoles
    make = functools.partial(make_environment, game, settings)
    if choose_vectorisation(resolved, count).kind == "async":
        return ParallelEnvironments([make] * count)
    # This is the only mode in which gymnasium's vectors take a mask of what is to be reset.
    return SyncVectorEnv([make] * count, autoreset_mode=AutoresetMode.DISABLED)


def make_pools(resolved: Resolved, count: int, threads: int) -> Pools:
    """`count` environments of envpool's; raises `BadInput` when the game cannot be made."""
    game = resolved.game

    def make() -> Pools:
        return Pools(game, count, options_of(game, resolved.environment), threads)

    pools: Pools = make_or_refuse(game, make)
    return pools


def choose_vectorisation(resolved: Resolved, count: int) -> Vectorisation:
    """How `count` environments for training step together; `auto` measures one, and tries whether
    they can be made in processes.
    """
    game = resolved.game
    asked = resolved.vectorisation
    if game.is_board:
        return Vectorisation("native", "a board game takes many positions at once")
    if game.is_atari or game.is_pooled or _is_native(resolved):
        return Vectorisation("native", "the game brings it")
    if count == 1:
        return Vectorisation("sync", "there is one environment")
    if asked != "auto":
        return Vectorisation(asked, f"{asked} was asked for")
    if cores() == 1:
        return Vectorisation("sync", "there is one core")
    # Processes pay off where a step takes longer than asking one, which has to be measured.
    make = functools.partial(make_environment, game, resolved.environment)
    step_s = step_time_s(make)
    measured = f"measured: a step takes {1000 * step_s:.3g} ms"
    if not pays(step_s, count):
        return Vectorisation("sync", measured)
    try:
        ParallelEnvironments([make] * count).close()
    except ExperimentError as error:
        # A game that cannot be made in another process can still be played in this one.
        log.warning("%s: they step in one process, one after the other", error)
        return Vectorisation("sync", on_one_line(error))
    return Vectorisation("async", measured)


def reset(
    environments: Vector, seeds: np.ndarray | None, mask: np.ndarray | None = None
) -> tuple[np.ndarray, dict[str, Any]]:
    """Begin an episode in the environments of `mask` [N] (all without one), the others stay where
    they are.

    seeds: one for each that is reset; without them, their generators go on. Returns all
    observations [N, ...], of which only those of the mask are new, and the info, valid there only.
    """
    if mask is None:
        mask = np.ones(environments.num_envs, np.bool_)
    accepted: Any = seeds
    # gymnasium's vectors take a seed or None for every environment, native ones only those that are
    # reset.
    if isinstance(environments, SyncVectorEnv | AsyncVectorEnv) and seeds is not None:
        accepted = [None] * len(mask)
        for place, seed in zip(np.flatnonzero(mask), seeds.tolist(), strict=True):
            accepted[place] = seed
    observations, info = environments.reset(seed=accepted, options={"reset_mask": mask})
    return observations, info


class CartPoles(CartPoleVectorEnv):
    """gymnasium's native CartPole with a masked reset; every start state is drawn from a seed of
    its own.

    It would reset by itself what `prev_done` says; after a masked reset that is nothing.
    """

    def __init__(self, count: int, **options: Any) -> None:
        super().__init__(count, **options)
        self.action_space = _Unchecked(np.full(count, 2))

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        """Begin in the environments of `options["reset_mask"]` [N]; seed [n]: one for each of
        them.
        """
        # The first call makes gymnasium's own arrays, whose values are replaced below.
        if self.state is None:
            super().reset(seed=0)
        mask = (options or {})["reset_mask"]
        state: Any = self.state
        state[:, mask] = self.low + (self.high - self.low) * uniform(seed, 4)
        self.steps[mask] = 0
        self.prev_done[mask] = False
        return state.T.astype(np.float32), {}


class _Unchecked(MultiDiscrete):
    """The policy samples from this very space, and to look at every action again took a quarter of
    a step.
    """

    def contains(self, x: Any) -> bool:
        """Always true."""
        return True


def _is_native(resolved: Resolved) -> bool:
    """Whether the game's own vector, which only CartPole has, can be taken."""
    game = resolved.game
    if game.kind != "native" or resolved.environment.wrappers:
        return False
    entry = getattr(gymnasium.registry.get(game.id), "vector_entry_point", None)
    return entry == f"{CartPoleVectorEnv.__module__}:{CartPoleVectorEnv.__name__}"


def _make_cartpoles(game: Game, settings: EnvironmentSettings, count: int) -> CartPoles:
    specification = gymnasium.spec(game.id)
    limit = specification.max_episode_steps or 500
    options = {**specification.kwargs, **options_of(game, settings)}
    return CartPoles(count, **{"max_episode_steps": limit, **options})
