"""What an actor does with what its link says."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from agents.algorithms.impala_acting import ActorCriticActing, make_actor
from agents.distributed.actors import Actor
from agents.distributed.exchange import Exchange
from agents.distributed.local import LocalLink
from agents.distributed.protocol import (
    Ack,
    Join,
    Joined,
    Refused,
    Rejoin,
    Unreachable,
    Unrolls,
    Version,
    Weights,
)
from tests.local_actors import impala, learner

SMALL = {"envs_per_actor": 3, "unroll_length": 5, "batch_size": 6, "epochs": 1}


class Recording(LocalLink):
    """Keeps what was sent and joined; answers: what `send` does instead, one after the other."""

    def __init__(self, exchange: Exchange[Any]) -> None:
        super().__init__(exchange)
        self.sent, self.joined = list[Unrolls](), list[Joined]()
        self.answers: Iterator[Exception | None] = itertools.repeat(None)
        self.keeps_batches = False

    def join(self, request: Join) -> Joined:
        self.joined.append(super().join(request))
        return self.joined[-1]

    def send(self, unrolls: Unrolls) -> list[Ack]:
        answer = next(self.answers)
        if answer is not None:
            raise answer
        self.sent.append(unrolls)
        acks = super().send(unrolls)
        exchange: Any = self._receiver
        while (batch := exchange.take(0)) is not None:
            exchange.give_back(batch)
        return acks


def made(game: str = "cartpole", **given: Any) -> tuple[Exchange[Any], Recording, Actor]:
    resolved = impala(game, **{**SMALL, **given})
    exchange = learner(resolved).receiver(1)
    link = Recording(exchange)
    return exchange, link, make_actor(resolved, run=0, member=4, link=link)


def test_an_actor_stops_when_the_learner_says_so() -> None:
    exchange, link, actor = made()
    turns = actor.act()
    steps = [next(turns) for _ in range(4)]
    assert steps[0] == 0 and steps == sorted(steps) and len(link.sent) == 3
    exchange.end()
    assert list(turns) == [] and len(link.sent) == 4
    assert list(make_actor(impala("cartpole", **SMALL), run=0, member=0, link=link).act()) == []
    actor.close()


@pytest.mark.parametrize("error", [Refused("no", 2), Unreachable("nobody"), KeyboardInterrupt()])
def test_what_a_link_raises_is_let_through(error: BaseException) -> None:
    _, link, actor = made()
    turns = actor.act()
    next(turns)
    link.answers = iter([error])  # type: ignore[list-item]
    with pytest.raises(type(error)):
        next(turns)
    actor.close()


def test_refused_unrolls_end_the_actor_with_3() -> None:
    exchange, _, actor = made()
    exchange._wrong_versions = lambda unrolls: "too good to be true"  # type: ignore[method-assign]
    turns = actor.act()
    next(turns)
    with pytest.raises(Refused, match="too good to be true") as refused:
        next(turns)
    assert refused.value.exit_code == 3
    actor.close()


def test_an_actor_of_other_environments_is_refused_with_2() -> None:
    exchange, _, actor = made()
    exchange.specs = {name: spec for name, spec in exchange.specs.items() if name != "reward"}
    with pytest.raises(Refused) as refused:
        next(actor.act())
    assert refused.value.exit_code == 2


def test_it_waits_for_the_first_weights() -> None:
    _, link, actor = made()
    weights, asked = link.weights, list[Version | None]()

    def late(have: Version | None) -> Weights | None:
        asked.append(have)
        return None if len(asked) < 3 else weights(have)

    link.weights = late  # type: ignore[method-assign]
    turns = actor.act()
    assert [next(turns) for _ in range(3)] == [0, 0, 0] and not link.sent
    assert next(turns) > 0 and asked == [None, None, None, Version(1, 0)]
    actor.close()


def test_the_newest_weights_act_between_two_messages() -> None:
    exchange, link, actor = made()
    turns = actor.act()
    next(turns)
    trained = learner(impala("cartpole", **SMALL))
    trained.exchange = exchange
    for update in range(1, 6):
        next(turns)
        trained.updates = update
        trained._publish()
    versions = [(one.oldest.update, one.newest.update) for one in link.sent]
    assert versions == [(0, 0), (0, 0), (0, 1), (1, 2), (2, 3)]
    actor.close()


@pytest.mark.parametrize("gathers", [True, False])
def test_unrolls_travel_together_or_as_soon_as_they_are_finished(gathers: bool) -> None:
    """In a game that is cut off at any time, so that environments finish theirs at different times."""
    resolved = impala("tests.recorded_game:Recorded", **SMALL)
    link = Recording(learner(resolved).receiver(1))
    actor = Actor(
        resolved, run=0, member=0, link=link, make_acting=ActorCriticActing, gathers=gathers
    )
    next(steps for steps in actor.act() if steps >= 300)
    sizes = {len(one.columns["reward"]) for one in link.sent}
    assert sizes == {3} if gathers else 1 in sizes
    actor.close()


def test_no_unroll_is_left_behind_where_more_end_in_a_step_than_a_message_may_hold() -> None:
    """Of one step each: a truncated episode's final observation makes another one."""
    _, link, actor = made("pendulum", unroll_length=1, envs_per_actor=2, batch_size=2)
    steps = next(steps for steps in actor.act() if steps >= 2 * 650)
    sent = [len(one.columns["reward"]) for one in link.sent]
    assert set(sent) == {2} and sum(sent) > steps, "three times the two were truncated"
    actor.close()


def test_after_another_learner_took_over_everything_begins_anew() -> None:
    exchange, link, actor = made("pendulum", unroll_length=7, envs_per_actor=2)
    turns = actor.act()
    for _ in range(4):
        next(turns)
    before = len(link.sent)
    later = learner(impala("pendulum", **{**SMALL, "unroll_length": 7, "envs_per_actor": 2}))
    later.load_state_dict({**later.state_dict(), "exchange": exchange.state_dict()})
    link._receiver = later.receiver(2)
    for _ in range(3):
        next(turns)
    assert [(one.generation, one.number) for one in link.joined] == [(1, 0), (2, 1)]
    fresh = link.sent[before + 1 :]  # one more went to the new learner before it was known
    assert link.sent[before].oldest.generation == 1
    assert all(one.oldest.generation == 2 for one in fresh)
    assert fresh[0].columns["begins"][:, 0].all()
    seen = [one.columns["observation"][:, 0] for one in (link.sent[0], fresh[0])]
    assert not np.isin(seen[0], seen[1]).any()  # no episode is seen twice
    queued = [one.counters()["queued"] for one in (exchange, later.exchange)]
    assert queued[1] - queued[0] == sum(len(one.columns["reward"]) for one in fresh)
    actor.close()


def test_no_two_actors_see_or_do_the_same() -> None:
    exchange, first, actor = made(envs_per_actor=4)
    second = Recording(exchange)
    other = make_actor(
        impala("cartpole", **{**SMALL, "envs_per_actor": 4}), run=0, member=4, link=second
    )
    for one in (actor, other):
        turns = one.act()
        for _ in range(3):
            next(turns)
        one.close()
    seen = [link.sent[0].columns["observation"][:, 0, 0] for link in (first, second)]
    assert len(np.unique(np.concatenate(seen))) == 8
    actions = [np.concatenate([m.columns["action"] for m in link.sent]) for link in (first, second)]
    size = min(map(len, actions))
    assert (actions[0][:size] != actions[1][:size]).any()


@pytest.mark.parametrize("game", ["cartpole", "tests.own_games:ConstantReward"])
def test_no_episode_is_lost(game: str) -> None:
    _, link, actor = made(game, unroll_length=3)
    turns = actor.act()
    steps = [next(turns) for _ in range(120)][-1]
    lengths = [length for message in link.sent for length in message.lengths]
    returns = [one for message in link.sent for one in message.returns]
    assert len(lengths) > 5 and returns == lengths  # one point for each step
    assert sum(lengths) <= steps
    learnt = sum(int(m.columns["valid"][:, :-1].sum()) for m in link.sent)
    assert steps - learnt <= 3 * 4  # what is in unfinished unrolls
    actor.close()


def test_episodes_that_ended_before_another_learner_came_are_sent_to_it() -> None:
    _, link, actor = made("tests.own_games:Bandit")
    link.answers = itertools.chain([None, Rejoin()], itertools.repeat(None))
    turns = actor.act()
    steps = [next(turns) for _ in range(6)][-1]
    assert len(link.joined) == 2 and len(link.sent) == 4
    assert sum(len(message.returns) for message in link.sent) == steps  # each step ends one
    actor.close()
