"""The environments of a training. One whose episode has ended begins another before the next step.
torch is not imported.

A checkpoint brings them back without a state of their own (gymnasium has no interface for it): it
holds the number of each environment's last seeding and the actions since then, and loading replays
them. An environment is seeded where an episode of its own ends, so the log is as long as an
episode: no bookkeeping ever cuts one.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from agents.environments.atari import FIRE, life_lost, needs_fire
from agents.environments.masks import KEY, masks
from agents.environments.pools import SEED_STEPS, Pools
from agents.environments.vectors import CartPoles, Vector, make_environments, reset
from agents.interfaces import State
from agents.spaces import interface
from config.control_groups import processors
from config.errors import BadInput, ExperimentError
from config.resolved import Resolved
from config.seeds import environment_seeds, integer_seed

log = logging.getLogger(__name__)

ATARI_SEED_STEPS = 4000
"""An Atari game is seeded at the first end after so many steps of its own: that takes 110 ms, going
on 6. Others: at every end."""
ROWS_BETWEEN = 16
"""While a checkpoint is loaded, `between` is called once in so many replayed steps."""


@dataclass(slots=True)
class Transition:
    """What n environments answered to one action each; everything [n], observation [n, ...].

    observation: of an ended episode the final one; where the next step starts is in
    `TrainingEnvironments.observation`; life_lost: a training trick's end of an episode (Atari's
    `episodic_life`), no end of the game; ended [k]: the places of those whose episode ended;
    final_masks [k, P]: the actions that were allowed where these ended, if the environment says so.
    """

    observation: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    life_lost: np.ndarray | None
    ended: np.ndarray
    final_masks: np.ndarray | None = None


class _Reset(NamedTuple):
    """A reset of the environments at these places [n] of a group. answer: what `reset` will return."""

    places: np.ndarray
    answer: Future[tuple[np.ndarray, dict[str, Any]]]


class TrainingEnvironments:
    """N environments that a checkpoint can bring back.

    observation [N, ...]: where the next step starts; forced [N]: whether its action will be FIRE,
    whatever is sent; masks [N, P]: which actions are allowed there, None for environments that say
    nothing of it. groups: the environments that step together. Atari's step on threads of their
    own: where torch has more than one, too, or a GPU computes, one half is emulated, or reset, while
    the network looks at the other. After `receive`, call `settle` for the group before anything else
    is done with it.
    """

    def __init__(
        self,
        resolved: Resolved,
        run: int,
        actor: int = 0,
        *,
        in_halves: bool = False,
        beside_accelerator: bool = False,
    ) -> None:
        """actor: which of several in one run, each with seeds of its own; in_halves: whether two or
        more environments step as two groups, so that the caller can work on one group while the other
        steps; beside_accelerator: whether the network computes on a GPU, so that the environments
        may use all processors of the pod.
        """
        self._resolved = resolved
        self._run = run
        self._actor = actor
        self.count = resolved.environment.count
        atari = resolved.game.is_atari
        threads = resolved.experiment.threads
        if beside_accelerator:
            threads = max(threads, int(processors()))
        several = threads > 1 or beside_accelerator
        self._overlaps = atari and several and self.count > 1
        self.groups: tuple[slice, ...] = (slice(0, self.count),)
        if self._overlaps or in_halves:
            self.groups = halves(self.count)
        self._seed_after = ATARI_SEED_STEPS if atari else 0
        if resolved.game.is_pooled:
            self._seed_after = SEED_STEPS
        # What is particular to Atari; other games have neither lives nor FIRE.
        self._fire = needs_fire(resolved)
        self._episodic_life = atari and resolved.environment.episodic_life
        self._made: list[Vector] = [
            make_environments(resolved, rows.stop - rows.start, threads) for rows in self.groups
        ]
        # Both are by group: the step that was begun, and the resets under way.
        self._answers = dict[int, Callable[[], Any]]()
        self._resetting = dict[int, list[_Reset]]()
        if self._overlaps:
            self._threads = [ThreadPoolExecutor(1, thread_name_prefix="reset") for _ in self.groups]
        else:
            self._threads = []
        # What is known of every environment between two steps.
        seen = self._made[0].single_observation_space
        self.interface = interface(resolved.game.name, seen, self._made[0].single_action_space)
        self.observation = np.zeros((self.count, *(seen.shape or ())), seen.dtype)
        self.forced = np.zeros(self.count, np.bool_)
        self.masks: np.ndarray | None = None
        self._begun = False
        self._lives: np.ndarray | None = None
        if self._episodic_life or self._fire:
            self._lives = np.zeros(self.count, np.int64)
        self._seedings = np.zeros(self.count, np.int64)
        # The log of actions, in the smallest type that holds them: it is part of every checkpoint.
        most = max(self.interface.choices, default=self.interface.actions)
        kind = np.dtype(np.float32)
        if not self.interface.continuous:
            kind = np.min_scalar_type(most - 1)
        further = () if self.interface.discrete else (self.interface.actions,)
        self._logs = [ActionLog((rows.stop - rows.start, *further), kind) for rows in self.groups]
        # Masks may appear in this first reset only, see `_note_masks`.
        self._seed_all(np.ones(self.count, np.bool_))
        self._begun = True

    def send(self, group: int, actions: np.ndarray) -> None:
        """Start one step of a group; actions [n] or [n, A] in the policy's own units. Raises
        `ExperimentError` after `close`.
        """
        if not self._made:
            raise ExperimentError("the environments are closed")
        made: Any = self._made[group]
        if self._fire:
            actions = np.where(self.forced[self.groups[group]], FIRE, actions)
        # What the environment receives is logged, FIRE included: replaying it needs no policy.
        self._logs[group].append(actions)
        taken = self.interface.environment_actions(actions)
        if self._overlaps:
            made.send(taken)
            self._answers[group] = made.recv
        else:
            # The step is made when its answer is asked for: there is no thread to do it meanwhile.
            self._answers[group] = functools.partial(made.step, taken)

    def receive(self, group: int) -> Transition:
        """The answer to what was sent, [n]; environments that have ended begin to reset, and
        `settle` waits for that.
        """
        rows = self.groups[group]
        observation, reward, terminated, truncated, info = self._answers[group]()
        self.observation[rows] = observation
        self._note_masks(group, slice(None), info)
        lost = None
        if self._lives is not None:
            lost = life_lost(self._lives[rows], info["lives"])
            self._lives[rows] = info["lives"]
            self.forced[rows] = lost & self._fire
        (ended,) = (terminated | truncated).nonzero()
        # Masks are copied before the resets, which write those of the next episodes in their place.
        final_masks = None if self.masks is None else self.masks[rows][ended]
        if len(ended):
            self._restart(group, ended)
        # With FIRE alone lives are followed, but losing one ends nothing.
        ends = lost if self._episodic_life else None
        return Transition(observation, reward, terminated, truncated, ends, ended, final_masks)

    def step(self, actions: np.ndarray) -> list[Transition]:
        """Make one step of all groups. actions: [N] or [N, A]."""
        for group, rows in enumerate(self.groups):
            self.send(group, actions[rows])
        transitions = [self.receive(group) for group in range(len(self.groups))]
        for group in range(len(self.groups)):
            self.settle(group)
        return transitions

    @property
    def cartpoles(self) -> CartPoles | None:
        """The environments if they are gymnasium's native CartPoles in one group, which a compiled
        function can step.
        """
        made = self._made[0]
        return made if len(self._made) == 1 and type(made) is CartPoles else None

    @property
    def seedings(self) -> np.ndarray:
        """How often each environment was seeded, [N]. A compiled function that steps them goes on
        counting in this array.
        """
        return self._seedings

    def take_over(self, actions: np.ndarray, last_ends: np.ndarray) -> None:
        """Take over the native CartPoles from the compiled function that has stepped them. actions:
        [T, N]; last_ends [N]: the number of these steps up to the last end of an episode of each, 0
        without one.
        """
        self._logs[0].extend(actions, last_ends)
        self.observation[:] = self._made[0].state.T  # type: ignore[attr-defined]

    def resets(self, group: int) -> bool:
        """Whether environments of this group are still being reset."""
        return any(not one.answer.done() for one in self._resetting.get(group, ()))

    def settle(self, group: int) -> None:
        """Wait until the environments that have ended are reset, and place their observations."""
        for one in self._resetting.pop(group, ()):
            self._place(group, one.places, *one.answer.result())

    def _restart(self, group: int, ended: np.ndarray) -> None:
        """Begin the next episodes of a group's environments at these places [n], seeded where that
        is due.
        """
        if not self._seed_after:
            self._seed(group, ended)
            return
        # Seeding an Atari game takes 110 ms, and going on with its generator 6; a longer log is
        # replayed for longer after a restart.
        due = self._logs[group].lengths[ended] >= self._seed_after
        if due.any():
            self._seed(group, ended[due])
        if not due.all():
            self._begin(group, ended[~due], None)

    def _seed(self, group: int, places: np.ndarray) -> None:
        """Begin episodes there, each from its environment's next seed."""
        rows = self.groups[group]
        seeds_of_all = self._next_seeds(np.arange(rows.start, rows.stop))
        seeds = seeds_of_all[places]
        self._seedings[places + rows.start] += 1
        if isinstance(made := self._made[group], Pools):
            # The others find their environments made when they are seeded.
            made.expect(seeds_of_all)
        # The log may begin anew: the new seed and the actions that follow are enough to come back.
        self._logs[group].clear(places)
        self._begin(group, places, seeds)

    def _next_seeds(self, environments: np.ndarray) -> np.ndarray:
        """The seeds [n] that these environments will be given next."""
        return environment_seeds(
            self._resolved.experiment.seed, self._run, self.count, environments,
            self._seedings[environments], self._actor,
        )  # fmt: skip

    def _begin(self, group: int, places: np.ndarray, seeds: np.ndarray | None) -> None:
        made = self._made[group]
        mask = np.zeros(made.num_envs, np.bool_)
        mask[places] = True
        # The reset runs in a thread of its own, so that the network can look at the other group
        # meanwhile.
        if self._threads:
            answer = self._threads[group].submit(reset, made, seeds, mask)
            self._resetting.setdefault(group, []).append(_Reset(places, answer))
        else:
            self._place(group, places, *reset(made, seeds, mask))

    def _place(
        self, group: int, places: np.ndarray, observation: np.ndarray, info: dict[str, Any]
    ) -> None:
        """Store the first observations of new episodes."""
        environments = places + self.groups[group].start
        self.observation[environments] = observation[places]
        self._note_masks(group, places, info)
        if self._lives is not None:
            self._lives[environments] = info["lives"][places]
            self.forced[environments] = self._fire

    def _note_masks(self, group: int, places: slice | np.ndarray, info: dict[str, Any]) -> None:
        """Store the masks of the environments at these places of a group."""
        if self.masks is None:
            if KEY not in info or self.interface.continuous:
                return
            if self._begun:
                raise BadInput(
                    f"game {self._resolved.game.name!r} gives an {KEY} now and gave none when it began; allowed: in every info"
                )
            self.interface = replace(self.interface, masked=True)
            self.masks = np.ones((self.count, self.interface.policy_outputs), np.bool_)
        of_group = self.masks[self.groups[group]]
        found = masks(info, len(of_group), self.interface, self._resolved.game.name)
        of_group[places] = found[places]

    def _seed_all(self, chosen: np.ndarray) -> None:
        """Begin episodes in these environments, bool [N], of whatever group."""
        for group, rows in enumerate(self.groups):
            places = np.flatnonzero(chosen[rows])
            if len(places):
                self._seed(group, places)
        for group in range(len(self.groups)):
            self.settle(group)

    def state_dict(self) -> State:
        """What brings the episodes in flight back.

        seedings, lengths [N]: how often each was seeded, and its steps since then; actions [sum of
        lengths, ...]: those steps, one environment after the other; observation [N, ...]: what a
        replay must arrive at.
        """
        logs = [taken for one in self._logs for taken in one.each()]
        lengths = np.array([len(one) for one in logs])
        return {
            "seedings": self._seedings.copy(), "lengths": lengths, "actions": np.concatenate(logs),
            "observation": self.observation.copy(),
        }  # fmt: skip

    def load_state_dict(
        self, state: State, between: Callable[[], None] = lambda: None
    ) -> np.ndarray:
        """Replay; bool [N]: the environments that did not arrive where they were, and have begun
        another episode instead.

        All environments step together and end in the same step, so one whose log is shorter is
        seeded later. between: called every few steps; may raise.
        """
        longest = int(max(state["lengths"]))
        started_s = time.perf_counter()
        log.info("replaying the episodes in flight: %d steps in the longest", longest)
        self._replay(state, longest, between)
        log.info(
            "replayed %d steps of %d environments in %.1f s",
            longest,
            self.count,
            time.perf_counter() - started_s,
        )
        # A game with other sources of chance than its seed ends up elsewhere.
        unequal = (self.observation != state["observation"]).reshape(self.count, -1).any(axis=1)
        lost: np.ndarray = unequal | (self._seedings != state["seedings"])
        if lost.any():
            log.warning(
                "%s is not a function of its seed and actions: %d of %d episodes in flight are left out of the record and start "
                "over, and equality with an undisturbed run is lost", self._resolved.game.name, int(lost.sum()), self.count,
            )  # fmt: skip
            # They go on with the next seed, as if their episodes had ended.
            self._seedings[lost] = state["seedings"][lost]
            self._seed_all(lost)
        return lost

    def _replay(self, state: State, longest: int, between: Callable[[], None]) -> None:
        begins = longest - np.array(state["lengths"])
        # Known from the first row on, so that envpool's environments are made all at once.
        self._seedings[:] = state["seedings"] - 1
        actions = np.zeros(
            (longest, self.count, *state["actions"].shape[1:]), state["actions"].dtype
        )
        for n, taken in enumerate(np.split(state["actions"], np.cumsum(state["lengths"])[:-1])):
            # All logs end in the same row.
            actions[begins[n] :, n] = taken
        for row in range(longest + 1):
            beginning = begins == row
            if beginning.any():
                # `_seed_all` takes the next number, which is the one of the episode in flight.
                self._seedings[beginning] = state["seedings"][beginning] - 1
                self._seed_all(beginning)
            if row % ROWS_BETWEEN == 0:
                between()
            if row < longest:
                taken = actions[row]
                # Logs store the smallest type; environments get int64, as the policy sends it.
                if not self.interface.continuous:
                    taken = taken.astype(np.int64)
                self._let_wait(begins > row, taken)
                self.step(taken)

    def _let_wait(self, waiting: np.ndarray, actions: np.ndarray) -> None:
        """Give the environments whose log begins later, bool [n], actions that their masks allow: they
        step, too, and a forbidden action may raise.
        """
        if self.masks is None or not waiting.any():
            return
        actions[waiting] = self.interface.best_actions(self.masks[waiting])

    def close(self) -> None:
        """Release the environments."""
        for thread in self._threads:
            thread.shutdown()
        for made in self._made:
            made.close()
        self._made = []


def halves(count: int) -> tuple[slice, ...]:
    """Split so many environments into two groups, of which the first may have one more. A single
    environment is one group.
    """
    middle = -(-count // 2)
    return (slice(0, middle), slice(middle, count))[: min(2, count)]


EVALUATION = "evaluation"
"""The purpose of the seeds by which a final policy is judged."""


def episode_seed(resolved: Resolved, run: int, episode: int, purpose: str = EVALUATION) -> int:
    """The seed of one episode of evaluation; filming the same episode starts from the same one."""
    return integer_seed(resolved.experiment.seed, run, purpose, episode)


FIRST_ROWS = 64


class ActionLog:
    """Actions of n environments, a row a step; as long as the longest time since a seeding.

    lengths [n]: steps of each environment since its last seeding.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """shape: of a row, [n] or [n, A]; dtype: the smallest that fits."""
        self._rows = np.zeros((FIRST_ROWS, *shape), dtype)
        self._used = 0
        self._seeded_at = np.zeros(shape[0], np.int64)

    @property
    def lengths(self) -> np.ndarray:
        """Steps since the last seeding, [n]."""
        lengths: np.ndarray = self._used - self._seeded_at
        return lengths

    def append(self, actions: np.ndarray) -> None:
        """Append one step of all environments."""
        if self._used == len(self._rows):
            self._make_room()
        self._rows[self._used] = actions
        self._used += 1

    def extend(self, actions: np.ndarray, seeded_after: np.ndarray) -> None:
        """Append several steps [T, ...] at once. seeded_after [n]: the number of them after which each
        environment was seeded last, 0 if it was not.
        """
        if self._used + len(actions) > len(self._rows):
            self._make_room(len(actions))
        self._rows[self._used : self._used + len(actions)] = actions
        seeded = seeded_after > 0
        self._seeded_at[seeded] = self._used + seeded_after[seeded]
        self._used += len(actions)

    def clear(self, seeded: np.ndarray) -> None:
        """These environments were seeded anew, bool [n] or indices."""
        self._seeded_at[seeded] = self._used

    def each(self) -> Iterator[np.ndarray]:
        """The actions of each environment since its last seeding, [length, ...]."""
        for place, seeded_at in enumerate(self._seeded_at):
            yield self._rows[seeded_at : self._used, place]

    def _make_room(self, count: int = 1) -> None:
        """Leave out what came before every seeding, and double the space where that is not half of
        it; at least for `count` more rows.
        """
        oldest = int(self._seeded_at.min())
        kept = self._rows[oldest : self._used]
        room = max(FIRST_ROWS, 2 * len(kept), len(kept) + count)
        rows = np.zeros((room, *kept.shape[1:]), kept.dtype)
        rows[: len(kept)] = kept
        self._rows = rows
        self._used = len(kept)
        self._seeded_at -= oldest
