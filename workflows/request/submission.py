"""A checked request to run an experiment, on a cluster or on this machine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from config.errors import BadInput, shown
from config.resolved import Resolved
from workflows.dag.layout import Layout
from workflows.dag.manifest_yaml import Manifest
from workflows.request.preflight import Place

NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class Submission:
    """name: the workflow's. resolved: None for a study. given: names of the parameters that the user
    decided. manifest: with every value filled in. place: None on a cluster. title: what is submitted,
    in words. presets: what the user's presets file decided, in words. sharing: how processes that must
    run at the same time share a machine that is too small for them. kind: the algorithm, or STUDY or
    SEARCH of `workflows.dag.render`, whose workflow template may be installed. values: the parameters of
    the manifest that differ from its defaults. own: a setting of this request that an installed template
    does not have; empty if there is none.
    """

    name: str
    resolved: Resolved | None
    given: Set[str]
    manifest: Manifest
    place: Place | None
    title: str = ""
    presets: str = ""
    sharing: str = ""
    kind: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    deadline_s: int | None = None
    own: str = ""

    @property
    def layout(self) -> Layout:
        """The names of its tasks."""
        return Layout.of(self.manifest)

    @property
    def parameters(self) -> dict[str, str]:
        """The workflow's parameters, with their values."""
        listed = self.manifest["spec"].get("arguments", {}).get("parameters", [])
        return {one["name"]: one["value"] for one in listed}

    @property
    def outdir(self) -> str:
        """The results directory, as pods see it."""
        return self.parameters["outdir"]

    @property
    def seen_directory(self) -> str:
        """The results directory as the person sees it: on this machine, or on the cluster's storage."""
        return self.outdir if self.place is None else str(self.place.directory)

    def __str__(self) -> str:
        return self.title


def title_of(resolved: Resolved) -> str:
    """`ppo on cartpole, 3 runs of 50,176 steps`."""
    runs = resolved.experiment.runs
    each = f"{runs} run{'s' if runs > 1 else ''} of {resolved.total_steps:,} steps"
    return f"{resolved.algorithm} on {resolved.game.name}, {each}"


def check_name(text: str) -> str:
    """The name of a workflow. Raises `BadInput`."""
    if not NAME.fullmatch(text):
        raise BadInput(
            f"--name cannot be {shown(text)}; allowed: up to 63 of a-z, 0-9 and '-', not at the ends"
        )
    return text
