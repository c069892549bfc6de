"""RLlib's IMPALA; runs in its own environment, `.venv-rllib`, and imports nothing of ours but how
segments are served.

`python rllib_worker.py SETTINGS.json`, where the settings are what `rllib.py` wrote, with the protocol
of `segments.py`. Steps are those that were learnt from.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from segments import serve

NATURE = [[32, 8, 4], [64, 4, 2], [64, 3, 1]]
"""Channels, kernel and stride of the convolutions of Mnih et al. 2015, which are ours, too."""
WARM_STEPS = 2000


def make_atari(settings: dict[str, Any]) -> Any:
    """84 x 84 grey, the last 4 frames."""
    import ale_py
    import gymnasium
    from ray.rllib.env.wrappers.atari_wrappers import wrap_atari_for_new_api_stack

    gymnasium.register_envs(ale_py)
    made = gymnasium.make(
        settings["id"],
        frameskip=1,
        repeat_action_probability=settings["sticky_actions"],
        full_action_space=False,
    )
    return wrap_atari_for_new_api_stack(made, dim=84, frameskip=4, framestack=4)


def configuration(settings: dict[str, Any]) -> Any:
    """With the hyperparameters of ours."""
    from ray.rllib.algorithms.impala import IMPALAConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
    from ray.tune.registry import register_env

    hyper = settings["hyperparameters"]
    atari = settings["kind"] == "atari"
    layers = {"conv_filters": NATURE, "head_fcnet_hiddens": [512]} if atari else {
        "fcnet_hiddens": list(hyper["hidden_sizes"])
    }  # fmt: skip
    if atari:
        register_env("atari", lambda _: make_atari(settings))
    return (
        IMPALAConfig()
        .environment("atari" if atari else settings["id"])
        .env_runners(
            num_env_runners=settings["actors"],
            num_envs_per_env_runner=settings["environments"],
            rollout_fragment_length=hyper["unroll_length"],
            num_cpus_per_env_runner=0.01,
        )
        .training(
            train_batch_size_per_learner=hyper["batch_size"] * hyper["unroll_length"],
            lr=hyper["learning_rate"],
            gamma=hyper["discount"],
            entropy_coeff=hyper["entropy_coefficient"],
            vf_loss_coeff=hyper["value_coefficient"],
            grad_clip=hyper["max_gradient_norm"],
        )
        .learners(num_learners=0, num_gpus_per_learner=0)
        .rl_module(model_config=DefaultModelConfig(**layers))
        .reporting(min_time_s_per_iteration=1)
    )


def learnt(result: dict[str, Any]) -> int:
    """Environment steps in the whole training; a first result may come before anything is learnt."""
    learner = result.get("learners", {}).get("__all_modules__", {})
    return int(learner.get("num_env_steps_trained_lifetime", 0))


def main() -> None:
    """Serve segments until standard input ends."""
    os.environ["RAY_AUTH_MODE"] = "disabled"  # else it writes a token into the user's home
    import ray

    settings = json.loads(Path(sys.argv[1]).read_text())
    ray.init(num_cpus=max(2, settings["cores"]), include_dashboard=False, log_to_driver=False)
    algorithm = configuration(settings).build_algo()
    before = 0
    while before < WARM_STEPS:
        before = learnt(algorithm.train())

    def learn() -> int:
        nonlocal before
        last, before = before, learnt(algorithm.train())
        return before - last

    serve(learn)


if __name__ == "__main__":
    main()
