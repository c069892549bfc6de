"""Machine code learns and collects what torch learns and collects, on every kind of actions and with every
switch; where it would not, torch goes on."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from torch import Tensor

from agents.algorithms import ppo
from agents.algorithms.ppo import PPOTrainer, clipped_objective
from agents.compiled import dense
from agents.compiled.dense import START
from agents.compiled.fast_ppo import rows_to_compare
from agents.compiled.lanes import pointer
from agents.environments.vectors import CartPoles
from config.errors import Diverged
from config.resolve import resolve

COPY = "tests.lab_environments:Copy"
SHORT = {"epochs": "3", "num_envs": "4", "rollout_length": "16", "update_epochs": "3"}
KINDS: dict[str, dict[str, str]] = {
    "discrete": {"game": "cartpole"},
    "continuous": {"game": "pendulum"},
    "several": {"game": COPY, "env_options": "seen=bool,acts=multi-discrete"},
    "masks": {"game": "tests.lab_environments:Locks", "env_options": "where=info,acts=one"},
}
SWITCHES: dict[str, dict[str, str]] = {
    "as it is": {},
    "clipped values, no entropy": {"clip_value_loss": "true", "entropy_coefficient": "0"},
    "one minibatch, annealed": {"minibatches": "1", "anneal_clip": "true"},
    "raw advantages, a small norm": {"normalise_advantages": "false", "max_gradient_norm": "0.01"},
    "observations": {"normalise_observations": "true", "normalise_rewards": "true"},
    "rmsprop": {"optimiser": "rmsprop"},
    "odd layers": {"hidden_sizes": "17,33,5"},
}


def made(given: dict[str, str], kind: type[PPOTrainer] = PPOTrainer) -> PPOTrainer:
    return kind(resolve("ppo", SHORT | given), run=0, device="cpu", precision="fp32")


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_autograd(kind: str) -> None:
    for switches in ({}, {"clip_value_loss": "true", "hidden_sizes": "17,33,5"}):
        trainer = made(KINDS[kind] | {"entropy_coefficient": "0.1"} | switches)
        assert trainer.compiled is not None
        for rows in (1, 70):
            batch = rows_to_compare(trainer, rows, 0.2)
            found, log_ratio, parts = trainer.compiled.gradients(batch, 0.2)
            inputs: tuple[Any, ...] = (*batch, torch.tensor(0.2))
            loss, expected_ratio, expected_parts = trainer._loss(*inputs)
            expected = torch.autograd.grad(loss, list(trainer.network.parameters()))
            np.testing.assert_allclose(log_ratio, expected_ratio.numpy(force=True), atol=2e-6)
            np.testing.assert_allclose(parts, expected_parts.numpy(force=True), rtol=1e-5)
            norm = float(torch.cat([one.flatten() for one in expected]).norm())
            assert np.isclose(np.linalg.norm(found), norm, rtol=1e-5)
            for place, gradient in zip(trainer.compiled._begins.values(), expected, strict=True):
                ours = found[place : place + gradient.numel()].reshape(gradient.shape)
                np.testing.assert_allclose(ours, gradient.numpy(), atol=1e-6 * max(norm, 1))
        trainer.close()


FURTHER = [pytest.param(name, marks=pytest.mark.slow) for name in list(SWITCHES)[1:]]


@pytest.mark.parametrize("switch", ["as it is", *FURTHER])
@pytest.mark.parametrize("kind", KINDS)
def test_a_training_is_that_of_torch_up_to_rounding(kind: str, switch: str) -> None:
    said = {}
    for compiled in (True, False):
        trainer = made(KINDS[kind] | SWITCHES[switch])
        assert trainer.compiled is not None
        if not compiled:
            trainer.compiled = None
        progress = [next(trainer.train()) for _ in range(2)]
        said[compiled] = (progress, trainer.state_dict())
        trainer.close()
    (ours, state), (theirs, expected) = said[True], said[False]
    for one, other in zip(ours, theirs, strict=True):
        assert (one.step, one.returns, one.lengths) == (other.step, other.returns, other.lengths)
        for name, value in other.metrics.items():
            assert one.metrics[name] == pytest.approx(value, rel=2e-3, abs=2e-4), name
    for name, weights in expected["network"].items():
        np.testing.assert_allclose(state["network"][name], weights, atol=2e-4)
    assert state["optimiser"].keys() == expected["optimiser"].keys()
    assert state["optimiser"].get("updates") == expected["optimiser"].get("updates")
    for name in ("generators", "environments"):
        for part, array in expected[name].items():
            # What a pendulum does, and what is done to it, are real numbers.
            np.testing.assert_allclose(state[name][part], array, rtol=1e-3, atol=1e-4)


def test_a_rollout_of_cartpoles_is_that_of_gymnasium() -> None:
    """Episodes that end, episodes that are cut, and observations normalised."""
    columns = []
    for compiled in (True, False):
        trainer = made(
            {"game": "cartpole", "rollout_length": "128", "normalise_observations": "true"}
        )
        made_poles = trainer.environments.cartpoles
        assert trainer.compiled is not None and made_poles is not None
        made_poles.max_episode_steps = 25
        trainer._warm_up()
        if not compiled:
            trainer.compiled = None
        trainer._collect()
        columns.append((trainer.rollout, trainer.environments.state_dict()))
        trainer.close()
    (ours, state), (theirs, expected) = columns
    assert ours.truncated.any() and (ours.terminated & ~ours.truncated).any()
    for name in ("actions", "observations", "rewards", "terminated", "truncated", "valid"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
    for name in ("encoded", "values", "policy", "next_values"):
        found, wanted = np.asarray(getattr(ours, name)), np.asarray(getattr(theirs, name))
        np.testing.assert_allclose(found, wanted, atol=2e-6)
    for name, array in expected.items():
        np.testing.assert_array_equal(state[name], array)


class Doubled(PPOTrainer):
    def _loss(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        loss, log_ratio, parts = super()._loss(*inputs)
        return 2 * loss, log_ratio, parts


def test_torch_goes_on_for_a_loss_that_is_not_ours(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert made({"game": "cartpole"}, Doubled).compiled is None, "another class"
    assert not caplog.messages
    monkeypatch.setattr(ppo, "clipped_objective", lambda *given: 1.01 * clipped_objective(*given))
    trainer = made({"game": "cartpole"})
    assert trainer.compiled is None
    (line,) = caplog.messages
    assert "the compiled gradient differs from autograd's" in line and "torch goes on" in line
    assert next(trainer.train()).epoch == 1


def test_gymnasium_goes_on_where_its_steps_are_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(CartPoles, "step", step_with_other_rewards)
    trainer = made({"game": "cartpole"})
    assert trainer.compiled is not None and not trainer.compiled.fill_rollout()
    assert "do not step as gymnasium's" in caplog.text
    assert next(trainer.train()).step == 64


def step_with_other_rewards(made_poles: CartPoles, actions: np.ndarray) -> Any:
    observation, reward, *rest = CartPoleVectorEnv.step(made_poles, actions)
    return observation, 2 * reward, *rest


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_an_update_that_is_not_finite_is_not_made(number: float) -> None:
    trainer = made({"game": "pendulum", "minibatches": "4"})
    trainer._collect()
    batch = trainer._batch()
    # One of the first four updates is the first one that would learn from it.
    batch.returns[:] = torch.where(torch.arange(64) == 7, number, batch.returns)
    before = trainer.state_dict()["network"]
    with pytest.raises(Diverged, match=r"loss or gradient is not finite in epoch 1, after step 64"):
        trainer._learn(batch, 1.0)
    after = trainer.state_dict()
    assert all(np.isfinite(one).all() for one in after["network"].values())
    assert after["optimiser"]["updates"] < 4
    changed = any(not np.array_equal(after["network"][name], before[name]) for name in before)
    assert changed == (after["optimiser"]["updates"] > 0)


def test_tanh_is_exact_to_3e_7_and_keeps_nan() -> None:
    @numba.njit
    def of(numbers: np.ndarray) -> None:
        dense.tanh(pointer(numbers), START, len(numbers))

    numbers = np.linspace(-10, 10, 2**20).astype(np.float32)
    found = numbers.copy()
    of(found)
    assert np.abs(found - np.tanh(numbers.astype(np.float64))).max() < 3e-7
    odd = np.array([np.nan, np.inf, -np.inf] + 13 * [0], np.float32)
    of(odd)
    assert np.isnan(odd[0]) and odd[1:3].tolist() == pytest.approx([1, -1], abs=3e-7)
