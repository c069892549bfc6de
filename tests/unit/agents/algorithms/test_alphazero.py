"""AlphaZero's trainer: its loss, the average that plays, the replay ratio, and going on after a kill."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from agents.algorithms import alphazero
from agents.algorithms.alphazero import AlphaZeroTrainer, Batch, losses
from agents.games.named import load_game
from agents.interfaces import Progress
from agents.selfplay.positions import columns_of, packed_states
from agents.selfplay.roles import Games
from agents.states import begin_with_weights
from config.errors import BadInput, Diverged
from config.resolve import resolve
from config.resolved import Resolved

GAME = load_game("tic-tac-toe")
SMALL = {
    "game": "tic-tac-toe", "blocks": "0", "channels": "4", "batch_size": "32", "epochs": "4",
    "generation_positions": "320", "learning_starts": "100", "window": "1000", "max_ahead": "2",
}  # fmt: skip
RATIO, SLACK = 4, 2 * 32


def trainer(**given: str) -> AlphaZeroTrainer:
    return AlphaZeroTrainer(experiment(**given), run=0, device="cpu", precision="fp32")


def experiment(**given: str) -> Resolved:
    return resolve("alphazero", {**SMALL, **given})


def games(count: int, seed: int = 0, generation: int = 0) -> Games:
    """Positions after one move each, whose policies all like the middle."""
    generator = np.random.default_rng(seed)
    states = GAME.play(GAME.start(count), generator.choice([0, 1, 2, 3, 5, 6, 7, 8], count))
    rows = {
        name: np.zeros((count, *shape), dtype) for name, (dtype, shape) in columns_of(GAME).items()
    }
    rows |= {"state": packed_states(states), "legal": GAME.legal(states)}
    rows["policy"][:, 4] = 1
    rows["full"][:] = True
    rows["value"][:] = 1
    rows["generation"][:] = generation
    return Games(rows, [50.0], [count], 0, 1.0, 0.5)


def test_the_loss_by_hand() -> None:
    """p over the legal actions (0, 2) is (.25, .75); the second position was searched cheaply."""
    logits = torch.tensor([[0.0, 9.0, math.log(3)], [1.0, 1.0, 1.0]])
    batch = Batch(
        planes=torch.zeros(2, 2, 3, 3),
        legal=torch.tensor([[True, False, True], [True, True, True]]),
        policies=torch.tensor([[0.5, 0.0, 0.5], [0.0, 0.0, 0.0]]),
        values=torch.tensor([1.0, -1.0]),
        full=torch.tensor([True, False]),
    )
    policy, value = losses(logits, torch.tensor([0.5, 0.0]), batch)
    assert float(policy) == pytest.approx(-0.5 * math.log(0.25) - 0.5 * math.log(0.75))
    assert float(value) == pytest.approx((0.25 + 1) / 2)
    without = batch._replace(full=torch.tensor([False, False]))
    assert float(losses(logits, torch.zeros(2), without)[0]) == 0


def test_an_illegal_action_gets_no_gradient() -> None:
    logits = torch.zeros(1, 3, requires_grad=True)
    legal = torch.tensor([[True, False, True]])
    policies = torch.tensor([[1.0, 0.0, 0.0]])
    one = torch.ones(1)
    batch = Batch(torch.zeros(1), legal, policies, one, one > 0)
    losses(logits, torch.zeros(1), batch)[0].backward()
    assert logits.grad is not None
    assert logits.grad.tolist() == [[-0.5, 0.0, 0.5]]


def test_weight_decay_is_the_gradient_of_c_times_the_sum_of_squares() -> None:
    """Against Adam by torch with the sum written into the loss."""
    given = torch.tensor([1.0, -2.0])
    ours = torch.nn.Parameter(given.clone())
    theirs = torch.nn.Parameter(given.clone())
    optimiser = alphazero.Adam([ours], epsilon=1e-8, decay=0.1)
    reference = torch.optim.Adam([theirs], lr=0.01)
    for _ in range(5):
        ours.grad = 3 * ours.detach()
        optimiser.step(0.01)
        reference.zero_grad()
        (1.5 * theirs.square().sum() + 0.1 * theirs.square().sum()).backward()
        reference.step()
    assert torch.allclose(ours, theirs, atol=1e-6)


def test_it_learns_what_it_is_shown_and_the_average_follows() -> None:
    learner = trainer(average_decay="0.5", learning_rate="0.01")
    for _ in progresses(learner):
        pass
    planes = torch.from_numpy(GAME.encode(GAME.play(GAME.start(1), np.array([0]))))
    logits, value = learner.average.eval()(planes)
    assert int(logits.argmax()) == 4
    assert float(value) > 0.5


def test_the_average_is_an_exponential_one() -> None:
    learner = trainer(average_decay="0.75")
    weight = learner.network.policy_bias.detach()
    before = learner.average.policy_bias.clone()
    weight += 1.0
    learner._follow()
    assert torch.allclose(learner.average.policy_bias, before + 0.25)


def bounds(learner: AlphaZeroTrainer, take, slow_s: float = 0.0) -> Iterator[float]:  # type: ignore[no-untyped-def]
    """The balance after every step of the training, as its definition has it."""
    learn = learner._learn

    def slowly() -> None:
        time.sleep(slow_s)
        learn()
        balances.append(learner.updates * 32 - RATIO * max(0, learner.window.added - 100))

    def taking(wait_s: float) -> Games | None:
        found = take(wait_s)
        balances.append(learner.updates * 32 - RATIO * max(0, learner.window.added - 100))
        return found

    balances = list[float]()
    learner._learn = slowly  # type: ignore[method-assign]
    for _ in learner.train(taking):
        yield from balances
        balances.clear()


@pytest.mark.parametrize("slower", ["trainer", "workers"])
def test_the_replay_ratio_holds_however_slow_one_side_is(slower: str) -> None:
    """|updates · batch − ratio · (positions − starts)| ≤ slack, and a shard, which is taken whole."""
    shard, numbers = 20, iter(range(10**6))

    def take(wait_s: float) -> Games | None:
        number = next(numbers)
        if slower == "workers" and number % 10:
            return None
        return games(shard, number)

    learner = trainer()
    found = list(bounds(learner, take, 0.002 if slower == "trainer" else 0.0))
    assert max(found) <= SLACK
    assert min(found) >= -SLACK - RATIO * shard
    assert learner.updates == math.ceil(4 * RATIO * 320 / 32)
    assert learner.window.added >= 100 + 4 * 320
    ahead = min(found) if slower == "trainer" else max(found)
    assert abs(ahead) > SLACK / 2, "the slow one is behind as far as it may be"


def progresses(learner: AlphaZeroTrainer, seed: int = 0) -> Iterator[Progress]:
    numbers = iter(range(seed, 10**6))
    for progress in learner.train(lambda wait: games(20, next(numbers))):
        if progress is not None:
            yield progress


def test_a_training_goes_on_where_its_state_was_taken() -> None:
    """The same games, and the same numbers come out."""
    whole = list(progresses(trainer()))
    numbers, first, second = iter(range(10**6)), trainer(), trainer()

    def take(wait_s: float) -> Games:
        return games(20, next(numbers))

    half = list[Progress]()
    for progress in first.train(take):
        half += [] if progress is None else [progress]
        if len(half) == 2:
            break
    second.load_state_dict(first.state_dict())
    grown = first.grown()["window"]
    assert grown.keep == len(first.window)
    second.load_streams({"window": iter([grown.rows])})
    half += [progress for progress in second.train(take) if progress is not None]
    assert [one.metrics for one in half] == [one.metrics for one in whole]
    assert second.counters()["positions"] == second.window.added


def test_what_cannot_be_learnt_from_is_refused_and_counted() -> None:
    learner = trainer()
    bad = games(20)
    bad.rows["value"][3] = np.nan
    shown = iter([bad, bad, games(50)])
    for progress in learner.train(lambda wait: next(shown, None)):
        if progress is None:
            break
    assert learner.counters()["refused"] == 2
    assert learner.window.added == 50


def test_games_of_older_networks_are_told_apart() -> None:
    learner = trainer()
    for progress in learner.train(lambda wait: games(20, generation=0)):
        if progress is not None and progress.epoch == 3:
            assert progress.metrics["generations_behind"] == 2.0
            assert progress.metrics["generations_behind_max"] == 2.0
            break


def test_a_number_that_is_not_finite_never_reaches_the_optimiser() -> None:
    learner = trainer()
    with torch.no_grad():
        learner.network.policy_bias.fill_(math.inf)
    before = [one.clone() for one in learner.network.parameters()]
    with pytest.raises(Diverged, match=r"not finite in epoch 1, after 0 updates: policy loss nan"):
        list(progresses(learner))
    after = learner.network.parameters()
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def test_it_begins_with_the_weights_of_another_training_of_this_game_and_no_other() -> None:
    other = trainer(seed="7")
    other.network.policy_bias.data += 1.0
    learner = trainer()
    begin_with_weights(learner, other.state_dict())
    assert torch.equal(learner.network.policy_bias, other.network.policy_bias)
    assert torch.equal(learner.average.policy_bias, other.average.policy_bias)
    assert learner.epoch == 0
    four = trainer(game="connect-four")
    with pytest.raises(BadInput, match="interface"):
        begin_with_weights(learner, four.state_dict())


def test_half_precision_learns_too() -> None:
    learner = AlphaZeroTrainer(experiment(epochs="1"), run=0, device="cpu", precision="bf16")
    (progress,) = progresses(learner)
    assert math.isfinite(progress.metrics["policy_loss"] or math.nan)


def test_a_batch_is_turned_as_a_whole() -> None:
    """A stone in one corner, a policy for the opposite one: so they are in every symmetry."""
    learner, some = trainer(), games(200)
    states = GAME.play(GAME.start(200), np.full(200, 8))
    rows = some.rows | {"state": packed_states(states), "legal": GAME.legal(states)}
    rows["policy"] = np.eye(9, dtype=np.float32)[np.zeros(200, np.int64)]
    batch = learner._batch(rows)
    stones = batch.planes.sum(dim=1).flatten(1)
    assert torch.equal(stones.argmax(dim=1) + batch.policies.argmax(dim=1), torch.full((200,), 8))
    assert torch.equal(batch.legal, stones == 0)
    assert set(stones.argmax(dim=1).tolist()) == {0, 2, 6, 8}
