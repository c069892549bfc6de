"""What goes wrong on a real Slurm: the experiment ends with the same bytes, nothing is submitted twice and
nothing is lost."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.slurm import cluster
from tests.slurm.cluster import SMALL, parameters
from tests.slurm.test_slurm_experiments import ON_SLURM, compared

LONG = parameters(game="cartpole", runs=2, epochs=120, evaluation_episodes=3)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of the same experiment on this machine."""
    folder = tmp_path_factory.mktemp("undisturbed")
    code, out = cluster.run(folder, "ppo", "--local", *LONG, *parameters(outdir="x"))
    assert code == 0, out
    return compared(folder / "x")


def begin(folder: Path, name: str, *words: str) -> subprocess.Popen[str]:
    given = [*LONG, *parameters(outdir="x"), "--name", name]
    return cluster.start(folder, "ppo", *given, *(words or ON_SLURM))


def end(process: subprocess.Popen[str], timeout_s: float = 600) -> str:
    out, _ = process.communicate(timeout=timeout_s)
    assert process.returncode == 0 and "Succeeded in" in out, out[-4000:]
    return out


def training(folder: Path, name: str, run: int = 0) -> str:
    """The id of a training that has written its table."""
    table = folder / f"x/runs/{run}/train.csv"
    cluster.wait_for("a training", lambda: table.exists() and cluster.running(name, "train"))
    return cluster.running(name, "train")[0]


def test_a_job_cancelled_from_outside(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    process = begin(tmp_path, "t-cancelled")
    cluster.command("scancel", training(tmp_path, "t-cancelled"))
    end(process)
    assert compared(tmp_path / "x") == undisturbed
    links = [name for name in cluster.submissions("t-cancelled") if "-train-" in name]
    assert len(links) == len({*links}) >= 2, "a second attempt"


def test_a_job_that_is_requeued(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    """The same job begins again: it is one attempt, and no other is made."""
    process = begin(tmp_path, "t-requeued")
    job = training(tmp_path, "t-requeued")
    cluster.command("scontrol", "requeue", job)
    end(process)
    assert compared(tmp_path / "x") == undisturbed
    restarts = [job.fields["Restarts"] for job in cluster.jobs("t-requeued-train-")]
    assert sorted(restarts) == ["0", "1"]


def test_a_node_that_goes_down_and_comes_back(
    tmp_path: Path, undisturbed: dict[str, bytes]
) -> None:
    process = begin(tmp_path, "t-node")
    job = training(tmp_path, "t-node")
    node = cluster.command("squeue", "--noheader", f"--job={job}", "--format=%N").strip()
    try:
        down = ["scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test"]
        cluster.command(*down)
        time.sleep(5)
    finally:
        # It may have come back by itself (ReturnToService).
        cluster.command("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)
    end(process)
    assert compared(tmp_path / "x") == undisturbed


def test_a_controller_that_is_killed_for_twenty_seconds(
    tmp_path: Path, undisturbed: dict[str, bytes]
) -> None:
    up = Path(os.environ.get("SLURM", "")) / "up"
    if not up.is_file():
        pytest.skip("SLURM does not name the folder with the script `up`")
    process = begin(tmp_path, "t-controller")
    training(tmp_path, "t-controller")
    state = Path(os.environ["SLURM_CONF"]).parent
    os.kill(int((state / "run/slurmctld.pid").read_text()), signal.SIGKILL)
    time.sleep(20)
    cluster.command(str(up))
    out = end(process)
    assert "the queue cannot be read" in out or "is not submitted yet" in out
    assert compared(tmp_path / "x") == undisturbed
    made = cluster.submissions("t-controller")
    assert len(made) == len({*made})


def test_an_engine_killed_ten_times(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    """At random moments, while there is something to kill; then it goes on to the end."""
    moments = random.Random(36)
    current = tmp_path / "x/slurm/current"

    def has_ended() -> bool:
        return current.exists() and bool(json.loads(current.read_bytes())["ended"])

    kills = 0
    while kills < 10 and not has_ended():
        process = begin(tmp_path, "t-killed")
        assert process.stdout is not None and " on Slurm as " in process.stdout.readline()
        time.sleep(moments.uniform(0.0, 2.5))
        process.kill()
        process.communicate()
        kills += 1
    if not has_ended():
        end(begin(tmp_path, "t-killed"))
    assert kills >= 5
    assert compared(tmp_path / "x") == undisturbed
    made = cluster.submissions("t-killed")
    assert len(made) == len({*made}), "submitted twice"
    assert all(".0." in name for name in made) and len(cluster.jobs("t-killed")) == 14


def test_an_interrupt_saves_and_reports_and_the_same_request_goes_on(
    tmp_path: Path, undisturbed: dict[str, bytes]
) -> None:
    process = begin(tmp_path, "t-stopped")
    training(tmp_path, "t-stopped")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 130, out
    assert "stopped: " in out and "submit the same again to go on" in out
    assert (tmp_path / "x/report.html").is_file() and cluster.queued() == []
    end(begin(tmp_path, "t-stopped-2"))
    assert compared(tmp_path / "x") == undisturbed


def test_trainings_longer_than_the_time_limit(tmp_path: Path) -> None:
    """A limit of a minute: trainings go on in chains of jobs, and use no retry."""
    profile = tmp_path / "profile.yaml"
    profile.write_text(
        SMALL.read_text().replace("{partition: gpu}", "{partition: gpu, time_limit: '1:00'}")
        + "  warning: 20\n"
    )
    given = parameters(game="cartpole", runs=2, steps=2_000_000, evaluation_episodes=3, outdir="x")
    words = ["ppo", *given, "--name", "t-limit", "--slurm", "--cluster", str(profile)]
    code, out = cluster.run(tmp_path, *words, timeout_s=850)
    assert code == 0, out[-3000:]
    links = [name.split(".")[1] for name in cluster.submissions("t-limit-train-")]
    assert max(map(int, links)) >= 1 and "attempt 2" not in out


def test_an_evaluation_longer_than_the_time_limit_ends(tmp_path: Path) -> None:
    """It keeps nothing for its next job, so that it would go on for ever."""
    profile = tmp_path / "profile.yaml"
    settings = SMALL.read_text() + "  cpu: {time_limit: '1:00'}\n  warning: 20\n"
    profile.write_text(settings)
    given = parameters(game="acrobot", runs=1, epochs=2, evaluation_episodes=10_000, outdir="x")
    words = ["ppo", *given, "--name", "t-too-long", "--slurm", "--cluster", str(profile)]
    code, out = cluster.run(tmp_path, *words, timeout_s=850)
    assert code != 0 and "2 jobs in a row ended at their time limit" in out, out[-3000:]
    jobs = [name for name in cluster.submissions("t-too-long") if "-evaluate-" in name]
    assert sorted(name.split(".")[1] for name in jobs) == ["0", "1", "2"]


@pytest.mark.skipif(os.geteuid() != 0, reason="the controller's settings are root's")
def test_a_full_queue_and_a_controller_that_forgets(
    tmp_path: Path, undisturbed: dict[str, bytes]
) -> None:
    """It knows four jobs at most, ended ones included, which it forgets once in a minute; and there is no accounting."""
    with cluster.controller_with(MaxJobCount=5, MinJobAge=2):
        cluster.wait_for("an empty memory", lambda: not cluster.jobs(), timeout_s=120)
        profile = tmp_path / "profile.yaml"
        profile.write_text(SMALL.read_text() + "  answer: 5\n")
        process = begin(tmp_path, "t-full", "--slurm", "--cluster", str(profile))
        out = end(process, timeout_s=850)
    assert "is not submitted yet: sbatch" in out, "the queue was never full"
    assert compared(tmp_path / "x") == undisturbed
    orders = [path.name for path in tmp_path.glob("x/slurm/t-full-*/ends/*.json")]
    assert len(orders) == 14 and all(name.endswith(".0.json") for name in orders)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start the nodes anew")
def test_a_directory_that_the_nodes_see_ten_seconds_late(
    tmp_path: Path, undisturbed: dict[str, bytes]
) -> None:
    (tmp_path / "shared").mkdir()
    began = tmp_path / "began"
    with cluster.nodes_that_see_late(tmp_path / "shared", 10, began):
        process = begin(tmp_path / "shared", "t-late")
        cluster.wait_for("a job", lambda: cluster.running("t-late", "prepare"))
        began.touch()
        end(process)
    assert compared(tmp_path / "shared/x") == undisturbed
    made = cluster.jobs("t-late-")
    assert len(made) == 14 and all(job.state == "COMPLETED" for job in made)
    assert max(job.seconds for job in made if "-prepare-" in job.name) >= 10
