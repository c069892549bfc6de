"""The log of an attempt holds what was printed, within a bound."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.outside import ROOT, outside

PRINTS = """
import os, sys, time
from pathlib import Path
from steps.command import log
log.LARGEST_BYTES, log.FIRST_BYTES, log.LAST_BYTES = 1_000_000, 100_000, 10_000
kept = log.Log(Path(sys.argv[1]))
print("the first line")
for _ in range(int(sys.argv[2])):
    os.write(1, b"x" * 20_000)
    time.sleep(0.0005)
print("\\nthe last line")
kept.close()
"""


def log_of(path: Path, count: int) -> bytes:
    command = [sys.executable, "-c", PRINTS, str(path), str(count)]
    subprocess.run(command, cwd=ROOT, env=outside(), check=True, stdout=subprocess.DEVNULL)
    return path.read_bytes()


def test_a_log_without_end_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("an earlier attempt\n")
    content = log_of(path, 400)
    assert content.startswith(b"an earlier attempt\nthe first line\nxxx")
    assert content.endswith(b"x\nthe last line\n")
    assert b"bytes are left out here: more than 1000000 were printed" in content
    assert len(content) < 1_200_000


def test_a_log_of_usual_size_is_whole(tmp_path: Path) -> None:
    content = log_of(tmp_path / "train.log", 40)
    assert content == b"the first line\n" + b"x" * 800_000 + b"\nthe last line\n"
