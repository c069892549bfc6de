"""REINFORCE with returns normalised over the batch: Williams 1992, `-p`-able, resumable, with
evaluation, film and plots behind it: `python -m workflows.submit my_lab.reinforce:ALGORITHM`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from agents.environments.training import TrainingEnvironments
from agents.experience.rollouts import Episodes
from agents.interfaces import Progress, State
from agents.spaces import Interface
from agents.states import to_arrays, to_tensors
from config.algorithms.descriptor import Algorithm
from config.environment import EnvironmentSettings
from config.parameters import parameter
from config.resolved import Resolved
from config.seeds import integer_seed


@dataclass(frozen=True, kw_only=True)
class Reinforce:
    rollout_length: int = parameter(256, low=2, high=10**5, unit="steps", help="in one epoch")
    learning_rate: float = parameter(0.01, low=1e-6, high=1, help="of Adam")
    discount: float = parameter(0.99, low=0, high=1, help="weight of a reward one step later")
    hidden_size: int = parameter(32, low=1, high=4096, help="units of the hidden layer")

    def steps_per_epoch(self, environment: EnvironmentSettings) -> int:
        return environment.count * self.rollout_length

    def warm_up_steps(self, environment: EnvironmentSettings) -> int:
        return 0

    def tied_to_length(self) -> list[str]:
        return []  # no schedule depends on the number of epochs

    def check(self, environment: EnvironmentSettings) -> None:
        pass


ALGORITHM = Algorithm(
    name="reinforce",
    hyperparameters=Reinforce,
    trainer="my_lab.reinforce:Trainer",
    policy="my_lab.reinforce:Policy",
    families=("discrete",),
    presets={"any": {"steps": 100_000}, "cartpole": {"steps": 60_000, "rollout_length": 512}},
)


def make_network(spaces: Interface, hidden_size: int) -> nn.Module:
    inputs = nn.Linear(spaces.observation_size, hidden_size)
    return nn.Sequential(nn.Flatten(), inputs, nn.Tanh(), nn.Linear(hidden_size, spaces.actions))


class Trainer:
    def __init__(self, resolved: Resolved, *, run: int, device: str, precision: str) -> None:
        self.resolved, self.hyper = resolved, resolved.hyperparameters
        self.epoch = self.step = 0
        torch.manual_seed(integer_seed(resolved.experiment.seed, run, "weights"))
        self.generator = torch.Generator()
        self.generator.manual_seed(integer_seed(resolved.experiment.seed, run, "actions"))
        self.environments = TrainingEnvironments(resolved, run)
        self.episodes = Episodes(self.environments.count)
        self.network = make_network(self.environments.interface, self.hyper.hidden_size)
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=self.hyper.learning_rate)

    def train(self) -> Iterator[Progress]:
        while self.epoch < self.resolved.epochs:
            observations, actions, rewards, ended = self.rollout()
            returns, lengths = self.episodes.finish(rewards, ended)
            loss = self.learn(observations, actions, rewards, ended)
            self.epoch, self.step = self.epoch + 1, self.step + rewards.size
            metrics = {"policy_loss": loss}
            yield Progress(
                epoch=self.epoch, step=self.step, frame=self.step, returns=returns,
                lengths=lengths, metrics=metrics,
            )  # fmt: skip

    def rollout(self) -> tuple[np.ndarray, ...]:
        """observations [T, N, ...], actions, rewards, ended [T, N]."""
        rows = []
        for _ in range(self.hyper.rollout_length):
            seen = self.environments.observation.copy()
            with torch.no_grad():
                probabilities = self.network(torch.from_numpy(seen).float()).softmax(dim=-1)
            actions = torch.multinomial(probabilities, 1, generator=self.generator)[:, 0].numpy()
            done = self.environments.step(self.environments.interface.environment_actions(actions))
            reward = np.concatenate([group.reward for group in done])
            ended = np.concatenate([group.terminated | group.truncated for group in done])
            rows.append((seen, actions, reward, ended))
        return tuple(np.stack(column) for column in zip(*rows, strict=True))

    def learn(self, observations: Any, actions: Any, rewards: Any, ended: Any) -> float:
        """One step of Adam; rows whose episode has not ended yet are not learnt from."""
        returns, complete = np.zeros_like(rewards), np.zeros_like(ended)
        following, known = np.zeros(rewards.shape[1]), np.zeros(rewards.shape[1], np.bool_)
        for t in reversed(range(len(rewards))):
            known = known | ended[t]
            following = rewards[t] + self.hyper.discount * following * ~ended[t]
            returns[t], complete[t] = following, known
        if complete.sum() < 2:
            return 0.0
        goal = torch.from_numpy(returns[complete]).float()
        advantages = (goal - goal.mean()) / (goal.std() + 1e-8)
        logits = self.network(torch.from_numpy(observations[complete]).float())
        chosen = torch.from_numpy(actions[complete])[:, None]
        loss = -(logits.log_softmax(dim=-1).gather(1, chosen)[:, 0] * advantages).mean()
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        return float(loss.detach())

    def state_dict(self) -> State:
        return {
            "epoch": self.epoch, "step": self.step,
            "interface": self.environments.interface.as_dict(),
            "network": to_arrays(self.network.state_dict()),
            "optimiser": to_arrays(self.optimiser.state_dict()),
            "generator": self.generator.get_state().numpy().copy(),
            "episodes": self.episodes.state_dict(),
            "environments": self.environments.state_dict(),
        }  # fmt: skip

    def load_state_dict(self, state: State, between: Callable[[], None] = lambda: None) -> None:
        self.epoch, self.step = state["epoch"], state["step"]
        self.network.load_state_dict(to_tensors(state["network"]))
        self.optimiser.load_state_dict(to_tensors(state["optimiser"]))
        self.generator.set_state(torch.from_numpy(state["generator"].copy()))
        self.episodes.load_state_dict(state["episodes"])
        self.episodes.forget(self.environments.load_state_dict(state["environments"], between))

    def close(self) -> None:
        self.environments.close()


class Policy:
    def __init__(self, resolved: Resolved, state: State) -> None:
        self.spaces = Interface.from_dict(state["interface"])
        self.network = make_network(self.spaces, resolved.hyperparameters.hidden_size)
        self.network.load_state_dict(to_tensors(state["network"]))
        self.generators = list[torch.Generator]()

    def seed(self, seeds: Sequence[int]) -> None:
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    @torch.inference_mode()
    def act(self, observations: np.ndarray, *, sample: bool) -> np.ndarray:
        logits = self.network(torch.from_numpy(observations).float())
        actions = logits.argmax(dim=-1)
        if sample:
            rows = zip(logits.softmax(dim=-1), self.generators, strict=True)
            actions = torch.cat([torch.multinomial(p, 1, generator=g) for p, g in rows])
        return self.spaces.environment_actions(actions.numpy())
