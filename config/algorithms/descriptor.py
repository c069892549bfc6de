"""The description of an algorithm. One `Algorithm` is all that the manifest, `--list`, help,
validation and the report need; only the pods that compute import its code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from config.actors import ActorSettings
from config.environment import EachActor, EachWorker, Environments, EnvironmentSettings, OneProcess
from config.measures import RETURN, Measure
from config.workers import WorkerSettings

FAMILIES = ("discrete", "continuous", "multi-discrete", "multi-binary")
"""Families of games by what a player does at each step: choose one of n actions, give real numbers,
choose one of n for each of several components, or say yes or no for each.
"""
BOARD = "board"
"""The family of two-player games with full information (`agents.games`), which only self-play
plays.
"""
SINGLE = "single"
ACTOR_LEARNER = "actor-learner"
SELF_PLAY = "self-play"
TOPOLOGIES = (SINGLE, ACTOR_LEARNER, SELF_PLAY)
"""How a train stage is laid out over pods: one process, a learner and the actors that bring its
experience, or a trainer and the workers whose games it learns from."""
MEMBERS: Mapping[str, tuple[str, type[ActorSettings] | type[WorkerSettings]]] = {
    ACTOR_LEARNER: ("actor_settings", ActorSettings),
    SELF_PLAY: ("worker_settings", WorkerSettings),
}
"""Of topologies of several processes: the section of an experiment that says how many there are and
how patient, and its parameters."""

READ_BY_ARGO: Mapping[str, tuple[str, ...]] = {
    SINGLE: ("gpus", "runs_per_gpu", "training_memory", "gpu_image", "cpu_image", "track"),
    ACTOR_LEARNER: (
        "gpus", "runs_per_gpu", "training_memory", "gpu_image", "cpu_image", "track",
        "actors", "learners", "actor_image", "actor_command", "actor_gpus", "actors_per_gpu",
    ),
    SELF_PLAY: (
        "gpus", "runs_per_gpu", "training_memory", "gpu_image", "cpu_image", "track",
        "workers", "worker_gpus", "workers_per_gpu",
    ),
}  # fmt: skip
"""Of each topology, the parameters of an experiment that Argo itself reads, for its pods: `prepare` passes
them on as outputs, so that the experiments of one workflow may differ in them. The claim is also read
by Argo, once for a whole workflow."""


class Hyperparameters(Protocol):
    """A frozen dataclass whose fields are made by `config.parameters.parameter`.

    A training may grow when its experiment is submitted again with more epochs, if the dataclass has
    a method `tied_to_length(self) -> Sequence[str]`: the names of its hyperparameters that, with their
    values, make an epoch depend on the number of all epochs, such as a learning rate that falls to 0
    at the end. Where it returns none, the training can go on and end as one that was that long from
    the start. Each class says so itself, because a subclass may add a schedule: the method is not
    inherited. Without it the experiment keeps its length.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def steps_per_epoch(self, environment: EnvironmentSettings) -> int:
        """Environment steps of one epoch, over all environments."""

    def warm_up_steps(self, environment: EnvironmentSettings) -> int:
        """Environment steps before the first epoch's own."""

    def check(self, environment: EnvironmentSettings) -> None:
        """Raise `BadInput` for values that do not go together."""


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """What the pipeline knows of one algorithm, without importing torch."""

    name: str
    """In directories and on pages."""
    hyperparameters: type[Any]
    """A dataclass as `Hyperparameters` describes it."""
    trainer: str
    """Import path of an `agents.interfaces.MakeTrainer`; with actors of a `MakeLearner`, with workers of
    an `agents.selfplay.roles.MakeSelfPlayTrainer`.
    """
    policy: str
    """Import path of an `agents.interfaces.LoadPolicy`; with workers of a `LoadPlayer`."""
    families: tuple[str, ...]
    """The kinds of action spaces that it can play, from `FAMILIES`; or `BOARD` alone, for self-play."""
    bounded_actions: bool = False
    """Whether each component of a continuous action must have two finite bounds."""
    precision_probe: str = ""
    """Import path of what times it in both precisions. Without one, `precision=auto` is fp32."""
    remembers: bool = False
    """Whether its networks have a memory (`agents.networks.own`)."""
    replay_bytes: str = ""
    """Import path of an `agents.interfaces.ExperienceBytes`, if it has a replay."""
    rollout_bytes: str = ""
    """The same, if it learns from each rollout once."""
    training_memory: str = ""
    """The memory that a training pod needs for the presets, as a Kubernetes quantity; empty if every
    cluster's default is enough.
    """
    topology: str = SINGLE
    """How a training is laid out over processes, one of `TOPOLOGIES`."""
    actor: str = ""
    """With actors, the import path of an `agents.interfaces.MakeActor`."""
    worker: str = ""
    """With workers, the import path of an `agents.selfplay.roles.MakeWorker`."""
    several_learners: bool = False
    """Whether several learners can divide a batch of `batch_size` rows among them (`LearnsTogether`)."""
    measure: Measure = RETURN
    """What a run is judged by."""
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """For any game (`any`) or for one game by its name: values of hyperparameters and of settings of the
    environment that differ from the defaults of their dataclasses, and `steps`, the length of a training.
    """

    @property
    def has_actors(self) -> bool:
        """Whether its experience comes from other processes."""
        return self.topology == ACTOR_LEARNER

    @property
    def has_workers(self) -> bool:
        """Whether other processes play games with themselves, which it learns from."""
        return self.topology == SELF_PLAY

    @property
    def never_set(self) -> frozenset[str]:
        """The names of shared parameters that can have no value but their default here: `resolve`
        refuses every other, and what lists the choices of this algorithm leaves them out.
        """
        names = set()
        if self.measure.training_name:
            names.add("evaluate_above")
        if self.has_workers:
            names.add("evaluation_policy")
        if self.has_actors and not self.several_learners:
            names.add("learners")
        return frozenset(names)

    @property
    def environment(self) -> type[Environments]:
        """The dataclass of its environments' parameters."""
        own: Mapping[str, type[Environments]]
        own = {ACTOR_LEARNER: EachActor, SELF_PLAY: EachWorker}
        return own.get(self.topology, OneProcess)
