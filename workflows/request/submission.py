"""A checked request to run an experiment, on a cluster or on this machine."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from config.resolve import Resolved
from workflows.dag.layout import Layout
from workflows.dag.manifest_yaml import Manifest
from workflows.request.preflight import Place


@dataclass(frozen=True, kw_only=True)
class Submission:
    """name: the workflow's. given: names of the parameters that the user decided. manifest: with
    every value filled in. place: None on a cluster. presets: what the user's presets file decided,
    in words. sharing: how processes that must run at the same time share a machine that is too
    small for them.
    """

    name: str
    resolved: Resolved
    given: Set[str]
    manifest: Manifest
    place: Place | None
    presets: str = ""
    sharing: str = ""

    @property
    def layout(self) -> Layout:
        """The names of its tasks."""
        return Layout.of(self.manifest)

    def __str__(self) -> str:
        runs = self.resolved.experiment.runs
        resolved = self.resolved
        return f"{resolved.algorithm} on {resolved.game.name}, {runs} run{'s' if runs > 1 else ''} of {resolved.total_steps:,} steps"
