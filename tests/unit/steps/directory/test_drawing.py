"""How a game's pictures are drawn on a machine without a display is found by trying, in processes of their
own."""

from __future__ import annotations

import os
from typing import Any

import pytest

from config.resolve import resolve
from steps.directory import elsewhere
from steps.directory.elsewhere import Drawing, drawn_elsewhere


def drawn(game: str) -> Drawing:
    return drawn_elsewhere(resolve("ppo", {"game": game}))


@pytest.mark.parametrize("game", ["cartpole", "breakout", "lunarlander"])
def test_games_that_need_no_opengl_need_no_trial(
    game: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elsewhere, "_ask", None)
    assert drawn(game) == Drawing({})


def test_the_first_way_that_draws_is_taken() -> None:
    assert drawn("tests.lab_environments:Crashing") == Drawing({"MUJOCO_GL": "osmesa"})
    assert "MUJOCO_GL" not in os.environ or os.environ["MUJOCO_GL"], "it is the caller's to set"


def test_what_a_person_has_chosen_is_tried_first(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = list[str]()

    def ask(resolved: Any, wanted: str, timeout_s: float, variables: Any) -> tuple[int, str]:
        tried.append(variables["MUJOCO_GL"])
        return 0, wanted if variables["MUJOCO_GL"] == "osmesa" else ""

    monkeypatch.setattr(elsewhere, "_ask", ask)
    monkeypatch.setenv("MUJOCO_GL", "glfw")
    assert drawn("hopper").variables == {"MUJOCO_GL": "osmesa"}
    assert tried == ["glfw", "egl", "osmesa"]


def test_where_no_way_draws_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """As MuJoCo says where the libraries are missing; the two ways fail differently."""
    monkeypatch.setattr(elsewhere, "GRAPHICS", ("nothing", "neither"))
    refused = drawn("hopper").refused or ""
    assert refused.startswith("'hopper' cannot be drawn on this machine")
    assert (
        "apt-get install libegl1 libgl1 (or libosmesa6), and run play again (nothing: " in refused
    )
    assert refused.isprintable() and len(refused) < 600


def test_a_game_that_draws_nothing_is_not_told_to_install_a_library() -> None:
    refused = drawn("tests.lab_environments:Blind").refused or ""
    assert "gives no images: render() returned NoneType" in refused
    assert "apt-get" not in refused


def test_the_last_words_of_a_process_that_crashed_are_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As envpool's, whose MuJoCo ends the process where it finds no OpenGL."""
    monkeypatch.setattr(elsewhere, "GRAPHICS", ("egl",))
    refused = drawn("tests.lab_environments:Crashing").refused
    assert refused == "the process ended with -6: 'no context was made'"
