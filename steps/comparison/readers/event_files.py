"""TensorBoard's event files: of CleanRL, Stable-Baselines3, RLlib, or with a tag that a person gives.

A folder with event files is a run. CleanRL's folders say the label and the game. Other names can mean
anything, so label and game have to be said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from config.errors import BadInput
from steps.comparison.entries import Entry
from steps.comparison.readers.event_records import events
from steps.comparison.readers.known_metrics import (
    BY_NAME,
    RLLIB,
    Metric,
    Series,
    chosen,
    entry_of_runs,
    run_of,
)
from steps.comparison.readers.run_names import (
    folders,
    game_of,
    of_cleanrl,
    run_name,
)
from steps.comparison.readers.source import Reader, Source

if TYPE_CHECKING:
    from tensorboard.compat.proto.summary_pb2 import Summary

MADE_BY = "unknown, by its event files"
EVENT_FILE = "tfevents"
MOST_TAGS = 10_000
STEPS_OF_RLLIB = (
    "ray/tune/num_env_steps_sampled_lifetime",
    "ray/tune/env_runners/num_env_steps_sampled_lifetime",
    "ray/tune/timesteps_total",
)
"""The environment steps of RLlib, whose events are numbered by iteration in its newer versions."""


@dataclass
class Tag:
    """The events of one tag, in their order."""

    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)


Tags = dict[str, Tag]


def recognises(path: Path) -> bool:
    """Whether there is an event file here or below."""
    if path.is_dir():
        return any(True for _ in folders(path, _is_event_file))
    return path.is_file() and _is_event_file(path.name)


def read(source: Source) -> list[Entry]:
    """An entry for each label and game."""
    groups: dict[tuple[str, str], list[tuple[str, Path, list[Path]]]] = {}
    for folder, files in _files(source.path):
        named = of_cleanrl(folder.absolute())
        label = source.needed("label", named.label, folder)
        game = game_of(source, named.game, folder)
        listed = (run_name(folder, source.path), folder, files)
        groups.setdefault((label, game), []).append(listed)
    return [
        _entry(source, label, game, {name: _tags(files, source) for name, _, files in runs})
        for (label, game), runs in groups.items()
    ]


READER = Reader(
    title="event files of TensorBoard (CleanRL, Stable-Baselines3, RLlib)",
    form="a folder with events.out.tfevents.*, or folders below it",
    options=("label", "game", "frames", "tag", "kind"),
    recognises=recognises,
    read=read,
)


def _is_event_file(name: str) -> bool:
    return EVENT_FILE in name and not name.endswith(".tmp")


def _files(path: Path) -> list[tuple[Path, list[Path]]]:
    if not path.is_dir():
        return [(path.parent, [path])]
    found = folders(path, _is_event_file)
    # TensorBoard reads the files of a folder in the order of their names, which begin with a time.
    return [(folder, sorted(folder / name for name in names)) for folder, names in found]


def _tags(files: Sequence[Path], source: Source) -> Tags:
    """The values of the tags that may be wanted; of all others only the names."""
    wanted = {*BY_NAME, *STEPS_OF_RLLIB, source.options.get("tag", "")}
    tags: Tags = {}
    for path in files:
        for event in events(path, wanted.__contains__):
            for one in event.summary.value:
                number = _number(one)
                if number is None:
                    continue
                if one.tag not in tags and len(tags) >= MOST_TAGS:
                    raise BadInput(f"{path} has more than {MOST_TAGS} tags")
                tag = tags.setdefault(one.tag, Tag())
                if one.tag in wanted:
                    tag.steps.append(event.step)
                    tag.values.append(number)
                    tag.times_s.append(event.wall_time)
    return tags


def _number(one: Summary.Value) -> float | None:
    """The number in a summary, as older and newer writers put it there; None for anything else."""
    from tensorboard.util.tensor_util import make_ndarray

    if one.HasField("simple_value"):
        return float(one.simple_value)
    plugin = one.metadata.plugin_data.plugin_name
    if not one.HasField("tensor") or plugin not in ("scalars", ""):
        return None
    try:
        array = make_ndarray(one.tensor)
        return float(array.item()) if array.size == 1 and array.dtype.kind in "fiu" else None
    except (TypeError, ValueError):
        return None


def _entry(source: Source, label: str, game: str, runs: Mapping[str, Tags]) -> Entry:
    available = sorted({name for tags in runs.values() for name in tags})
    if not available:
        raise BadInput(
            f"the event files of {label} on {game} in {source.path} have no values, {', '.join(runs)}: "
            "leave them out"
        )
    choice = chosen(source, "tag", available)
    used = [one for one in (choice.score, choice.training, choice.policy) if one is not None]
    compared = [
        run_of(
            name, {one.name: _series(one, tags, source) for one in used if one.name in tags}, choice
        )
        for name, tags in runs.items()
    ]
    return entry_of_runs(source, label, game, compared, choice, MADE_BY)


def _series(metric: Metric, tags: Tags, source: Source) -> Series:
    tag = tags[metric.name]
    series = Series(
        steps=np.array(tag.steps, np.int64),
        values=np.array(tag.values, np.float64),
        times_s=np.array(tag.times_s, np.float64),
    )
    return series if metric.made_by != RLLIB else _by_step(series, tags, source)


def _by_step(series: Series, tags: Tags, source: Source) -> Series:
    """The same with environment steps in place of RLlib's iterations. Raises `BadInput` if they are
    not there.
    """
    counter = next((tags[name] for name in STEPS_OF_RLLIB if name in tags), None)
    if counter is None:
        raise BadInput(
            f"{source.path} has none of the tags that count RLlib's environment steps: "
            f"{', '.join(STEPS_OF_RLLIB)}"
        )
    steps_at = dict(zip(counter.steps, counter.values, strict=True))
    kept = [at for at, step in enumerate(series.steps.tolist()) if step in steps_at]
    steps = [int(steps_at[step]) for step in series.steps[kept].tolist()]
    return Series(
        steps=np.array(steps, np.int64),
        values=series.values[kept],
        times_s=series.times_s[kept],
    )
