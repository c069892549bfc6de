"""The films of one run: `python -m steps.play --outdir results/cartpole --run 0`.

Films the first `video_episodes` episodes of the evaluation (same seeds, same actions) as
videos/episode-0.mp4 …: H.264 in yuv420p with the index first, which every browser plays. A film is
cut after two minutes, and its status says so; it says, too, if a whole film does not have the
return and the length of its row in evaluation.csv, and which picture the environment drew in another
size or not at all. Small pictures are enlarged by whole factors without blurring. After self-play the
films show games of the arena, against the strongest player of the ladder first, and on the board what
the agent's search thinks.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from config.ending import end
from config.errors import BadInput, ExperimentError
from steps.command.context import Skipped, StepContext
from steps.command.main import run_step
from steps.directory.arrays import read_actions
from steps.directory.elsewhere import Drawing, drawn_elsewhere
from steps.directory.experiment import evaluation_inputs
from steps.directory.files import remove_temporaries, sync_directory, temporary_beside
from steps.directory.usable import Episode, evaluation_episodes, fingerprint

if TYPE_CHECKING:
    import numpy as np

LONGEST_S = 120.0
SMALLEST_SIDE_PIXELS = 320
LARGEST_SIDE_PIXELS = 4096
"""What browsers decode."""
NARROWEST_PIXELS = 64
"""A film that would be narrower gets black borders: encoders and players refuse a few pixels."""
QUALITY = "22"
"""x264's constant rate factor. The edges of pixel art stay sharp, and two minutes of Breakout take
a few MB.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the step and return its exit code."""
    return run_step("play", play, inputs=inputs, complete=_are_written, argv=argv)


def inputs(context: StepContext) -> Mapping[str, Any]:
    """What the films depend on: the episodes that were played, and how many are filmed."""
    table = context.run.evaluated(context.resolved.measure)
    evaluated = [table, context.run.evaluation_actions]
    return {
        **evaluation_inputs(context.record),
        "files": fingerprint(context.directory.root, evaluated),
    }


def play(context: StepContext) -> dict[str, Any] | Skipped:
    """Film the first episodes of the evaluation of one run."""
    drawing = _drawing(context)
    if drawing.refused is not None:
        return Skipped(drawing.refused)
    os.environ.update(drawing.variables)
    check_codec()
    # Not that of the film of learning, which another step may be writing into the same folder.
    remove_temporaries(context.run.videos, of="episode-")
    if context.resolved.descriptor.has_workers:
        return {"videos": [_write(context, film) for film in _of_games(context)]}
    from agents.evaluation.pictures import NoImages

    try:
        return {"videos": [_write(context, film) for film in _of_episodes(context)]}
    except NoImages as error:
        return Skipped(f"{context.resolved.game.name!r} gives no images: {error}")


def _drawing(context: StepContext) -> Drawing:
    """How the pictures are drawn on this machine, or why there is no film."""
    if context.resolved.experiment.video_episodes == 0:
        return Drawing({}, "video_episodes is 0")
    return drawn_elsewhere(context.resolved)


class Film(NamedTuple):
    """A film to be made. frames: uint8 [H, W, 3] of one size. difference: after all frames were
    taken, how it differs from the evaluated episode, or None. irregular: after all frames were taken,
    the first one that is not what the environment drew, or None.
    """

    episode: int
    frames: Iterator[np.ndarray]
    frames_per_second: float
    difference: Callable[[], str | None]
    irregular: Callable[[], str | None] = lambda: None


def _of_episodes(context: StepContext) -> list[Film]:
    from agents.evaluation.rendering import Replay, film_rate

    rate = film_rate(context.resolved.game, context.resolved.environment)
    films = []
    for row, actions in evaluated_episodes(context):
        replay = Replay(context.resolved, row.seed, actions, rate.steps)
        difference = functools.partial(replay.difference, row.value, row.length)
        irregular = functools.partial(getattr, replay, "irregular")
        films.append(
            Film(row.episode, replay.frames(), rate.frames_per_second, difference, irregular)
        )
    return films


def _of_games(context: StepContext) -> list[Film]:
    from steps.arena.film import FRAMES_PER_SECOND, filmed_games

    return [
        Film(number, one.frames(), FRAMES_PER_SECOND, one.difference)
        for number, one in enumerate(filmed_games(context))
    ]


def evaluated_episodes(context: StepContext) -> list[tuple[Episode, np.ndarray]]:
    """The episodes to film: rows of evaluation.csv and their actions.

    Raises `BadInput` unless evaluate has left both intact.
    """
    from agents.environments.training import episode_seed

    run = context.run
    count = context.resolved.experiment.video_episodes
    measure = context.resolved.measure
    table = context.require(run.evaluated(measure), "evaluate")
    actions = read_actions(context.require(run.evaluation_actions, "evaluate"), count)
    rows = evaluation_episodes(run, measure)[:count]
    seeds = [episode_seed(context.resolved, run.index, number) for number in range(count)]
    expected = [(number, seeds[number], len(actions[number])) for number in range(count)]
    if [(row.episode, row.seed, row.length) for row in rows] != expected:
        episodes = f"the {count} episodes of {run.evaluation_actions.name}"
        raise BadInput(f"{table} does not begin with {episodes}: evaluate makes both")
    return list(zip(rows, actions, strict=True))


def video_path(context: StepContext, episode: int) -> Path:
    """Where the film of an episode lies."""
    return context.run.videos / f"episode-{episode}.mp4"


def _are_written(context: StepContext) -> bool:
    if context.previous is not None and context.previous.state == "skipped":
        # What cannot be drawn here may be drawn on another machine, or once a library is installed.
        return _drawing(context).refused is not None
    return all(
        video_path(context, episode).is_file()
        for episode in range(context.resolved.experiment.video_episodes)
    )


def _write(context: StepContext, film: Film) -> dict[str, Any]:
    """Write one mp4, which gets its final name when it is complete and checked."""
    rate = film.frames_per_second
    frames = film.frames
    path = video_path(context, film.episode)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_beside(path)
    try:
        longest = int(LONGEST_S * rate)
        written = write_video(
            temporary, _until_stop(context, itertools.islice(frames, longest)), rate
        )
        # Asked only at the limit: one more frame tells a film that was cut from one that fits.
        is_cut = written == longest and next(frames, None) is not None
        # ffmpeg wrote the file: it is synced before it gets its name, so none is ever half there.
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_directory(path.parent)
    finally:
        temporary.unlink(missing_ok=True)
    difference = None if is_cut else film.difference()
    print(
        f"{path.name}: {written} frames, {written / rate:.1f} s, {path.stat().st_size} bytes{', cut there' if is_cut else ''}"
    )
    if difference:
        print(f"warning: {path.name} is not the evaluated episode: {difference}")
    irregular = film.irregular()
    if irregular:
        print(f"warning: a picture of {path.name} is not what the environment drew: {irregular}")
    return {
        "file": path.name,
        "frames": written,
        "seconds": round(written / rate, 2),
        "cut": is_cut,
        "differs": difference,
        "irregular": irregular,
    }


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


if __name__ == "__main__":
    end(main())
