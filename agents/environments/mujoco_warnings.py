"""What MuJoCo warns of is printed, and so stands in the step's log. By itself it also writes the file
MUJOCO_LOG.TXT in the working directory, which is a person's own.
"""

from __future__ import annotations

import sys

_printed = set[str]()


def print_warnings() -> None:
    """Have MuJoCo's warnings printed, each text once, if MuJoCo has been imported. To be called before
    a model is loaded, in every process that has environments. Keeps a handler that somebody else has
    set.
    """
    mujoco = sys.modules.get("mujoco")
    if mujoco is not None and mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_print)


def _print(text: str) -> None:
    if text not in _printed:
        _printed.add(text)
        print(f"MuJoCo warns: {text}", flush=True)
