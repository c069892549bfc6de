"""The presets of SAC and TD3 against the sources that they name."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from config.algorithms.td3 import TD3
from config.environment import OneProcess
from tests.decided_presets import comment_of, decided

# Stable-Baselines3 2.9.2: SAC.__init__; net_arch in sac/policies.py; make_vec_env's n_envs.
STABLE_BASELINES3 = {
    "learning_rate": 3e-4, "buffer_size": 1_000_000, "learning_starts": 100, "batch_size": 256,
    "tau": 0.005, "gamma": 0.99, "train_freq": 1, "gradient_steps": 1, "ent_coef": "auto",
    "target_entropy": "auto", "net_arch": (256, 256), "n_envs": 1, "normalize": False,
}  # fmt: skip
# The same of TD3. `noise_std`: the zoo's, where Stable-Baselines3 has no noise of its own.
STABLE_BASELINES3_TD3 = {
    "learning_rate": 1e-3, "buffer_size": 1_000_000, "learning_starts": 100, "batch_size": 256,
    "tau": 0.005, "gamma": 0.99, "train_freq": 1, "gradient_steps": 1, "policy_delay": 2,
    "target_policy_noise": 0.2, "target_noise_clip": 0.5, "net_arch": (400, 300), "n_envs": 1,
    "normalize": False, "noise_std": 0.1,
}  # fmt: skip
# github.com/DLR-RM/rl-baselines3-zoo, commit c94924e: hyperparams/sac.yml. "lin_": falls to 0.
ZOO: dict[str, dict[str, Any]] = {
    "pendulum": {"n_timesteps": 20_000, "learning_rate": 1e-3},
    "lunarlander_continuous": {
        "n_timesteps": 5e5, "batch_size": 256, "learning_rate": "lin_7.3e-4", "buffer_size": 1_000_000,
        "ent_coef": "auto", "gamma": 0.99, "tau": 0.01, "train_freq": 1, "gradient_steps": 1,
        "learning_starts": 10_000, "net_arch": (400, 300),
    },
    "fallback": {"n_timesteps": 1e6, "learning_starts": 10_000},
    "mujoco": {"n_timesteps": 1e6, "learning_starts": 10_000},
    "humanoid": {"n_timesteps": 2e6, "learning_starts": 10_000},
    "swimmer": {"n_timesteps": 1e6, "learning_starts": 10_000, "gamma": 0.999},
    "bipedalwalker": {
        "n_timesteps": 5e5, "learning_rate": 7.3e-4, "buffer_size": 300_000, "gamma": 0.98,
        "tau": 0.02, "train_freq": 64, "gradient_steps": 64, "learning_starts": 10_000,
        "net_arch": (400, 300),
    },
}  # fmt: skip
# The same, commit 22e3ff2: hyperparams/td3.yml. All have noise_type: normal.
OF_BOX2D = {
    "gamma": 0.98, "buffer_size": 200_000, "learning_starts": 10_000, "noise_std": 0.1,
    "gradient_steps": 1, "train_freq": 1, "learning_rate": 1e-3, "net_arch": (400, 300),
}  # fmt: skip
OF_MUJOCO = {
    "n_timesteps": 1e6, "learning_starts": 10_000, "noise_std": 0.1, "train_freq": 1,
    "gradient_steps": 1, "learning_rate": 1e-3, "batch_size": 256, "net_arch": (400, 300),
}  # fmt: skip
ZOO_TD3: dict[str, dict[str, Any]] = {
    "pendulum": {"n_timesteps": 20_000, **OF_BOX2D},
    "lunarlander_continuous": {"n_timesteps": 3e5, **OF_BOX2D},
    "fallback": OF_MUJOCO,
    "mujoco": OF_MUJOCO,
    "humanoid": OF_MUJOCO | {"n_timesteps": 2e6},
    "swimmer": OF_MUJOCO | {"gamma": 0.9999},
    "bipedalwalker": OF_BOX2D | {"n_timesteps": 1e6},
}  # fmt: skip
SOURCES = {
    ("sac", "pendulum"): "Pendulum-v1",
    ("sac", "lunarlander_continuous"): "LunarLanderContinuous-v2",
    ("sac", "fallback"): "mujoco-defaults",
    ("td3", "pendulum"): "Pendulum-v1",
    ("td3", "lunarlander_continuous"): "LunarLanderContinuous-v3",
    ("td3", "fallback"): "mujoco-defaults",
    **{
        (algorithm, name): source
        for algorithm in ("sac", "td3")
        for name, source in {
            "mujoco": "HalfCheetah-v4 (mujoco-defaults)",
            "humanoid": "Humanoid-v4",
            "swimmer": "Swimmer-v4",
            "bipedalwalker": "BipedalWalker-v3",
        }.items()
    },
}
GAMES = {"fallback": "Other-v0", "mujoco": "hopper"}
"""The game whose settings are looked at, where the file is not that of one game."""
WITHOUT_WRAPPERS = asdict(OneProcess())
SHARED_NAMES = {
    "num_envs": "n_envs", "learning_starts": "learning_starts", "train_every": "train_freq",
    "updates": "gradient_steps", "batch_size": "batch_size", "replay_size": "buffer_size",
    "discount": "gamma", "target_rate": "tau", "hidden_sizes": "net_arch",
    "normalise_observations": "normalize",
}  # fmt: skip
NAMES = {
    "sac": SHARED_NAMES,
    "td3": SHARED_NAMES | {
        "policy_delay": "policy_delay", "exploration_noise": "noise_std",
        "target_noise": "target_policy_noise", "target_noise_clip": "target_noise_clip",
    },
}  # fmt: skip


def of_the_zoo(algorithm: str, name: str) -> dict[str, Any]:
    """Every parameter, and the steps."""
    own: dict[str, Any] = {}
    theirs = STABLE_BASELINES3_TD3 | ZOO_TD3[name]
    if algorithm == "sac":
        theirs = STABLE_BASELINES3 | ZOO[name]
        assert theirs["ent_coef"] == theirs["target_entropy"] == "auto"
        own = {"alpha": None, "target_entropy": None}
    settings = {ours: theirs[one] for ours, one in NAMES[algorithm].items()}
    rate = str(theirs["learning_rate"])
    return WITHOUT_WRAPPERS | settings | own | {
        "steps": int(theirs["n_timesteps"]), "learning_rate": float(rate.removeprefix("lin_")),
        "anneal_learning_rate": rate.startswith("lin_"), "network": None,
        "epoch_steps": 1024 if theirs["train_freq"] > 1 else 1000,
    }  # fmt: skip


@pytest.mark.parametrize(("algorithm", "name"), SOURCES)
def test_presets_follow_the_zoo_in_every_particular(algorithm: str, name: str) -> None:
    assert decided(algorithm, GAMES.get(name, name)) == of_the_zoo(algorithm, name)
    comment = comment_of(algorithm, name)
    source = f"rl-baselines3-zoo, hyperparams/{algorithm}.yml, {SOURCES[algorithm, name]}"
    assert source in comment


def test_the_defaults_of_td3_are_those_of_stable_baselines3() -> None:
    found = asdict(TD3())
    for ours, theirs in NAMES["td3"].items():
        if ours in found:
            assert found[ours] == STABLE_BASELINES3_TD3[theirs], ours


@pytest.mark.parametrize("algorithm", ["sac", "td3"])
def test_pendulum_without_velocity_is_set_as_pendulum(algorithm: str) -> None:
    assert decided(algorithm, "pendulum-no-velocity") == decided(algorithm, "pendulum")
