"""Fault 28 and defects A1, A2 and A9 of docs/faults.md: of two attempts of one step that both live, the older one is
shut out.

A lost node, or a pod that was deleted by force, leaves its process running while the retry starts
elsewhere with the same workflow.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from steps.directory import checkpoints
from steps.directory.files import write_atomically
from steps.directory.layout import ExperimentDirectory, RunDirectory
from steps.directory.status import read_status
from steps.directory.tables import read_rows
from tests.fault.conftest import Start, Step, assignments
from tests.outside import ROOT, outside
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
EPOCHS = 400
OWNER = {"EXPERIMENT_OWNER": "uid", "EXPERIMENT_WORKFLOW": "ppo-x"}


def prepare(start: Start, outdir: Path, environment: dict[str, str]) -> RunDirectory:
    step = start("steps.prepare", assignments(outdir, epochs=EPOCHS), environment)
    assert step.end() == 0, step.text
    return ExperimentDirectory(outdir).run(0)


def train(
    start: Start, outdir: Path, environment: dict[str, str], hostname: str | None = None
) -> Step:
    arguments = ["--outdir", str(outdir), "--run", "0"]
    return start("steps.train", arguments, environment, hostname=hostname)


def epochs(run: RunDirectory) -> int:
    rows = read_rows(run.train_csv) if run.train_csv.exists() else []
    return int(rows[-1]["epoch"]) if rows else 0


@pytest.fixture(scope="module")
def undisturbed(server: object, tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The bytes of `train.csv` without a fault; filled by the first test that needs them."""
    return []


def expect(start: Start, tmp_path: Path, undisturbed: list[bytes]) -> bytes:
    if not undisturbed:
        run = prepare(start, tmp_path / "undisturbed", OWNER)
        assert train(start, tmp_path / "undisturbed", OWNER).end() == 0
        undisturbed.append(run.train_csv.read_bytes())
    return undisturbed[0]


def two_nodes(
    start: Start, outdir: Path, *, stopped: bool, generator: random.Random
) -> RunDirectory:
    """The first attempt goes on, or is stopped and wakes up, while the second one trains to the end
    on another node."""
    run = prepare(start, outdir, OWNER)
    first = train(start, outdir, OWNER, hostname="node1")
    begin, wake = generator.randrange(10, EPOCHS // 2), generator.randrange(1, EPOCHS // 3)
    first.wait_for(lambda: epochs(run) >= begin)
    if stopped:
        first.kill(signal.SIGSTOP)
    second = train(start, outdir, OWNER, hostname="node2")
    if stopped:
        second.wait_for_text("training 400 epochs")
        reached = epochs(run)
        second.wait_for(lambda: epochs(run) >= min(EPOCHS - 2, reached + wake))
        first.kill(signal.SIGCONT)
    assert first.end() == 4, first.text
    assert second.end() == 0, second.text
    assert "another attempt" in first.text
    return run


def assert_whole(run: RunDirectory, expected: bytes) -> None:
    rows = Counter(row["epoch"] for row in read_rows(run.train_csv))
    assert [epoch for epoch, count in rows.items() if count > 1] == [], "rows stand twice"
    assert run.train_csv.read_bytes() == expected
    status = read_status(run.status / "train.json")
    assert status is not None and (status.state, status.host) == ("succeeded", "node2")
    newest = run.checkpoint(run.checkpoint_steps()[-1])
    assert checkpoints.is_intact(newest)
    assert checkpoints.load(newest).epoch == EPOCHS


@pytest.mark.parametrize(
    "stopped",
    [pytest.param(False, id="alive"), pytest.param(True, id="stopped and woken")],
)
def test_a1_two_attempts_on_two_nodes(
    start: Start, tmp_path: Path, undisturbed: list[bytes], stopped: bool
) -> None:
    expected = expect(start, tmp_path, undisturbed)
    run = two_nodes(start, tmp_path / "x", stopped=stopped, generator=random.Random(1))
    assert_whole(run, expected)


@pytest.mark.soak
def test_a1_two_attempts_on_two_nodes_twenty_times(
    start: Start, tmp_path: Path, undisturbed: list[bytes]
) -> None:
    expected = expect(start, tmp_path, undisturbed)
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    generator = random.Random(seed)
    for trial in range(20):
        run = two_nodes(start, tmp_path / f"x{trial}", stopped=True, generator=generator)
        assert_whole(run, expected)


def test_a2_two_trainings_started_together_by_hand(
    start: Start, tmp_path: Path, undisturbed: list[bytes]
) -> None:
    """Whether the second one sees the first or both believe to be alone: one trains, the other ends
    with 4."""
    expected = expect(start, tmp_path, undisturbed)
    run = prepare(start, tmp_path / "x", {})
    both = [train(start, tmp_path / "x", {}) for _ in range(2)]
    assert sorted(step.end() for step in both) == [0, 4], "\n".join(step.text for step in both)
    assert run.train_csv.read_bytes() == expected


def give_to_another(run: RunDirectory) -> None:
    owner = run.root.parent.parent / "owner.json"
    write_atomically(owner, owner.read_text().replace('"uid"', '"uid": "second", "before"', 1))


ASLEEP = """
import os, signal, socket, sys
socket.gethostname = lambda: "node1"
from steps.training import recorder
begin = recorder.Recorder.__init__

def stand_still_first(self, *arguments, **options):
    os.kill(os.getpid(), signal.SIGSTOP)
    begin(self, *arguments, **options)

recorder.Recorder.__init__ = stand_still_first
import steps.train
sys.exit(steps.train.main(sys.argv[1:]))
"""


def test_a1_an_attempt_that_stood_still_while_it_started(
    start: Start, tmp_path: Path, undisturbed: list[bytes]
) -> None:
    """Just before it opens its files: it must not put them in the place of those that the next
    attempt is writing."""
    expected = expect(start, tmp_path, undisturbed)
    run = prepare(start, tmp_path / "x", OWNER)
    arguments = ["--outdir", str(tmp_path / "x"), "--run", "0"]
    first = subprocess.Popen(
        [sys.executable, "-c", ASLEEP, *arguments],
        cwd=ROOT,
        env=outside(**OWNER),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        assert os.WIFSTOPPED(os.waitpid(first.pid, os.WUNTRACED)[1])
        second = train(start, tmp_path / "x", OWNER, hostname="node2")
        second.wait_for(lambda: epochs(run) >= 20)
        first.send_signal(signal.SIGCONT)
        said, _ = first.communicate(timeout=PATIENCE_S)
    finally:
        first.kill()
    assert first.returncode == 4, said
    assert second.end() == 0, second.text
    assert_whole(run, expected)


def test_a9_a_displaced_step_that_notices_by_itself_writes_no_status(
    start: Start, tmp_path: Path
) -> None:
    """The owner changes; the keeper looks every ten seconds, and the next checkpoint comes long
    before."""
    run = prepare(start, tmp_path / "x", OWNER)
    step = train(start, tmp_path / "x", OWNER)
    step.wait_for_text("epoch 1 of")
    give_to_another(run)
    assert step.end() == 4, step.text
    assert "uid second" in step.text
    status = read_status(run.status / "train.json")
    assert status is not None and status.state == "running", "not ours to write"
    assert "uid second" not in (run.logs / "train.log").read_text().splitlines()[-1]


def test_c20_nothing_is_saved_into_a_directory_of_another(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looked at before every save, not only by the keeper: at the moment of the save the directory
    is another's."""
    run = prepare(start, tmp_path / "x", OWNER)
    step = train(start, tmp_path / "x", OWNER)
    step.wait_for(run.checkpoint_steps)
    step.kill(signal.SIGSTOP)
    give_to_another(run)
    before = run.checkpoint_steps()
    step.kill(signal.SIGCONT)
    assert step.end() == 4, step.text
    since = [present for present in run.checkpoint_steps() if present not in before]
    assert len(since) <= 1, "but for the one that was being written, nothing was saved"
