"""What the commands of Slurm raise."""

from __future__ import annotations

import re

from config.errors import ExperimentError

PERMANENT = re.compile(
    r"invalid (partition|account|qos|feature|generic resource|wckey|reservation|time|node name|constraint)"
    r"|requested (node configuration|GRES option|time limit|reservation|partition configuration)"
    r"|not available for|not permitted|access/permission denied|permission denied|unrecognized option"
    r"|invalid option|memory specification can not be satisfied|cpu count per node can not be satisfied"
    r"|more processors requested than permitted|node count specification invalid"
    r"|reservation is invalid|unable to parse|Invalid --",
    re.IGNORECASE,
)
"""Refusals that the same request meets again. Everything else may pass: a full queue, a controller that is
away.
"""
UNREACHABLE = re.compile(
    r"unable to contact|timed out|connection|zero bytes|try again", re.IGNORECASE
)


class SlurmError(ExperimentError):
    """A command of Slurm failed, did not answer in time, or cannot be executed."""

    @property
    def is_permanent(self) -> bool:
        """Whether the same request would be refused again."""
        return bool(PERMANENT.search(str(self)))

    @property
    def is_unreachable(self) -> bool:
        """Whether the controller could not be asked."""
        return bool(UNREACHABLE.search(str(self)))

    @property
    def is_without_answer(self) -> bool:
        """Whether Slurm said nothing at all: it is unreachable, or the command's deadline passed."""
        return self.is_unreachable or "has not answered" in str(self)
