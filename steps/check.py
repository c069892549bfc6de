"""The contract tests as a command: `python -m steps.check my_lab.ddqn:ALGORITHM`, or
`my_lab.nets:Impala`, `my_lab.envs:Maze`, `my_lab.games:Nim`, or a game's name.

Prints a line for each rule that the algorithm, network, environment or game must follow, and exits
with 2 if one is broken. A network or an environment is tried with an algorithm, by default one of
this project's; a game for self-play is tried alone.

It is not a step of the DAG. It writes only to a temporary directory, in which the algorithm is
trained, killed and continued.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agents.games.named import OPENSPIEL, OURS, load_game
from config.algorithms import ALGORITHMS, algorithm_names, checked, find_algorithm
from config.algorithms.descriptor import FAMILIES, SINGLE, Algorithm
from config.described import parameters
from config.ending import end
from config.errors import BadInput, shown
from config.games import find_game
from config.given import from_assignments
from config.imports import imported, is_import_path
from config.parameters import declared
from config.resolve import resolve
from config.resolved import STEPS, Resolved
from steps.command.main import guarded
from steps.directory.layout import ExperimentDirectory

if TYPE_CHECKING:
    from agents.checks.promises import Finding

OF_WHAT_IS_SEEN = ("game", "env_options", "wrappers")
EPOCHS = 6
KILLED_AT = "mid_row:3:train.csv"
FEWEST_ROWS = 2
"""The first of the three writes before the kill is the table's header."""
RESUMED = "killed and continued, the same bytes"
SMALL = {
    "epochs": str(EPOCHS),
    "num_envs": "2",
    "rollout_length": "64",
    "minibatches": "2",
    "epoch_steps": "64",
    "learning_starts": "64",
}
"""A training long enough to be killed."""
OF_A_WORKFLOW = ("STORAGE", "OUTPUTS", "EXPERIMENT_OWNER", "EXPERIMENT_WORKFLOW")
BROKEN = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns 0 if every rule of the contract holds, else 2."""
    parsed = _parser().parse_args(argv)
    return guarded(
        "check", lambda: check(parsed.what, from_assignments(parsed.p), parsed.algorithm)
    )


def check(what: str, given: dict[str, str], algorithm: str = "") -> int:
    """Try every rule and print a line for each. Returns `BROKEN` if one is broken, else 0. Raises
    `BadInput` for what cannot be found, imported, or resolved.
    """
    if _is_for_self_play(what):
        if algorithm or given:
            raise BadInput(f"{shown(what)} is a game for self-play; allowed: no further option")
        findings = _of_self_play(what)
    elif _is_algorithm(what):
        if algorithm:
            raise BadInput(f"--algorithm is for a network or a game; {shown(what)} is an algorithm")
        findings = _of_algorithm(what, given)
    elif _is_network(what):
        findings = _of_algorithm(algorithm or _trains(what, given), {"network": what, **given})
    else:
        findings = _of_game(algorithm or _player(what), {"game": what, **given})
    broken = False
    for finding in findings:  # a generator: each line appears as soon as its promise was tried
        mark = "ok    " if finding.kept else "BROKEN"
        print(f"{mark}  {finding.promise}: {finding.seen}", flush=True)
        broken = broken or not finding.kept
    return BROKEN if broken else 0


def _is_for_self_play(what: str) -> bool:
    """Whether this is a board game for self-play and not an environment."""
    if what in OURS or what.startswith(OPENSPIEL):
        return True
    found = imported(what, "what to check") if is_import_path(what) else None
    return all(hasattr(found, method) for method in ("legal", "play", "mover"))


def _is_algorithm(what: str) -> bool:
    if what in algorithm_names():
        return True
    return is_import_path(what) and isinstance(imported(what, "what to check"), Algorithm)


def _is_network(what: str) -> bool:
    """Whether this is a class derived from `torch.nn.Module`. Imports torch only if needed."""
    found = imported(what, "what to check") if is_import_path(what) else None
    return isinstance(found, type) and any(
        base.__module__.startswith("torch.nn") for base in found.__mro__
    )


def _trains(network: str, given: dict[str, str]) -> str:
    """The first of this project's algorithms that trains this network; one with a memory for a
    recurrent network.
    """
    from agents.environments.game_check import check_game
    from agents.networks.own import encoded_shape, make_torso

    shown = {name: text for name, text in given.items() if name in OF_WHAT_IS_SEEN}
    shape = encoded_shape(check_game(resolve("ppo", shown)))
    remembers = make_torso(network, shape, may_remember=True).remembers
    return next(
        name
        for name, algorithm in ALGORITHMS.items()
        if algorithm.remembers == remembers and "network" in declared(algorithm.hyperparameters)
    )


def _player(game: str) -> str:
    """The first of this project's algorithms that plays this game. If only the environment knows
    its action space, any algorithm may.
    """
    family = find_game(game).family
    played = {family} if family else set(FAMILIES)
    return next(name for name, one in ALGORITHMS.items() if played <= set(one.families))


def _of_algorithm(what: str, given: dict[str, str]) -> Iterator[Finding]:
    from agents.checks.algorithm_checks import TrainingChecks
    from agents.checks.promises import Finding, tried
    from agents.environments.game_check import check_game

    algorithm = checked(find_algorithm(what), what)
    if algorithm.topology != SINGLE:
        raise BadInput(
            f"{what} has {algorithm.topology} processes; allowed: an algorithm that trains in one process"
        )
    texts = given if given.get(STEPS) else {"epochs": str(EPOCHS), **given}
    resolved = resolve(what, texts)
    _check_length(resolved)
    check_game(resolved)
    said = f"{algorithm.name}, {algorithm.topology}, plays {' and '.join(algorithm.families)}"
    yield Finding(promise="its descriptor is complete", kept=True, seen=said)
    killed = {RESUMED: lambda: _killed(what, texts)}
    yield from tried(TrainingChecks(resolved).all() | killed)


def _of_game(algorithm: str, given: dict[str, str]) -> Iterator[Finding]:
    from agents.checks.environment_checks import EnvironmentChecks
    from agents.checks.promises import Finding, tried
    from agents.checks.trial import needs_a_trial
    from steps.directory.elsewhere import tried_elsewhere

    resolved = resolve(algorithm, given)
    trained = given | _small(algorithm, given)
    _check_length(resolve(algorithm, trained))
    if needs_a_trial(resolved):
        # First, because an environment that never returns would hold up every other check.
        promise = "a training can use it"
        try:
            tried_elsewhere(resolved, resolved.experiment.trial_timeout)
        except BadInput as error:
            yield Finding(promise=promise, kept=False, seen=str(error))
            return
        yield Finding(promise=promise, kept=True, seen="made, reset and stepped as prepare does")
    further = {
        "film": lambda: _film(resolved),
        RESUMED: lambda: _killed(algorithm, trained),
    }
    yield from tried(EnvironmentChecks(resolved).all() | further)


def _check_length(resolved: Resolved) -> None:
    """Raise `BadInput` for a training that ends before the row in which it would be killed."""
    rows = -(-resolved.epochs // resolved.experiment.log_interval)
    if rows < FEWEST_ROWS:
        raise BadInput(
            f"a training with one row in train.csv (epochs={resolved.epochs}, log_interval="
            f"{resolved.experiment.log_interval}) cannot be killed and continued; allowed: at least "
            f"{FEWEST_ROWS} rows"
        )


def _film(resolved: Resolved) -> str:
    """How a film is made on this machine, or why there is none, which is no fault of the game."""
    from agents.evaluation.rendering import film_rate
    from steps.directory.elsewhere import drawn_elsewhere

    drawing = drawn_elsewhere(resolved)
    if drawing.refused is not None:
        return f"none: {drawing.refused}"
    rate = film_rate(resolved.game, resolved.environment)
    graphics = drawing.variables.get("MUJOCO_GL")
    by = f", drawn with MUJOCO_GL={graphics}" if graphics else ""
    left_out = f", one after every {rate.steps} steps" if rate.steps > 1 else ""
    return f"{rate.frames_per_second:.3g} frames/s{left_out}{by}"


def _small(algorithm: str, given: dict[str, str]) -> dict[str, str]:
    """The sizes of a short training, as far as the algorithm has them and nobody has given them."""
    known = {info.name for info in parameters(algorithm)} - set(given)
    if given.get(STEPS):
        known.discard("epochs")
    return {name: text for name, text in SMALL.items() if name in known}


def _of_self_play(name: str) -> Iterator[Finding]:
    from agents.checks.game_checks import GameChecks
    from agents.checks.promises import tried

    yield from tried(GameChecks(lambda: load_game(name)).all())


def _killed(what: str, texts: dict[str, str]) -> str:
    """Train as the pods do, once undisturbed and once killed in the middle of a row after its
    second checkpoint, and compare the records.
    """
    from agents.checks.promises import Broken

    with tempfile.TemporaryDirectory(prefix="check-") as folder:
        undisturbed = _record(what, texts, Path(folder, "undisturbed"))
        continued = _record(what, texts, Path(folder, "killed"), fault=KILLED_AT)
    rows = zip(undisturbed.splitlines(), continued.splitlines(), strict=False)
    different = [number for number, (one, other) in enumerate(rows, 1) if one != other]
    if undisturbed != continued:
        place = f"line {different[0]}" if different else "its length"
        raise Broken(f"train.csv of the continued training differs at {place}")
    return f"train.csv, {len(undisturbed):,} bytes"


def _record(what: str, texts: dict[str, str], root: Path, fault: str = "") -> bytes:
    """The `train.csv` of a training. If a fault is given, an earlier attempt was killed there."""
    given = texts | {"outdir": str(root), "checkpoint_interval": "1"}
    _run("prepare", ["--algorithm", what, *(f"-p={name}={text}" for name, text in given.items())])
    train = ["--outdir", str(root), "--run", "0"]
    if fault:
        _run("train", train, fault)
    _run("train", train)
    return ExperimentDirectory(root).run(0).train_csv.read_bytes()


def _run(step: str, arguments: list[str], fault: str = "") -> None:
    """Run one step as a pod does. fault: where it is killed."""
    from agents.checks.promises import Broken

    # In a pod these name the experiment that it belongs to, which must not be touched.
    environment = {name: value for name, value in os.environ.items() if name not in OF_A_WORKFLOW}
    if fault:
        environment["EXPERIMENT_FAULT"] = fault
    ended = subprocess.run(
        [sys.executable, "-m", f"steps.{step}", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    expected = -signal.SIGKILL if fault else 0
    if ended.returncode != expected:
        said = (ended.stderr or ended.stdout).strip().splitlines() or ["nothing"]
        raise Broken(f"steps.{step} ended with {ended.returncode}, not {expected}: {said[-1]}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m steps.check",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "what", help=f"{', '.join(ALGORITHMS)}, package.module:NAME of your own, or a game"
    )
    parser.add_argument(
        "--algorithm",
        default="",
        metavar="NAME",
        help="what a network or a game is tried with; default: the first of ours that can",
    )
    parser.add_argument(
        "-p", action="append", default=[], metavar="NAME=VALUE", help="parameters to check it with"
    )
    return parser


if __name__ == "__main__":
    end(main())
