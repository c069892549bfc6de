"""TD3 once more, the slow way (`tests.twin_critic_reference`). Whole epochs end with the same parameters;
with one of its ideas left out they do not.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from config.resolved import Resolved
from tests.twin_critic_reference import SWITCHES, Batch, Reference, compared


class TD3(Reference):
    """Fujimoto et al. 2018, algorithm 1."""

    names = (
        "q_mean", "td_error", "critic_loss", "critic_gradient_norm", "actor_loss",
        "actor_gradient_norm",
    )  # fmt: skip
    outputs = 2

    def __init__(self, trainer: Any, resolved: Resolved) -> None:
        super().__init__(trainer, resolved)
        self.target_actor = copy.deepcopy(self.actor)
        self.updates = 0

    def followers(self) -> list[tuple[str, nn.Module]]:
        return [("target_actor", self.target_actor)]

    def sampled(self, inputs: Tensor, noise: Tensor) -> Tensor:
        action = torch.tanh(self.actor(inputs)) + self.hyper.exploration_noise * noise
        return torch.clip(action, -1, 1)

    def target_actions(self, batch: Batch) -> Tensor:
        """With smoothing."""
        limit = self.hyper.target_noise_clip
        noise = self.hyper.target_noise * self.drawn_noise(*batch.actions.shape)
        action = torch.tanh(self.target_actor(batch.next_inputs)) + torch.clip(noise, -limit, limit)
        return torch.clip(action, -1, 1)

    def actor_is_due(self) -> bool:
        return self.updates % self.hyper.policy_delay == 0

    def value(self, batch: Batch, actions: Tensor) -> Tensor:
        """What the actor climbs."""
        value: Tensor = self.critics[0](batch.inputs, actions)
        return value.mean()

    def update(self, batch: Batch) -> list[float | None]:
        with torch.no_grad():
            least = self.least_target(batch.next_inputs, self.target_actions(batch))
            target = batch.rewards + batch.discounts * least
        values = [one(batch.inputs, batch.actions)[:, 0] for one in self.critics]
        critic_loss: Any = sum(((value - target) ** 2).mean() for value in values)
        critic_norm = self.descend("critics", critic_loss)
        q_mean = torch.stack(values).mean().item()
        error = torch.stack([(value - target).abs().mean() for value in values]).mean().item()
        self.updates += 1
        actor: list[float | None] = [None, None]
        if self.actor_is_due():
            loss = -self.value(batch, torch.tanh(self.actor(batch.inputs)))
            actor = [loss.item(), self.descend("actor", loss)]
            self.follow(self.targets, self.critics)
            self.follow(self.target_actor, self.actor)
        return [q_mean, error, critic_loss.item(), critic_norm, *actor]


OWN: dict[str, st.SearchStrategy[Any]] = {
    "policy_delay": st.sampled_from([1, 2, 3]), "exploration_noise": st.sampled_from([0.0, 0.1, 0.8]),
    "target_noise": st.sampled_from([0.0, 0.2, 1.0]), "target_noise_clip": st.sampled_from([0.1, 0.5]),
}  # fmt: skip


# To shrink a failure would take minutes.
@settings(max_examples=12, deadline=None, derandomize=True, phases=[Phase.generate])
@given(switches=st.fixed_dictionaries(SWITCHES | OWN))
def test_whole_epochs_end_with_the_parameters_of_the_reference(
    switches: dict[str, object],
) -> None:
    assert compared("td3", TD3, switches)[2] < 1e-4


class Unsmoothed(TD3):
    def target_actions(self, batch: Batch) -> Tensor:
        return torch.tanh(self.target_actor(batch.next_inputs))


class Unclipped(TD3):
    """Its noise is."""

    def target_actions(self, batch: Batch) -> Tensor:
        noise = self.hyper.target_noise * self.drawn_noise(*batch.actions.shape)
        return torch.clip(torch.tanh(self.target_actor(batch.next_inputs)) + noise, -1, 1)


class Undelayed(TD3):
    def actor_is_due(self) -> bool:
        return True


class Single(TD3):
    """One critic's target."""

    def least_target(self, inputs: Tensor, actions: Tensor) -> Tensor:
        value: Tensor = self.targets[0](inputs, actions)[:, 0]
        return value


class Pessimistic(TD3):
    """Its actor climbs the smaller value, as SAC's."""

    def value(self, batch: Batch, actions: Tensor) -> Tensor:
        return torch.minimum(*(one(batch.inputs, actions) for one in self.critics)).mean()


class Impatient(TD3):
    """Its targets move at every update."""

    def update(self, batch: Batch) -> list[float | None]:
        metrics = super().update(batch)
        if not self.actor_is_due():
            self.follow(self.targets, self.critics)
        return metrics


PLAIN: dict[str, object] = {
    "num_envs": 1, "learning_starts": 16, "train_every": 2, "updates": 2, "batch_size": 16,
    "learning_rate": 0.01, "target_rate": 0.5, "hidden_sizes": "8,6", "policy_delay": 3,
    "target_noise": 1.0, "target_noise_clip": 0.5,
}  # fmt: skip


def test_the_plain_case_is_that_of_the_reference() -> None:
    assert compared("td3", TD3, PLAIN)[2] < 1e-4


@pytest.mark.parametrize(
    "other", [Unsmoothed, Unclipped, Undelayed, Single, Pessimistic, Impatient]
)
def test_what_is_left_out_is_seen(other: type[TD3]) -> None:
    """In metrics or actions, before the end, or in the parameters there."""
    with pytest.raises(AssertionError):
        assert compared("td3", other, PLAIN)[2] < 1e-4
