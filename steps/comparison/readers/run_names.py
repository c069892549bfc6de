"""What names say: games under the ids of other programs, runs by their folders, and folders in a tree."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from config.errors import BadInput, printable
from config.games import OLD_ATARI_ID, find_game, games
from steps.comparison.readers.source import Source
from steps.directory.layout import ExperimentDirectory

CLEANRL = re.compile(r"(?P<game>.+?)__(?P<label>.+)__(?P<seed>\d+)__(?P<time>\d+)")
"""`run_name` in each of CleanRL's scripts."""
NUMBERED = re.compile(r"(?P<name>.+)_(?P<number>\d+)")
"""rl-baselines3-zoo numbers the folders of a game, Stable-Baselines3 those of an algorithm."""
EXPERIMENT = ExperimentDirectory(Path()).experiment_yaml.name
DEEPEST = 5
MOST_ENTRIES = 200_000


class Named(NamedTuple):
    """What a name says; empty where it says nothing."""

    label: str
    game: str


def of_cleanrl(path: Path) -> Named:
    """The label and the game of a run of CleanRL, by its folder: `Hopper-v4__ppo__1__1700000000`, or
    below `ALE/`, because it uses the game's id as a path.
    """
    match = CLEANRL.fullmatch(path.name)
    if match is None:
        return Named("", "")
    space = "ALE/" if path.parent.name == "ALE" else ""
    return Named(match["label"], f"{space}{match['game']}")


def short_name(game: str) -> str:
    """Our short name for an id; other ids, other versions among them, stay as they are."""
    return _short_names().get(game, game)


def _short_names() -> dict[str, str]:
    return {game.id: name for name, game in games().items()}


def game_of(source: Source, found: str, where: object) -> str:
    """The game that was said, or else was found. Raises `BadInput` if it was not found, and for a name
    that is neither a short one nor an id.
    """
    said = source.options.get("game")
    if said is None:
        return short_name(source.needed("game", found, where))
    return said if OLD_ATARI_ID.fullmatch(said) else find_game(said).name


def is_atari(game: str) -> bool:
    """Whether Atari's emulator plays this game, given by a short name or an id of any version."""
    if game in games():
        return games()[game].is_atari
    old = OLD_ATARI_ID.fullmatch(game.removeprefix("ALE/").replace("-v5", "-v4"))
    return old is not None and f"ALE/{old[1]}-v5" in _short_names()


def frames_of(source: Source, game: str) -> int:
    """Frames of the emulator in one step of the agent: as was said; 1 if the game has no emulator.
    Raises `BadInput` for an Atari game of which nothing was said.
    """
    said = source.options.get("frames")
    if said is None and is_atari(game):
        raise BadInput(
            f"how many frames of {game} one step of {source.path} is cannot be seen: say it, frames=4 "
            "for most trainings of Stable-Baselines3 and CleanRL, frames=1 if none is skipped"
        )
    return int(said or "1")


def folders(root: Path, holds: Callable[[str], bool]) -> Iterator[tuple[Path, list[str]]]:
    """The folders from a root downwards that contain such files, with the files' names, in order.
    Links to folders are not followed: a run behind one would count twice. Our own experiments below
    the root are passed over, they have event files too. Raises `BadInput` for a tree that is too
    large.
    """
    seen = 0
    waiting = [(root, 0)]
    while waiting:
        folder, depth = waiting.pop()
        with os.scandir(folder) as listed:
            entries = sorted(listed, key=lambda entry: natural(entry.name))
        seen += len(entries)
        if seen > MOST_ENTRIES:
            raise BadInput(
                f"{root} has more than {MOST_ENTRIES} files; name the folder of the runs"
            )
        if depth and any(one.name == EXPERIMENT for one in entries):
            continue
        names = [one.name for one in entries if holds(one.name) and not one.is_dir()]
        if names:
            yield folder, names
        below = [one for one in entries if one.is_dir(follow_symlinks=False)]
        if depth < DEEPEST:
            waiting += [(folder / one.name, depth + 1) for one in reversed(below)]


def natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts `run_2` before `run_10`."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdecimal() else (0, part) for part in parts]


def run_name(folder: Path, root: Path) -> str:
    """The name of a run below a source, which may also be one of the run's files."""
    inside = folder != root and folder.is_relative_to(root)
    return printable(folder.relative_to(root).as_posix() if inside else folder.absolute().name)
