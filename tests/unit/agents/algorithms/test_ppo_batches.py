"""What one update learns from: every row once in an epoch's pass, in a new order, with normalised
advantages."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from agents.algorithms.ppo import PPOTrainer
from agents.experience.policy_batches import Batch
from config.resolve import resolve
from tests.own_games import Bandit


def batch_of(rows: int) -> Batch:
    """Each column holds the row's number in its own tens."""
    numbers = torch.arange(rows, dtype=torch.float32)
    encoded = torch.stack((numbers, -numbers), dim=1)
    return Batch(encoded, numbers.long(), *(numbers + ten for ten in (10, 20, 30, 40)))


def trainer_with(minibatches: int) -> PPOTrainer:
    sizes = {"num_envs": "6", "rollout_length": "32", "minibatches": str(minibatches)}
    given = {"game": "tests.own_games:Bandit", **sizes}
    return PPOTrainer(resolve("ppo", given), run=0, device="cpu", precision="fp32")


def test_rows_are_taken_in_every_column() -> None:
    masks = torch.tensor([[True, False], [True, True], [True, True], [False, True], [True, True]])
    rows = torch.tensor([3, 0])
    assert batch_of(5)._replace(masks=masks).take(rows).masks.tolist() == [[0, 1], [1, 0]]
    taken = batch_of(5).take(rows)
    assert taken.masks is None
    assert taken.encoded.tolist() == [[3, -3], [0, 0]] and taken.actions.tolist() == [3, 0]
    assert [column.tolist() for column in taken[2:-1]] == [
        [number + 3, number] for number in (10, 20, 30, 40)
    ]


def test_advantages_get_mean_0_and_deviation_1() -> None:
    found = batch_of(2)._replace(advantages=torch.tensor([1.0, 3.0])).normalised()
    assert found.advantages.tolist() == pytest.approx([-(0.5**0.5), 0.5**0.5], rel=1e-6)
    equal = batch_of(3)._replace(advantages=torch.full((3,), 7.0)).normalised()
    assert equal.advantages.tolist() == [0, 0, 0]
    tiny = batch_of(2)._replace(advantages=torch.tensor([0.0, 2e-8])).normalised()
    share = 2**0.5 / (2**0.5 + 1)  # of the deviation √2 · 1e-8 in it and the 1e-8 added to it
    assert float(tiny.advantages[1]) == pytest.approx(0.5**0.5 * share, rel=1e-5)


def test_a_single_row_has_no_deviation_and_stays_as_it_is() -> None:
    assert batch_of(1).normalised().advantages.tolist() == [30]


def test_minibatches_hold_every_row_once_in_a_new_order_of_their_own_generator() -> None:
    trainer, same = trainer_with(3), trainer_with(3)
    orders = []
    for _ in range(2):
        torch.manual_seed(len(orders))  # the global generator plays no part
        parts = list(next(iter(trainer._passes(batch_of(7)))))
        again = list(next(iter(same._passes(batch_of(7)))))
        assert [part.actions.tolist() for part in parts] == [one.actions.tolist() for one in again]
        assert [len(part.actions) for part in parts] == [3, 2, 2]
        assert all(float(part.advantages.mean()) == pytest.approx(0, abs=1e-6) for part in parts)
        orders.append(torch.cat([part.actions for part in parts]).tolist())
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(7))
    assert orders[0] != orders[1]


def test_all_rows_are_passed_as_often_as_asked() -> None:
    trainer = trainer_with(2)
    passes = [[len(part.actions) for part in parts] for parts in trainer._passes(batch_of(5))]
    assert passes == [[3, 2]] * trainer.hyper.update_epochs


def test_more_parts_than_rows_are_as_many_as_there_are_rows() -> None:
    parts = list(next(iter(trainer_with(4)._passes(batch_of(2)))))
    assert sorted(part.actions.tolist() for part in parts) == [[0], [1]]


def test_one_part_is_not_shuffled() -> None:
    trainer = trainer_with(1)
    before = trainer.permutations.get_state()
    passes = [list(minibatches) for minibatches in trainer._passes(batch_of(6))]
    assert len(passes) == trainer.hyper.update_epochs
    ((part,), *_) = passes
    assert part.actions.tolist() == list(range(6))
    assert float(part.advantages.mean()) == pytest.approx(0, abs=1e-6)
    assert torch.equal(before, trainer.permutations.get_state()), "nothing was drawn"


def test_a_resumed_training_shuffles_and_normalises_as_the_undisturbed_one() -> None:
    given = {
        "game": "tests.recorded_game:Recorded", "num_envs": "2", "rollout_length": "16",
        "minibatches": "4", "epochs": "4", "normalise_observations": "true", "normalise_rewards": "true",
    }  # fmt: skip
    resolved = resolve("ppo", given)
    undisturbed = PPOTrainer(resolved, run=0, device="cpu", precision="fp32")
    rows = []
    for one in undisturbed.train():
        rows.append(repr(one))
        if one.epoch == 2:
            state = undisturbed.state_dict()
    resumed = PPOTrainer(resolved, run=0, device="cpu", precision="fp32")
    resumed.load_state_dict(state)
    assert [repr(one) for one in resumed.train()] == rows[2:]
    weights = undisturbed.network.parameters(), resumed.network.parameters()
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))
    found, expected = resumed.state_dict(), undisturbed.state_dict()
    for name in ("observation_normaliser", "reward_normaliser", "generators"):
        assert found[name].keys() == expected[name].keys() != set()
        assert all(np.array_equal(found[name][part], expected[name][part]) for part in found[name])


def test_a_closed_trainer_has_closed_its_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = list[Bandit]()
    monkeypatch.setattr(Bandit, "close", lambda environment: closed.append(environment))
    trainer = trainer_with(1)
    closed.clear()  # of the one that `vectorisation=auto` has measured
    trainer.close()
    assert len(closed) == 6
