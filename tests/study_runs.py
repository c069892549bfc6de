"""A tiny study for the tests of whole workflows."""

from __future__ import annotations

TINY = """\
outdir: results/tiny
runs: 2
algorithms: [ppo, dqn]
games: [cartpole, acrobot]
parameters: {evaluation_episodes: 1, video_episodes: 0}
"""
PPO = "{ppo: {epochs: 2, num_envs: 2, rollout_length: 32, minibatches: 2, update_epochs: 1}}"
DQN = "{dqn: {epochs: 1, learning_starts: 100}}"
TINY = TINY.replace("[ppo, dqn]", f"[{PPO}, {DQN}]")
"""Two algorithms on two games, with the smallest trainings."""
CELLS = ("ppo-cartpole", "ppo-acrobot", "dqn-cartpole", "dqn-acrobot")
