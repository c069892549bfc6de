"""IMPALA where the answer is known, with actors in this process."""

from __future__ import annotations

import itertools
import json
import threading
from typing import Any

import numpy as np
import pytest
import torch

from agents.distributed.local import LocalLink
from agents.distributed.protocol import Ack, Unrolls
from agents.distributed.queues import Batch
from agents.distributed.weights import weights_of
from agents.evaluation.episodes import evaluate
from agents.interfaces import Progress
from agents.load import load_policy
from config.errors import BadInput, Diverged
from config.resolve import resolve
from tests.local_actors import actors_of, impala, in_turn, late, learner
from tests.unit.agents.algorithms.test_impala_rows import batch_of, played

SMALL = {"envs_per_actor": 3, "unroll_length": 5, "batch_size": 6, "epochs": 3, "epoch_updates": 2}


def test_a_bandit_is_solved() -> None:
    given = {"envs_per_actor": 8, "unroll_length": 5, "batch_size": 8, "epochs": 10}
    progress = list(in_turn(learner(impala("tests.own_games:Bandit", learning_rate=0.01, **given))))
    assert np.mean(progress[0].returns) < 0.8
    assert np.mean(progress[-1].returns) > 0.95


def value_of(merged: bool) -> float:
    options = {"env_options": f"merged={str(merged).lower()}"}
    resolved = impala(
        "tests.own_games:ConstantReward", envs_per_actor=4, batch_size=4, epochs=15, discount=0.9,
        learning_rate=0.02, **options,
    )  # fmt: skip
    trainer = learner(resolved)
    list(in_turn(trainer))
    with torch.no_grad():
        return float(trainer.network(torch.zeros(1, 1))[1])


def test_a_truncated_episode_is_worth_what_would_have_followed() -> None:
    assert value_of(merged=False) == pytest.approx(10, abs=0.2)
    assert value_of(merged=True) < 8


def catch(lag: int, **given: Any) -> tuple[float, float]:
    """Mean returns of two runs: of the last epoch of training, and of greedy episodes after it."""
    trained, evaluated = list[float](), list[float]()
    for seed in (0, 1):
        resolved = impala(
            "tests.own_games:Catch", envs_per_actor=32, epochs=25, learning_rate=0.005, seed=seed,
            entropy_coefficient=0.03, vectorisation="sync", **given,
        )  # fmt: skip
        trainer = learner(resolved)
        *_, progress = in_turn(trainer, 1, late(lag))
        assert lag <= (progress.metrics["policy_lag"] or 0) <= lag + 6  # 2 batches are a message
        trained.append(float(np.mean(progress.returns)))
        policy = load_policy(resolved, trainer.state_dict())
        evaluated += [one.return_ for one in evaluate(policy, resolved, 0, 50, False)]
    return float(np.mean(trained)), float(np.mean(evaluated))


@pytest.mark.slow
def test_v_trace_learns_catch_from_experience_that_is_20_updates_old() -> None:
    with_vtrace, without = catch(20), catch(20, vtrace=False)
    assert with_vtrace[1] == 1 and with_vtrace[0] > 0.9
    assert without[0] < with_vtrace[0] - 0.5


def test_late_actors_send_what_is_20_updates_old_and_hear_of_newer_weights() -> None:
    options = {"game": "cartpole", "outdir": "/x", "envs_per_actor": "16", "epochs": "4"}
    trainer = learner(resolve("tests.late_weights:ALGORITHM", options))
    *_, progress = in_turn(trainer)
    assert 20 <= (progress.metrics["policy_lag"] or 0) <= 23


@pytest.mark.slow
def test_cartpole_is_learnt_by_four_actors_in_threads() -> None:
    resolved = impala("cartpole", epochs=25, learning_rate=0.002)
    trainer = learner(resolved)
    trainer.wait_s = 1.0
    exchange = trainer.receiver(1)
    actors = actors_of(resolved, exchange, 4, LocalLink)
    threads = [
        threading.Thread(target=lambda one=one: list(one.act()), daemon=True) for one in actors
    ]
    for thread in threads:
        thread.start()
    progress = [one for one in trainer.train() if one is not None]
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    counters = exchange.counters()
    assert counters["joined"] == 4 and counters["stale"] == counters["refused"] == 0
    assert counters["queued"] >= 25 * 10 * 16
    assert (
        max(one.metrics["policy_lag_max"] for one in progress) <= resolved.hyperparameters.max_lag
    )
    assert all(3100 * one.epoch < one.step <= 3200 * one.epoch for one in progress)
    assert np.mean(progress[0].returns) < 30
    assert np.mean(progress[-1].returns) > 60
    for actor in actors:
        actor.close()


def test_the_same_seed_in_turn_is_the_same_training() -> None:
    def rows() -> list[Progress]:
        return list(in_turn(learner(impala("cartpole", **SMALL, seed=3)), 2))

    assert rows() == rows()


def test_everything_twice_teaches_nothing_twice() -> None:
    class Twice(LocalLink):
        """Every acknowledgement is lost once."""

        def send(self, unrolls: Unrolls) -> list[Ack]:
            first = super().send(unrolls)
            self._sequence -= 1
            assert [ack.state for ack in super().send(unrolls)] == ["duplicate"]
            return first

    once, twice = learner(impala("cartpole", **SMALL)), learner(impala("cartpole", **SMALL))
    assert list(in_turn(once)) == list(in_turn(twice, link=Twice))
    assert twice.exchange.counters()["duplicates"] > 0 == once.exchange.counters()["duplicates"]
    assert torch.equal(once.network.policy_weight, twice.network.policy_weight)


def copy_of(batch: Batch) -> Batch:
    return Batch({n: column.copy() for n, column in batch.columns.items()}, batch.oldest.copy())


@pytest.mark.parametrize("lstm_size", [0, 4])
def test_a_training_goes_on_where_its_state_was_taken(lstm_size: int) -> None:
    resolved = impala("cartpole", **SMALL, lstm_size=lstm_size, normalise_observations=True, seed=5)
    one = learner(resolved)
    unrolls = played(resolved, one, 400)
    one.receiver(1)
    batches = [batch_of(one, unrolls) for _ in range(5)]
    for batch in batches[:3]:
        one._learn(copy_of(batch))
    state = one.state_dict()
    other, without = learner(resolved), learner(resolved)
    other.load_state_dict(state)
    without.load_state_dict({**state, "optimiser": without.optimiser.state_dict()})
    for trainer in (other, without):
        trainer.receiver(2)
    for trainer in (one, other, without):
        for batch in batches[3:]:
            trainer._learn(copy_of(batch))
    assert (other.updates, other.step, other.epoch) == (one.updates, one.step, one.epoch)
    assert other.measured == one.measured and len(one.measured) == 5
    weights = [trainer.network.policy_weight for trainer in (one, other, without)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert other.observation_normaliser is not None and one.observation_normaliser is not None
    assert (other.observation_normaliser.mean == one.observation_normaliser.mean).all()


def test_its_state_is_arrays_and_json() -> None:
    trainer = learner(impala("cartpole", **SMALL))
    epochs = in_turn(trainer)
    next(epochs)

    def arrays_as_lists(value: Any) -> list[Any]:
        assert isinstance(value, np.ndarray)
        return []

    assert json.dumps(trainer.state_dict(), default=arrays_as_lists)


def test_what_is_not_finite_never_reaches_the_optimiser() -> None:
    trainer = learner(impala("cartpole", **SMALL))
    batch = batch_of(trainer, played(trainer.resolved, trainer, 100))
    before = trainer.network.policy_weight.detach().clone()
    trainer._learn(copy_of(batch))
    after = trainer.network.policy_weight.detach().clone()
    assert not torch.equal(before, after)
    batch.columns["reward"][:] = 3e38  # finite, its square is not
    with pytest.raises(Diverged, match=r"after step 30: .* rewards 3e\+38 … 3e\+38"):
        trainer._learn(batch)
    assert torch.equal(trainer.network.policy_weight, after) and trainer.updates == 1


def test_the_lag_is_the_number_of_updates_since_the_weights_that_acted() -> None:
    trainer = learner(impala("cartpole", **SMALL))
    batch = batch_of(trainer, played(trainer.resolved))
    trainer.receiver(1)
    trainer.updates = 4
    batch.oldest[:] = [4, 4, 4, 4, 4, 1]
    trainer._learn(batch)
    metrics = trainer._progress().metrics
    assert metrics["policy_lag"] == pytest.approx(3 / 6)
    assert metrics["policy_lag_max"] == 3


def test_what_is_published_is_what_was_just_learnt() -> None:
    trainer = learner(impala("cartpole", **SMALL))
    batch = batch_of(trainer, played(trainer.resolved))
    exchange: Any = trainer.receiver(1)
    published = list[tuple[int, Any]]()
    exchange.publish = lambda update, arrays: published.append((update, arrays))
    trainer._learn(batch)
    ((update, arrays),) = published
    assert update == trainer.updates == 1
    newest = weights_of(trainer.network, trainer.observation_normaliser)
    assert all(np.array_equal(arrays[name], newest[name]) for name in newest)


def test_statistics_of_observations_count_each_row_once() -> None:
    """The last row of an unroll is the first one of the next."""
    trainer = learner(impala("cartpole", normalise_observations=True, **SMALL))
    columns = batch_of(trainer, played(trainer.resolved)).columns
    trainer._rows(columns)
    normaliser: Any = trainer.observation_normaliser
    assert columns["valid"][:, -1].any()
    assert normaliser.statistics.count == columns["valid"][:, :-1].sum()


def test_the_entropy_is_that_of_the_allowed_actions() -> None:
    """Two doors of six are open, and a policy without weights likes them alike."""
    trainer = learner(impala("tests.lab_environments:Locks", **SMALL))
    trainer.network.policy_weight.data.zero_()
    trainer.network.policy_bias.data.zero_()
    rows = trainer._rows(batch_of(trainer, played(trainer.resolved)).columns)
    assert rows.masks is not None and set(rows.masks[rows.valid].sum(dim=1).tolist()) == {2}
    entropy = trainer._loss(*rows)[-1][2]
    assert entropy.item() == pytest.approx(np.log(2), abs=1e-5)


def test_the_learning_rate_falls_to_nothing() -> None:
    trainer = learner(impala("cartpole", **SMALL, learning_rate=0.06))
    rates = list[float]()
    update = trainer._update
    trainer._update = lambda *given: (rates.append(trainer.learning_rate), update(*given))[1]  # type: ignore[func-returns-value,method-assign]
    list(in_turn(trainer))
    assert rates == pytest.approx([0.06, 0.05, 0.04, 0.03, 0.02, 0.01])
    assert trainer.learning_rate == pytest.approx(0)


@pytest.mark.parametrize("lstm_size", [0, 4])
def test_a_trained_policy_is_evaluated_like_any_other(lstm_size: int) -> None:
    resolved = impala("cartpole", **SMALL, lstm_size=lstm_size)
    trainer = learner(resolved)
    list(in_turn(trainer))
    policy = load_policy(resolved, trainer.state_dict())
    (episode,) = evaluate(policy, resolved, 0, 1, True)
    assert episode.length > 0


def test_values_that_do_not_go_together_are_refused() -> None:
    for given, word in (
        ({"c_bar": 2}, "'c_bar' cannot be 2; allowed: at most rho_bar, 1"),
        ({"normalise_rewards": True}, "'normalise_rewards' cannot be true"),
        ({"batch_size": 65_536, "unroll_length": 65_536}, "is too large; allowed: at most"),
    ):
        with pytest.raises(BadInput, match=word):
            impala("cartpole", **given)


def test_all_kinds_of_memory_and_lag_are_counted() -> None:
    trainer = learner(impala("cartpole", **SMALL))
    progress = list(in_turn(trainer, 1, late(2)))
    assert progress[-1].metrics["policy_lag_max"] >= 2
    assert all(one.metrics.keys() == progress[0].metrics.keys() for one in progress)
    assert list(itertools.islice(trainer.train(), 1)) == []
