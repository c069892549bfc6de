"""What a trainer of self-play learns from: the window, its rows, their symmetries."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from agents.games.named import load_game
from agents.selfplay.positions import (
    Symmetries,
    Window,
    columns_of,
    packed_states,
    refusal,
    unpacked_states,
)
from config.algorithms.alphazero import AlphaZero

GAME = load_game("connect-four")


def rows(count: int, first: int = 0) -> dict[str, np.ndarray]:
    """Of which each is told apart by its generation."""
    found = {
        name: np.zeros((count, *shape), dtype) for name, (dtype, shape) in columns_of(GAME).items()
    }
    found["generation"] += np.arange(first, first + count)
    found["legal"][:] = True
    found["policy"][:, 3] = 1
    found["full"][::2] = True
    return found


def test_the_window_of_katago() -> None:
    """c (1 + β ((N / c)^α − 1) / α) with c = 20 000, α = .75, β = .4: N = 16 c gives 4.7333 c."""
    hyper = AlphaZero()
    assert hyper.window_of(320_000) == pytest.approx(4.7333 * 20_000, abs=1)
    assert hyper.window_of(20_000) == 20_000
    assert hyper.window_of(7) == 7
    assert dataclasses.replace(hyper, window_growth=0.0).window_of(10**7) == 20_000


def test_the_window_holds_the_last_rows_and_no_others() -> None:
    window, generator = Window(GAME), np.random.default_rng(0)
    expected = list[int]()
    added, size = 0, 0
    for count in (5, 40, 3, 100, 1, 64, 64, 64):
        size = max(size, count, 60)
        window.add(rows(count, added), size)
        added += count
        expected = (expected + list(range(added - count, added)))[-size:]
        assert len(window) == len(expected)
        assert window.added == added
        drawn = set(window.sample(4000, generator)["generation"].tolist())
        assert drawn == set(expected)


def test_all_positions_of_the_window_are_drawn_alike_also_by_few_draws() -> None:
    window, generator = Window(GAME), np.random.default_rng(0)
    window.add(rows(100), 100)
    drawn = [window.sample(5, generator)["generation"] for _ in range(100)]
    assert np.mean(drawn) == pytest.approx(49.5, abs=6)


def test_what_has_grown_is_told_once_and_brings_the_window_back() -> None:
    window = Window(GAME)
    told = list[dict[str, np.ndarray]]()
    for first in range(0, 300, 30):
        window.add(rows(30, first), 100)
        if first % 60:
            told.append(window.grown())
    of_all = np.concatenate([part["generation"] for part in told])
    assert of_all.tolist() == list(range(300))
    assert len(window.grown()["generation"]) == 0
    again = Window(GAME)
    kept = [{name: column[-100:] for name, column in rows(300).items()}]
    again.load(iter(kept), 300)
    assert (len(again), again.added) == (100, 300)
    assert len(again.grown()["generation"]) == 0
    drawn = again.sample(3000, np.random.default_rng(0))["generation"]
    assert (drawn.min(), drawn.max()) == (200, 299)


def test_equal_positions_are_counted_once() -> None:
    window = Window(GAME)
    states = GAME.play(GAME.start(4), np.array([0, 1, 1, 3]))
    some = rows(4) | {"state": packed_states(states)}
    window.add(some, 100)
    assert window.unique_share() == 0.75


def test_a_position_comes_back_from_its_row() -> None:
    states = GAME.play(GAME.start(3), np.array([0, 3, 6]))
    assert np.array_equal(unpacked_states(GAME, packed_states(states)), states)


@pytest.mark.parametrize(
    ("column", "change", "why"),
    [
        ("policy", lambda one: one * np.nan, "a policy that is negative, not finite"),
        ("policy", lambda one: -one, "a policy that is negative"),
        ("policy", lambda one: one * 2, "does not sum to 1"),
        ("legal", lambda one: one & False, "a position without a legal action"),
        ("value", lambda one: one + 2, "a value beyond"),
        ("value", lambda one: one + np.float32(np.nan), "a value beyond"),
        ("value", lambda one: one.astype(np.float64), "value of float64"),
        ("state", lambda one: one[:, :3], r"state of uint8 \[4, 3\]"),
        ("full", lambda one: one[:2], r"full of bool \[2\]"),
    ],
)
def test_rows_that_cannot_be_learnt_from_are_refused(column, change, why) -> None:  # type: ignore[no-untyped-def]
    good = rows(4)
    assert refusal(GAME, good) == ""
    assert re.search(why, refusal(GAME, good | {column: change(good[column])}))


def test_rows_of_other_columns_or_none_are_refused() -> None:
    good = rows(4)
    assert "columns" in refusal(GAME, {name: good[name] for name in ("state", "value")})
    assert refusal(GAME, rows(0)) == "no position"


@pytest.mark.parametrize("name", ["tic-tac-toe", "connect-four", "othello6"])
def test_a_symmetry_turns_board_and_policy_together(name: str) -> None:
    """Played in the turned position, the turned action leads to the turned successor."""
    game = load_game(name)
    symmetries, generator = Symmetries(game), np.random.default_rng(0)
    actions = np.arange(game.actions)
    states = game.start(len(symmetries))
    which = np.arange(len(symmetries))
    for _ in range(4):
        planes, legal = game.encode(states), game.legal(states)
        turned = symmetries.of_planes(planes, which)
        for row, symmetry in enumerate(game.symmetries()):
            cells = planes[row].reshape(planes.shape[1], -1)
            slow = np.stack([[plane[cell] for cell in symmetry.board] for plane in cells])
            assert np.array_equal(turned[row], slow.reshape(planes.shape[1:]))
            expected = np.array([legal[row][symmetry.actions[action]] for action in actions])
            assert np.array_equal(symmetries.of_actions(legal, which)[row], expected)
        assert np.array_equal(symmetries.of_planes(planes, which * 0), planes)
        chosen = np.array([generator.choice(np.flatnonzero(one)) for one in legal])
        states = game.play(states, chosen)
