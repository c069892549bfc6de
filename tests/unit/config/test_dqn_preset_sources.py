"""Every preset of DQN against the source that it names, as in `test_preset_sources.py`.

The tables are in the sources' own words. What a preset does otherwise stands in `CHANGED`, and its
own comment says why.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from config.environment import OneProcess
from config.games import FOLDER, find_game
from tests.decided_presets import decided

# Stable-Baselines3 2.9.2: DQN.__init__, torch's Adam, and AtariWrapper.
STABLE_BASELINES3 = {
    "learning_rate": 1e-4, "buffer_size": 1_000_000, "learning_starts": 100, "batch_size": 32,
    "gamma": 0.99, "train_freq": 4, "gradient_steps": 1, "n_steps": 1,
    "target_update_interval": 10_000, "exploration_fraction": 0.1, "exploration_final_eps": 0.05,
    "max_grad_norm": 10.0, "eps": 1e-8, "net_arch": (64, 64), "n_envs": 1,
}  # fmt: skip
ATARI_WRAPPER = {
    "noop_max": 30, "episodic_life": True, "clip_rewards": True, "fire_after_life_loss": True,
}  # fmt: skip
WITHOUT_WRAPPERS = {
    "noop_max": 30, "episodic_life": False, "fire_after_life_loss": True, "clip_rewards": False,
    "normalise_observations": False, "normalise_rewards": False,
}  # fmt: skip
# github.com/DLR-RM/rl-baselines3-zoo, commit 22e3ff2: hyperparams/dqn.yml. There gradient_steps: -1
# is as many as train_freq.
OF_BOTH = {
    "n_timesteps": 1e5, "learning_rate": 6.3e-4, "batch_size": 128, "buffer_size": 50_000,
    "learning_starts": 0, "gamma": 0.99, "target_update_interval": 250, "train_freq": 4,
    "gradient_steps": 4, "exploration_fraction": 0.12, "exploration_final_eps": 0.1,
    "net_arch": (256, 256),
}  # fmt: skip
ZOO: dict[str, dict[str, Any]] = {
    "CartPole-v1": {
        "n_timesteps": 5e4, "learning_rate": 2.3e-3, "batch_size": 64, "buffer_size": 100_000,
        "learning_starts": 1000, "gamma": 0.99, "target_update_interval": 10, "train_freq": 256,
        "gradient_steps": 128, "exploration_fraction": 0.16, "exploration_final_eps": 0.04,
        "net_arch": (256, 256),
    },
    "MountainCar-v0": {
        "n_timesteps": 1.2e5, "learning_rate": 4e-3, "batch_size": 128, "buffer_size": 10_000,
        "learning_starts": 1000, "gamma": 0.98, "target_update_interval": 600, "train_freq": 16,
        "gradient_steps": 8, "exploration_fraction": 0.2, "exploration_final_eps": 0.07,
        "net_arch": (256, 256),
    },
    "Acrobot-v1": OF_BOTH,
    "LunarLander-v3": OF_BOTH,
    "atari": {
        "n_timesteps": 1e7, "buffer_size": 100_000, "learning_rate": 1e-4, "batch_size": 32,
        "learning_starts": 100_000, "target_update_interval": 1000, "train_freq": 4,
        "gradient_steps": 1, "exploration_fraction": 0.1, "exploration_final_eps": 0.01,
    },
}  # fmt: skip
# github.com/vwxyzjn/cleanrl: cleanrl/dqn.py, its arguments, its QNetwork and torch's Adam; gradients
# are not cut there, and the loss is squared.
CLEANRL = STABLE_BASELINES3 | {
    "n_timesteps": 500_000, "learning_rate": 2.5e-4, "buffer_size": 10_000, "batch_size": 128,
    "target_update_interval": 500, "exploration_final_eps": 0.05, "exploration_fraction": 0.5,
    "learning_starts": 10_000, "train_freq": 10, "net_arch": (120, 84), "max_grad_norm": None,
}  # fmt: skip

NOT_THERE = {
    "epoch_steps": 1000, "double": False, "dueling": False, "prioritised": False,
    "priority_exponent": 0.6, "importance_exponent": 0.4, "quantiles": 0, "network": None,
    "anneal_learning_rate": False,
}  # fmt: skip
"""What the sources have not. What no preset decides is as it is without one."""
CHANGED: dict[str, dict[str, Any]] = {
    "cartpole": {"n_step": 3, "double": True, "anneal_learning_rate": True},
    "atari": {"num_envs": 8, "train_every": 8, "updates": 2},
    "fallback": {
        "normalise_observations": True, "double": True, "replay_size": 100_000,
        "max_gradient_norm": 10.0,
    },
}  # fmt: skip


def ours(theirs: dict[str, Any], wrappers: dict[str, Any]) -> dict[str, Any]:
    """Every parameter, and the steps."""
    names = {
        "num_envs": "n_envs", "replay_size": "buffer_size", "hidden_sizes": "net_arch",
        "learning_starts": "learning_starts", "train_every": "train_freq", "n_step": "n_steps",
        "updates": "gradient_steps", "batch_size": "batch_size", "adam_epsilon": "eps",
        "target_every": "target_update_interval", "learning_rate": "learning_rate",
        "max_gradient_norm": "max_grad_norm", "discount": "gamma", "steps": "n_timesteps",
        "exploration_fraction": "exploration_fraction", "final_epsilon": "exploration_final_eps",
    }  # fmt: skip
    return (
        asdict(OneProcess())
        | NOT_THERE
        | WITHOUT_WRAPPERS
        | wrappers
        | {one: theirs[name] for one, name in names.items()}
    )


def check(name: str, game: str, published: dict[str, Any], source: str) -> None:
    """Every parameter that a training of this game gets, and the steps, are those published."""
    changed = CHANGED.get(name, {})
    assert all(published[one] != value for one, value in changed.items()), "a change that is none"
    assert decided("dqn", game) == published | changed
    page = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    comment = page[: page.index("\ndqn:")].rpartition("\n# Settings:")[2]
    assert source in " ".join(comment.replace("#", "").split())
    assert all(one in comment for one in changed), "the comment says what is otherwise, and why"


@pytest.mark.parametrize("name", ["cartpole", "mountaincar", "acrobot", "lunarlander"])
def test_they_follow_the_zoo(name: str) -> None:
    game = find_game(name)
    published = ours(STABLE_BASELINES3 | ZOO[game.id], {})
    check(name, name, published, f"rl-baselines3-zoo, hyperparams/dqn.yml, {game.id}")


def test_atari_follows_the_zoo_with_as_many_updates_per_step() -> None:
    published = ours(STABLE_BASELINES3 | ZOO["atari"], ATARI_WRAPPER)
    check("atari", "pong", published, "rl-baselines3-zoo, hyperparams/dqn.yml, atari")
    changed = CHANGED["atari"]
    theirs = published["updates"] / published["train_every"]
    assert changed["updates"] / changed["train_every"] == theirs


def test_other_environments_follow_cleanrl() -> None:
    check("fallback", "Other-v0", ours(CLEANRL, {}), "CleanRL, dqn.py")
