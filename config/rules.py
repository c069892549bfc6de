"""The rules that involve more than one parameter, or a parameter and the game.

What one parameter may be by itself is declared where the parameter is (`config/parameters.py`).
"""

from __future__ import annotations

import functools

from config.algorithms import ALGORITHMS
from config.algorithms.descriptor import BOARD
from config.environment import ATARI_ONLY, ATARI_OPTIONS, EnvironmentSettings
from config.errors import BadInput, unknown
from config.experiment import LONGEST_TRAINING, Experiment
from config.games import games
from config.outdir import check_outdir_text
from config.parameters import cannot_be, declared, to_text
from config.resolved import Resolved


def check_together(resolved: Resolved) -> None:
    """Raise `BadInput` for the first parameter that another one, the algorithm or the game forbids."""
    experiment = resolved.experiment
    resolved.hyperparameters.check(resolved.environment)
    if resolved.members is not None:
        resolved.members.check()
    check_outdir_text(experiment.outdir)
    if experiment.start_from is not None:
        check_outdir_text(experiment.start_from, "start_from")
    _check_runs(resolved)
    _check_gpus(experiment)
    _check_length(resolved)
    if resolved.actor_settings is not None and resolved.actors.learners > 1:
        _check_learners(resolved)
    if resolved.family or resolved.descriptor.has_workers:
        check_family(resolved, resolved.family)
    _check_game(resolved)


def _check_runs(resolved: Resolved) -> None:
    """Raise `BadInput` for numbers of runs, episodes and snapshots that do not go together."""
    experiment = resolved.experiment
    if resolved.min_runs > experiment.runs:
        raise cannot_be("min_runs", experiment.min_runs, allowed=f"at most runs, {experiment.runs}")
    if experiment.video_episodes > experiment.evaluation_episodes:
        raise cannot_be(
            "video_episodes",
            experiment.video_episodes,
            allowed=f"at most evaluation_episodes, {experiment.evaluation_episodes}",
        )
    if experiment.evaluations == 1:
        raise cannot_be(
            "evaluations",
            1,
            because="the first and the last policy are two",
            allowed="0, or an integer from 2 to 1000",
        )
    if experiment.evaluate_above is not None and resolved.measure.training_name:
        measured = (
            f"a training of {resolved.algorithm} measures the {resolved.measure.training_name}"
        )
        raise cannot_be(
            "evaluate_above",
            experiment.evaluate_above,
            because=f"{measured}, which does not say how good it is",
            allowed="empty",
        )


def _check_gpus(experiment: Experiment) -> None:
    """Raise `BadInput` for what needs a GPU without one."""
    if experiment.device == "cuda" and experiment.gpus == 0:
        raise cannot_be(
            "device", "cuda", "with gpus=0", allowed="device=auto, device=cpu, or gpus=1"
        )
    if experiment.runs_per_gpu > 1 and not experiment.gpus:
        raise cannot_be(
            "runs_per_gpu",
            experiment.runs_per_gpu,
            "with gpus=0",
            allowed="1, or more with gpus=1",
        )


def _check_length(resolved: Resolved) -> None:
    """Raise `BadInput` for a training that is too long, or shorter than one of its intervals."""
    experiment = resolved.experiment
    for name in ("log_interval", "checkpoint_interval"):
        if (getattr(experiment, name) or 0) > resolved.epochs:
            raise cannot_be(
                name, getattr(experiment, name), allowed=f"at most epochs, {resolved.epochs}"
            )
    if resolved.total_steps > LONGEST_TRAINING:
        most = (LONGEST_TRAINING - resolved.warm_up_steps) // resolved.steps_per_epoch
        raise cannot_be(
            "epochs",
            resolved.epochs,
            allowed=f"at most {most}, that is {LONGEST_TRAINING} steps",
        )


def _check_learners(resolved: Resolved) -> None:
    """Raise `BadInput` for several learners if the algorithm has only one, or if one of them would
    have no actor or a smaller share than the others.
    """
    actors = resolved.actors.actors
    learners = resolved.actors.learners
    refused = functools.partial(cannot_be, "learners", learners)
    if not resolved.descriptor.several_learners:
        raise refused(because=f"{resolved.algorithm} learns in one process", allowed="1")
    if learners > actors:
        raise refused(allowed=f"at most actors, {actors}")
    batch_size = resolved.hyperparameters.batch_size
    if batch_size % learners:
        raise refused(allowed=f"what divides batch_size, {batch_size}")


def check_family(resolved: Resolved, family: str) -> None:
    """Raise `BadInput` if the algorithm does not play games of this family."""
    algorithm = resolved.descriptor
    refused = f"{resolved.algorithm} cannot play {resolved.game.name}"
    if algorithm.has_workers and family != BOARD:
        known = ", ".join(name for name, game in games().items() if game.is_board)
        raise BadInput(
            f"{refused}, which is no board game for two players; allowed: {known}, openspiel:NAME, "
            "package.module:Name of your own"
        )
    if family == BOARD and not algorithm.has_workers:
        players = [name for name, one in ALGORITHMS.items() if one.has_workers]
        raise BadInput(
            f"{refused}, a board game for two players; {' and '.join(players)} learns those"
        )
    if family not in algorithm.families:
        plays = " and ".join(algorithm.families)
        raise BadInput(
            f"{refused}: the game's actions are {family}; "
            f"{algorithm.name} plays games whose actions are {plays}"
        )


def _check_game(resolved: Resolved) -> None:
    """Raise `BadInput` for settings that this game would silently ignore."""
    game = resolved.game
    settings = resolved.environment
    if game.is_board:
        _check_board(resolved)
        return
    if game.is_atari and settings.normalise_observations:
        raise cannot_be(
            "normalise_observations", True, because=f"{game.name} shows images", allowed="false"
        )
    if (game.is_atari or game.is_pooled) and settings.wrappers:
        remedy = "game=package.module:function that makes and wraps this game with gymnasium"
        kind = ", an Atari game," if game.is_atari else ""
        raise cannot_be(
            "wrappers",
            settings.wrappers,
            because=f"the environments of {game.name}{kind} are made all at once",
            allowed=f"empty, or {remedy}",
        )
    for name in settings.options if game.is_atari else ():
        if name not in ATARI_OPTIONS:
            raise unknown(f"option of {game.name!r} in 'env_options'", name, ATARI_OPTIONS)
    for name in () if game.is_atari else ATARI_ONLY:
        value = getattr(settings, name)
        default = declared(EnvironmentSettings)[name].default
        if value != default:
            no_atari = f"{game.name} is no Atari game"
            raise cannot_be(name, value, because=no_atari, allowed=to_text(default))


def _check_board(resolved: Resolved) -> None:
    """Raise `BadInput` for evaluation settings that board games do not have."""
    experiment = resolved.experiment
    for name in ("evaluation_episodes", "snapshot_episodes"):
        if (given := getattr(experiment, name)) % 2:
            both = "each opening is played with both colours"
            raise cannot_be(name, given, because=both, allowed="even numbers")
    if resolved.evaluation_policy != "greedy":
        best = "the trained player takes the best action of its search, from different openings"
        raise cannot_be(
            "evaluation_policy",
            resolved.evaluation_policy,
            because=best,
            allowed="greedy, or empty",
        )
