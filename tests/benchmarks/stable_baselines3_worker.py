"""Stable-Baselines3's algorithms, and sb3-contrib's, with the same settings; runs in its own
environment, `.venv-benchmark`, and imports nothing of ours but how segments are served.

`python stable_baselines3_worker.py SETTINGS.json`, where the settings are what `throughput.py`
wrote.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from segments import serve

WARM_STEPS = 2048
"""Before anything is measured; what learns from a replay has begun to learn then."""
SEGMENT_STEPS = 256
"""At least so many at once: their `learn` has a beginning and an end of its own."""


def make_environments(settings: dict[str, Any]) -> Any:
    """Wrapped as ours are."""
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.vec_env import VecFrameStack, VecNormalize

    hyper = settings["hyperparameters"]
    if settings["kind"] == "atari":
        import ale_py
        import gymnasium

        gymnasium.register_envs(ale_py)
        made = {
            "frameskip": 1,
            "repeat_action_probability": settings["sticky_actions"],
            "full_action_space": False,
        }
        wrapped = {
            "noop_max": hyper["noop_max"],
            "terminal_on_life_loss": hyper["episodic_life"],
            "clip_reward": hyper["clip_rewards"],
        }
        environments = make_atari_env(
            settings["id"], hyper["num_envs"], seed=1, env_kwargs=made, wrapper_kwargs=wrapped
        )
        return VecFrameStack(environments, n_stack=4)
    shown = settings["shown"]
    environments = make_vec_env(
        settings["id"], hyper["num_envs"], seed=1, wrapper_class=only(shown) if shown else None
    )
    observations, rewards = hyper["normalise_observations"], hyper["normalise_rewards"]
    if not observations and not rewards:
        return environments
    return VecNormalize(
        environments, norm_obs=observations, norm_reward=rewards, gamma=hyper["discount"]
    )


def only(shown: list[int]) -> Callable[[Any], Any]:
    """A wrapper that shows these numbers of an observation and no others."""
    import gymnasium
    import numpy as np

    def wrapped(environment: Any) -> Any:
        space = environment.observation_space
        kept = gymnasium.spaces.Box(space.low[shown], space.high[shown], dtype=np.float32)
        return gymnasium.wrappers.TransformObservation(environment, lambda seen: seen[shown], kept)

    return wrapped


def ppo(settings: dict[str, Any], environments: Any) -> Any:
    from stable_baselines3 import PPO

    atari = settings["kind"] == "atari"
    hyper = settings["hyperparameters"]
    layers = {} if atari else {"net_arch": list(hyper["hidden_sizes"])}
    return PPO(
        "CnnPolicy" if atari else "MlpPolicy",
        environments,
        **on_policy(hyper),
        policy_kwargs={**layers, "optimizer_kwargs": {"eps": hyper["adam_epsilon"]}},
        device="cpu",
    )


def recurrent_ppo(settings: dict[str, Any], environments: Any) -> Any:
    from sb3_contrib import RecurrentPPO
    from torch import nn

    hyper = settings["hyperparameters"]
    network = {
        "lstm_hidden_size": hyper["lstm_size"],
        "net_arch": list(hyper["hidden_sizes"]),
        "activation_fn": nn.ReLU,
        "ortho_init": False,
        "enable_critic_lstm": True,
        "optimizer_kwargs": {"eps": hyper["adam_epsilon"]},
    }
    return RecurrentPPO(
        "MlpLstmPolicy", environments, **on_policy(hyper), policy_kwargs=network, device="cpu"
    )


def on_policy(hyper: dict[str, Any]) -> dict[str, Any]:
    """What PPO with and without a memory has."""
    batch = hyper["num_envs"] * hyper["rollout_length"]
    return {
        "learning_rate": hyper["learning_rate"],
        "n_steps": hyper["rollout_length"],
        "batch_size": batch // hyper["minibatches"],
        "n_epochs": hyper["update_epochs"],
        "gamma": hyper["discount"],
        "gae_lambda": hyper["gae_lambda"],
        "clip_range": hyper["clip"],
        "ent_coef": hyper["entropy_coefficient"],
        "vf_coef": hyper["value_coefficient"] / 2,  # their value loss has no ½
        "max_grad_norm": hyper["max_gradient_norm"],
    }


def dqn(settings: dict[str, Any], environments: Any) -> Any:
    from stable_baselines3 import DQN

    atari, hyper = settings["kind"] == "atari", settings["hyperparameters"]
    layers = {} if atari else {"net_arch": list(hyper["hidden_sizes"])}
    return DQN(
        "CnnPolicy" if atari else "MlpPolicy", environments, **off_policy(hyper),
        **exploration(hyper), policy_kwargs=layers, device="cpu",
    )  # fmt: skip


def qr_dqn(settings: dict[str, Any], environments: Any) -> Any:
    from sb3_contrib import QRDQN

    hyper = settings["hyperparameters"]
    network = {"net_arch": list(hyper["hidden_sizes"]), "n_quantiles": hyper["quantiles"]}
    return QRDQN(
        "MlpPolicy", environments, **off_policy(hyper), **exploration(hyper),
        policy_kwargs=network, device="cpu",
    )  # fmt: skip


def sac(settings: dict[str, Any], environments: Any) -> Any:
    from stable_baselines3 import SAC

    hyper = settings["hyperparameters"]
    return SAC(
        "MlpPolicy", environments, **off_policy(hyper), tau=hyper["target_rate"],
        policy_kwargs={"net_arch": list(hyper["hidden_sizes"])}, device="cpu",
    )  # fmt: skip


def td3(settings: dict[str, Any], environments: Any) -> Any:
    import numpy as np
    from stable_baselines3 import TD3
    from stable_baselines3.common.noise import NormalActionNoise

    hyper = settings["hyperparameters"]
    count = environments.action_space.shape[0]
    deviation = np.full(count, hyper["exploration_noise"])
    return TD3(
        "MlpPolicy", environments, **off_policy(hyper), tau=hyper["target_rate"],
        action_noise=NormalActionNoise(np.zeros(count), deviation),
        policy_delay=hyper["policy_delay"], target_policy_noise=hyper["target_noise"],
        target_noise_clip=hyper["target_noise_clip"],
        policy_kwargs={"net_arch": list(hyper["hidden_sizes"])}, device="cpu",
    )  # fmt: skip


def off_policy(hyper: dict[str, Any]) -> dict[str, Any]:
    """What everything that learns from a replay has."""
    return {
        "learning_rate": hyper["learning_rate"],
        "buffer_size": min(hyper["replay_size"], 20_000),  # theirs holds every frame eight times
        "learning_starts": min(hyper["learning_starts"], WARM_STEPS // 2),
        "batch_size": hyper["batch_size"],
        "gamma": hyper["discount"],
        "train_freq": max(1, hyper["train_every"] // hyper["num_envs"]),
        "gradient_steps": hyper["updates"],
    }


def exploration(hyper: dict[str, Any]) -> dict[str, Any]:
    return {
        "target_update_interval": hyper["target_every"],
        "exploration_fraction": hyper["exploration_fraction"],
        "exploration_final_eps": hyper["final_epsilon"],
        "max_grad_norm": hyper["max_gradient_norm"],
    }


MAKERS: dict[str, Callable[[dict[str, Any], Any], Any]] = {
    "PPO": ppo, "RecurrentPPO": recurrent_ppo, "DQN": dqn, "QRDQN": qr_dqn, "SAC": sac,
    "TD3": td3,
}  # fmt: skip


def main() -> None:
    import torch

    settings = json.loads(Path(sys.argv[1]).read_text())
    torch.set_num_threads(settings["threads"])
    model = MAKERS[settings["reference"]](settings, make_environments(settings))
    at_once = max(getattr(model, "n_steps", 0) * model.n_envs, SEGMENT_STEPS)
    model.learn(max(at_once, WARM_STEPS))  # warm

    def learn() -> int:
        before = model.num_timesteps
        model.learn(at_once, reset_num_timesteps=False)
        return int(model.num_timesteps - before)

    serve(learn)


if __name__ == "__main__":
    main()
