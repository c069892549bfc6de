"""A process as a person starts it: without what a workflow, or an Argo Server, tells its own."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OF_A_WORKFLOW = (
    "STORAGE",
    "OUTPUTS",
    "EXPERIMENT_OWNER",
    "EXPERIMENT_WORKFLOW",
    "EXPERIMENT_OWNER_PROCESS",
    "EXPERIMENT_IMAGE",
    "EXPERIMENT_FAULT",
)


def outside(**more: str) -> dict[str, str]:
    """The variables of such a process, which finds our packages wherever it is started, and more."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in OF_A_WORKFLOW and not name.startswith("ARGO_")
    }
    return kept | {"PYTHONPATH": str(ROOT)} | more
