"""Some updates of TD3 beside those of the Stable-Baselines3 that is installed: from the same weights, on the
same transitions, by the same noise, they end with the same weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from agents.algorithms.td3 import TD3Trainer
from agents.algorithms.twin_critic_learning import Batch
from agents.networks.twin_critics import Perceptrons
from config.resolve import resolve

baselines = pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")

UPDATES, ROWS = 6, 16
SMALL = {
    "game": "pendulum", "hidden_sizes": "8,6", "batch_size": str(ROWS), "target_rate": "0.2",
    "policy_delay": "3", "target_noise": "0.4", "outdir": "/x",
}  # fmt: skip


def copy(ours: Perceptrons, number: int, theirs: nn.Sequential) -> None:
    """Our weights into their layers."""
    linears = [layer for layer in theirs if isinstance(layer, nn.Linear)]
    for layer, linear in enumerate(linears, start=1):
        weight, bias = (getattr(ours, f"{kind}{layer}")[number] for kind in ("weight", "bias"))
        linear.load_state_dict({"weight": weight.T.clone(), "bias": bias[0].clone()})


def difference(ours: Perceptrons, number: int, theirs: nn.Sequential) -> float:
    """The largest one between two weights."""
    linears = [layer for layer in theirs if isinstance(layer, nn.Linear)]
    found = list[Tensor]()
    for layer, linear in enumerate(linears, start=1):
        weight, bias = (getattr(ours, f"{kind}{layer}")[number] for kind in ("weight", "bias"))
        found += [(weight.T - linear.weight).abs().max(), (bias[0] - linear.bias).abs().max()]
    return max(one.item() for one in found)


def pairs(trainer: TD3Trainer, model: Any) -> list[tuple[Perceptrons, int, nn.Sequential]]:
    """Each of our networks with theirs."""
    network = trainer.network
    found = [(network.actor, 0, model.actor.mu), (network.target_actor, 0, model.actor_target.mu)]
    for number in (0, 1):
        found.append((network.critics, number, model.critic.q_networks[number]))
        found.append((network.target_critics, number, model.critic_target.q_networks[number]))
    return found


def drawn() -> Batch:
    generator = np.random.default_rng(3)

    def normal(*shape: int) -> Tensor:
        return torch.from_numpy(generator.standard_normal(shape, np.float32))

    discounts = torch.tensor([0.99, 0.0, 0.99, 0.99] * (ROWS // 4))
    weights = torch.full((ROWS,), 1 / ROWS)
    return Batch(
        normal(ROWS, 3), normal(ROWS, 1).tanh(), normal(ROWS), discounts, normal(ROWS, 3), weights
    )  # fmt: skip


def as_theirs(batch: Batch) -> Any:
    from stable_baselines3.common.type_aliases import ReplayBufferSamples

    terminated = (batch.discounts == 0).float()[:, None]
    return ReplayBufferSamples(
        batch.encoded, batch.actions, batch.next_encoded, terminated, batch.rewards[:, None]
    )


@pytest.mark.parametrize(("smoothing", "equal"), [("0.4", True), ("0.2", False)])
def test_updates_end_with_the_weights_of_stable_baselines3(smoothing: str, equal: bool) -> None:
    """Also that less smoothing than theirs is seen."""
    trainer: Any = TD3Trainer(
        resolve("td3", SMALL | {"target_noise": smoothing}), run=0, device="cpu", precision="fp32"
    )
    trainer.close()
    model = baselines.TD3(
        "MlpPolicy", "Pendulum-v1", batch_size=ROWS, tau=0.2, gamma=0.99, policy_delay=3,
        target_policy_noise=0.4, learning_rate=1e-3, policy_kwargs={"net_arch": [8, 6]},
        buffer_size=100, device="cpu",
    )  # fmt: skip
    for ours, number, theirs in pairs(trainer, model):
        copy(ours, number, theirs)
    batch = drawn()
    generator = torch.Generator()
    trainer._batch = lambda: batch
    trainer._noise = lambda *shape: torch.empty(shape).normal_(generator=generator)
    model.replay_buffer.sample = lambda *_, **__: as_theirs(batch)
    model.set_logger(baselines.common.logger.Logger(None, []))
    for update in range(UPDATES):
        generator.manual_seed(update)
        trainer._update()
        torch.manual_seed(update)
        model.train(gradient_steps=1, batch_size=ROWS)
    largest = max(difference(*pair) for pair in pairs(trainer, model))
    assert (largest < 1e-5) == equal
