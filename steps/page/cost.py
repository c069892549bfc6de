"""What an experiment has cost, in words."""

from __future__ import annotations

from config.numbers import counted, hours
from steps.directory.cost import Cost


def said_of_cost(cost: Cost) -> str:
    """`1.2 GPU-hours, 3.4 CPU-hours; 0.10 CPU-hours of training done twice after 2 interruptions`;
    empty if nothing is known.
    """
    known = [(cost.gpu_h, "GPU-hours"), (cost.processor_h, "CPU-hours")]
    # No GPU-hours are said of an experiment that had no GPU.
    parts = [f"{hours(value)} {unit}" for value, unit in known if value]
    if not parts:
        return ""
    line = ", ".join(parts)
    if cost.preemptions:
        twice = (
            "an unknown part" if cost.repeated_h is None else f"{hours(cost.repeated_h)} CPU-hours"
        )
        line += (
            f"; {twice} of training done twice after {counted(cost.preemptions, 'interruption')}"
        )
    return line
