"""Films that every browser plays: format, size, order of the file, and what is refused."""

from __future__ import annotations

import argparse
import re
import subprocess

import imageio_ffmpeg
import numpy as np
import pytest

from config.errors import BadInput, ExperimentError, WrongDirectory
from steps.command.context import StepContext
from steps.command.stop import StopRequest
from steps.directory import owner
from steps.directory.layout import ExperimentDirectory
from steps.films import mp4
from tests import synthetic


def stream(path) -> str:
    done = subprocess.run(
        [imageio_ffmpeg.get_ffmpeg_exe(), "-hide_banner", "-i", str(path)],
        capture_output=True,
        text=True,
    )
    return next(line for line in done.stderr.splitlines() if "Video:" in line)


@pytest.mark.parametrize(
    ("height", "width", "shown"),
    [
        (400, 600, "600x400"),
        (210, 160, "320x420"),
        (33, 47, "470x330"),
        (321, 501, "502x322"),
        (1, 1, "320x320"),
        (1, 100, "4000x64"),
        pytest.param(100, 1, "64x4000", marks=pytest.mark.slow),
        pytest.param(5000, 9, "64x4096", marks=pytest.mark.slow),
    ],
)
def test_any_size_becomes_a_film_that_browsers_play(height, width, shown, tmp_path):
    path = tmp_path / ".episode-0.1.tmp"
    assert mp4.write_video(path, synthetic.frames(7, height, width), 30) == 7
    said = stream(path)
    assert re.search(r"h264 \((Constrained Baseline|Main|High)\)", said), said
    assert "yuv420p(" in said, said
    assert shown in said, said
    content = path.read_bytes()
    assert content.index(b"moov") < content.index(b"mdat"), (
        "the index comes first: playing starts before the whole file is read"
    )


def test_small_pictures_are_enlarged_without_blurring(tmp_path):
    path = tmp_path / "film.mp4"
    checks = (
        (np.indices((40, 40)).sum(axis=0) % 2 * 255).astype(np.uint8)[..., None].repeat(3, axis=2)
    )
    mp4.write_video(path, iter([checks] * 5), 30)
    frames = imageio_ffmpeg.read_frames(str(path))
    size = next(frames)["size"]
    frame = np.frombuffer(next(frames), np.uint8).reshape(size[1], size[0], 3)
    frames.close()
    assert size == (320, 320)
    assert np.abs(frame[4::8, 4::8].astype(int) - checks).max() < 40


def test_no_frame_is_no_film(tmp_path):
    with pytest.raises(ExperimentError, match="no frame"):
        mp4.write_video(tmp_path / "film.mp4", iter(()), 30)


def test_a_broken_film_is_not_called_done(tmp_path):
    path = tmp_path / "film.mp4"
    mp4.write_video(path, synthetic.frames(30), 30)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ExperimentError, match="cannot be decoded"):
        mp4.count_frames(path)


def test_without_ffmpeg_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setattr(
        imageio_ffmpeg,
        "get_ffmpeg_exe",
        lambda: (_ for _ in ()).throw(RuntimeError("No ffmpeg exe could be found")),
    )
    with pytest.raises(BadInput, match="install imageio-ffmpeg"):
        mp4.check_codec()


def test_case_56_a_film_that_lost_frames_is_not_called_done(tmp_path, monkeypatch):
    """Defect C20 of docs/faults.md: the frames that the file holds are compared with those that were filmed."""
    from moviepy.video.io import ffmpeg_writer

    monkeypatch.setattr(ffmpeg_writer, "FFMPEG_VideoWriter", synthetic.writer_that_loses(3))
    with pytest.raises(
        ExperimentError, match=r"film\.mp4 holds 27 of the 30 frames that were filmed"
    ):
        mp4.write_video(tmp_path / "film.mp4", synthetic.frames(30), 30)


def test_case_56_a_film_with_too_many_frames_is_not_called_done(tmp_path, monkeypatch):
    """A decoder that counts more frames than were filmed has another film before it."""
    monkeypatch.setattr(mp4, "count_frames", lambda path: 31)
    with pytest.raises(ExperimentError, match="holds 31 of the 30"):
        mp4.write_video(tmp_path / "film.mp4", synthetic.frames(30), 30)


def test_a_film_is_not_shown_in_a_directory_that_has_another_owner_by_then(tmp_path):
    directory = ExperimentDirectory(tmp_path)
    context = StepContext("play", directory, 0, "first", argparse.Namespace(), StopRequest())
    owner.claim(directory.owner_json, owner.Owner(uid="first"))
    context.fence.claim()
    videos = context.run.videos

    def displaced():
        yield from synthetic.frames(3)
        directory.owner_json.unlink()
        owner.claim(directory.owner_json, owner.Owner(uid="second"))

    assert mp4.write_film(context, videos / "episode-0.mp4", synthetic.frames(3), 30) == 3
    with pytest.raises(WrongDirectory, match="not to workflow uid first"):
        mp4.write_film(context, videos / "episode-1.mp4", displaced(), 30)
    assert [path.name for path in videos.iterdir()] == ["episode-0.mp4"]
