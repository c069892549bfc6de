"""Whichever module of `config` comes first: none needs another one that is still being imported."""

from __future__ import annotations

import subprocess
import sys

from tests.outside import ROOT

MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in (ROOT / "config").rglob("*.py")
)
EACH = """
import importlib, sys
for name in sys.argv[1:]:
    for known in [one for one in sys.modules if one.split(".")[0] == "config"]:
        del sys.modules[known]
    importlib.import_module(name)
"""


def test_any_module_of_config_may_be_the_first() -> None:
    assert "config.outdir" in MODULES and "config.algorithms.alphazero" in MODULES
    done = subprocess.run(
        [sys.executable, "-c", EACH, *MODULES], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-1000:]
