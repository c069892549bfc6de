"""SAC's presets against the sources that they name."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from config.environment import OneProcess
from tests.decided_presets import comment_of, decided

# Stable-Baselines3 2.9.2: SAC.__init__; net_arch in sac/policies.py; make_vec_env's n_envs.
STABLE_BASELINES3 = {
    "learning_rate": 3e-4, "buffer_size": 1_000_000, "learning_starts": 100, "batch_size": 256,
    "tau": 0.005, "gamma": 0.99, "train_freq": 1, "gradient_steps": 1, "ent_coef": "auto",
    "target_entropy": "auto", "net_arch": (256, 256), "n_envs": 1, "normalize": False,
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
SOURCES = {
    "pendulum": "Pendulum-v1",
    "lunarlander_continuous": "LunarLanderContinuous-v2",
    "fallback": "mujoco-defaults",
    "mujoco": "HalfCheetah-v4 (mujoco-defaults)",
    "humanoid": "Humanoid-v4",
    "swimmer": "Swimmer-v4",
    "bipedalwalker": "BipedalWalker-v3",
}
GAMES = {"fallback": "Other-v0", "mujoco": "hopper"}
"""The game whose settings are looked at, where the file is not that of one game."""
WITHOUT_WRAPPERS = asdict(OneProcess())


def of_the_zoo(name: str) -> dict[str, Any]:
    """Every parameter, and the steps."""
    theirs = STABLE_BASELINES3 | ZOO[name]
    assert theirs["ent_coef"] == theirs["target_entropy"] == "auto"
    names = {
        "num_envs": "n_envs", "learning_starts": "learning_starts", "train_every": "train_freq",
        "updates": "gradient_steps", "batch_size": "batch_size", "replay_size": "buffer_size",
        "discount": "gamma", "target_rate": "tau", "hidden_sizes": "net_arch",
        "normalise_observations": "normalize",
    }  # fmt: skip
    settings = {ours: theirs[one] for ours, one in names.items()}
    rate = str(theirs["learning_rate"])
    return WITHOUT_WRAPPERS | settings | {
        "steps": int(theirs["n_timesteps"]), "learning_rate": float(rate.removeprefix("lin_")),
        "anneal_learning_rate": rate.startswith("lin_"), "alpha": None, "target_entropy": None,
        "epoch_steps": 1024 if theirs["train_freq"] > 1 else 1000, "network": None,
    }  # fmt: skip


@pytest.mark.parametrize("name", ZOO)
def test_presets_follow_the_zoo_in_every_particular(name: str) -> None:
    assert decided("sac", GAMES.get(name, name)) == of_the_zoo(name)
    comment = comment_of("sac", name)
    assert f"rl-baselines3-zoo, hyperparams/sac.yml, {SOURCES[name]}" in comment
