"""Returns beside Stable-Baselines3's: same game, steps, settings, machine and evaluation.

`python -m tests.benchmarks.beside_stable_baselines3 [--only sac-hopper …] [--outdir …] [--record FOLDER]`

Ours is a preset, run as a user runs it; theirs gets its settings, translated (`asked`), or for
`fallback.yaml`, which any game without a preset has, Stable-Baselines3's own defaults. Seeds are those of
`make learning`. What lies in the outdir is not made again. Exit codes: 0 ours is nowhere below theirs by
more than the spread of the runs, 1 it is, or a run is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from config.resolve import resolve
from config.resolved import Resolved
from steps.figures.style import look, write
from steps.statistics.curves import Curve
from tests.benchmarks.curves import Learnt, read_learnt, side_by_side, write_learnt
from tests.benchmarks.experiments import Experiment, run_together
from tests.benchmarks.goals import RUNS, SEED
from tests.benchmarks.recorded import measured, record, rounded
from tests.benchmarks.throughput import REFERENCE_PYTHON
from tests.benchmarks.verdicts import HOLDS, Compared, Outcome, compared_table

WORKER = Path(__file__).with_name("stable_baselines3_training.py")
OUTDIR = Path("results/beside-stable-baselines3")
PICTURES = Path(".readme")
TOGETHER = 2
"""So many of their trainings run side by side, one thread each."""
POINTS = 200
"""Of a curve in a picture, each the mean return of what ended in its part of the training."""


@dataclass(frozen=True)
class Pair:
    """A training of ours and its like of theirs. defaults: theirs has its own settings, not ours."""

    algorithm: str
    game: str
    steps: int
    given: dict[str, str] = field(default_factory=dict)
    defaults: bool = False

    @property
    def name(self) -> str:
        """`sac-hopper`, `fallback-hopper`."""
        return f"{'fallback' if self.defaults else self.algorithm}-{self.game}"

    @property
    def title(self) -> str:
        """Of its panel: `SAC, hopper`, and `hopper` where theirs has its own settings."""
        return self.game if self.defaults else f"{self.algorithm.upper()}, {self.game}"

    @property
    def parameters(self) -> dict[str, str]:
        """Ours."""
        own = {"game": self.game, "steps": str(self.steps), "seed": str(SEED)}
        return own | {"evaluation_episodes": "20", "video_episodes": "0"} | self.given

    @property
    def resolved(self) -> Resolved:
        """What ours comes to."""
        return resolve(self.algorithm, self.parameters)

    def ours(self, outdir: Path) -> Experiment:
        """Our experiment."""
        return Experiment(
            algorithm=self.algorithm,
            directory=outdir / "ours" / self.name,
            given=self.parameters,
            runs=RUNS,
            evaluations=outdir / "evaluations",
        )

    def theirs(self, outdir: Path, run: int) -> Path:
        """Where a run of theirs is kept."""
        return outdir / "stable-baselines3" / f"{self.name}-{run}" / "result.json"


SHORTENED = {"exploration_fraction": "0.1", "train_every": "4"}
"""For DQN on MinAtar, whose preset trains 5,000,000 steps: 100,000 steps of exploration as there, but an
update only after every fourth step, as in Mnih et al. 2015. With one after every step, the two pairs
would take 16 hours of a processor.
"""
PAIRS = (
    Pair("ppo", "inverted-pendulum", 50_000),
    *(Pair("ppo", game, 1_000_000) for game in ("hopper", "halfcheetah", "walker2d")),
    *(Pair("ppo", f"minatar-{game}", 1_000_000) for game in ("breakout", "freeway")),
    *(
        Pair("ppo", game, 300_000, defaults=True)
        for game in ("hopper", "halfcheetah", "walker2d", "reacher", "inverted-double-pendulum")
    ),
    *(
        Pair(algorithm, game, 100_000)
        for algorithm in ("td3", "sac")
        for game in ("hopper", "halfcheetah")
    ),
    *(Pair(algorithm, "inverted-pendulum", 50_000) for algorithm in ("td3", "sac")),
    *(Pair("dqn", f"minatar-{game}", 1_000_000, SHORTENED) for game in ("breakout", "freeway")),
)
"""The presets of MuJoCo's games for ppo have the settings of `fallback.yaml`, as a test says."""
SAME = "return of training episodes, with the same settings"
OWN = "return of training episodes: ours with the settings of fallback.yaml, theirs with its own"
FIGURES = {
    "beside-mujoco": (SAME, ("ppo-hopper", "ppo-halfcheetah", "ppo-walker2d")),
    "beside-fallback": (OWN, tuple(pair.name for pair in PAIRS if pair.defaults)),
    "beside-replayed": (
        SAME,
        tuple(f"{one}-{game}" for one in ("sac", "td3") for game in ("hopper", "halfcheetah")),
    ),
    "beside-minatar": (
        SAME,
        tuple(
            f"{one}-minatar-{game}" for one in ("ppo", "dqn") for game in ("breakout", "freeway")
        ),
    ),
}
"""The pictures of the documentation, each with its subtitle and the pairs of its panels."""
TITLE = "Beside Stable-Baselines3"
NOTE = "Diamonds: the final policies, 20 episodes of each run."


def main(arguments: Sequence[str] | None = None) -> int:
    """Train what is missing, print the table, and write what was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    names = [pair.name for pair in PAIRS]
    parser.add_argument("--only", nargs="+", choices=names, metavar="PAIR", default=names)
    parser.add_argument("--outdir", type=Path, default=OUTDIR)
    parser.add_argument(
        "--record", type=Path, help="write what was measured as JSON there (default: the outdir)"
    )
    options = parser.parse_args(arguments)
    recorded = options.record or options.outdir
    pairs = [pair for pair in PAIRS if pair.name in options.only]
    for pair in pairs:
        if pair.ours(options.outdir).run():
            train_theirs(pair, options.outdir)
        keep(pair, options.outdir, recorded)
    rows = [compared(pair, options.outdir) for pair in pairs]
    print("", *compared_table(rows), sep="\n")
    draw(recorded)
    return int({row.verdict for row in rows} != {HOLDS})


def train_theirs(pair: Pair, outdir: Path) -> None:
    """All runs, some side by side; the worker looks itself what there is."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    commands = []
    for run in range(RUNS):
        folder = pair.theirs(outdir, run).parent
        commands.append(
            [str(REFERENCE_PYTHON), str(WORKER), str(folder), json.dumps(asked(pair, run))]
        )
    for first in range(0, RUNS, TOGETHER):
        some = commands[first : first + TOGETHER]
        print(*(" ".join(("$", *words)) for words in some), sep="\n", flush=True)
        run_together(some, environment)


def asked(pair: Pair, run: int) -> dict[str, Any]:
    """What `stable_baselines3_training.py` is asked for: our settings in their words."""
    resolved = pair.resolved
    environment = resolved.environment
    normalised = None
    if not pair.defaults and environment.normalise_observations:
        normalised = {"norm_obs": True, "norm_reward": environment.normalise_rewards}
    small_images = resolved.game.id.startswith("MinAtar/")
    request: dict[str, Any] = {
        "algorithm": pair.algorithm.upper(),
        "game": resolved.game.id,
        "environments": 1 if pair.defaults else environment.count,
        "normalised": normalised,
        "arguments": {},
        "policy": {},
        "noise": None,
        "falling": [],
        "small_images": small_images,
        "steps": resolved.total_steps,
        "seed": SEED + run,
        "episodes": resolved.experiment.evaluation_episodes,
        "deterministic": resolved.evaluation_policy == "greedy",
    }
    if not pair.defaults:
        request |= TRANSLATED[pair.algorithm](resolved)
        if small_images:
            request["policy"]["net_arch"] = []
    return request


def of_ppo(resolved: Resolved) -> dict[str, Any]:
    """Our value loss has a half that theirs has not."""
    ours: Any = resolved.hyperparameters
    batch = resolved.environment.count * ours.rollout_length
    sizes = list(ours.hidden_sizes)
    return {
        "arguments": {
            "learning_rate": ours.learning_rate,
            "n_steps": ours.rollout_length,
            "batch_size": batch // ours.minibatches,
            "n_epochs": ours.update_epochs,
            "gamma": ours.discount,
            "gae_lambda": ours.gae_lambda,
            "clip_range": ours.clip,
            "ent_coef": ours.entropy_coefficient,
            "vf_coef": ours.value_coefficient / 2,
            "max_grad_norm": ours.max_gradient_norm,
        },
        "falling": ["learning_rate"] if ours.anneal_learning_rate else [],
        "policy": {
            "net_arch": {"pi": sizes, "vf": sizes},
            "activation_fn": "Tanh",
            "log_std_init": ours.log_std_init,
        },
    }


def of_replay(resolved: Resolved) -> dict[str, Any]:
    """What DQN, SAC and TD3 have in common."""
    ours: Any = resolved.hyperparameters
    return {
        "learning_rate": ours.learning_rate,
        "buffer_size": ours.replay_size,
        "learning_starts": ours.learning_starts,
        "batch_size": ours.batch_size,
        "gamma": ours.discount,
        "train_freq": ours.train_every,
        "gradient_steps": ours.updates,
    }


def of_sac(resolved: Resolved) -> dict[str, Any]:
    ours: Any = resolved.hyperparameters
    return {
        "arguments": of_replay(resolved) | {"tau": ours.target_rate},
        "policy": {"net_arch": list(ours.hidden_sizes)},
    }


def of_td3(resolved: Resolved) -> dict[str, Any]:
    ours: Any = resolved.hyperparameters
    smoothing = {
        "policy_delay": ours.policy_delay,
        "target_policy_noise": ours.target_noise,
        "target_noise_clip": ours.target_noise_clip,
    }
    request = of_sac(resolved)
    request["arguments"] |= smoothing
    return request | {"noise": ours.exploration_noise}


def of_dqn(resolved: Resolved) -> dict[str, Any]:
    ours: Any = resolved.hyperparameters
    exploration = {
        "target_update_interval": ours.target_every,
        "exploration_fraction": ours.exploration_fraction,
        "exploration_final_eps": ours.final_epsilon,
        "max_grad_norm": ours.max_gradient_norm,
    }
    return {
        "arguments": of_replay(resolved) | exploration,
        "policy": {"net_arch": list(ours.hidden_sizes)},
    }


TRANSLATED = {"ppo": of_ppo, "sac": of_sac, "td3": of_td3, "dqn": of_dqn}


def compared(pair: Pair, outdir: Path) -> Compared:
    """A row of the table."""
    scores, missing = [], []
    for run in range(RUNS):
        result = read(pair, outdir, run)
        if result is None:
            missing.append(f"Stable-Baselines3, run {run}: not trained with these settings")
        else:
            scores.append(fmean(result["returns"]))
    theirs = Outcome(
        wanted=RUNS,
        scores=tuple(scores),
        steps=pair.resolved.total_steps,
        missing=tuple(missing),
    )
    return Compared(
        game=pair.name,
        policy=pair.resolved.evaluation_policy,
        ours=pair.ours(outdir).outcome(),
        theirs=theirs,
    )


def read(pair: Pair, outdir: Path, run: int) -> dict[str, Any] | None:
    """A run of theirs; None if there is none of these settings."""
    path = pair.theirs(outdir, run)
    if not path.exists():
        return None
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return result if result["asked"] == asked(pair, run) else None


def keep(pair: Pair, outdir: Path, folder: Path) -> None:
    """Write a complete pair into the folder: a row of the documentation's table, and the curves of its
    picture, for which the trainings themselves need not be kept.
    """
    row = compared(pair, outdir)
    if not (row.ours.is_complete and row.theirs.is_complete):
        return
    content = {
        "algorithm": pair.algorithm,
        "game": pair.game,
        "settings": "Stable-Baselines3's own" if pair.defaults else "the same",
        "steps": row.ours.steps,
        "ours": rounded(row.ours.scores),
        "reference": rounded(row.theirs.scores),
        "measured": measured(" ".join(pair.ours(outdir).commits())),
    }
    record(folder / "beside-stable-baselines3.json", [content], "algorithm", "game", "settings")
    results = [read(pair, outdir, run) for run in range(RUNS)]
    ended = [np.array(one["training"]) for one in results if one]
    ours = Learnt(
        algorithm="ours",
        curves=[
            in_parts(one.steps, one.values, row.ours.steps) for one in pair.ours(outdir).curves()
        ],
        scores=row.ours.scores,
    )
    theirs = Learnt(
        algorithm="Stable-Baselines3",
        curves=[in_parts(one[:, 0], one[:, 1], row.ours.steps) for one in ended],
        scores=row.theirs.scores,
    )
    write_learnt(curves_file(folder, pair.name), [ours, theirs])


def draw(folder: Path) -> None:
    """The figures all of whose pairs were recorded in the folder."""
    for name, (subtitle, pairs) in FIGURES.items():
        files = {pair.title: curves_file(folder, pair.name) for pair in PAIRS if pair.name in pairs}
        if not all(path.exists() for path in files.values()):
            continue
        stem = PICTURES / name
        with look():
            panels = {title: read_learnt(path) for title, path in files.items()}
            write(side_by_side(TITLE, subtitle, panels, NOTE), stem)
        print(f"Figure: {stem}.png")


def curves_file(folder: Path, pair: str) -> Path:
    """Where the curves of a pair of this name are recorded."""
    return folder / "curves" / f"{pair}.json"


def in_parts(steps: ArrayLike, values: ArrayLike, total: int) -> Curve:
    """A training of `total` steps in at most `POINTS` points: the mean value in each part of it.

    steps, values: [T], of rows or of episodes. A part in which nothing ended has no point.
    """
    at, heights = np.asarray(steps, np.float64), np.asarray(values, np.float64)
    part = np.minimum((at / total * POINTS).astype(np.int64), POINTS - 1)
    parts = np.unique(part)
    return Curve(
        steps=((parts + 1) * total / POINTS).astype(np.int64),
        values=np.array([heights[part == one].mean() for one in parts]),
    )


if __name__ == "__main__":
    sys.exit(main())
