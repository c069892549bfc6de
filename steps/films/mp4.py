"""Writes films as mp4: H.264 in yuv420p with the index first, which every browser plays. Small pictures
are enlarged by whole factors without blurring.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from config.errors import BadInput, ExperimentError
from steps.command.context import StepContext
from steps.directory.files import sync_directory, temporary_beside

if TYPE_CHECKING:
    import numpy as np

SMALLEST_SIDE_PIXELS = 320
LARGEST_SIDE_PIXELS = 4096
"""What browsers decode."""
NARROWEST_PIXELS = 64
"""A film that would be narrower gets black borders: encoders and players refuse a few pixels."""
QUALITY = "22"
"""x264's constant rate factor. The edges of pixel art stay sharp, and two minutes of Breakout take
a few MB.
"""


def write_film(
    context: StepContext, path: Path, frames: Iterator[np.ndarray], frames_per_second: float
) -> int:
    """Write frames, uint8 [H, W, 3] of one size, as a film that gets its name when it is complete and
    checked. Returns the number of frames.

    Raises `WrongDirectory` if the directory has another owner by then, and what `write_video` raises.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_beside(path)
    try:
        written = write_video(temporary, _until_stop(context, frames), frames_per_second)
        # ffmpeg wrote the file: it is synced before it gets its name, so none is ever half there.
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        context.require_ours()
        temporary.replace(path)
        sync_directory(path.parent)
    finally:
        temporary.unlink(missing_ok=True)
    return written


def _until_stop(context: StepContext, frames: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    for frame in frames:
        context.check_stop()
        yield frame


def write_video(path: Path, frames: Iterator[np.ndarray], frames_per_second: float) -> int:
    """Encode frames, uint8 [H, W, 3] of one size, as mp4, whatever the file's name. Returns their
    number.

    Raises `ExperimentError` unless the written file decodes to as many frames, so that an empty
    film is never taken for a finished one.
    """
    from moviepy.video.io.ffmpeg_writer import FFMPEG_VideoWriter

    first = next(frames, None)
    if first is None:
        raise ExperimentError("the environment gave no frame to film")
    height, width = first.shape[:2]
    encoding = _encoding(width, height)
    writer = FFMPEG_VideoWriter(
        str(path),
        (width, height),
        frames_per_second,
        codec="libx264",
        preset="veryfast",
        ffmpeg_params=encoding,
    )
    count = 0
    with writer:
        for frame in itertools.chain([first], frames):
            try:
                writer.write_frame(frame)
            except OSError as error:
                raise ExperimentError(
                    f"{path.name} cannot be encoded: {_last_words(error)}"
                ) from error
            count += 1
    decoded = count_frames(path)
    if decoded != count:
        raise ExperimentError(f"{path.name} holds {decoded} of the {count} frames that were filmed")
    return count


def _encoding(width: int, height: int) -> list[str]:
    """The encoder's options: enlarge by a whole factor with hard edges, or shrink what is too large;
    pad to even sizes as yuv420p needs; write the index first.

    The pixel format is set by a filter, because moviepy names none for pictures of odd size, and
    x264 would then keep 4:4:4, which browsers refuse.
    """
    shorter = min(width, height)
    longer = max(width, height)
    enlarged = -(-SMALLEST_SIDE_PIXELS // shorter)
    factor = min(enlarged, LARGEST_SIDE_PIXELS // longer) or LARGEST_SIDE_PIXELS / longer
    scaled = [max(1, round(side * factor)) for side in (width, height)]
    padded = [max(NARROWEST_PIXELS, side + side % 2) for side in scaled]
    filters = (
        f"scale={scaled[0]}:{scaled[1]}:flags={'neighbor' if factor >= 1 else 'area'},"
        f"pad={padded[0]}:{padded[1]}:-1:-1,format=yuv420p"
    )
    return ["-vf", filters, "-crf", QUALITY, "-movflags", "+faststart", "-f", "mp4"]


def count_frames(path: Path) -> int:
    """Decode a whole film and count its frames. Raises `ExperimentError` if it cannot be decoded."""
    import imageio_ffmpeg

    try:
        frames, _ = imageio_ffmpeg.count_frames_and_secs(str(path))
    except (OSError, RuntimeError) as error:
        raise ExperimentError(f"{path.name} cannot be decoded: {_last_words(error)}") from error
    return int(frames)


def _last_words(error: Exception) -> str:
    """The last line of what ffmpeg said; before it come its version and configuration."""
    lines = [line.strip() for line in str(error).splitlines()]
    return next(filter(None, reversed(lines)), type(error).__name__)


def check_codec() -> None:
    """Raise `BadInput`, which says what to install, if films cannot be encoded here. Called before
    anything is played.
    """
    import imageio_ffmpeg

    try:
        imageio_ffmpeg.get_ffmpeg_exe()
    except RuntimeError as error:
        raise BadInput(
            f"no ffmpeg to write mp4 with ({error}); install imageio-ffmpeg, or set IMAGEIO_FFMPEG_EXE"
        ) from error
