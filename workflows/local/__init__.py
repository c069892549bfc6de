"""Argo Workflows on one machine: `run` takes a manifest and runs its pods as processes, without a cluster.

    status = run(manifest, parameters={"game": "cartpole"}, storage=Path("storage"))

What is supported, refused and different is in `fields.py` and the README; the reference is a real controller (tests/contract).
"""

from workflows.local.engine import run
from workflows.local.errors import Refused
from workflows.local.slots import Capacity
from workflows.local.status import Node, WorkflowStatus

__all__ = ["Capacity", "Node", "Refused", "WorkflowStatus", "run"]
