"""A policy that remembers at work: in evaluation and film, from Python, as ONNX, and checked."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from agents.checks.algorithm_checks import TrainingChecks
from agents.checks.promises import tried
from agents.evaluation import episodes as evaluation
from agents.evaluation.episodes import Acting, evaluate
from agents.evaluation.policies import TrainedRecurrentPolicy
from agents.evaluation.rendering import Replay
from agents.interfaces import PolicyState, RecurrentPolicy
from agents.load import load_policy, make_trainer
from config.errors import BadInput
from config.resolve import resolve
from config.resolved import Resolved
from steps import check
from steps.results import TrainedAgent
from tests.unit.agents.evaluation.test_evaluation import same

SMALL = {
    "num_envs": "2", "rollout_length": "32", "sequence_length": "16", "update_epochs": "1",
    "minibatches": "2", "epochs": "4",
}  # fmt: skip
RECALL = {
    "game": "tests.own_games:Recall", "num_envs": "8", "rollout_length": "32",
    "sequence_length": "32", "minibatches": "1", "update_epochs": "4", "learning_rate": "0.005",
    "anneal_learning_rate": "false", "gae_lambda": "0.95", "epochs": "60",
    "normalise_observations": "false", "normalise_rewards": "false",
}  # fmt: skip


def small(game: str, **given: str) -> Resolved:
    return resolve("ppo-lstm", {"game": game, **SMALL, **given})


@functools.cache
def trained(game: str, network: str = "") -> Any:
    """After one epoch: weights and statistics of observations are no longer those of the start."""
    resolved = small(game, network=network)
    trainer = make_trainer(resolved, run=0, device="cpu", precision="fp32")
    next(iter(trainer.train()))
    trainer.close()
    policy = load_policy(resolved, trainer.state_dict())
    assert isinstance(policy, RecurrentPolicy)
    return policy


@pytest.fixture(scope="module")
def recalling() -> tuple[Resolved, Any]:
    """It has learnt what must be remembered for eight steps."""
    resolved = resolve("ppo-lstm", RECALL)
    trainer = make_trainer(resolved, run=0, device="cpu", precision="fp32")
    for _ in trainer.train():
        pass
    trainer.close()
    return resolved, load_policy(resolved, trainer.state_dict())


def test_evaluation_remembers(recalling: tuple[Resolved, Any]) -> None:
    resolved, policy = recalling
    returns = [one.return_ for one in evaluate(policy, resolved, 0, 40, False)]
    assert np.mean(returns) > 0.95


def test_without_its_memory_it_is_chance(
    recalling: tuple[Resolved, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved, policy = recalling

    def forgetting(
        self: TrainedRecurrentPolicy, seen: np.ndarray, state: Any, *_: Any, **how: Any
    ) -> Any:
        return original(self, seen, state, np.ones(len(seen), np.bool_), **how)

    original = TrainedRecurrentPolicy.act
    monkeypatch.setattr(TrainedRecurrentPolicy, "act", forgetting)
    returns = [one.return_ for one in evaluate(policy, resolved, 0, 40, False)]
    assert np.mean(returns) < 0.7


def test_a_person_at_the_keyboard_carries_the_state(recalling: tuple[Resolved, Any]) -> None:
    agent = TrainedAgent(recalling[1], 1)
    assert agent.remembers
    cues, silence = np.array([[1, 0], [-1, 0]], np.float32), np.zeros((2, 2), np.float32)
    _, state = agent.act(cues)
    for _ in range(6):
        _, state = agent.act(silence, state)
    last = np.array([[0, 1], [0, 1]], np.float32)
    assert agent.act(last, state)[0].tolist() == [1, 0]
    swapped = tuple(part[::-1] for part in state)
    assert agent.act(last, swapped)[0].tolist() == [0, 1], "the state is all that it remembers"
    of_one, after = agent.act(last[0], tuple(part[:1] for part in state))
    assert of_one == 1 and [part.shape for part in after] == [(1, 2, 64)] * 2
    begun, kept = (agent.act(cues, state, reset=reset)[1] for reset in ([True, False], None))
    fresh = agent.act(cues)[1]
    assert np.array_equal(begun[0][0], fresh[0][0]) and not np.array_equal(kept[0][0], fresh[0][0])
    assert np.array_equal(begun[0][1], kept[0][1])


@pytest.mark.parametrize(
    ("state", "reset", "reason"),
    [
        ((np.zeros((1, 2, 64)),), None, r"state has the shapes \[\(1, 2, 64\)\]; allowed"),
        ((np.zeros((3, 2, 64)),) * 2, None, r"allowed: \[\(2, 2, 64\), \(2, 2, 64\)\]"),
        ((np.zeros((2, 2, 64), np.float32),) * 2, [True], r"reset has the shape \(1,\); allowed"),
    ],
)
def test_a_wrong_state_is_refused(state: PolicyState, reset: Any, reason: str) -> None:
    agent = TrainedAgent(trained("cartpole"), 1)
    with pytest.raises(BadInput, match=reason):
        agent.act(np.zeros((2, 4)), state, reset=reset)


def test_an_agent_without_a_memory_takes_no_state() -> None:
    resolved = resolve("ppo", {"game": "cartpole", "epochs": "1"})
    trainer = make_trainer(resolved, run=0, device="cpu", precision="fp32")
    trainer.close()
    agent = TrainedAgent(load_policy(resolved, trainer.state_dict()), 1)
    assert not agent.remembers
    assert agent.act(np.zeros(4)) in (0, 1)
    with pytest.raises(BadInput, match="this agent remembers nothing"):
        agent.act(np.zeros(4), (np.zeros(3),))


@pytest.mark.parametrize("sample", [True, False], ids=["sampled", "greedy"])
def test_an_episode_depends_on_its_number_alone(
    sample: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved, policy = small("cartpole"), trained("cartpole")
    together = list(evaluate(policy, resolved, 0, 36, sample))
    assert same(list(evaluate(policy, resolved, 0, 36, sample)), together)
    assert same(list(evaluate(policy, resolved, 0, 3, sample)), together[:3])
    monkeypatch.setattr(evaluation, "LARGEST_GROUP", 5)
    assert same(list(evaluate(policy, resolved, 0, 12, sample)), together[:12])


@pytest.mark.slow
def test_the_film_is_the_evaluated_episode() -> None:
    resolved = small("pendulum-no-velocity")
    (episode,) = evaluate(trained("pendulum-no-velocity"), resolved, 0, 1, False)
    replay = Replay(resolved, episode.seed, episode.actions)
    assert sum(1 for _ in replay.frames()) == episode.length + 1
    assert replay.difference(episode.return_, episode.length) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("game", "network"),
    [
        ("cartpole", ""),
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in (("pendulum-no-velocity", ""), ("tests.own_games:Picture", ""))
        ),
        pytest.param("cartpole", "my_lab.nets:Gated", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_onnx_remembers_as_torch_does(game: str, network: str) -> None:
    """State in, state out; every third episode begins anew."""
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    import onnxruntime

    from agents.evaluation.export import to_onnx

    policy, generator, rows = trained(game, network), np.random.default_rng(0), 5
    session = onnxruntime.InferenceSession(
        to_onnx(policy, {"game": game}), providers=["CPUExecutionProvider"]
    )
    state = policy.first_state(rows)
    names = [f"state_{number}" for number in range(len(state))]
    inputs = [one.name for one in session.get_inputs()]
    assert inputs == ["observation", "reset", *names]
    outputs = [one.name for one in session.get_outputs()]
    assert outputs[-len(state) - 1 :] == ["value", *(f"next_{name}" for name in names)]
    remembered = [np.zeros_like(part) for part in state]
    for _ in range(4):
        seen = generator.normal(size=(rows, *policy.spaces.environment_shape)).astype(np.float32)
        if policy.spaces.image:
            seen = generator.integers(0, 256, seen.shape).astype(np.uint8)
        reset = generator.random(rows) < 1 / 3
        action, state = policy.act(seen, state, reset, sample=False)
        given = {"observation": seen, "reset": reset} | dict(zip(names, remembered, strict=True))
        found = session.run(None, given)
        remembered = found[-len(state) :]
        np.testing.assert_allclose(found[0], action, atol=1e-5)
        for one, other in zip(remembered, state, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)
    assert float(np.abs(state[0]).max()) > 1e-3, "something is remembered"


class Haunted(TrainedRecurrentPolicy):
    """Hears of no reset."""

    def act(
        self, observations: np.ndarray, state: PolicyState, reset: np.ndarray, **how: Any
    ) -> Any:
        return super().act(observations, state, np.zeros_like(reset), **how)


class Mixing(TrainedRecurrentPolicy):
    """Remembers of every row what it saw of the next one."""

    def act(
        self, observations: np.ndarray, state: PolicyState, reset: np.ndarray, **how: Any
    ) -> Any:
        _, after = super().act(observations, state, reset, **how)
        after = tuple(np.roll(part, 1, axis=0) for part in after)
        return (np.abs(after[0][:, 0, 0]) * 1e6).astype(np.int64) % 2, after


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (Haunted, "what is remembered after a reset depends on what was before it"),
        (Mixing, "a greedy action depends on the other observations of its batch"),
    ],
)
def test_a_policy_that_breaks_a_promise(
    broken: type[TrainedRecurrentPolicy], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agents.evaluation.policies.TrainedRecurrentPolicy", broken)
    last = list(tried(TrainingChecks(small("cartpole")).all()))[-1]
    assert not last.kept
    assert reason in last.seen


@pytest.mark.slow
def test_the_command_checks_a_network_that_remembers_with_ppo_lstm(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[str]()
    monkeypatch.setattr(check, "_killed", lambda what, texts: seen.append(what) or "train.csv")
    sizes = ["-p", "rollout_length=16", "-p", "sequence_length=16"]
    assert check.main(["my_lab.nets:Gated", *sizes]) == 0
    printed = capsys.readouterr().out
    assert printed.count("ok    ") == 10 and "a reset clears what is remembered" in printed
    assert seen == ["ppo-lstm"]


def test_one_that_remembers_nothing_acts_alike() -> None:
    class Constant:
        spaces = None

        def seed(self, seeds: Any) -> None: ...

        def act(self, observations: np.ndarray, *, sample: bool) -> np.ndarray:
            return np.full(len(observations), 7)

    assert Acting(Constant(), 3).act(np.zeros((3, 1)), sample=False).tolist() == [7, 7, 7]  # type: ignore[arg-type]
