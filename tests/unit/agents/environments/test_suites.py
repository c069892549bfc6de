"""The games of suites: MuJoCo's files and warnings, MiniGrid's texts, packages that are missing."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from agents.environments.games import make_environment
from config import suites
from config.errors import BadInput
from config.games import find_game
from config.resolve import resolve
from config.suites import ENVPOOL, SUITES, check_installed

ROOT = Path(__file__).resolve().parents[4]
MAKE = """
from agents.environments.games import make_environment
from config.resolve import resolve
for game in ("halfcheetah", "humanoid"):
    resolved = resolve("ppo", {"game": game})
    make_environment(resolved.game, resolved.environment).close()
"""


def test_a_warning_of_mujoco_is_printed_once_and_leaves_no_file(tmp_path: Path) -> None:
    """By itself MuJoCo writes MUJOCO_LOG.TXT where it runs: in a person's own folder."""
    ended = subprocess.run(
        [sys.executable, "-c", MAKE],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    warned = [line for line in ended.stdout.splitlines() if line.startswith("MuJoCo warns: ")]
    assert warned, "one of these models has an attribute that is deprecated"
    assert len(set(warned)) == len(warned)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(importlib.util.find_spec("minigrid") is None, reason="MiniGrid is missing")
def test_minigrid_is_seen_without_its_text(capsys: pytest.CaptureFixture[str]) -> None:
    resolved = resolve("ppo", {"game": "MiniGrid-MultiRoom-N6-v0"})
    environment = make_environment(resolved.game, resolved.environment)
    observation, _ = environment.reset(seed=0)
    environment.close()
    assert observation.shape == (7 * 7 * 3 + 4,)
    assert "observations of MiniGrid-MultiRoom-N6-v0: " in capsys.readouterr().out
    assert np.count_nonzero(observation) > 4


@pytest.mark.parametrize("suite", (*SUITES[1:], ENVPOOL), ids=lambda suite: suite.name)
def test_a_missing_package_is_named(suite: suites.Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    game = next(iter(find_game(name) for name in EXAMPLES[suite.name]))
    for name in suite.modules:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BadInput, match=r"it needs the package \S+, which is not installed; ") as no:
        check_installed(game.name, game.id)
    assert f"pip install {suite.install}" in str(no.value)


EXAMPLES = {
    "mujoco": ("hopper", "Hopper-v4"),
    "minatar": ("minatar-freeway", "MinAtar/Freeway-v0"),
    "minigrid": ("minigrid-empty", "BabyAI-GoToLocal-v0"),
    "dm_control": ("cheetah-run", "dm_control/hopper-hop-v0"),
    "envpool": ("envpool:Pong-v5", "envpool:MetaWorld/DoorOpen-v3"),
}
"""Of each suite a game with a short name and one without, which envpool's all are."""


@pytest.mark.parametrize("name", [name for names in EXAMPLES.values() for name in names])
def test_every_id_of_a_suite_belongs_to_it(name: str) -> None:
    suite = suites.suite_of(find_game(name).id)
    assert suite is not None and name in EXAMPLES[suite.name]
