"""The films of a run: of which episodes, what is refused, and where no film can be made."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from config.measures import RETURN
from steps import play
from steps.directory import network_storage
from steps.directory.arrays import write_actions
from steps.directory.elsewhere import Drawing
from steps.directory.experiment import read_experiment
from steps.directory.files import temporary_beside, write_atomically
from steps.directory.layout import ExperimentDirectory
from steps.directory.status import read_status
from steps.films import skipping
from steps.page import facts as page_facts
from tests import synthetic

ROOT = Path(__file__).resolve().parents[3]


def test_what_shall_not_be_filmed_is_skipped(tmp_path):
    directory = synthetic.experiment(tmp_path, ("complete",), video_episodes=0)
    for _ in range(2):
        assert play.main([f"--outdir={tmp_path}", "--run=0"]) == 0
    status = read_status(directory.run(0).status / "play.json")
    assert status is not None
    assert (status.state, status.reason, status.attempt) == ("skipped", "video_episodes is 0", 1)
    assert not directory.run(0).videos.exists()


def test_what_cannot_be_drawn_here_is_skipped_and_filmed_where_it_can(tmp_path, monkeypatch):
    """Whether a picture can be drawn is a fact about a machine, and not about the experiment."""
    run, _ = evaluated(tmp_path)
    monkeypatch.setattr(skipping, "drawn_elsewhere", lambda _: Drawing({}, "no OpenGL here"))
    for _ in range(2):
        status = ended(run, 0)
        assert (status.state, status.reason, status.attempt) == ("skipped", "no OpenGL here", 1)
    monkeypatch.setattr(skipping, "drawn_elsewhere", lambda _: Drawing({"MUJOCO_GL": "egl"}))
    monkeypatch.setenv("MUJOCO_GL", "")
    status = ended(run, 0)
    assert (status.state, status.attempt) == ("succeeded", 2)
    assert os.environ["MUJOCO_GL"] == "egl"
    assert [path.name for path in run.videos.iterdir()] == ["episode-0.mp4"]


def evaluated(tmp_path, **given):
    """The run of an experiment whose episodes were played, and these episodes."""
    directory = synthetic.experiment(tmp_path, ("complete",), evaluation_episodes=3, **given)
    return directory.run(0), synthetic.played(directory.run(0), synthetic.resolved_of(directory))


def ended(run, exit_code):
    """How a film ended that was to end so."""
    assert play.main([f"--outdir={run.root.parents[1]}", "--run=0"]) == exit_code
    status = read_status(run.status / "play.json")
    assert status is not None
    return status


@pytest.mark.parametrize("name", ["evaluation.csv", "evaluation-actions.safetensors"])
def test_a_run_that_was_not_evaluated_is_bad_input(name, tmp_path, monkeypatch):
    monkeypatch.setattr(network_storage, "LAG_S", 0.0)
    run, _ = evaluated(tmp_path)
    (run.root / name).unlink()
    assert re.fullmatch(rf"no file \S+/{name}: evaluate makes it", ended(run, 2).reason)
    assert not run.videos.exists()


def test_the_films_are_the_first_rows_of_the_evaluation(tmp_path):
    run, episodes = evaluated(tmp_path, video_episodes=2)
    videos = ended(run, 0).details["videos"]
    assert [one["differs"] for one in videos] == [None, None]
    assert [one["frames"] for one in videos] == [1 + one.length for one in episodes[:2]]


def test_a_film_of_another_episode_is_never_passed_off_as_the_evaluated_one(tmp_path, capfd):
    run, episodes = evaluated(tmp_path)
    rows = run.evaluated(RETURN).read_text().splitlines()
    cells = rows[1].split(",")
    rows[1] = ",".join([*cells[:2], "77.0", cells[3]])
    run.evaluated(RETURN).write_text("\n".join(rows) + "\n")
    (video,) = ended(run, 0).details["videos"]
    length = episodes[0].length
    said = f"return {length}.0 after {length} steps; evaluated: return 77.0 after {length} steps: "
    assert video["differs"].startswith(said)
    assert f"warning: episode-0.mp4 is not the evaluated episode: {said}" in capfd.readouterr().out
    assert shown(run).film_note("episode-0.mp4").endswith(", not the evaluated episode")


def test_only_its_own_unfinished_films_are_removed(tmp_path):
    """The film of learning is written into the same folder, perhaps at the same time."""
    run, _ = evaluated(tmp_path)
    learning = temporary_beside(run.videos / "learning.mp4")
    for unfinished in (learning, temporary_beside(run.videos / "episode-7.mp4")):
        write_atomically(unfinished, b"half")
    ended(run, 0)
    assert {path.name for path in run.videos.iterdir()} == {learning.name, "episode-0.mp4"}


def test_the_page_shows_no_film_of_an_earlier_evaluation(tmp_path):
    """It stays in the folder where fewer episodes are filmed now."""
    run, _ = evaluated(tmp_path)
    write_atomically(run.videos / "episode-1.mp4", b"film")
    ended(run, 0)
    assert shown(run).films == ("episode-0.mp4",)


def shown(run):
    """What the page shows of a run."""
    directory = ExperimentDirectory(run.root.parents[1])
    facts = page_facts.read_facts(directory, read_experiment(directory), "Succeeded")
    return facts.runs[0]


@pytest.mark.parametrize(
    ("column", "value"),
    [(0, "1"), (1, "17"), (3, "8000")],
    ids=["another episode", "another seed", "another length"],
)
def test_a_table_of_another_evaluation_is_bad_input(column, value, tmp_path):
    run, _ = evaluated(tmp_path)
    rows = run.evaluated(RETURN).read_text().splitlines()
    cells = rows[1].split(",")
    cells[column] = value
    run.evaluated(RETURN).write_text("\n".join([rows[0], ",".join(cells), *rows[2:]]) + "\n")
    assert (
        "does not begin with the 1 episodes of evaluation-actions.safetensors: evaluate makes both"
        in ended(run, 2).reason
    )


def test_actions_of_fewer_episodes_than_are_filmed_are_bad_input(tmp_path):
    run, episodes = evaluated(tmp_path, video_episodes=3)
    write_actions(run.evaluation_actions, [one.actions for one in episodes[:2]])
    assert (
        "has the actions of 2 episodes, not of episode 2: evaluate makes it" in ended(run, 2).reason
    )


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 8,
        b"\xff" * 64,
        (2**40).to_bytes(8, "little"),
        b"\2" + b"\0" * 7 + b"{}",
        b"\2" + b"\0" * 7 + b"[]",
        None,
    ],
    ids=["empty", "zeros", "noise", "a huge header", "no array", "no header", "one bit"],
)
def test_damaged_actions_are_bad_input(content, tmp_path):
    run, _ = evaluated(tmp_path)
    written = bytearray(run.evaluation_actions.read_bytes())
    written[-9] ^= 1
    run.evaluation_actions.write_bytes(written if content is None else content)
    assert re.fullmatch(
        r"\S+/evaluation-actions.safetensors is damaged \(.+\): evaluate makes it",
        ended(run, 2).reason,
    )


def test_an_array_behind_the_actions_back_is_bad_input(tmp_path):
    """The checksum is noted in a file that anybody may write: what the game does not have never
    reaches it."""
    run, episodes = evaluated(tmp_path)
    write_actions(run.evaluation_actions, [episodes[0].actions + 2])
    assert (
        "these are no actions of 'cartpole'; allowed: whole numbers from 0 to 1"
        in ended(run, 2).reason
    )


def test_a_film_that_never_ends_is_cut_and_says_so(tmp_path, monkeypatch, capfd):
    """A policy that holds Breakout's ball for ever must not fill the disk."""
    from agents.evaluation import rendering

    run, _ = evaluated(tmp_path)
    monkeypatch.setattr(rendering.Replay, "frames", lambda _: itertools.cycle(synthetic.frames(2)))
    monkeypatch.setattr(rendering, "film_rate", lambda *_: rendering.Rate(10.0))
    monkeypatch.setattr(play, "LONGEST_S", 1.0)
    (video,) = ended(run, 0).details["videos"]
    assert video == {
        "file": "episode-0.mp4",
        "frames": 10,
        "seconds": 1.0,
        "cut": True,
        "differs": None,
        "irregular": None,
    }
    assert "cut there" in capfd.readouterr().out
    assert [path.name for path in run.videos.iterdir()] == ["episode-0.mp4"]


NO_DISPLAY = """
import matplotlib, pygame
from agents.evaluation import rendering
from config.environment import OneProcess
from config.games import find_game
import steps.figures.style, steps.figures.run
print(rendering.draw_once(find_game("cartpole"), OneProcess()))
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


def test_case_56_a_film_that_lost_frames_gets_no_name_and_fails_the_step(tmp_path, monkeypatch):
    from moviepy.video.io import ffmpeg_writer

    from agents.evaluation import rendering

    run, _ = evaluated(tmp_path)
    monkeypatch.setattr(rendering.Replay, "frames", lambda _: synthetic.frames(30))
    monkeypatch.setattr(rendering, "film_rate", lambda *_: rendering.Rate(10.0))
    monkeypatch.setattr(ffmpeg_writer, "FFMPEG_VideoWriter", synthetic.writer_that_loses(3))
    assert "27 of the 30 frames" in (ended(run, 1).reason or "")
    assert not list(run.videos.iterdir())
