"""What a source of a comparison says, and one line for each that cannot be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from config.errors import BadInput
from steps.comparison.readers import OPTIONS, READERS, read
from steps.comparison.readers.run_names import (
    Named,
    frames_of,
    is_atari,
    natural,
    of_cleanrl,
    short_name,
)
from steps.comparison.readers.source import Source, parse
from tests import synthetic


def refused(text: str) -> str:
    with pytest.raises(BadInput) as raised:
        read(text)
    message = str(raised.value)
    assert message and "\n" not in message
    return message


SPLIT = {
    "plain": ("runs", {}),
    "plain:label=PPO": ("plain", {"label": "PPO"}),
    "plain:label=PPO, λ = 1:game=hopper": ("plain", {"label": "PPO, λ = 1", "game": "hopper"}),
    "plain:game=ours.games:Maze:tag=a:b": ("plain", {"game": "ours.games:Maze", "tag": "a:b"}),
    "plain:label=a=b": ("plain", {"label": "a=b"}),
    "10:30:05": ("10:30:05", {}),
    "10:30:05:label=PPO": ("10:30:05", {"label": "PPO"}),
    "sweep:lr=0.1": ("sweep:lr=0.1", {}),
    "sweep:lr=0.1:label=PPO": ("sweep:lr=0.1", {"label": "PPO"}),
    "sweep:lr=0.1/run:game=hopper": ("sweep:lr=0.1/run", {"game": "hopper"}),
}


@pytest.mark.parametrize("text", SPLIT)
def test_options_begin_behind_the_longest_path_that_exists(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("plain", "10:30:05", "sweep:lr=0.1/run"):
        Path(folder).mkdir(parents=True)
    path, options = SPLIT[text]
    source = parse(text)
    assert (str(source.path), source.options) == ("plain" if text == "plain" else path, options)


WRONG = {
    "": "names no path",
    ":label=PPO": "names no path",
    "nowhere": "no file or directory 'nowhere'",
    "nowhere:label=PPO": "no file or directory 'nowhere'",
    "a\0b": r"no file or directory 'a\x00b'",
    "plain:labl=PPO": "unknown option of 'plain': 'labl'; did you mean 'label'?",
    "plain:lr=0.1": "unknown option of 'plain': 'lr'; known: frames, game",
    "plain:label=": "option 'label' cannot be ''",
    "plain:label=a\nb": r"option 'label' cannot be 'a\nb'; allowed: printable text",
    "plain:label=" + "x" * 81: "allowed: up to 80 characters",
    "plain:label=a:label=b": "option 'label' of 'plain' is given twice",
    "plain:frames=0": "option 'frames' cannot be '0'; allowed: an integer from 1 to 1000",
    "plain:frames=four": "option 'frames' cannot be 'four'",
    "plain:frames=" + "9" * 5000: "option 'frames' cannot be",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_source_is_one_line(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plain").mkdir()
    assert WRONG[text] in refused(text)


def test_what_nobody_recognises_is_told_what_would_be(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("PPO was better\n")
    os.mkfifo(tmp_path / "events.out.tfevents.1")
    empty, text, fifo = (
        refused(str(tmp_path / name)) for name in ("empty", "notes.txt", "events.out.tfevents.1")
    )
    assert "is an empty directory" in empty
    assert "is nothing that is recognised" in text
    assert "is neither a file nor a directory" in fifo
    for message in (empty, text, fifo):
        assert all(reader.title in message and reader.form in message for reader in READERS)


def test_a_folder_of_experiments_is_not_taken_for_event_files(tmp_path: Path) -> None:
    made = synthetic.experiment(tmp_path / "ppo-cartpole", ("complete",), epochs=5)
    (made.run(0).tensorboard).mkdir()
    (made.run(0).tensorboard / "events.out.tfevents.1").write_bytes(b"")
    assert "is no study, but has experiments: name them" in refused(str(tmp_path))
    assert [entry.label for entry in read(str(tmp_path / "ppo-cartpole"))] == ["ppo"]


def test_an_option_of_another_reader_is_refused(tmp_path: Path) -> None:
    synthetic.experiment(tmp_path, ("complete",), epochs=5)
    message = refused(f"{tmp_path}:tag=charts/episodic_return")
    assert message.startswith(f"unknown option of our experiments and studies ({tmp_path}): 'tag'")


def test_every_option_belongs_to_a_reader() -> None:
    assert {name for reader in READERS for name in reader.options} == set(OPTIONS)


def test_links_to_folders_are_not_followed(tmp_path: Path) -> None:
    run = tmp_path / "logs" / "run"
    run.mkdir(parents=True)
    header = '#{"t_start": 0.0, "env_id": "CartPole-v1"}\nr,l,t\n'
    (run / "monitor.csv").write_text(header + "1.0,1,0.5\n")
    (tmp_path / "logs" / "again").symlink_to(run)
    (run / "loop").symlink_to(tmp_path)
    (entry,) = read(f"{tmp_path / 'logs'}:label=PPO")
    assert [one.name for one in entry.runs] == ["run"]


def test_ids_of_the_same_game_have_its_short_name_and_other_versions_do_not() -> None:
    ids = ["Hopper-v5", "Hopper-v4", "ALE/Breakout-v5", "BreakoutNoFrameskip-v4", "CartPole-v1"]
    assert [short_name(one) for one in ids] == [
        "hopper",
        "Hopper-v4",
        "breakout",
        "BreakoutNoFrameskip-v4",
        "cartpole",
    ]
    assert short_name("breakout") == "breakout"


ATARI = ["breakout", "BreakoutNoFrameskip-v4", "ALE/Pong-v5", "PongDeterministic-v4", "Pong-v0"]
NOT_ATARI = ["cartpole", "CartPole-v1", "MinAtar/Breakout-v1", "FrozenLake-v0", "a.b:Breakout-v4"]


def test_only_atari_needs_to_be_told_how_many_frames_a_step_is(tmp_path: Path) -> None:
    assert [one for one in [*ATARI, *NOT_ATARI] if is_atari(one)] == ATARI
    silent = Source(path=tmp_path, options={})
    assert frames_of(silent, "cartpole") == 1
    with pytest.raises(BadInput, match="say it, frames=4 for most trainings"):
        frames_of(silent, "BreakoutNoFrameskip-v4")
    assert frames_of(Source(path=tmp_path, options={"frames": "4"}), "breakout") == 4


def test_folders_of_cleanrl_say_the_label_and_the_game() -> None:
    assert of_cleanrl(Path("runs/Hopper-v4__ppo_continuous_action__1__1700000000")) == Named(
        "ppo_continuous_action", "Hopper-v4"
    )
    assert of_cleanrl(Path("runs/ALE/Breakout-v5__c51__2__1700000000")) == Named(
        "c51", "ALE/Breakout-v5"
    )
    assert of_cleanrl(Path("runs/PPO_1")) == Named("", "")


def test_numbers_in_names_are_sorted_as_numbers() -> None:
    assert sorted(["run_10", "run_2", "1", "b"], key=natural) == ["1", "b", "run_2", "run_10"]
