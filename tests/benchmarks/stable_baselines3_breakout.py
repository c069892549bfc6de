"""Stable-Baselines3's PPO on Breakout with rl-baselines3-zoo's settings: trained and evaluated.

Started by `breakout.py` in an environment of its own, `.venv-benchmark`; imports nothing of ours.
Writes FOLDER/agent.zip and FOLDER/result.json. What is there already is not made again, unless it
was made with other settings. Settings: rl-baselines3-zoo, hyperparams/ppo.yml, `atari` (commit
22e3ff2); both linear schedules end with these steps, as they end with zoo's 10 million.

The game is ours: ALE/Breakout-v5 with its own 4 actions, 84 x 84 grey, 4 frames stacked, 4 frames a
step, a repeated action drawn at every frame of the emulator, at most 108 000 frames. Without
sticky actions it is BreakoutNoFrameskip-v4 by another name (ale-py specifies both alike).

Evaluation is what zoo's enjoy does: the wrappers of the training stay, so that FIRE is pressed
after every lost life as the agent learnt it, and Monitor, inside of them, counts whole games in the
game's own reward. (With terminal_on_life_loss=False FIRE would be pressed at the full reset only,
and many a greedy game would stand still after its first life.)
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

ENVIRONMENTS = 8
HYPERPARAMETERS: dict[str, Any] = {
    "n_steps": 128,
    "n_epochs": 4,
    "batch_size": 256,
    "vf_coef": 0.5,
    "ent_coef": 0.01,
}
LEARNING_RATE, CLIP_RANGE = 2.5e-4, 0.1
"""Both fall linearly to 0."""
EVALUATION_SEED = 1_000_000
"""Added to the seed of the training."""


def main() -> None:
    """Train if there is no such agent yet, evaluate if that was not done yet."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="for agent.zip and result.json")
    parser.add_argument("--sticky-actions", type=float, required=True)
    parser.add_argument("--steps", type=int, required=True, help="of all environments together")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--episodes", type=int, required=True, help="of the evaluation")
    parser.add_argument("--threads", type=int, default=1, help="torch's")
    arguments = parser.parse_args()

    import torch

    torch.set_num_threads(arguments.threads)
    asked = {name: getattr(arguments, name) for name in ("sticky_actions", "steps", "seed")}
    arguments.folder.mkdir(parents=True, exist_ok=True)
    path = arguments.folder / "result.json"
    result: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    if result.get("asked") != asked:
        result = {"asked": asked, "training": train(arguments.folder / "agent.zip", **asked)}
        write(path, result)
    done = result.setdefault("evaluation", {})
    for policy in ("greedy", "sample"):
        if len(done.get(policy, {}).get("returns", ())) != arguments.episodes:
            agent = arguments.folder / "agent.zip"
            done[policy] = evaluate(agent, policy, arguments.episodes, asked)
            write(path, result)


def train(agent: Path, *, sticky_actions: float, steps: int, seed: int) -> dict[str, Any]:
    """Train and save one agent; what the last 100 whole games returned, and how long it took."""
    import stable_baselines3
    from stable_baselines3.common.utils import LinearSchedule

    model = stable_baselines3.PPO(
        "CnnPolicy",
        environments(ENVIRONMENTS, sticky_actions, seed),
        learning_rate=LinearSchedule(LEARNING_RATE, 0.0, 1.0),
        clip_range=LinearSchedule(CLIP_RANGE, 0.0, 1.0),
        **HYPERPARAMETERS,
        seed=seed,
        device="cpu",
    )
    started = time.monotonic()
    model.learn(steps)
    model.save(agent)
    last = [float(episode["r"]) for episode in model.ep_info_buffer or ()]
    return {
        "seconds": time.monotonic() - started,
        "steps": model.num_timesteps,
        "last_games": len(last),
        "last_games_return": sum(last) / len(last),
        "stable_baselines3": stable_baselines3.__version__,
    }


def evaluate(agent: Path, policy: str, episodes: int, asked: dict[str, Any]) -> dict[str, Any]:
    """Whole games, an environment each: their returns in the game's own reward, their frames."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.utils import set_random_seed

    started = time.monotonic()
    seed = EVALUATION_SEED + asked["seed"]
    set_random_seed(seed)
    returns, frames = evaluate_policy(
        PPO.load(agent, device="cpu"),
        environments(episodes, asked["sticky_actions"], seed),
        n_eval_episodes=episodes,
        deterministic=policy == "greedy",
        return_episode_rewards=True,
    )
    return {
        "returns": list(map(float, returns)),
        "frames": list(map(int, frames)),
        "seconds": time.monotonic() - started,
    }


def environments(count: int, sticky_actions: float, seed: int) -> Any:
    """Breakout in zoo's wrappers; a Monitor inside of each."""
    import ale_py
    import gymnasium
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    gymnasium.register_envs(ale_py)
    settings = {
        "frameskip": 1,
        "repeat_action_probability": sticky_actions,
        "full_action_space": False,
    }
    made = make_atari_env("ALE/Breakout-v5", count, seed=seed, env_kwargs=settings)
    return VecFrameStack(made, n_stack=4)


def write(path: Path, result: dict[str, Any]) -> None:
    """Whole or not at all."""
    unfinished = path.with_suffix(".json.unfinished")
    unfinished.write_text(json.dumps(result, indent=1))
    unfinished.replace(path)


if __name__ == "__main__":
    main()
