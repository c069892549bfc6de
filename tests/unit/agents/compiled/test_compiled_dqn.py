"""Machine code learns what DQN learns by torch, with every switch that it knows; where it would not,
torch goes on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from agents.algorithms import dqn
from agents.algorithms.dqn import Batch, DQNTrainer, huber
from agents.compiled.fast_dqn import rows_to_compare
from agents.compiled.side_by_side import gradients_side_by_side
from agents.interfaces import Progress, State
from config.errors import Diverged
from config.resolve import resolve

LOCKS = {"game": "tests.lab_environments:Locks", "env_options": "where=info,acts=one"}
SHORT = {
    "num_envs": "2", "epochs": "3", "epoch_steps": "100", "learning_starts": "50", "train_every": "20", "updates": "7",
    "target_every": "20", "batch_size": "70", "replay_size": "1000", "learning_rate": "0.001", "anneal_learning_rate": "true",
    "hidden_sizes": "64,32", "exploration_fraction": "0.5", "double": "true", "n_step": "3",
}  # fmt: skip
SWITCHES: dict[str, dict[str, str]] = {
    "as it is": {},
    "single": {"double": "false", "n_step": "1"},
    "prioritised": {"prioritised": "true", "updates": "3"},
    "odd layers, a small norm": {"hidden_sizes": "17,5,33", "max_gradient_norm": "0.1"},
    "one layer, observations": {
        "hidden_sizes": "24",
        "normalise_observations": "true",
        "learning_starts": "100",
    },
    "masks": {**LOCKS, "normalise_observations": "false"},
}
OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in list(SWITCHES)[2:]]


def made(given: dict[str, str], kind: type[DQNTrainer] = DQNTrainer) -> DQNTrainer:
    resolved = resolve("dqn", {"game": "cartpole"} | SHORT | given)
    return kind(resolved, run=0, device="cpu", precision="fp32")


@pytest.mark.parametrize("switch", ["as it is", "single", *OTHERS])
def test_gradients_are_those_of_autograd(switch: str) -> None:
    trainer = made(SWITCHES[switch])
    assert trainer.compiled is not None
    for rows in (1, 70, 130):
        batch = rows_to_compare(trainer, Batch, rows, 5)
        with torch.no_grad():
            target_values = trainer.target(batch.next_encoded)
        targets = trainer._targets(batch, target_values)
        outputs = trainer._loss(batch.encoded, batch.actions, targets, batch.weights)
        outputs[0].backward()  # type: ignore[no-untyped-call]
        expected = gradients_side_by_side(list(trainer.network.parameters()))
        gradient, loss, errors, values = trainer.compiled.gradients(batch)
        for ours, theirs in zip((loss, errors, values), outputs, strict=True):
            np.testing.assert_allclose(ours, theirs.numpy(force=True), rtol=1e-5, atol=1e-6)
        norm = float(np.linalg.norm(expected))
        np.testing.assert_allclose(gradient, expected, atol=1e-6 * norm)
    trainer.close()


def said(trainer: DQNTrainer) -> tuple[list[Progress], State]:
    progress = list(trainer.train())
    state = trainer.state_dict()
    trainer.close()
    return progress, state


@pytest.mark.parametrize("switch", ["as it is", *OTHERS])
def test_a_training_is_that_of_torch_up_to_rounding(switch: str) -> None:
    trainer, by_torch = made(SWITCHES[switch]), made(SWITCHES[switch])
    assert trainer.compiled is not None
    by_torch.compiled = None
    (ours, state), (theirs, expected) = said(trainer), said(by_torch)
    for one, other in zip(ours, theirs, strict=True):
        assert (one.step, one.returns, one.lengths) == (other.step, other.returns, other.lengths)
        assert one.metrics.keys() == other.metrics.keys()
        for name, value in other.metrics.items():
            near = None if value is None else pytest.approx(value, rel=2e-3, abs=2e-4)
            assert one.metrics[name] == near, name
    assert state["optimiser"]["updates"] == expected["optimiser"]["updates"] > 10
    assert state["generators"] == expected["generators"]
    for part in ("network", "target"):
        for name, weights in expected[part].items():
            np.testing.assert_allclose(state[part][name], weights, atol=3e-4)


class Doubled(DQNTrainer):
    def _loss(self, *inputs: Any) -> tuple[torch.Tensor, ...]:
        loss, *others = super()._loss(*inputs)
        return 2 * loss, *others


def test_torch_goes_on_for_what_is_not_known(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert made({}, Doubled).compiled is None, "another class"
    assert made({"dueling": "true"}).compiled is None
    assert made({"quantiles": "5"}).compiled is None
    assert not caplog.messages
    monkeypatch.setattr(dqn, "huber", lambda *given: 1.01 * huber(*given))
    trainer = made({})
    assert trainer.compiled is None
    (line,) = caplog.messages
    assert "the compiled gradient differs from autograd's" in line and "torch goes on" in line
    assert next(trainer.train()).epoch == 1


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_an_update_that_is_not_finite_is_not_made(number: float) -> None:
    trainer = made({})
    next(trainer.train())
    sample = trainer._sample

    def spoilt(count: int) -> Any:
        transitions, batch = sample(count)
        batch.rewards[3 * 70 + 5] = number
        return transitions, batch

    trainer._sample = spoilt  # type: ignore[method-assign]
    before = trainer.state_dict()
    with pytest.raises(Diverged, match=r"loss or gradient is not finite in epoch 2, .* 70 trans"):
        list(trainer._learn())
    after = trainer.state_dict()
    assert after["optimiser"]["updates"] == before["optimiser"]["updates"] + 3
    assert all(np.isfinite(one).all() for one in after["network"].values())
