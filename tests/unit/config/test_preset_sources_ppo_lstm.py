"""Every preset of PPO with a memory against the source it names, in the sources' own words."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from config.algorithms.ppo_lstm import RecurrentPPO
from config.environment import OneProcess
from config.games import FOLDER, find_game, own_presets, preset
from config.presets import preset_values
from config.strict_yaml import load_mapping
from tests.decided_presets import comment_of, decided

# sb3-contrib, commit 0ca7fdd: RecurrentPPO.__init__, and Stable-Baselines3's eps of Adam.
SB3_CONTRIB = {
    "learning_rate": 3e-4, "batch_size": 128, "gamma": 0.99, "gae_lambda": 0.95, "clip_range": 0.2,
    "vf_coef": 0.5, "max_grad_norm": 0.5, "eps": 1e-5, "normalize_advantage": True,
    "normalize": False,
}  # fmt: skip
# github.com/DLR-RM/rl-baselines3-zoo, commit 22e3ff2: hyperparams/ppo_lstm.yml. "lin_": falls to 0.
# Left out: use_sde and sde_sample_freq.
TUNED = {
    "normalize": True, "lstm_hidden_size": 64, "enable_critic_lstm": True, "net_arch": [64],
}  # fmt: skip
LUNAR_LANDER = TUNED | {
    "n_envs": 32, "n_timesteps": 5e6, "n_steps": 512, "batch_size": 128, "gae_lambda": 0.98,
    "gamma": 0.999, "n_epochs": 4, "ent_coef": 0.01,
}  # fmt: skip
ZOO: dict[str, dict[str, Any]] = {
    "Acrobot-v1": {
        "normalize": True, "n_envs": 16, "n_timesteps": 1e6, "n_steps": 256, "gae_lambda": 0.94,
        "gamma": 0.99, "n_epochs": 4, "ent_coef": 0.0,
    },
    "CartPoleNoVel-v1": TUNED | {
        "n_envs": 8, "n_timesteps": 1e5, "n_steps": 32, "batch_size": 256, "gae_lambda": 0.8,
        "gamma": 0.98, "n_epochs": 20, "ent_coef": 0.0, "learning_rate": "lin_0.001",
        "clip_range": "lin_0.2",
    },
    "LunarLanderNoVel-v2": LUNAR_LANDER,
    "LunarLanderContinuousNoVel-v2": LUNAR_LANDER,
    "MountainCarNoVel-v0": {
        "normalize": True, "n_envs": 16, "n_timesteps": 1e6, "n_steps": 16, "gae_lambda": 0.98,
        "gamma": 0.99, "n_epochs": 4, "ent_coef": 0.0,
    },
    "PendulumNoVel-v1": TUNED | {
        "n_envs": 4, "n_timesteps": 1e5, "n_steps": 1024, "gae_lambda": 0.95, "gamma": 0.9,
        "n_epochs": 10, "ent_coef": 0.0, "learning_rate": 1e-3, "clip_range": 0.2,
    },
}  # fmt: skip
OF_GAME = {
    "acrobot": "Acrobot-v1", "cartpole-no-velocity": "CartPoleNoVel-v1",
    "lunarlander": "LunarLanderNoVel-v2", "lunarlander_continuous": "LunarLanderContinuousNoVel-v2",
    "mountaincar": "MountainCarNoVel-v0", "pendulum-no-velocity": "PendulumNoVel-v1",
}  # fmt: skip
CHANGED: dict[str, dict[str, Any]] = {
    "acrobot": {"steps": 300_000, "lstm_size": 64, "hidden_sizes": (64,)},
    "cartpole-no-velocity": {
        "discount": 0.99, "gae_lambda": 0.95, "rollout_length": 128, "minibatches": 4,
        "update_epochs": 10,
    },
    "lunarlander": {"steps": 1_000_000},
    "lunarlander_continuous": {"steps": 1_000_000},
    "mountaincar": {
        "rollout_length": 256, "minibatches": 32, "anneal_learning_rate": True, "lstm_size": 64,
        "hidden_sizes": (64,),
    },
    "pendulum-no-velocity": {
        "num_envs": 8, "rollout_length": 128, "minibatches": 4, "anneal_learning_rate": True,
    },
}  # fmt: skip
# github.com/vwxyzjn/cleanrl, commit fe8d8a0: cleanrl/ppo_atari_lstm.py, class Args, make_env, Agent.
CLEANRL_ATARI = {
    "steps": 10_000_000, "num_envs": 8, "rollout_length": 128, "update_epochs": 4, "minibatches": 4,
    "sequence_length": 128, "learning_rate": 2.5e-4, "anneal_learning_rate": True,
    "adam_epsilon": 1e-5, "discount": 0.99, "gae_lambda": 0.95, "clip": 0.1, "anneal_clip": False,
    "clip_value_loss": True, "entropy_coefficient": 0.01, "value_coefficient": 0.5,
    "max_gradient_norm": 0.5, "normalise_advantages": True, "lstm_size": 128,
    "env_options": "stack_num=1", "clip_rewards": True, "episodic_life": True, "noop_max": 30,
}  # fmt: skip
SEQUENCE = 32
"""Steps, in every preset from the zoo: sb3-contrib cuts a rollout elsewhere in every pass."""


def translated(theirs: dict[str, Any]) -> dict[str, Any]:
    """Every parameter, and the steps. Stable-Baselines3's value loss has no ½; its MlpLstmPolicy
    has 256 units and two layers of 64 where the zoo says nothing else."""
    theirs = SB3_CONTRIB | {"lstm_hidden_size": 256, "net_arch": [64, 64]} | theirs
    names = {
        "num_envs": "n_envs", "rollout_length": "n_steps", "update_epochs": "n_epochs",
        "adam_epsilon": "eps", "discount": "gamma", "gae_lambda": "gae_lambda",
        "normalise_advantages": "normalize_advantage", "entropy_coefficient": "ent_coef",
        "max_gradient_norm": "max_grad_norm", "normalise_observations": "normalize",
        "normalise_rewards": "normalize", "lstm_size": "lstm_hidden_size",
    }  # fmt: skip
    settings: dict[str, Any] = {ours: theirs[name] for ours, name in names.items()}
    for ours, name in (("learning_rate", "learning_rate"), ("clip", "clip_range")):
        settings[ours] = float(str(theirs[name]).removeprefix("lin_"))
        settings[f"anneal_{ours}"] = str(theirs[name]).startswith("lin_")
    return asdict(OneProcess()) | asdict(RecurrentPPO()) | settings | {
        "steps": int(theirs["n_timesteps"]), "sequence_length": SEQUENCE,
        "minibatches": theirs["n_envs"] * theirs["n_steps"] // theirs["batch_size"],
        "value_coefficient": 2 * theirs["vf_coef"], "hidden_sizes": tuple(theirs["net_arch"]),
    }  # fmt: skip


@pytest.mark.parametrize("name", OF_GAME)
def test_it_follows_the_zoo(name: str) -> None:
    published, changed = translated(ZOO[OF_GAME[name]]), CHANGED[name]
    assert all(published[one] != value for one, value in changed.items()), "a change that is none"
    assert decided("ppo-lstm", name) == published | changed
    comment = comment_of("ppo-lstm", name)
    assert f"rl-baselines3-zoo, hyperparams/ppo_lstm.yml, {OF_GAME[name]}" in comment
    assert all(one in comment for one in changed), "the comment says what is otherwise"
    assert ("use_sde" in comment) == (name == "pendulum-no-velocity")


@pytest.mark.parametrize("name", ["cartpole", "pendulum"])
def test_with_velocities_it_is_as_without(name: str) -> None:
    assert decided("ppo-lstm", name) == decided("ppo-lstm", f"{name}-no-velocity")
    assert f"config/games/{name}-no-velocity.yaml" in comment_of("ppo-lstm", name)


def test_atari_follows_cleanrl() -> None:
    published = asdict(OneProcess()) | asdict(RecurrentPPO()) | CLEANRL_ATARI
    assert decided("ppo-lstm", "pong") == decided("ppo-lstm", "breakout") == published
    assert "CleanRL, ppo_atari_lstm.py" in comment_of("ppo-lstm", "atari")


def test_any_other_game_has_ppo_s_settings() -> None:
    of_ppo = dict(preset(find_game("Other-v0"))["ppo"])
    assert preset_values("ppo-lstm", find_game("Other-v0")) == of_ppo | {
        "sequence_length": SEQUENCE
    }


def test_every_game_with_a_preset_has_one() -> None:
    others = {name for name in own_presets() if find_game(name).kind not in ("atari", "board")}
    own = {name for name in others if "ppo-lstm" in load_mapping(FOLDER / f"{name}.yaml")}
    assert own == {*OF_GAME, "cartpole", "pendulum"}
