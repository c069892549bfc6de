"""The first step of an experiment: `python -m steps.prepare --algorithm ppo -p game=cartpole -p
outdir=results/cartpole`.

Checks every parameter, claims the output directory, writes `experiment.yaml`, and outputs to Argo the
list of runs, those that are trained already, and the parameters that the manifest uses. Bad input
fails here, before anything is written and before a GPU pod exists. Run again with the same parameters,
it continues the experiment and changes nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from config import pipeline
from config.algorithms import ALGORITHMS
from config.ending import end
from config.errors import BadInput, ExperimentError
from config.given import from_argo, from_assignments, refuse_replaced, together
from config.outdir import check_outdir
from config.parameters import cannot_be
from config.resolve import resolve
from config.resolved import Resolved
from config.strict_yaml import dump
from steps.command.attempt import Attempt
from steps.command.context import StepContext
from steps.command.main import guarded, refuse_second_process, write_outputs
from steps.command.stop import StopRequest
from steps.directory import owner
from steps.directory.continuing import check_evaluations
from steps.directory.experiment import (
    ExperimentRecord,
    as_document,
    continued,
    read_experiment,
    refuse_code_inside,
    training_inputs,
    write_experiment,
)
from steps.directory.files import make_and_probe, read_bytes, refuse_links, write_atomically
from steps.directory.layout import ExperimentDirectory, RunDirectory
from steps.directory.length import check_length
from steps.directory.network_storage import may_be_late, wait_until_seen
from steps.directory.pruned import refuse_pruned
from steps.directory.starting_point import (
    origin_directory,
    recorded_games,
    with_origin,
    with_recorded,
)
from steps.directory.status import now, read_status
from steps.tracking import sink

PACKAGES = (
    "torch",
    "numpy",
    "gymnasium",
    "ale-py",
    "safetensors",
    "matplotlib",
    "moviepy",
    "tensorboard",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the step and return its exit code."""
    stop = StopRequest()
    stop.install()
    arguments = _parser().parse_args(argv)
    return guarded("prepare", lambda: prepare(arguments, stop))


def prepare(arguments: argparse.Namespace, stop: StopRequest) -> int:
    """Prepare the experiment. Every error is found before the first byte is written."""
    given = from_assignments(arguments.p)
    if arguments.workflow_parameters is not None:
        refuse_replaced(arguments.workflow_parameters)
    if arguments.parameters == "" and arguments.workflow_parameters is not None:
        given = together(given, from_argo(arguments.workflow_parameters, "--workflow-parameters"))
    elif arguments.parameters is not None:
        given = together(given, from_argo(arguments.parameters))
    storage = os.environ.get("STORAGE") or None
    algorithm = arguments.algorithm
    if arguments.study:
        algorithm, given = _of_cell(given, storage, stop)
    resolved = resolve(algorithm, from_assignments(arguments.default) | given)
    directory = ExperimentDirectory(check_outdir(resolved.experiment.outdir, storage))
    refuse_links(directory)
    refuse_code_inside(resolved.algorithm, directory.root)
    sink.check(resolved.experiment.track, directory.root)
    resolved = with_origin(resolved, directory.root, origin_directory(resolved, storage))
    resolved = _with_recorded_games(resolved)
    submitted = describe(resolved)
    _continued(directory, submitted)
    make_and_probe(directory.root)
    # A study calls an experiment again when its runs grow, and no two with one directory.
    me = owner.from_environment(call="" if arguments.study else arguments.call)
    with claimed(directory, me, stop):
        # Again: another workflow may have written the record before the directory was claimed.
        record = _continued(directory, submitted)
    context = StepContext(
        task="prepare",
        directory=directory,
        run_index=None,
        owner_uid=me.uid if me else None,
        arguments=arguments,
        stop=stop,
        previous=read_status(directory.status / "prepare.json"),
        inputs={"record": hashlib.sha256(dump(as_document(record)).encode()).hexdigest()},
    )
    code = _write(context, record)
    if code == 0:
        runs = range(resolved.experiment.runs)
        trained = [run for run in runs if _is_trained(directory.run(run), record)]
        write_outputs(
            {
                pipeline.RUNS: json.dumps(list(runs)),
                pipeline.TRAINED: "".join(f",{run}" for run in trained) + ",",
                **record.resolved.read_by_argo(),
            }
        )
    return code


def _of_cell(
    given: Mapping[str, str], storage: str | None, stop: StopRequest
) -> tuple[str, dict[str, str]]:
    """Algorithm and parameters of the study's experiment whose directory this is. Raises `BadInput`, and
    `WrongDirectory` for a damaged list of experiments.
    """
    from steps.directory.study import find_cell

    directory = ExperimentDirectory(check_outdir(given.get("outdir", ""), storage))
    if owner.from_environment() is not None and may_be_late(directory.root):
        # In a workflow `plan` has just written the list, perhaps on another node.
        wait_until_seen(lambda: find_cell(directory), stop.check, "what plan has written")
    cell = find_cell(directory)
    return cell.algorithm, together(given, cell.given)


def _is_trained(run: RunDirectory, record: ExperimentRecord) -> bool:
    """Whether `train` of this run will find nothing to do. Everything that cannot be read is left to
    the step itself.
    """
    from steps.training.meeting import is_trained

    try:
        status = read_status(run.status / f"{pipeline.TRAIN}.json")
        return (
            status is not None
            and status.state == "succeeded"
            and status.inputs == training_inputs(record)
            and is_trained(run, status)
        )
    except (OSError, ValueError, ExperimentError):
        return False


def _with_recorded_games(resolved: Resolved) -> Resolved:
    """Replay all games that the network is to imitate, and make them a part of the identity. Raises
    `BadInput`.
    """
    text = recorded_games(resolved)
    if text is None:
        return resolved
    from agents.games.named import load_game
    from agents.selfplay.positions import read_games

    try:
        read_games(text, load_game(resolved.game.id))
    except BadInput as error:
        raise cannot_be("imitate", resolved.hyperparameters.imitate, because=str(error)) from None
    return with_recorded(resolved, text)


@contextlib.contextmanager
def claimed(
    directory: ExperimentDirectory, me: owner.Owner | None, stop: StopRequest
) -> Iterator[None]:
    """Own the directory from now on, and give it back if what follows is refused. When run by hand,
    only check that no workflow owns it.

    Raises `WrongDirectory`.
    """
    path = directory.owner_json
    if me is None:
        owner.check(path, None, on_wait=stop.check)
        yield
        return
    before = _content(path)
    owner.claim(path, me, on_wait=stop.check)
    try:
        yield
    except BaseException:
        _give_back(path, me, before)
        raise


def _give_back(path: Path, me: owner.Owner, before: bytes | None) -> None:
    """Undo the claim, unless it was displaced meanwhile."""
    if owner.read_owner(path) != me or _content(path) == before:
        return
    if before is None:
        path.unlink()
    else:
        write_atomically(path, before)


def _content(path: Path) -> bytes | None:
    try:
        return read_bytes(path)
    except FileNotFoundError:
        return None


def _continued(directory: ExperimentDirectory, submitted: ExperimentRecord) -> ExperimentRecord:
    """The record to write: `submitted` as the continuation of what the directory contains. Raises
    `WrongDirectory`, also where the state of its trainings was deleted, and `BadInput` for a length that
    they cannot have, or evaluations.
    """
    if not directory.experiment_yaml.exists():
        return submitted
    before = read_experiment(directory)
    for index in range(before.resolved.experiment.runs):
        refuse_pruned(directory.run(index))
    check_length(directory, before, submitted.resolved)
    record = continued(before, submitted)
    check_evaluations(directory, record.resolved)
    return record


def describe(resolved: Resolved) -> ExperimentRecord:
    """The record of an experiment that starts now. Checks that the game can be played. Raises
    `BadInput`.
    """
    check_game(resolved)
    return ExperimentRecord(
        resolved=resolved,
        identity=resolved.identity(),
        identity_hash=resolved.identity_hash,
        versions=versions(),
        source=source(),
        image=os.environ.get("EXPERIMENT_IMAGE") or None,
        started=now(),
        workflow=os.environ.get("EXPERIMENT_WORKFLOW") or None,
    )


def check_game(resolved: Resolved) -> None:
    """Raise `BadInput` unless the game can be played as training will play it."""
    from agents.checks.playable import check_playable
    from agents.checks.trial import needs_a_trial
    from steps.directory.elsewhere import tried_elsewhere

    if needs_a_trial(resolved):
        tried_elsewhere(resolved, resolved.experiment.trial_timeout)
    else:
        check_playable(resolved)
    if resolved.descriptor.has_workers:
        from steps.arena.entrants import check_arena

        check_arena(resolved)


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that make the results, read from their metadata
    without importing them.
    """
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def source() -> dict[str, Any]:
    """The commit of this code, from the image or from git. changed: whether files differ from it.
    Both are None if unknown.
    """
    baked = os.environ.get("EXPERIMENT_SOURCE")
    if baked:
        commit, _, tree = baked.partition("-")  # as `containers/tag` prints it
        return {"commit": commit, "changed": bool(tree)}
    changes = _git("status", "--porcelain", "--untracked-files=no")
    return {
        "commit": _git("rev-parse", "HEAD"),
        "changed": None if changes is None else bool(changes),
    }


def _git(*arguments: str) -> str | None:
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    try:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _write(context: StepContext, record: ExperimentRecord) -> int:
    previous = context.previous
    if (
        previous is not None
        and previous.state == "succeeded"
        and previous.inputs == context.inputs
        and _is_written(context, record)
    ):
        print(f"prepare: succeeded before, {previous.ended}; nothing to do")
        return 0
    refuse_second_process(context)
    return Attempt(context).run(lambda: _record(context, record)).exit_code or 0


def _is_written(context: StepContext, record: ExperimentRecord) -> bool:
    return context.directory.experiment_yaml.exists() and context.record == record


def _record(context: StepContext, record: ExperimentRecord) -> dict[str, Any]:
    write_experiment(context.directory, record)
    resolved = record.resolved
    length = f"{resolved.epochs} epochs = {resolved.total_steps} steps each"
    print(
        f"{resolved.experiment.runs} runs of {resolved.algorithm} on {resolved.game.name}, {length}"
    )
    if record.history:
        left_out = record.history[0].get("left_out")
        if left_out:
            print(
                f"experiment.yaml no longer lists the changes of the {left_out} oldest submissions"
            )
        for name, (before, after) in record.history[-1]["changed"].items():
            print(
                f"warning: {name} has changed since an earlier submission: {before!r} -> {after!r}"
            )
    if resolved.experiment.start_from is not None:
        print(f"begins with the weights of {resolved.experiment.start_from}")
    _say_what_is_not_filmed(resolved)
    return {
        "runs": resolved.experiment.runs,
        "epochs": resolved.epochs,
        "steps": resolved.total_steps,
    }


def _say_what_is_not_filmed(resolved: Resolved) -> None:
    """Print whether films can be made on this machine. It is recorded nowhere: `play` finds it out
    again where it runs.
    """
    from steps.directory.elsewhere import drawn_elsewhere

    if resolved.experiment.video_episodes:
        refused = drawn_elsewhere(resolved).refused
        if refused is not None:
            print(f"warning: episodes cannot be filmed here: {refused}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m steps.prepare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--algorithm", help=f"{', '.join(ALGORITHMS)}, or package.module:NAME")
    what.add_argument(
        "--study",
        action="store_true",
        help="the outdir lies in that of a study, whose files say what the experiment is",
    )
    parser.add_argument(
        "--parameters",
        metavar="JSON",
        help='all parameters as Argo gives them: [{"name": …, "value": …}, …]; empty: those of the '
        "whole workflow",
    )
    parser.add_argument(
        "--call",
        default="",
        metavar="NODE",
        help="node of the workflow that runs this experiment, {{node.name}}: it tells the experiments "
        "of one workflow apart",
    )
    parser.add_argument(
        "--workflow-parameters",
        metavar="JSON",
        help="the parameters of the whole workflow, in the same form; one called 'parameters' is refused",
    )
    parser.add_argument(
        "-p",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="one parameter; what --parameters says of it must be the same",
    )
    parser.add_argument(
        "--default",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="the value of a parameter that is given nowhere else",
    )
    return parser


if __name__ == "__main__":
    end(main())
