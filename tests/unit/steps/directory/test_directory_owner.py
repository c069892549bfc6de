"""Ownership on its own, without processes: who is refused, who takes over, and what a claim
leaves."""

from __future__ import annotations

import dataclasses
import json
import os
import threading
from pathlib import Path

import pytest

from config.errors import Preempted, WrongDirectory
from steps.directory import files, owner, processes
from steps.directory.owner import Fence, Owner

FIRST = Owner(uid="first", workflow="ppo-first", host="node-1", lease_s=0.3)
SECOND = Owner(uid="second", workflow="ppo-second", host="node-2", lease_s=0.3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "owner.json"


def test_a_free_directory_is_claimed_once(path: Path) -> None:
    owner.claim(path, FIRST)
    assert owner.read_owner(path) == FIRST
    inode = path.stat().st_ino
    owner.claim(path, FIRST)
    assert path.stat().st_ino == inode, "the same claim again writes nothing"
    assert [path.name for path in path.parent.iterdir()] == ["owner.json"]


def test_of_many_claims_at_once_one_wins(path: Path) -> None:
    alive = processes.identity()
    winners: list[str] = []
    losers: list[str] = []
    start = threading.Barrier(8)

    def claim(uid: str) -> None:
        start.wait()
        try:
            owner.claim(path, Owner(uid=uid, process=alive))
            winners.append(uid)
        except WrongDirectory as error:
            losers.append(str(error))

    threads = [threading.Thread(target=claim, args=(str(number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    present = owner.read_owner(path)
    assert present is not None
    assert winners == [present.uid]
    assert len(losers) == 7


def test_every_step_compares_the_uid(path: Path) -> None:
    with pytest.raises(WrongDirectory, match="has no owner"):
        owner.check(path, "first")
    owner.claim(path, FIRST)
    owner.check(path, "first")
    with pytest.raises(
        WrongDirectory,
        match=r"belongs to workflow ppo-first \(uid first, host node-1\), not to workflow uid second",
    ):
        owner.check(path, "second")
    owner.release(path, "second")
    owner.check(path, "first")
    owner.release(path, "first")
    with pytest.raises(WrongDirectory, match="no longer"):
        owner.check(path, "first")


def test_by_hand_only_a_living_owner_is_in_the_way(path: Path) -> None:
    owner.check(path, None)
    path.write_text(json.dumps({"uid": "first", "process": processes.identity()}))
    with pytest.raises(WrongDirectory, match="still running"):
        owner.check(path, None)
    host, pid, start, world = processes.identity().rsplit(":", 3)
    gone = f"{host}:{pid}:{start}0:{world}"  # the same number, given out again
    path.write_text(json.dumps({"uid": "first", "process": gone}))
    owner.check(path, None, on_wait=lambda: pytest.fail("its end is known without its lease"))


def test_the_lease_is_watched_not_compared_with_a_clock(path: Path) -> None:
    owner.claim(path, FIRST)
    os.utime(path, (2**32, 2**32))  # a machine whose clock is decades ahead
    owner.claim(path, SECOND)
    assert owner.read_owner(path) == SECOND


def test_a_touched_lease_is_alive(path: Path) -> None:
    owner.claim(path, FIRST)
    calls = 0

    def touch() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            os.utime(path, (1, 1))  # decades behind: only the change counts

    with pytest.raises(WrongDirectory, match="still running"):
        owner.claim(path, SECOND, on_wait=touch)
    assert owner.read_owner(path) == FIRST


def test_waiting_for_a_lease_can_be_interrupted(path: Path) -> None:
    owner.claim(path, FIRST)

    def stop() -> None:
        raise Preempted("asked to stop")

    with pytest.raises(Preempted):
        owner.claim(path, SECOND, on_wait=stop)
    assert owner.read_owner(path) == FIRST


def test_a_displaced_workflow_cannot_renew_the_lease(path: Path) -> None:
    owner.claim(path, FIRST)
    owner.touch(path, "first")
    owner.claim(path, SECOND)
    before = path.stat().st_mtime_ns
    with pytest.raises(WrongDirectory):
        owner.touch(path, "first")
    assert path.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"uid": 1, "lease_s": "x"}', "[" * 20_000, " " * 100_000]
)
def test_an_unreadable_owner_is_nobody_to_overwrite(path: Path, content: str) -> None:
    path.write_text(content)
    for act in (
        lambda: owner.claim(path, FIRST),
        lambda: owner.check(path, "first"),
        lambda: owner.check(path, None),
    ):
        with pytest.raises(WrongDirectory, match="delete it if no workflow writes"):
            act()
    assert path.read_text() == content


def test_another_call_in_the_same_workflow_is_refused(path: Path) -> None:
    """Whether the first one has ended or not; a further attempt of the first goes on."""
    workflow = {"EXPERIMENT_OWNER": "u", "EXPERIMENT_WORKFLOW": "wf"}
    nodes = ("wf.first.prepare", "wf.second.prepare", "wf.first.prepare", "wf.first(1).prepare")
    first, second, again, below_a_repeated_dag = (
        owner.from_environment(workflow, call=node) for node in nodes
    )
    assert first and second and again and below_a_repeated_dag
    owner.claim(path, first)
    refused = r"belongs to another call .*, wf\.first\.prepare; wf\.second\.prepare needs another"
    with pytest.raises(WrongDirectory, match=refused):
        owner.claim(path, second)
    owner.claim(path, again)
    owner.claim(path, below_a_repeated_dag)
    owner.release(path, "u")
    with pytest.raises(WrongDirectory, match=refused):
        owner.claim(path, second)
    assert owner.read_owner(path) == dataclasses.replace(first, released=True)


def test_the_owner_comes_from_the_environment() -> None:
    assert owner.from_environment({}) is None
    found = owner.from_environment(
        {"EXPERIMENT_OWNER": "u", "EXPERIMENT_WORKFLOW": "w", "EXPERIMENT_OWNER_PROCESS": "h:1:2"}
    )
    assert found is not None
    assert (found.uid, found.workflow, found.process) == ("u", "w", "h:1:2")


def test_an_attempt_becomes_the_newest_though_an_older_one_sweeps_its_temporary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = (Fence(tmp_path / ".train.attempt") for _ in range(2))
    older.claim()
    write = files.write_and_sync

    def swept(path: Path, content: bytes, mode: int) -> None:
        monkeypatch.setattr(files, "write_and_sync", write)
        write(path, content, mode)
        files.remove_temporaries(tmp_path)

    monkeypatch.setattr(files, "write_and_sync", swept)
    newer.claim()
    newer.check()
    with pytest.raises(WrongDirectory, match="another attempt"):
        older.check()
