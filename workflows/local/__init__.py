"""Argo Workflows on one machine: `run` takes a manifest and runs its pods as processes, without a
cluster.

    status = run(manifest, parameters={"name": "value"}, storage=Path("storage"))

What is supported is in `spec/fields.py`; every other field is refused by name. It ends as a real
controller does (tests/contract), but:
- there is one host: ports are shared, memory is not limited, images are not used; `python` is the interpreter that runs the engine;
- mounts are folders of this machine: their paths are replaced in commands, arguments and environment, not in what programs contain;
- cores and GPUs are handed out by request; a request above what the machine has is cut to it, and a notice says so;
- a consumer of an output that will never exist is an error; the controller waits for ever (argoproj/argo-workflows#16982);
- the first interrupt is `argo stop`, a second one, later than two seconds, kills; if the engine is killed, every process goes with it.
"""

from workflows.local.engine import run
from workflows.local.errors import Refused
from workflows.local.machine.slots import Capacity, detect
from workflows.local.machine.supervision import Preloading
from workflows.local.status import Node, WorkflowStatus

__all__ = ["Capacity", "Node", "Preloading", "Refused", "WorkflowStatus", "detect", "run"]
