"""Inside an epoch nothing waits for the device, but for the actions of each half step.

Only the pretended device counts. It hands out no number before it was waited for: memory that a copy
is on its way to holds other numbers until then.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from agents.algorithms.impala_acting import look
from agents.distributed.central import Turn
from agents.distributed.stepping import one_environment
from agents.optimisation import graphs
from agents.states import to_arrays
from config.errors import Diverged
from tests.gpu.trainings import CASES, LOCKS, Case, made, progress_of
from tests.unit.agents.optimisation.test_graphs import Repeats

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        os.environ.get("GPU_TESTS_DEVICE") != "pretended", reason="only the pretended device counts"
    ),
]
ACTIONS = "event"
END = "tolist"
"""The one look at an epoch's numbers."""
BREAKOUT = {"num_envs": "4", "rollout_length": "16", "minibatches": "2", "update_epochs": "2"}
PPO = {
    "cartpole": Case("ppo", "cartpole", {"epochs": "4"}),
    "real-valued actions": Case("ppo", "pendulum", {"epochs": "4"}),
    "truncated episodes": Case(
        "ppo", "cartpole", {"epochs": "4", "env_options": "max_episode_steps=5"}
    ),
    "several actions, masks": Case("ppo", LOCKS, {"epochs": "4", "env_options": "acts=several"}),
    "breakout, in halves": Case("ppo", "breakout", {**BREAKOUT, "epochs": "4"}),
    "a2c": Case("a2c", "cartpole", {"epochs": "4"}),
    "a memory": Case("ppo-lstm", "cartpole", {"epochs": "4"}),
}


def waits_of_epochs(trainer: Any) -> list[Counter[str]]:
    from tests.gpu.pretended import waits

    found, progress = list[Counter[str]](), progress_of(trainer)
    waits.clear()
    for _ in progress:
        found.append(Counter({name: count for name, count in waits.items() if count}))
        waits.clear()
    trainer.close()
    return found


@pytest.mark.parametrize("name", PPO)
def test_an_epoch_of_ppo_waits_for_actions_and_once_at_its_end(name: str, device: str) -> None:
    trainer = made(PPO[name].resolved(), device)
    groups = len(trainer.environments.groups)
    assert groups == (2 if name == "breakout, in halves" else 1)
    actions = trainer.hyper.rollout_length * groups
    first, *later = waits_of_epochs(trainer)
    # The first epoch may put what stays on the device there, such as the columns of components.
    assert first[ACTIONS] in (actions, 2 * actions) and first[END] == 1
    assert later == [Counter({ACTIONS: actions, END: 1})] * 3


OFF_POLICY = {
    "dqn": CASES["dqn"],
    "dqn, every step": Case("dqn", "cartpole", {"train_every": "2", "double": "true"}),
    "dqn, quantiles, images": CASES["dqn, quantiles, images"],
    "sac": CASES["sac"],
    "td3": CASES["td3"],
}


@pytest.mark.parametrize("name", OFF_POLICY)
def test_updates_from_a_replay_wait_for_nothing(name: str, device: str) -> None:
    """The actions of the next step say whether they were finite; an epoch looks at the last ones and at
    its metrics. Where all actions are random, the look is by itself.
    """
    case = OFF_POLICY[name]
    given = {**case.given, "epochs": "4", "exploration_fraction": "0", "final_epsilon": "0"}
    if case.algorithm != "dqn":
        given = {**case.given, "epochs": "4"}
    trainer = made(Case(case.algorithm, case.game, given).resolved(), device)
    steps = trainer.hyper.epoch_steps // trainer.resolved.environment.count
    _, *later = waits_of_epochs(trainer)
    groups = len(getattr(trainer, "groups", [1]))
    assert later == [Counter({ACTIONS: steps, END: 1 + groups})] * 3


@pytest.mark.parametrize("name", ["dqn, every step", "sac", "td3"])
def test_updates_from_a_replay_that_are_not_finite_are_undone(name: str, device: str) -> None:
    """The refused ones alone: those before them were looked at."""
    case = OFF_POLICY[name]
    given = {**case.given, "epochs": "4", "updates": "2"}
    trainer = made(Case(case.algorithm, case.game, given).resolved(), device)
    progress = progress_of(trainer)
    next(progress)
    next(progress)
    block, states = trainer.block, list[Any]()
    make = block.make

    def noted(updates: Any) -> Any:
        states.append(replayed_state_of(trainer))
        return make(updates)

    block.make = noted
    poison(trainer, update=6)
    with pytest.raises(Diverged, match=r"not finite in epoch 3, after step \d+: "):
        next(progress)
    assert len(states) > 1
    assert_same(replayed_state_of(trainer), states[-1])
    trainer.close()


def replayed_state_of(trainer: Any) -> dict[str, Any]:
    state = trainer.state_dict()
    generators = {name: repr(one) for name, one in state["generators"].items() if name != "actions"}
    learnt = ("network", "target", "optimiser", "optimisers", "updates")
    return {name: state[name] for name in learnt if name in state} | generators


@pytest.mark.parametrize("name", ["impala", "impala, a memory", "impala, images"])
def test_an_update_of_impala_waits_for_its_numbers_and_for_its_weights(
    name: str, device: str
) -> None:
    """It is published, so that both are wanted at once; by then the device has nothing else to do."""
    case = Case("impala", CASES[name].game, {**CASES[name].given, "epochs": "4"})
    trainer = made(case.resolved(), device)
    updates = trainer.hyper.epoch_updates
    _, *later = waits_of_epochs(trainer)
    assert later == [Counter({"event": updates, END: updates})] * 3


def test_an_update_of_impala_that_is_not_finite_is_undone_and_not_published(device: str) -> None:
    trainer = made(Case("impala", "cartpole", {"epochs": "4"}).resolved(), device)
    progress = progress_of(trainer)
    next(progress)
    before, version = learnt_of(trainer), trainer.exchange._version
    poison(trainer, update=1)
    with pytest.raises(Diverged, match=r"not finite in epoch 2, after step \d+: losses: policy"):
        for _ in progress:
            pass
    assert_same(learnt_of(trainer), before)
    assert trainer.exchange._version == version
    trainer.close()


@pytest.mark.parametrize("name", ["impala", "impala, a memory", "impala, images"])
def test_central_inference_waits_once_a_batch(name: str, device: str) -> None:
    from tests.gpu.pretended import waits

    given = {**CASES[name].given, "inference": "learner"}
    resolved = Case("impala", CASES[name].game, given).resolved()
    policies = [look(resolved, 0, where, "fp32")[0] for where in ("cpu", device)]
    with one_environment(resolved, 0) as environments:
        observations = np.repeat(environments.observation[:1], 3, axis=0)
    memories = [policy.begin(3, 0) for policy in policies]
    for first in (True, False):
        waits.clear()
        here, there = (
            policy.act([Turn(memory, slice(0, 3), observations, np.full(3, first), None)])[0]
            for policy, memory in zip(policies, memories, strict=True)
        )
        assert waits == Counter({"event": 1})
        np.testing.assert_array_equal(here.actions, there.actions)
        for column, value in here.rows.items():
            np.testing.assert_allclose(value, there.rows[column], rtol=1e-5)
    for mine, theirs in zip(*(memory.parts(slice(0, 3)) for memory in memories), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-6)


@pytest.mark.parametrize("name", ["cartpole", "a memory"])
def test_an_epoch_that_is_not_finite_is_undone(name: str, device: str) -> None:
    """All of it: weights, moments, and the order of minibatches; and the error is the processor's."""
    said = dict[str, str]()
    for where in ("cpu", device):
        trainer = made(PPO[name].resolved(), where)
        # On the processor as well it is torch that `poison` deceives, not the machine code.
        trainer.compiled = None
        progress = progress_of(trainer)
        next(progress)
        before = kept(trainer)
        # The second update of the next epoch, whose step a GPU makes before anyone looks.
        poison(trainer, update=2)
        with pytest.raises(Diverged) as refused:
            next(progress)
        trainer.close()
        said[where] = str(refused.value)
        if where == device:
            assert_same(kept(trainer), before)
    words, numbers = zip(*(parts_of(said[where]) for where in ("cpu", device)), strict=True)
    assert words[0] == words[1]
    assert words[0].startswith("loss or gradient is not finite in epoch #, after step #: losses")
    assert numbers[1] == pytest.approx(numbers[0], rel=1e-2, abs=1e-5, nan_ok=True)


def test_a_block_that_is_finite_the_second_time_is_learnt(device: str, caplog: Any) -> None:
    """Sums of a GPU need not be the same twice."""
    once, never = (made(PPO["cartpole"].resolved(), device) for _ in range(2))
    poison(once, update=3, times=1)
    metrics = [[one.metrics for one in progress_of(trainer)] for trainer in (once, never)]
    assert "was when it was repeated" in caplog.text
    assert_same(metrics[0], metrics[1])
    assert_same(kept(once), kept(never))
    once.close()
    never.close()


@pytest.mark.parametrize("name", ["real-valued actions", "breakout, in halves", "a memory"])
def test_recordings_change_nothing_and_wait_for_nothing(
    name: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands for CUDA graphs here calls the functions again, with what is in their inputs' places."""
    given = {**PPO[name].given, "epochs": "6"}
    resolved = Case(PPO[name].algorithm, PPO[name].game, given).resolved()
    plain = made(resolved, device)
    monkeypatch.setattr(graphs, "RECORDERS", {"pretended": Repeats})
    Repeats.recorded = 0
    recorded = made(resolved, device)
    metrics = [[one.metrics for one in progress_of(trainer)] for trainer in (plain, recorded)]
    assert (Repeats.recorded > 0) == (name != "a memory"), "sequences are no tensors"
    assert_same(metrics[0], metrics[1])
    assert_same(kept(plain), kept(recorded))
    plain.close()
    # Recording and checking wait, but not every time.
    *_, last = waits_of_epochs(made(resolved, device))
    assert set(last) == {ACTIONS, END}
    recorded.close()


def parts_of(message: str) -> tuple[str, list[float]]:
    """Its words, and its numbers, which the two sides round in different ways."""
    number = r"-?\b(?:nan|inf|\d+(?:\.\d+)?(?:e[+-]?\d+)?)\b"
    return re.sub(number, "#", message), [float(one) for one in re.findall(number, message)]


def learnt_of(trainer: Any) -> dict[str, Any]:
    state = trainer.state_dict()
    return {name: state[name] for name in ("network", "optimiser")}


def kept(trainer: Any) -> dict[str, Any]:
    return {**learnt_of(trainer), "order": to_arrays(trainer.permutations.get_state())}


def poison(trainer: Any, update: int, times: int = 2) -> None:
    """The loss is infinite in this update from now on, as often as it is made."""
    gradients = (
        trainer.gradients if hasattr(trainer, "gradients") else trainer.learners["critics"][0]
    )
    original, go_back = gradients.function, trainer.block._go_back
    calls, poisoned, first_of_block = Counter[str](), Counter[str](), Counter[str]()
    keep = trainer.block._keep

    def loss(*inputs: Any) -> tuple[torch.Tensor, ...]:
        calls["now"] += 1
        first, *others = original(*inputs)
        if calls["now"] != update or poisoned["now"] >= times:
            return first, *others
        poisoned["now"] += 1
        return first * math.inf, *others

    def kept() -> None:
        first_of_block["now"] = calls["now"]
        keep()

    def back() -> None:
        calls["now"] = first_of_block["now"]
        go_back()

    gradients.function = loss
    trainer.block._keep, trainer.block._go_back = kept, back


def assert_same(one: Any, other: Any) -> None:
    from tests.gpu.trainings import largest_difference

    assert largest_difference(one, other) <= (0.0, "~")
