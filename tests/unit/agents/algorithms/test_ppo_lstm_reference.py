"""PPO with a memory once more, the slow way: one environment after the other, one step after the
other, with a cell as it stands in the paper, autograd and `torch.optim.Adam`. Whole epochs end with
the same parameters, and with each of the usual mistakes they do not.

What is the same as without a memory (rewards, advantages, the loss) is the reference's of
test_ppo_reference.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from agents.algorithms.ppo_lstm import RecurrentPPOTrainer
from config.resolved import Resolved
from config.seeds import integer_seed
from tests.recorded_game import Row
from tests.unit.agents.algorithms.test_ppo_reference import (
    ENVIRONMENTS,
    STEPS,
    Reference,
    recorded,
    trained_beside,
)

UNITS = 6
State = list[tuple[Tensor, Tensor]]
"""h and c [H] of the policy's LSTM and of the value's."""
MISTAKES = (
    "the state after the first step is stored", "sequences begin with nothing", "no reset inside",
    "reset a step late", "the final value by a cleared state", "a lost life resets",
)  # fmt: skip


class Sequence(NamedTuple):
    """Steps of one environment: what was seen [L], which of them begin an episode, which are learnt
    from, and the state before the first."""

    seen: Tensor
    begins: list[bool]
    asked: list[bool]
    state: State


class SlowNetwork(nn.Module):
    """The trainer's weights, by its names, one row at a time."""

    def __init__(self, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.weights = nn.ParameterDict(
            {name.replace(".", "_"): nn.Parameter(value.clone()) for name, value in weights.items()}
        )

    def step(self, seen: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        """What is seen [3] -> policy [P], value [], and the state after it."""
        weights, after, features = self.weights, [], []
        for tower, (hidden, cell) in enumerate(state):
            z = seen @ weights["torso_input_weight"][tower] + weights["torso_bias"][tower, 0]
            z = z + hidden @ weights["torso_weight"][tower]
            i, f, o = (1 / (1 + torch.exp(-z[n * UNITS : (n + 1) * UNITS])) for n in range(3))
            cell = f * cell + i * torch.tanh(z[3 * UNITS :])
            hidden = o * torch.tanh(cell)
            after.append((hidden, cell))
            layer = hidden @ weights["torso_weight1"][tower] + weights["torso_bias1"][tower, 0]
            features.append(torch.relu(layer))
        policy = weights["policy_weight"] @ features[0] + weights["policy_bias"]
        if "log_std" in weights:
            policy = torch.cat((policy, weights["log_std"]))
        return policy, features[1] @ weights["value_weight"] + weights["value_bias"][0], after

    def forward(self, sequences: list[Sequence]) -> tuple[Tensor, Tensor]:
        """Policy [B, P] and value [B] of the steps that are asked for."""
        policies, values = [], []
        for sequence in sequences:
            state = sequence.state
            for seen, begins, asked in zip(*sequence[:3], strict=True):
                policy, value, state = self.step(seen, nothing() if begins else state)
                policies += [policy] * asked
                values += [value] * asked
        return torch.stack(policies), torch.stack(values)


def nothing() -> State:
    return [(torch.zeros(UNITS), torch.zeros(UNITS)) for _ in range(2)]


class Played(NamedTuple):
    """A rollout of one environment as it was judged: what was seen [T], which steps began an
    episode, the state before each, V of each and of what followed it, log π of each."""

    seen: Tensor
    begins: list[bool]
    states: list[State]
    values: list[float]
    next_values: list[float]
    log_probabilities: list[Tensor]


class Remembering(Reference):
    """Plays every rollout again, with what it remembers; mistake: one of MISTAKES."""

    def __init__(
        self,
        trainer: RecurrentPPOTrainer,
        resolved: Resolved,
        lives: bool,
        fire: bool,
        mistake: str,
    ) -> None:
        self.hyper, self.settings = resolved.hyperparameters, resolved.environment
        self.lives, self.fire, self.mistake = lives, fire, mistake
        self.network = SlowNetwork(trainer.network.state_dict())  # type: ignore[assignment]
        self.discrete = trainer.environments.interface.discrete
        self.optimiser = torch.optim.Adam(self.network.parameters(), eps=self.hyper.adam_epsilon)
        self.order = torch.Generator().manual_seed(
            integer_seed(resolved.experiment.seed, 0, "minibatches")
        )
        self.observed = list[np.ndarray]()
        self.flights = [0.0] * ENVIRONMENTS
        self.discounted_returns = list[float]()
        self.states, self.begins = [nothing() for _ in range(ENVIRONMENTS)], [True] * ENVIRONMENTS

    def warm_up(self, rows: list[list[Row]]) -> None:
        for n, of in enumerate(rows):
            self._play(n, of)
        super().warm_up(rows)

    def _normalised(self, observations: np.ndarray) -> Tensor:
        if self.settings.normalise_observations and not self.observed:  # the warm-up itself
            return torch.from_numpy(np.clip(observations, -10, 10))
        return super()._normalised(observations)

    @torch.no_grad()
    def _play(self, n: int, rows: list[Row]) -> Played:
        seen = self._normalised(np.stack([row.observation for row in rows]))
        following = self._normalised(np.stack([row.next_observation for row in rows]))
        played = Played(seen, [], [], [], [], [])
        for row, now, later in zip(rows, seen, following, strict=True):
            played.begins.append(self.begins[n])
            played.states.append(self.states[n])
            before = nothing() if self.begins[n] else self.states[n]
            policy, value, self.states[n] = self.network.step(now, before)
            action = torch.as_tensor(np.asarray(row.action))
            chosen = self._of(policy[None]).log_prob(action[None])[0]
            cleared = row.truncated and self.mistake == "the final value by a cleared state"
            bootstrap = self.network.step(later, nothing() if cleared else self.states[n])[1]
            played.values.append(float(value))
            played.next_values.append(float(bootstrap))
            played.log_probabilities.append(chosen)
            lost = self._is_life_lost(row) and self.mistake == "a lost life resets"
            self.begins[n] = row.terminated or row.truncated or lost
        return played

    def epoch(self, rows: list[list[Row]], remaining: float) -> None:
        """rows [N][T]."""
        rewards, played = self._rewards(rows), [self._play(n, of) for n, of in enumerate(rows)]
        advantages = [
            self._advantages(of, reward, one.values, one.next_values)
            for of, reward, one in zip(rows, rewards, played, strict=True)
        ]
        learnt = [[not self._is_forced(row) for row in of] for of in rows]
        places = [(n, t) for t in range(STEPS) for n in range(ENVIRONMENTS) if learnt[n][t]]
        columns = {
            (n, t): (
                torch.as_tensor(np.asarray(rows[n][t].action)), played[n].log_probabilities[t],
                torch.tensor(played[n].values[t]),
                torch.tensor(advantages[n][t], dtype=torch.float32),
            )
            for n, t in places
        }  # fmt: skip
        length = self.hyper.sequence_length
        sequences = [(n, t) for t in range(0, STEPS, length) for n in range(ENVIRONMENTS)]
        self.losses, self.log_ratios = list[list[float]](), list[Tensor]()
        for _ in range(self.hyper.update_epochs):
            for part in self._parts(len(sequences)):
                chosen = [sequences[number] for number in part.tolist()]
                asked = [
                    place
                    for n, first in chosen
                    for place in ((n, t) for t in range(first, first + length))
                    if place in columns
                ]
                inputs = [self._sequence(played[n], learnt[n], first) for n, first in chosen]
                taken = [torch.stack(one) for one in zip(*map(columns.get, asked), strict=True)]
                self._update(inputs, *taken, taken[3] + taken[2], remaining=remaining)  # type: ignore[arg-type]
        self.observed.append(np.stack([rows[n][t].observation for n, t in places]))
        values = torch.stack([columns[place][2] for place in places])
        returns = values + torch.stack([columns[place][3] for place in places])
        self.metrics = self._metrics(values, returns, len(places), remaining)

    def _sequence(self, played: Played, learnt: list[bool], first: int) -> Sequence:
        steps = slice(first, first + self.hyper.sequence_length)
        begins, state = played.begins[steps], played.states[first]
        if self.mistake == "no reset inside":
            begins = [*begins[:1], *(False for _ in begins[1:])]
        if self.mistake == "reset a step late":
            begins = [False, *begins[:-1]]
        if self.mistake == "sequences begin with nothing":
            state = nothing()
        if self.mistake == "the state after the first step is stored":
            state, begins = played.states[first + 1], [False, *begins[1:]]
        return Sequence(played.seen[steps], begins, learnt[steps], state)

    def _distribution(self, inputs: Any) -> Any:
        return self._of(self.network(inputs)[0])

    def _of(self, policy: Tensor) -> Any:
        if self.discrete:
            return torch.distributions.Categorical(logits=policy)
        mean, log_std = policy.chunk(2, dim=1)
        return torch.distributions.Independent(torch.distributions.Normal(mean, log_std.exp()), 1)


def largest_difference(
    given: dict[str, object], *, continuous: bool, lives: bool, fire: bool, mistake: str = ""
) -> float:
    """Between the trainer's parameters and the reference's, after whole epochs."""
    small = {"hidden_sizes": "5", "lstm_size": UNITS}
    resolved = recorded("ppo-lstm", {**small, **given}, continuous, lives, fire)
    trainer, reference = trained_beside(
        RecurrentPPOTrainer,
        lambda trainer: Remembering(trainer, resolved, lives, fire, mistake),
        resolved, fire, is_right=not mistake,
    )  # fmt: skip
    theirs = reference.network.weights
    mine = trainer.network.state_dict()
    return max(
        float((value - theirs[name.replace(".", "_")]).detach().abs().max())
        for name, value in mine.items()
    )


# Adam's epsilon is large: divided by its own size, a gradient of nearly 0 makes rounding as large
# as a step.
SWITCHES = st.fixed_dictionaries({
    "sequence_length": st.sampled_from([2, 4, 8, 16]), "minibatches": st.sampled_from([1, 3]),
    "update_epochs": st.sampled_from([1, 2]),
    "normalise_observations": st.booleans(), "normalise_rewards": st.booleans(),
    "clip_value_loss": st.booleans(), "anneal_clip": st.booleans(),
    "learning_rate": st.sampled_from([0.003, 0.01]), "adam_epsilon": st.sampled_from([0.003, 0.1]),
    "discount": st.sampled_from([0.5, 0.99]), "gae_lambda": st.sampled_from([0.0, 0.9, 1.0]),
    "clip": st.sampled_from([0.05, 0.2]), "entropy_coefficient": st.sampled_from([0.0, 0.05]),
    "max_gradient_norm": st.sampled_from([0.1, 100.0]), "seed": st.integers(0, 9),
})  # fmt: skip


@pytest.mark.slow
@settings(max_examples=15, deadline=None, derandomize=True)
@given(given=SWITCHES, continuous=st.booleans(), lives=st.booleans(), fire=st.booleans())
def test_whole_epochs_end_with_the_parameters_of_the_reference(
    given: dict[str, object], continuous: bool, lives: bool, fire: bool
) -> None:
    fire = fire and not continuous
    assert largest_difference(given, continuous=continuous, lives=lives, fire=fire) < 1e-5


@pytest.mark.parametrize(
    "mistake",
    [*(pytest.param(one, marks=pytest.mark.slow) for one in MISTAKES[:-2]), *MISTAKES[-2:]],
)
def test_each_of_the_usual_mistakes_would_be_noticed(mistake: str) -> None:
    given: dict[str, object] = {
        "sequence_length": 8, "minibatches": 3, "update_epochs": 2, "learning_rate": 0.01,
        "adam_epsilon": 0.003, "max_gradient_norm": 100, "normalise_observations": False,
        "normalise_rewards": False, "seed": 1,
    }  # fmt: skip
    switches = {"continuous": False, "lives": True, "fire": False}
    assert largest_difference(given, **switches) < 1e-5
    assert largest_difference(given, **switches, mistake=mistake) > 1e-3
