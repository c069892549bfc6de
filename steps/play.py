"""The films of one run: `python -m steps.play --outdir results/cartpole --run 0`.

Films the first `video_episodes` episodes of the evaluation (same seeds, same policy) as videos/episode-0.mp4 …: H.264 in yuv420p
with the index first, which every browser plays. A film is cut after two minutes, and its status says so. Small pictures are enlarged
by whole factors without blurring.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from config.errors import BadInput, ExperimentError
from steps.command.context import Skipped, StepContext
from steps.command.main import run_step
from steps.directory.files import remove_temporaries, sync_directory, temporary_beside
from steps.policy import final_policy, final_policy_inputs

if TYPE_CHECKING:
    import numpy as np

    from agents.interfaces import Policy

LONGEST_S = 120.0
SMALLEST_SIDE_PIXELS = 320
QUALITY = "22"
"""x264's constant rate factor: the edges of pixel art stay sharp, and two minutes of Breakout take few MB."""


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code of the step."""
    return run_step("play", play, in_run=True, inputs=inputs, complete=_are_written, argv=argv)


def inputs(context: StepContext) -> Mapping[str, Any]:
    """The policy that plays, and whether it can be filmed."""
    return {**final_policy_inputs(context), "renders": context.record.renders}


def play(context: StepContext) -> dict[str, Any] | Skipped:
    """Film the first episodes of the evaluation of one run."""
    if context.resolved.experiment.video_episodes == 0:
        return Skipped("video_episodes is 0")
    if context.record.renders is not None:
        return Skipped(context.record.renders)
    _check_codec()
    policy, step = final_policy(context)
    remove_temporaries(context.run.videos)
    films = [_film(context, policy, episode) for episode in range(context.resolved.experiment.video_episodes)]
    return {"step": step, "videos": films}


def video_path(context: StepContext, episode: int) -> Path:
    """Where the film of an episode lies."""
    return context.run.videos / f"episode-{episode}.mp4"


def _are_written(context: StepContext) -> bool:
    if context.previous is not None and context.previous.state == "skipped":
        return True
    return all(video_path(context, episode).is_file() for episode in range(context.resolved.experiment.video_episodes))


def _film(context: StepContext, policy: Policy, episode: int) -> dict[str, Any]:
    """One mp4, complete and checked before it gets its name."""
    from agents.rendering import film, frames_per_second

    resolved = context.resolved
    rate = frames_per_second(resolved.game)
    frames = film(policy, resolved, context.run.index, episode, resolved.evaluation_policy == "sample")
    path = video_path(context, episode)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_beside(path)
    try:
        longest = int(LONGEST_S * rate)
        written = write_video(temporary, _until_stop(context, itertools.islice(frames, longest)), rate)
        is_cut = written == longest and next(frames, None) is not None
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_directory(path.parent)
    finally:
        temporary.unlink(missing_ok=True)
    print(f"{path.name}: {written} frames, {written / rate:.1f} s, {path.stat().st_size} bytes{', cut there' if is_cut else ''}")
    return {"file": path.name, "frames": written, "seconds": round(written / rate, 2), "cut": is_cut}


def _until_stop(context: StepContext, frames: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    for frame in frames:
        context.check_stop()
        yield frame


def write_video(path: Path, frames: Iterator[np.ndarray], frames_per_second: float) -> int:
    """Encode frames, uint8 [H, W, 3] of one size, as mp4 whatever the name; returns their number.

    Raises `ExperimentError` unless the file then holds as many frames, decoded: no empty film is ever called done.
    """
    from moviepy.video.io.ffmpeg_writer import FFMPEG_VideoWriter

    first = next(frames, None)
    if first is None:
        raise ExperimentError("the environment gave no frame to film")
    height, width = first.shape[:2]
    encoding = _encoding(width, height)
    writer = FFMPEG_VideoWriter(str(path), (width, height), frames_per_second, codec="libx264", preset="veryfast", ffmpeg_params=encoding)
    count = 0
    with writer:
        for frame in itertools.chain([first], frames):
            writer.write_frame(frame)
            count += 1
    decoded = count_frames(path)
    if decoded != count:
        raise ExperimentError(f"{path.name} holds {decoded} of the {count} frames that were filmed")
    return count


def _encoding(width: int, height: int) -> list[str]:
    """Enlarge by a whole factor with hard edges, pad to even sizes as yuv420p needs, write the index first.

    The format is a filter because moviepy names none for pictures of odd size, and x264 then keeps 4:4:4, which browsers refuse.
    """
    factor = max(1, -(-SMALLEST_SIDE_PIXELS // min(width, height)))
    filters = f"scale=iw*{factor}:ih*{factor}:flags=neighbor,pad=ceil(iw/2)*2:ceil(ih/2)*2,format=yuv420p"
    return ["-vf", filters, "-crf", QUALITY, "-movflags", "+faststart", "-f", "mp4"]


def count_frames(path: Path) -> int:
    """Decode a film from beginning to end; raises `ExperimentError` if it cannot be."""
    import imageio_ffmpeg

    try:
        frames, _ = imageio_ffmpeg.count_frames_and_secs(str(path))
    except (OSError, RuntimeError) as error:
        raise ExperimentError(f"{path.name} cannot be decoded: {error}") from error
    return int(frames)


def _check_codec() -> None:
    """Before anything is played; raises `BadInput` with what to install."""
    import imageio_ffmpeg

    try:
        imageio_ffmpeg.get_ffmpeg_exe()
    except RuntimeError as error:
        raise BadInput(f"no ffmpeg to write mp4 with ({error}); install imageio-ffmpeg, or set IMAGEIO_FFMPEG_EXE") from error


if __name__ == "__main__":
    sys.exit(main())
