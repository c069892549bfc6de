"""The replay against a list of everything that happened, and what goes wrong without each of its
protections."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from agents.environments.training import Transition
from agents.experience import replay as module
from agents.experience.collection import Collection
from agents.experience.replay import Replay, bytes_of
from agents.interfaces import Growth
from config.errors import NoUsableState
from config.resolve import resolve
from tests.replay_reference import FRAMES, World, transition

SLOTS = 24


def check(replay: Replay, world: World) -> None:
    """All that can be sampled is what happened."""
    rows = np.arange(replay.sampleable.start, replay.sampleable.stop)
    if not len(rows):
        return
    found = replay.take(rows)
    assert (found.rows == rows).all()
    for number, row in enumerate(rows.tolist()):
        expected = transition(world, *divmod(row, world.count), replay.settings)
        assert found.valid[number] == expected.valid
        if not expected.valid:
            continue
        assert np.array_equal(found.observation[number], expected.observation)
        assert found.action[number] == expected.action
        assert np.isclose(found.reward[number], expected.reward, atol=1e-6)
        assert np.isclose(found.discount[number], expected.discount, atol=1e-6)
        if expected.discount:
            assert np.array_equal(found.next_observation[number], expected.after)
            if found.next_masks is not None:
                assert np.array_equal(found.next_masks[number], expected.allowed_after)


def check_range(replay: Replay) -> None:
    """Not one row more is left out than must be."""
    settings, count = replay.settings, replay.count
    margin = (FRAMES if settings.stacked else 1) if replay.steps >= SLOTS else 0
    steps = min(replay.steps, SLOTS) - margin - settings.n_step
    assert len(replay.sampleable) == max(0, steps * count)
    assert replay.sampleable.stop == (replay.steps - settings.n_step) * count


def played(world: World, replay: Replay, steps: int = 3 * SLOTS) -> None:
    """Compared after every few steps; now and then an episode is lost."""
    for number in range(1, steps + 1):
        world.step(replay)
        if number % 19 == 0:
            world.lose(world.generator.random(world.count) < 0.7, replay)
        if number % 5 == 0 or number < 6:
            check(replay, world)
            check_range(replay)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_what_is_sampled_is_what_happened(
    count: int, n_step: int, stacked: bool, masked: bool
) -> None:
    for seed in range(3):
        world = World(count, stacked=stacked, masked=masked, halves=count > 1, seed=seed)
        played(world, world.replay(slots=SLOTS, n_step=n_step, clip=seed == 1))


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("endings", [(1, 0, 0), (0, 1, 0), (1, 1, 1), (0.5, 0.5, 0), (0, 0, 0)])
def test_episodes_of_one_step_and_without_an_end(
    stacked: bool, endings: tuple[float, float, float]
) -> None:
    world = World(2, stacked=stacked, masked=True, endings=endings)
    played(world, world.replay(slots=SLOTS, n_step=3))


TWINS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {}
"""What goes wrong without each protection, by what is then learnt."""


def twin(without: Callable[[pytest.MonkeyPatch], None]) -> Callable[[pytest.MonkeyPatch], None]:
    TWINS[without.__name__] = without
    return without


def answered(change: Callable[[Transition], Transition], patch: pytest.MonkeyPatch) -> None:
    """A replay that hears something else."""
    answer = Replay.answer
    patch.setattr(Replay, "answer", lambda self, rows, given: answer(self, rows, change(given)))


@twin
def the_reset_observation_is_the_final_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Replay, "_add_final", lambda self, place, final: None)


@twin
def a_truncation_is_a_termination(patch: pytest.MonkeyPatch) -> None:
    answered(lambda one: dataclasses.replace(one, terminated=one.terminated | one.truncated), patch)


@twin
def a_termination_is_a_truncation(patch: pytest.MonkeyPatch) -> None:
    answered(lambda one: dataclasses.replace(
        one, truncated=one.terminated | one.truncated, terminated=one.terminated & False
    ), patch)  # fmt: skip


@twin
def a_lost_life_goes_on(patch: pytest.MonkeyPatch) -> None:
    answered(lambda one: dataclasses.replace(one, life_lost=None), patch)


@twin
def the_final_mask_is_the_reset_one(patch: pytest.MonkeyPatch) -> None:
    answered(lambda one: dataclasses.replace(one, final_masks=None), patch)


@twin
def a_forced_action_is_learnt(patch: pytest.MonkeyPatch) -> None:
    see = Replay.see
    patch.setattr(
        Replay, "see", lambda self, seen, action, forced, masks: see(self, seen, action, forced & False, masks)
    )  # fmt: skip


@twin
def a_lost_episode_goes_on(patch: pytest.MonkeyPatch) -> None:
    def forgotten(self: Replay, environments: np.ndarray) -> None:
        self._age[environments] = 0

    patch.setattr(Replay, "lose", forgotten)


@twin
def a_lost_episode_s_frames_are_stacked(patch: pytest.MonkeyPatch) -> None:
    lose = Replay.lose

    def kept(self: Replay, environments: np.ndarray) -> None:
        age = self._age.copy()
        lose(self, environments)
        self._age = age

    patch.setattr(Replay, "lose", kept)


@twin
def the_newest_have_no_successor(patch: pytest.MonkeyPatch) -> None:
    def newest(self: Replay) -> range:
        return range((self.steps - 1) * self.count, self.steps * self.count)

    patch.setattr(Replay, "sampleable", property(newest))


@twin
def the_oldest_are_overwritten(patch: pytest.MonkeyPatch) -> None:
    def oldest(self: Replay) -> range:
        first = max(0, self.steps - self.slots - 1)
        return range(first * self.count, (first + 1) * self.count)

    patch.setattr(Replay, "sampleable", property(oldest))


@twin
def the_oldest_frames_are_overwritten(patch: pytest.MonkeyPatch) -> None:
    def oldest(self: Replay) -> range:
        first = max(0, self.steps - self.slots)
        return range(first * self.count, (first + FRAMES - 1) * self.count)

    patch.setattr(Replay, "sampleable", property(oldest))


@twin
def frames_are_stacked_across_episodes(patch: pytest.MonkeyPatch) -> None:
    see = Replay.see

    def old(self: Replay, *given: Any) -> None:
        see(self, *given)
        self._columns["age"][self.steps % self.slots] = FRAMES - 1

    patch.setattr(Replay, "see", old)


@twin
def the_return_goes_beyond_the_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(module, "GOES_ON", -1)
    patch.setattr(module, "TERMINATED", -2)


@twin
def rewards_are_clipped_where_they_are_stored(patch: pytest.MonkeyPatch) -> None:
    answered(lambda one: dataclasses.replace(one, reward=one.reward.clip(-1, 1)), patch)


@pytest.mark.parametrize("without", TWINS)
def test_without_a_protection_it_differs(without: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.check_range", lambda replay: None)
    world = World(3, stacked=True, masked=True)
    played(world, world.replay(slots=SLOTS, n_step=3))  # with all of them it does not
    world = World(3, stacked=True, masked=True)
    TWINS[without](monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        played(world, world.replay(slots=SLOTS, n_step=3))


def test_a_life_that_is_lost_as_the_time_ends_is_an_end() -> None:
    """As in `agents.algorithms.ppo`."""
    world = World(1, endings=(0, 1, 1))
    replay = world.replay(slots=SLOTS, n_step=1)
    world.step(replay)
    world.step(replay)
    assert replay.take(np.array([0])).discount == 0


def test_all_rows_are_equally_likely() -> None:
    world = World(3)
    replay = world.replay(slots=SLOTS, n_step=1)
    for _ in range(SLOTS + 7):
        world.step(replay)
    drawn = replay.sample(20_000, np.random.default_rng(0)).rows
    counts = np.bincount(drawn - replay.sampleable.start, minlength=len(replay.sampleable))
    assert counts.sum() == 20_000 and len(counts) == len(replay.sampleable)
    expected = 20_000 / len(counts)
    assert ((counts - expected) ** 2 / expected).sum() < 2 * len(counts)


def test_what_is_kept_beside_the_slots_does_not_grow() -> None:
    world = World(3, stacked=True)
    replay = world.replay(slots=SLOTS, n_step=3)
    for _ in range(10 * SLOTS):
        world.step(replay)
        assert len(replay._first_stacks) <= 3 * SLOTS
        assert len(replay._finals) <= 3 * SLOTS
        assert all(t > replay.steps - 1 - SLOTS for t, _ in replay._first_stacks | replay._finals)


class Files:
    """Streams as `steps.training.stream_writer` keeps them: rows are appended, the oldest dropped."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, np.ndarray]] = {}
        self.first: dict[str, int] = {}
        self.added = 0

    def add(self, grown: dict[str, Growth]) -> None:
        for name, growth in grown.items():
            before = self.rows.get(name, {column: rows[:0] for column, rows in growth.rows.items()})
            kinds = {column: (rows.dtype, rows.shape[1:]) for column, rows in before.items()}
            assert kinds == {
                column: (rows.dtype, rows.shape[1:]) for column, rows in growth.rows.items()
            }
            self.rows[name] = {
                column: np.concatenate([before[column], rows])
                for column, rows in growth.rows.items()
            }
            end = len(next(iter(self.rows[name].values())))
            keep = end if growth.keep is None else growth.keep
            self.first[name] = max(self.first.get(name, 0), end - keep)
            self.added += len(next(iter(growth.rows.values())))

    def read(self, name: str, at_once: int = 7) -> Iterator[dict[str, np.ndarray]]:
        rows = self.rows[name]
        end = len(next(iter(rows.values())))
        for start in range(self.first[name], end, at_once):
            yield {column: each[start : min(end, start + at_once)] for column, each in rows.items()}

    def restored(self, replay: Replay, world: World, state: bytes) -> Replay:
        found = Replay(world.spaces(), np.stack(world.now), replay.settings)
        found.load_state_dict(pickle.loads(state))  # noqa: S301 - a copy that shares nothing
        found.load_streams({name: self.read(name) for name in self.rows})
        return found


def saved(replay: Replay, files: Files) -> bytes:
    files.add(replay.grown())
    return pickle.dumps(replay.state_dict())


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("every", [1, 7, SLOTS - 1, SLOTS, 2 * SLOTS + 3])
def test_streams_bring_everything_back(stacked: bool, every: int) -> None:
    """Also growth larger than the ring, and again and again: what is restored goes on, grows, and
    is restored; episodes are lost in between."""
    world, files = World(3, stacked=stacked, masked=True, halves=True), Files()
    replay = world.replay(slots=SLOTS, n_step=3)
    for number in range(6):
        for _ in range(every):
            world.step(replay)
        replay = files.restored(replay, world, saved(replay, files))
        check(replay, world)
        if number % 2:
            world.lose(np.array([True, False, True]), replay)
            check(replay, world)
    played(world, replay)


def test_a_checkpoint_changes_nothing() -> None:
    one, other = (World(3, stacked=True) for _ in range(2))
    disturbed, undisturbed = (world.replay(slots=SLOTS, n_step=3) for world in (one, other))
    files = Files()
    for _ in range(2 * SLOTS):
        one.step(disturbed)
        other.step(undisturbed)
        saved(disturbed, files)
    rows = np.arange(disturbed.sampleable.start, disturbed.sampleable.stop)
    for found, expected in zip(disturbed.take(rows), undisturbed.take(rows), strict=True):
        assert np.array_equal(found, expected)


def test_nothing_is_given_twice() -> None:
    world, files = World(3, stacked=True), Files()
    replay = world.replay(slots=SLOTS, n_step=1)
    for _ in range(10):
        world.step(replay)
    saved(replay, files)
    added = files.added
    saved(replay, files)
    assert files.added == added
    assert len(files.rows[module.STEPS]["reward"]) == 10


def test_what_grew_is_a_copy() -> None:
    """The training goes on while it is written."""
    world = World(2, stacked=True)
    replay = world.replay(slots=4, n_step=1)
    world.step(replay)
    grown = replay.grown()
    before = {name: pickle.dumps(one.rows) for name, one in grown.items()}
    for _ in range(5):
        world.step(replay)
    assert {name: pickle.dumps(one.rows) for name, one in grown.items()} == before


@pytest.mark.parametrize("missing", [1, SLOTS])
def test_less_than_there_was_is_refused(missing: int) -> None:
    world, files = World(2), Files()
    replay = world.replay(slots=SLOTS, n_step=1)
    for _ in range(SLOTS + 5):
        world.step(replay)
    state = saved(replay, files)
    for column, rows in files.rows[module.STEPS].items():
        files.rows[module.STEPS][column] = rows[: len(rows) - missing]
    reason = f"has {SLOTS - missing} steps of its environments, its checkpoint {SLOTS}"
    with pytest.raises(NoUsableState, match=reason):
        files.restored(replay, world, state)


def test_its_size_is_known_before_it_is_made() -> None:
    world = World(3, stacked=True, masked=True)
    replay = world.replay(slots=SLOTS, n_step=1)
    settings = dataclasses.replace(replay.settings, capacity=3 * SLOTS)
    taken = sum(column.nbytes for column in replay._columns.values())
    assert bytes_of(world.spaces(), np.dtype(np.uint8), settings) == taken


@pytest.mark.parametrize("game", ["breakout", "cartpole"])
def test_real_environments_fill_it(game: str) -> None:
    """Breakout with FIRE, lives and stacks; CartPole with its ends."""
    given = {"game": game, "num_envs": "3", "replay_size": "450", "learning_starts": "0"}
    sizes = {"epoch_steps": "300", "train_every": "3", "target_every": "300", "n_step": "1"}
    resolved = resolve("dqn", given | sizes)
    stacked = resolved.game.is_atari
    collection, generator = Collection(resolved, 0), np.random.default_rng(0)
    seen = list[np.ndarray]()
    actions = collection.spaces.actions

    def act(observation: np.ndarray, masks: np.ndarray | None) -> np.ndarray:
        seen.append(observation.copy())
        return generator.integers(actions, size=len(observation))

    for _ in range(240):
        collection.take_step(act)
    returns, lengths = collection.end_epoch()
    collection.close()
    replay = collection.replay
    assert replay.settings.clip_rewards == stacked and replay.slots == 450 // 3
    rows = np.arange(replay.sampleable.start, replay.sampleable.stop)
    found, history = replay.take(rows), np.stack(seen)
    steps, places = np.divmod(rows, 3)
    assert np.array_equal(found.observation, history[steps, places])
    goes_on = replay._columns["end"][steps % replay.slots, places] == module.GOES_ON
    assert np.array_equal(found.next_observation[goes_on], history[steps + 1, places][goes_on])
    assert 0 < found.valid.mean() <= 1 and (found.valid.all() == (not stacked))
    assert len(returns) == len(lengths) and (stacked or len(returns) > 10)
    assert goes_on.mean() < 1
