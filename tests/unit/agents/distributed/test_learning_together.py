"""Several learners make the update that one would make of all their batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from agents.algorithms.impala import IMPALATrainer
from agents.distributed import joint_learning as page
from agents.distributed.joint_learning import gathered, of_the_first
from agents.distributed.protocol import Join, PeersLost
from agents.distributed.queues import Batch
from config.errors import Diverged
from tests.local_actors import impala, learner
from tests.peers_in_threads import PeersInThreads, Sums, Unsummed, at_once
from tests.unit.agents.algorithms.test_impala_rows import batch_of, played

SMALL = {
    "envs_per_actor": 3, "unroll_length": 5, "batch_size": 6, "epochs": 3, "epoch_updates": 2,
    "learning_rate": 0.002,
}  # fmt: skip
UPDATES = 4
WEIGHTS = "policy_weight"


def experiment(learners: int, **given: Any) -> IMPALATrainer:
    return learner(impala("cartpole", **{**SMALL, "actors": 2, "learners": learners, **given}))


def batches(trainer: IMPALATrainer, count: int = UPDATES) -> list[Batch]:
    """Of all learners together; the first half of each has fewer valid rows than the second."""
    unrolls = played(trainer.resolved, trainer, 400)
    found = [batch_of(trainer, unrolls) for _ in range(count)]
    for number, batch in enumerate(found):
        batch.columns["valid"][: 3 - number % 2, 1:4] = False
    return found


def part_of(batch: Batch, number: int, count: int) -> Batch:
    size = len(batch.oldest) // count
    own = slice(number * size, (number + 1) * size)
    return Batch({n: one[own].copy() for n, one in batch.columns.items()}, batch.oldest[own])


def together(
    trainers: list[IMPALATrainer], prepared: list[Batch], **more: Any
) -> tuple[Sums, list[Any]]:
    """All learn from their parts of the batches; what each of them raised."""
    kind, sums = more.pop("kind", PeersInThreads), Sums(len(trainers))

    def learning(number: int) -> Callable[[], None]:
        def learn() -> None:
            lost_after = more.get("lost_after") if number == 1 else None
            trainers[number].learn_with(kind(sums, number, lost_after))
            for batch in prepared:
                trainers[number]._learn(part_of(batch, number, sums.count))

        return learn

    return sums, at_once([learning(number) for number in range(len(trainers))])


def difference(one: IMPALATrainer, other: IMPALATrainer) -> float:
    """The largest, over all weights and statistics."""
    pairs = list(zip(one.network.parameters(), other.network.parameters(), strict=True))
    largest = max(float((a - b).detach().abs().max()) for a, b in pairs)
    mine, theirs = one.observation_normaliser, other.observation_normaliser
    if mine is not None and theirs is not None:
        largest = max(largest, abs(mine.statistics.count - theirs.statistics.count))
        largest = max(largest, float(np.abs(mine.mean - theirs.mean).max()))
    return largest


@pytest.mark.parametrize(
    "given",
    [{}, {"normalise_observations": True}, {"lstm_size": 4}, {"optimiser": "rmsprop"}],
)
def test_two_learners_are_one_with_the_joined_batch(given: dict[str, Any]) -> None:
    alone = experiment(1, **given)
    prepared = batches(alone)
    pair = [experiment(2, **given), experiment(2, seed=9, **given)]
    untrained = experiment(1, **given)
    for batch in prepared:
        alone._learn(part_of(batch, 0, 1))
    assert together(pair, prepared)[1] == [None, None]
    assert difference(*pair) == 0, "to the last bit"
    assert difference(alone, pair[0]) < 1e-6
    assert difference(alone, untrained) > 1e-3
    assert [(one.updates, one.step) for one in pair] == [(alone.updates, alone.step)] * 2
    assert [one.measured[-1][5] for one in pair] == pytest.approx([alone.measured[-1][5]] * 2)


def test_without_the_sums_each_learns_something_else() -> None:
    alone = experiment(1)
    prepared = batches(alone)
    pair = [experiment(2), experiment(2)]
    for batch in prepared:
        alone._learn(part_of(batch, 0, 1))
    together(pair, prepared, kind=Unsummed)
    assert difference(*pair) > 1e-3
    assert difference(alone, pair[0]) > 1e-3


def test_a_mean_of_means_would_be_another_update(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = experiment(1)
    prepared = batches(alone)
    for batch in prepared:
        alone._learn(part_of(batch, 0, 1))
    exact = page.average_gradients
    monkeypatch.setattr(
        page, "average_gradients", lambda p, w, loss, rows, steps: exact(p, w, loss, 1, steps)
    )
    pair = [experiment(2), experiment(2)]
    together(pair, prepared)
    assert difference(alone, pair[0]) > 1e-4


def test_a_learner_that_comes_takes_everything_from_the_first() -> None:
    first, later = (experiment(2, seed=seed, normalise_observations=True) for seed in (0, 5))
    for batch in batches(experiment(1, normalise_observations=True)):
        first._learn(part_of(batch, 0, 2))
    first.epoch = 1
    assert difference(first, later) > 1e-2
    assert together([first, later], [])[1] == [None, None]
    assert (later.updates, later.step, later.epoch) == (first.updates, first.step, 1)
    assert difference(first, later) == 0
    mine, theirs = first.state_dict(), later.state_dict()
    assert str(mine["optimiser"]) == str(theirs["optimiser"])
    assert theirs["interface"] == mine["interface"] and theirs["format"] == mine["format"]


@pytest.mark.parametrize("lost_after", [4, 5])
def test_an_update_that_one_did_not_bring_its_share_to_is_not_made(lost_after: int) -> None:
    """The first sum is the meeting, then each update adds up statistics, then gradients."""
    pair = [experiment(2, normalise_observations=True) for _ in range(2)]
    prepared = batches(experiment(1))
    whole = experiment(1, normalise_observations=True)
    for batch in prepared[: (lost_after - 1) // 2]:
        whole._learn(part_of(batch, 0, 1))
    _, ended = together(pair, prepared, lost_after=lost_after)
    assert [type(one) for one in ended] == [PeersLost, PeersLost]
    for one in pair:
        assert one.updates == whole.updates < UPDATES
        assert difference(one, whole) < 1e-6


def test_what_one_cannot_learn_from_ends_all_of_them() -> None:
    pair = [experiment(2), experiment(2)]
    prepared = batches(experiment(1), 2)
    prepared[1].columns["reward"][3:] = 3e38  # of the second; finite, its square is not
    _, ended = together(pair, prepared)
    assert [type(one) for one in ended] == [Diverged, Diverged]
    assert [one.updates for one in pair] == [1, 1]
    assert difference(*pair) == 0


def join(trainer: IMPALATrainer, incarnation: int) -> int:
    identity = trainer.resolved.identity_hash
    request = Join(incarnation=incarnation, actor=0, environments=3, identity=identity)
    return trainer.exchange.join(request).number


def epochs_of(pair: list[IMPALATrainer], sums: Sums, **more: Any) -> list[Any]:
    """The progress of an epoch whose updates are done."""

    def ending(number: int) -> Callable[[], Any]:
        lost_after = more.get("lost_after") if number == 1 else None
        pair[number].peers = PeersInThreads(sums, number, lost_after)
        return pair[number]._progress

    return at_once([ending(0), ending(1)])


def heard(trainer: IMPALATrainer, returns: list[float]) -> None:
    trainer.exchange.hear(1, 100 + len(returns), returns, [9] * len(returns))


def test_the_first_learner_records_the_episodes_of_all() -> None:
    pair = [experiment(2), experiment(2)]
    prepared = batches(experiment(1), 2)
    together(pair, prepared)
    heard(pair[0], [1.0, 2.0])
    heard(pair[1], [3.0])
    own = [np.array(one.measured) for one in pair]
    first, second = epochs_of(pair, Sums(2))
    assert first.returns == [1.0, 2.0, 3.0] and first.lengths == [9, 9, 9]
    assert first.metrics["policy_loss"] == pytest.approx(np.concatenate(own)[:, 0].mean())
    assert (first.epoch, first.step) == (1, 2 * 6 * 5) == (second.epoch, second.step)
    assert pair[0].measured == [] and pair[0].exchange.ended_episodes() == ([], [])


@pytest.mark.parametrize("lost_after", range(5))
def test_an_epoch_that_cannot_be_recorded_is_recorded_later(lost_after: int) -> None:
    pair = [experiment(2), experiment(2)]
    together(pair, batches(experiment(1), 2))
    heard(pair[0], [1.0, 2.0])
    ended = epochs_of(pair, Sums(2), lost_after=lost_after)
    assert [type(one) for one in ended] == [PeersLost, PeersLost]
    assert pair[0].epoch == 0 and len(pair[0].measured) == 2
    first, _ = epochs_of(pair, Sums(2))
    assert first.returns == [1.0, 2.0] and first.epoch == 1 == pair[0].epoch


def test_a_saved_epoch_is_recorded_with_a_learner_that_has_measured_nothing() -> None:
    pair = [experiment(2), experiment(2)]
    together(pair, batches(experiment(1), 2))
    pair[1].measured = []
    first, _ = epochs_of(pair, Sums(2))
    assert np.isfinite(first.metrics["policy_loss"])


def test_no_two_actors_have_one_number_whichever_learner_they_play_for() -> None:
    pair = [experiment(2), experiment(2)]
    together(pair, batches(experiment(1), 2))
    numbers = [join(pair[0], 1), join(pair[1], 2), join(pair[1], 3)]
    assert numbers == [0, 1, 3]
    epochs_of(pair, Sums(2))
    state = pair[0].state_dict()
    again = [experiment(2), experiment(2)]  # the next learners, of which one was told
    again[0].load_state_dict(state)
    together(again, [])
    numbers += [join(one, 10 + number) for number, one in enumerate(again)]
    assert len(set(numbers)) == len(numbers) and max(numbers) < 8


def test_rows_are_gathered_and_states_are_handed_over_to_the_last_bit() -> None:
    sums = Sums(3)
    peers = [PeersInThreads(sums, number) for number in range(3)]
    rows = at_once([lambda one=one: gathered(one, [one.number, 0.5]) for one in peers])
    assert all(found.tolist() == [[0, 0.5], [1, 0.5], [2, 0.5]] for found in rows)

    def state(number: int) -> dict[str, Any]:
        weights = torch.randn(2, 3, generator=torch.Generator().manual_seed(number)).numpy()
        return {"w": weights, "in": {"count": 7 + number, "share": -0.0 * number, "none": {}}}

    states = at_once([lambda one=one: of_the_first(one, state(one.number)) for one in peers])
    for found in states:
        assert found["w"].tobytes() == state(0)["w"].tobytes()
        assert found["in"] == {"count": 7, "share": 0.0, "none": {}}
        assert type(found["in"]["count"]) is int
