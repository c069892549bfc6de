"""The rules that involve more than one parameter, or a parameter and the game.

What one parameter may be by itself is declared where the parameter is (`config/parameters.py`).
"""

from __future__ import annotations

from config.algorithms import ALGORITHMS
from config.algorithms.descriptor import BOARD
from config.environment import ATARI_ONLY, ATARI_OPTIONS, EnvironmentSettings
from config.errors import BadInput, shown, unknown
from config.experiment import LONGEST_TRAINING
from config.games import games
from config.outdir import check_outdir_text
from config.parameters import declared, to_text
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
    if resolved.min_runs > experiment.runs:
        raise BadInput(
            f"parameter 'min_runs' cannot be {experiment.min_runs}; allowed: at most runs, {experiment.runs}"
        )
    if experiment.video_episodes > experiment.evaluation_episodes:
        given = experiment.video_episodes
        most = experiment.evaluation_episodes
        refused = f"parameter 'video_episodes' cannot be {given}"
        raise BadInput(f"{refused}; allowed: at most evaluation_episodes, {most}")
    if experiment.evaluations == 1:
        raise BadInput(
            "parameter 'evaluations' cannot be 1: the first and the last policy are two; "
            "allowed: 0, or an integer from 2 to 1000"
        )
    if experiment.evaluate_above is not None and resolved.measure.training_name:
        refused = f"parameter 'evaluate_above' cannot be {to_text(experiment.evaluate_above)}"
        measured = resolved.measure.training_name
        raise BadInput(
            f"{refused}: a training of {resolved.algorithm} measures the {measured}, "
            "which does not say how good it is; allowed: empty"
        )
    if experiment.device == "cuda" and experiment.gpus == 0:
        raise BadInput(
            "parameter 'device' cannot be 'cuda' with gpus=0; allowed: device=auto, device=cpu, or gpus=1"
        )
    if experiment.runs_per_gpu > 1 and not experiment.gpus:
        raise BadInput(
            f"parameter 'runs_per_gpu' cannot be {experiment.runs_per_gpu} with gpus=0; "
            "allowed: 1, or more with gpus=1"
        )
    for name in ("log_interval", "checkpoint_interval"):
        if (getattr(experiment, name) or 0) > resolved.epochs:
            raise BadInput(
                f"parameter {name!r} cannot be {getattr(experiment, name)}; allowed: at most epochs, {resolved.epochs}"
            )
    if resolved.total_steps > LONGEST_TRAINING:
        most = (LONGEST_TRAINING - resolved.warm_up_steps) // resolved.steps_per_epoch
        raise BadInput(
            f"parameter 'epochs' cannot be {resolved.epochs}; allowed: at most {most}, that is {LONGEST_TRAINING} steps"
        )
    if resolved.actor_settings is not None and resolved.actors.learners > 1:
        _check_learners(resolved)
    if resolved.family or resolved.descriptor.has_workers:
        check_family(resolved, resolved.family)
    _check_game(resolved)


def _check_learners(resolved: Resolved) -> None:
    """Raise `BadInput` for several learners if the algorithm has only one, or if one of them would
    have no actor or a smaller share than the others.
    """
    actors = resolved.actors.actors
    learners = resolved.actors.learners
    refused = f"parameter 'learners' cannot be {learners}"
    if not resolved.descriptor.several_learners:
        raise BadInput(f"{refused}: {resolved.algorithm} learns in one process; allowed: 1")
    if learners > actors:
        raise BadInput(f"{refused}; allowed: at most actors, {actors}")
    batch_size = resolved.hyperparameters.batch_size
    if batch_size % learners:
        raise BadInput(f"{refused}; allowed: what divides batch_size, {batch_size}")


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
        raise BadInput(
            f"parameter 'normalise_observations' cannot be true: {game.name} shows images; allowed: false"
        )
    if (game.is_atari or game.is_pooled) and settings.wrappers:
        remedy = "game=package.module:function that makes and wraps this game with gymnasium"
        kind = ", an Atari game," if game.is_atari else ""
        raise BadInput(
            f"parameter 'wrappers' cannot be {shown(settings.wrappers)}: the environments of {game.name}{kind} "
            f"are made all at once; allowed: empty, or {remedy}"
        )
    for name in settings.options if game.is_atari else ():
        if name not in ATARI_OPTIONS:
            raise unknown(f"option of {game.name!r} in 'env_options'", name, ATARI_OPTIONS)
    for name in () if game.is_atari else ATARI_ONLY:
        value = getattr(settings, name)
        default = declared(EnvironmentSettings)[name].default
        if value != default:
            raise BadInput(
                f"parameter {name!r} cannot be {to_text(value)}: {game.name} is no Atari game; allowed: {to_text(default)}"
            )


def _check_board(resolved: Resolved) -> None:
    """Raise `BadInput` for evaluation settings that board games do not have."""
    experiment = resolved.experiment
    for name in ("evaluation_episodes", "snapshot_episodes"):
        if (given := getattr(experiment, name)) % 2:
            raise BadInput(
                f"parameter {name!r} cannot be {given}: each opening is played "
                "with both colours; allowed: even numbers"
            )
    if resolved.evaluation_policy != "greedy":
        raise BadInput(
            f"parameter 'evaluation_policy' cannot be {resolved.evaluation_policy!r}: the trained player takes the "
            "best action of its search, from different openings; allowed: greedy, or empty"
        )
