"""Files of another node may be late on a network file system, and only there."""

from __future__ import annotations

import json
import shutil
import threading
import time
from pathlib import Path
from types import ModuleType

import pytest

from steps import average, plot_average, plot_training, prepare, report
from steps.command.context import StepContext
from steps.directory import network_storage
from steps.directory.network_storage import lag_s
from tests import synthetic

LINE = "36 35 0:50 / {place} rw,relatime shared:1 - {kind} server:/x rw\n"


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a storage, of whatever type `mount` says."""
    monkeypatch.setattr(network_storage, "MOUNTS", tmp_path / "mountinfo")
    monkeypatch.setattr(network_storage, "NETWORK_LAG_S", 20.0)
    storage = tmp_path / "storage"
    storage.mkdir()
    return storage


def mount(storage: Path, kind: str) -> None:
    lines = [("/", "ext4"), (str(storage), kind), (f"{storage}x", "tmpfs")]
    text = "".join(LINE.format(place=place.replace(" ", "\\040"), kind=one) for place, one in lines)
    network_storage.MOUNTS.write_text(text)


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "ceph", "lustre", "fuse.s3fs"])
def test_network_file_systems_may_lag(mounted: Path, kind: str) -> None:
    mount(mounted, kind)
    assert lag_s(mounted / "a/b") == network_storage.NETWORK_LAG_S
    assert lag_s(mounted.parent) == network_storage.LAG_S
    assert lag_s(Path(f"{mounted}x/a")) == network_storage.LAG_S


@pytest.mark.parametrize("kind", ["ext4", "xfs", "overlay", "tmpfs"])
def test_others_do_not(mounted: Path, kind: str) -> None:
    mount(mounted, kind)
    assert lag_s(mounted / "a") == network_storage.LAG_S
    network_storage.MOUNTS.unlink()
    assert lag_s(mounted / "a") == network_storage.LAG_S


def prepared(outdir: Path) -> None:
    assert prepare.main(["--algorithm", "ppo", f"-p=outdir={outdir}", "-p=epochs=3"]) == 0


@pytest.mark.parametrize("late", ["experiment", "owner.json", "experiment.yaml"])
def test_what_prepare_wrote_may_be_late_in_a_workflow(
    mounted: Path,
    late: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    mount(mounted, "nfs4")
    monkeypatch.setenv("EXPERIMENT_OWNER", "uid-1")
    outdir = mounted / "experiment"
    monkeypatch.setattr(StepContext, "wait_for_runs", lambda self: None)
    prepared(outdir)
    hidden = outdir if late == "experiment" else outdir / late
    elsewhere = mounted.parent / "hidden"
    shutil.move(hidden, elsewhere)
    appears = threading.Timer(0.3, shutil.move, (elsewhere, hidden))
    appears.start()
    assert report.main([f"--outdir={outdir}", "--workflow-status=Succeeded"]) == 5
    appears.join()
    said = capfd.readouterr()
    assert "waiting up to 20 s for what prepare has written" in said.out
    assert "the experiment is incomplete" in said.err


def test_a_file_of_an_earlier_step_is_waited_for_where_its_status_may_be_late(
    mounted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    longest = network_storage.longest_wait_s
    for kind, in_workflow, expected in (
        ("nfs4", True, 20.0),
        ("nfs4", False, 0.0),
        ("ext4", True, 0.0),
    ):
        mount(mounted, kind)
        monkeypatch.setenv("EXPERIMENT_OWNER", "uid-1" if in_workflow else "")
        assert longest(mounted / "a", is_written=False) == expected
    mount(mounted, "ext4")
    assert longest(mounted / "a", is_written=True) == network_storage.LAG_S


@pytest.mark.parametrize(
    ("step", "late"),
    [
        (average, "status/train.json"),
        (plot_average, "status/evaluate.json"),
        (report, "evaluation.csv"),
    ],
)
def test_how_the_runs_have_ended_may_be_late_in_a_workflow(
    mounted: Path,
    step: ModuleType,
    late: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    mount(mounted, "nfs4")
    directory = synthetic.experiment(mounted / "experiment", ("complete", "failed"), min_runs="1")
    synthetic.finish(directory, draw=False)
    directory.owner_json.write_text('{"uid": "uid-1"}')
    hidden = directory.run(0).root / late
    whole = hidden.read_bytes()
    earlier = '{"task": "train", "state": "running", "started": ""}' if "status" in late else ""
    hidden.write_text(earlier)
    monkeypatch.setenv("EXPERIMENT_OWNER", "uid-1")
    appears = threading.Timer(0.5, hidden.write_bytes, [whole])
    appears.start()
    given = ["--workflow-status=Succeeded"] if step is report else []
    code = step.main([f"--outdir={directory.root}", *given])
    appears.join()
    said = capfd.readouterr()
    assert "waiting up to 20 s for how the runs have ended: runs 0 are not" in said.out
    assert "runs 1" not in said.out, "it has failed, and that is seen"
    assert code == 0, said.err
    assert json.loads((directory.average / "summary.json").read_text())["used"] == [0]


def test_a_missing_directory_is_refused_at_once_by_hand_and_on_a_local_disk(
    mounted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = time.monotonic()
    mount(mounted, "nfs4")
    assert plot_training.main([f"--outdir={mounted / 'x'}", "--run=0"]) == 2
    mount(mounted, "ext4")
    monkeypatch.setenv("EXPERIMENT_OWNER", "uid-1")
    assert plot_training.main([f"--outdir={mounted / 'x'}", "--run=0"]) == 2
    assert time.monotonic() - started < 5
