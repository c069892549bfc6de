"""Recorded games: what their lines mean, and a network that begins with them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from agents.algorithms.alphazero import AlphaZeroTrainer
from agents.games.named import load_game
from agents.selfplay.positions import read_games, refusal, unpacked_states
from config.errors import BadInput
from config.resolve import resolve
from tests.outside import ROOT, outside

GAME = load_game("tic-tac-toe")
GAMES = """
# X wins by the left column; O by the middle one; a draw
0 1 3 4 6
0 1 2 4 3 7   # a comment
0 1 2 4 3 5 7 6 8
"""


def test_every_position_has_what_was_done_and_how_it_ended_for_its_mover() -> None:
    rows = read_games(GAMES, GAME)
    assert refusal(GAME, rows) == ""
    states = unpacked_states(GAME, rows["state"])
    assert len(states) == 5 + 6 + 9
    stones = np.count_nonzero(states["cells"], axis=1)
    assert rows["full"].all()
    # The three games ply by ply: all begin in the corner, then X wins, O wins, nobody does.
    assert rows["policy"].argmax(axis=1)[:6].tolist() == [0, 0, 0, 1, 1, 1]
    assert rows["value"][:6].tolist() == [1, -1, 0, -1, 1, 0]
    assert stones[-3:].tolist() == [6, 7, 8]
    assert rows["value"][-3:].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "there is no game in it"),
        ("# nothing", "there is no game in it"),
        ("0 1 3 4 6\n0 1 0", "line 2: action 0 at ply 3 is not legal"),
        ("0 1 3 4 6 8", "line 1: action 8 at ply 6 is not legal"),
        ("0 1 9", "line 1: action 9 at ply 3 is not legal"),
        ("\n0 1 3", "line 2 does not play its game to the end"),
        ("0 one", "line 1 is '0 one'; allowed: actions' numbers"),
        ("0 -1", "line 1 is '0 -1'; allowed: actions' numbers"),
    ],
)
def test_a_line_that_is_no_game_is_named(text: str, why: str) -> None:
    with pytest.raises(BadInput) as refused:
        read_games(text, GAME)
    assert str(refused.value).startswith(why)


def test_a_network_that_has_seen_games_plays_as_their_players_did() -> None:
    """Who always begins in the middle; without them it does not."""
    rows = read_games("4 0 2 6 3 5 1 7 8\n4 1 0 8 3 5 6", GAME)
    given = {"game": "tic-tac-toe", "blocks": "0", "channels": "8", "imitation_updates": "150"}
    trainer = AlphaZeroTrainer(
        resolve("alphazero", given), run=0, device="cpu", precision="fp32"
    )  # fmt: skip
    start = torch.from_numpy(GAME.encode(GAME.start(1)))

    def likes_the_middle() -> float:
        return float(trainer.average.eval()(start)[0].softmax(dim=1)[0, 4].detach())

    before = likes_the_middle()
    assert len(list(trainer.imitate(rows))) == 150
    assert before < 0.5 < 0.9 < likes_the_middle()
    assert (trainer.updates, trainer.measured, trainer.window.added) == (0, [], 0)


@pytest.mark.slow
def test_prepare_plays_the_games_and_refuses_a_file_that_holds_none(tmp_path: Path) -> None:
    games = tmp_path / "games.txt"

    def prepare() -> str:
        words = ["-m", "steps.prepare", "--algorithm", "alphazero", "-p=game=tic-tac-toe"]
        places = [f"-p=outdir={tmp_path / 'out'}", f"-p=imitate={games}"]
        ended = subprocess.run(
            [sys.executable, *words, *places], cwd=ROOT, env=outside(), text=True, check=False,
            capture_output=True,
        )  # fmt: skip
        return f"{ended.returncode} {ended.stderr.strip()}"

    assert "No such file" in prepare()
    games.write_text("0 1 0\n")
    assert prepare().startswith("2 prepare: parameter 'imitate' cannot be")
    assert prepare().endswith("line 1: action 0 at ply 3 is not legal")
    assert [path.name for path in tmp_path.iterdir()] == ["games.txt"]
    games.write_text(GAMES)
    assert prepare().startswith("0")
