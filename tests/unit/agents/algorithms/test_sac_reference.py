"""SAC once more, the slow way (`tests.twin_critic_reference`), with torch's distributions. Whole epochs
end with the same parameters.
"""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from config.resolved import Resolved
from tests.twin_critic_reference import EPSILON, SWITCHES, Batch, Reference, compared


class SAC(Reference):
    """Haarnoja et al. 2018, algorithm 1."""

    names = (
        "q_mean", "td_error", "entropy", "alpha", "critic_loss", "actor_loss",
        "critic_gradient_norm", "actor_gradient_norm",
    )  # fmt: skip
    outputs = 4

    def __init__(self, trainer: Any, resolved: Resolved) -> None:
        super().__init__(trainer, resolved)
        first = 1.0 if self.hyper.alpha is None else self.hyper.alpha
        self.log_alpha = torch.tensor(first, dtype=torch.float64).log().requires_grad_()
        self.optimisers["alpha"] = torch.optim.Adam([self.log_alpha], eps=EPSILON)

    def sampled(self, inputs: Tensor, noise: Tensor) -> Tensor:
        normal = self._normal(inputs)
        return torch.tanh(normal.mean + normal.stddev * noise)

    def _normal(self, inputs: Tensor) -> Any:
        mean, log_std = self.actor(inputs).chunk(2, dim=1)
        return Normal(mean, log_std.clamp(-20, 2).exp())

    def _sample(self, inputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        normal, squash = self._normal(inputs), TanhTransform(cache_size=1)
        action = squash(normal.mean + normal.stddev * noise)
        density = Independent(TransformedDistribution(normal, squash), 1)
        return action, density.log_prob(action)

    def update(self, batch: Batch) -> list[float | None]:
        noise, next_noise = self.drawn_noise(2, *batch.actions.shape)
        alpha = self.log_alpha.exp().item()
        with torch.no_grad():
            next_actions, log_probability = self._sample(batch.next_inputs, next_noise)
            least = self.least_target(batch.next_inputs, next_actions)
            target = batch.rewards + batch.discounts * (least - alpha * log_probability)
        values = [one(batch.inputs, batch.actions)[:, 0] for one in self.critics]
        critic_loss: Any = sum(0.5 * ((value - target) ** 2).mean() for value in values)
        critic_norm = self.descend("critics", critic_loss)
        sampled, log_probability = self._sample(batch.inputs, noise)
        least = torch.minimum(*(one(batch.inputs, sampled)[:, 0] for one in self.critics))
        actor_loss = (alpha * log_probability - least).mean()
        actor_norm = self.descend("actor", actor_loss)
        entropy = -log_probability.mean().item()
        if self.hyper.alpha is None:
            wanted = -2.0 if self.hyper.target_entropy is None else self.hyper.target_entropy
            self.descend("alpha", self.log_alpha.exp() * (entropy - wanted))
        self.follow(self.targets, self.critics)
        q_mean = torch.stack(values).mean().item()
        error = torch.stack([(value - target).abs().mean() for value in values]).mean().item()
        losses = [one.item() for one in (critic_loss, actor_loss)]
        return [q_mean, error, entropy, alpha, *losses, critic_norm, actor_norm]


TEMPERATURES = st.sampled_from(
    [{}, {"alpha": 0.2}, {"alpha": 0}, {"target_entropy": 1.5}, {"target_entropy": -7}]
)


# To shrink a failure would take minutes.
@settings(max_examples=12, deadline=None, derandomize=True, phases=[Phase.generate])
@given(switches=st.fixed_dictionaries(SWITCHES), temperature=TEMPERATURES)
def test_whole_epochs_end_with_the_parameters_of_the_reference(
    switches: dict[str, object], temperature: dict[str, object]
) -> None:
    trainer, reference, difference = compared("sac", SAC, switches | temperature)
    assert difference < 1e-4
    assert abs(trainer.log_alpha.exp().item() - reference.log_alpha.exp().item()) < 1e-4
