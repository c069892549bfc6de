"""Every kind of space: how it is shown to the network, what the policy answers, and that PPO learns
on it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.environments.game_check import check_game
from agents.evaluation.episodes import evaluate
from agents.evaluation.export import Graph
from agents.evaluation.rendering import Replay
from agents.load import load_policy, make_trainer
from agents.networks import make_actor_critic
from agents.networks.action_distributions import FORBIDDEN, MultiDiscreteActions
from agents.networks.images import NatureCNN, SmallCNN
from agents.networks.towers import Towers
from agents.spaces import Interface, interface
from config.errors import BadInput
from config.resolve import resolve
from config.resolved import Resolved

COPY = "tests.lab_environments:Copy"
SHORT = {"num_envs": "2", "rollout_length": "8", "minibatches": "1", "epochs": "3"}
LEARNING = {
    "num_envs": "16", "rollout_length": "32", "minibatches": "4", "update_epochs": "6", "epochs": "24",
    "learning_rate": "0.002",
}  # fmt: skip
SEEN = ("dict", "tuple", "multi-discrete", "multi-binary", "bool", "grid", "planes", "picture")
KINDS = [
    *((seen, "discrete") for seen in SEEN),
    ("dict", "multi-discrete"),
    ("grid", "multi-binary"),
]
NETWORKS = {"grid": SmallCNN, "planes": SmallCNN}


def resolved_for(seen: str, acts: str, **given: str) -> Resolved:
    return resolve("ppo", {"game": COPY, "env_options": f"seen={seen},acts={acts}", **given})


def trained(resolved: Resolved, state: Any = None) -> tuple[Any, list[str]]:
    trainer = make_trainer(resolved, run=0, device="cpu", precision="fp32")
    if state is not None:
        trainer.load_state_dict(state)
    rows = [repr(one) for one in trainer.train()]
    trainer.close()
    return trainer, rows


@pytest.mark.parametrize("normalise", ["true", "false"])
@pytest.mark.parametrize(("seen", "acts"), KINDS)
def test_every_kind_trains_resumes_is_evaluated_and_filmed(
    seen: str, acts: str, normalise: str
) -> None:
    resolved = resolved_for(seen, acts, **SHORT, normalise_observations=normalise)
    trainer = make_trainer(resolved, run=0, device="cpu", precision="fp32")
    assert type(trainer.network.torso) is NETWORKS.get(seen, Towers)  # type: ignore[attr-defined]
    assert (trainer.observation_normaliser is None) == (normalise == "false")  # type: ignore[attr-defined]
    progress = trainer.train()
    next(progress)
    state = trainer.state_dict()
    rest = [repr(one) for one in progress]
    trainer.close()
    assert Interface.from_dict(state["interface"]).family == acts
    assert trained(resolved, state)[1] == rest
    policy = load_policy(resolved, trainer.state_dict())
    for sample in (True, False):
        for episode in evaluate(policy, resolved, 0, 3, sample):
            replay = Replay(resolved, episode.seed, episode.actions)
            assert len(list(replay.frames())) == 2
            assert replay.difference(episode.return_, episode.length) is None


@pytest.mark.parametrize(
    ("seen", "acts"),
    [
        ("tuple", "discrete"),
        pytest.param("grid", "multi-discrete", marks=pytest.mark.slow),
        pytest.param("multi-binary", "multi-binary", marks=pytest.mark.slow),
    ],
)
def test_it_is_learnt(seen: str, acts: str) -> None:
    resolved = resolved_for(seen, acts, **LEARNING)
    policy = load_policy(resolved, trained(resolved)[0].state_dict())
    returns = [episode.return_ for episode in evaluate(policy, resolved, 0, 20, False)]
    assert np.mean(returns) >= 0.95


def shown(seen: str) -> Interface:
    return check_game(resolved_for(seen, "discrete"))


def test_what_is_no_box_is_flattened_and_small_images_stay_images() -> None:
    for seen in ("dict", "tuple", "multi-discrete", "multi-binary", "bool"):
        assert shown(seen).observation_shape == (5,)
    grid, planes, picture = shown("grid"), shown("planes"), shown("picture")
    assert (grid.observation_shape, grid.environment_shape) == ((3, 7, 7), (7, 7, 3))
    assert (planes.observation_shape, planes.channels_last) == ((12, 10, 10), True)
    assert picture.observation_shape == (7, 7, 3)
    assert (grid.grid, planes.grid, picture.grid) == (True, True, False)
    assert not (grid.image or planes.image or picture.image)


@pytest.mark.parametrize(
    ("shape", "network"),
    [((3, 36, 36), NatureCNN), ((36, 40, 3), NatureCNN), ((3, 35, 36), SmallCNN), ((1, 1, 1), SmallCNN),
     ((9, 4, 2), SmallCNN)],
)  # fmt: skip
def test_an_image_s_network_is_chosen_by_its_size(shape: tuple[int, ...], network: type) -> None:
    seen = interface("game", spaces.Box(0, 255, shape, np.uint8), spaces.Discrete(2))
    generator = torch.Generator().manual_seed(0)
    found = make_actor_critic(
        seen, hidden_sizes=(8,), log_std_init=0, precision="fp32", generator=generator
    )
    assert type(found.torso) is network
    policy, value = found(found.encode(torch.zeros((4, *shape), dtype=torch.uint8)))
    assert policy.shape == (4, 2) and value.shape == (4,)


def test_a_checkpoint_that_knows_one_kind_of_several_actions_less_is_read() -> None:
    """As it was written before several actions at once were known."""
    written = {
        "observation_shape": [3], "image": False, "channels_last": False, "actions": 2,
        "discrete": False, "first_action": 0, "action_shape": [2], "low": None, "high": None,
    }  # fmt: skip
    assert Interface.from_dict(written).family == "continuous"
    assert Interface.from_dict(written | {"discrete": True}).family == "discrete"


def test_several_actions_are_counted_and_shaped_as_the_environment_has_them() -> None:
    space = spaces.MultiDiscrete([[3, 2], [4, 5]], start=[[1, 0], [0, -2]])
    seen = interface("game", spaces.Box(-1, 1, (1,)), space)
    assert (seen.choices, seen.policy_outputs, seen.actions) == ((3, 2, 4, 5), 14, 4)
    taken = seen.environment_actions(np.array([[2, 1, 3, 4], [0, 0, 0, 0]]))
    assert taken.tolist() == [[[3, 1], [3, 2]], [[1, 0], [0, -2]]]
    assert all(space.contains(one) for one in taken)
    assert Interface.from_dict(seen.as_dict()) == seen
    bits = interface("game", spaces.Box(-1, 1, (1,)), spaces.MultiBinary((2, 2)))
    assert (bits.choices, bits.family) == ((2, 2, 2, 2), "multi-binary")


@pytest.mark.parametrize(
    ("space", "components"),
    [
        (spaces.Discrete(4, start=7), [range(4)]),
        (spaces.MultiDiscrete([[3], [2]]), [range(3), range(3, 5)]),
        (spaces.MultiBinary(2), [range(2), range(2, 4)]),
    ],
    ids=["discrete", "multi-discrete", "multi-binary"],
)
def test_the_best_actions_are_the_first_with_the_highest_score_of_each_component(
    space: spaces.Space[Any], components: list[range]
) -> None:
    seen = interface("game", spaces.Box(-1, 1, (1,)), space)
    # Few different scores: many are equal.
    scores = np.random.default_rng(0).integers(0, 3, (50, seen.policy_outputs))
    rows = scores.tolist()
    expected = [[max(c, key=row.__getitem__) - c.start for c in components] for row in rows]
    best = seen.best_actions(scores)
    assert best.reshape(50, -1).tolist() == expected
    assert best.shape == ((50,) if seen.discrete else (50, len(components)))


def test_several_categoricals_agree_with_torch_s() -> None:
    generator = torch.Generator().manual_seed(0)
    choices, actions = (3, 2, 5), MultiDiscreteActions((3, 2, 5))
    policy = torch.randn(64, 10, dtype=torch.float64, generator=generator).requires_grad_()
    taken = torch.stack([torch.randint(n, (64,), generator=generator) for n in choices], dim=1)
    parts = [torch.distributions.Categorical(logits=one) for one in policy.split(choices, dim=1)]
    expected = sum(one.log_prob(taken[:, n]) for n, one in enumerate(parts))
    entropies = sum(one.entropy() for one in parts)
    log_probability, entropy = actions.log_probability(policy, taken), actions.entropy(policy)
    assert torch.allclose(log_probability, expected) and torch.allclose(entropy, entropies)
    weights = torch.randn(64, dtype=torch.float64, generator=generator)
    (found,) = torch.autograd.grad(
        (weights * log_probability).sum() - 0.013 * entropy.sum(), policy
    )
    (wanted,) = torch.autograd.grad((weights * expected).sum() - 0.013 * entropies.sum(), policy)
    assert torch.allclose(found, wanted, atol=1e-14)
    modes = torch.stack([one.probs.argmax(1) for one in parts], dim=1)
    assert torch.equal(actions.mode(policy), modes)


def test_several_actions_are_drawn_with_the_policy_s_frequencies() -> None:
    count, actions = 100_000, MultiDiscreteActions((2, 3))
    probabilities = torch.tensor([0.9, 0.1, 0.2, 0.5, 0.3])
    noise = actions.noise((count,), torch.Generator().manual_seed(0))
    drawn = actions.choose(probabilities.log().expand(count, 5), noise)
    found = [torch.bincount(drawn[:, n], minlength=k) / count for n, k in enumerate((2, 3))]
    assert torch.allclose(torch.cat(found), probabilities, atol=0.007)
    assert torch.corrcoef(drawn.T.float())[0, 1].abs() < 0.02
    assert float(torch.tensor([0.0, FORBIDDEN]).softmax(0)[1]) == 0


def test_an_algorithm_says_which_it_plays() -> None:
    resolved = resolved_for("dict", "multi-discrete")
    check_game(resolved)
    few = replace(resolved.descriptor, families=("discrete", "continuous"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("config.resolved.find_algorithm", lambda _: few)
        with pytest.raises(BadInput, match="actions are multi-discrete; ppo plays games whose"):
            check_game(resolved)


@pytest.mark.parametrize(
    ("acts", "actions", "allowed"),
    [
        ("multi-discrete", np.array([[0, 0]]), r"whole numbers in MultiDiscrete\(\[3 2\]"),
        ("multi-discrete", np.array([1]), "whole numbers in MultiDiscrete"),
        ("multi-binary", np.array([[0, 1, 2, 0, 0]]), r"whole numbers in MultiBinary\(5\)"),
    ],
)
def test_actions_that_a_game_does_not_have_never_reach_it(
    acts: str, actions: np.ndarray, allowed: str
) -> None:
    with pytest.raises(BadInput, match=allowed):
        list(Replay(resolved_for("dict", acts), 0, actions).frames())


@pytest.mark.slow
def test_onnx_answers_as_torch_does() -> None:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    import onnxruntime

    from agents.evaluation.export import to_onnx

    resolved = resolved_for("grid", "multi-discrete", **SHORT)
    policy = load_policy(resolved, trained(resolved)[0].state_dict())
    session = onnxruntime.InferenceSession(to_onnx(policy, {}), providers=["CPUExecutionProvider"])
    shape = (5, *policy.spaces.environment_shape)
    observations = np.random.default_rng(0).random(shape).astype(np.float32)
    action, logits = session.run(["action", "logits"], {"observation": observations})
    assert action.tolist() == policy.act(observations, sample=False).tolist()
    assert logits.shape == (5, policy.spaces.policy_outputs)


@st.composite
def boxes(draw: st.DrawFn) -> spaces.Box:
    """Boxes of every type of floats, with bounds of every kind: two decimals, the largest number,
    none, equal ones.
    """
    dtype = np.dtype(draw(st.sampled_from(["float16", "float32", "float64"])))
    largest = float(np.finfo(dtype).max)
    bound = st.one_of(
        st.integers(-999, 999).map(lambda number: number / 100),
        st.floats(-largest, largest, width=64),
        st.sampled_from([-np.inf, np.inf, -largest, largest, 0.0, -0.1, 0.1]),
    )
    ends = [sorted((draw(bound), draw(bound))) for _ in range(draw(st.integers(1, 4)))]
    low, high = (np.array(side).astype(dtype) for side in zip(*ends, strict=True))
    low = np.where(low == np.inf, dtype.type(0), low)
    high = np.where(high == -np.inf, dtype.type(0), high)
    return spaces.Box(low, np.maximum(low, high), dtype=dtype.type)


@settings(max_examples=300, deadline=None)
@given(boxes(), st.data())
@pytest.mark.filterwarnings("ignore")
def test_every_action_lies_in_its_box(space: spaces.Box, data: st.DataObject) -> None:
    """What is learnt with, evaluated and filmed, and what an exported policy answers."""
    seen = interface("x", spaces.Box(-1, 1, (2,), np.float32), space)
    most = float(np.float32(1e38))
    number = st.floats(-most, most, width=32) | st.floats(-2, 2, width=32)
    rows = data.draw(st.lists(number, min_size=space.shape[0], max_size=space.shape[0]))
    actions = np.array([rows, [-1.0] * len(rows), [1.0] * len(rows)], np.float32)
    taken = seen.environment_actions(actions)
    graph = Graph.__new__(Graph)
    torch.nn.Module.__init__(graph)
    graph.spaces = seen
    exported = graph._environment_actions(torch.from_numpy(actions)).numpy()
    for action in (*taken, *exported):
        assert space.contains(action), (space, action)
        assert np.isfinite(action).all() or not np.isfinite(space.high).any()
    assert np.array_equal(taken, exported)


def test_ordinary_bounds_are_as_they_were() -> None:
    """low + (a + 1) * half the range, in float32, to the last bit."""
    space = spaces.Box(np.array([-2, 0], np.float32), np.array([2, 1], np.float32))
    seen = interface("x", spaces.Box(-1, 1, (2,), np.float32), space)
    units = np.linspace(-1, 1, 202, dtype=np.float32).reshape(-1, 2)
    expected = space.low + (units + 1) * (0.5 * (space.high - space.low))
    assert np.array_equal(seen.environment_actions(units), np.clip(expected, space.low, space.high))
    assert "action_dtype" not in seen.as_dict()
    assert Interface.from_dict(seen.as_dict()) == seen
