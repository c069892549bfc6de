"""What a tape repeats is what autograd finds, to the last bit; what it cannot repeat it leaves to
autograd."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from agents.algorithms.ppo import PPOTrainer
from agents.optimisation.tape import FORGOTTEN, GradientTape, _Recorder
from config.resolve import resolve

COPY = "tests.lab_environments:Copy"
SHORT = {"epochs": "3", "num_envs": "4", "rollout_length": "16", "update_epochs": "3"}


class Small:
    """A network and a loss; `calls` counts how often its Python runs."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.network = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
        self.calls = 0

    def tape(self, *, recorded: bool = True) -> GradientTape:
        return GradientTape(self.loss, self.network.parameters(), recorded=recorded)

    def loss(self, rows: Tensor, scale: Tensor, weights: Tensor | None) -> tuple[Tensor, ...]:
        self.calls += 1
        outputs = self.network(rows) * scale
        errors = outputs if weights is None else outputs * weights
        return errors.square().mean(), outputs


def gradients(network: nn.Module) -> list[Tensor]:
    return [one.grad.clone() for one in network.parameters() if one.grad is not None]


def inputs(count: int, seed: int) -> tuple[Tensor, Tensor, None]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 3, generator=generator), torch.tensor(1.5 + seed), None


def test_other_numbers_and_other_weights_give_what_autograd_gives() -> None:
    small = Small()
    tape, reference = small.tape(), small.tape(recorded=False)
    for seed in range(4):
        found, now = tape(*inputs(6, seed)), gradients(small.network)
        expected = reference(*inputs(6, seed))
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
        assert not any(one.requires_grad for one in found)
        assert len(now) == 4
        assert all(torch.equal(a, b) for a, b in zip(now, gradients(small.network), strict=True))
        with torch.no_grad():
            for parameter in small.network.parameters():
                parameter.add_(0.1)
    assert small.calls == 2 + 1 + 4, "recorded, checked, and by the reference"


def test_every_shape_is_recorded_once() -> None:
    small = Small()
    tape = small.tape()
    for seed, count in enumerate((6, 5, 6, 5, 6, 5)):
        assert tape(*inputs(count, seed))[1].shape == (count, 2)
    assert small.calls == 2 * 3
    weights = torch.rand(6, 2)
    for seed in (1, 2):
        tape(*inputs(6, seed)[:2], weights)
    (loss, _), now = tape(*inputs(6, 0)[:2], weights), gradients(small.network)
    assert small.calls == 3 * 3
    expected, _ = small.tape(recorded=False)(*inputs(6, 0)[:2], weights)
    assert torch.equal(loss, expected)
    assert all(torch.equal(a, b) for a, b in zip(now, gradients(small.network), strict=True))


def test_gradients_of_before_are_not_added_to_nor_changed() -> None:
    small = Small()
    tape = small.tape()
    for recorded in (tape, tape, tape, small.tape(recorded=False)):
        recorded(*inputs(6, 0))
        first = gradients(small.network)
        for one in small.network.parameters():
            assert one.grad is not None
            one.grad.mul_(7)  # as clipping does
        recorded(*inputs(6, 0))
        again = gradients(small.network)
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def with_noise(network: nn.Module, rows: Tensor) -> tuple[Tensor, ...]:
    return (network(rows).sum() * torch.rand(()),)


def through_numpy(network: nn.Module, rows: Tensor) -> tuple[Tensor, ...]:
    return (network(rows).sum() * torch.from_numpy(rows.numpy() * 2).sum(),)


def with_an_if(network: nn.Module, rows: Tensor) -> tuple[Tensor, ...]:
    return (network(rows).sum() * (2 if float(rows.sum()) > 0 else 3),)


@pytest.mark.parametrize("loss", [with_noise, through_numpy, with_an_if])
def test_what_cannot_be_repeated_is_left_to_autograd(loss: Any) -> None:
    small, called = Small(), list[Tensor]()

    def counted(rows: Tensor) -> tuple[Tensor, ...]:
        called.append(rows)
        found: tuple[Tensor, ...] = loss(small.network, rows)
        return found

    tape = GradientTape(counted, small.network.parameters(), recorded=True)
    for seed in range(4):
        called.clear()
        tape(inputs(6, seed)[0])
        assert called, "the function itself was asked"


def test_what_the_recorder_does_not_see_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a torch would that hides how autograd keeps its tensors: they were taken for constants."""
    see = _Recorder.__torch_dispatch__

    def half_blind(
        recorder: Any, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        seen = len(recorder.calls)
        result = see(recorder, operation, types, args, kwargs)
        if operation._schema.name in FORGOTTEN:
            del recorder.calls[seen:]
        return result

    monkeypatch.setattr(_Recorder, "__torch_dispatch__", half_blind)
    small = Small()
    tape, reference = small.tape(), small.tape(recorded=False)
    for seed in range(4):
        tape(*inputs(6, seed))
        now = gradients(small.network)
        reference(*inputs(6, seed))
        assert all(torch.equal(a, b) for a, b in zip(now, gradients(small.network), strict=True))


def test_one_tensor_as_two_inputs() -> None:
    small = Small()

    def loss(one: Tensor, other: Tensor) -> tuple[Tensor, ...]:
        return ((small.network(one) * small.network(other).exp()).sum(),)

    tape = GradientTape(loss, small.network.parameters(), recorded=True)
    a, b = inputs(6, 0)[0], inputs(6, 1)[0]
    for pair in ((a, a), (a, b), (b, a)):
        assert torch.equal(tape(*pair)[0], loss(*pair)[0].detach())


def test_what_another_torch_does_not_take_is_left_to_autograd(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "agents.optimisation.tape.METHODS", {"tanh": lambda: None, "t": lambda: None}
    )
    monkeypatch.delattr(torch, "t")
    small = Small()
    tape = small.tape()
    for seed in range(3):
        tape(*inputs(6, seed))
    assert small.calls == 2 + 2


def test_a_weight_that_the_loss_does_not_know_is_left_to_autograd() -> None:
    small, unused = Small(), nn.Parameter(torch.ones(2))
    tape = GradientTape(small.loss, [*small.network.parameters(), unused], recorded=True)
    for _ in range(2):
        tape(*inputs(6, 0))
        assert unused.grad is None and len(gradients(small.network)) == 4


KINDS: dict[str, dict[str, str]] = {
    "discrete": {"game": "cartpole"},
    "continuous, clipped values, entropy": {
        "game": "pendulum", "clip_value_loss": "true", "entropy_coefficient": "0.02",
    },
    "annealed clip, one minibatch": {
        "game": "cartpole", "minibatches": "1", "anneal_clip": "true",
    },
    "several actions": {"game": COPY, "env_options": "seen=bool,acts=multi-discrete"},
    "masks": {"game": "tests.lab_environments:Locks", "env_options": "where=info,acts=one"},
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_training_with_it_is_the_training_without_it(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rows(KINDS[kind], True, monkeypatch) == rows(KINDS[kind], False, monkeypatch)


def rows(given: dict[str, str], recorded: bool, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a training says of every epoch, and its weights."""
    trainer = PPOTrainer(resolve("ppo", SHORT | given), run=0, device="cpu", precision="fp32")
    trainer.compiled = None
    trainer.gradients = GradientTape(trainer._loss, trainer.network.parameters(), recorded=recorded)
    said = [repr(progress) for progress in trainer.train()]
    replays: list[Any] = list(trainer.gradients._replays.values())
    assert bool(replays) == recorded
    assert all(replay.checked for replay in replays), "each was recorded and used"
    trainer.close()
    weights = nn.utils.parameters_to_vector(trainer.network.parameters())
    return [*said, str(weights.tolist())]


def test_small_networks_of_ours_are_recorded_and_no_others() -> None:
    found = {}
    for game in ("cartpole", "breakout"):
        trainer = PPOTrainer(
            resolve("ppo", {"game": game, "num_envs": "1", "rollout_length": "8"}),
            run=0, device="cpu", precision="fp32",
        )  # fmt: skip
        found[game] = trainer.network.is_small
        trainer.close()
    assert found == {"cartpole": True, "breakout": False}
