"""What else has a device: learners that learn together, inference for actors, workers of self-play."""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from agents.distributed.local import LocalLink
from agents.distributed.observations import Actions
from agents.distributed.protocol import PeersLost, Receiver, Unreachable
from agents.load import make_actor
from agents.networks.board_games import evaluator
from agents.selfplay.roles import Published
from agents.selfplay.worker import Worker
from agents.transport.group import Group, Meeting, gpu_identity, take_part
from tests.gpu.trainings import CASES, Case, made
from tests.peers_in_threads import PeersInThreads, Sums, at_once
from tests.unit.agents.algorithms.test_impala_rows import batch_of, played
from tests.unit.agents.distributed.test_learning_together import part_of

pytestmark = pytest.mark.gpu
HERE = "127.0.0.1"
PICTURE = CASES["impala, images"].game
CENTRAL = {
    "vectors": Case("impala", "cartpole", {"inference": "learner"}),
    "a memory": Case("impala", "cartpole", {"inference": "learner", "lstm_size": "16"}),
    "images": Case("impala", PICTURE, {"inference": "learner"}),
    "images, a memory": Case("impala", PICTURE, {"inference": "learner", "lstm_size": "16"}),
}


class Until(LocalLink):
    """To a learner in another thread, until that has ended."""

    def __init__(self, receiver: Receiver, gone: threading.Event) -> None:
        super().__init__(receiver)
        self.gone = gone

    def actions(self) -> Actions:
        while not self.gone.is_set():
            with contextlib.suppress(queue.Empty):
                return self._answers.get(timeout=0.05)
        raise Unreachable


@pytest.mark.parametrize("name", CENTRAL)
def test_the_learner_acts_for_its_actors(name: str, device: str) -> None:
    resolved = CENTRAL[name].resolved()
    learner, gone = made(resolved, device), threading.Event()
    learner.wait_s = 1.0
    receiver = learner.receiver(1)

    def act(member: int) -> None:
        actor = make_actor(resolved, run=0, member=member, link=Until(receiver, gone))
        with contextlib.closing(actor), contextlib.suppress(Unreachable):
            for _ in actor.act():
                pass

    threads = [threading.Thread(target=act, args=(member,)) for member in (0, 1)]
    for thread in threads:
        thread.start()
    epochs = [one for one in learner.train() if one is not None]
    gone.set()
    learner.close()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert [one.epoch for one in epochs] == [1, 2]
    # log μ is that of the weights that acted: at a lag of nearly none the ratio is nearly 1
    assert epochs[0].metrics["ratio_mean"] == pytest.approx(1, abs=0.05)


def test_two_learners_make_the_update_of_one(device: str) -> None:
    given = {"batch_size": "8", "envs_per_actor": "2", "actors": "2"}
    alone = made(Case("impala", "cartpole", given).resolved(), device)
    shared = Case("impala", "cartpole", {**given, "learners": "2"}).resolved()
    both = [made(shared, device) for _ in range(2)]
    unrolls = played(alone.resolved, alone, 400)
    batches = [batch_of(alone, unrolls) for _ in range(3)]
    sums = Sums(2)

    def learning(number: int) -> Callable[[], None]:
        def learn() -> None:
            both[number].learn_with(PeersInThreads(sums, number))
            for batch in batches:
                both[number]._learn(part_of(batch, number, 2))

        return learn

    assert at_once([learning(number) for number in range(2)]) == [None, None]
    for batch in batches:
        alone._learn(batch)
    pairs = zip(*(one.network.parameters() for one in (alone, *both)), strict=True)
    for whole, first, second in pairs:
        assert torch.equal(first, second)
        assert torch.allclose(whole, first, atol=1e-5)


def gathered(count: int) -> list[Group]:
    """A group of learners in threads."""
    meeting = Meeting(HERE, 1)

    def further(number: int) -> Callable[[], Any]:
        return lambda: take_part(
            meeting.place, number, count, host=HERE, longest_s=60, wait=lambda: None
        )

    groups: list[Group] = at_once(
        [lambda: meeting.gather(count, 60, lambda: None), *map(further, range(1, count))]
    )
    return groups


def test_learners_that_share_a_device_add_up_by_way_of_the_cpu(device: str) -> None:
    groups = gathered(2)
    values = [torch.full((1000,), 10.0**one.number, device=device) for one in groups]
    at_once([lambda one=one: one.sum(values[one.number]) for one in groups])
    assert not any(one.has_gpus for one in groups)
    assert all(one.tolist() == [11.0] * 1000 for one in values)
    groups[1].close()
    with pytest.raises(PeersLost):
        groups[0].sum(values[0])
    groups[0].close()


def test_a_learner_with_a_gpu_of_its_own_adds_up_there(device: str) -> None:
    """One learner is all that one GPU allows; NCCL is the same."""
    if device != "cuda":
        pytest.skip("NCCL needs a GPU")
    (group,) = gathered(1)
    values = torch.arange(1000.0, device=device)
    for _ in range(3):
        group.sum(values)
    assert group.has_gpus and values.tolist() == list(range(1000))
    group.close()


def test_no_two_gpus_have_one_identity(device: str) -> None:
    assert gpu_identity(torch.device("cpu")) == 0
    if device == "cuda":
        assert 0 < gpu_identity(torch.device("cuda")) < 2**63


def test_a_board_s_network_answers_as_on_the_processor(device: str) -> None:
    trainer = made(CASES["alphazero"].resolved(), "cpu")
    game = trainer.game
    positions = game.play(game.start(3), np.array([0, 4, 8]))
    asked = game.encode(positions), game.legal(positions)
    here, there = (
        evaluator(trainer.average.to(where))(*asked) for where in (torch.device("cpu"), device)
    )
    for mine, theirs in zip(here, there, strict=True):
        assert theirs.dtype == np.float32 and np.allclose(mine, theirs, atol=1e-4)


def test_a_worker_plays_where_its_network_is(device: str) -> None:
    case = CASES["alphazero"]
    worker = Worker(case.resolved(), run=0, member=0, attempt=1)
    worker.device = device
    start = made(case.resolved(), "cpu").playing()
    networks = itertools.chain([Published(0, start)], itertools.repeat(None))
    playing = worker.play(lambda: next(networks))
    games = next(one for one in playing if one)
    playing.close()
    assert all(len(game.rows["value"]) >= 5 for game in games), "tic-tac-toe takes five moves"
