"""The progress that Argo shows: its form, its frequency, and that it never fails a step."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from steps.command import argo_progress
from steps.command.argo_progress import VARIABLE, ArgoProgress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now_s = [100.0]
    monkeypatch.setattr(argo_progress.time, "monotonic", lambda: now_s[0])
    return now_s


def test_it_is_written_now_and_then_and_at_the_end(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "progress"
    monkeypatch.setenv(VARIABLE, str(file))
    progress = ArgoProgress()
    progress.at(1, 196)
    assert file.read_text() == "1/196\n"
    progress.at(2, 196)
    assert file.read_text() == "1/196\n", "epochs of milliseconds are not all written"
    clock[0] += argo_progress.PERIOD_S
    progress.at(3, 196)
    assert file.read_text() == "3/196\n"
    progress.at(196, 196)
    assert file.read_text() == "196/196\n", "the last one always is"


def test_argo_takes_no_more_than_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "progress"
    monkeypatch.setenv(VARIABLE, str(file))
    ArgoProgress().at(0, 0)
    assert not file.exists(), "nothing to do is no progress"
    ArgoProgress().at(12, 10)
    assert file.read_text() == "10/10\n"


def test_whatever_stands_there_fails_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    (tmp_path / "link").symlink_to(outside)
    os.mkfifo(tmp_path / "fifo")
    for name in ("none/progress", ".", "link", "fifo", "a\0b"):
        monkeypatch.setattr(argo_progress.os, "environ", {VARIABLE: f"{tmp_path}/{name}"})
        ArgoProgress().at(1, 2)
    monkeypatch.setattr(argo_progress.os, "environ", {})
    ArgoProgress().at(1, 2)
    assert outside.read_text() == "mine"
