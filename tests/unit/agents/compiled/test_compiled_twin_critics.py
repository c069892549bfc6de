"""Machine code learns what SAC and TD3 learn by torch, with every switch that it knows; where it would
not, torch goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from agents.algorithms import sac, td3
from agents.algorithms.sac import SACTrainer
from agents.algorithms.td3 import TD3Trainer
from agents.algorithms.twin_critic_learning import Batch
from agents.compiled.fast_twin_critics import rows_to_compare
from agents.interfaces import Progress, State
from agents.networks.twin_critics import DeterministicActorCritic, TwinCritics
from config.errors import Diverged
from config.resolve import resolve

SHORT = {
    "epochs": "2", "epoch_steps": "30", "learning_starts": "10", "batch_size": "70", "replay_size": "1000", "hidden_sizes": "64,32",
}  # fmt: skip
TRAINERS: dict[str, Any] = {"sac": SACTrainer, "td3": TD3Trainer}
ODD = {"hidden_sizes": "17,5,33", "normalise_observations": "true", "learning_starts": "30"}
ONE_LAYER = {"hidden_sizes": "24", "anneal_learning_rate": "true"}
SWITCHES: dict[str, tuple[str, dict[str, str]]] = {
    "sac": ("sac", {}),
    "sac, a fixed temperature": ("sac", {"alpha": "0.2"}),
    "td3": ("td3", {}),
    "td3, much noise at every update": (
        "td3",
        {"policy_delay": "1", "target_noise": "0.9", "target_noise_clip": "0.7"},
    ),
    "sac, odd layers, observations": ("sac", ODD),
    "sac, one layer, annealed": ("sac", ONE_LAYER),
    "sac, wide layers": ("sac", {"hidden_sizes": "256,256", "batch_size": "256"}),
    "td3, odd layers, observations": ("td3", ODD),
    "td3, one layer, annealed": ("td3", ONE_LAYER),
    "td3, wide layers": ("td3", {"hidden_sizes": "400,300", "batch_size": "256"}),
}
FIRST = ["sac", "td3"]
OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in SWITCHES if name not in FIRST]
both = pytest.mark.parametrize("algorithm", TRAINERS)


def made(algorithm: str, given: dict[str, str], kind: Any = None) -> Any:
    resolved = resolve(algorithm, {"game": "pendulum"} | SHORT | given)
    return (kind or TRAINERS[algorithm])(resolved, run=0, device="cpu", precision="fp32")


@pytest.mark.parametrize("switch", [*FIRST, *OTHERS])
def test_gradients_are_those_of_autograd(switch: str) -> None:
    trainer = made(*SWITCHES[switch])
    compiled, network = trainer.compiled, trainer.network
    assert compiled is not None
    with torch.no_grad():
        # SAC's log σ beyond both of its bounds, and within; TD3's actions near to both of theirs.
        network.actor.get_parameter(f"bias{len(network.actor._layers)}")[..., -1] = 2.0
        for slow in network.targets:
            slow *= 1.5
    generator = torch.Generator().manual_seed(5)
    for rows in (1, 66):
        batch, noise = rows_to_compare(trainer, Batch, rows, generator)
        found = compiled.gradients(batch, noise)
        for name, (expected, numbers) in compiled.gradients_by_torch(batch, noise).items():
            np.testing.assert_allclose(found[name][1], numbers, rtol=1e-5, atol=1e-6)
            norm = float(np.linalg.norm(expected))
            assert norm > 0
            np.testing.assert_allclose(found[name][0], expected, atol=2e-6 * norm)
    trainer.close()


def said(trainer: Any) -> tuple[list[Progress], State]:
    progress = list(trainer.train())
    rows = torch.ones(2, trainer.spaces.observation_size)
    torch.testing.assert_close(trainer.policy(rows), trainer.network.policy(rows).detach())
    state = trainer.state_dict()
    trainer.close()
    return progress, state


@pytest.mark.parametrize("switch", [*FIRST, *OTHERS])
def test_a_training_is_that_of_torch_up_to_rounding(switch: str) -> None:
    trainer, by_torch = made(*SWITCHES[switch]), made(*SWITCHES[switch])
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
    if "log_alpha" in expected:
        assert state["log_alpha"] == pytest.approx(expected["log_alpha"], abs=1e-5)
    for name, weights in expected["network"].items():
        np.testing.assert_allclose(state["network"][name], weights, atol=3e-4)
    for name, optimiser in expected["optimisers"].items():
        assert state["optimisers"][name]["updates"] == optimiser["updates"]
        for number, moment in optimiser["moments_2"].items():
            ours_2 = state["optimisers"][name]["moments_2"][number]
            np.testing.assert_allclose(ours_2, moment, rtol=0.02, atol=1e-7)


class DoubledSAC(SACTrainer):
    def _critics_loss(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        loss, *others = super()._critics_loss(*inputs)
        return 2 * loss, *others


class DoubledTD3(TD3Trainer):
    def _actor_loss(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return (2 * super()._actor_loss(*inputs)[0],)


@pytest.mark.parametrize("kind", [DoubledSAC, DoubledTD3])
def test_torch_goes_on_for_another_class(kind: Any, caplog: pytest.LogCaptureFixture) -> None:
    trainer = made("sac" if kind is DoubledSAC else "td3", {}, kind)
    trainer.close()
    assert trainer.compiled is None
    assert not caplog.messages


def scaled(name: str, page: Any) -> tuple[Any, str, Callable[..., Any]]:
    original = getattr(page, name)
    return page, name, lambda *given: 1.01 * original(*given)


OTHER_PAGES: dict[str, tuple[str, tuple[Any, str, Callable[..., Any]]]] = {
    "sac's critics": ("sac", scaled("critics_loss", sac)),
    "sac's policy": ("sac", scaled("actor_loss", sac)),
    "the temperature": ("sac", scaled("temperature_loss", sac)),
    "sac's targets": ("sac", (TwinCritics, "target_values", TwinCritics.values)),
    "td3's critics": ("td3", scaled("critics_loss", td3)),
    "td3's policy": ("td3", scaled("actor_loss", td3)),
    "td3's targets": ("td3", (TwinCritics, "target_values", TwinCritics.values)),
    "the policy of td3's targets": (
        "td3",
        (DeterministicActorCritic, "target_policy", TwinCritics.policy),
    ),
    "noise that is not cut": (
        "td3",
        (td3, "smoothed", lambda actions, noise, **_: (actions + 0.2 * noise).clamp(-1, 1)),
    ),
    "noisy actions that are not cut": (
        "td3",
        (td3, "smoothed", lambda actions, noise, **_: actions + (0.2 * noise).clamp(-0.5, 0.5)),
    ),
}


@pytest.mark.parametrize("what", OTHER_PAGES)
def test_torch_goes_on_for_a_page_that_computes_something_else(
    what: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    algorithm, change = OTHER_PAGES[what]
    monkeypatch.setattr(*change)
    trainer = made(algorithm, {})
    assert trainer.compiled is None
    (line,) = caplog.messages
    assert "differs from autograd's" in line and "torch goes on" in line
    assert next(trainer.train()).epoch == 1
    trainer.close()


@both
def test_a_comparison_changes_nothing(algorithm: str) -> None:
    trainer = made(algorithm, {})
    trainer.close()
    before = {name: one.clone() for name, one in trainer.network.state_dict().items()}
    assert trainer.compiled.difference(Batch, 9) == ""
    assert all(torch.equal(one, before[name]) for name, one in trainer.network.state_dict().items())
    for slow, fast in zip(trainer.network.targets, trainer.network.followed, strict=True):
        assert torch.equal(slow, fast)


@both
@pytest.mark.parametrize("part", ["critics", "actor"])
def test_a_step_that_is_not_finite_is_not_made(part: str, algorithm: str) -> None:
    trainer = made(algorithm, {"policy_delay": "1"} if algorithm == "td3" else {})
    next(trainer.train())
    batch = trainer._batch()
    if part == "critics":
        batch.rewards[66] = np.inf
    else:
        # Of the policy alone: the targets come from its slow copy, or from other noise.
        noise = trainer._noise(2, 70, 1)
        noise[0, 66] = np.nan
        if algorithm == "sac":
            trainer._noise = lambda *shape: noise
        else:
            trainer.network.actor.bias3.data[:] = np.nan
    trainer._batch = lambda: batch
    before = trainer.state_dict()
    with pytest.raises(Diverged, match=f"gradient of the {part} is not finite in epoch 2"):
        trainer._update()
    after = trainer.state_dict()
    trainer.close()
    for name, optimiser in after["optimisers"].items():
        stepped = part == "actor" and name == "critics"
        assert optimiser["updates"] == before["optimisers"][name]["updates"] + stepped
    for name, weights in before["network"].items():
        changed = part == "actor" and name.startswith("critics")
        assert np.array_equal(weights, after["network"][name], equal_nan=True) != changed, name
        assert np.isfinite(after["network"][name]).all() or name == "actor.bias3"
