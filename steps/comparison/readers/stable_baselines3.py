"""Logs of Stable-Baselines3: `monitor.csv` of its Monitor, `evaluations.npz` of its EvalCallback.

A folder with such files is a run. rl-baselines3-zoo puts them into `logs/<algorithm>/<game>_<number>/`,
which says the label; the game also stands in the first line of monitor.csv. Source: rl-baselines3-zoo
2.9, `rl_zoo3/exp_manager.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from config.errors import BadInput
from steps.comparison.entries import EMPTY, ComparedRun, Entry
from steps.comparison.readers.known_metrics import (
    RECENT_EPISODES,
    UNUSABLE,
    averaged_curve,
    mean_score,
    spoken_range,
)
from steps.comparison.readers.monitor_files import (
    EVALUATIONS,
    MONITOR,
    Episodes,
    Evaluations,
    merged,
    read_evaluations,
    read_monitor,
)
from steps.comparison.readers.run_names import (
    NUMBERED,
    Named,
    folders,
    frames_of,
    game_of,
    is_atari,
    run_name,
)
from steps.comparison.readers.source import Reader, Source
from steps.statistics.curves import Curve
from steps.statistics.scores import Floats

MADE_BY = "Stable-Baselines3"
OF_THE_ZOO = (
    "a2c", "ars", "crossq", "ddpg", "dqn", "her", "ppo", "ppo_lstm", "ppo_mask", "qrdqn", "sac", "td3",
    "tqc", "trpo",
)  # fmt: skip
"""The algorithms that rl-baselines3-zoo names its folders after."""


@dataclass(frozen=True, kw_only=True)
class Logs:
    """What a run has left behind. game: by its monitor files, else empty."""

    folder: Path
    game: str
    episodes: Episodes | None
    evaluations: Evaluations | None


def recognises(path: Path) -> bool:
    """Whether there is such a file here or below."""
    if path.is_dir():
        return any(True for _ in folders(path, _is_log))
    return path.is_file() and _is_log(path.name)


def read(source: Source) -> list[Entry]:
    """An entry for each label and game."""
    groups: dict[tuple[str, str], list[Logs]] = {}
    for logs in map(_logs, _files(source.path).items()):
        named = of_zoo(logs.folder)
        label = source.needed("label", named.label, logs.folder)
        game = game_of(source, logs.game or named.game, logs.folder)
        groups.setdefault((label, game), []).append(logs)
    return [_entry(source, label, game, runs) for (label, game), runs in groups.items()]


READER = Reader(
    title="logs of Stable-Baselines3 and rl-baselines3-zoo",
    form=f"a folder with {MONITOR} or {EVALUATIONS}, or folders below it",
    options=("label", "game", "frames"),
    recognises=recognises,
    read=read,
)


def of_zoo(folder: Path) -> Named:
    """The label and the game by a folder such as `ppo/CartPole-v1_2` or `ppo/ALE-Pong-v5_1`."""
    match = NUMBERED.fullmatch(folder.absolute().name)
    algorithm = folder.absolute().parent.name
    if match is None or algorithm not in OF_THE_ZOO:
        return Named("", "")
    game = match["name"]
    return Named(algorithm, f"ALE/{game[4:]}" if game.startswith("ALE-") else game)


def _is_log(name: str) -> bool:
    return name.endswith(MONITOR) or name == EVALUATIONS


def _files(path: Path) -> dict[Path, list[Path]]:
    """Folder -> its files. Evaluations in a folder directly inside of that of the monitors are of the
    same run. Raises `BadInput` for other runs inside of a run, which would be counted twice.
    """
    if not path.is_dir():
        return {path.parent: [path]}
    found: dict[Path, list[Path]] = {}
    for folder, names in folders(path, _is_log):
        outer = next((parent for parent in folder.parents if parent in found), None)
        if outer is None:
            found[folder] = [folder / name for name in names]
        elif (
            outer == folder.parent and names == [EVALUATIONS] and not _has_evaluations(found[outer])
        ):
            found[outer].append(folder / EVALUATIONS)
        else:
            raise BadInput(
                f"{folder} lies inside of {outer}, which is a run itself: name one of them"
            )
    return found


def _has_evaluations(files: Sequence[Path]) -> bool:
    return any(path.name == EVALUATIONS for path in files)


def _logs(item: tuple[Path, list[Path]]) -> Logs:
    folder, files = item
    monitors = [read_monitor(path) for path in files if path.name != EVALUATIONS]
    evaluated = [read_evaluations(path) for path in files if path.name == EVALUATIONS]
    named = sorted({game for game, _ in monitors if game})
    if len(named) > 1:
        raise BadInput(f"{folder} has episodes of several games: {', '.join(named)}")
    return Logs(
        folder=folder,
        game=named[0] if named else "",
        episodes=merged([episodes for _, episodes in monitors]) if monitors else None,
        evaluations=evaluated[0] if evaluated else None,
    )


def _entry(source: Source, label: str, game: str, runs: Sequence[Logs]) -> Entry:
    frames = frames_of(source, game)
    evaluated = any(one.evaluations is not None for one in runs)
    compared = [_compared(one, source.path, game, frames, evaluated) for one in runs]
    counts = spoken_range(sorted({one.episodes for one in compared if one.is_used}))
    training = f"last {counts or RECENT_EPISODES} training episodes"
    return Entry(
        label=label,
        game=game,
        runs=tuple(compared),
        directory=source.path,
        made_by=MADE_BY,
        frames=frames,
        evaluation=f"{counts} episodes of the last evaluation".lstrip() if evaluated else training,
        in_training=not evaluated,
    )


def _compared(logs: Logs, root: Path, game: str, frames: int, evaluated: bool) -> ComparedRun:
    """evaluated: whether other runs of the entry have evaluations, which then are the scores."""
    training, times, policy = EMPTY, EMPTY, EMPTY
    if logs.episodes is not None:
        training, times = _training(logs.episodes, game, frames)
    if logs.evaluations is not None:
        policy = averaged_curve(logs.evaluations.timesteps, logs.evaluations.results.mean(axis=1))
    counted = _counted(logs, evaluated)
    score = mean_score(counted)
    left_out = ""
    if not len(counted):
        left_out = f"it has no {EVALUATIONS}" if evaluated else "no episode ended"
    elif score is None:
        left_out = UNUSABLE
    return ComparedRun(
        name=run_name(logs.folder, root),
        score=score,
        episodes=len(counted),
        steps=max((int(one.steps[-1]) for one in (training, policy) if len(one)), default=0),
        training=training,
        times=times,
        policy=policy,
        left_out=left_out,
    )


def _counted(logs: Logs, evaluated: bool) -> Floats:
    """The returns of which the score is the mean."""
    if evaluated:
        return np.empty(0) if logs.evaluations is None else logs.evaluations.results[-1]
    return np.empty(0) if logs.episodes is None else logs.episodes.returns[-RECENT_EPISODES:]


def _training(episodes: Episodes, game: str, frames: int) -> tuple[Curve, Curve]:
    """Returns against environment steps, and against milliseconds."""
    counted = np.cumsum(episodes.lengths) * _frames_counted(game, frames) / frames
    moments = np.round(1000 * (episodes.times_s - episodes.started_s))
    if not len(counted):
        return EMPTY, EMPTY
    returns = episodes.returns
    return (
        averaged_curve(counted.astype(np.int64), returns),
        averaged_curve(moments.astype(np.int64), returns),
    )


def _frames_counted(game: str, frames: int) -> int:
    """Frames in what a Monitor counts as one step. It stands inside of the wrapper that skips frames,
    so it counts the steps of the game as gymnasium makes it.
    """
    if not is_atari(game):
        return frames
    if "NoFrameskip" in game:
        return 1
    return frames if game.endswith(("-v0", "-v4")) and "Deterministic" not in game else 4
