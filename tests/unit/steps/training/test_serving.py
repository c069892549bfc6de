"""How a run's learner is reached by actors on its machine, and by all others."""

from __future__ import annotations

import stat
import tempfile
from pathlib import Path

import pytest

from agents.transport.address import Address
from steps.training.serving import local_socket


def test_a_local_socket_is_its_owner_s_alone_and_goes_with_the_learner() -> None:
    with local_socket() as path:
        folder = Path(path).parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not folder.exists()


def test_without_a_folder_for_it_there_is_no_local_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with local_socket() as path:
        assert path == ""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with local_socket() as path:
        assert path == ""


def test_an_address_with_one_way_has_no_choice() -> None:
    local = Address(token="t", socket="/nowhere")
    far = Address(token="t", host="10.0.0.7", certificate="PEM")
    assert local.from_here() == local and far.from_here() == far
