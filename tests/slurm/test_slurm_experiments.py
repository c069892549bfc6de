"""Whole experiments on a real Slurm: the same bytes as on this machine, GPUs for trainings alone, every
topology, a study."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import pytest

from tests.slurm import cluster
from tests.slurm.cluster import SMALL, parameters
from tests.study_runs import TINY

CARTPOLE = parameters(game="cartpole", runs=3, epochs=8, evaluation_episodes=3)
ON_SLURM = ["--slurm", "--cluster", str(SMALL)]
COMPARED = ["runs/*/train.csv", "runs/*/evaluation.csv", "average/*.csv"]


def compared(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for pattern in COMPARED
        for path in sorted(folder.glob(pattern))
    }


def succeeded(folder: Path, *words: str, timeout_s: float = 600) -> str:
    code, out = cluster.run(folder, *words, *ON_SLURM, timeout_s=timeout_s)
    assert code == 0 and "Succeeded in" in out, out[-4000:]
    return out


def test_three_runs_of_ppo_as_on_this_machine(tmp_path: Path) -> None:
    succeeded(tmp_path, "ppo", *CARTPOLE, "--name", "t-ppo", *parameters(outdir="there"))
    code, out = cluster.run(tmp_path, "ppo", "--local", *CARTPOLE, *parameters(outdir="here"))
    assert code == 0, out[-2000:]
    here = compared(tmp_path / "here")
    assert len(here) == 3 + 3 + 2 and here == compared(tmp_path / "there")
    assert "<h2>Complete</h2>" in (tmp_path / "there/report.html").read_text()
    jobs = cluster.jobs("t-ppo-")
    assert all(job.state == "COMPLETED" for job in jobs)
    trainings = [job for job in jobs if job.has_gpu]
    assert len(trainings) == 3 and all("t-ppo-train-" in job.name for job in trainings)
    assert all(job.fields["Partition"] == "gpu" for job in trainings)
    for one, other in combinations(trainings, 2):
        apart = (
            one.fields["EndTime"] <= other.fields["StartTime"]
            or other.fields["EndTime"] <= one.fields["StartTime"]
        )
        assert apart or one.fields["NodeList"] != other.fields["NodeList"], "a GPU given twice"


def test_impala_with_two_runs_of_three_actors(tmp_path: Path) -> None:
    given = parameters(game="cartpole", runs=2, actors=3, epochs=4, outdir="impala")
    succeeded(tmp_path, "impala", *given, "--name", "t-impala")
    for run in range(2):
        assert (tmp_path / f"impala/runs/{run}/videos/episode-0.mp4").stat().st_size > 1000
    actors = [job for job in cluster.jobs("t-impala-") if "-train-actor-" in job.name]
    assert len(actors) >= 6 and not any(job.has_gpu for job in actors)


def test_alphazero(tmp_path: Path) -> None:
    given = parameters(
        game="connect-four", workers=2, simulations=16, cheap_simulations=4, evaluation_simulations=8,
        evaluation_episodes=4, generation_positions=500, learning_starts=250, window=5000, batch_size=64,
        blocks=1, channels=16, epochs=2, outdir="self-play",
    )  # fmt: skip
    succeeded(tmp_path, "alphazero", *given, "--name", "t-self-play")
    assert (tmp_path / "self-play/report.html").is_file()


def test_a_study(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(TINY)
    succeeded(tmp_path, "study.yaml", "--name", "t-study")
    cells = sorted(path.name for path in (tmp_path / "results/tiny/experiments").iterdir())
    assert len(cells) == 4 and (tmp_path / "results/tiny/report.html").is_file()


def test_a_dry_run_says_when_jobs_could_start(tmp_path: Path) -> None:
    code, out = cluster.run(tmp_path, "ppo", *ON_SLURM, "--dry-run", *CARTPOLE)
    assert code == 0 and "in partition gpu" in out and "in partition cpu" in out
    assert [*tmp_path.iterdir()] == [] and cluster.queued() == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"gpu": {"partition": "fast"}}, "invalid partition"),
        ({"gpu": {"partition": "gpu", "gres": "gpu:h100"}}, "node configuration is not available"),
        ({"cpu": {"constraint": "huge"}}, "nvalid feature"),
        ({"gpu": {"partitoin": "gpu"}}, "did you mean 'slurm.gpu.partition'"),
        ({"max_job": 3}, "did you mean 'slurm.max_jobs'"),
        ({"python": "/no/such/python"}, "there is no such file"),
        ({"cpu": {"options": ["--array=0-9"]}}, "allowed: an option of sbatch"),
        ({"cpu": {"time_limit": "1:00"}}, "'slurm.warning' cannot be 120"),
    ],
)
def test_bad_settings_are_refused_in_one_line(
    tmp_path: Path, settings: dict[str, object], said: str
) -> None:
    profile = tmp_path / "profile.yaml"
    profile.write_text(json.dumps({"slurm": settings}))
    words = ["ppo", "--slurm", "--cluster", str(profile), *parameters(game="cartpole", outdir="x")]
    code, out = cluster.run(tmp_path, *words, "--dry-run")
    assert code == 2 and out.startswith("refused: ") and out.count("\n") == 1, out
    assert said in out
    assert cluster.queued() == [] and not (tmp_path / "x").exists()
