"""SAC once more, the slow way: torch's layers, distributions and Adam in double precision, a list as
a replay. Whole epochs end with the same parameters.

The reference knows what the environments were asked and answered, the trainer's first weights and
the seeds of its three generators, and nothing else of its inside. All switches are drawn by
hypothesis: one that is ignored makes the parameters differ.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from agents.algorithms.sac import SACTrainer
from config.resolve import Resolved, resolve
from config.seeds import seed_sequence
from tests.recorded_game import Recorded, Row

EPOCHS, EPOCH_STEPS = 3, 16
LOW, HIGH = (np.array(bounds, np.float32) for bounds in ((-2, 0.5), (3, 1.5)))
EPSILON = 0.01
"""Adam's, in both: divided by its own size, a gradient of nearly 0 makes rounding as large as a
step."""


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


class Reference:
    """Haarnoja et al. 2018, algorithm 1, on what was recorded."""

    def __init__(self, trainer: SACTrainer, resolved: Resolved) -> None:
        self.hyper, self.settings = resolved.hyperparameters, resolved.environment
        self.total_steps = resolved.total_steps
        state = trainer.network.state_dict()
        self.actor = Network(state, "actor", 0)
        self.critics = nn.ModuleList(Network(state, "critics", number) for number in (0, 1))
        self.targets = nn.ModuleList(Network(state, "critics", number) for number in (0, 1))
        hidden = list(self.hyper.hidden_sizes)
        assert self.actor.sizes == [3, *hidden, 4]
        assert [one.sizes for one in self.critics] == [[5, *hidden, 1]] * 2
        first = 1.0 if self.hyper.alpha is None else self.hyper.alpha
        self.log_alpha = torch.tensor(first, dtype=torch.float64).log().requires_grad_()
        self.optimisers = {
            "critics": torch.optim.Adam(self.critics.parameters(), eps=EPSILON),
            "actor": torch.optim.Adam(self.actor.parameters(), eps=EPSILON),
            "alpha": torch.optim.Adam([self.log_alpha], eps=EPSILON),
        }
        self.acting, self.drawing, self.noise = (
            np.random.default_rng(seed_sequence(resolved.experiment.seed, 0, purpose))
            for purpose in ("actions", "minibatches", "updates")
        )
        self.rows, self.observed = list[Row](), list[np.ndarray]()
        self.step = 0

    def epoch(self, steps: list[list[Row]]) -> dict[str, Any]:
        """steps [T][N]; the metrics."""
        learnt, count = list[list[float]](), self.settings.count
        for rows in steps:
            self._check_actions(rows)
            self.rows += rows
            self.step += count
            if self.step >= self.hyper.learning_starts and self.step % self.hyper.train_every == 0:
                learnt += [self._update() for _ in range(self.hyper.updates)]
        self.observed += [row.observation for rows in steps for row in rows]
        means = np.mean(learnt, axis=0).tolist() if learnt else [None] * 8
        names = ("q_mean", "td_error", "entropy", "alpha", "critic_loss", "actor_loss",
                 "critic_gradient_norm", "actor_gradient_norm")  # fmt: skip
        metrics = dict(zip(names, means, strict=True))
        return {"learning_rate": self._learning_rate() if learnt else None, **metrics}

    def _check_actions(self, rows: list[Row]) -> None:
        """Uniform ones first; then the policy's, in the environment's range."""
        shape = (len(rows), 2)
        if self.step < self.hyper.learning_starts:
            expected = self.acting.uniform(-1, 1, shape)
        else:
            noise = torch.from_numpy(self.acting.standard_normal(shape, np.float32).astype(float))
            with torch.no_grad():
                normal = self._normal(self._inputs([row.observation for row in rows]))
            expected = torch.tanh(normal.mean + normal.stddev * noise).numpy()
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

    def _normal(self, inputs: Tensor) -> Any:
        mean, log_std = self.actor(inputs).chunk(2, dim=1)
        return Normal(mean, log_std.clamp(-20, 2).exp())

    def _sample(self, inputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        normal, squash = self._normal(inputs), TanhTransform(cache_size=1)
        action = squash(normal.mean + normal.stddev * noise)
        density = Independent(TransformedDistribution(normal, squash), 1)
        return action, density.log_prob(action)

    def _batch(self) -> tuple[Tensor, ...]:
        """Of those that the replay still has, and whose successors it has."""
        count, size = self.settings.count, self.hyper.batch_size
        slots = self.hyper.replay_size // count
        steps = len(self.rows) // count
        oldest = 0 if steps < slots else steps - slots + 1
        places = self.drawing.integers(oldest * count, (steps - 1) * count, size)
        rows = [self.rows[place] for place in places]
        noise, next_noise = torch.from_numpy(
            self.noise.standard_normal((2, size, 2), np.float32).astype(float)
        )
        rewards = [row.reward for row in rows]
        if self.settings.clip_rewards:
            rewards = [min(1.0, max(-1.0, reward)) for reward in rewards]
        actions = [2 * (row.action - LOW.astype(float)) / (HIGH - LOW) - 1 for row in rows]
        return (
            self._inputs([row.observation for row in rows]),
            torch.from_numpy(np.stack(actions)),
            torch.tensor(rewards, dtype=torch.float64),
            torch.tensor([0.0 if row.terminated else self.hyper.discount for row in rows]).double(),
            self._inputs([row.next_observation for row in rows]),
            noise,
            next_noise,
        )

    def _update(self) -> list[float]:
        inputs, actions, rewards, discounts, next_inputs, noise, next_noise = self._batch()
        alpha = self.log_alpha.exp().item()
        with torch.no_grad():
            next_actions, log_probability = self._sample(next_inputs, next_noise)
            least = torch.minimum(*(one(next_inputs, next_actions)[:, 0] for one in self.targets))
            target = rewards + discounts * (least - alpha * log_probability)
        values = [one(inputs, actions)[:, 0] for one in self.critics]
        critic_loss = sum(0.5 * ((value - target) ** 2).mean() for value in values)
        critic_norm = self._descend("critics", critic_loss)
        sampled, log_probability = self._sample(inputs, noise)
        least = torch.minimum(*(one(inputs, sampled)[:, 0] for one in self.critics))
        actor_loss = (alpha * log_probability - least).mean()
        actor_norm = self._descend("actor", actor_loss)
        entropy = -log_probability.mean().item()
        if self.hyper.alpha is None:
            wanted = -2.0 if self.hyper.target_entropy is None else self.hyper.target_entropy
            self._descend("alpha", self.log_alpha.exp() * (entropy - wanted))
        with torch.no_grad():
            for slow, fast in zip(
                self.targets.parameters(), self.critics.parameters(), strict=True
            ):
                slow.copy_((1 - self.hyper.target_rate) * slow + self.hyper.target_rate * fast)
        q_mean = torch.stack(values).mean().item()
        error = torch.stack([(value - target).abs().mean() for value in values]).mean().item()
        losses = [one.item() for one in (critic_loss, actor_loss)]
        return [q_mean, error, entropy, alpha, *losses, critic_norm, actor_norm]

    def _descend(self, name: str, loss: Any) -> float:
        optimiser = self.optimisers[name]
        for other in self.optimisers.values():
            other.zero_grad()
        loss.backward()
        group = optimiser.param_groups[0]
        group["lr"] = self._learning_rate()
        squares = [float((one.grad**2).sum()) for one in group["params"]]
        optimiser.step()
        return float(np.sqrt(sum(squares)))


def largest_difference(switches: dict[str, object]) -> float:
    """Between the trainer's parameters and the reference's, after whole epochs."""
    texts = {name: str(value).lower() for name, value in switches.items() if value is not None}
    small = {"game": f"{__name__}:Bounded", "outdir": "/x", "epochs": str(EPOCHS)}
    resolved = resolve("sac", {**small, "epoch_steps": str(EPOCH_STEPS), **texts})
    count = resolved.environment.count
    Recorded.made.clear()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("agents.algorithms.twin_critic_learning.ADAM_EPSILON", EPSILON)
        trainer = SACTrainer(resolved, run=0, device="cpu", precision="fp32")
    environments = Recorded.made[-count:]
    reference = Reference(trainer, resolved)
    for epoch, progress in enumerate(trainer.train()):
        steps = range(epoch * EPOCH_STEPS // count, (epoch + 1) * EPOCH_STEPS // count)
        expected = reference.epoch([[one.rows[step] for one in environments] for step in steps])
        assert list(progress.metrics) == list(expected)
        if expected["q_mean"] is None:
            assert set(progress.metrics.values()) == {None}
        else:
            assert progress.metrics == pytest.approx(expected, rel=1e-3, abs=1e-4)
    trainer.close()
    differences = [trainer.log_alpha.exp().item() - reference.log_alpha.exp().item()]
    found = trainer.network.state_dict()
    for name, networks in (
        ("actor", [reference.actor]),
        ("critics", reference.critics),
        ("target_critics", reference.targets),
    ):
        for number, network in enumerate(networks):
            for layer, linear in enumerate(network.layers[::2], start=1):
                of_layer = (found[f"{name}.{kind}{layer}"][number] for kind in ("weight", "bias"))
                for mine, theirs in zip(
                    of_layer, (linear.weight.T, linear.bias[None]), strict=True
                ):
                    differences.append(float((mine - theirs.detach()).abs().max()))
    return max(map(abs, differences))


SWITCHES = st.fixed_dictionaries({
    "num_envs": st.sampled_from([1, 2]), "learning_starts": st.sampled_from([16, 20]), "train_every": st.sampled_from([2, 4]),
    "updates": st.sampled_from([1, 2]), "batch_size": st.sampled_from([4, 16]), "replay_size": st.sampled_from([16, 24, 1000]),
    "learning_rate": st.sampled_from([0.003, 0.01]), "anneal_learning_rate": st.booleans(), "discount": st.sampled_from([0.5, 0.99]),
    "target_rate": st.sampled_from([0.01, 0.5]), "hidden_sizes": st.sampled_from(["8,6", "5"]), "clip_rewards": st.booleans(),
    "normalise_observations": st.booleans(), "seed": st.integers(0, 9),
})  # fmt: skip
TEMPERATURES = st.sampled_from(
    [{}, {"alpha": 0.2}, {"alpha": 0}, {"target_entropy": 1.5}, {"target_entropy": -7}]
)


# To shrink a failure would take minutes.
@settings(max_examples=12, deadline=None, derandomize=True, phases=[Phase.generate])
@given(switches=SWITCHES, temperature=TEMPERATURES)
def test_whole_epochs_end_with_the_parameters_of_the_reference(
    switches: dict[str, object], temperature: dict[str, object]
) -> None:
    assert largest_difference(switches | temperature) < 1e-4
