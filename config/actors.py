"""The parameters of a training whose experience comes from actors, the topology `actor-learner`.

Most cannot change what a result means, and do not belong to the identity: actors come and go while a
run trains, and the next submission may have more of them. How many environments each of them steps
does belong to it, and is `num_envs`, as where one process steps them; so does how many learners there
are.
"""

from __future__ import annotations

from dataclasses import dataclass

from config.experiment import IMAGE
from config.parameters import parameter

MOST_ACTORS = 512
MOST_LEARNERS = 64


@dataclass(frozen=True, kw_only=True)
class ActorSettings:
    """One run's actors and learners: how many, what they run in, and how patient both sides are."""

    actors: int = parameter(
        2,
        low=1,
        high=MOST_ACTORS,
        identity=False,
        help="processes that step num_envs environments each, for one learner; may change when submitted again",
    )
    learners: int = parameter(
        1,
        low=1,
        high=MOST_LEARNERS,
        help="processes that learn as one, each with its share of the actors and of every batch, and with gpus of its own",
    )
    actor_image: str | None = parameter(
        None,
        optional=True,
        pattern=IMAGE,
        form="an image reference",
        identity=False,
        help="image of the actors' pods, for a simulator that needs more than ours; empty: cpu_image",
    )
    reconnect_timeout: int = parameter(
        300,
        low=1,
        high=86_400,
        unit="s",
        identity=False,
        help="an actor that finds no learner for so long ends, leaves its room to others, and is started again",
    )
    no_data_timeout: int = parameter(
        600,
        low=1,
        high=86_400,
        unit="s",
        identity=False,
        help="a learner that gets no experience, or is without the other learners, for so long ends, and is started again",
    )
