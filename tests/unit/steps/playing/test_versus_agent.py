"""A person plays against an agent of self-play, by its directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from steps import versus
from tests import arena_runs, synthetic


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return arena_runs.experiment(tmp_path_factory.mktemp("x") / "x", runs=2).root


def test_the_game_is_the_agent_s_own(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both runs answer, each by its own network; help says what the agent thinks."""
    told = []
    for run in (0, 1):
        lines = iter(["h", *map(str, range(9)), *map(str, range(9))])
        monkeypatch.setattr("builtins.input", lambda prompt="", lines=lines: next(lines))
        assert versus.main([f"--opponent={trained}:{run}", "--seed=3"]) == 0
        told.append(capsys.readouterr().out)
    assert all("%" in said for said in told) and told[0] != told[1]
    ends = [said.strip().splitlines()[-1] for said in told]
    assert all("win" in end or "won" in end or "draw" in end for end in ends), ends


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    {
        ("--opponent={root}:2",): "it has the runs 0 to 1",
        ("--opponent={root}:one",): "cannot be; allowed: DIRECTORY[:run]",
        ("--opponent={root}", "--game=othello6"): "it plays 'tic-tac-toe', not 'othello6'",
        ("--opponent={root}/nothing",): "holds no experiment",
        ("--opponent={root}/../untrained",): "no final checkpoint",
        ("--opponent=random",): "--game is missing",
    }.items(),
)
def test_what_cannot_be_played_against_is_one_line(
    trained: Path, arguments: list[str], wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    untrained = trained.parent / "untrained"
    if not untrained.exists():
        directory = arena_runs.experiment(untrained)
        resolved = synthetic.resolved_of(directory)
        directory.run(0).checkpoint(resolved.total_steps).rename(untrained / "kept")
        (directory.run(0).status / "train.json").unlink()
    given = [
        one.format(root=trained).replace(f"{trained}/..", str(trained.parent)) for one in arguments
    ]
    assert versus.main(given) == 2
    said = capsys.readouterr().err
    assert wrong in said and said.count("\n") == 1
