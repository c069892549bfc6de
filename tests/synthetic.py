"""Experiment directories as the steps leave them, without any training: for the tests of what reads
them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from config import pipeline
from config.measures import RETURN
from config.resolve import resolve
from config.resolved import Resolved
from steps.directory.experiment import ExperimentRecord, write_experiment
from steps.directory.files import write_atomically
from steps.directory.layout import ExperimentDirectory, RunDirectory
from steps.directory.status import Status, read_status, write_status
from steps.directory.tables import format_table

METRICS = ("policy_loss", "value_loss")
EPOCHS = 196


def experiment(
    root: Path,
    states: Sequence[str] = ("complete",) * 3,
    *,
    prepared: str = "succeeded",
    **given: Any,
) -> ExperimentDirectory:
    """A directory with one run per state: complete, skipped, paused, unfinished, failed, unevaluated or
    absent."""
    parameters = {
        "game": "cartpole",
        "runs": str(len(states)),
        "epochs": str(EPOCHS),
        "evaluation_episodes": "20",
    }
    parameters |= {name: str(value) for name, value in given.items()} | {"outdir": str(root)}
    resolved = resolve("ppo", parameters)
    directory = ExperimentDirectory(root)
    record = ExperimentRecord(
        resolved=resolved,
        identity=resolved.identity(),
        identity_hash=resolved.identity_hash,
        versions={"python": "3.11.2", "torch": "2.15.0", "numpy": "2.4.0", "gymnasium": "1.4.0"},
        source={"commit": "0123456789abcdef0123456789abcdef01234567", "changed": False},
        image=None,
        started="2026-11-21T12:00:00+00:00",
        workflow="ppo-cartpole-7x2kq",
    )
    write_experiment(directory, record)
    status(directory.status / "prepare.json", state=prepared, duration_s=1.2)
    for index, state in enumerate(states):
        run(directory.run(index), resolved, state)
    return directory


def run(directory: RunDirectory, resolved: Resolved, state: str) -> None:
    """One run in one of the states."""
    if state == "absent":
        return
    generator = np.random.default_rng(directory.index)
    share = {"paused": 0.5, "unfinished": 0.5, "failed": 0.3}.get(state, 1.0)
    rows = max(1, int(resolved.epochs * share))
    write_atomically(directory.train_csv, training_table(generator, rows, resolved))
    write_atomically(directory.resources_csv, resources_table(generator, resolved))
    directory.checkpoint(rows * resolved.steps_per_epoch).mkdir(parents=True)
    write_atomically(directory.logs / "train.log", f"epoch {rows} of {resolved.epochs}\n")
    reached = float(np.round((360 if state == "skipped" else 470) + 20 * generator.random(), 3))
    details = {
        "training_return": reached,
        "step": rows * resolved.steps_per_epoch,
        "epoch": rows,
    }
    details |= {
        "device": "cpu",
        "precision": "fp32",
        "steps_per_second": 2800 + 17.5 * directory.index,
    }
    endings = {
        "paused": {"state": "paused", "reason": f"paused at epoch {rows} of {resolved.epochs}"},
        "unfinished": {
            "state": "preempted",
            "exit_code": 75,
            "reason": f"preempted at step {rows * resolved.steps_per_epoch}",
        },
        "failed": {"state": "failed", "exit_code": 3, "reason": "non-finite loss at epoch 58"},
    }
    status(
        directory.status / "train.json",
        **({"details": details, "duration_s": 18.25 + directory.index} | endings.get(state, {})),
    )
    if state == "complete":
        returns = np.minimum(
            500, np.round(generator.normal(492, 14, resolved.experiment.evaluation_episodes))
        )
        evaluated(directory, returns.tolist())


def evaluated(directory: RunDirectory, returns: Sequence[float]) -> None:
    """An evaluation with these returns."""
    lengths = [int(abs(value)) if math.isfinite(value) else 1 for value in returns]
    rows = [
        {"episode": i, "seed": 1000 + i, "return": float(value), "length": lengths[i]}
        for i, value in enumerate(returns)
    ]
    write_atomically(
        directory.evaluated(RETURN), format_table(("episode", "seed", "return", "length"), rows)
    )
    status(
        directory.status / "evaluate.json",
        details={"return_mean": math.fsum(returns) / len(returns)},
        duration_s=2.5,
    )


def succeed(place: ExperimentDirectory | RunDirectory, scope: pipeline.Scope) -> None:
    """Every step of a scope that has not ended here has succeeded."""
    for name in pipeline.names(scope):
        path = place.status / f"{name}.json"
        if not path.exists():
            status(path, duration_s=1.0)


class Idle:
    """A policy that always takes action 0: CartPole falls over within a dozen steps, the episodes
    of two seeds differ."""

    def seed(self, seeds: Sequence[int]) -> None:
        """Nothing is drawn."""

    def act(self, observations: np.ndarray, *, sample: bool) -> np.ndarray:
        """Observations [N, ...] -> actions [N]."""
        return np.zeros(len(observations), np.int64)


def played(directory: RunDirectory, resolved: Resolved) -> list[Any]:
    """A real evaluation of a policy that does nothing, with the actions of the episodes that are
    filmed."""
    from agents.evaluation.episodes import evaluate
    from steps.directory.arrays import write_actions

    episodes = list(
        evaluate(Idle(), resolved, directory.index, resolved.experiment.evaluation_episodes, False)
    )
    rows = [
        {"episode": one.episode, "seed": one.seed, "return": one.return_, "length": one.length}
        for one in episodes
    ]
    write_actions(
        directory.evaluation_actions,
        [one.actions for one in episodes[: resolved.experiment.video_episodes]],
    )
    write_atomically(
        directory.evaluated(RETURN), format_table(("episode", "seed", "return", "length"), rows)
    )
    status(
        directory.status / "evaluate.json",
        details={"return_mean": math.fsum(one.return_ for one in episodes) / len(episodes)},
    )
    return episodes


def status(path: Path, *, state: str = "succeeded", exit_code: int = 0, **fields: Any) -> None:
    """A status file of a task that ended."""
    written = {
        "started": "2026-11-21T12:00:01+00:00",
        "ended": "2026-11-21T12:00:21+00:00",
        **fields,
    }
    write_status(path, Status(task=path.stem, state=state, exit_code=exit_code, **written))  # type: ignore[arg-type]


def training_table(generator: np.random.Generator, rows: int, resolved: Resolved) -> str:
    """A learning curve with rows in which no episode ended."""
    scale = 6_000 + 6_000 * generator.random()

    def row(epoch: int) -> dict[str, Any]:
        step = epoch * resolved.steps_per_epoch - int(generator.integers(0, 3))
        centre = 20 + 480 * (1 - math.exp(-step / scale))
        episodes = int(generator.integers(0, 5)) if epoch > 1 else 0
        value = min(500.0, centre * generator.uniform(0.8, 1.1)) if episodes else None
        fixed = {
            "epoch": epoch,
            "step": step,
            "frame": step * resolved.game.frames_per_step,
            "episodes": episodes,
            "return_mean": value,
        }
        spread = {
            name: value and value * factor
            for name, factor in (("return_min", 0.8), ("return_max", 1.1), ("length_mean", 1.0))
        }
        return (
            fixed
            | spread
            | {name: float(generator.normal() * math.exp(-step / 3e4)) for name in METRICS}
        )

    content = [row(epoch) for epoch in range(1, rows + 1)]
    return format_table(list(content[0]), content)


def resources_table(generator: np.random.Generator, resolved: Resolved) -> str:
    """Seconds with a steady speed, and no GPU."""
    rows = [
        {
            "wall_s": 2.0 * i,
            "step": 5600 * i,
            "steps_per_second": float(2800 + 60 * generator.normal()),
            "cpu_percent": float(99 + generator.normal()),
            "memory_bytes": int(6e8 + 1e6 * i),
            "gpu_percent": None,
            "gpu_memory_bytes": None,
        }
        for i in range(1, 10)
    ]
    return format_table(list(rows[0]), rows)


def frames(count: int = 60, height: int = 120, width: int = 180) -> Iterator[np.ndarray]:
    """A square that moves: uint8 [H, W, 3]."""
    for i in range(count):
        frame = np.full((height, width, 3), 245, np.uint8)
        frame[40:80, (3 * i) % (width - 40) : (3 * i) % (width - 40) + 40] = (0, 114, 178)
        yield frame


def finish(directory: ExperimentDirectory, *, draw: bool = True, films: bool = False) -> None:
    """Make the averages with the real step; the plots, too, unless not drawn; with films, a real
    mp4 for each complete run."""
    from steps import average, plot_average, plot_evaluation, plot_training

    outdir = f"--outdir={directory.root}"
    for index in range(resolved_of(directory).experiment.runs):
        one = directory.run(index)
        train = read_status(one.status / "train.json")
        if train is None or train.state != "succeeded":
            continue
        _draw(draw, one.status / "plot-training.json", plot_training.main, outdir, f"--run={index}")
        if one.evaluated(RETURN).is_file():
            _draw(
                draw,
                one.status / "plot-evaluation.json",
                plot_evaluation.main,
                outdir,
                f"--run={index}",
            )
            status(
                one.status / "play.json",
                duration_s=3.5,
                details={"videos": [_film(one)] if films else []},
            )
            succeed(one, "run")
    assert average.main([outdir]) == 0
    _draw(draw, directory.status / "plot-average.json", plot_average.main, outdir)
    succeed(directory, "experiment")


def _draw(draw: bool, path: Path, step: Callable[..., int], *arguments: str) -> None:
    if draw:
        assert step(list(arguments)) == 0
    else:
        status(path, duration_s=0.5)


def _film(run: RunDirectory) -> dict[str, Any]:
    from steps.films.mp4 import write_video

    run.videos.mkdir()
    write_video(run.videos / "episode-0.mp4", frames(), 30)
    return {"file": "episode-0.mp4", "frames": 60, "seconds": 2.0, "cut": False}


def writer_that_loses(count: int) -> type[Any]:
    """The class of a writer whose first frames never reach the encoder, without an error: as with a
    full pipe, or an encoder that skips equal pictures.
    """
    from moviepy.video.io import ffmpeg_writer

    class Losing(ffmpeg_writer.FFMPEG_VideoWriter):
        left = count

        def write_frame(self, frame: np.ndarray) -> None:
            if self.left:
                self.left -= 1
                return
            super().write_frame(frame)

    return Losing


def resolved_of(directory: ExperimentDirectory) -> Resolved:
    """The parameters in its experiment.yaml."""
    from steps.directory.experiment import read_experiment

    return read_experiment(directory).resolved
