"""The generated parts of the reference: parameters, presets, settings of a cluster, help of every command.

`conf.py` calls `write` at each build, so that the reference says what the code says. Pages in
docs/reference/ include the files.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import subprocess
import sys
from pathlib import Path

from config.algorithms import ALGORITHMS
from config.pipeline import NOTICE, SEARCH_STEPS, STEPS, STUDY_STEPS
from config.sections import rows
from config.slurm import POOLS, SECTION, Slurm
from config.tables import cluster_tables, parameter_tables, preset_table, title

ROOT = Path(__file__).resolve().parents[1]
SUBMIT = ("workflows.submit", "workflows.local.__main__")
BY_HAND = ("steps.browse", "steps.check", "steps.export", "steps.prune", "steps.versus")
OF_THE_DAG = (*STEPS, *STUDY_STEPS, *SEARCH_STEPS, NOTICE)
COMMANDS = tuple(
    # A search compares by the same steps as a study; a command stands once.
    dict.fromkeys(
        [*SUBMIT, *(step.module for step in OF_THE_DAG), "steps.wait_for_training", *BY_HAND]
    )
)
WIDTH = 84  # columns of a help text, which a page shows without scrolling


def write(folder: Path) -> None:
    """Write `parameters.md`, `presets.md`, `slurm.md`, `commands.md` and `cluster-settings.md`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (
        ("parameters.md", parameters()),
        ("presets.md", presets()),
        ("slurm.md", slurm()),
        ("commands.md", commands()),
        ("cluster-settings.md", cluster_settings()),
    ):
        (folder / name).write_text(text, encoding="utf-8")


def parameters() -> str:
    """A section for the parameters of all experiments, then one for each group of algorithms."""
    return _sections(parameter_tables(list(ALGORITHMS)))


def presets() -> str:
    """A section for each algorithm, with a column for each game that it plays."""
    return _sections({title(name): preset_table(name) for name in ALGORITHMS})


def cluster_settings() -> str:
    """A section for the settings of all pods, then one for those of each pool."""
    return _sections(cluster_tables()).replace("## ", "### ")


def slurm() -> str:
    """The settings of a Slurm cluster; those of the pools `actor` and `cpu` are those of `gpu`."""
    repeated = tuple(f"slurm.{pool}." for pool in POOLS[1:])
    lines = ["| setting | default | allowed | meaning |", "|---|---|---|---|"]
    for row in rows(Slurm, SECTION):
        if not row.name.startswith(repeated):
            allowed = row.allowed.replace("|", "\\|")
            default = f"`{row.default}`" if row.default else ""
            lines.append(f"| `{row.name}` | {default} | {allowed} | {row.help} |")
    return "\n".join([*lines, "", f"The pools {', '.join(POOLS)} have the same settings."])


def commands() -> str:
    """A section for each command. The help is taken in another process, because a step's command
    changes how its process answers signals.
    """
    environment = os.environ | {"COLUMNS": str(WIDTH), "NO_COLOR": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *sys.path])
    return subprocess.run(
        [sys.executable, __file__], env=environment, check=True, capture_output=True, text=True
    ).stdout


def _sections(tables: dict[str, str]) -> str:
    return "\n".join(f"## {heading.rstrip(':')}\n\n{table}" for heading, table in tables.items())


def _help(module: str) -> str:
    """What the command prints for `--help`."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        importlib.import_module(module).main(["--help"])
    return output.getvalue().rstrip()


def _print_commands() -> None:
    for module in COMMANDS:
        name = module.removesuffix(".__main__")
        print(f"## `python -m {name}`\n\n```text\n{_help(module)}\n```\n")


if __name__ == "__main__":
    _print_commands()
