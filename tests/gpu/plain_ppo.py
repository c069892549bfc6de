"""A plain PPO for Atari, for comparison: CleanRL's loop (Huang et al. 2022, "The 37 implementation
details of PPO") over the same emulators, with the same settings as ours, in fp32.

No part of it is ours but the emulators' settings, so that the difference is in the training alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from ale_py.vector_env import AtariVectorEnv
from torch import Tensor, nn


def layer(module: Any, gain: float = 2**0.5) -> Any:
    """With orthogonal weights."""
    nn.init.orthogonal_(module.weight, gain)
    nn.init.zeros_(module.bias)
    return module


class Agent(nn.Module):
    """The Nature CNN with a head for the policy and one for the value."""

    def __init__(self, actions: int) -> None:
        super().__init__()
        self.network = nn.Sequential(
            layer(nn.Conv2d(4, 32, 8, stride=4)), nn.ReLU(), layer(nn.Conv2d(32, 64, 4, stride=2)),
            nn.ReLU(), layer(nn.Conv2d(64, 64, 3)), nn.ReLU(), nn.Flatten(),
            layer(nn.Linear(64 * 7 * 7, 512)), nn.ReLU(),
        )  # fmt: skip
        self.actor, self.critic = (
            layer(nn.Linear(512, actions), 0.01),
            layer(nn.Linear(512, 1), 1.0),
        )

    def forward(self, observations: Tensor) -> tuple[Any, Tensor]:
        hidden = self.network(observations / 255.0)
        policy = torch.distributions.Categorical(logits=self.actor(hidden))
        return policy, self.critic(hidden).flatten()


def plain_ppo(
    game: str, environments: int, steps: int, hyper: Any, device: str, threads: int
) -> Callable[[], int]:
    """One rollout of so many steps of each environment and what is learnt from it, at every call;
    returns the environment steps of it.
    """
    emulators = AtariVectorEnv(
        game, environments, num_threads=threads, repeat_action_probability=0.25,
        reward_clipping=True, episodic_life=True,
    )  # fmt: skip
    agent = Agent(int(emulators.single_action_space.n)).to(device)
    optimiser = torch.optim.Adam(agent.parameters(), lr=hyper.learning_rate, eps=1e-5)
    shape = (steps, environments)
    seen = torch.zeros(*shape, 4, 84, 84, device=device)
    actions, logarithms, rewards, dones, values = (
        torch.zeros(shape, device=device) for _ in range(5)
    )
    state = {"next": torch.tensor(emulators.reset(seed=1)[0], device=device).float()}
    state["done"] = torch.zeros(environments, device=device)

    def rollout_and_update() -> int:
        for t in range(steps):
            seen[t], dones[t] = state["next"], state["done"]
            with torch.no_grad():
                policy, value = agent(state["next"])
                action = policy.sample()
            actions[t], logarithms[t], values[t] = action, policy.log_prob(action), value
            following, reward, terminated, truncated, _ = emulators.step(action.cpu().numpy())
            rewards[t] = torch.tensor(reward, device=device)
            state["next"] = torch.tensor(following, device=device).float()
            state["done"] = torch.tensor(
                np.logical_or(terminated, truncated), device=device
            ).float()
        with torch.no_grad():
            last = agent(state["next"])[1]
            advantages, running = torch.zeros_like(rewards), torch.zeros_like(last)
            for t in reversed(range(steps)):
                ends = state["done"] if t == steps - 1 else dones[t + 1]
                value_after = last if t == steps - 1 else values[t + 1]
                delta = rewards[t] + hyper.discount * value_after * (1 - ends) - values[t]
                running = delta + hyper.discount * hyper.gae_lambda * (1 - ends) * running
                advantages[t] = running
            returns = advantages + values
        flat = [
            one.flatten(0, 1) for one in (seen, actions, logarithms, advantages, returns, values)
        ]
        for _ in range(hyper.update_epochs):
            order = torch.randperm(steps * environments, device=device)
            for rows in order.chunk(hyper.minibatches):
                update(*(one[rows] for one in flat))
        return steps * environments

    def update(
        seen_: Tensor,
        action: Tensor,
        before: Tensor,
        advantage: Tensor,
        target: Tensor,
        old: Tensor,
    ) -> None:
        policy, value = agent(seen_)
        ratio = (policy.log_prob(action) - before).exp()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        clipped = ratio.clamp(1 - hyper.clip, 1 + hyper.clip)
        of_policy = torch.max(-advantage * ratio, -advantage * clipped).mean()
        near = old + (value - old).clamp(-hyper.clip, hyper.clip)
        of_value = 0.5 * torch.max((value - target) ** 2, (near - target) ** 2).mean()
        entropy = policy.entropy().mean()
        loss = of_policy - hyper.entropy_coefficient * entropy + 0.5 * of_value
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), hyper.max_gradient_norm)
        optimiser.step()

    return rollout_and_update
