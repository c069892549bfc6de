"""The film of how one run learnt: `python -m steps.play_learning --outdir results/cartpole --run 0`.

videos/learning.mp4 shows a few seconds of one evaluated episode of each snapshot of the policy
(`evaluations`), from the first to the last, with its step above it; after self-play, the end of a game
against the strongest player of the ladder. TensorBoard gets a small animation of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from config.ending import end
from steps.command.context import Skipped, StepContext
from steps.command.main import run_step
from steps.directory import snapshots
from steps.directory.files import remove_temporaries
from steps.directory.status import pause_of
from steps.directory.usable import fingerprint
from steps.films.mp4 import write_film
from steps.films.skipping import film_or_skip, nothing_left_to_film

FILM = "learning.mp4"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the step and return its exit code."""
    return run_step("play-learning", play_learning, inputs=inputs, complete=_is_written, argv=argv)


def inputs(context: StepContext) -> Mapping[str, Any]:
    """What the film depends on: the episodes of the snapshots."""
    run = context.run
    tables = [snapshots.table(run, step) for step in run.snapshot_steps()]
    return {
        "identity": context.record.identity_hash,
        "asked": bool(context.resolved.experiment.evaluations),
        "files": fingerprint(context.directory.root, tables),
    }


def play_learning(context: StepContext) -> dict[str, Any] | Skipped:
    """Film how the policy of one run learnt: a few seconds of an episode of each of its snapshots."""
    return film_or_skip(context, _unfilmed(context), _film)


def _film(context: StepContext) -> dict[str, Any]:
    from steps.evaluations import learning_film as film
    from steps.evaluations.event_file import write_animation

    listed, rate = film.parts(context)
    remove_temporaries(context.run.videos, of=FILM)
    animation = film.Animation(every=round(rate))
    frames = animation.watch(film.labelled(listed))
    written = write_film(context, context.run.videos / FILM, frames, rate)
    write_animation(context.run, animation.gif(), animation.size)
    seconds = round(written / rate, 2)
    print(f"{FILM}: {len(listed)} snapshots, {written} frames, {seconds} s")
    return {"file": FILM, "snapshots": len(listed), "frames": written, "seconds": seconds}


def _unfilmed(context: StepContext) -> str | None:
    if not context.resolved.experiment.evaluations:
        return "evaluations is 0"
    if paused := pause_of(context.run):
        return paused
    if not context.run.snapshot_steps():
        return f"there is no snapshot in {context.run.snapshots}"
    return None


def _is_written(context: StepContext) -> bool:
    return nothing_left_to_film(context, _unfilmed(context), [context.run.videos / FILM])


if __name__ == "__main__":
    end(main())
