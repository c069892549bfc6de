"""The environment of docs/own-environment.md works as it stands there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from agents.evaluation.episodes import evaluate
from agents.evaluation.rendering import Replay
from agents.load import load_policy, make_trainer
from workflows import submit

PAGE = Path(__file__).resolve().parents[3] / "docs/own-environment.md"


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    return found[1]


@pytest.mark.slow
def test_the_documented_environment_is_learnt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "maze.py").write_text(block("python"))
    (tmp_path / "my_presets.yaml").write_text(block("yaml"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ARGO_SERVER", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    command = shlex.split(block("sh"))
    assert command[:3] == ["python", "-m", "workflows.submit"]
    options = submit.parse([*command[3:], "-p", "outdir=results"])
    resolved = submit._checked(options, submit.load_cluster(None), local=True).resolved
    trainer = make_trainer(resolved, run=0, device="cpu", precision="fp32")
    list(trainer.train())
    trainer.close()
    policy = load_policy(resolved, trainer.state_dict())
    episodes = list(evaluate(policy, resolved, 0, 20, False))
    assert max(one.length for one in episodes) <= 6, "the shortest way from any corner"
    assert np.mean([one.return_ for one in episodes]) >= -5
    replay = Replay(resolved, episodes[0].seed, episodes[0].actions)
    assert len(list(replay.frames())) == episodes[0].length + 1
    assert replay.difference(episodes[0].return_, episodes[0].length) is None
