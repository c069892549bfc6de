"""Films that every browser plays: format, size, order of the file, and what is refused."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest

from config.errors import BadInput, ExperimentError
from steps import play
from steps.directory.status import read_status
from tests import synthetic

ROOT = Path(__file__).resolve().parents[2]


def stream(path) -> str:
    done = subprocess.run([imageio_ffmpeg.get_ffmpeg_exe(), "-hide_banner", "-i", str(path)], capture_output=True, text=True)
    return next(line for line in done.stderr.splitlines() if "Video:" in line)


@pytest.mark.parametrize(
    ("height", "width", "shown"),
    [(400, 600, "600x400"), (210, 160, "320x420"), (33, 47, "470x330"), (321, 501, "502x322"), (1, 1, "320x320")],
)
def test_any_size_becomes_a_film_that_browsers_play(height, width, shown, tmp_path):
    path = tmp_path / ".episode-0.1.tmp"
    assert play.write_video(path, synthetic.frames(7, height, width), 30) == 7
    said = stream(path)
    assert re.search(r"h264 \((Constrained Baseline|Main|High)\)", said), said
    assert "yuv420p(" in said, said
    assert shown in said, said
    content = path.read_bytes()
    assert content.index(b"moov") < content.index(b"mdat"), "the index comes first: playing starts before the whole file is read"


def test_small_pictures_are_enlarged_without_blurring(tmp_path):
    path = tmp_path / "film.mp4"
    checks = (np.indices((40, 40)).sum(axis=0) % 2 * 255).astype(np.uint8)[..., None].repeat(3, axis=2)
    play.write_video(path, iter([checks] * 5), 30)
    frames = imageio_ffmpeg.read_frames(str(path))
    size = next(frames)["size"]
    frame = np.frombuffer(next(frames), np.uint8).reshape(size[1], size[0], 3)
    frames.close()
    assert size == (320, 320)
    assert np.abs(frame[4::8, 4::8].astype(int) - checks).max() < 40


def test_no_frame_is_no_film(tmp_path):
    with pytest.raises(ExperimentError, match="no frame"):
        play.write_video(tmp_path / "film.mp4", iter(()), 30)


def test_a_broken_film_is_not_called_done(tmp_path):
    path = tmp_path / "film.mp4"
    play.write_video(path, synthetic.frames(30), 30)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ExperimentError, match="cannot be decoded"):
        play.count_frames(path)


def test_without_ffmpeg_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setattr(imageio_ffmpeg, "get_ffmpeg_exe", lambda: (_ for _ in ()).throw(RuntimeError("No ffmpeg exe could be found")))
    with pytest.raises(BadInput, match="install imageio-ffmpeg"):
        play._check_codec()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"renders": "'walker' gives no images: ImportError"}, "'walker' gives no images: ImportError"),
        ({"video_episodes": 0}, "video_episodes is 0"),
    ],
)
def test_what_cannot_or_shall_not_be_filmed_is_skipped(given, reason, tmp_path):
    directory = synthetic.experiment(tmp_path, ("complete",), **given)
    for _ in range(2):
        assert play.main([f"--outdir={tmp_path}", "--run=0"]) == 0
    status = read_status(directory.run(0).status / "play.json")
    assert status is not None
    assert (status.state, status.reason, status.attempt) == ("skipped", reason, 1)
    assert not directory.run(0).videos.exists()


def test_a_run_without_its_last_checkpoint_is_bad_input(tmp_path):
    directory = synthetic.experiment(tmp_path, ("unfinished",))
    for newest in directory.run(0).checkpoints.iterdir():
        newest.rmdir()
    assert play.main([f"--outdir={tmp_path}", "--run=0"]) == 2
    status = read_status(directory.run(0).status / "play.json")
    assert status is not None
    assert re.search(r"no final checkpoint in \S+ .*: train makes it", status.reason or "")


def test_a_film_that_never_ends_is_cut_and_says_so(tmp_path, monkeypatch, capfd):
    """A policy that holds Breakout's ball for ever must not fill the disk."""
    from agents import rendering

    directory = synthetic.experiment(tmp_path, ("complete",))
    monkeypatch.setattr(rendering, "film", lambda *_: itertools.cycle(synthetic.frames(2)))
    monkeypatch.setattr(rendering, "frames_per_second", lambda game: 10.0)
    monkeypatch.setattr(play, "LONGEST_S", 1.0)
    monkeypatch.setattr(play, "final_policy", lambda context: (None, 50176))
    assert play.main([f"--outdir={tmp_path}", "--run=0"]) == 0
    status = read_status(directory.run(0).status / "play.json")
    assert status is not None
    assert status.details["videos"] == [{"file": "episode-0.mp4", "frames": 10, "seconds": 1.0, "cut": True}]
    assert "cut there" in capfd.readouterr().out
    assert [path.name for path in directory.run(0).videos.iterdir()] == ["episode-0.mp4"]


NO_DISPLAY = """
import matplotlib, pygame
from agents import rendering
from config.games import find_game
import steps.figures.style, steps.figures.run
print(rendering.renders(find_game("cartpole")))
pygame.display.init()
print(pygame.display.get_driver())
"""


def test_case_57_films_and_plots_need_no_display():
    """Pods have none; a person may have exported a backend that wants one."""
    foreign = {"DISPLAY": "", "WAYLAND_DISPLAY": "", "MPLBACKEND": "TkAgg"}
    kept = {name: value for name, value in os.environ.items() if name != "SDL_VIDEODRIVER"}
    command = [sys.executable, "-W", "ignore", "-c", NO_DISPLAY]
    done = subprocess.run(command, capture_output=True, text=True, env=kept | foreign, cwd=ROOT)
    assert done.stdout.splitlines()[-2:] == ["None", "dummy"], done.stdout + done.stderr


def _dropping(frames_lost: int):
    """A writer that says nothing about the frames that never reach the encoder: a full pipe, an encoder that skips equal pictures."""
    from moviepy.video.io import ffmpeg_writer

    class Dropping(ffmpeg_writer.FFMPEG_VideoWriter):
        left = frames_lost

        def write_frame(self, frame):
            if self.left:
                self.left -= 1
                return
            super().write_frame(frame)

    return Dropping


def test_case_56_a_film_that_lost_frames_is_not_called_done(tmp_path, monkeypatch):
    """found.md C20: the frames that the file holds are compared with those that were filmed."""
    from moviepy.video.io import ffmpeg_writer

    monkeypatch.setattr(ffmpeg_writer, "FFMPEG_VideoWriter", _dropping(3))
    with pytest.raises(ExperimentError, match=r"film\.mp4 holds 27 of the 30 frames that were filmed"):
        play.write_video(tmp_path / "film.mp4", synthetic.frames(30), 30)


def test_case_56_a_film_with_too_many_frames_is_not_called_done(tmp_path, monkeypatch):
    """A decoder that counts more frames than were filmed has another film before it."""
    monkeypatch.setattr(play, "count_frames", lambda path: 31)
    with pytest.raises(ExperimentError, match="holds 31 of the 30"):
        play.write_video(tmp_path / "film.mp4", synthetic.frames(30), 30)


def test_case_56_a_film_that_lost_frames_gets_no_name_and_fails_the_step(tmp_path, monkeypatch):
    from moviepy.video.io import ffmpeg_writer

    from agents import rendering

    directory = synthetic.experiment(tmp_path, ("complete",))
    monkeypatch.setattr(rendering, "film", lambda *_: synthetic.frames(30))
    monkeypatch.setattr(rendering, "frames_per_second", lambda game: 10.0)
    monkeypatch.setattr(play, "final_policy", lambda context: (None, 50176))
    monkeypatch.setattr(ffmpeg_writer, "FFMPEG_VideoWriter", _dropping(3))
    assert play.main([f"--outdir={tmp_path}", "--run=0"]) == 1
    status = read_status(directory.run(0).status / "play.json")
    assert status is not None and "27 of the 30 frames" in (status.reason or "")
    assert not list(directory.run(0).videos.iterdir())
