"""Every kind of environment, registered or a user's own: trains, resumes exactly in a new process,
evaluates."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from agents.evaluation.episodes import evaluate
from agents.evaluation.rendering import Replay
from agents.interfaces import State
from agents.load import load_policy, make_trainer
from config.games import own_presets
from config.resolve import Resolved, resolve

SHORT = {
    "num_envs": "2",
    "rollout_length": "32",
    "update_epochs": "1",
    "minibatches": "2",
    "epochs": "5",
}
OWN = (
    "tests.own_games:Picture",
    "tests.own_games:Square",
    "tests.own_games:Registered-v0",
    "FrozenLake-v1",
)
HAS_BOX2D = importlib.util.find_spec("Box2D") is not None  # it has no wheel for Python 3.14
GAMES = (*(game for game in own_presets() if not game.startswith("lunarlander") or HAS_BOX2D), *OWN)


def short(game: str) -> Resolved:
    return resolve("ppo", {"game": game, **SHORT})


def flat(state: State, path: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in state.items():
        found |= flat(value, f"{path}{name}/") if isinstance(value, dict) else {path + name: value}
    return found


def nested(leaves: dict[str, Any]) -> State:
    state: State = {}
    for path, value in leaves.items():
        *parents, name = path.split("/")
        place = state
        for parent in parents:
            place = place.setdefault(parent, {})
        place[name] = value
    return state


def digest(state: State) -> str:
    """Of every bit of the state."""
    found = hashlib.sha256()
    for path, value in sorted(flat(state).items()):
        found.update(
            path.encode()
            + (value.tobytes() if isinstance(value, np.ndarray) else json.dumps(value).encode())
        )
    return found.hexdigest()


def save(folder: Path, state: State) -> None:
    leaves = flat(state)
    save_file(
        {path: value for path, value in leaves.items() if isinstance(value, np.ndarray)},
        folder / "arrays.safetensors",
    )
    (folder / "rest.json").write_text(
        json.dumps(
            {path: value for path, value in leaves.items() if not isinstance(value, np.ndarray)}
        )
    )


def load(folder: Path) -> State:
    return nested(
        json.loads((folder / "rest.json").read_text()) | load_file(folder / "arrays.safetensors")
    )


def place(folder: Path, game: str) -> Path:
    return folder / str(GAMES.index(game))


def finish(folder: Path) -> None:
    """In a new process: continue every game from its saved state, and print what came out."""
    for game in GAMES:
        trainer = make_trainer(short(game), run=1, device="cpu", precision="fp32")
        trainer.load_state_dict(load(place(folder, game)))
        rows = [repr(one) for one in trainer.train()]
        trainer.close()
        print(json.dumps({"game": game, "rows": rows, "digest": digest(trainer.state_dict())}))


@pytest.fixture(scope="module")
def outcomes(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, tuple[list[str], str, list[str], str]]:
    """Game -> rows after epoch 3 and the final digest, undisturbed and resumed; one new process for
    all games."""
    folder = tmp_path_factory.mktemp("states")
    undisturbed: dict[str, tuple[list[str], str]] = {}
    for game in GAMES:
        place(folder, game).mkdir()
        trainer = make_trainer(short(game), run=1, device="cpu", precision="fp32")
        rows = []
        for one in trainer.train():
            rows.append(repr(one))
            if one.epoch == 3:
                save(place(folder, game), trainer.state_dict())
                assert set(one.metrics) >= {"policy_loss", "value_loss", "entropy"}
                assert one.frame == one.step * short(game).game.frames_per_step
        undisturbed[game] = rows[3:], digest(trainer.state_dict())
        trainer.close()
    root = Path(__file__).parents[2]
    command = [
        sys.executable,
        "-c",
        f"from tests.contract.test_agents_contract import *; finish(Path({str(folder)!r}))",
    ]
    finished = subprocess.run(
        command,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert finished.returncode == 0, finished.stderr
    answers = [json.loads(line) for line in finished.stdout.splitlines() if line.startswith("{")]
    return {one["game"]: (*undisturbed[one["game"]], one["rows"], one["digest"]) for one in answers}


@pytest.mark.parametrize("game", GAMES)
def test_a_training_resumes_exactly_in_a_new_process(
    game: str, outcomes: dict[str, tuple[list[str], str, list[str], str]]
) -> None:
    rows, state, resumed_rows, resumed_state = outcomes[game]
    assert len(rows) == 2
    assert resumed_rows == rows
    assert resumed_state == state


@pytest.mark.parametrize("game", GAMES)
def test_a_policy_acts_in_the_environment_s_own_terms(game: str) -> None:
    resolved = short(game)
    trainer = make_trainer(resolved, run=0, device="cpu", precision="fp32")
    policy = load_policy(resolved, trainer.state_dict())
    trainer.close()
    if resolved.game.kind == "atari":  # a beginner's whole episodes take minutes: see the next test
        return
    (episode,) = evaluate(policy, resolved, 0, 1, True)
    assert episode.length > 0 and np.isfinite(episode.return_)


def test_atari_film_shows_the_evaluated_episode() -> None:
    resolved = short("breakout")
    trainer = make_trainer(resolved, run=0, device="cpu", precision="fp32")
    policy = load_policy(resolved, trainer.state_dict())
    trainer.close()
    (episode,) = evaluate(policy, resolved, 0, 1, True)
    frames = list(Replay(resolved, episode.seed, episode.actions).frames())
    assert episode.return_ == int(episode.return_) >= 0
    assert 2 * episode.length - 1 <= len(frames) <= 2 * episode.length + 1
    assert frames[0].shape == (420, 320, 3) and frames[0].dtype == np.uint8
    assert len({frame.tobytes() for frame in frames}) > episode.length / 2
