"""A tiny study for the tests of whole workflows, and stand-ins for its comparison."""

from __future__ import annotations

from pathlib import Path

from tests.outside import ROOT

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
NAMES = ("compare", "plot_comparison")
STAND_IN = '''\
"""Stands in for a step of a study: it only notes that it ran."""

import argparse
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--outdir", type=Path)
folder = parser.parse_args().outdir / "comparison"
folder.mkdir(exist_ok=True)
(folder / Path(__file__).stem).touch()
'''


def with_stand_ins(folder: Path) -> str:
    """The search path of Python with which steps that do not exist have a stand-in in this folder."""
    steps = folder / "further-steps"
    steps.mkdir(parents=True)
    (folder / "sitecustomize.py").write_text(
        f"import steps\nsteps.__path__.append({str(steps)!r})\n"
    )
    for name in NAMES:
        (steps / f"{name}.py").write_text(STAND_IN)
    return f"{folder}:{ROOT}"
