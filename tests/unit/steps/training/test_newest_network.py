"""Which network a worker plays by: the newest of the run's directory, whatever happens to it there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from config.errors import Preempted
from steps.directory import self_play
from steps.directory.layout import RunDirectory
from steps.training.meeting import Ended
from steps.training.self_play_worker import NewestNetwork


def write(run: RunDirectory, generation: int, weight: float) -> None:
    state = {"average": {"weight": np.full(3, weight)}}
    self_play.write_generation(run, generation, state, {"algorithm": "alphazero"})


def newest(
    run: RunDirectory, load: Callable[[Any], object] = lambda state: None, **more: Any
) -> NewestNetwork:
    context: Any = SimpleNamespace(run=run, check_stop=lambda: None, owner_uid=None, **more)
    return NewestNetwork(context, load)


def weight(found: Any) -> float | None:
    return None if found is None else float(found.state["average"]["weight"][0])


def test_each_network_is_given_once_and_the_newest_of_several(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, 0)
    look = newest(run)
    assert look() is None
    write(run, 0, 1.0)
    found = look()
    assert (found and found.generation, weight(found)) == (0, 1.0)
    assert look() is None
    write(run, 1, 2.0)
    write(run, 2, 3.0)
    assert weight(look()) == 3.0
    assert look() is None


def test_a_trainer_that_went_back_is_followed(tmp_path: Path) -> None:
    """What it publishes under a number that was there before is another network."""
    run = RunDirectory(tmp_path, 0)
    look = newest(run)
    for generation in range(4):
        write(run, generation, float(generation))
    assert weight(look()) == 3.0
    self_play.discard_networks_after(run, 1)
    found = look()
    assert (found and found.generation, weight(found)) == (1, 1.0)
    write(run, 2, 20.0)
    assert weight(look()) == 20.0
    write(run, 2, 21.0)
    assert weight(look()) == 21.0


def test_a_damaged_one_is_not_played_by_and_the_next_one_is(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, 0)
    look = newest(run)
    write(run, 0, 1.0)
    assert weight(look()) == 1.0
    write(run, 1, 2.0)
    tensors = run.network(1) / "tensors.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-3])
    assert look() is None
    write(run, 2, 3.0)
    assert weight(look()) == 3.0


def test_one_that_fits_nothing_is_named_and_the_next_one_is_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its sums are right, but it is not what the training saves."""

    def load(state: Any) -> float:
        return float(state["average"]["weight"].sum())

    run = RunDirectory(tmp_path, 0)
    strange = {"average": {"bias": np.zeros(3)}}
    self_play.write_generation(run, 0, strange, {"algorithm": "alphazero"})
    look = newest(run, load)
    with pytest.raises(Preempted, match="there is none to play by"):
        look.wait(0.1)
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert f"{run.network(0)} does not hold what this training saves (KeyError: 'weight')" in said
    write(run, 1, 2.0)
    look.wait(0.1)
    assert weight(look()) == 2.0
    assert look() is None


def test_without_any_it_waits_for_a_time_or_until_the_training_has_ended(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, 0)
    with pytest.raises(
        Preempted, match=r"no network for 0\.1 s: there is none to play by in .*networks"
    ):
        newest(run).wait(0.1)
    write(run, 0, 1.0)
    look = newest(run)
    look.wait(0.1)

    def ended() -> None:
        raise Ended("the run is trained")

    look.ending.check = ended  # type: ignore[method-assign]
    with pytest.raises(Ended):
        look.wait(0.1)
