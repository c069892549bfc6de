"""The film of how one run learnt: `python -m steps.play_learning --outdir results/cartpole --run 0`.

videos/learning.mp4 shows a few seconds of one evaluated episode of each snapshot of the policy
(`evaluations`), from the first to the last, with its step above it; after self-play, the end of a game
against the strongest player of the ladder. TensorBoard gets a small animation of it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from config.ending import end
from steps.command.context import Skipped, StepContext
from steps.command.main import run_step
from steps.directory import snapshots
from steps.directory.elsewhere import Drawing, drawn_elsewhere
from steps.directory.files import remove_temporaries
from steps.directory.usable import fingerprint
from steps.films.mp4 import check_codec, write_film

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
    """Film the snapshots of one run."""
    drawing = _drawing(context)
    if drawing.refused is not None:
        return Skipped(drawing.refused)
    os.environ.update(drawing.variables)
    check_codec()
    from agents.evaluation.pictures import NoImages
    from steps.evaluations import learning_film as film
    from steps.evaluations.event_file import write_animation

    listed, rate = film.parts(context)
    remove_temporaries(context.run.videos, of=FILM)
    animation = film.Animation(every=round(rate))
    frames = animation.watch(film.labelled(listed))
    try:
        written = write_film(context, context.run.videos / FILM, frames, rate)
    except NoImages as error:
        return Skipped(f"{context.resolved.game.name!r} gives no images: {error}")
    write_animation(context.run, animation.gif(), animation.size)
    seconds = round(written / rate, 2)
    print(f"{FILM}: {len(listed)} snapshots, {written} frames, {seconds} s")
    return {"file": FILM, "snapshots": len(listed), "frames": written, "seconds": seconds}


def _drawing(context: StepContext) -> Drawing:
    """How the pictures are drawn on this machine, or why there is no film."""
    if not context.resolved.experiment.evaluations:
        return Drawing({}, "evaluations is 0")
    if not context.run.snapshot_steps():
        return Drawing({}, f"there is no snapshot in {context.run.snapshots}")
    return drawn_elsewhere(context.resolved)


def _is_written(context: StepContext) -> bool:
    if context.previous is not None and context.previous.state == "skipped":
        # What cannot be drawn here may be drawn on another machine, or once a library is installed.
        return _drawing(context).refused is not None
    return (context.run.videos / FILM).is_file()


if __name__ == "__main__":
    end(main())
