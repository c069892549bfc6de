"""A replay: the last transitions of N environments, from which an off-policy algorithm learns.

Usual bugs that this has not: the observation after a reset is never taken for the one that an
episode ended with; a truncation bootstraps and a termination does not; a transition whose
successor is not known yet, or whose frames are being overwritten, is never sampled; frames are
never stacked across episodes.

Step t of environment n lies in slot t modulo the number of slots. What happens once in an episode
is kept beside the slots, by (t, n): the observation that a truncated episode ended with, and the
whole first stack of frames.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from agents.environments.training import Transition
from agents.interfaces import Growth, State
from agents.spaces import Interface
from config.errors import NoUsableState
from config.resolved import Resolved

GOES_ON, TERMINATED, TRUNCATED, LOST = range(4)
"""How a step ended. Terminated: also by a lost life, where that counts as an end. Lost: the episode
could not be brought back after a restart, so nobody knows what followed."""
STEPS = "replay"
FIRST_STACKS = "replay-first-stacks"
ENDS = "replay-ends"
"""The streams: steps of all environments, and what happens once in an episode."""

Place = tuple[int, int]
"""Step t and environment n."""


class Transitions(NamedTuple):
    """B transitions, each over k steps: `n_step`, or fewer where the episode ended before.

    observation, next_observation [B, ...]: as the environment gives them; action [B] or [B, A];
    reward [B], float32: Σ γ^i r_{t+i+1}; discount [B], float32: what the value of next_observation
    is multiplied by, γ^k, and 0 after a termination; next_masks [B, P]: the actions that are
    allowed there, where the environment says so; valid [B]: False where nothing may be learnt;
    rows [B]: their numbers, t · N + n.
    """

    observation: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    discount: np.ndarray
    next_observation: np.ndarray
    next_masks: np.ndarray | None
    valid: np.ndarray
    rows: np.ndarray

    def changed(self, change: Callable[[np.ndarray], np.ndarray]) -> Transitions:
        """With these observations, [B, ...] each."""
        return self._replace(
            observation=change(self.observation), next_observation=change(self.next_observation)
        )


@dataclass(frozen=True, kw_only=True)
class ReplaySettings:
    """How transitions are kept and drawn.

    capacity: number of transitions, rounded down to whole steps of all environments. n_step: rewards that
    are summed before the target bootstraps. discount: γ. stacked: observations are stacks [C, H, W] of the
    last C frames, and only the newest frame is stored. clip_rewards: rewards are cut to −1 … 1 when they
    are drawn; the stored ones are the game's own.
    """

    capacity: int
    n_step: int
    discount: float
    stacked: bool
    clip_rewards: bool


def replay_settings(resolved: Resolved) -> ReplaySettings:
    """The settings of an algorithm whose hyperparameters are `replay_size`, `discount`, and
    possibly `n_step`.
    """
    hyper = resolved.hyperparameters
    return ReplaySettings(
        capacity=hyper.replay_size, n_step=getattr(hyper, "n_step", 1), discount=hyper.discount,
        stacked=resolved.game.is_atari, clip_rewards=resolved.environment.clip_rewards,
    )  # fmt: skip


class Replay:
    """steps: how many steps of all environments were added in the whole training."""

    def __init__(
        self, spaces: Interface, observation: np.ndarray, settings: ReplaySettings
    ) -> None:
        self.settings = settings
        self.count = len(observation)
        self.slots = settings.capacity // self.count
        self.steps = 0
        self._stack = observation.shape[1] if settings.stacked else 1
        self._columns = _columns(spaces, observation, self.slots, stacked=settings.stacked)
        # Steps since each episode's first observation, counted up to C − 1: from then on all frames
        # of a stack are the episode's own.
        self._age = np.zeros(self.count, np.uint8)
        self._first_stacks = dict[Place, np.ndarray]()
        self._finals = dict[Place, _Final]()
        # The number of steps that `grown` has handed out so far.
        self._asked = 0
        self._new_stacks = list[Place]()
        self._new_finals = list[Place]()

    def see(
        self,
        observation: np.ndarray,
        action: np.ndarray,
        forced: np.ndarray,
        masks: np.ndarray | None,
    ) -> None:
        """The first half of a step: where all environments are [N, ...], what is chosen there [N] or
        [N, A], where another action is forced [N], and what is allowed [N, P].
        """
        t = self.steps
        slot = self.steps % self.slots
        columns = self._columns
        self._forget(t - self.slots)
        # A stack's newest frame alone is stored: 1e6 Atari steps take 7 GB instead of 28.
        columns["observation"][slot] = observation[:, -1] if self.settings.stacked else observation
        columns["action"][slot] = action
        columns["valid"][slot] = ~forced
        columns["age"][slot] = self._age
        if masks is not None:
            columns["mask"][slot] = masks
        if self.settings.stacked:
            # The first stack of an episode may hold frames that no slot has: it is kept whole.
            for n in np.flatnonzero(self._age == 0).tolist():
                self._first_stacks[t, n] = observation[n].copy()
                self._new_stacks.append((t, n))

    def answer(self, rows: slice, answer: Transition) -> None:
        """The second half: what these environments, a group, answered."""
        t = self.steps
        slot = self.steps % self.slots
        terminated = answer.terminated
        if answer.life_lost is not None:
            # A lost life ends what is learnt, as a termination; the stack of frames goes on through
            # it.
            terminated = terminated | answer.life_lost
        end = np.where(answer.truncated, TRUNCATED, GOES_ON)
        # A termination in the very step of the time limit is a termination.
        end = np.where(terminated, TERMINATED, end)
        self._columns["end"][slot, rows] = end
        self._columns["reward"][slot, rows] = answer.reward
        # Ages are widened before the addition, because uint8 would wrap around.
        self._age[rows] = np.minimum(self._age[rows].astype(np.int64) + 1, self._stack - 1)
        for number, n in enumerate(answer.ended.tolist()):
            self._age[rows.start + n] = 0
            if end[n] == TRUNCATED:
                mask = None if answer.final_masks is None else answer.final_masks[number]
                final = _Final(answer.observation[n].copy(), mask, lost=False)
                self._add_final((t, rows.start + n), final)
        # Groups answer in order, so the step is complete with the last one.
        if rows.stop == self.count:
            self.steps += 1

    def lose(self, environments: np.ndarray) -> None:
        """The episodes in flight in these environments, bool [N], could not be brought back."""
        self._age[environments] = 0
        if not self.steps:
            return
        t = self.steps - 1
        shape = self._observation_shape
        ends = self._columns["end"][t % self.slots]
        # An episode that had just ended lost nothing: its last step is as it was.
        for n in np.flatnonzero(environments & (ends == GOES_ON)).tolist():
            empty = np.zeros(shape, self._columns["observation"].dtype)
            self._add_final((t, n), _Final(empty, self._no_mask(), lost=True))

    @property
    def sampleable(self) -> range:
        """The rows that can be sampled, t · N + n.

        The last n steps wait for their successors; the oldest slot is the next to be overwritten,
        and the frames of the C − 1 after it are not all there.
        """
        oldest = 0 if self.steps < self.slots else self.steps - self.slots + self._stack
        return range(oldest * self.count, (self.steps - self.settings.n_step) * self.count)

    def sample(self, size: int, generator: np.random.Generator) -> Transitions:
        """B of them, each as likely as any other, with repetition."""
        rows = self.sampleable
        return self.take(generator.integers(rows.start, rows.stop, size))

    def take(self, rows: np.ndarray) -> Transitions:
        """The transitions that begin at these rows [B], which must be `sampleable`."""
        t, n = np.divmod(rows, self.count)
        slot = t % self.slots
        settings = self.settings
        reward = np.zeros(len(rows), np.float32)
        discount = np.ones(len(rows), np.float32)
        valid = self._columns["valid"][slot, n]
        # `going`: the episode has not ended in the steps so far. `last`: the last step that counts.
        going = np.ones(len(rows), np.bool_)
        last = t
        for step in range(settings.n_step):
            now = (t + step) % self.slots
            received = self._columns["reward"][now, n]
            if settings.clip_rewards:
                received = received.clip(-1, 1)
            # The discount is γ^i here; it changes only after the reward was added.
            reward += going * discount * received
            last = np.where(going, t + step, last)
            discount[going] *= np.float32(settings.discount)
            end = self._columns["end"][now, n] * going
            # Nothing is bootstrapped after a termination. After a truncation the discount stays,
            # and `_after` takes the final observation.
            discount[end == TERMINATED] = 0
            valid = valid & (end != LOST)
            going = going & (end == GOES_ON)
        next_observation, next_masks = self._after(last, n, going)
        return Transitions(
            self._observations(t, n), self._columns["action"][slot, n], reward, discount,
            next_observation, next_masks, valid, rows,
        )  # fmt: skip

    def _after(
        self, last: np.ndarray, n: np.ndarray, going: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """The observation after step `last` of environments n: the next slot's, or the episode's
        final one. After a termination it is whatever the slot contains, and is multiplied by 0.
        """
        observations = self._observations(last + 1, n)
        masks = None
        if "mask" in self._columns:
            masks = self._columns["mask"][(last + 1) % self.slots, n]
        for number in np.flatnonzero(~going).tolist():
            final = self._finals.get((int(last[number]), int(n[number])))
            if final is not None:
                observations[number] = final.observation
                if masks is not None and final.mask is not None:
                    masks[number] = final.mask
        return observations, masks

    def _observations(self, t: np.ndarray, n: np.ndarray) -> np.ndarray:
        """Observations as the environment gave them, [B, ...]."""
        kept = self._columns["observation"]
        if not self.settings.stacked:
            observations: np.ndarray = kept[t % self.slots, n]
            return observations
        # Frame i of a stack was the newest one C − 1 − i steps before.
        back = np.arange(self._stack - 1, -1, -1)
        stacks: np.ndarray = kept[(t[:, None] - back) % self.slots, n[:, None]]
        age = self._columns["age"][t % self.slots, n]
        # Early in an episode the older slots belong to the episode before; these frames come from
        # the first stack.
        for number in np.flatnonzero(age < self._stack - 1).tolist():
            steps = int(age[number])
            first = self._first_stacks[int(t[number]) - steps, int(n[number])]
            stacks[number, : self._stack - steps] = first[steps:]
        return stacks

    @property
    def _observation_shape(self) -> tuple[int, ...]:
        shape = self._columns["observation"].shape[2:]
        return (self._stack, *shape) if self.settings.stacked else shape

    def _add_final(self, place: Place, final: _Final) -> None:
        self._keep_final(place, final)
        self._new_finals.append(place)

    def _keep_final(self, place: Place, final: _Final) -> None:
        self._finals[place] = final
        if final.lost:
            self._columns["end"][place[0] % self.slots, place[1]] = LOST

    def _forget(self, t: int) -> None:
        """Slot t is overwritten: what was kept beside it is not needed any more."""
        for kept in (self._first_stacks, self._finals):
            # Both dicts are in the order of their steps, so the oldest place comes first.
            while kept:
                oldest = next(iter(kept))
                if oldest[0] > t:
                    break
                del kept[oldest]

    def state_dict(self) -> State:
        """Beside the streams: steps, and age [N], how many frames each episode in flight has."""
        return {"steps": self.steps, "age": self._age.copy()}

    def load_state_dict(self, state: State) -> None:
        """Load what `state_dict` gave. `load_streams` must follow."""
        self.steps = self._asked = int(state["steps"])
        self._age = np.array(state["age"])

    def grown(self) -> dict[str, Growth]:
        """The rows added since the last call, as far as they are still in the replay."""
        oldest = max(self._asked, self.steps - self.slots)
        slots = np.arange(oldest, self.steps) % self.slots
        steps = {name: column[slots] for name, column in self._columns.items()}
        streams = {STEPS: Growth(rows=steps, keep=self.slots)}
        shape = self._observation_shape
        dtype = self._columns["observation"].dtype
        if self.settings.stacked:
            # In an epoch longer than the ring some of the new ones were forgotten again.
            stacks = [(place, self._first_stacks.get(place)) for place in self._new_stacks]
            kept = [(place, {"stack": stack}) for place, stack in stacks if stack is not None]
            columns = {"stack": np.zeros(shape, dtype)}
            streams[FIRST_STACKS] = _by_place(kept, columns, len(self._first_stacks))
        finals = [(place, self._finals.get(place)) for place in self._new_finals]
        kept = [(place, final.as_columns()) for place, final in finals if final is not None]
        columns = _Final(np.zeros(shape, dtype), self._no_mask(), lost=False).as_columns()
        streams[ENDS] = _by_place(kept, columns, len(self._finals))
        self._asked = self.steps
        self._new_stacks = []
        self._new_finals = []
        return streams

    def load_streams(self, streams: Mapping[str, Iterator[dict[str, np.ndarray]]]) -> None:
        """Take back what `grown` gave; raises `NoUsableState` where that is less than there was."""
        t = first = max(0, self.steps - self.slots)
        for rows in streams.get(STEPS, ()):
            slots = np.arange(t, t + len(rows["reward"])) % self.slots
            for name, column in self._columns.items():
                column[slots] = rows[name]
            t += len(slots)
        if t != self.steps:
            raise NoUsableState(
                f"the replay of this training has {t - first} steps of its environments, "
                f"its checkpoint {self.steps - first}"
            )
        for rows in streams.get(FIRST_STACKS, ()):
            for number, place in enumerate(_places(rows)):
                self._first_stacks[place] = rows["stack"][number].copy()
        for rows in streams.get(ENDS, ()):
            for number, place in enumerate(_places(rows)):
                mask = rows["mask"][number].copy() if "mask" in rows else None
                lost = bool(rows["lost"][number])
                self._keep_final(place, _Final(rows["observation"][number].copy(), mask, lost))

    def _no_mask(self) -> np.ndarray | None:
        masks = self._columns.get("mask")
        return None if masks is None else np.zeros_like(masks[0, 0])


class _Final(NamedTuple):
    """The final observation of a truncated episode. lost: it is not known, and the observation is
    empty.
    """

    observation: np.ndarray
    mask: np.ndarray | None
    lost: bool

    def as_columns(self) -> dict[str, np.ndarray]:
        """The columns of a stream."""
        columns = {"observation": self.observation, "lost": np.array(self.lost)}
        return columns if self.mask is None else {**columns, "mask": self.mask}


def bytes_of(spaces: Interface, dtype: np.dtype[Any], settings: ReplaySettings) -> int:
    """Size of the slots of a full replay."""
    shape = spaces.environment_shape
    example = np.broadcast_to(np.zeros((), dtype), (1, *shape))
    columns = _columns(spaces, example, 1, stacked=settings.stacked)
    return settings.capacity * sum(column.nbytes for column in columns.values())


def replay_bytes(resolved: Resolved, spaces: Interface, dtype: np.dtype[Any]) -> int:
    """`agents.interfaces.ExperienceBytes` of such an algorithm."""
    return bytes_of(spaces, dtype, replay_settings(resolved))


def _columns(
    spaces: Interface, observation: np.ndarray, slots: int, *, stacked: bool
) -> dict[str, np.ndarray]:
    """Space for so many steps of all environments, whose observations [N, ...] look like these; the
    operating system gives it only as it is written.
    """
    of_slot = (slots, len(observation))
    shape = observation.shape[2:] if stacked else observation.shape[1:]
    kind = np.dtype(np.float32)
    if not spaces.continuous:
        # The smallest type that holds every action: a byte for nearly all games.
        most = max(spaces.choices, default=spaces.actions)
        kind = np.min_scalar_type(most - 1)
    of_action = () if spaces.discrete else (spaces.actions,)
    action = np.zeros((*of_slot, *of_action), kind)
    columns = {
        "observation": np.zeros((*of_slot, *shape), observation.dtype),
        "action": action,
        "reward": np.zeros(of_slot, np.float32),
        "end": np.zeros(of_slot, np.uint8),
        "valid": np.zeros(of_slot, np.bool_),
        "age": np.zeros(of_slot, np.uint8),
    }
    if spaces.masked:
        columns["mask"] = np.zeros((*of_slot, spaces.policy_outputs), np.bool_)
    return columns


def _by_place(
    kept: Sequence[tuple[Place, Mapping[str, np.ndarray]]],
    columns: Mapping[str, np.ndarray],
    keep: int,
) -> Growth:
    """A stream of what was kept beside the slots, of which the last `keep` rows are needed; columns:
    a row of its columns, for their types and shapes.
    """
    places = np.array([place for place, _ in kept], np.int64).reshape(-1, 2)
    rows = {"step": places[:, 0], "environment": places[:, 1]}
    for name, example in columns.items():
        rows[name] = np.array([row[name] for _, row in kept], example.dtype)
        rows[name] = rows[name].reshape(-1, *example.shape)
    return Growth(rows=rows, keep=keep)


def _places(rows: Mapping[str, np.ndarray]) -> Iterator[Place]:
    pairs = zip(rows["step"].tolist(), rows["environment"].tolist(), strict=True)
    return iter([(step, environment) for step, environment in pairs])
