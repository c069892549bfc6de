"""Whole experiments on a real Slurm: the same bytes as on this machine, GPUs for trainings alone, every
topology, a study."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path

import pytest

from config.study import read_study
from steps.directory.search import SearchDirectory
from steps.search.journal import Journal
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


@pytest.mark.parametrize(
    "algorithm, game", [("r2d2", "cartpole-no-velocity"), ("async-sac", "pendulum")]
)
def test_replayed_experience_of_two_actors(tmp_path: Path, algorithm: str, game: str) -> None:
    given = parameters(game=game, runs=2, actors=2, epochs=3, evaluation_episodes=2, outdir="x")
    succeeded(tmp_path, algorithm, *given, "--name", f"t-{algorithm}")
    assert "<h2>Complete</h2>" in (tmp_path / "x/report.html").read_text()
    jobs = cluster.jobs(f"t-{algorithm}-")
    with_gpus = [job.name for job in jobs if job.has_gpu]
    assert len(with_gpus) == 2 and all(
        re.match(rf"t-{algorithm}-train-\d+\.", name) for name in with_gpus
    ), "the learners"


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


SEARCH = """\
outdir: results/search
runs: 1
algorithms:
  - {ppo: {epochs: 8, num_envs: 2, rollout_length: 32, minibatches: 2, update_epochs: 1}}
games: [cartpole]
parameters: {evaluation_episodes: 2, video_episodes: 0}
search:
  parameters: {learning_rate: {low: 1e-4, high: 1e-2, scale: log}}
  trials: 4
  parallel: 2
  prune: {rungs: [0.5, 1.0], reduction: 2}
  then: {best: 1, runs: 1, seed: 1000}
"""


def test_a_search(tmp_path: Path) -> None:
    """The proposals are random, from what has ended: so the trials are counted, not compared."""
    (tmp_path / "search.yaml").write_text(SEARCH)
    succeeded(tmp_path, "search.yaml", "--name", "t-search", timeout_s=850)
    directory = SearchDirectory(tmp_path / "results/search")
    search = read_study(directory.study_yaml.read_text(), "study.yaml").search
    assert search is not None
    trials = Journal(directory, search, higher_is_better=True).trials()
    assert len(trials) == 4 and all(one.has_ended for one in trials)
    assert (directory.root / "report.html").is_file()


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
