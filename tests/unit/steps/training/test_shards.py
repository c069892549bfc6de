"""Games between workers and trainer as files: whole or not there, taken once, and waited for."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from agents.games.named import load_game
from agents.selfplay.positions import columns_of
from agents.selfplay.roles import Games, Played
from config.errors import ExperimentError, Preempted
from steps.directory import self_play
from steps.directory.layout import RunDirectory
from steps.training import shards
from steps.training.self_play_trainer import Waiting, balancing_ratio
from steps.training.shards import Inbox, Outlet

GAME = load_game("tic-tac-toe")
IDENTITY = "ab" * 32
NUMBERS = itertools.count()


def context(run: RunDirectory, member: int = 0, attempt: int = 1, patience_s: int = 5) -> Any:
    return SimpleNamespace(
        run=run,
        record=SimpleNamespace(identity_hash=IDENTITY),
        resolved=SimpleNamespace(workers=SimpleNamespace(reconnect_timeout=patience_s), epochs=100),
        arguments=SimpleNamespace(member=member),
        attempt=attempt,
        require_ours=lambda: None,
    )


def game(generation: int = 0) -> Played:
    """Of 7 positions that no other one has."""
    rows = {name: np.zeros((7, *shape), dtype) for name, (dtype, shape) in columns_of(GAME).items()}
    rows["value"][:] = [next(NUMBERS) for _ in range(7)]
    rows["generation"][:] = generation
    return Played(rows, 50.0)


def values(games: list[Games]) -> list[float]:
    return [value for one in games for value in one.rows["value"].tolist()]


def everything(inbox: Inbox) -> list[Games]:
    inbox._looked_s = float("-inf")
    return list(iter(lambda: inbox.take(0), None))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    monkeypatch.setattr(shards, "SHARD_POSITIONS", 7)
    monkeypatch.setattr(shards, "POLL_S", 0.001)
    monkeypatch.setattr(shards, "TELL_S", 0.0)
    return RunDirectory(tmp_path, 0)


def outlet(run: RunDirectory, **given: Any) -> Outlet:
    return Outlet(context(run, **given), lambda: None)


def test_what_two_workers_bring_arrives_once_and_in_order(run: RunDirectory) -> None:
    first, second = outlet(run), outlet(run, member=3)
    sent: dict[int, list[float]] = {0: [], 3: []}
    inbox = Inbox(context(run), {})
    taken = list[Games]()
    for number in range(8):
        worker, out = (0, first) if number % 2 else (3, second)
        one = game()
        sent[worker] += one.rows["value"].tolist()
        out.add([one])
        taken += everything(inbox)
    for worker, expected in sent.items():
        assert values([one for one in taken if one.worker == worker]) == expected
    assert [one.lengths for one in taken] == [[7]] * 8
    assert [one.scores for one in taken] == [[50.0]] * 8
    assert everything(inbox) == []


def test_after_a_kill_nothing_is_counted_twice_and_nothing_is_lost(run: RunDirectory) -> None:
    """The checkpoint counts what was taken until then; all that came later comes again."""
    out, sent = outlet(run), list[float]()
    inbox, counted = Inbox(context(run), {}), list[float]()
    marks = dict[str, int]()
    for number in range(9):
        one = game()
        sent += one.rows["value"].tolist()
        out.add([one])
        taken = values(everything(inbox))
        if number < 4:
            counted += taken
            marks = json.loads(json.dumps(inbox.taken))
    again = Inbox(context(run), marks)
    counted += values(everything(again))
    assert counted == sent


def test_shards_go_when_both_checkpoints_count_them_and_not_before(run: RunDirectory) -> None:
    out, inbox = outlet(run), Inbox(context(run), {})
    left = []
    for step in (100, 200, 300, 400):
        for _ in range(3):
            out.add([game()])
            everything(inbox)
        for present in (step - 100, step):
            if present:
                run.checkpoint(present).mkdir(parents=True, exist_ok=True)
        if step > 200:
            run.checkpoint(step - 200).rmdir()
        inbox.saved(step)
        left.append(len(self_play.shards(run)))
    # After 200 those of 100 go, after 300 those of 200: of each moment two checkpoints count the rest.
    assert left == [3, 3, 3, 3]
    assert {one.number for one in self_play.shards(run)} == {9, 10, 11}


def test_half_a_shard_is_never_read(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that was being written, nor one that was cut: that is refused, and counted."""
    out, inbox = outlet(run), Inbox(context(run), {})
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("killed")))
    with pytest.raises((OSError, ExperimentError)):
        out.add([game()])
    monkeypatch.undo()
    assert everything(inbox) == []
    monkeypatch.setattr(shards, "SHARD_POSITIONS", 7)
    out.add([])
    (found,) = self_play.shards(run)
    path = run.positions / found.file
    path.write_bytes(path.read_bytes()[:-5])
    assert everything(inbox) == []
    assert inbox.refused == {"it is not what was written there": 1}
    out.add([game()])
    assert len(everything(inbox)) == 1, "the next one is taken"


def test_what_a_dead_process_half_wrote_is_removed_by_its_successor(run: RunDirectory) -> None:
    run.positions.mkdir()
    mine, others = (
        ".3-1-00aa00bb-00000001-x.safetensors.ff.tmp",
        ".31-1-00aa00bb-0-x.safetensors.f.tmp",
    )
    for name in (mine, others):
        (run.positions / name).write_bytes(b"half")
    outlet(run, member=3)
    assert [path.name for path in run.positions.iterdir()] == [others]


def test_games_of_another_experiment_are_refused(run: RunDirectory) -> None:
    foreign = context(run)
    foreign.record.identity_hash = "cd" * 32
    Outlet(foreign, lambda: None).add([game()])
    inbox = Inbox(context(run), {})
    assert everything(inbox) == []
    assert inbox.refused == {"it belongs to another experiment": 1}
    assert inbox.told()["refused_shards"] == {"it belongs to another experiment": 1}


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"score": np.array([np.nan])}, "a score beyond 0 … 100"),
        ({"score": np.array([1e300])}, "a score beyond 0 … 100"),
        ({"score": np.array([[50.0]])}, "score of float64 [1, 1]"),
        ({"score": np.array([50])}, "score of int64 [1]"),
        ({"score": np.zeros(2)}, "lengths of 1 games that are not those of its positions"),
        ({"length": np.array([-7])}, "lengths of 1 games that are not those of its positions"),
        ({"length": np.array([8])}, "lengths of 1 games that are not those of its positions"),
        ({"length": np.array(7)}, "length of int64 []"),
        ({"length": np.array([7.0])}, "length of float64 [1]"),
        ({"seconds": np.array([0.0])}, "times that no worker takes"),
        ({"seconds": np.array([-1.0, 0.0])}, "times that no worker takes"),
        ({"seconds": np.array([np.inf, 0.0])}, "times that no worker takes"),
        ({"generation": np.full(7, 101)}, "a generation beyond 0 … 100"),
        ({"generation": np.full(7, -1)}, "a generation beyond 0 … 100"),
        ({"generation": np.full((7, 2), 1)}, "generation of int64 [7, 2]"),
        ({"seconds": None}, "'seconds'"),
    ],
    ids=str,
)
def test_a_worker_that_lies_is_refused_counted_and_named(
    run: RunDirectory,
    changed: dict[str, np.ndarray | None],
    says: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    honest = {
        **game().rows,
        "score": np.array([50.0]),
        "length": np.array([7]),
        "seconds": np.array([1.0, 0.0]),
    }
    lies = {name: value for name, value in (honest | changed).items() if value is not None}
    self_play.write_shard(run, "0-1-00000000", 0, lies, IDENTITY)
    self_play.write_shard(run, "0-1-00000000", 1, honest, IDENTITY)
    inbox = Inbox(context(run), {})
    assert len(everything(inbox)) == 1
    assert inbox.told()["refused_shards"] == {says: 1}
    assert f"is not learnt from: {says}" in capsys.readouterr().out


def test_a_file_that_is_no_shard_is_none(run: RunDirectory) -> None:
    run.positions.mkdir()
    for name in ("x.safetensors", "0-1-zz-00000000-0000000000000000.safetensors", "README"):
        (run.positions / name).write_bytes(b"x")
    assert self_play.shards(run) == []


def test_a_worker_waits_until_its_shards_are_taken(run: RunDirectory) -> None:
    """At most so many lie there; then it looks again and again, and goes on when there is room."""
    inbox, waits = Inbox(context(run), {}), list[int]()

    def wait() -> None:
        waits.append(len(self_play.shards(run)))
        if len(waits) == 5:
            inbox.take(0)
            inbox.take(0)

    out = Outlet(context(run), wait)
    for _ in range(shards.MOST_UNTAKEN):
        out.add([game()])
    assert not waits
    out.add([game()])
    assert waits == [shards.MOST_UNTAKEN] * len(waits)
    assert len(waits) >= 5
    assert out.waited_s > 0
    *_, last = everything(inbox)
    assert last.waited_s == pytest.approx(out.waited_s, rel=0.2)


def test_a_worker_whose_games_nobody_takes_ends_after_a_time(run: RunDirectory) -> None:
    out = Outlet(context(run, patience_s=1), lambda: None)
    started = time.monotonic()
    with pytest.raises(Preempted, match="the trainer has taken no games for 1 s"):
        for _ in range(shards.MOST_UNTAKEN + 1):
            out.add([game()])
    assert 1 <= time.monotonic() - started < 5


def test_a_trainer_that_went_back_takes_again_and_its_worker_waits_for_that(
    run: RunDirectory,
) -> None:
    out, inbox = outlet(run), Inbox(context(run), {})
    for _ in range(3):
        out.add([game()])
    everything(inbox)
    everything(inbox)
    start = out._start
    assert self_play.taken_of(run, start) == 3
    back = Inbox(context(run), {start: 1})
    back.take(0)
    back.take(0)
    assert self_play.taken_of(run, start) == 2


def test_games_of_networks_that_should_have_been_replaced_are_told_apart(
    run: RunDirectory,
) -> None:
    fresh, old = outlet(run), outlet(run, member=1)
    inbox = Inbox(context(run), {})
    inbox.newest = 5
    fresh.add([game(4)])
    old.add([game(2)])
    everything(inbox)
    assert inbox.told()["positions_of_workers"] == {"0": 7, "1": 7}
    assert inbox.told()["old_positions_of_workers"] == {"1": 7}


def test_the_balancing_ratio_is_that_of_the_two_speeds() -> None:
    """A trainer that waits half of 100 s learns 8000 positions in 50; workers that wait for a fifth of
    their time play 1000 in 80 % of it: 160 learnt a second and 12.5 played, or 12.8 for each."""
    counted = {
        "trainer_waited_s": 50.0, "workers_waited_s": 20.0, "workers_played_s": 80.0,
        "positions": 1000.0, "learnt": 8000.0, "refused": 0.0,
    }  # fmt: skip
    assert balancing_ratio(counted, 100.0) == pytest.approx(12.8)
    # Of its 50 s it learnt for 40: with 10 it takes positions in, whatever the ratio is.
    less = 12.8 * (80 - 10) / 80 * 50 / 40
    assert balancing_ratio({**counted, "trainer_learnt_s": 40.0}, 100.0) == pytest.approx(less)
    nothing = dict.fromkeys(counted, 0.0)
    assert balancing_ratio(nothing, 100.0) is None
    readings = iter([nothing, counted])
    measure = Waiting(lambda: next(readings), SimpleNamespace(refused=shards.Counter({"x": 2})))  # type: ignore[arg-type]
    assert measure(100.0) == {
        "trainer_busy_percent": 50.0, "workers_waiting_percent": 20.0, "positions_per_second": 10.0,
        "balancing_ratio": 12.8, "refused_shards": 2,
    }  # fmt: skip
