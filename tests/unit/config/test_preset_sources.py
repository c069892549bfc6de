"""Every preset against the source it names: its numbers, and the loss that its coefficients weigh.

The tables are in the sources' own words; `of_cleanrl` and `of_the_zoo` translate them into ours.
What a preset does otherwise stands in `CHANGED`, and its own comment says why.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, Independent, Normal
from torch.nn import functional

from agents.algorithms.ppo import PPOTrainer
from agents.experience.policy_batches import Batch
from config.algorithms.ppo import PPO
from config.environment import OneProcess
from config.games import FOLDER, find_game, own_presets
from config.presets import preset_values
from config.resolve import resolve
from config.strict_yaml import load_mapping
from config.suites import BOX2D_ID
from tests.decided_presets import decided

# github.com/vwxyzjn/cleanrl, commit fe8d8a0: cleanrl/ppo_atari.py and ppo_continuous_action.py,
# class Args, make_env and the call of Adam.
CLEANRL_ATARI = {
    "total_timesteps": 10_000_000, "learning_rate": 2.5e-4, "num_envs": 8, "num_steps": 128,
    "anneal_lr": True, "gamma": 0.99, "gae_lambda": 0.95, "num_minibatches": 4, "update_epochs": 4,
    "clip_coef": 0.1, "clip_vloss": True, "ent_coef": 0.01, "vf_coef": 0.5, "max_grad_norm": 0.5,
    "eps": 1e-5, "norm_adv": True,
}  # fmt: skip
OURS = {
    "sticky_actions": 0.25, "full_action_set": False, "env_options": None, "wrappers": None,
    "vectorisation": "auto", "network": None,
}  # fmt: skip
"""What no preset decides: the emulator's are the experiment's, as config/games/atari.yaml says."""
CLEANRL_ATARI_WRAPPERS = {
    "noop_max": 30, "episodic_life": True, "fire_after_life_loss": True, "clip_rewards": True,
}  # fmt: skip
CLEANRL_CONTINUOUS = CLEANRL_ATARI | {
    "total_timesteps": 1_000_000, "learning_rate": 3e-4, "num_envs": 1, "num_steps": 2048,
    "num_minibatches": 32, "update_epochs": 10, "clip_coef": 0.2, "ent_coef": 0.0,
}  # fmt: skip
CLEANRL_CLASSIC = CLEANRL_ATARI | {
    "total_timesteps": 500_000, "num_envs": 4, "clip_coef": 0.2,
}  # fmt: skip
# github.com/luchris429/purejaxrl: purejaxrl/ppo.py, whose value loss is clipped and has the ½, too.
PUREJAXRL_MINATAR = CLEANRL_ATARI | {
    "total_timesteps": 10_000_000, "learning_rate": 5e-3, "num_envs": 64, "num_minibatches": 8,
    "clip_coef": 0.2,
}  # fmt: skip
CLEANRL_CONTINUOUS_WRAPPERS = {"normalise_observations": True, "normalise_rewards": True}

# Stable-Baselines3 2.9.2: PPO.__init__, and in common/policies.py the eps.
STABLE_BASELINES3 = {
    "learning_rate": 3e-4, "batch_size": 64, "gamma": 0.99, "gae_lambda": 0.95, "clip_range": 0.2,
    "vf_coef": 0.5, "max_grad_norm": 0.5, "eps": 1e-5, "normalize_advantage": True,
    "normalize": False,
}  # fmt: skip
# github.com/DLR-RM/rl-baselines3-zoo, commit 22e3ff2: hyperparams/ppo.yml.
# "lin_": falls to 0. Left out: use_sde and sde_sample_freq of Pendulum and CarRacing.
LUNAR_LANDER = {
    "n_envs": 16, "n_timesteps": 1e6, "n_steps": 1024, "batch_size": 64, "gae_lambda": 0.98,
    "gamma": 0.999, "n_epochs": 4, "ent_coef": 0.01,
}  # fmt: skip
ZOO: dict[str, dict[str, Any]] = {
    "Acrobot-v1": {
        "normalize": True, "n_envs": 16, "n_timesteps": 1e6, "n_steps": 256, "gae_lambda": 0.94,
        "gamma": 0.99, "n_epochs": 4, "ent_coef": 0.0,
    },
    "CartPole-v1": {
        "n_envs": 8, "n_timesteps": 1e5, "n_steps": 32, "batch_size": 256, "gae_lambda": 0.8,
        "gamma": 0.98, "n_epochs": 20, "ent_coef": 0.0, "learning_rate": "lin_0.001",
        "clip_range": "lin_0.2",
    },
    "LunarLander-v3": LUNAR_LANDER,
    "LunarLanderContinuous-v3": LUNAR_LANDER,
    "MountainCar-v0": {
        "normalize": True, "n_envs": 16, "n_timesteps": 1e6, "n_steps": 16, "gae_lambda": 0.98,
        "gamma": 0.99, "n_epochs": 4, "ent_coef": 0.0,
    },
    "BipedalWalker-v3": {
        "normalize": True, "n_envs": 32, "n_timesteps": 5e6, "n_steps": 2048, "batch_size": 64,
        "gae_lambda": 0.95, "gamma": 0.999, "n_epochs": 10, "ent_coef": 0.0, "clip_range": 0.18,
    },
    "CarRacing-v3": {
        "norm_reward": True, "n_envs": 8, "n_timesteps": 4e6, "n_steps": 512, "batch_size": 128,
        "gae_lambda": 0.95, "gamma": 0.99, "n_epochs": 10, "ent_coef": 0.0,
        "learning_rate": "lin_1e-4", "clip_range": 0.2,
    },
    "MiniGrid-Empty-Random-5x5-v0": {
        "normalize": True, "n_envs": 8, "n_timesteps": 1e5, "n_steps": 128, "batch_size": 64,
        "gae_lambda": 0.95, "gamma": 0.99, "n_epochs": 10, "ent_coef": 0.0, "learning_rate": 2.5e-4,
        "clip_range": 0.2,
    },
    "Swimmer-v4": {
        "normalize": True, "n_envs": 4, "n_timesteps": 1e6, "n_steps": 1024, "batch_size": 256,
        "gae_lambda": 0.98, "gamma": 0.9999, "n_epochs": 10, "ent_coef": 0.0, "learning_rate": 6e-4,
    },
    "Pendulum-v1": {
        "n_envs": 4, "n_timesteps": 1e5, "n_steps": 1024, "gae_lambda": 0.95, "gamma": 0.9,
        "n_epochs": 10, "ent_coef": 0.0, "learning_rate": 1e-3, "clip_range": 0.2,
    },
}  # fmt: skip

CHANGED: dict[str, dict[str, Any]] = {
    "acrobot": {"steps": 300_000},
    "cartpole": {"discount": 0.99, "gae_lambda": 0.95, "normalise_rewards": True},
    "mountaincar": {"rollout_length": 256, "minibatches": 64, "anneal_learning_rate": True},
    "pendulum": {
        "steps": 200_000, "num_envs": 16, "rollout_length": 128, "minibatches": 8,
        "normalise_observations": True, "normalise_rewards": True, "anneal_learning_rate": True,
    },
    "bipedalwalker": {"minibatches": 256},
    "minatar": {"learning_rate": 0.001, "clip_value_loss": False},
    "minigrid": {"steps": 1_000_000},
    "frozenlake": {"clip_value_loss": False},
    "fallback": {"num_envs": 8, "rollout_length": 256, "clip_value_loss": False},
    "mujoco": {"num_envs": 8, "rollout_length": 256, "clip_value_loss": False},
}  # fmt: skip
WITHOUT_VELOCITIES = [name for name in own_presets() if name.endswith("-no-velocity")]
"""Their settings are those of the game with velocities, to be compared with."""
OF_THE_ZOO = [
    name
    for name in own_presets()
    if find_game(name).kind not in ("atari", "board")
    and name not in (*WITHOUT_VELOCITIES, "frozenlake")
    and "ppo" in load_mapping(FOLDER / f"{name}.yaml")
]
OLDER = {"Swimmer-v5": "Swimmer-v4"}
"""The version of which the zoo has settings, where it is not ours."""
HAS_BOX2D = importlib.util.find_spec("Box2D") is not None  # it has no wheel for Python 3.14
WITHOUT_WRAPPERS = {
    "noop_max": 30, "episodic_life": False, "fire_after_life_loss": True, "clip_rewards": False,
    "normalise_observations": False, "normalise_rewards": False,
}  # fmt: skip
NETWORK = {"hidden_sizes": (64, 64), "log_std_init": 0.0, "optimiser": "adam"}
"""Of both: two towers of 64 and 64 tanh units, learnt by Adam. The Nature CNN has no parameter."""


def of_cleanrl(theirs: dict[str, Any], wrappers: dict[str, Any]) -> dict[str, Any]:
    """Every parameter, and the steps. Its value loss has the ½ that ours has."""
    names = {
        "steps": "total_timesteps", "num_envs": "num_envs", "rollout_length": "num_steps",
        "update_epochs": "update_epochs", "minibatches": "num_minibatches",
        "learning_rate": "learning_rate", "anneal_learning_rate": "anneal_lr",
        "adam_epsilon": "eps", "discount": "gamma", "gae_lambda": "gae_lambda", "clip": "clip_coef",
        "normalise_advantages": "norm_adv", "clip_value_loss": "clip_vloss",
        "entropy_coefficient": "ent_coef",
        "value_coefficient": "vf_coef", "max_gradient_norm": "max_grad_norm",
    }  # fmt: skip
    settings = {ours: theirs[name] for ours, name in names.items()}
    return WITHOUT_WRAPPERS | NETWORK | {"anneal_clip": False} | settings | wrappers


def of_the_zoo(game: str) -> dict[str, Any]:
    """Every parameter, and the steps. Stable-Baselines3's value loss has no ½."""
    theirs = STABLE_BASELINES3 | ZOO[game]
    names = {
        "num_envs": "n_envs", "rollout_length": "n_steps", "update_epochs": "n_epochs",
        "adam_epsilon": "eps", "discount": "gamma", "gae_lambda": "gae_lambda",
        "normalise_advantages": "normalize_advantage", "entropy_coefficient": "ent_coef",
        "max_gradient_norm": "max_grad_norm",
        "normalise_observations": "normalize", "normalise_rewards": "normalize",
    }  # fmt: skip
    settings = {ours: theirs[name] for ours, name in names.items()}
    settings["normalise_rewards"] |= theirs.get("norm_reward", False)
    settings["steps"] = int(theirs["n_timesteps"])
    settings["minibatches"] = theirs["n_envs"] * theirs["n_steps"] // theirs["batch_size"]
    settings["value_coefficient"] = 2 * theirs["vf_coef"]
    for ours, name in (("learning_rate", "learning_rate"), ("clip", "clip_range")):
        settings[ours] = float(str(theirs[name]).removeprefix("lin_"))
        settings[f"anneal_{ours}"] = str(theirs[name]).startswith("lin_")
    return WITHOUT_WRAPPERS | NETWORK | {"clip_value_loss": False} | settings


def check(name: str, game: str, published: dict[str, Any], source: str) -> None:
    """Every parameter that a training of this game gets, and the steps, are those published; one that
    the source does not have keeps its default.
    """
    changed = CHANGED.get(name, {})
    assert all(published[one] != value for one, value in changed.items()), "a change that is none"
    expected = OURS | published | changed
    defaults = asdict(OneProcess()) | asdict(PPO())
    assert decided("ppo", game) == defaults | expected
    page = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    comment = page[: page.index("ppo:")]
    assert source in comment
    assert all(one in comment for one in changed), "the comment says what is otherwise, and why"


def test_atari_follows_cleanrl_in_every_particular() -> None:
    published = of_cleanrl(CLEANRL_ATARI, CLEANRL_ATARI_WRAPPERS)
    check("atari", "pong", published, "CleanRL, ppo_atari.py")


def test_other_environments_follow_cleanrl_s_continuous_control() -> None:
    published = of_cleanrl(CLEANRL_CONTINUOUS, CLEANRL_CONTINUOUS_WRAPPERS)
    check("fallback", "Other-v0", published, "CleanRL, ppo_continuous_action.py")


@pytest.mark.parametrize("name", OF_THE_ZOO)
def test_the_others_follow_the_zoo(name: str) -> None:
    game = find_game(name)
    of_zoo = OLDER.get(game.id, game.id)
    source = f"rl-baselines3-zoo, hyperparams/ppo.yml, {of_zoo}"
    check(name, name, of_the_zoo(of_zoo), source)


def test_minigrid_follows_the_zoo() -> None:
    game = "MiniGrid-Empty-Random-5x5-v0"
    source = f"rl-baselines3-zoo, hyperparams/ppo.yml, {game} (minigrid-defaults)"
    check("minigrid", "minigrid-doorkey", of_the_zoo(game), source)


def test_mujoco_follows_cleanrl_s_continuous_control() -> None:
    published = of_cleanrl(CLEANRL_CONTINUOUS, CLEANRL_CONTINUOUS_WRAPPERS)
    check("mujoco", "hopper", published, "CleanRL, ppo_continuous_action.py")
    assert decided("ppo", "cheetah-run") == decided("ppo", "hopper")


def test_frozenlake_follows_cleanrl() -> None:
    check("frozenlake", "frozenlake", of_cleanrl(CLEANRL_CLASSIC, {}), "CleanRL, ppo.py")


def test_minatar_follows_purejaxrl() -> None:
    published = of_cleanrl(PUREJAXRL_MINATAR, {})
    check("minatar", "minatar-breakout", published, "PureJaxRL, ppo.py")


@pytest.mark.parametrize("algorithm", ["ppo", "a2c"])
@pytest.mark.parametrize("name", WITHOUT_VELOCITIES)
def test_without_velocities_they_are_as_with_them(name: str, algorithm: str) -> None:
    whole = name.removesuffix("-no-velocity")
    found, expected = (preset_values(algorithm, find_game(one)) for one in (name, whole))
    assert found == expected
    assert f"config/games/{whole}.yaml" in (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")


def cleanrl_s_loss(rows: Batch, policy: Any, values: Tensor) -> Tensor:
    """cleanrl/ppo_atari.py, from "Policy loss" on; the advantages are normalised already."""
    args, advantages = CLEANRL_ATARI, rows.advantages
    clip = args["clip_coef"]
    ratio = (policy.log_prob(rows.actions) - rows.log_probabilities).exp()
    policy_loss_1 = -advantages * ratio
    policy_loss_2 = -advantages * torch.clamp(ratio, 1 - clip, 1 + clip)
    policy_loss = torch.max(policy_loss_1, policy_loss_2).mean()
    value_clipped = rows.values + torch.clamp(values - rows.values, -clip, clip)
    squares = torch.max((values - rows.returns) ** 2, (value_clipped - rows.returns) ** 2)
    value_loss = 0.5 * squares.mean()
    entropy_loss = policy.entropy().mean()
    return policy_loss - args["ent_coef"] * entropy_loss + value_loss * args["vf_coef"]


def zoo_s_loss(game: str) -> Callable[[Batch, Any, Tensor], Tensor]:
    """stable_baselines3/ppo/ppo.py, `train`, with the zoo's settings of this game."""
    theirs = STABLE_BASELINES3 | ZOO[game]
    clip = float(str(theirs["clip_range"]).removeprefix("lin_"))

    def loss(rows: Batch, policy: Any, values: Tensor) -> Tensor:
        ratio = torch.exp(policy.log_prob(rows.actions) - rows.log_probabilities)
        policy_loss_1 = rows.advantages * ratio
        policy_loss_2 = rows.advantages * torch.clamp(ratio, 1 - clip, 1 + clip)
        policy_loss = -torch.min(policy_loss_1, policy_loss_2).mean()
        value_loss = functional.mse_loss(rows.returns, values)
        entropy_loss = -policy.entropy().mean()
        return policy_loss + theirs["ent_coef"] * entropy_loss + theirs["vf_coef"] * value_loss

    return loss


@pytest.mark.parametrize("name", [*OF_THE_ZOO, "breakout"])
def test_the_loss_has_the_gradient_of_the_source_s(name: str) -> None:
    """By every parameter of the network, on random rows, before the gradient's norm is cut."""
    game = find_game(name)
    if BOX2D_ID.fullmatch(game.id) and not HAS_BOX2D:
        pytest.skip(f"{name} needs Box2D")
    small = {"num_envs": "2", "rollout_length": "8", "minibatches": "1"}
    given = {"game": name, "max_gradient_norm": "1000", **small}
    trainer = PPOTrainer(resolve("ppo", given), run=0, device="cpu", precision="fp32")
    trainer.close()
    rows = random_rows(trainer, 64).normalised()
    of_zoo = zoo_s_loss(OLDER.get(game.id, game.id)) if game.kind != "atari" else None
    source_s_loss = of_zoo or cleanrl_s_loss
    policy, values = trainer.network(rows.encoded)
    parameters = list(trainer.network.parameters())
    loss = source_s_loss(rows, distribution_of(trainer, policy), values)
    expected = torch.autograd.grad(loss, parameters)
    trainer._update(rows, learning_rate=0.0, clip=torch.tensor(trainer.hyper.clip))
    for one, gradient in zip(parameters, expected, strict=True):
        assert one.grad is not None
        assert float((one.grad - gradient).abs().max()) < 1e-3 * float(gradient.abs().max())


def random_rows(trainer: PPOTrainer, count: int) -> Batch:
    """Old policy and values a little beside the network's: some rows are clipped, others not."""
    generator, spaces = torch.Generator().manual_seed(0), trainer.environments.interface
    seen = torch.randn(count, *spaces.environment_shape, generator=generator)
    if spaces.image:
        seen = (seen * 64 + 128).clamp(0, 255).to(torch.uint8)
    encoded = trainer.network.encode(seen)
    noises, advantages, returns = torch.randn(3, count, generator=generator)
    with torch.no_grad():
        policy, values = trainer.network(encoded)
    actions = trainer.actions.choose(policy, trainer.actions.noise((count,), generator))
    log_probability = distribution_of(trainer, policy).log_prob(actions) + 0.2 * noises
    return Batch(encoded, actions, log_probability, values - 0.2 * noises, advantages, returns)


def distribution_of(trainer: PPOTrainer, policy: Tensor) -> Any:
    if trainer.environments.interface.discrete:
        return Categorical(logits=policy)
    mean, log_std = policy.chunk(2, dim=1)
    return Independent(Normal(mean, log_std.exp()), 1)
