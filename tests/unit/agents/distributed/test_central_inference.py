"""The learner acts for its actors: what it answers, what it remembers, and what it refuses."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from agents.algorithms.impala import IMPALATrainer
from agents.algorithms.impala_acting import ActorCriticActing
from agents.distributed.central import CentralInference, Stream
from agents.distributed.observations import Actions, Observations
from agents.distributed.protocol import Columns, Join, Refused, Unrolls, Version, Weights
from agents.distributed.queues import Batch, Placed
from agents.distributed.stepping import Play, Stepping
from agents.distributed.weights import weights_of
from agents.environments.training import TrainingEnvironments
from agents.networks.action_distributions import NoiseRows
from tests.local_actors import impala, learner
from tests.waiting import soon

SMALL = {
    "envs_per_actor": 3, "unroll_length": 5, "batch_size": 6, "hidden_sizes": 5, "epochs": 1,
    "inference": "learner",
}  # fmt: skip
GAMES = {
    "cartpole": {"normalise_observations": True}, "pendulum": {},
    "tests.lab_environments:Locks": {}, "tests.own_games:ConstantReward": {},
}  # fmt: skip


class Actor:
    """One whose environments are stepped here, a group at a time."""

    def __init__(
        self, central: CentralInference, resolved: Any, incarnation: int, in_halves: bool
    ) -> None:
        request = Join(
            incarnation=incarnation, actor=0, environments=3, identity=resolved.identity_hash
        )
        self.central, self.number = central, central.join(request).number
        self.environments = TrainingEnvironments(resolved, 0, self.number, in_halves=in_halves)
        self.stepping = Stepping(self.environments)
        self.answers = queue.SimpleQueue[Actions]()
        self.stream: Stream = central.open(incarnation, self.answers.put)

    def observe(self, group: int) -> Observations:
        shown = self.stepping.show(group)
        self.central.observe(self.stream, shown)
        return shown

    def take(self) -> Actions:
        answer = self.answers.get(timeout=20)
        assert answer.actions is not None
        self.stepping.send(answer.group, answer.actions)
        return answer

    def step(self) -> None:
        """Each group by itself, so that no batch has both."""
        for group in range(len(self.environments.groups)):
            self.observe(group)
            self.take()


class Central:
    """A trainer that acts, and what it makes of its actors' rows; learns nothing by itself."""

    def __init__(self, game: str = "cartpole", **given: Any) -> None:
        self.resolved = impala(game, **{**SMALL, **GAMES.get(game, {}), **given})
        self.trainer: IMPALATrainer = learner(self.resolved)
        self.trainer.network.policy_weight.data *= 100  # what is seen and remembered matters
        receiver = self.trainer.receiver(1)
        assert isinstance(receiver, CentralInference)
        self.central, self.exchange = receiver, self.trainer.exchange
        self.incarnations = itertools.count(7)
        self.actors = list[Actor]()

    def collect(self) -> list[Unrolls]:
        """All unrolls from now on, in place of the queue."""
        collected = list[Unrolls]()

        def place(unrolls: Unrolls) -> Placed:
            collected.append(unrolls)
            return Placed(0, 0, 0)

        self.exchange.place = place  # type: ignore[method-assign]
        return collected

    def actor(self, in_halves: bool = True) -> Actor:
        number = next(self.incarnations)
        self.actors.append(Actor(self.central, self.resolved, number, in_halves))
        return self.actors[-1]

    def publish(self) -> dict[str, torch.Tensor]:
        """Other weights; returns them."""
        with torch.no_grad():
            for parameter in self.trainer.network.parameters():
                parameter += 0.3 * torch.randn_like(parameter)
        self.trainer.updates += 1
        self.trainer._publish()
        return {name: one.clone() for name, one in self.trainer.network.state_dict().items()}

    def close(self) -> None:
        self.trainer.close()
        for actor in self.actors:
            actor.environments.close()


Make = Callable[..., Central]


@pytest.fixture
def make() -> Iterator[Make]:
    made = list[Central]()

    def one(*arguments: Any, **given: Any) -> Central:
        made.append(Central(*arguments, **given))
        return made[-1]

    yield one
    for central in made:
        central.close()


def joined(unrolls: list[Unrolls]) -> Columns:
    names = unrolls[0].columns
    return {name: np.concatenate([one.columns[name] for one in unrolls]) for name in names}


@pytest.mark.parametrize("in_halves", [True, False])
@pytest.mark.parametrize("lstm_size", [0, 6])
@pytest.mark.parametrize("game", GAMES)
def test_unrolls_are_those_that_an_actor_s_own_policy_would_make(
    make: Make, game: str, lstm_size: int, in_halves: bool
) -> None:
    one = make(game, lstm_size=lstm_size)
    central, own = one.collect(), list[Unrolls]()
    actor = one.actor(in_halves)
    environments = TrainingEnvironments(one.resolved, 0, actor.number, in_halves=in_halves)
    acting = ActorCriticActing(one.resolved, environments, run=0, number=actor.number)
    arrays = weights_of(one.trainer.network, one.trainer.observation_normaliser)
    acting.load(Weights(version=Version(1, 0), arrays=arrays))
    play = Play(environments, acting, 5)
    for _ in range(210 if game == "pendulum" else 60):
        actor.step()
        play.step()
        unrolls = play.take(1)
        own += [unrolls] if unrolls is not None else []
    environments.close()
    expected, found = joined(own), joined(central)
    assert expected.keys() == found.keys() and len(expected["reward"]) > 25
    for name, column in expected.items():
        np.testing.assert_array_equal(found[name], column, err_msg=name)
    assert expected["begins"][:, 1:].any(), "nothing ended"


def largest_log_ratio(one: Central, unrolls: list[Unrolls]) -> float:
    """|log π/μ| as the learner finds it, by the same weights."""
    columns = {name: column[:6] for name, column in joined(unrolls).items()}
    rows = one.trainer._rows(Batch(columns, np.zeros(6, np.int64)).columns)
    return float(one.trainer._loss(*rows)[1].abs().max())


@pytest.mark.parametrize("shared", [False, True])
def test_what_is_remembered_belongs_to_one_environment(make: Make, shared: bool) -> None:
    """Two actors in the same batches; shared: what would be without."""
    one = make("pendulum", lstm_size=6)
    unrolls, actors = one.collect(), [one.actor(), one.actor()]
    if shared:
        actors[1].stream.memory.parts = actors[0].stream.memory.parts
    for _ in range(12):
        for group in (0, 1):
            for actor in actors:
                actor.observe(group)
            for actor in actors:
                actor.take()
    ratio = max(largest_log_ratio(one, unrolls[n:]) for n in range(len(unrolls) - 6))
    assert (ratio > 1e-3) if shared else (ratio < 1e-4)


def test_every_row_has_the_probability_of_the_version_that_is_recorded(make: Make) -> None:
    one = make(unroll_length=7, normalise_observations=False)
    one.collect()
    actor, recorded = one.actor(), list[Columns]()
    actor.step()
    assembler = actor.stream.trajectories._assembler
    take = assembler.take

    def taken(least: int = 1) -> Columns | None:
        columns = take(least)
        recorded.extend([dict(columns)] if columns is not None else [])
        return columns

    assembler.take = taken  # type: ignore[method-assign]
    versions = [{name: x.clone() for name, x in one.trainer.network.state_dict().items()}]
    for _ in range(30):
        actor.step()
        versions.append(one.publish())
    updates = np.concatenate([columns["update"] for columns in recorded])
    assert (np.ptp(updates, axis=1) > 3).all()  # an unroll spans several
    wrong = list[float]()
    for columns in recorded:
        valid = columns["valid"]
        for observation, action, log_mu, update in zip(
            *(
                columns[name][valid]
                for name in ("observation", "action", "log_probability", "update")
            ),
            strict=True,
        ):
            found = list[float]()
            for number in (int(update), len(versions) - 1):
                one.trainer.network.load_state_dict(versions[number])
                encoded = one.trainer.network.encode(torch.from_numpy(observation[None]))
                with torch.no_grad():
                    logits = one.trainer.network(encoded)[0]
                found.append(float(logits.log_softmax(-1)[0, action]))
            assert found[0] == pytest.approx(log_mu, abs=1e-4)
            wrong.append(abs(found[1] - log_mu))
    assert max(wrong) > 0.1


def test_weights_change_between_two_batches_and_never_inside_one(make: Make) -> None:
    one = make()
    actors, events = [one.actor(), one.actor()], list[str]()
    acting: Any = one.trainer.acting
    act, load = acting.act, acting.load

    def slow(turns: Any) -> Any:
        events.append(f"begins by {one.central._newest.update}")
        one.publish()  # while the batch is on its way
        acted = act(turns)
        events.append("ends")
        return acted

    acting.act = slow
    acting.load = lambda weights: (events.append("load"), load(weights))
    for _ in range(3):
        for actor in actors:
            actor.observe(0)
        for actor in actors:
            actor.take()
            assert actor.stream.trajectories._asked[0].update < one.trainer.updates
    text = " ".join(events)
    assert text.startswith("begins by 0 ends load begins by 1 ends load begins by 2 ends")


def test_a_dead_stream_stalls_nobody(make: Make) -> None:
    one = make()
    living, dead = one.actor(), one.actor()
    batcher = one.central._batcher
    batcher.took(10**6)
    batcher.took = lambda seconds: None  # type: ignore[method-assign]
    living.observe(0)
    with pytest.raises(queue.Empty):
        living.answers.get(timeout=0.1)  # it is waited for the other one
    one.central.leave(dead.stream)
    living.take()
    living.step()


def is_held_back(one: Central, actor: Actor) -> bool:
    """By a queue that holds two batches of 3: the 17th row of the first group ends a third unroll."""
    return actor.stream in one.central._batcher._held and actor.stream.tick == 33


def test_actions_are_withheld_while_the_queue_is_full(make: Make) -> None:
    one = make(batch_size=3)
    actor, other, steps = one.actor(), one.actor(), list[int]()

    def act() -> None:
        for number in range(40):
            actor.step()
            steps.append(number)

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    soon(lambda: is_held_back(one, actor))
    before = len(steps)
    for group in (0, 1):  # an actor whose unrolls are not full is answered as ever
        other.observe(group)
        other.take()
    thread.join(0.1)
    assert len(steps) == before < 20 and is_held_back(one, actor)
    while len(steps) < 40 and thread.is_alive():
        batch = one.exchange.take(0.1)
        if batch is not None:
            one.exchange.give_back(batch)
    thread.join(20)
    assert len(steps) == 40 and one.exchange.counters()["actors_waited_s"] > 0.1


def test_the_end_is_told_also_to_those_who_are_held_back(make: Make) -> None:
    one = make(batch_size=3)
    actor = one.actor()
    seen = list[Actions]()

    def act() -> None:
        with pytest.raises(AssertionError):
            while True:
                actor.step()

    actor.stream.answer = lambda actions: (seen.append(actions), actor.answers.put(actions))
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    soon(lambda: is_held_back(one, actor))
    one.exchange.end()
    thread.join(20)
    assert seen[-1].stop and seen[-1].actions is None and not thread.is_alive()


def changed(shown: Observations, **columns: Any) -> Observations:
    return replace(shown, columns=shown.columns | columns)


BAD: dict[str, Callable[[Observations], Observations]] = {
    "a NaN": lambda s: changed(s, observation=np.full_like(s.columns["observation"], np.nan)),
    "an infinite reward": lambda s: changed(s, reward=np.full(2, np.inf, np.float32)),
    "another shape": lambda s: changed(s, observation=s.columns["observation"][:, :3]),
    "another type": lambda s: changed(s, reward=np.zeros(2)),
    "another count": lambda s: replace(s, columns={n: c[:1] for n, c in s.columns.items()}),
    "a missing column": lambda s: replace(s, columns={"begins": s.columns["begins"]}),
    "no arrays": lambda s: changed(s, reward=3),
    "no such group": lambda s: replace(s, group=2),
    "a tick that was": lambda s: replace(s, tick=1),
    "a group that waits": lambda s: replace(s, group=1, tick=s.tick + 1),
    "a truncation without its end": lambda s: changed(s, truncated=np.ones(2, np.bool_)),
    "a final observation too many": lambda s: replace(s, final=s.columns["observation"][:1]),
    "a final NaN": lambda s: replace(
        changed(s, begins=np.ones(2, np.bool_), truncated=np.ones(2, np.bool_)),
        final=np.full_like(s.columns["observation"], np.nan),
    ),
    "a return that is none": lambda s: replace(s, returns=[np.nan], lengths=[1]),
    "more episodes than environments": lambda s: replace(s, returns=[1.0] * 3, lengths=[1] * 3),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_be_learnt_from_is_refused_before_it_touches_anything(
    make: Make, what: str
) -> None:
    one = make()
    actor = one.actor()
    actor.step()
    shown = actor.stepping.show(0)
    if what == "a group that waits":
        actor.stream.acting.add(1)
    with pytest.raises(Refused) as refused:
        one.central.observe(actor.stream, BAD[what](shown))
    assert refused.value.exit_code == 3 and "\n" not in str(refused.value)
    counters = one.exchange.counters()
    assert counters["refused"] == 1 and counters["episodes"] == 0
    assert 0 in actor.stream.trajectories._asked and actor.stream.tick == 2
    one.central.observe(actor.stream, shown)
    actor.take()


def test_a_mask_that_allows_nothing_is_refused(make: Make) -> None:
    one = make("tests.lab_environments:Locks")
    actor = one.actor()
    shown = actor.stepping.show(0)
    nothing = np.zeros_like(shown.columns["mask"])
    with pytest.raises(Refused, match="allows no action"):
        one.central.observe(actor.stream, changed(shown, mask=nothing))


def test_a_message_that_comes_again_tells_its_episodes_once(make: Make) -> None:
    """Over another stream, after the first was lost: that one's rows and memory are gone."""
    one = make(lstm_size=4)
    one.collect()
    actor = one.actor()
    for _ in range(3):
        actor.step()
    shown = replace(actor.stepping.show(0), returns=[5.0], lengths=[9])
    one.central.observe(actor.stream, shown)
    actor.take()
    memory = actor.stream.memory
    assert memory.columns(slice(None))["state0"].any()
    one.central.leave(actor.stream)
    again = one.central.open(7, actor.answers.put)
    assert not again.memory.columns(slice(None))["state0"].any()
    assert again.trajectories is None
    first = one.trainer.acting.begin(one.central._count, one.exchange.number(7))
    assert not np.array_equal(again.memory.noise.take(4), first.noise.take(4))
    one.central.observe(again, shown)
    actor.take()
    assert one.exchange.ended_episodes() == ([5.0], [9])
    assert one.exchange.counters()["duplicates"] == 1


def test_what_ends_the_inference_ends_the_training(make: Make) -> None:
    one = make()
    one.trainer.acting.act = lambda turns: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    one.actor().observe(0)
    one.trainer.wait_s = 0.01
    with pytest.raises(ZeroDivisionError):
        for _ in range(1000):
            next(one.trainer.train())


@pytest.mark.parametrize("in_halves", [True, False])
def test_groups_stay_what_an_actor_s_first_message_makes_them(make: Make, in_halves: bool) -> None:
    one = make()
    actor = one.actor(in_halves)
    actor.step()
    other = one.actor(not in_halves)
    shown = replace(other.stepping.show(0), tick=99)
    with pytest.raises(Refused, match="environments"):
        one.central.observe(actor.stream, shown)
    actor.step()


@pytest.mark.parametrize("lstm_size", [0, 4])
def test_a_batch_that_is_filled_up_answers_alike(make: Make, lstm_size: int) -> None:
    one = make("tests.lab_environments:Locks", lstm_size=lstm_size)
    one.collect()
    actor = one.actor()
    shown, policy = actor.stepping.show(0), one.trainer.acting
    sizes, found = list[int](), list[np.ndarray]()
    network = policy.network.acting()

    def seen(encoded: Any, *more: Any) -> Any:
        sizes.append(len(encoded))
        return network(encoded, *more)

    policy.network_now, policy.needs_torch = seen, True  # what is torch's is padded
    for pads in (False, True):
        policy.pads = pads
        streams = [one.central.open(7, print) for _ in range(3)]
        for stream in streams:
            stream.memory.noise = NoiseRows(policy.actions, torch.Generator().manual_seed(3))
        for stream in streams:
            one.central._begun(stream, len(shown.columns["begins"]))
        turns = [one.central._turn(stream, shown) for stream in streams]
        acted = policy.act(turns)
        assert [len(each.actions) for each in acted] == [2, 2, 2]
        found.append(np.concatenate([each.rows["log_probability"] for each in acted]))
    assert sizes == [6, 8]
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)
