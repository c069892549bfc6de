"""The film of learning: a few seconds of one episode of each snapshot, one after the other, with the
step drawn above each.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.font_manager import findfont
from PIL import Image, ImageDraw, ImageFont

from agents.evaluation.pictures import fitted
from config.numbers import number
from config.resolved import Resolved
from steps.command.context import StepContext
from steps.directory import snapshots
from steps.directory.arrays import read_actions
from steps.directory.tables import read_rows

LONGEST_PART_S = 5.0
LONGEST_FILM_S = 120.0
"""Of many snapshots each gets less than `LONGEST_PART_S`."""
BOARD_FRAMES_PER_SECOND = 4.0
SMALLEST_SIDE_PIXELS = 320
"""Smaller pictures are enlarged by whole factors, so that the words above them can be read."""
LABEL_PIXELS = 30
FONT_PIXELS = 16
BACKGROUND = (28, 39, 51)
INK = (255, 255, 255)
ANIMATION_PIXELS = 240
ANIMATION_FRAMES = 200
ANIMATION_FRAME_MS = 250


@dataclass(frozen=True, kw_only=True)
class Part:
    """What is shown of one snapshot. frames: uint8 [H, W, 3] of one size."""

    label: str
    frames: Iterator[np.ndarray]


def parts(context: StepContext) -> tuple[list[Part], float]:
    """The parts in the order of the training, and the frames per second. Raises `BadInput` for an
    evaluation that is missing or damaged.
    """
    resolved = context.resolved
    steps = context.run.snapshot_steps()
    longest_s = min(LONGEST_PART_S, LONGEST_FILM_S / max(1, len(steps)))
    if resolved.descriptor.has_workers:
        turns = int(longest_s * BOARD_FRAMES_PER_SECOND)
        return [_game(context, step, turns) for step in steps], BOARD_FRAMES_PER_SECOND
    from agents.evaluation.rendering import film_rate

    rate = film_rate(resolved.game, resolved.environment)
    count = max(1, round(longest_s * rate.frames_per_second))
    return [_episode(context, step, count, rate.steps) for step in steps], rate.frames_per_second


def _episode(context: StepContext, step: int, count: int, every: int) -> Part:
    """The first frames of the snapshot's first episode."""
    from agents.evaluation.rendering import Replay

    table = context.require(snapshots.table(context.run, step), "evaluate-snapshots")
    path = context.require(snapshots.actions(context.run, step), "evaluate-snapshots")
    first = read_rows(table)[0]
    (actions,) = read_actions(path, 1)
    replay = Replay(context.resolved, int(first["seed"]), actions, every)
    frames = itertools.islice(replay.frames(), count)
    return Part(label=_label(first, step, context.resolved), frames=frames)


def _game(context: StepContext, step: int, count: int) -> Part:
    """The last turns of the snapshot's first game, which is against the strongest of the ladder."""
    from agents.arena.players import Random
    from agents.games.named import load_game
    from steps.arena.film import GameFilm
    from steps.arena.games import read_games

    table = context.require(snapshots.table(context.run, step), "evaluate-snapshots")
    game = load_game(context.resolved.game.id)
    played = read_games(table)[0]
    # Its opening is the whole game: nobody is asked what it thinks.
    shown = GameFilm(Random(game), game, played, opening=len(played.actions))
    label = _label(read_rows(table)[0], step, context.resolved)
    turns = max(0, len(played.actions) + 3 - count)
    return Part(label=label, frames=itertools.islice(shown.frames(), turns, None))


def _label(row: Mapping[str, str], step: int, resolved: Resolved) -> str:
    """`step 12,288, 80 %, return 194`."""
    measure = resolved.measure
    share = 100 * int(row["epoch"]) / resolved.epochs
    value = measure.shown(float(row[measure.column]))
    if resolved.descriptor.has_workers:
        value = {"100": "won", "50": "drawn", "0": "lost"}[f"{float(row[measure.column]):g}"]
        return f"step {number(step)}, {share:.0f} %, {value} against {row['opponent']}"
    return f"step {number(step)}, {share:.0f} %, {measure.name} {value}"


def labelled(listed: Sequence[Part]) -> Iterator[np.ndarray]:
    """All frames of all parts, uint8 [H, W, 3] of the size of the first, with their labels."""
    size: tuple[int, int] | None = None
    for part in listed:
        banner = None
        for frame in part.frames:
            enlarged = _enlarged(frame)
            size = size or enlarged.shape[:2]
            if banner is None:
                banner = _banner(part.label, size[1])
            yield np.concatenate([banner, fitted(enlarged, *size)])


def _enlarged(frame: np.ndarray) -> np.ndarray:
    factor = max(1, -(-SMALLEST_SIDE_PIXELS // min(frame.shape[:2])))
    return frame.repeat(factor, axis=0).repeat(factor, axis=1)


def _banner(text: str, width: int) -> np.ndarray:
    banner = Image.new("RGB", (width, LABEL_PIXELS), BACKGROUND)
    font = ImageFont.truetype(findfont("DejaVu Sans"), FONT_PIXELS)
    middle = LABEL_PIXELS // 2
    ImageDraw.Draw(banner).text((8, middle), text, fill=INK, font=font, anchor="lm")
    return np.asarray(banner)


class Animation:
    """A few of a film's frames as an animated GIF, the form in which TensorBoard shows films.

    every: one of so many frames is kept.
    """

    def __init__(self, every: int) -> None:
        self._every = max(1, every)
        self._kept = list[Image.Image]()

    def watch(self, frames: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
        """Pass the frames on."""
        for place, frame in enumerate(frames):
            if place % self._every == 0 and len(self._kept) < ANIMATION_FRAMES:
                small = Image.fromarray(frame)
                small.thumbnail((ANIMATION_PIXELS, ANIMATION_PIXELS))
                self._kept.append(small)
            yield frame

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self._kept[0].size

    def gif(self) -> bytes:
        """The file's content."""
        content = io.BytesIO()
        first, *more = self._kept
        first.save(
            content, format="GIF", save_all=True, append_images=more, duration=ANIMATION_FRAME_MS,
            loop=0,
        )  # fmt: skip
        return content.getvalue()
