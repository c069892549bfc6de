"""Defect C20 of docs/faults.md: what must be on the disk before what, so that a power loss costs no more than a
kill.

A kill never shows this (the kernel keeps what was written), so the order of the calls is looked at.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fault.conftest import Start, assignments
from tests.outside import ROOT, outside

RECORDING = """
import os, sys
calls = open(sys.argv[1], "w", buffering=1)
fsync, rename = os.fsync, os.rename

def recorded_fsync(descriptor):
    fsync(descriptor)
    print("fsync", os.readlink(f"/proc/self/fd/{descriptor}"), file=calls)

def recorded_rename(source, target, **options):
    rename(source, target, **options)
    print("rename", target, file=calls)

os.fsync, os.rename = recorded_fsync, recorded_rename
import steps.train
code = steps.train.main(sys.argv[2:])
sys.stdout.flush()
os._exit(code)
"""


@pytest.fixture
def calls(start: Start, tmp_path: Path) -> list[tuple[str, str]]:
    """Every fsync and every rename of a training with two checkpoints, in order: (call, path below
    the run)."""
    if not Path("/proc/self/fd").exists():
        pytest.skip("no /proc: the path of a descriptor is not known")
    step = start("steps.prepare", assignments(tmp_path / "x", epochs=6))
    assert step.end() == 0, step.text
    arguments = [str(tmp_path / "calls"), "--outdir", str(tmp_path / "x"), "--run", "0"]
    subprocess.run(
        [sys.executable, "-c", RECORDING, *arguments],
        cwd=ROOT,
        env=outside(),
        check=True,
        capture_output=True,
    )
    run = f"{(tmp_path / 'x' / 'runs' / '0').resolve()}/"
    lines = (line.split(" ", 1) for line in (tmp_path / "calls").read_text().splitlines())
    return [(call, path.removeprefix(run)) for call, path in lines if path.startswith(run)]


def test_c20_rows_and_files_are_on_the_disk_before_the_checkpoint_appears(
    calls: list[tuple[str, str]],
) -> None:
    appeared = [
        number
        for number, (call, path) in enumerate(calls)
        if call == "rename" and "checkpoints/" in path
    ]
    assert len(appeared) == 2
    before = 0
    for number in appeared:
        since = calls[before:number]
        assert ("fsync", "train.csv") in since, "the rows that the checkpoint counts on"
        synced = [
            Path(path).name for call, path in since if call == "fsync" and "checkpoints/." in path
        ]
        assert {"tensors.safetensors", "state.json", "manifest.json"} <= set(synced)
        assert synced[-1].endswith(".tmp"), "and last the directory that names them"
        assert calls[number + 1] == ("fsync", "checkpoints"), "the new name itself"
        before = number
