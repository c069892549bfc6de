"""What the local engine loads once for the pods of all steps (`workflows.local`).

Processes are forked from the one that has loaded these modules, so none of them may start a thread.
gRPC is not among them, because it does not survive a fork. What belongs to one algorithm or game, or
is brought by a person, is loaded by each pod itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from config import pipeline
from config.actors import COMMAND_VARIABLE
from config.tracking import VARIABLES

SWITCH = "EXPERIMENT_PRELOAD"
"""The variable that, at 0, gives each pod an interpreter of its own."""
APART = (
    "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "EXPERIMENT_IMAGE", "EXPERIMENT_OWNER",
    "EXPERIMENT_WORKFLOW", "OUTPUTS", "POD_IP", "STORAGE", "TMPDIR", COMMAND_VARIABLE,
    *VARIABLES,
)  # fmt: skip
"""Variables in which the pods of an experiment differ. No module reads them while it is loaded; CUDA
does so at its first call.
"""
FIGURES = ("steps.figures.run", "steps.figures.averaged_runs", "steps.figures.evaluations")
POLICY = ("torch", "agents.load", "agents.evaluation.episodes", "agents.evaluation.policies")
LOADED: Mapping[str, tuple[str, ...]] = {
    "prepare": (
        "agents.environments.game_check",
        "agents.checks.playable",
        "agents.checks.trial",
    ),
    "train": (
        *POLICY,
        "agents.checks.precision",
        "steps.training.choose_compute",
        "steps.training.training_attempt",
        "steps.training.training_files",
        "steps.training.dashboards",
        "psutil",
        "safetensors.numpy",
    ),
    "evaluate": (*POLICY, "safetensors.numpy"),
    "evaluate-snapshots": (*POLICY, "safetensors.numpy"),
    "plot-training": FIGURES,
    "plot-evaluation": FIGURES,
    "plot-average": FIGURES,
    "play": (
        "agents.evaluation.rendering",
        "agents.evaluation.pictures",
        "moviepy.video.io.ffmpeg_writer",
    ),
    "report": ("steps.page.render",),
}
"""Of each step, what it imports beside its own module, as late as it can."""
MODULES: Mapping[str, tuple[str, ...]] = {
    step.module: LOADED.get(step.name, ()) for step in pipeline.STEPS
}
"""The same by the steps' modules, in the order in which their pods start."""
OF_SEARCHES: Mapping[str, tuple[str, ...]] = {
    step.module: ("optuna", "optuna.storages.journal", "optuna.samplers", "steps.average")
    for step in pipeline.SEARCH_STEPS
    if step.scope in ("search-lane", "search-trial")
}
"""The same of the steps that every trial of a search has; no other workflow has Optuna for sure."""
