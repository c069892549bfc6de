"""Stable-Baselines3's PPO with the same settings; runs in its own environment, `.venv-benchmark`,
and imports nothing of ours.

`python stable_baselines3_worker.py SETTINGS.json`, where the settings are what `throughput.py`
wrote. Each line "SECONDS" on standard input starts a segment of at least so many seconds; its
answer is a line with `environment steps` and `seconds`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


def make_model(settings: dict[str, Any]) -> Any:
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.vec_env import VecFrameStack, VecNormalize

    torch.set_num_threads(settings["threads"])
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
        environments = VecFrameStack(environments, n_stack=4)
    else:
        environments = make_vec_env(settings["id"], hyper["num_envs"], seed=1)
        observations, rewards = hyper["normalise_observations"], hyper["normalise_rewards"]
        if observations or rewards:
            environments = VecNormalize(
                environments, norm_obs=observations, norm_reward=rewards, gamma=hyper["discount"]
            )
    batch = hyper["num_envs"] * hyper["rollout_length"]
    layers = {} if settings["kind"] == "atari" else {"net_arch": list(hyper["hidden_sizes"])}
    return PPO(
        "CnnPolicy" if settings["kind"] == "atari" else "MlpPolicy",
        environments,
        learning_rate=hyper["learning_rate"],
        n_steps=hyper["rollout_length"],
        batch_size=batch // hyper["minibatches"],
        n_epochs=hyper["update_epochs"],
        gamma=hyper["discount"],
        gae_lambda=hyper["gae_lambda"],
        clip_range=hyper["clip"],
        ent_coef=hyper["entropy_coefficient"],
        vf_coef=hyper["value_coefficient"] / 2,  # their value loss has no ½
        max_grad_norm=hyper["max_gradient_norm"],
        policy_kwargs={**layers, "optimizer_kwargs": {"eps": hyper["adam_epsilon"]}},
        device="cpu",
        verbose=0,
    )


def main() -> None:
    settings = json.loads(Path(sys.argv[1]).read_text())
    model = make_model(settings)
    batch = model.n_steps * model.n_envs
    model.learn(batch)  # warm
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        steps, started, computed = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() - started < float(line):
            steps -= model.num_timesteps
            model.learn(batch, reset_num_timesteps=False)
            steps += model.num_timesteps
        print(
            json.dumps(
                {
                    "steps": steps,
                    "seconds": time.perf_counter() - started,
                    "cpu_seconds": time.process_time() - computed,
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
