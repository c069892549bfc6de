"""Whole searches on this machine with the real steps and a trainer whose curve is known: killed at random
moments, grown, refused, and their cost.
"""

from __future__ import annotations

import json
import random
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from config.study import read_study
from config.study.search import trial_name
from steps.directory.search import SearchDirectory
from steps.directory.tables import read_rows
from steps.search.journal import Journal, Trial
from tests.outside import ROOT, outside
from tests.stand_in import EPOCHS_DONE, FILE

pytestmark = pytest.mark.slow
KILLS = 10
INTERVAL = 5
"""Epochs from one checkpoint to the next."""


def written(folder: Path, text: str = FILE) -> Path:
    path = folder / "search.yaml"
    path.write_text(text.replace("OUTDIR", str(folder / "out")))
    return path


def command(path: Path) -> list[str]:
    return [sys.executable, "-m", "workflows.submit", str(path), "--local"]


def submitted(path: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command(path), *more],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=outside(),
        timeout=900,
    )


def trials(folder: Path) -> list[Trial]:
    directory = SearchDirectory(folder / "out")
    search = read_study(directory.study_yaml.read_text(), "study.yaml").search
    assert search is not None
    return Journal(directory, search, higher_is_better=True).trials()


def endings(folder: Path) -> Counter[int]:
    """How often Optuna's journal says of each trial that it ended: its operation 6 with a final state."""
    lines = SearchDirectory(folder / "out").journal.read_text().splitlines()
    told = [entry for entry in map(json.loads, lines) if entry["op_code"] == 6]
    return Counter(entry["trial_id"] for entry in told if entry["state"] in (1, 2, 3))


def test_a_search_that_is_killed_ten_times(tmp_path: Path) -> None:
    """Every trial is told once, and nothing is done twice but what no checkpoint held."""
    slow = FILE.replace("checkpoint_interval: 1", f"checkpoint_interval: {INTERVAL}, pause: 0.1")
    path = written(tmp_path, slow)
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    for _ in range(KILLS):
        with subprocess.Popen(
            command(path),
            cwd=ROOT,
            env=outside(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as engine:
            time.sleep(draw.uniform(2, 12))
            engine.send_signal(signal.SIGKILL)
    done = submitted(path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    found = trials(tmp_path)
    assert len(found) == 12
    assert all(one.has_ended for one in found)
    assert endings(tmp_path) == Counter(dict.fromkeys(range(12), 1))
    lines = (tmp_path / EPOCHS_DONE).read_text().splitlines()
    by_quality = Counter(line.rpartition(" ")[0] for line in lines)
    repeated = 0
    for one in found:
        for run in range(2):
            directory = (
                SearchDirectory(tmp_path / "out").experiment(trial_name(one.number)).run(run)
            )
            epochs = [int(row["epoch"]) for row in read_rows(directory.train_csv)]
            assert epochs == list(range(1, one.rungs[-1].epoch + 1)), one
            repeated += by_quality[f"{one.values['quality']} {run}"] - len(epochs)
    print(f"{repeated} of {len(lines)} epochs were done twice")
    assert repeated <= KILLS * 4 * INTERVAL  # two trials of two runs are under way


@pytest.mark.soak
def test_a_search_that_is_done_does_nothing_and_grows(tmp_path: Path) -> None:
    """More trials are proposed behind those that there are, and another search is refused."""
    small = FILE.replace("trials: 12", "trials: 3").replace("epochs: 30", "epochs: 10")
    path = written(tmp_path, small)
    assert submitted(path).returncode == 0
    before = trials(tmp_path)
    assert submitted(path).returncode == 0
    assert [(one.number, one.value) for one in trials(tmp_path)] == [
        (one.number, one.value) for one in before
    ]
    path = written(tmp_path, small.replace("trials: 3", "trials: 5"))
    assert submitted(path).returncode == 0
    assert [one.values for one in trials(tmp_path)][:3] == [one.values for one in before]
    assert endings(tmp_path) == Counter(dict.fromkeys(range(5), 1))
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<h2>Complete</h2>" in page
    path = written(tmp_path, small.replace("reduction: 3", "reduction: 2"))
    refused = submitted(path)
    assert refused.returncode == 1
    assert "belongs to another search: search.prune.reduction: 3 in the directory" in refused.stdout


@pytest.mark.soak
def test_settings_that_fail_do_not_end_a_search(tmp_path: Path) -> None:
    """They are trials that failed, with the reason, and are not the winner."""
    failing = FILE.replace("epochs: 30", "epochs: 10, fails: 0.4")
    path = written(tmp_path, failing.replace("trials: 12", "trials: 6"))
    done = submitted(path)
    found = trials(tmp_path)
    failed = [one for one in found if one.values["quality"] >= 0.4]
    assert {one.state for one in failed} == {"failed"}
    assert all("this stand-in fails" in one.reason for one in failed)
    assert len(found) == 6 and 0 < len(failed) < 6
    assert done.returncode == 1  # the preset, which is measured again, fails too
    best = (tmp_path / "out" / "best.yaml").read_text()
    assert "quality: 0.5" not in best


@pytest.mark.soak
def test_figures_and_films_where_they_are_asked_for(tmp_path: Path) -> None:
    drawn = FILE.replace("  trials: 12", "  plots: true\n  trials: 2")
    path = written(tmp_path, drawn.replace("epochs: 30", "epochs: 10"))
    assert submitted(path).returncode == 0
    complete = next(one for one in trials(tmp_path) if one.state == "complete")
    experiment = tmp_path / "out" / "experiments" / trial_name(complete.number)
    assert (experiment / "report.html").is_file()
    assert (experiment / "runs" / "0" / "plots" / "training.svg").is_file()


@pytest.mark.soak
def test_the_cost_of_a_trial(tmp_path: Path) -> None:
    """Processor time, because a busy machine takes longer, and as a multiple of what one process needs to import
    PyTorch, because machines differ: of a trial with its two trainings, and its share of the winner's.
    """
    text = FILE.replace("trials: 12", "trials: 30").replace("parallel: 2", "parallel: 1")
    path = written(tmp_path, text.replace("runs: 2, seed", "runs: 1, seed"))
    before_s = processor_s()
    done = submitted(path)
    worked_s = processor_s() - before_s
    assert done.returncode == 0, done.stdout[-3000:]
    found = trials(tmp_path)
    assert len(found) == 30
    before_s = processor_s()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    importing_s = processor_s() - before_s
    print(f"{worked_s / 30:.1f} s a trial; an import of PyTorch: {importing_s:.1f} s")
    assert worked_s / 30 <= 2.5 * importing_s


def processor_s() -> float:
    """The processor time of all processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


EVERY_TOPOLOGY = {
    "impala": """\
algorithms:
  - {impala: {epochs: 4, epoch_updates: 2, batch_size: 2, unroll_length: 8, envs_per_actor: 2, actors: 1}}
games: [cartpole]
parameters: {evaluation_episodes: 2, device: cpu}
""",
    "alphazero": """\
algorithms:
  - {alphazero: {epochs: 2, workers: 1, games_per_worker: 4, blocks: 0, channels: 4, simulations: 4,
                 cheap_simulations: 2, generation_positions: 60, learning_starts: 30, batch_size: 16,
                 window: 200}}
games: [tic-tac-toe]
parameters: {evaluation_episodes: 2, device: cpu}
""",
}


@pytest.mark.parametrize("algorithm", ["impala", pytest.param("alphazero", marks=pytest.mark.soak)])
def test_trainings_of_several_processes(tmp_path: Path, algorithm: str) -> None:
    """Actors and workers end where their training pauses, and join it again at the next rung."""
    prune = "  prune: {rungs: [0.5, 1.0], reduction: 2}\n" if algorithm == "impala" else ""
    text = f"""\
outdir: OUTDIR
runs: 1
{EVERY_TOPOLOGY[algorithm]}search:
  parameters: {{learning_rate: {{low: 1e-4, high: 1e-2, scale: log}}}}
  trials: 2
{prune}  then: {{best: 1, runs: 1, seed: 1000}}
"""
    done = submitted(written(tmp_path, text))
    assert done.returncode == 0, done.stdout[-3000:]
    found = trials(tmp_path)
    assert all(one.has_ended for one in found) and len(found) == 2
    first = SearchDirectory(tmp_path / "out").experiment(trial_name(0)).run(0)
    epochs = [int(row["epoch"]) for row in read_rows(first.train_csv)]
    assert epochs == list(range(1, found[0].rungs[-1].epoch + 1))
