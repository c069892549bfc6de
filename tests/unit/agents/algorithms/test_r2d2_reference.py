"""R2D2's loss once more, the slow way and in float64: one sequence after the other, one row after the
other, sums of rewards forwards. Its gradients, errors and priorities are the learner's, and with each
of the usual mistakes they are not.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from agents.algorithms.r2d2 import sequence_priorities
from agents.algorithms.r2d2_acting import RecurrentValueActing
from agents.distributed.protocol import Columns
from agents.distributed.weights import weights_of
from tests.replayed_actors import learner, played, replayed

UNITS = 6
SLOPE = 1e-3
MISTAKES = (
    "a gradient through the burn-in", "the target burns nothing in", "sequences begin with nothing",
    "no reset inside", "the target's own choice", "a truncation is a termination",
    "the final observation is learnt from", "sums go on after an end", "the burn-in is learnt from",
    "no importance weights", "what is forbidden is chosen", "a sum instead of a mean",
)  # fmt: skip
State = tuple[Tensor, Tensor]


class Slow:
    """The weights of one network, by the learner's names, one row at a time."""

    def __init__(self, network: Any, dueling: bool) -> None:
        self.weights = {
            name: value.detach().double().requires_grad_()
            for name, value in network.state_dict().items()
        }
        self.dueling = dueling

    def step(self, seen: Tensor, state: State) -> tuple[Tensor, State]:
        """Q [A], and the state after it."""
        of = self.weights
        seen = torch.relu(of["torso.eyes.weight1"] @ seen + of["torso.eyes.bias1"])
        hidden, cell = state
        z = seen @ of["torso.input_weight"][0] + of["torso.bias"][0, 0]
        z = z + hidden @ of["torso.weight"][0]
        i, f, o = (1 / (1 + torch.exp(-z[n * UNITS : (n + 1) * UNITS])) for n in range(3))
        cell = f * cell + i * torch.tanh(z[3 * UNITS :])
        hidden = o * torch.tanh(cell)
        if not self.dueling:
            return of["weight"] @ hidden + of["bias"], (hidden, cell)
        layer = torch.relu(hidden @ of["torso.weight1"][0] + of["torso.bias1"][0, 0])
        value = of["value_weight"] @ layer[:UNITS] + of["value_bias"]
        advantages = of["weight"] @ layer[UNITS:] + of["bias"]
        return value + advantages - advantages.mean(), (hidden, cell)


class Reference:
    """The learner's weights; mistake: one of MISTAKES."""

    def __init__(self, trainer: Any, mistake: str = "", hyper: Any = None) -> None:
        self.hyper, self.mistake = hyper or trainer.hyper, mistake
        self.online, self.target = (
            Slow(one, trainer.hyper.dueling) for one in (trainer.network, trainer.target)
        )

    def is_final(self, columns: Columns, unroll: int, t: int) -> bool:
        begins, terminated = columns["begins"][unroll], columns["terminated"][unroll]
        return t + 1 < len(begins) and bool(begins[t + 1]) and not bool(terminated[t])

    def values(self, network: Slow, columns: Columns, unroll: int) -> list[Tensor]:
        """Q [A] of every row of a sequence."""
        found = list[Tensor]()
        hidden, cell = (torch.tensor(columns[f"state{n}"][unroll][0]).double() for n in (0, 1))
        nothing = torch.zeros(UNITS, dtype=torch.float64)
        if self.mistake == "sequences begin with nothing":
            hidden = cell = nothing
        for t, seen in enumerate(columns["observation"][unroll]):
            begins = bool(columns["begins"][unroll, t])
            burns_in = self.mistake != "the target burns nothing in" or network is self.online
            if t < self.hyper.burn_in and not burns_in:
                found.append(torch.zeros(2, dtype=torch.float64))
                continue
            if begins and not (self.mistake == "no reset inside" and t > 0):
                hidden = cell = nothing
            if t == self.hyper.burn_in and self.mistake != "a gradient through the burn-in":
                hidden, cell = hidden.detach(), cell.detach()
            value, (hidden, cell) = network.step(torch.tensor(seen).double(), (hidden, cell))
            found.append(value)
        return found

    def bootstrap(self, online: Tensor, target: Tensor, allowed: np.ndarray) -> float:
        chooses = (target if self.mistake == "the target's own choice" else online).clone()
        if self.mistake != "what is forbidden is chosen":
            chooses[~torch.from_numpy(allowed)] = -torch.inf
        value = float(target[int(chooses.argmax())])
        if not self.hyper.rescale_values:
            return value
        inner = (np.sqrt(1 + 4 * SLOPE * (abs(value) + 1 + SLOPE)) - 1) / (2 * SLOPE)
        return float(np.sign(value) * (inner**2 - 1))

    def target_of(self, columns: Columns, unroll: int, row: int, values: list[float]) -> float:
        """y of one row."""
        hyper, total, weight, now = self.hyper, 0.0, 1.0, row
        last = len(values) - 1
        for _ in range(hyper.n_step):
            total += weight * float(columns["reward"][unroll, now])
            ended = bool(columns["terminated"][unroll, now])
            follows_final = now + 1 < last and self.is_final(columns, unroll, now + 1)
            if self.mistake == "a truncation is a termination":
                ended = ended or follows_final
            if ended and self.mistake != "sums go on after an end":
                weight = 0.0
                break
            weight, now = weight * hyper.discount, now + 1
            if now == last:
                break
            if follows_final and self.mistake != "sums go on after an end":
                break
        total += weight * values[now]
        if not hyper.rescale_values:
            return total
        return float(np.sign(total) * (np.sqrt(abs(total) + 1) - 1) + SLOPE * total)

    def errors(self, columns: Columns, unroll: int) -> dict[int, Tensor]:
        """Y − Q of each row that is learnt from."""
        online = self.values(self.online, columns, unroll)
        target = self.values(self.target, columns, unroll)
        masks = columns.get("mask", np.ones((*columns["reward"].shape, 2), bool))[unroll]
        rows = zip(online, target, masks, strict=True)
        values = [self.bootstrap(one.detach(), other.detach(), mask) for one, other, mask in rows]
        first = 0 if self.mistake == "the burn-in is learnt from" else self.hyper.burn_in
        found = dict[int, Tensor]()
        for t in range(first, len(values) - 1):
            final = self.is_final(columns, unroll, t)
            if columns["valid"][unroll, t] or (
                final and self.mistake == "the final observation is learnt from"
            ):
                y = self.target_of(columns, unroll, t, values)
                found[t] = y - online[t][int(columns["action"][unroll, t])]
        return found

    def gradients(self, columns: Columns, weights: np.ndarray) -> dict[str, Tensor]:
        losses = list[Tensor]()
        for unroll, weight in enumerate(weights):
            share = 1.0 if self.mistake == "no importance weights" else float(weight)
            of_rows = self.errors(columns, unroll).values()
            losses += [share * 0.5 * error**2 for error in of_rows]
        total = torch.stack(losses).sum()
        if self.mistake != "a sum instead of a mean":
            total = total / len(losses)
        total.backward()  # type: ignore[no-untyped-call]
        of = self.online.weights
        return {name: one.grad for name, one in of.items() if one.grad is not None}


def scene(masked: bool = True, **given: Any) -> tuple[Any, Columns, np.ndarray]:
    """A trainer whose target is another network, sequences of an actor, and importance weights."""
    given = {"epsilon": 1, "epsilon_exponent": 0, "discount": 0.8, **given}
    options = f"masked={str(masked).lower()}"
    resolved = replayed("r2d2", "tests.own_games:Chain", env_options=options, **given)
    trainer = learner(resolved)
    generator = torch.Generator().manual_seed(4)
    for network in (trainer.network, trainer.target):  # what is seen and remembered matters
        for parameter in network.parameters():
            parameter.data += 0.6 * torch.randn(parameter.shape, generator=generator)
    columns, _ = played(
        resolved, RecurrentValueActing, weights_of(trainer.network, None), 60, trainer.hyper.burn_in
    )
    final = columns["begins"][:, 1:] & ~columns["terminated"][:, :-1]
    assert final[:, trainer.hyper.burn_in :].sum() > 3 and columns["terminated"].sum() > 3
    weights = np.random.default_rng(0).uniform(0.2, 1, len(columns["reward"])).astype(np.float32)
    return trainer, columns, weights


def found_by_learner(trainer: Any, columns: Columns, weights: np.ndarray) -> dict[str, Tensor]:
    """Its gradients, from a step that changes nothing."""
    trainer.optimiser.step = lambda rate: None
    trainer._update(trainer._seen(columns), trainer._rows(columns, trainer.device), weights)
    found: dict[str, Tensor] = {}
    for name, parameter in trainer.network.named_parameters():
        if parameter.grad is not None:
            found[name] = parameter.grad
    return found


def difference(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """The largest, relative to the largest of each parameter's."""
    assert found.keys() == expected.keys()
    return max(
        float((found[name] - one).abs().max() / one.abs().max()) for name, one in expected.items()
    )


SWITCHES: dict[str, Any] = {
    "n_step": 1, "rescale_values": False, "discount": 0.3, "burn_in": 0,
}  # fmt: skip


@pytest.mark.parametrize("masked", [False, True])
def test_the_gradients_are_those_of_loops(masked: bool) -> None:
    trainer, columns, weights = scene(masked)
    found = found_by_learner(trainer, columns, weights)
    assert difference(found, Reference(trainer).gradients(columns, weights)) < 1e-5


@pytest.mark.parametrize("switch", [*SWITCHES, "dueling"])
def test_each_switch_changes_them_as_it_should(switch: str) -> None:
    given = {switch: SWITCHES.get(switch, False)}
    trainer, columns, weights = scene(**given)
    found = found_by_learner(trainer, columns, weights)
    assert difference(found, Reference(trainer).gradients(columns, weights)) < 1e-5
    if switch == "dueling":
        assert "value_weight" not in found
        return
    usual = scene()[0].hyper
    ignored = Reference(trainer, hyper=usual).gradients(columns, weights)
    assert difference(found, ignored) > 1e-2


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_would_be_noticed(mistake: str) -> None:
    trainer, columns, weights = scene()
    found = found_by_learner(trainer, columns, weights)
    assert difference(found, Reference(trainer, mistake).gradients(columns, weights)) > 2e-3


def test_the_actor_s_first_priorities_are_those_of_a_second_pass() -> None:
    """By one network, which is the actor's, the learner's and the target."""
    trainer, columns, _ = scene()
    trainer.target.load_state_dict(trainer.network.state_dict())
    given = dict[str, np.ndarray]()
    trainer._set_priorities = lambda *one: given.update(
        priorities=sequence_priorities(one[1].numpy(), one[2].numpy(), trainer.hyper.priority_mix)
    )
    numbers = trainer.experience.replay.add(columns)
    trainer._added(numbers, columns)
    reference = Reference(trainer)
    for unroll, priority in enumerate(given["priorities"]):
        sizes = [abs(error.item()) for error in reference.errors(columns, unroll).values()]
        expected = 0.9 * max(sizes) + 0.1 * float(np.mean(sizes))
        assert priority == pytest.approx(expected, rel=1e-4)


def test_a_priority_is_mostly_the_largest_error() -> None:
    errors = np.array([[0.1], [-0.4], [0.2], [0.3], [9.0]])
    valid = np.array([[True]] * 4 + [[False]])
    assert sequence_priorities(errors, valid, 0.9) == pytest.approx([0.385])
    assert sequence_priorities(errors, valid, 0.0) == pytest.approx([0.25])
    assert sequence_priorities(errors, ~valid, 0.9) == pytest.approx([9.0])
    assert sequence_priorities(errors, np.zeros_like(valid), 0.9) == pytest.approx([0.0])


@functools.cache
def first_errors(burn_in: int) -> float:
    """Of the value of the first row that is learnt from, by stored states that were forgotten."""
    trainer, columns, _ = scene(unroll_length=7, burn_in=burn_in)
    truth = trainer._values(trainer.network, trainer._seen(columns))[0]
    forgotten = {name: np.zeros_like(columns[name]) for name in ("state0", "state1")}
    found = trainer._values(trainer.network, trainer._seen({**columns, **forgotten}))[0]
    return (found - truth).abs().mean().item()


def test_burning_in_makes_up_for_a_state_that_is_wrong() -> None:
    assert first_errors(4) < 0.5 * first_errors(0)
