"""Train one run: `python -m steps.train --outdir … --run 0`.

The same command starts, continues after whatever ended the last attempt, and returns at once when
the run is trained. With `--until EPOCH` the training pauses after that epoch. Leaves checkpoints, `train.csv`, TensorBoard files and `resources.csv`.

Algorithms with actors have two roles: `--role learner`, which is the default, and, as often as one
likes, on the same machine or others with the same directory, `--role actor --member 0`, 1, … Where
several learn as one (`learners`), the further ones are `--role learner --member 1`, 2, …
Self-play has `--role trainer` and `--role worker --member 0`, 1, … in their places. In an actor's pod
`ACTOR_COMMAND` may hold the command that takes the place of this one, with its options.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from config import pipeline
from config.actors import COMMAND_VARIABLE, ActorSettings
from config.algorithms.descriptor import MEMBERS, Algorithm
from config.ending import end
from config.errors import BadInput
from config.workers import WorkerSettings
from steps.command.become import become
from steps.command.context import Paused, StepContext
from steps.command.main import guarded, run_step
from steps.command.members import add_roles
from steps.directory import snapshots
from steps.directory.experiment import training_inputs
from steps.directory.status import Status
from steps.directory.usable import is_worth_evaluating
from steps.training import pausing

LEARNER, ACTOR = ActorSettings.roles
TRAINER, WORKER = WorkerSettings.roles


def main(argv: Sequence[str] | None = None) -> int:
    """Run the step and return its exit code."""
    # Removed from the environment, because the command usually runs this module again.
    if command := os.environ.pop(COMMAND_VARIABLE, ""):
        return guarded("train", lambda: become(command, sys.argv[1:] if argv is None else argv))
    return run_step(
        "train",
        train,
        inputs=inputs,
        complete=is_complete,
        outputs=_outputs,
        arguments=_arguments,
        argv=argv,
    )


def train(context: StepContext) -> dict[str, Any] | Paused:
    """Train one run from its newest checkpoint, or from the start, to its end or to a pause. As an actor or a worker, help
    with it.
    """
    from steps.training.training_attempt import attempt
    from steps.training.training_files import train_in_one_process

    if context.member and context.arguments.role == ACTOR:
        from steps.training import actor

        return actor.act(context)
    if context.member and context.arguments.role == WORKER:
        from steps.training import self_play_worker

        return self_play_worker.play(context)
    if context.resolved.members is not None:
        context.note(workflow=context.owner_uid)  # whose members this attempt's end concerns
    if context.resolved.descriptor.has_actors:
        from steps.training import learner

        if context.member:
            return learner.learn(context)
        return attempt(context, learner.train)
    if context.resolved.descriptor.has_workers:
        from steps.training import self_play_trainer

        return attempt(context, self_play_trainer.train)
    return attempt(context, train_in_one_process)


def inputs(context: StepContext) -> Mapping[str, Any]:
    """What the result depends on. Raises `BadInput` for a role that this training does not have, and
    for a pause that cannot be.
    """
    pausing.asked_pause(context)
    descriptor = context.resolved.descriptor
    if context.member:
        _check_role(context.arguments.role, descriptor)
    if context.member and context.arguments.role == TRAINER:
        raise BadInput(
            f"--member cannot be {context.arguments.member} for the role {TRAINER}; allowed: 0"
        )
    if context.member and context.arguments.role == LEARNER:
        most = context.resolved.actors.learners - 1
        if context.arguments.member > most:
            raise BadInput(
                f"--member cannot be {context.arguments.member} for the role {LEARNER}: the "
                f"experiment has learners={most + 1}; allowed: at most {most}"
            )
    return training_inputs(context.record)


def _check_role(role: str, descriptor: Algorithm) -> None:
    if descriptor.topology not in MEMBERS:
        raise BadInput(f"--role cannot be {role}: {descriptor.name} trains in one process")
    roles = MEMBERS[descriptor.topology][1].roles
    if role not in roles:
        raise BadInput(
            f"--role cannot be {role}: {descriptor.name} has {' and '.join(roles)}; allowed: those"
        )


def is_complete(context: StepContext) -> bool:
    """Whether the files of a training that is finished, or paused where it should, are intact, so that
    it can be skipped.
    """
    from steps.training.meeting import is_trained, outcome

    if context.member:
        return bool(outcome(context))
    previous = context.previous
    return (
        previous is not None
        and pausing.is_far_enough(context, previous)
        and is_trained(context.run, previous)
    )


def _outputs(context: StepContext, status: Status) -> dict[str, str]:
    """Argo's outputs: whether the run is worth evaluating, the parts in which the snapshots of its
    policy are evaluated, and the number of epochs that it has. Only the roles that learn know them.
    """
    if context.resolved.measure.training_detail not in status.details:
        return {}
    evaluate = status.state != "paused" and is_worth_evaluating(status, context.resolved)
    parts = list[str]()
    if evaluate and context.resolved.experiment.evaluations:
        count = len(snapshots.parts(context.run.snapshot_steps()))
        parts = [str(part) for part in range(count)]
    return {
        "evaluate": "true" if evaluate else "false",
        pipeline.SNAPSHOT_PARTS: json.dumps(parts),
        pipeline.REACHED: f"{status.number('epoch') or 0:.0f}",
    }


def _arguments(parser: argparse.ArgumentParser) -> None:
    roles = (LEARNER, ACTOR, TRAINER, WORKER)
    add_roles(parser, roles, answering=(LEARNER, TRAINER))
    pausing.add_until(parser)
    parser.add_argument(
        "--learner",
        metavar="HOST:PORT",
        help="of an actor: where the learner is reached, if not as it says in learner.json",
    )
    parser.add_argument(
        "--port", type=int, default=0, help="of the learner: where it listens; 0: any free port"
    )


if __name__ == "__main__":
    end(main())
