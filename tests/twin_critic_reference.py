"""An actor with twin critics once more, the slow way: torch's layers and Adam in double precision, a list
as a replay. Tests of SAC and of TD3 add what an update is.

A reference knows what the environments were asked and answered, the trainer's first weights and the
seeds of its three generators, and nothing else of its inside.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import strategies as st
from torch import Tensor, nn

from agents.load import make_trainer
from config.resolve import resolve
from config.resolved import Resolved
from config.seeds import seed_sequence
from tests.recorded_game import Recorded, Row

EPOCHS, EPOCH_STEPS = 3, 16
LOW, HIGH = (np.array(bounds, np.float32) for bounds in ((-2, 0.5), (3, 1.5)))
EPSILON = 0.01
"""Adam's, in both: divided by its own size, a gradient of nearly 0 makes rounding as large as a
step."""
SWITCHES: dict[str, st.SearchStrategy[Any]] = {
    "num_envs": st.sampled_from([1, 2]), "learning_starts": st.sampled_from([16, 20]), "train_every": st.sampled_from([2, 4]),
    "updates": st.sampled_from([1, 2]), "batch_size": st.sampled_from([4, 16]), "replay_size": st.sampled_from([16, 24, 1000]),
    "learning_rate": st.sampled_from([0.003, 0.01]), "anneal_learning_rate": st.booleans(), "discount": st.sampled_from([0.5, 0.99]),
    "target_rate": st.sampled_from([0.01, 0.5]), "hidden_sizes": st.sampled_from(["8,6", "5"]), "clip_rewards": st.booleans(),
    "normalise_observations": st.booleans(), "seed": st.integers(0, 9),
}  # fmt: skip
"""Those that both algorithms have, to be drawn by hypothesis: one that is ignored makes the parameters
differ."""


class Bounded(Recorded):
    """Its actions have bounds."""

    def __init__(self) -> None:
        super().__init__(continuous=True)
        self.action_space = spaces.Box(LOW, HIGH)


class Network(nn.Module):
    """Linear layers with ReLU between them, from the weights [in, out] of a state."""

    def __init__(self, state: dict[str, Tensor], name: str, number: int) -> None:
        super().__init__()
        layers = list[nn.Module]()
        for layer in range(1, sum(one.startswith(f"{name}.weight") for one in state) + 1):
            weight, bias = (state[f"{name}.{kind}{layer}"][number] for kind in ("weight", "bias"))
            linear = nn.Linear(*weight.shape, dtype=torch.float64)
            linear.load_state_dict({"weight": weight.T, "bias": bias[0]})
            layers += [linear, nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])
        linears: Any = self.layers[::2]
        self.sizes = [linears[0].in_features, *(linear.out_features for linear in linears)]

    def forward(self, *columns: Tensor) -> Tensor:
        answer: Tensor = self.layers(torch.cat(columns, dim=1))
        return answer


class Batch(NamedTuple):
    """In double precision; actions between −1 and 1."""

    inputs: Tensor
    actions: Tensor
    rewards: Tensor
    discounts: Tensor
    next_inputs: Tensor


class Reference:
    """The training of one run on what was recorded. outputs: of the policy's network."""

    names: ClassVar[tuple[str, ...]]
    outputs: ClassVar[int]

    def __init__(self, trainer: Any, resolved: Resolved) -> None:
        self.hyper, self.settings = resolved.hyperparameters, resolved.environment
        self.total_steps = resolved.total_steps
        state = trainer.network.state_dict()
        self.actor = Network(state, "actor", 0)
        self.critics = nn.ModuleList(Network(state, "critics", number) for number in (0, 1))
        self.targets = nn.ModuleList(Network(state, "critics", number) for number in (0, 1))
        hidden = list(self.hyper.hidden_sizes)
        assert self.actor.sizes == [3, *hidden, self.outputs]
        assert [one.sizes for one in self.critics] == [[5, *hidden, 1]] * 2
        self.optimisers = {
            "critics": torch.optim.Adam(self.critics.parameters(), eps=EPSILON),
            "actor": torch.optim.Adam(self.actor.parameters(), eps=EPSILON),
        }
        self.acting, self.drawing, self.noise = (
            np.random.default_rng(seed_sequence(resolved.experiment.seed, 0, purpose))
            for purpose in ("actions", "minibatches", "updates")
        )
        self.rows, self.observed = list[Row](), list[np.ndarray]()
        self.step = 0

    def sampled(self, inputs: Tensor, noise: Tensor) -> Tensor:
        """The actions of a training, between −1 and 1."""
        raise NotImplementedError

    def update(self, batch: Batch) -> list[float | None]:
        """Learn; the metrics in the order of `names`."""
        raise NotImplementedError

    def followers(self) -> list[tuple[str, nn.Module]]:
        """Further networks to be compared, by their names in the trainer's state."""
        return []

    def epoch(self, steps: list[list[Row]]) -> dict[str, Any]:
        """steps [T][N]; the metrics."""
        learnt, count = list[list[float | None]](), self.settings.count
        for rows in steps:
            self._check_actions(rows)
            self.rows += rows
            self.step += count
            if self.step >= self.hyper.learning_starts and self.step % self.hyper.train_every == 0:
                learnt += [self.update(self._batch()) for _ in range(self.hyper.updates)]
        self.observed += [row.observation for rows in steps for row in rows]
        metrics: dict[str, Any] = dict.fromkeys(("learning_rate", *self.names))
        if learnt:
            metrics["learning_rate"] = self._learning_rate()
        for name, column in zip(self.names, zip(*learnt, strict=True), strict=False):
            numbers = [number for number in column if number is not None]
            metrics[name] = np.mean(numbers) if numbers else None
        return metrics

    def _check_actions(self, rows: list[Row]) -> None:
        """Uniform ones first; then the policy's, in the environment's range."""
        shape = (len(rows), 2)
        if self.step < self.hyper.learning_starts:
            expected = self.acting.uniform(-1, 1, shape)
        else:
            noise = torch.from_numpy(self.acting.standard_normal(shape, np.float32).astype(float))
            with torch.no_grad():
                inputs = self._inputs([row.observation for row in rows])
                expected = self.sampled(inputs, noise).numpy()
        taken = LOW + (expected + 1) / 2 * (HIGH - LOW)
        np.testing.assert_allclose([row.action for row in rows], taken, rtol=0, atol=1e-4)

    def _learning_rate(self) -> float:
        rate: float = self.hyper.learning_rate
        return rate * (1 - self.step / self.total_steps if self.hyper.anneal_learning_rate else 1)

    def _inputs(self, observations: list[np.ndarray]) -> Tensor:
        rows = np.stack(observations).astype(np.float64)
        if self.settings.normalise_observations:
            before = np.stack(self.observed).astype(np.float64) if self.observed else np.zeros(0)
            mean, variance = (before.mean(0), before.var(0)) if len(before) else (0.0, 1.0)
            rows = np.clip((rows - mean) / np.sqrt(variance + 1e-8), -10, 10)
        return torch.from_numpy(rows)

    def _batch(self) -> Batch:
        """Of those that the replay still has, and whose successors it has."""
        count, size = self.settings.count, self.hyper.batch_size
        slots = self.hyper.replay_size // count
        steps = len(self.rows) // count
        oldest = 0 if steps < slots else steps - slots + 1
        places = self.drawing.integers(oldest * count, (steps - 1) * count, size)
        rows = [self.rows[place] for place in places]
        rewards = [row.reward for row in rows]
        if self.settings.clip_rewards:
            rewards = [min(1.0, max(-1.0, reward)) for reward in rewards]
        actions = [2 * (row.action - LOW.astype(float)) / (HIGH - LOW) - 1 for row in rows]
        return Batch(
            self._inputs([row.observation for row in rows]),
            torch.from_numpy(np.stack(actions)),
            torch.tensor(rewards, dtype=torch.float64),
            torch.tensor([0.0 if row.terminated else self.hyper.discount for row in rows]).double(),
            self._inputs([row.next_observation for row in rows]),
        )

    def drawn_noise(self, *shape: int) -> Tensor:
        """Of an update."""
        return torch.from_numpy(self.noise.standard_normal(shape, np.float32).astype(float))

    def least_target(self, inputs: Tensor, actions: Tensor) -> Tensor:
        return torch.minimum(*(one(inputs, actions)[:, 0] for one in self.targets))

    def follow(self, slow: nn.Module, fast: nn.Module) -> None:
        rate = self.hyper.target_rate
        with torch.no_grad():
            for one, other in zip(slow.parameters(), fast.parameters(), strict=True):
                one.copy_((1 - rate) * one + rate * other)

    def descend(self, name: str, loss: Any) -> float:
        """The gradient's norm."""
        optimiser = self.optimisers[name]
        for other in self.optimisers.values():
            other.zero_grad()
        loss.backward()
        group = optimiser.param_groups[0]
        group["lr"] = self._learning_rate()
        squares = [float((one.grad**2).sum()) for one in group["params"]]
        optimiser.step()
        return float(np.sqrt(sum(squares)))

    def networks(self) -> list[tuple[str, int, Any]]:
        """Name and number in the trainer's state, and the network that must equal it."""
        pairs = [("critics", number, one) for number, one in enumerate(self.critics)]
        pairs += [("target_critics", number, one) for number, one in enumerate(self.targets)]
        more = [(name, 0, network) for name, network in self.followers()]
        return [("actor", 0, self.actor), *pairs, *more]


def compared(
    algorithm: str, make: type[Reference], switches: dict[str, object]
) -> tuple[Any, Any, float]:
    """The trainer and the reference after whole epochs, and the largest difference between the
    parameters of their networks."""
    texts = {name: str(value).lower() for name, value in switches.items() if value is not None}
    small = {"game": f"{__name__}:Bounded", "outdir": "/x", "epochs": str(EPOCHS)}
    resolved = resolve(algorithm, {**small, "epoch_steps": str(EPOCH_STEPS), **texts})
    count = resolved.environment.count
    Recorded.made.clear()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("agents.algorithms.twin_critic_learning.ADAM_EPSILON", EPSILON)
        trainer: Any = make_trainer(resolved, run=0, device="cpu", precision="fp32")
    environments = Recorded.made[-count:]
    reference = make(trainer, resolved)
    for epoch, progress in enumerate(trainer.train()):
        steps = range(epoch * EPOCH_STEPS // count, (epoch + 1) * EPOCH_STEPS // count)
        expected = reference.epoch([[one.rows[step] for one in environments] for step in steps])
        assert list(progress.metrics) == list(expected)
        for name, value in expected.items():
            near = None if value is None else pytest.approx(value, rel=1e-3, abs=1e-4)
            assert progress.metrics[name] == near, name
    trainer.close()
    found, differences = trainer.network.state_dict(), list[float]()
    for name, number, network in reference.networks():
        for layer, linear in enumerate(network.layers[::2], start=1):
            of_layer = (found[f"{name}.{kind}{layer}"][number] for kind in ("weight", "bias"))
            for mine, theirs in zip(of_layer, (linear.weight.T, linear.bias[None]), strict=True):
                differences.append(float((mine - theirs.detach()).abs().max()))
    return trainer, reference, max(differences)
