"""The parameters of an experiment that trackers show."""

from __future__ import annotations

from config.described import parameters
from config.resolved import Resolved

NOT_SHOWN = ("outdir", "gpu_image", "cpu_image", "claim", "track")


def hyperparameters(resolved: Resolved) -> dict[str, object]:
    """Parameter -> value, without what says nothing of a training."""
    return {
        info.name: getattr(getattr(resolved, info.section), info.name)
        for info in parameters(resolved.algorithm)
        if info.name not in NOT_SHOWN
    }
