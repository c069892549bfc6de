"""A package that nothing here knows of, through the whole pipeline; killed and
submitted again it ends with the bytes of an undisturbed training."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.outside import ROOT, outside
from tests.waiting import PATIENCE_S, until

STRANGER = ROOT / "tests" / "stranger"
SMALL = {"game": "cartpole", "runs": "2", "epochs": "60", "rollout_length": "128"}


REINFORCE = "my_lab.reinforce:ALGORITHM"


def submit(outdir: Path, algorithm: str = REINFORCE, **changed: str) -> subprocess.Popen[str]:
    """Where the stranger stands: beside the package."""
    given = (SMALL if algorithm == REINFORCE else {}) | changed | {"outdir": str(outdir)}
    command = [sys.executable, "-m", "workflows.submit", algorithm, "--local"]
    return subprocess.Popen(
        [*command, *(f"-p={name}={value}" for name, value in given.items())],
        cwd=STRANGER, env=outside(), text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def finish(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, output
    return output


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_algorithm_by_import_path_reaches_its_report_with_the_same_bytes(tmp_path: Path) -> None:
    finish(submit(tmp_path / "undisturbed"))
    killed = submit(tmp_path / "killed")
    checkpoints = tmp_path / "killed" / "runs" / "0" / "checkpoints"
    until(lambda: list(checkpoints.glob("0*")), killed)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert not (tmp_path / "killed" / "report.html").exists()
    finish(submit(tmp_path / "killed"))
    for run in ("0", "1"):
        for name in ("train.csv", "evaluation.csv"):
            undisturbed, again = (
                (tmp_path / outdir / "runs" / run / name).read_bytes()
                for outdir in ("undisturbed", "killed")
            )
            assert again == undisturbed, (run, name)
    page = (tmp_path / "killed" / "report.html").read_text(encoding="utf-8")
    assert "<h1>REINFORCE <span>on" in page
    assert "rollout_length" in page


@pytest.mark.slow
def test_an_environment_with_a_mask_behind_wrappers_reaches_its_report(tmp_path: Path) -> None:
    """Dict observations, a mask whose neglect raises, options, a wrapper with arguments, a network of
    the lab's own, a film."""
    outdir = tmp_path / "maze"
    finish(
        submit(
            outdir, "ppo", game="my_lab.envs:Maze", env_options="size=5", epochs="4",
            wrappers="my_lab.wrappers:within_fifty_steps,my_lab.wrappers:Impatient",
            network="my_lab.nets:Residual",
            rollout_length="32", minibatches="4", update_epochs="1", evaluation_episodes="3",
        )
    )  # fmt: skip
    rows = (outdir / "runs" / "0" / "evaluation.csv").read_text().splitlines()[1:]
    assert len(rows) == 3
    assert all(int(row.split(",")[3]) <= 50 for row in rows), "the time limit of the wrapper"
    assert (outdir / "runs" / "0" / "videos" / "episode-0.mp4").is_file()
    assert (outdir / "report.html").is_file()


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        pytest.param({"clip": "0.2"}, "unknown parameter 'clip'", marks=pytest.mark.slow),
        pytest.param(
            {"rollout_length": "1"},
            "'rollout_length' cannot be '1'; allowed: an integer from 2",
            marks=pytest.mark.slow,
        ),
        ({"game": "pendulum"}, "my_lab.reinforce:ALGORITHM cannot play pendulum: the game's"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(
    changed: dict[str, str], line: str, tmp_path: Path
) -> None:
    refused = submit(tmp_path / "refused", **changed)
    output, _ = refused.communicate(timeout=PATIENCE_S)
    assert refused.returncode == 2, output
    assert line in output.splitlines()[-1]
    assert not (tmp_path / "refused").exists()
