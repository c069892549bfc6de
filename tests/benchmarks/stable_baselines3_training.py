"""One training of Stable-Baselines3, evaluated: `beside_stable_baselines3.py` starts it in an environment
of its own, `.venv-benchmark`; imports nothing of ours.

`python stable_baselines3_training.py FOLDER JSON`: the JSON says which algorithm, game and settings.
Writes FOLDER/result.json at the end: the returns of the training's episodes with the steps at which
they ended, and those of the evaluation. A result of the same request is not made again.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

EVALUATION_SEED = 1_000_000
"""Added to the seed of the training."""


def main(folder: Path, asked: dict[str, Any]) -> None:
    """Train, evaluate and write, unless there is such a result."""
    path = folder / "result.json"
    if path.exists() and json.loads(path.read_text())["asked"] == asked:
        return
    folder.mkdir(parents=True, exist_ok=True)
    import torch

    torch.set_num_threads(1)
    result = {"asked": asked, **train(asked)}
    unfinished = path.with_suffix(".json.unfinished")
    unfinished.write_text(json.dumps(result))
    unfinished.replace(path)


def train(asked: dict[str, Any]) -> dict[str, Any]:
    """asked: `algorithm`, a class of Stable-Baselines3; `game`, gymnasium's ID; `environments`, how many
    step together; `arguments` of the class; `falling`, those of them that fall linearly to 0;
    `normalised`, arguments of `VecNormalize` or None; `noise`, the standard deviation of exploration or
    None; `policy`, arguments of the networks; `small_images`, whether they begin with the convolutions
    for small images; `steps`, `seed`, `episodes` of the evaluation, `deterministic`.
    """
    import stable_baselines3
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.noise import NormalActionNoise
    from stable_baselines3.common.utils import LinearSchedule

    class Episodes(BaseCallback):
        """Keeps the step at which every episode ended, and its return in the game's own reward."""

        def __init__(self) -> None:
            super().__init__()
            self.ended: list[tuple[int, float]] = []

        def _on_step(self) -> bool:
            for info in self.locals["infos"]:
                if "episode" in info:
                    self.ended.append((self.num_timesteps, float(info["episode"]["r"])))
            return True

    environments = make(asked, asked["environments"], asked["seed"])
    arguments = dict(asked["arguments"])
    for name in asked["falling"]:
        arguments[name] = LinearSchedule(arguments[name], 0.0, 1.0)
    if asked["noise"] is not None:
        import numpy as np

        size = environments.action_space.shape
        arguments["action_noise"] = NormalActionNoise(np.zeros(size), np.full(size, asked["noise"]))
    policy = dict(asked["policy"])
    if "activation_fn" in policy:
        import torch

        policy["activation_fn"] = getattr(torch.nn, policy["activation_fn"])
    if asked["small_images"]:
        policy["features_extractor_class"] = small_images()
    model = getattr(stable_baselines3, asked["algorithm"])(
        "MlpPolicy", environments, seed=asked["seed"], device="cpu", policy_kwargs=policy, **arguments
    )  # fmt: skip
    episodes = Episodes()
    started = time.monotonic()
    model.learn(asked["steps"], callback=episodes)
    seconds = time.monotonic() - started
    evaluated = make(asked, min(8, asked["episodes"]), EVALUATION_SEED + asked["seed"])
    if asked["normalised"] is not None:
        evaluated.obs_rms = environments.obs_rms
        evaluated.training = evaluated.norm_reward = False
    returns, _ = evaluate_policy(
        model,
        evaluated,
        n_eval_episodes=asked["episodes"],
        deterministic=asked["deterministic"],
        return_episode_rewards=True,
    )
    return {
        "seconds": seconds,
        "steps": model.num_timesteps,
        "training": episodes.ended,
        "returns": list(map(float, returns)),
        "stable_baselines3": stable_baselines3.__version__,
    }


def make(asked: dict[str, Any], count: int, seed: int) -> Any:
    """The environments, one after another in this process; a Monitor inside of each."""
    import gymnasium
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    if asked["game"].startswith("MinAtar/"):
        from minatar.gym import register_envs

        if asked["game"] not in gymnasium.registry:
            register_envs()
    environments = make_vec_env(asked["game"], count, seed=seed)
    if asked["normalised"] is None:
        return environments
    return VecNormalize(environments, gamma=asked["arguments"]["gamma"], **asked["normalised"])


def small_images() -> type:
    """Convolutions 16 x 3/1 and 32 x 3/2, padded by one pixel, then 256 units, for [H, W, C]."""
    import torch
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
    from torch import nn

    class SmallImages(BaseFeaturesExtractor):
        def __init__(self, observation_space: Any) -> None:
            super().__init__(observation_space, 256)
            height, width, channels = observation_space.shape
            self.convolutions = nn.Sequential(
                nn.Conv2d(channels, 16, 3, 1, padding=1),
                nn.ReLU(),
                nn.Conv2d(16, 32, 3, 2, padding=1),
                nn.ReLU(),
                nn.Flatten(),
            )
            units = 32 * -(-height // 2) * -(-width // 2)
            self.last = nn.Sequential(nn.Linear(units, 256), nn.ReLU())

        def forward(self, observations: torch.Tensor) -> torch.Tensor:
            features: torch.Tensor = self.last(self.convolutions(observations.permute(0, 3, 1, 2)))
            return features

    return SmallImages


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
