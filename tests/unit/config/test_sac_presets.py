"""SAC's presets against the sources that they name."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from config.environment import OneProcess
from config.games import FOLDER
from tests.decided_presets import decided

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
}  # fmt: skip
SOURCES = {
    "pendulum": "Pendulum-v1",
    "lunarlander_continuous": "LunarLanderContinuous-v2",
    "fallback": "mujoco-defaults",
}
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
        "epoch_steps": 1000, "network": None,
    }  # fmt: skip


@pytest.mark.parametrize("name", ZOO)
def test_presets_follow_the_zoo_in_every_particular(name: str) -> None:
    assert decided("sac", "Other-v0" if name == "fallback" else name) == of_the_zoo(name)
    page = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    comment = page[page.index("# SAC: ") : page.index("\nsac:")]
    assert f"rl-baselines3-zoo, hyperparams/sac.yml, {SOURCES[name]}" in comment
