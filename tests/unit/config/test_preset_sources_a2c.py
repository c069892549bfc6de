"""Every preset of A2C against the source it names, in the sources' own words."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from config.algorithms import FOLDER as OF_ALGORITHMS
from config.algorithms.ppo import PPO
from config.environment import OneProcess
from config.games import FOLDER, find_game, own_presets
from config.strict_yaml import load_mapping
from tests.decided_presets import comment_of, decided

# Stable-Baselines3 2.9.2: A2C.__init__ and its call of torch.optim.RMSprop.
STABLE_BASELINES3 = {
    "n_timesteps": 1e6, "n_envs": 1, "learning_rate": 7e-4, "n_steps": 5, "gamma": 0.99,
    "gae_lambda": 1.0, "ent_coef": 0.0, "vf_coef": 0.5, "max_grad_norm": 0.5, "rms_prop_eps": 1e-5,
    "use_rms_prop": True, "normalize_advantage": False, "normalize": False,
}  # fmt: skip
# github.com/DLR-RM/rl-baselines3-zoo, commit 22e3ff2: hyperparams/a2c.yml, and of AtariWrapper the
# clipped rewards and the end of an episode with a life. "lin_": falls to 0. Left out: use_sde, and
# its log_std_init and ortho_init; Atari's optimizer_class, RMSpropTFLike.
ATARI = {
    "n_envs": 16, "n_timesteps": 1e7, "ent_coef": 0.01, "vf_coef": 0.25, "clip_reward": True,
    "terminal_on_life_loss": True,
}  # fmt: skip
CONTINUOUS = {
    "normalize": True, "ent_coef": 0.0, "max_grad_norm": 0.5, "n_steps": 8, "gae_lambda": 0.9,
    "vf_coef": 0.4, "use_rms_prop": True, "normalize_advantage": False, "learning_rate": "lin_7e-4",
}  # fmt: skip
ZOO: dict[str, dict[str, Any]] = {
    "acrobot": {"normalize": True, "n_envs": 16, "n_timesteps": 5e5, "ent_coef": 0.0},
    "cartpole": {"n_envs": 8, "n_timesteps": 5e5, "ent_coef": 0.0},
    "lunarlander": {
        "n_envs": 8, "n_timesteps": 2e5, "gamma": 0.995, "n_steps": 5,
        "learning_rate": "lin_0.00083", "ent_coef": 1e-5,
    },
    "lunarlander_continuous": CONTINUOUS | {"n_envs": 4, "n_timesteps": 5e6, "gamma": 0.99},
    "mountaincar": {"normalize": True, "n_envs": 16, "n_timesteps": 1e6, "ent_coef": 0.0},
    "pendulum": CONTINUOUS | {"n_envs": 8, "n_timesteps": 1e6, "gamma": 0.9},
    "bipedalwalker": CONTINUOUS | {
        "n_envs": 16, "n_timesteps": 5e6, "gamma": 0.99, "learning_rate": "lin_0.00096",
    },
}  # fmt: skip
OTHER = {"n_envs": 8, "normalize": True}
"""Of any other game, for which the zoo has nothing: ours."""


def translated(theirs: dict[str, Any]) -> dict[str, Any]:
    """Every parameter, and the steps. Stable-Baselines3's value loss has no ½."""
    theirs = STABLE_BASELINES3 | theirs
    names = {
        "num_envs": "n_envs", "rollout_length": "n_steps", "adam_epsilon": "rms_prop_eps",
        "discount": "gamma", "gae_lambda": "gae_lambda", "entropy_coefficient": "ent_coef",
        "max_gradient_norm": "max_grad_norm", "normalise_advantages": "normalize_advantage",
        "normalise_observations": "normalize", "normalise_rewards": "normalize",
    }  # fmt: skip
    settings = {ours: theirs[name] for ours, name in names.items()}
    rate = str(theirs["learning_rate"])
    return asdict(OneProcess()) | asdict(PPO()) | settings | {
        "steps": int(theirs["n_timesteps"]), "update_epochs": 1, "minibatches": 1,
        "optimiser": "rmsprop" if theirs["use_rms_prop"] else "adam",
        "learning_rate": float(rate.removeprefix("lin_")),
        "anneal_learning_rate": rate.startswith("lin_"),
        "value_coefficient": 2 * theirs["vf_coef"],
        "clip_rewards": theirs.get("clip_reward", False),
        "episodic_life": theirs.get("terminal_on_life_loss", False),
    }  # fmt: skip


@pytest.mark.parametrize("name", ZOO)
def test_it_follows_the_zoo(name: str) -> None:
    assert decided("a2c", name) == translated(ZOO[name])
    comment = comment_of("a2c", name)
    assert f"rl-baselines3-zoo, hyperparams/a2c.yml, {find_game(name).id};" in comment
    assert ("use_sde" in comment) == (ZOO[name].get("vf_coef") == 0.4)


def test_atari_follows_the_zoo() -> None:
    assert decided("a2c", "pong") == decided("a2c", "breakout") == translated(ATARI)
    assert "rl-baselines3-zoo, hyperparams/a2c.yml, atari;" in comment_of("a2c", "atari")
    assert "RMSpropTFLike" in comment_of("a2c", "atari")


def test_any_other_game_has_stable_baselines3_s_own() -> None:
    assert decided("a2c", "Other-v0") == translated(OTHER)
    page = (OF_ALGORITHMS / "a2c.yaml").read_text(encoding="utf-8")
    assert "Stable-Baselines3 2.9.2, A2C.__init__" in page and "arXiv:2205.09123" in page


def test_every_game_with_a_preset_has_one_of_a2c() -> None:
    others = {name for name in own_presets() if find_game(name).kind not in ("atari", "board")}
    own = {name for name in others if "a2c" in load_mapping(FOLDER / f"{name}.yaml")}
    assert {name for name in own if not name.endswith("-no-velocity")} == {*ZOO, "frozenlake"}


def test_frozenlake_has_stable_baselines3_s_own() -> None:
    assert decided("a2c", "frozenlake") == translated({"n_envs": 8, "n_timesteps": 5e5})


def test_mujoco_follows_the_zoo() -> None:
    assert decided("a2c", "hopper") == translated({"n_envs": 8, "normalize": True})
    comment = comment_of("a2c", "mujoco")
    assert "rl-baselines3-zoo, hyperparams/a2c.yml, HalfCheetah-v4 (mujoco-defaults);" in comment
