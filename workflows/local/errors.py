"""What the local engine's parts raise at each other.

Refused (a `BadInput` of config.errors): the manifest uses something that this engine does not have;
it is named, never ignored. WorkflowError: an error of the workflow, in Argo's words; it becomes a
node's or the workflow's message.
├── InvalidSpecError      found before anything runs
├── TagError              a tag or expression that cannot be evaluated
│   └── MissingTagError   a tag that must have a value and has none: Argo's controller would wait for it for ever
├── ConditionError        a `when` or `depends` that cannot be evaluated
└── PodError              a pod that cannot be built
    ├── CannotExecute     a pod whose command cannot be executed
    └── LostPod           a pod that has died with its supervisor, or cannot be ended
"""

from __future__ import annotations

import sys
import traceback

from config.errors import BadInput, on_one_line


class Refused(BadInput):
    """A field or value that this engine does not support; the message names it."""


class WorkflowError(Exception):
    """An error in the workflow itself."""


class InvalidSpecError(WorkflowError):
    """The manifest contradicts itself."""


class TagError(WorkflowError):
    """A tag cannot be replaced."""


class MissingTagError(TagError):
    """A tag has no value here; `tag` is its name."""

    def __init__(self, tag: str, message: str | None = None) -> None:
        super().__init__(message or f"failed to resolve {{{{{tag}}}}}")
        self.tag = tag


class ConditionError(WorkflowError):
    """A condition cannot be evaluated."""


class PodError(WorkflowError):
    """A pod cannot be built from its template."""


class CannotExecute(PodError):
    """A pod's command cannot be executed."""


class LostPod(PodError):
    """It cannot be known any more how a pod ended, as after the loss of a node."""


def defect(error: Exception) -> str:
    """The message of a node or workflow that ended by an error that nobody expected. Its traceback is
    printed.
    """
    traceback.print_exception(error, file=sys.stderr)
    return f"defect of the local engine: {type(error).__name__}: {on_one_line(error)}"
