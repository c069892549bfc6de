"""Argo's output parameters: one small file each in the folder that `OUTPUTS` names; by hand there
is none.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from steps.directory.files import write_atomically


def write_outputs(outputs: Mapping[str, str]) -> None:
    """Write the outputs of this pod, also when the step was finished before."""
    folder = os.environ.get("OUTPUTS")
    if folder:
        for name, value in outputs.items():
            write_atomically(Path(folder) / name, value)
