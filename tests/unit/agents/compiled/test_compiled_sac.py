"""Machine code learns what SAC learns by torch, with every switch that it knows; where it would not,
torch goes on."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from agents.algorithms import sac
from agents.algorithms.sac import SACTrainer
from agents.algorithms.twin_critic_learning import Batch
from agents.compiled.fast_sac import rows_to_compare
from agents.compiled.side_by_side import gradients_side_by_side
from agents.interfaces import Progress, State
from config.errors import Diverged
from config.resolve import resolve

SHORT = {
    "epochs": "2", "epoch_steps": "30", "learning_starts": "10", "batch_size": "70", "replay_size": "1000", "hidden_sizes": "64,32",
}  # fmt: skip
SWITCHES: dict[str, dict[str, str]] = {
    "as it is": {},
    "a fixed temperature": {"alpha": "0.2"},
    "odd layers, observations": {
        "hidden_sizes": "17,5,33",
        "normalise_observations": "true",
        "learning_starts": "30",
    },
    "one layer, annealed": {"hidden_sizes": "24", "anneal_learning_rate": "true"},
    "a wide layer": {"hidden_sizes": "256,256", "batch_size": "256"},
}
OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in list(SWITCHES)[2:]]


def made(given: dict[str, str], kind: type[SACTrainer] = SACTrainer) -> SACTrainer:
    resolved = resolve("sac", {"game": "pendulum"} | SHORT | given)
    return kind(resolved, run=0, device="cpu", precision="fp32")


@pytest.mark.parametrize("switch", ["as it is", *OTHERS])
def test_gradients_are_those_of_autograd(switch: str) -> None:
    trainer = made(SWITCHES[switch])
    assert trainer.compiled is not None
    network, alpha = trainer.network, torch.tensor(0.3)
    with torch.no_grad():
        # log σ beyond both of its bounds, and within.
        network.actor.get_parameter(f"bias{len(network.actor._layers)}")[..., 1] = 2.0
    for rows in (1, 66):
        batch, noise = rows_to_compare(trainer, Batch, rows, 5)
        found = trainer.compiled.gradients(batch, noise, float(alpha))
        targets = trainer._targets(batch, noise[1], alpha)
        losses = {
            "critics": trainer._critics_loss(batch.encoded, batch.actions, targets, batch.weights),
            "actor": trainer._actor_loss(batch.encoded, noise[0], alpha),
        }
        for name, outputs in losses.items():
            parameters = list(getattr(network, name).parameters())
            for parameter in parameters:
                parameter.grad = None
            outputs[0].backward()  # type: ignore[no-untyped-call]
            expected = gradients_side_by_side(parameters)
            gradient, numbers = found[name]
            np.testing.assert_allclose(numbers, torch.stack(outputs).detach(), rtol=1e-5, atol=1e-6)
            norm = float(np.linalg.norm(expected))
            np.testing.assert_allclose(gradient, expected, atol=2e-6 * norm)
    trainer.close()


def said(trainer: SACTrainer) -> tuple[list[Progress], State]:
    progress = list(trainer.train())
    state = trainer.state_dict()
    trainer.close()
    return progress, state


@pytest.mark.parametrize("switch", ["as it is", "a fixed temperature", *OTHERS])
def test_a_training_is_that_of_torch_up_to_rounding(switch: str) -> None:
    trainer, by_torch = made(SWITCHES[switch]), made(SWITCHES[switch])
    assert trainer.compiled is not None
    by_torch.compiled = None
    (ours, state), (theirs, expected) = said(trainer), said(by_torch)
    for one, other in zip(ours, theirs, strict=True):
        assert (one.step, one.lengths) == (other.step, other.lengths)
        assert one.metrics.keys() == other.metrics.keys()
        for name, value in other.metrics.items():
            near = None if value is None else pytest.approx(value, rel=2e-3, abs=2e-4)
            assert one.metrics[name] == near, name
    assert state["generators"] == expected["generators"]
    assert state["log_alpha"] == pytest.approx(expected["log_alpha"], abs=1e-5)
    for name, weights in expected["network"].items():
        np.testing.assert_allclose(state["network"][name], weights, atol=3e-4)
    for name, optimiser in expected["optimisers"].items():
        assert state["optimisers"][name]["updates"] == optimiser["updates"]
        for number, moment in optimiser["moments_2"].items():
            ours_2 = state["optimisers"][name]["moments_2"][number]
            np.testing.assert_allclose(ours_2, moment, rtol=0.02, atol=1e-7)


class Doubled(SACTrainer):
    def _critics_loss(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        loss, *others = super()._critics_loss(*inputs)
        return 2 * loss, *others


@pytest.mark.parametrize("part", ["critics_loss", "actor_loss", "temperature_loss"])
def test_torch_goes_on_for_a_loss_that_is_not_ours(
    part: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert made({}, Doubled).compiled is None, "another class"
    assert not caplog.messages
    original = getattr(sac, part)
    monkeypatch.setattr(sac, part, lambda *given: 1.01 * original(*given))
    trainer = made({})
    assert trainer.compiled is None
    (line,) = caplog.messages
    assert "differs from autograd's" in line and "torch goes on" in line
    assert next(trainer.train()).epoch == 1


@pytest.mark.parametrize(("part", "column"), [("critics", "rewards"), ("actor", "noise")])
def test_a_step_that_is_not_finite_is_not_made(part: str, column: str) -> None:
    trainer = made({})
    next(trainer.train())
    batch, noise = trainer._batch(), trainer._noise(2, 70, 1)
    if column == "rewards":
        batch.rewards[66] = np.inf
    else:
        noise[0, 66] = np.nan
    trainer._batch = lambda: batch  # type: ignore[method-assign]
    trainer._noise = lambda *shape: noise  # type: ignore[method-assign]
    before = trainer.state_dict()
    with pytest.raises(Diverged, match=f"gradient of the {part} is not finite in epoch 2"):
        trainer._update()
    after = trainer.state_dict()
    made_before = {name: one["updates"] for name, one in before["optimisers"].items()}
    for name, optimiser in after["optimisers"].items():
        stepped = part == "actor" and name == "critics"
        assert optimiser["updates"] == made_before[name] + stepped
    assert all(np.isfinite(one).all() for one in after["network"].values())
    for name, weights in before["network"].items():
        changed = part == "actor" and name.startswith("critics")
        assert np.array_equal(weights, after["network"][name]) != changed, name
