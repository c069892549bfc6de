"""Imports point one way: what each part may use of the others, and no circle anywhere."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TOPS = ("agents", "config", "steps", "workflows")

# What the modules below a name may import of our own. The longest name that fits counts;
# a package may always import itself.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "config": (),
    "agents": ("config",),
    "steps": ("agents", "config"),
    "workflows": ("config", "steps.directory", "workflows"),
    "workflows.dag": ("config",),
    "workflows.request": ("config", "steps.directory", "workflows.dag"),
    "workflows.cluster": ("config",),
    "workflows.progress": ("config", "steps.directory", "workflows.dag"),
    "workflows.local": ("config",),
    "workflows.local.__main__": ("config", "workflows.dag", "workflows.local", "workflows.slurm"),
    "workflows.slurm": ("config", "steps.directory", "workflows.local"),
    "workflows.local.errors": ("config",),
    "workflows.local.language": ("config", "workflows.local.errors"),
    "workflows.local.spec": ("config", "workflows.local.errors", "workflows.local.language"),
    "workflows.local.machine": (
        "config",
        "workflows.local.errors",
        "workflows.local.language",
        "workflows.local.spec",
    ),
}

EACH = """
import importlib, sys
for name in sys.argv[1:]:
    for known in [one for one in sys.modules if one.split(".")[0] == "config"]:
        del sys.modules[known]
    importlib.import_module(name)
"""


def modules() -> dict[str, Path]:
    """Every module of ours by its dotted name."""
    files = [path for top in TOPS for path in sorted((ROOT / top).rglob("*.py"))]
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in files
    ]
    return dict(zip(names, files, strict=True))


MODULES = modules()


def imports(path: Path) -> set[str]:
    """Our own modules that a file imports, also inside of functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{path}: a relative import"
            found |= {f"{node.module}.{name.name}" for name in node.names} | {node.module}
    ours = found & MODULES.keys()
    return {name for name in ours if not any(other.startswith(f"{name}.") for other in ours)}


def is_below(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_part_imports_only_what_it_may(package: str) -> None:
    inner = [other for other in MAY_IMPORT if other != package and is_below(other, package)]
    elsewhere = {name for name in MODULES for other in inner if is_below(name, other)}
    of_package = [name for name in MODULES if is_below(name, package) and name not in elsewhere]
    assert of_package
    allowed = (package, *MAY_IMPORT[package])
    wrong = [
        f"{name} imports {imported}"
        for name in of_package
        for imported in sorted(imports(MODULES[name]))
        if not any(is_below(imported, permitted) for permitted in allowed)
    ]
    assert not wrong


def test_there_is_no_circle() -> None:
    """Between modules. A package's `__init__` is one for those that import the package itself."""
    graph = {name: imports(path) - {name} for name, path in MODULES.items()}
    graphlib.TopologicalSorter(graph).prepare()


def test_any_module_of_config_may_be_imported_first() -> None:
    """The graph above does not know that a package's `__init__` is run before any of its modules."""
    config = [name for name in MODULES if is_below(name, "config")]
    assert "config.outdir" in config and "config.algorithms.alphazero" in config
    done = subprocess.run(
        [sys.executable, "-c", EACH, *config], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-1000:]
