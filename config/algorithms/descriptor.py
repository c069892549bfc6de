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
    """One algorithm; torch-free, so that everything but the computing pods starts fast.

    name: in directories and on pages; hyperparameters: see `Hyperparameters`; trainer, policy:
    import paths of what `agents.interfaces` calls `MakeTrainer` and `LoadPolicy`; families: those of
    FAMILIES that it plays, which only its author knows, or BOARD alone, for self-play; bounded_actions: whether it needs both
    bounds of every continuous action; precision_probe: import path of what times the algorithm in
    both precisions, without one `precision=auto` is fp32; remembers: whether it trains networks with
    a memory (`agents.networks.own`); replay_bytes: import path of an `agents.interfaces.ExperienceBytes`,
    of an algorithm with a replay; rollout_bytes: the same of one that learns from each rollout once;
    training_memory: what a training pod needs for the presets, a
    Kubernetes quantity, empty if that is no more than every cluster gives it; topology: one of
    TOPOLOGIES; actor: with actors, the import path of an `agents.interfaces.MakeActor`, and then
    `trainer` is that of a `MakeLearner`; worker: with workers, that of an
    `agents.selfplay.roles.MakeWorker`, and then `trainer` is that of a `MakeSelfPlayTrainer`, and
    `policy` that of a `LoadPlayer`; several_learners: whether that `LearnsTogether`, and a batch
    of its hyperparameter `batch_size` may be shared among several; measure: what a run is judged by; presets: for any game
    ("any") or one by name, the values of its hyperparameters and of the environment's settings that
    differ from their dataclasses', and `steps`, the goal of a training.
    """

    name: str
    hyperparameters: type[Any]
    trainer: str
    policy: str
    families: tuple[str, ...]
    bounded_actions: bool = False
    precision_probe: str = ""
    remembers: bool = False
    replay_bytes: str = ""
    rollout_bytes: str = ""
    training_memory: str = ""
    topology: str = SINGLE
    actor: str = ""
    worker: str = ""
    several_learners: bool = False
    measure: Measure = RETURN
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

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
