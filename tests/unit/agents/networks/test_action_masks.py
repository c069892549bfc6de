"""Where an environment says which actions it allows, no other one is ever taken, and learning knows
it. A forbidden action raises in `Locks`."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

from agents.environments.game_check import check_game
from agents.environments.training import TrainingEnvironments
from agents.evaluation.episodes import evaluate
from agents.load import load_policy, make_trainer
from agents.networks.action_distributions import DiscreteActions, MultiDiscreteActions, masked
from config.errors import BadInput, Diverged
from config.resolve import resolve
from config.resolved import Resolved
from steps.results.acting import TrainedAgent

SHORT = {"num_envs": "3", "rollout_length": "16", "minibatches": "1", "epochs": "3"}
LEARNING = {
    "num_envs": "8", "rollout_length": "40", "minibatches": "4", "update_epochs": "4", "epochs": "12",
    "learning_rate": "0.003",
}  # fmt: skip
KINDS = [("info", "one"), ("observation", "one"), ("info", "several")]


def resolved_for(where: str, acts: str = "one", **given: str) -> Resolved:
    options = f"where={where},acts={acts}"
    return resolve("ppo", {"game": "tests.lab_environments:Locks", "env_options": options, **given})


def trainer_of(resolved: Resolved) -> Any:
    return make_trainer(resolved, run=0, device="cpu", precision="fp32")


@pytest.mark.parametrize(("where", "acts"), KINDS)
def test_no_forbidden_action_is_ever_taken(where: str, acts: str) -> None:
    resolved = resolved_for(where, acts, **SHORT)
    trainer = trainer_of(resolved)
    assert trainer.environments.interface.masked
    assert trainer.environments.interface.observation_shape == (6,)
    list(trainer.train())
    trainer.close()
    policy = load_policy(resolved, trainer.state_dict())
    for sample in (True, False):
        assert all(one.length == 5 for one in evaluate(policy, resolved, 0, 40, sample))


def test_a_beginner_who_would_rather_not_takes_what_is_allowed() -> None:
    """The policy's weights all say: the last action."""
    resolved = resolved_for("info", **SHORT)
    trainer = trainer_of(resolved)
    with torch.no_grad():
        trainer.network.policy_bias[:] = torch.arange(6) * 50.0
    state = trainer.state_dict()
    next(trainer.train())
    trainer.close()
    policy = load_policy(resolved, state)
    for sample in (True, False):
        list(evaluate(policy, resolved, 0, 5, sample))


@pytest.mark.parametrize(("where", "acts"), KINDS)
def test_it_is_learnt(where: str, acts: str) -> None:
    resolved = resolved_for(where, acts, **LEARNING)
    trainer = trainer_of(resolved)
    list(trainer.train())
    trainer.close()
    policy = load_policy(resolved, trainer.state_dict())
    returns = [one.return_ for one in evaluate(policy, resolved, 0, 20, False)]
    assert np.mean(returns) >= 4.9, "of five doors"


def test_the_policy_that_learns_is_the_masked_one_that_acted() -> None:
    """Before the first update both are the same: every ratio is 1, and the entropy is that of two
    actions."""
    given = {**SHORT, "update_epochs": "1", "epochs": "1", "normalise_observations": "false"}
    trainer = trainer_of(resolved_for("info", **given))
    (progress,) = trainer.train()
    trainer.close()
    assert progress.metrics["approximate_kl"] == pytest.approx(0, abs=1e-6)
    assert progress.metrics["entropy"] == pytest.approx(np.log(2), abs=0.01)


@pytest.mark.parametrize("actions", [DiscreteActions(5), MultiDiscreteActions((3, 2))])
def test_a_forbidden_action_has_no_gradient(actions: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    policy = torch.randn(7, 5, dtype=torch.float64, generator=generator).requires_grad_()
    allowed = torch.tensor([[True, False, True, True, False]]).expand(7, 5)
    taken = actions.mode(masked(policy, allowed))
    allowed_policy = masked(policy, allowed)
    weights = torch.randn(7, dtype=torch.float64, generator=generator)
    log_probability, entropy = (
        actions.log_probability(allowed_policy, taken), actions.entropy(allowed_policy)
    )  # fmt: skip
    (found,) = torch.autograd.grad((weights * log_probability).sum() - 0.1 * entropy.sum(), policy)
    assert found.isfinite().all()
    assert (found[:, [1, 4]] == 0).all() and (found[:, 0] != 0).any()


@pytest.mark.parametrize("actions", [DiscreteActions(5), MultiDiscreteActions((3, 2))])
def test_a_policy_that_acted_in_inference_mode_learns_on_another_device(actions: Any) -> None:
    """A device without numbers stands for any other one: what is kept of the first call, which acts,
    is used where gradients are taken."""
    policy = torch.zeros(7, 5, device="meta", requires_grad=True)
    with torch.inference_mode():
        actions.mode(policy.detach())
    taken = actions.mode(policy.detach())
    actions.log_probability(policy, taken).sum().backward()
    assert policy.grad is not None and policy.grad.shape == policy.shape


def test_the_masks_of_the_episodes_in_flight_come_back() -> None:
    resolved = resolved_for("info", **SHORT)
    trainer = trainer_of(resolved)
    progress = trainer.train()
    next(progress)
    state, masks = trainer.state_dict(), trainer.environments.masks.copy()
    rest = [repr(one) for one in progress]
    trainer.close()
    resumed = trainer_of(resolved)
    resumed.load_state_dict(state)
    assert np.array_equal(resumed.environments.masks, masks) and masks.sum() == 6
    assert [repr(one) for one in resumed.train()] == rest
    resumed.close()


@pytest.mark.parametrize(
    ("where", "error", "reason"),
    [
        ("wrong", BadInput, "gives an action mask of 5 numbers; allowed: 6, one for each action"),
        ("late", BadInput, "gives an action_mask now and gave none when it began"),
        ("never", Diverged, "environment 0 allows no action, at step 0: action_mask has only zero"),
    ],
)
def test_a_mask_that_cannot_be_followed_is_named(
    where: str, error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=re.escape(reason)):
        list(trainer_of(resolved_for(where, **SHORT)).train())


def test_other_environments_have_no_masks() -> None:
    environments = TrainingEnvironments(resolve("ppo", {"game": "pendulum"}), 0)
    assert environments.masks is None and not environments.interface.masked
    environments.close()
    assert check_game(resolved_for("observation")).observation_shape == (6,)


def test_a_person_s_policy_takes_the_mask() -> None:
    resolved = resolved_for("info", **SHORT)
    trainer = trainer_of(resolved)
    trainer.close()
    agent = TrainedAgent(load_policy(resolved, trainer.state_dict()), 0)
    for key in range(6):
        assert agent.act(np.zeros(6), action_mask=np.eye(6)[key]) == key
    batch = agent.act(np.zeros((6, 6)), action_mask=np.eye(6), sample=True, seed=0)
    assert batch.tolist() == list(range(6))
    with pytest.raises(BadInput, match=r"action_mask has the shape \(1, 5\); allowed: \(1, 6\)"):
        agent.act(np.zeros(6), action_mask=np.ones(5))


@pytest.mark.slow
def test_the_onnx_graph_takes_the_mask() -> None:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    import onnxruntime

    from agents.evaluation.export import to_onnx

    resolved = resolved_for("info", **SHORT)
    trainer = trainer_of(resolved)
    trainer.close()
    content = to_onnx(load_policy(resolved, trainer.state_dict()), {})
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    given = {"observation": np.zeros((6, 6), np.float32), "action_mask": np.eye(6, dtype=bool)}
    assert session.run(["action"], given)[0].tolist() == list(range(6))
