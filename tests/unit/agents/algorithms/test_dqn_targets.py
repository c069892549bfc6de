"""DQN's targets and losses against known answers and slow references, and every switch against what
is learnt when it is ignored."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from agents.algorithms.dqn import Batch, DQNTrainer, huber, quantile_huber
from agents.networks import make_action_values
from agents.networks.action_values import bootstrapped, taken
from agents.spaces import Interface
from config.parameters import to_text
from config.resolve import resolve

CHAIN = "tests.own_games:Chain"
SMALL = {
    "double": "false",
    "hidden_sizes": "8,8",
    "learning_starts": "40",
    "epoch_steps": "60",
    "epochs": "2",
}


def made(game: str = CHAIN, **given: Any) -> DQNTrainer:
    texts = {name: to_text(value) for name, value in given.items()}
    resolved = resolve("dqn", {"game": game, **SMALL, "normalise_observations": "false", **texts})
    return DQNTrainer(resolved, run=0, device="cpu", precision="fp32")


def collected(trainer: DQNTrainer, steps: int = 50) -> DQNTrainer:
    for _ in range(steps):
        trainer.collection.take_step(trainer._act)
    trainer.step = trainer.collection.step
    trainer.close()
    return trainer


def constant(network: Any, values: list[float]) -> None:
    """Make it answer this, whatever it sees."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
        network.bias.copy_(torch.tensor(values))


def one_row(reward: float, discount: float, masks: list[bool] | None = None) -> Batch:
    column = torch.tensor([0.0])
    return Batch(
        torch.zeros(1, 3), torch.tensor([0]), column + reward, column + discount,
        torch.zeros(1, 3), column + 1, None if masks is None else torch.tensor([masks]),
    )  # fmt: skip


@pytest.mark.parametrize(("double", "expected"), [(False, 5.0), (True, 3.0)])
def test_known_targets(double: bool, expected: float) -> None:
    """Q(o') = (1, 2), Q⁻(o') = (5, 3), r = 0, γ = 1."""
    trainer = made(double=double)
    trainer.close()
    constant(trainer.network, [1.0, 2.0])
    constant(trainer.target, [5.0, 3.0])
    batch = one_row(0.0, 1.0)
    found = trainer._targets(batch, trainer.target(batch.next_encoded))
    assert found.tolist() == [expected]
    assert not found.requires_grad


def test_double_q_learning_chooses_where_the_step_led() -> None:
    """Q prefers the first action at o and the second at o', and Q⁻(o') = (5, 3)."""
    trainer = made(double=True)
    trainer.close()
    trainer.network.forward = lambda seen: torch.cat((1 - seen[:, :1], seen[:, :1]), dim=1)  # type: ignore[method-assign]
    batch = one_row(0.0, 1.0)._replace(next_encoded=torch.ones(1, 3))
    assert trainer._targets(batch, torch.tensor([[5.0, 3.0]])).tolist() == [3.0]


def test_a_terminal_target_is_the_reward_and_a_truncated_one_bootstraps() -> None:
    """On the rows of a real replay: y = r exactly, y = r + γ max Q⁻(final observation)."""
    trainer = collected(made(), 200)
    rows = np.arange(trainer.replay.sampleable.start, trainer.replay.sampleable.stop)
    transitions = trainer.replay.take(rows)
    batch = trainer._batch(transitions, np.ones(len(rows), np.float32))
    targets = trainer._targets(batch, trainer.target(batch.next_encoded)).numpy()
    paid = transitions.reward == 1
    assert paid.sum() > 5
    assert (targets[paid] == 1).all()
    with torch.no_grad():
        values = trainer.target(torch.eye(3)).max(dim=1)[0].numpy()
    ages, truncated = np.zeros(len(rows), int), 0
    for row in range(len(rows)):
        place = transitions.next_observation[row].argmax()
        if not paid[row]:
            expected = transitions.reward[row] + 0.99 * values[place]
            assert np.isclose(targets[row], expected, atol=1e-6)
        ended = paid[row] or ages[row] == 6
        truncated += bool(ended and not paid[row])
        if row + 1 < len(rows):
            ages[row + 1] = 0 if ended else ages[row] + 1
    assert truncated > 2


def test_a_forbidden_action_is_not_bootstrapped_from() -> None:
    values, choosing = torch.tensor([[5.0, 3.0]]), torch.tensor([[1.0, 0.0]])
    for masks, expected in (([True, True], 5.0), ([False, True], 3.0), ([False, False], 5.0)):
        assert bootstrapped(values, choosing, torch.tensor([masks])).item() == expected
    # Where nothing is allowed the best of all counts, not the first.
    nothing = torch.tensor([[False, False]])
    assert bootstrapped(values, choosing.flip(1), nothing).item() == 3.0
    trainer = made()
    trainer.close()
    constant(trainer.target, [5.0, 3.0])
    batch = one_row(1.0, 0.5, [False, True])
    assert trainer._targets(batch, trainer.target(batch.next_encoded)).item() == 2.5


def test_forbidden_actions_are_never_taken() -> None:
    """The game itself asserts it; and all others are."""
    trainer = made(f"{CHAIN}", env_options="masked=true", final_epsilon=0.5)
    for _ in trainer.train():
        pass
    trainer.close()
    assert trainer.spaces.masked
    states = trainer.replay._columns["observation"][:120, 0].argmax(axis=1)
    actions = trainer.replay._columns["action"][:120, 0]
    assert set(actions[states == 1].tolist()) == {1}
    assert set(actions[states != 1].tolist()) == {0, 1}


def test_the_huber_loss_and_its_gradient() -> None:
    predictions = torch.tensor([0.0, 0.0, 0.0, 0.0], requires_grad=True)
    loss = huber(predictions, torch.tensor([0.5, -1.0, 3.0, -4.0]))
    assert loss.tolist() == [0.125, 0.5, 2.5, 3.5]
    loss.sum().backward()
    assert predictions.grad is not None
    assert predictions.grad.tolist() == [-0.5, 1.0, -1.0, 1.0]


def slow_quantile_huber(quantiles: list[float], targets: list[float]) -> float:
    """Dabney et al. 2018, algorithm 1, with numbers."""
    total = 0.0
    for number, quantile in enumerate(quantiles):
        middle, mean = (2 * number + 1) / (2 * len(quantiles)), 0.0
        for target in targets:
            u = target - quantile
            size = 0.5 * u * u if abs(u) <= 1 else abs(u) - 0.5
            mean += abs(middle - (1.0 if u < 0 else 0.0)) * size / len(targets)
        total += mean
    return total


def test_the_quantile_loss_against_a_double_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    quantiles = 2 * torch.randn(6, 5, generator=generator)
    targets = 2 * torch.randn(6, 7, generator=generator)
    expected = [
        slow_quantile_huber(*row) for row in zip(quantiles.tolist(), targets.tolist(), strict=True)
    ]
    assert np.allclose(quantile_huber(quantiles, targets).numpy(), expected, rtol=1e-5)


def test_the_quantile_loss_finds_quantiles() -> None:
    """Of 0 … 99 with 4 of them: 12.5, 37.5, 62.5 and 87.5, to the breadth of the Huber loss."""
    quantiles = torch.zeros(1, 4, requires_grad=True)
    targets = torch.arange(100.0)[None]
    optimiser = torch.optim.SGD([quantiles], lr=5.0)
    for _ in range(400):
        optimiser.zero_grad()
        quantile_huber(quantiles, targets).sum().backward()
        optimiser.step()
    assert np.allclose(quantiles.detach().numpy(), [[12.0, 37.0, 62.0, 87.0]], atol=1.5)


def test_the_values_of_the_taken_actions() -> None:
    values = torch.arange(12.0).view(2, 3, 2)
    actions = torch.tensor([2, 0])
    assert taken(values, actions).tolist() == [[4.0, 5.0], [6.0, 7.0]]
    assert taken(values[..., 0], actions).tolist() == [4.0, 6.0]


def values_of(dueling: bool, quantiles: int) -> tuple[Any, Tensor]:
    spaces = Interface(
        observation_shape=(3,), image=False, channels_last=False, actions=4, discrete=True
    )
    generator = torch.Generator().manual_seed(0)
    network = make_action_values(
        spaces, hidden_sizes=(6, 5), dueling=dueling, quantiles=quantiles, precision="fp32",
        generator=generator,
    )  # fmt: skip
    return network, torch.randn(7, 3, generator=generator)


@pytest.mark.parametrize("quantiles", [0, 3])
def test_dueling_streams_by_their_equation(quantiles: int) -> None:
    """Q = V + A − mean A, each stream with a last hidden layer of its own."""
    network, seen = values_of(True, quantiles)
    torso, each = network.torso, max(1, quantiles)
    hidden = functional.linear(seen, torso.weight1, torso.bias1).relu()
    hidden = functional.linear(hidden, torso.weight2, torso.bias2).relu()
    assert hidden.shape == (7, 10)
    value = functional.linear(hidden[:, :5], network.value_weight, network.value_bias)
    advantage = functional.linear(hidden[:, 5:], network.weight, network.bias)
    advantage = advantage.view(7, 4, each)
    expected = value.view(7, 1, each) + advantage - advantage.mean(dim=1, keepdim=True)
    found = network(seen).view(7, 4, each)
    assert torch.allclose(found, expected, atol=1e-6)
    with torch.no_grad():  # what the advantages have in common is not seen
        network.bias.add_(5.0)
    assert torch.allclose(network(seen).view(7, 4, each), expected, atol=1e-5)
    plain, _ = values_of(False, quantiles)
    before = plain(seen)
    with torch.no_grad():
        plain.bias.add_(5.0)
    assert torch.allclose(plain(seen), before + 5, atol=1e-5), "without streams it is"


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("quantiles", [0, 3])
def test_acting_sees_the_values_that_are_learnt(dueling: bool, quantiles: int) -> None:
    network, seen = values_of(dueling, quantiles)
    with torch.inference_mode():
        assert torch.allclose(network.frozen()(seen), network.means(network(seen)), atol=1e-6)


SWITCHES: dict[str, dict[str, Any]] = {
    "none": {},
    "double": {"double": True},
    "dueling": {"dueling": True},
    "n_step": {"n_step": 3},
    "prioritised": {"prioritised": True},
    "quantiles": {"quantiles": 5},
    "all": {"double": True, "dueling": True, "n_step": 3, "prioritised": True, "quantiles": 5},
}


def slow_update(
    trainer: DQNTrainer, batch: Batch
) -> tuple[list[Tensor], float, list[float], list[float]]:
    """The gradients of one update, row by row, by autograd; the loss, errors and values."""
    hyper, total, errors, means_of = trainer.hyper, torch.zeros(()), list[float](), list[float]()
    columns = [column for column in batch[:6] if column is not None]
    for encoded, action, reward, discount, after, weight in zip(*columns, strict=True):
        values = trainer.network(encoded[None])[0][action]
        with torch.no_grad():
            target_values = trainer.target(after[None])[0]
            chooser = trainer.network(after[None])[0] if hyper.double else target_values
            means = chooser.mean(dim=-1) if hyper.quantiles else chooser
            best = max(range(len(means)), key=lambda action: float(means[action]))
            target = reward + discount * target_values[best]
            means_of.append(float(values.mean()))
            errors.append(float(target.mean()) - means_of[-1])
        if hyper.quantiles:
            for number in range(hyper.quantiles):
                middle = (number + 0.5) / hyper.quantiles
                for aim in target:
                    u = aim - values[number]
                    side = abs(middle - float(u < 0))
                    size = 0.5 * u**2 if abs(u) <= 1 else u.abs() - 0.5
                    total = total + weight * side * size / len(target)
        else:
            u = target - values
            total = total + weight * (0.5 * u**2 if abs(u) <= 1 else u.abs() - 0.5)
    gradients = list(torch.autograd.grad(total, list(trainer.network.parameters())))
    return gradients, total.item(), errors, means_of


def perturbed(trainer: DQNTrainer) -> None:
    """Q and Q⁻ differ, and so do their choices."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for network in (trainer.network, trainer.target):
            for parameter in network.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.5)


@pytest.mark.parametrize("switch", SWITCHES)
def test_an_update_has_the_gradient_of_the_slow_reference(switch: str) -> None:
    trainer = collected(made(batch_size=12, **SWITCHES[switch]))
    perturbed(trainer)
    trainer.optimiser.step = lambda learning_rate: None  # type: ignore[method-assign]
    trainer.optimiser.clip_gradients = lambda largest: 0.0  # type: ignore[method-assign]
    if trainer.priorities is not None:
        trainer.priorities.follow(trainer.replay.sampleable)
    _, batch = trainer._sample(1)
    with torch.no_grad():
        target_values = trainer.target(batch.next_encoded)
    update = trainer._update(batch, target_values)
    expected, loss, errors, values_of = slow_update(trainer, batch)
    assert math.isclose(update.loss.item(), loss, rel_tol=1e-4)
    assert np.allclose(update.errors.numpy(), errors, atol=1e-5)
    assert np.allclose(update.values.numpy(), values_of, atol=1e-5)
    for parameter, gradient in zip(trainer.network.parameters(), expected, strict=True):
        assert parameter.grad is not None
        assert torch.allclose(parameter.grad, gradient, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("switch", [one for one in SWITCHES if one not in ("none", "all")])
def test_an_ignored_switch_learns_something_else(switch: str) -> None:
    """The same seed with and without: what is learnt differs."""
    ends = []
    for given in ({}, SWITCHES[switch]):
        trainer = made(
            batch_size=12,
            train_every=1,
            target_every=30,
            learning_rate=0.01,
            final_epsilon=1.0,
            **given,
        )
        for _ in trainer.train():
            pass
        trainer.close()
        with torch.no_grad():
            ends.append(trainer.network.means(trainer.network(torch.eye(3))))
    assert not torch.allclose(ends[0], ends[1], atol=1e-4)


def test_n_steps_are_summed_before_the_bootstrap() -> None:
    """γ³ after three steps that pay nothing, and the pay of the last one discounted by γ²."""
    trainer = collected(made(n_step=3, discount=0.5), 200)
    rows = np.arange(trainer.replay.sampleable.start, trainer.replay.sampleable.stop)
    found = trainer.replay.take(rows)
    assert set(np.round(found.discount, 6)) >= {0.0, 0.125}
    to_the_end = found.observation[:, 0].astype(bool) & (found.discount == 0)
    assert to_the_end.sum() > 1
    assert (found.reward[to_the_end] == 0.25).all()


def test_prioritised_rows_are_those_with_an_error() -> None:
    """The share of a transition in the batches is its probability, and its weight undoes that."""
    trainer = collected(made(batch_size=40, prioritised=True, importance_exponent=0.5))
    assert trainer.priorities is not None
    trainer.priorities.follow(trainer.replay.sampleable)
    rows = np.arange(trainer.replay.sampleable.start, trainer.replay.sampleable.stop)
    errors = np.zeros(len(rows))
    errors[7] = 1.0
    trainer.priorities.update(rows, errors)
    transitions, batch = trainer._sample(1)
    share = (transitions.rows == 7).mean()
    small = len(rows) * (1e-6 / (1 + 1e-6)) ** 0.6
    assert abs(share - 1 / (1 + small)) < 0.05
    trainer.step = trainer.resolved.total_steps // 2
    assert trainer.importance_exponent == 0.75
    trainer.step = trainer.resolved.total_steps
    assert trainer.importance_exponent == 1.0
    assert float(batch.weights.max()) <= 1 / 40 + 1e-9


def test_errors_become_priorities() -> None:
    trainer = collected(made(batch_size=16, prioritised=True, updates=3, priority_exponent=0.9))
    assert trainer.priorities is not None
    updates = list(trainer._learn())
    assert len(updates) == 3
    state = trainer.priorities.state_dict()
    last = updates[-1].errors.abs().numpy()
    expected = (last.astype(np.float64) + 1e-6) ** 0.9
    assert np.isin(expected.astype(np.float32), state["priorities"]).mean() > 0.9


def test_what_may_not_be_learnt_has_no_priority() -> None:
    """Else it would be sampled again and again for nothing."""
    trainer = collected(made(batch_size=16, prioritised=True, updates=30))
    assert trainer.priorities is not None
    trainer.replay._columns["valid"][::2] = False
    list(trainer._learn())
    priorities = trainer.priorities.state_dict()["priorities"]
    assert (priorities[::2] <= 1.1e-6**0.6).mean() > 0.9
    assert (priorities[1::2] > 1.1e-6**0.6).all()


def test_metrics_are_means_over_what_is_learnt() -> None:
    trainer = collected(made(batch_size=16, updates=3))
    trainer.replay._columns["valid"][::2] = False
    learnt = list(trainer._learn())
    rows = [
        (value, abs(error))
        for update in learnt
        for value, error, weight in zip(
            update.values.tolist(), update.errors.tolist(), update.weights.tolist(), strict=True
        )
        if weight
    ]
    assert 0 < len(rows) < 48
    found = trainer._metrics(learnt)
    expected = np.mean(rows, axis=0)
    assert np.allclose([found["q_mean"], found["td_error"]], expected, rtol=1e-5)  # type: ignore[arg-type]
    assert math.isclose(
        found["loss"] or 0, np.mean([one.loss.item() for one in learnt]), rel_tol=1e-5
    )
    norms = [update.gradient_norm for update in learnt]
    assert math.isclose(found["gradient_norm"] or 0, float(np.mean(norms)))


def test_the_gradient_is_clipped_and_given_to_adam_as_asked_for() -> None:
    """Adam's first step is lr · g / (|g| + ε)."""
    trainer = collected(
        made(updates=1, max_gradient_norm=0.01, adam_epsilon=0.1, learning_rate=0.02)
    )
    trainer.compiled = None
    perturbed(trainer)
    before = [parameter.detach().clone() for parameter in trainer.network.parameters()]
    (update,) = trainer._learn()
    gradients = [parameter.grad for parameter in trainer.network.parameters()]
    assert update.gradient_norm > 0.1
    assert torch.cat([one.flatten() for one in gradients]).norm().item() == pytest.approx(
        0.01, rel=1e-3
    )
    for old, gradient, parameter in zip(
        before, gradients, trainer.network.parameters(), strict=True
    ):
        expected = old - 0.02 * gradient / (gradient.abs() + 0.1)
        assert torch.allclose(parameter, expected, atol=1e-6)


@pytest.mark.parametrize("largest", [1, 16, 40, 10_000])
def test_a_round_has_its_updates_however_they_are_sampled(
    largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agents.algorithms.dqn.LARGEST_SAMPLE", largest)
    trainer = collected(made(batch_size=16, updates=5))
    assert [len(update.values) for update in trainer._learn()] == [16] * 5


def test_the_networks_have_the_hidden_sizes_and_the_target_is_a_copy() -> None:
    trainer = made()
    trainer.close()
    assert [tuple(one.shape) for one in trainer.network.torso.parameters()] == [
        (8, 3), (8,), (8, 8), (8,),
    ]  # fmt: skip
    pairs = list(zip(trainer.network.parameters(), trainer.target.parameters(), strict=True))
    assert all(torch.equal(one, other) and one is not other for one, other in pairs)


def test_metrics_of_nothing_but_what_may_not_be_learnt() -> None:
    trainer = collected(made(batch_size=16))
    trainer.replay._columns["valid"][:] = False
    assert trainer._metrics(list(trainer._learn()))["q_mean"] is None


def test_what_may_not_be_learnt_has_no_weight() -> None:
    """Forced actions and lost episodes; the mean is that of the others."""
    trainer = collected(made(batch_size=16))
    trainer.replay._columns["valid"][::2] = False
    transitions, batch = trainer._sample(3)
    assert 0 < transitions.valid.mean() < 1
    assert ((batch.weights > 0).numpy() == transitions.valid).all()
    assert torch.allclose(batch.weights.view(3, 16).sum(dim=1), torch.ones(3))
    before = copy.deepcopy(trainer._sample(1)[1])
    trainer.replay._columns["valid"][:] = False
    _, nothing = trainer._sample(1)
    assert before.weights.sum() > 0 and nothing.weights.sum() == 0


def test_each_update_of_a_round_learns_rows_of_its_own() -> None:
    trainer = collected(made(batch_size=16, updates=3))
    trainer.compiled = None
    sample, update, sampled, learnt = trainer._sample, trainer._update, [], []

    def noted(count: int) -> Any:
        transitions, batch = sample(count)
        sampled.append(batch)
        return transitions, batch

    def looked(batch: Batch, target_values: Tensor) -> Any:
        learnt.append(batch)
        return update(batch, target_values)

    trainer._sample, trainer._update = noted, looked  # type: ignore[method-assign]
    assert len(list(trainer._learn())) == 3 and len(sampled) == 1
    assert torch.equal(torch.cat([one.encoded for one in learnt]), sampled[0].encoded)
    assert torch.equal(torch.cat([one.actions for one in learnt]), sampled[0].actions)


def test_acting_goes_on_with_the_weights_after_the_updates() -> None:
    """A frozen network of images holds copies of them."""
    trainer = collected(made(batch_size=16))
    before: Any = trainer.network.weight.detach().clone()
    trainer.network.frozen = lambda: trainer.network.weight.detach().clone()  # type: ignore[method-assign]
    list(trainer._learn())
    acting: Any = trainer.acting
    assert torch.equal(acting, trainer.network.weight) and not torch.equal(acting, before)
