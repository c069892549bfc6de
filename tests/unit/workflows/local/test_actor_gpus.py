"""GPUs of actors, and of workers: which numbers go together, and who sees what on a machine with two
pretended ones.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from config.cluster import load_cluster
from config.errors import BadInput
from config.pod_labels import PODS_PER_GPU
from config.resolve import resolve
from tests.actors_alone import run_actors
from workflows.local.errors import PodError
from workflows.local.machine.pod_spec import build
from workflows.local.machine.slots import Capacity, Grant, Resources, Slots
from workflows.sharing import with_gpus

TWO = {"CUDA_VISIBLE_DEVICES": "0,GPU-b"}


@pytest.mark.parametrize(
    ("algorithm", "given", "why"),
    [
        ("impala", {"actors": "5", "actor_gpus": "2", "actors_per_gpu": "2"},
         "'actors' cannot be 5; allowed: at most actor_gpus * actors_per_gpu = 2 * 2 = 4"),
        ("impala", {"actors": "2", "actor_gpus": "1"}, "actor_gpus * actors_per_gpu = 1 * 1 = 1"),
        ("impala", {"actors_per_gpu": "2"}, "'actors_per_gpu' cannot be 2 with actor_gpus=0"),
        ("impala", {"actors_per_gpu": "0"}, "'actors_per_gpu' cannot be '0'"),
        ("impala", {"actor_gpus": "-1"}, "'actor_gpus' cannot be '-1'"),
        ("alphazero", {"workers": "3", "worker_gpus": "1", "workers_per_gpu": "2"},
         "'workers' cannot be 3; allowed: at most worker_gpus * workers_per_gpu = 1 * 2 = 2"),
        ("alphazero", {"workers_per_gpu": "2"}, "'workers_per_gpu' cannot be 2 with worker_gpus=0"),
    ],
)  # fmt: skip
def test_numbers_that_do_not_go_together_are_refused(
    algorithm: str, given: dict[str, str], why: str
) -> None:
    with pytest.raises(BadInput, match=re.escape(why)) as refused:
        resolve(algorithm, given)
    assert "\n" not in str(refused.value)


def test_their_neighbours_are_not() -> None:
    for given in ({"actors": "4", "actor_gpus": "2", "actors_per_gpu": "2"}, {"actors": "500"}):
        assert resolve("impala", given).identity_hash == resolve("impala", {}).identity_hash
    of_workers = {"workers": "4", "worker_gpus": "2", "workers_per_gpu": "2"}
    given_gpus = resolve("alphazero", of_workers)
    assert given_gpus.identity_hash == resolve("alphazero", {}).identity_hash


@pytest.mark.parametrize(
    ("per_gpu", "at_once"), [(1, 2), pytest.param(2, 4, marks=pytest.mark.slow)]
)
def test_no_gpu_is_seen_by_more_actors_than_it_may_be(
    tmp_path: Path, per_gpu: int, at_once: int
) -> None:
    """Six actors, two GPUs: as many as may be at once are, and the others wait for them."""
    told = seen_by(
        tmp_path, at_once, actors="6", actor_gpus=str(6 // per_gpu), actors_per_gpu=str(per_gpu)
    )
    assert sorted(one["member"] for one in told) == [f"--member={number}" for number in range(6)]
    assert {one["CUDA_VISIBLE_DEVICES"] for one in told} == {"0", "GPU-b"}
    for gpu in ("0", "GPU-b"):
        assert (
            0 < most_at_once(one for one in told if one["CUDA_VISIBLE_DEVICES"] == gpu) <= per_gpu
        )


def test_who_asks_for_no_gpu_sees_none(tmp_path: Path) -> None:
    for one in seen_by(tmp_path, 2, actors="2"):
        assert one["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5"])
def test_an_annotation_that_is_no_number_of_pods_is_an_error(text: str) -> None:
    template = {"container": {}, "metadata": {"annotations": {PODS_PER_GPU: text}}}
    with pytest.raises(PodError, match=f"annotation {PODS_PER_GPU}: '{text}' is not allowed"):
        build(template, "", {})


def seen_by(folder: Path, at_once: int, **given: str) -> list[dict[str, Any]]:
    """What each of the actors wrote, of which so many wait for each other."""
    (folder / "told").mkdir()
    command = f"python -m tests.seeing_actor told {at_once}"
    code, printed = run_actors(
        folder, environment=TWO, outdir="/storage/x", actor_command=command, **given
    )
    assert code == 0, printed
    told = [json.loads(path.read_text()) for path in (folder / "told").glob("told-*.json")]
    assert len(told) == int(given["actors"]), printed
    return told


def most_at_once(told: Any) -> int:
    """Processes whose times overlap."""
    there = [(one["begun"], one["ended"]) for one in told]
    return max(sum(begun <= when < ended for begun, ended in there) for when, _ in there)


def handed_out(slots: Slots, *asked: Resources) -> list[Grant | None]:
    """What each gets of who comes in this order; None: it waits."""

    async def all_of_them() -> list[Grant | None]:
        tasks = [asyncio.ensure_future(slots.acquire(one)) for one in asked]
        await asyncio.sleep(0)
        granted = [task.result() if task.done() else None for task in tasks]
        for task in tasks:
            task.cancel()
        return granted

    return asyncio.run(all_of_them())


def test_one_gpu_is_filled_before_the_next_and_a_whole_one_is_shared_with_nobody() -> None:
    actor, learner = Resources(gpus=1, pods_per_gpu=3), Resources(gpus=1)
    slots = Slots(Capacity(4.0, ("a", "b", "c")))
    granted = handed_out(slots, learner, actor, actor, learner, actor, actor, learner)
    gpus = [one and one.gpus for one in granted]
    assert gpus == [("a",), ("b",), ("b",), ("c",), ("b",), None, None]
    for one in granted:
        if one:
            one.release()
    both = handed_out(slots, Resources(gpus=2), actor, Resources(gpus=2))
    assert [one and one.gpus for one in both] == [("a", "b"), ("c",), None]


def test_who_wants_fewer_others_has_fewer() -> None:
    slots = Slots(Capacity(4.0, ("a",)))
    few, many = Resources(gpus=1, pods_per_gpu=2), Resources(gpus=1, pods_per_gpu=4)
    granted = handed_out(slots, many, few, many)
    assert [one is not None for one in granted] == [True, True, False]
    assert granted[1] is not None
    granted[1].release()
    assert Counter(one is None for one in handed_out(slots, many, many, many, few)) == {
        False: 3, True: 1,
    }  # fmt: skip


def test_as_many_runs_are_active_as_find_their_gpus_on_this_machine() -> None:
    cluster = load_cluster()
    given = {"actors": "4", "actor_gpus": "2", "actors_per_gpu": "2"}
    resolved = resolve("impala", given)
    assert [with_gpus(cluster, resolved, gpus).parallelism_with_actors for gpus in (0, 3, 5, 6)] == [
        cluster.parallelism_with_actors, 1, 1, 2,
    ]  # fmt: skip
    with pytest.raises(
        BadInput, match="1 GPUs and actor_gpus=2 are more than the 2 of this machine"
    ):
        with_gpus(cluster, resolved, 2)
    on_cpu = resolve("impala", {**given, "gpus": "0"})
    assert with_gpus(cluster, on_cpu, 2).parallelism_with_actors == 1
    with pytest.raises(BadInput, match=r"actor_gpus=2 are more than .* fewer of either$"):
        with_gpus(cluster, on_cpu, 1)
    of_workers = resolve("alphazero", {"workers": "2", "worker_gpus": "2"})
    with pytest.raises(
        BadInput, match="the trainers' 1 GPUs and worker_gpus=2 are more than the 2"
    ):
        with_gpus(cluster, of_workers, 2)
