"""A trainer and two workers as real processes: each is killed, and the training goes on as if nothing had
been; no position is counted twice, and none is lost that was sent."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from steps.directory import checkpoints, segments, self_play
from steps.directory.layout import ExperimentDirectory, RunDirectory
from steps.directory.self_play import kept_generations, read_generation
from steps.directory.status import Status, read_status
from steps.directory.tables import read_rows
from tests.outside import ROOT, outside
from tests.waiting import PATIENCE_S, until

EPOCHS = 12
GIVEN = {
    "game": "tic-tac-toe", "epochs": str(EPOCHS), "workers": "2", "games_per_worker": "8",
    "blocks": "0", "channels": "4", "simulations": "10", "cheap_simulations": "4",
    "generation_positions": "400", "learning_starts": "200", "batch_size": "64", "window": "1000",
    "kept_generations": "3", "reconnect_timeout": "60", "checkpoint_interval": "1",
}  # fmt: skip


class Processes:
    """What is started here ends here."""

    def __init__(self, outdir: Path) -> None:
        self.outdir, self.started = outdir, list[subprocess.Popen[str]]()

    def step(self, step: str, *arguments: str, fault: str = "") -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", f"steps.{step}", *arguments],
            cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=outside() | ({"EXPERIMENT_FAULT": fault} if fault else {}),
        )  # fmt: skip
        self.started.append(process)
        return process

    def prepare(self, **more: str) -> RunDirectory:
        given = {**GIVEN, **more, "outdir": str(self.outdir)}
        assigned = [f"-p={name}={value}" for name, value in given.items()]
        assert ended(self.step("prepare", "--algorithm", "alphazero", *assigned))[0] == 0
        return ExperimentDirectory(self.outdir).run(0)

    def train(self, role: str, member: int | None = None, fault: str = "") -> subprocess.Popen[str]:
        numbered = () if member is None else ("--member", str(member))
        return self.step(
            "train", "--outdir", str(self.outdir), "--run", "0", "--role", role, *numbered, fault=fault
        )  # fmt: skip


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=PATIENCE_S)
    return process.returncode, output


def status_of(run: RunDirectory, name: str) -> Status:
    found = read_status(run.status / f"{name}.json")
    assert found is not None, name
    return found


@contextlib.contextmanager
def keeping(run: RunDirectory, folder: Path) -> Iterator[None]:
    """A second name for every shard, so that it is there when the trainer has removed it."""
    over = threading.Event()
    folder.mkdir()

    def link() -> None:
        for shard in self_play.shards(run):
            with contextlib.suppress(FileExistsError, FileNotFoundError):
                os.link(run.positions / shard.file, folder / shard.file)

    def watch() -> None:
        while not over.wait(0.01):
            link()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        link()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    found = Processes(tmp_path / "experiment")
    yield found
    for process in found.started:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGTERM, marks=pytest.mark.soak), signal.SIGKILL]
)
def test_who_is_stopped_while_it_imitates_imitates_again(
    processes: Processes, tmp_path: Path, number: signal.Signals
) -> None:
    base = Processes(tmp_path / "base")
    one_epoch = {"epochs": "1", "workers": "1", "generation_positions": "150"}
    base.prepare(**one_epoch)
    for step in [base.train("trainer"), base.train("worker", 0)]:
        code, output = ended(step)
        assert code == 0, output
    games = tmp_path / "games.txt"
    games.write_text("4 0 2 6 3 5 1 7 8\n0 4 8 2 6 7 3\n" * 5)
    given = {"start_from": str(base.outdir), "imitate": str(games), "imitation_updates": "2000"}
    run = processes.prepare(**one_epoch, **given, no_data_timeout="3")
    trainer = processes.train("trainer")
    until(lambda: bool(run.checkpoint_steps()), trainer)
    trainer.send_signal(number)
    assert ended(trainer)[0] in (75, -signal.SIGKILL)
    code, output = ended(processes.train("trainer"))
    assert code == 75, output
    assert "the network has learnt from 80 recorded positions" in output
    games.write_text("4 0 2 6 3 5 1 7 8\n")
    code, output = ended(processes.train("trainer"))
    assert code == 2, output
    assert "parameter 'imitate' cannot be" in output and "other games than when" in output
    assigned = {
        **GIVEN,
        **one_epoch,
        **given,
        "no_data_timeout": "3",
        "outdir": str(run.root.parents[1]),
    }
    words = [f"-p={name}={value}" for name, value in assigned.items()]
    code, output = ended(processes.step("prepare", "--algorithm", "alphazero", *words))
    assert code == 4, output
    assert "hyperparameters.imitate" in output


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_whoever_is_killed_the_training_goes_on(processes: Processes, tmp_path: Path) -> None:
    run = processes.prepare()
    with keeping(run, tmp_path / "kept"):
        workers = [processes.train("worker", number) for number in (0, 1)]
        trainer = processes.train("trainer", fault="mid_save:10:checkpoints")
        assert ended(trainer)[0] == -signal.SIGKILL
        trainer, reached = processes.train("trainer"), max(run.checkpoint_steps())
        until(lambda: max(run.checkpoint_steps()) > reached, trainer, *workers)
        trainer.send_signal(signal.SIGTERM)
        code, output = ended(trainer)
        assert code == 75, output
        assert "preempted at step" in output
        workers[1].kill()
        assert ended(workers[1])[0] == -signal.SIGKILL
        workers[1] = processes.train("worker", 1, fault="before_rename:2:positions")
        assert ended(workers[1])[0] == -signal.SIGKILL
        workers[1] = processes.train("worker", 1)
        # The other worker alone might have the positions that the training still needs.
        until(lambda: any(path.name.startswith("1-3-") for path in kept_of(run)), *workers)
        code, output = ended(processes.train("trainer"))
        assert code == 0, output
        for worker in workers:
            code, output = ended(worker)
            assert code == 0, output
    check_files(run)
    check_positions(run, tmp_path / "kept")
    again = processes.train("trainer")
    code, output = ended(again)
    assert code == 0
    assert "nothing to do" in output


def kept_of(run: RunDirectory) -> list[Path]:
    """The shards that wait for the trainer."""
    return list(run.positions.iterdir())


def check_files(run: RunDirectory) -> None:
    """As of a training that nobody disturbed."""
    assert [int(row["epoch"]) for row in read_rows(run.train_csv)] == list(range(1, EPOCHS + 1))
    assert set(kept_generations(run)) >= {0, 4, 8, EPOCHS}
    final = checkpoints.load(run.checkpoint(max(run.checkpoint_steps())))
    last = read_generation(run, EPOCHS)
    assert all((last["average"][name] == one).all() for name, one in final.state["average"].items())
    assert not [path.name for path in run.networks.iterdir() if path.name.startswith(".")]
    told = status_of(run, "train").details
    assert sum(told["positions_of_workers"].values()) > 0
    assert status_of(run, "train-worker-1").attempt == 3
    assert status_of(run, "train-worker-1").details["ended"] == "the run is trained"


def check_positions(run: RunDirectory, kept: Path) -> None:
    """What the checkpoint counts of each process's shards is what was in them, no more and no less."""
    final = checkpoints.load(run.checkpoint(max(run.checkpoint_steps())))
    taken = final.record["taken"]
    counted = 0
    for path in kept.iterdir():
        match = self_play.SHARD_NAME.fullmatch(path.name)
        assert match is not None
        if int(match["number"]) < taken.get(match["start"], 0):
            counted += len(load_file(path)["value"])
    assert len(taken) == 4, "two workers, one of which was started three times"
    assert counted == final.state["added"] == final.streams["window"].end
    rows = [part["value"] for part in segments.read(run, "window", final.streams["window"])]
    assert sum(map(len, rows)) == final.streams["window"].end - final.streams["window"].first


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.soak
def test_a_worker_without_a_trainer_ends_after_a_time_and_an_orphan_too(
    processes: Processes,
) -> None:
    run = processes.prepare(reconnect_timeout="20")
    code, output = ended(processes.train("worker", 0))
    assert (code, "no network for 20 s" in output) == (75, True), output
    trainer, worker = processes.train("trainer"), processes.train("worker", 0)
    until(lambda: len(self_play.shards(run)) > 0, trainer, worker)
    trainer.kill()
    ended(trainer)
    code, output = ended(worker)
    assert (code, "the trainer has taken no games for 20 s" in output) == (75, True), output


@pytest.mark.slow
def test_a_role_that_nobody_has_is_refused(processes: Processes) -> None:
    processes.prepare()
    for role, member, why in (
        ("actor", 0, "alphazero has trainer and worker; allowed: those"),
        ("trainer", 1, "--member cannot be 1 for the role trainer; allowed: 0"),
    ):
        code, output = ended(processes.train(role, member))
        assert (code, why in output) == (2, True), output
