"""Pods start with umask 0 (seen: Argo's emissary sets it); what steps write is writable for their
own user only."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

WRITE = "import sys; from pathlib import Path; from steps.command.main import guarded; guarded('x', lambda: Path(sys.argv[1]).write_text('x'))"


@pytest.mark.parametrize(("umask", "mode"), [(0, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_only_an_empty_umask_is_changed(tmp_path: Path, umask: int, mode: int) -> None:
    file = tmp_path / "file"
    subprocess.run([sys.executable, "-c", WRITE, str(file)], check=True, umask=umask, timeout=60)
    assert stat.S_IMODE(file.stat().st_mode) == mode
