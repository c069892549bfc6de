"""The code on the pages of docs/ works as it stands there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from agents.checks.environment_checks import EnvironmentChecks
from agents.checks.promises import tried
from agents.evaluation.episodes import evaluate
from agents.evaluation.rendering import Replay
from agents.load import load_policy, make_trainer
from config.resolve import resolve
from workflows import submit

DOCS = Path(__file__).resolve().parents[3] / "docs"


def block(language: str, page: str = "own-environment.md") -> str:
    """The first block of this language on the page."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.search(rf"```{language}\n(.*?)```", text, re.DOTALL)
    assert found
    return found[1]


def test_the_tutorial_s_environment_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "line.py").write_text(block("python", "tutorial.md"))
    monkeypatch.syspath_prepend(tmp_path)
    resolved = resolve("ppo", {"game": "line:Line", "env_options": "length=15"})
    checks = EnvironmentChecks(resolved).all()
    del checks["speed"]  # a second
    findings = list(tried(checks))
    assert [finding for finding in findings if not finding.kept] == []


def test_the_changed_loss_is_learnt_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a heavy penalty the policy moves less in its first epoch than with none."""
    (tmp_path / "my_ppo.py").write_text(block("python", "own-algorithm.md"))
    monkeypatch.syspath_prepend(tmp_path)
    given = {"game": "cartpole", "epochs": "1", "num_envs": "2", "rollout_length": "64"}
    given |= {"minibatches": "4", "update_epochs": "4", "learning_rate": "0.001"}

    def divergence(coefficient: str) -> float:
        resolved = resolve("my_ppo:ALGORITHM", given | {"kl_coefficient": coefficient})
        trainer = make_trainer(resolved, run=0, device="cpu", precision="fp32")
        (progress,) = trainer.train()
        trainer.close()
        return float(progress.metrics["approximate_kl"])

    assert divergence("100") < 0.5 * divergence("0")


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
