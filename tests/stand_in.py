"""A trainer that learns nothing and whose curve is known: for tests of searches.

After epoch e every training episode returns `quality · (1 - exp(-e / patience))`, and the final policy returns
`quality` in its evaluation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from config.algorithms.descriptor import Algorithm
from config.environment import EnvironmentSettings
from config.parameters import parameter

EPOCHS_DONE = "epochs.txt"
"""The file, in the storage, with a line for each epoch that any training did, also in vain."""
EPISODES = 4
"""That end in an epoch, of one step each."""


@dataclass(frozen=True, kw_only=True)
class Known:
    quality: float = parameter(0.5, low=0, high=1, help="what the final policy returns")
    patience: float = parameter(3.0, low=0.1, high=100, help="epochs until most is learnt")
    pause: float = parameter(0.0, low=0, high=10, unit="s", help="time of an epoch")
    fails: float = parameter(2.0, low=0, high=2, help="quality from which on a training fails")

    def steps_per_epoch(self, environment: EnvironmentSettings) -> int:
        return EPISODES

    def warm_up_steps(self, environment: EnvironmentSettings) -> int:
        return 0

    def check(self, environment: EnvironmentSettings) -> None:
        pass


ALGORITHM = Algorithm(
    name="stand-in",
    hyperparameters=Known,
    trainer="tests.stand_in_parts:Trainer",
    policy="tests.stand_in_parts:Policy",
    families=("continuous",),
)
GAME = "tests.stand_in_parts:Given"


def height(quality: float, patience: float, epoch: int) -> float:
    """What an episode returns in training."""
    return quality * (1 - math.exp(-epoch / patience))


FILE = f"""\
outdir: OUTDIR
runs: 2
algorithms: ['{__name__}:ALGORITHM']
games: ['{GAME}']
parameters: {{epochs: 30, evaluation_episodes: 2, device: cpu, checkpoint_interval: 1, log_interval: 1}}
search:
  parameters: {{quality: {{low: 0, high: 1}}, patience: {{low: 1, high: 4}}}}
  sampler: random
  trials: 12
  parallel: 2
  prune: {{rungs: [0.1, 0.3, 1.0], reduction: 3}}
  then: {{best: 1, runs: 2, seed: 1000}}
"""
"""A search of it, with a place for the directory."""
