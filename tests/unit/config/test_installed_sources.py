"""What the tests of presets call Stable-Baselines3's settings is what the installed one has: the
arguments of each algorithm, and optimiser, first spread and clipping of one update.

`pip install --no-deps stable-baselines3 sb3-contrib cloudpickle` beside the tests' packages is enough.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from agents.optimisation.optimiser import SQUARES_DECAY
from tests.unit.config import test_dqn_preset_sources as dqn
from tests.unit.config import test_preset_sources as ppo
from tests.unit.config import test_preset_sources_a2c as a2c
from tests.unit.config import test_preset_sources_ppo_lstm as ppo_lstm
from tests.unit.config import test_twin_critic_presets as twin_critics

baselines = pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
contrib = pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")

ELSEWHERE = {
    "n_timesteps": "the zoo says how long",
    "n_envs": "make_vec_env",
    "normalize": "the zoo wraps in VecNormalize",
    "net_arch": "the policy's argument",
    "noise_std": "the zoo makes action_noise of it",
    "eps": "the optimiser's argument, compared below",
}
"""Entries of the tests' settings that are no arguments of the algorithm."""
SETTINGS = {
    "PPO": (baselines.PPO, ppo.STABLE_BASELINES3),
    "A2C": (baselines.A2C, a2c.STABLE_BASELINES3),
    "DQN": (baselines.DQN, dqn.STABLE_BASELINES3),
    "SAC": (baselines.SAC, twin_critics.STABLE_BASELINES3),
    "TD3": (baselines.TD3, twin_critics.STABLE_BASELINES3_TD3),
    "RecurrentPPO": (contrib.RecurrentPPO, ppo_lstm.SB3_CONTRIB),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_arguments(name: str) -> None:
    algorithm, ours = SETTINGS[name]
    theirs = {
        name: parameter.default
        for name, parameter in inspect.signature(algorithm.__init__).parameters.items()
    }
    compared = {entry: value for entry, value in ours.items() if entry not in ELSEWHERE}
    assert compared == {entry: theirs[entry] for entry in compared}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "policy", "game", "optimiser", "expected"),
    [
        ("PPO", "MlpPolicy", "Pendulum-v1", "Adam", {"eps": ppo.STABLE_BASELINES3["eps"]}),
        (
            "A2C",
            "MlpPolicy",
            "Pendulum-v1",
            "RMSprop",
            {
                "eps": a2c.STABLE_BASELINES3["rms_prop_eps"],
                "alpha": SQUARES_DECAY,
                "momentum": 0,
                "centered": False,
            },
        ),
        ("DQN", "MlpPolicy", "CartPole-v1", "Adam", {"eps": dqn.STABLE_BASELINES3["eps"]}),
        ("RecurrentPPO", "MlpLstmPolicy", "CartPole-v1", "Adam", {"eps": 1e-5}),
    ],
)
def test_the_optimiser_of_an_update(
    name: str, policy: str, game: str, optimiser: str, expected: dict[str, Any]
) -> None:
    model = SETTINGS[name][0](policy, game, device="cpu")
    theirs = model.policy.optimizer
    assert type(theirs).__name__ == optimiser
    group = theirs.param_groups[0]
    assert {name: group[name] for name in expected} == expected
    assert group["weight_decay"] == 0
    if game == "Pendulum-v1":
        # Theirs is in the game's own units; ours, in half ranges, begins twice as wide here.
        assert model.policy.log_std.exp().item() == 1
