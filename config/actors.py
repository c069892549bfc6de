"""The parameters of a training whose experience comes from actors (topology `actor-learner`).

Most of them cannot change what a result means, so they are not part of the experiment's identity:
actors come and go while a run trains, and a later submission may use more of them. Two numbers are
part of the identity: the environments of each actor (`envs_per_actor`, a setting of the
environment) and the number of learners.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any, ClassVar

from config.experiment import IMAGE
from config.parameters import cannot_be, parameter

MOST_ACTORS = 512
MOST_LEARNERS = 64
COMMAND_VARIABLE = "ACTOR_COMMAND"
"""The environment variable that passes `actor_command` to an actor's pod. `steps.train` replaces
itself with that command there.
"""


def _words(text: str) -> str:
    words = shlex.split(text)
    if not words:
        raise ValueError("no word in it")
    return shlex.join(words)


def gpus_of(role: str, most: int, without: str) -> Any:
    """Declare the parameter `<role>_gpus`. without: how the help text explains the value 0."""
    return parameter(
        0,
        low=0,
        high=most,
        identity=False,
        help=f"GPUs for the {role}s of a run, each of which uses one of them; 0: none, {without}",
    )


def per_gpu_of(role: str, most: int) -> Any:
    """Declare the parameter `<role>s_per_gpu`."""
    return parameter(
        1,
        low=1,
        high=most,
        identity=False,
        help=f"largest number of {role}s that use the same GPU; more than 1 needs a GPU resource that the cluster shares",
    )


@dataclass(frozen=True, kw_only=True)
class ActorSettings:
    """How many actors and learners one run has, which image and command they use, and how long each
    side waits for the other.
    """

    roles: ClassVar[tuple[str, str]] = ("learner", "actor")
    """The role that learns, then the role that brings experience. The first learner reports the
    result of the training step.
    """

    actors: int = parameter(
        2,
        low=1,
        high=MOST_ACTORS,
        identity=False,
        help="actor processes of a run, each stepping envs_per_actor environments for the "
        "learner; may change when submitted again",
    )
    learners: int = parameter(
        1,
        low=1,
        high=MOST_LEARNERS,
        help="processes that learn together, each with a share of the actors and of every "
        "batch, and with its own GPUs",
    )
    actor_image: str | None = parameter(
        None,
        optional=True,
        pattern=IMAGE,
        form="an image reference",
        identity=False,
        help="container image of the actors' pods, for simulators with dependencies of their "
        "own; empty: cpu_image",
    )
    actor_command: str | None = parameter(
        None,
        optional=True,
        canonical=_words,
        form="words as a shell splits them",
        identity=False,
        help="command that starts an actor, to which the step's options are appended, such as "
        "xvfb-run -a python -m steps.train; empty: python -m steps.train",
    )
    actor_gpus: int = gpus_of("actor", MOST_ACTORS, "for simulators that do not use one")
    actors_per_gpu: int = per_gpu_of("actor", MOST_ACTORS)
    reconnect_timeout: int = parameter(
        300,
        low=1,
        high=86_400,
        unit="s",
        identity=False,
        help="time after which an actor that cannot reach its learner exits, frees its "
        "resources and is restarted",
    )
    no_data_timeout: int = parameter(
        600,
        low=1,
        high=86_400,
        unit="s",
        identity=False,
        help="time after which a learner that receives no experience, or cannot reach the "
        "other learners, exits and is restarted",
    )

    @property
    def helpers(self) -> int:
        """Number of processes that do not learn."""
        return self.actors

    @property
    def gpus(self) -> int:
        """Number of GPUs for all actors together."""
        return self.actor_gpus

    def check(self) -> None:
        """Raise `BadInput` for values that do not go together."""
        check_gpus("actor", self.actors, self.actor_gpus, self.actors_per_gpu)


def check_gpus(role: str, count: int, gpus: int, per_gpu: int) -> None:
    """Raise `BadInput` if the processes of this role do not fit on their GPUs."""
    of_role = f"{role}_gpus"
    each = f"{role}s_per_gpu"
    if gpus and count > gpus * per_gpu:
        product = f"{of_role} * {each} = {gpus} * {per_gpu} = {gpus * per_gpu}"
        raise cannot_be(f"{role}s", count, allowed=f"at most {product}")
    if per_gpu > 1 and not gpus:
        raise cannot_be(each, per_gpu, f"with {of_role}=0", allowed=f"1, or more with {of_role}")
