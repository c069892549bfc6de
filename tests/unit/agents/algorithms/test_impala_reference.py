"""IMPALA's loss once more, the slow way and in float64: one unroll after the other, one row after the
other, V-trace by the paper's sum, autograd. Its gradients are the learner's, and with each of the
usual mistakes they are not.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from agents.algorithms.impala import IMPALATrainer
from agents.distributed.protocol import Columns
from agents.networks.actor_critic import RecurrentActorCritic
from tests.local_actors import impala, learner
from tests.unit.agents.algorithms.test_impala_rows import batch_of, played
from tests.unit.agents.algorithms.test_ppo_lstm_reference import UNITS, SlowNetwork, State, nothing
from tests.unit.agents.experience.test_vtrace import slow

SMALL = {"envs_per_actor": 3, "unroll_length": 7, "batch_size": 4, "hidden_sizes": 5, "epochs": 1}
MISTAKES = (
    "the final observation is learnt from", "a truncation is a termination",
    "the final value by a cleared state", "the last row is learnt from", "no reset inside",
    "unrolls begin with nothing", "the sum instead of the mean", "the entropy's sign",
    "ratios without V-trace",
)  # fmt: skip


@contextmanager
def doubles() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


class Reference:
    """The learner's weights and settings; mistake: one of MISTAKES."""

    def __init__(self, trainer: IMPALATrainer, mistake: str) -> None:
        self.hyper, self.mistake = trainer.hyper, mistake
        self.clips = trainer.resolved.environment.clip_rewards
        self.discrete, self.network = trainer.spaces.discrete, copy.deepcopy(trainer.network)
        self.network.double()
        self.slow: SlowNetwork | None = None
        if isinstance(trainer.network, RecurrentActorCritic):
            self.slow = SlowNetwork(
                {name: value.double() for name, value in trainer.network.state_dict().items()}
            )

    def heads(self, columns: Columns, unroll: int) -> tuple[list[Tensor], list[Tensor]]:
        """Policy [P] and value [] of every row of an unroll."""
        policies, values = [], []
        state: State = nothing()
        if self.slow is not None and self.mistake != "unrolls begin with nothing":
            hidden, cell = (torch.tensor(columns[f"state{n}"][unroll]).double() for n in (0, 1))
            state = [(hidden[tower], cell[tower]) for tower in range(2)]
        for t, seen in enumerate(columns["observation"][unroll]):
            begins = bool(columns["begins"][unroll, t])
            if self.mistake == "no reset inside" and t > 0:
                begins = False
            if self.mistake == "the final value by a cleared state":
                begins = begins or self.is_final(columns, unroll, t)
            row = torch.tensor(seen).double()
            if self.slow is not None:
                policy, value, state = self.slow.step(row, nothing() if begins else state)
            else:
                both = self.network(row[None])
                policy, value = both[0][0], both[1][0]
            policies.append(policy)
            values.append(value)
        return policies, values

    def is_final(self, columns: Columns, unroll: int, t: int) -> bool:
        begins, terminated = columns["begins"][unroll], columns["terminated"][unroll]
        return t + 1 < len(begins) and bool(begins[t + 1]) and not bool(terminated[t])

    def distribution(self, policy: Tensor) -> Any:
        if self.discrete:
            return torch.distributions.Categorical(logits=policy)
        mean, log_std = policy.chunk(2)
        return torch.distributions.Independent(torch.distributions.Normal(mean, log_std.exp()), 1)

    def gradients(self, columns: Columns) -> dict[str, Tensor]:
        hyper, losses = self.hyper, list[Tensor]()
        for unroll in range(len(columns["reward"])):
            losses += self.losses(columns, unroll)
        total = torch.stack(losses).sum()
        if self.mistake != "the sum instead of the mean":
            total = total / len(losses)
        module = self.network if self.slow is None else self.slow.weights
        module.zero_grad()
        total.backward()  # type: ignore[no-untyped-call]
        assert hyper.batch_size == len(columns["reward"])
        return {
            name.replace(".", "_"): parameter.grad
            for name, parameter in module.named_parameters()
            if parameter.grad is not None
        }

    def losses(self, columns: Columns, unroll: int) -> Iterator[Tensor]:
        """Of each row that is learnt from."""
        hyper, length = self.hyper, self.hyper.unroll_length
        policies, values = self.heads(columns, unroll)
        valid, rewards = columns["valid"][unroll], columns["reward"][unroll].astype(np.float64)
        terminated = columns["terminated"][unroll][:length].copy()
        final = np.array([self.is_final(columns, unroll, t) for t in range(length)])
        distributions = [self.distribution(policy) for policy in policies]
        actions = [torch.tensor(action) for action in columns["action"][unroll]]
        log_pi = [one.log_prob(action) for one, action in zip(distributions, actions, strict=True)]
        log_mu = columns["log_probability"][unroll]
        ratios = np.array(
            [float(log_pi[t].detach().exp()) / np.exp(float(log_mu[t])) for t in range(length)]
        )
        ratios[~valid[:length]] = 1
        if not hyper.vtrace or self.mistake == "ratios without V-trace":
            ratios[:] = 1
        if self.mistake == "a truncation is a termination":
            terminated[:-1] |= final[1:]
        value_numbers = np.array([float(value.detach()) for value in values])
        if self.clips:
            rewards = np.clip(rewards, -1, 1)
        rewards = rewards * hyper.reward_scale
        targets, advantages = slow(
            ratios, rewards[:length], value_numbers, terminated, final, hyper.discount,
            hyper.rho_bar, hyper.c_bar, hyper.trace_lambda,
        )  # fmt: skip
        for t in range(length):
            if not valid[t] and not (
                self.mistake == "the final observation is learnt from" and final[t]
            ):
                continue
            entropy = distributions[t].entropy() * hyper.entropy_coefficient
            if self.mistake == "the entropy's sign":
                entropy = -entropy
            yield (
                -log_pi[t] * advantages[t]
                + 0.5 * hyper.value_coefficient * (values[t] - targets[t]) ** 2
                - entropy
            )
        if self.mistake == "the last row is learnt from":
            yield 0.5 * hyper.value_coefficient * (values[length] - 1.0) ** 2


def differences(
    mistake: str = "", game: str = "tests.recorded_game:Recorded", **given: Any
) -> float:
    """The largest between gradients, relative to the largest gradient."""
    trainer = learner(impala(game, **SMALL, **given))
    unrolls = played(trainer.resolved, trainer, 200)
    first = next(unrolls)
    generator = torch.Generator().manual_seed(1)
    for parameter in trainer.network.parameters():  # π is not μ any more
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
    largest = 0.0
    for _ in range(4):
        columns = batch_of(trainer, itertools.chain([first], unrolls)).columns
        trainer.gradients(*trainer._rows(columns))
        with doubles():
            expected = Reference(trainer, mistake).gradients(columns)
        scale = max(float(one.abs().max()) for one in expected.values())
        for name, parameter in trainer.network.named_parameters():
            mine, theirs = parameter.grad, expected[name.replace(".", "_")]
            assert mine is not None
            largest = max(largest, float((mine - theirs).abs().max()) / scale)
    unrolls.close()  # type: ignore[attr-defined]
    trainer.close()
    return largest


SWITCHES = st.fixed_dictionaries({
    "lstm_size": st.sampled_from([0, UNITS]), "vtrace": st.booleans(),
    "rho_bar": st.sampled_from([1.0, 2.5]), "c_bar": st.sampled_from([0.5, 1.0]),
    "trace_lambda": st.sampled_from([0.8, 1.0]), "discount": st.sampled_from([0.0, 0.95]),
    "entropy_coefficient": st.sampled_from([0.0, 0.1]),
    "value_coefficient": st.sampled_from([0.3, 1.0]), "clip_rewards": st.booleans(),
    "reward_scale": st.sampled_from([0.05, 1.0, 3.0]), "seed": st.integers(0, 9),
})  # fmt: skip


@settings(max_examples=12, deadline=None, derandomize=True)
@given(given=SWITCHES, continuous=st.booleans())
def test_the_gradients_are_those_of_the_reference(given: dict[str, Any], continuous: bool) -> None:
    options = {"env_options": f"continuous={str(continuous).lower()}"}
    assert differences(**given, **options) < 2e-5


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_of_the_usual_mistakes_would_be_noticed(mistake: str) -> None:
    assert differences(mistake, lstm_size=UNITS, entropy_coefficient=0.1) > 1e-3
