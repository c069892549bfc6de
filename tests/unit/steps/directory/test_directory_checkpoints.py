"""Faults 3, 17–24, 30: checkpoints are complete or not there, and nothing in one is ever trusted or
unpickled."""

from __future__ import annotations

import hashlib
import json
import pickle
import resource
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from config.errors import BadInput, NoUsableState, WrongDirectory
from config.measures import RETURN
from config.resolve import resolve
from config.resolved import Resolved
from steps.directory import checkpoints, network_storage
from steps.directory.checkpoints import MANIFEST, STATE, TENSORS
from steps.directory.files import write_atomically
from steps.directory.layout import ExperimentDirectory, RunDirectory
from steps.directory.status import Status, write_status
from steps.directory.tables import Table

IDENTITY = {"seed": 0, "hyperparameters": {"clip": 0.2, "hidden_sizes": [64, 64]}}
TREE = {
    "weights": {
        "layer 0/weight": np.arange(6, dtype=np.float32).reshape(2, 3),
        "scalar": np.array(3, np.float32),
    },
    "mask": np.array([True, False]),
    "observations": np.arange(8, dtype=np.uint8).reshape(2, 4)[:, ::2],
    "empty": np.zeros((0, 4), np.float64),
    "generator": {"state": 2**127 + 1, "inc": 2**100 + 3, "buffered": None},
    "rate": 1 / 3,
    "names": ["a", "b"],
    "done": False,
}


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return ExperimentDirectory(tmp_path).run(0)


def save(run: RunDirectory, *steps: int, state: dict[str, Any] | None = None) -> None:
    for step in steps:
        record = {"epoch": step // 10, "offset": step}
        checkpoints.save(
            run, step=step, state=TREE if state is None else state, identity=IDENTITY, record=record
        )


def test_state_comes_back_exactly(run: RunDirectory) -> None:
    save(run, 10)
    checkpoint = checkpoints.load_newest(run, IDENTITY)
    assert checkpoint is not None
    assert (checkpoint.step, checkpoint.epoch, checkpoint.record["offset"]) == (10, 1, 10)

    def equal(one: Any, other: Any) -> bool:
        if isinstance(one, dict):
            return list(one) == list(other) and all(equal(one[name], other[name]) for name in one)
        if isinstance(one, np.ndarray):
            return (
                one.dtype == other.dtype and one.shape == other.shape and bool((one == other).all())
            )
        return type(one) is type(other) and bool(one == other)

    assert equal(TREE, checkpoint.state)
    checkpoint.state["mask"][0] = False  # an own, writable copy


def test_two_are_kept_and_none_is_none(run: RunDirectory) -> None:
    assert checkpoints.load_newest(run) is None
    save(run, 10, 20, 30)
    assert run.checkpoint_steps() == [20, 30]


def test_damaged_newer_ones_never_displace_a_good_one(run: RunDirectory) -> None:
    save(run, 10, 20, 30)
    for step in (20, 30):
        flip(run.checkpoint(step) / TENSORS)
    shutil.copytree(run.checkpoint(20), run.checkpoint(10))
    checkpoints.discard_after(run, 10)
    save(run, 15)
    assert run.checkpoint_steps() == [10, 15]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


DAMAGES: list[Callable[[Path], None]] = [
    lambda path: truncate(path / TENSORS),
    lambda path: flip(path / TENSORS),
    lambda path: flip(path / STATE),
    lambda path: (path / STATE).unlink(),
    lambda path: (path / MANIFEST).unlink(),
    lambda path: (path / MANIFEST).write_text("[" * 10_000),
    lambda path: (path / MANIFEST).write_text('{"files": []}'),
    lambda path: (path / MANIFEST).write_text(json.dumps({"files": [STATE, TENSORS]})),
    lambda path: (path / MANIFEST).write_text(json.dumps({"files": {STATE: 1, TENSORS: []}})),
    lambda path: (path / MANIFEST).write_text('{"files": {"../../x": {}}}'),
    lambda path: (path / MANIFEST).write_bytes(b" " * 10**7),
    lambda path: (path / "weights.pt").write_bytes(b"PK\3\4"),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_newest_falls_back_to_the_one_before(
    run: RunDirectory, damage: Callable[[Path], None]
) -> None:
    save(run, 10, 20)
    damage(run.checkpoint(20))
    said: list[str] = []
    checkpoint = checkpoints.load_newest(run, IDENTITY, say=said.append)
    assert checkpoint is not None
    assert checkpoint.step == 10
    assert str(run.checkpoint(20)) in said[0]
    assert str(run.checkpoint(10)) in said[0]
    assert not checkpoints.is_intact(run.checkpoint(20))
    save(run, 20)
    assert checkpoints.is_intact(run.checkpoint(20))


def test_without_checksums_a_flipped_bit_would_be_learnt_from(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative twin of the one above."""
    save(run, 10, 20)
    tensors = run.checkpoint(20) / TENSORS
    tensors.write_bytes(tensors.read_bytes()[:-1] + b"\x01")
    assert not checkpoints.is_intact(run.checkpoint(20))
    listed = json.loads((run.checkpoint(20) / MANIFEST).read_text())["files"]
    monkeypatch.setattr(
        checkpoints, "_sum", lambda content: listed[STATE if content.startswith(b"{") else TENSORS]
    )
    checkpoint = checkpoints.load_newest(run)
    assert checkpoint is not None
    assert checkpoint.step == 20


def test_all_damaged_is_never_a_start_from_zero(run: RunDirectory) -> None:
    save(run, 10, 20)
    for step in (10, 20):
        flip(run.checkpoint(step) / TENSORS)
    with pytest.raises(NoUsableState) as caught:
        checkpoints.load_newest(run)
    assert f"delete {run.root} to start this run again" in str(caught.value)
    assert caught.value.exit_code == 4


def kept(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def test_a1_a_checkpoint_that_counts_on_rows_of_another_attempt_is_none(
    run: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    """An attempt that was shut out may still have renamed the checkpoint that it was saving: its
    rows are not there."""
    save(run, 10)
    run.train_csv.write_text("step\n10\n")
    for step, rows in ((20, "step\n10\n20\n"), (30, "step\n10\n20\n30\n")):
        run.train_csv.write_text(rows)
        record = {"epoch": step // 10, "files": {"train.csv": kept(run.train_csv)}}
        checkpoints.save(run, step=step, state=TREE, identity=IDENTITY, record=record)
    for rows, found in (
        ("step\n10\n20\n30\n40\n", 30),  # went on since
        ("step\n10\n20\n99\n40\n", 20),  # another's rows
        ("step\n10\n20\n3", 20),  # too short
    ):
        run.train_csv.write_text(rows)
        checkpoint = checkpoints.load_newest(run, IDENTITY, continues=True)
        assert checkpoint is not None and checkpoint.step == found
    assert (
        "train.csv has 12 bytes, 14 were written before this checkpoint" in capsys.readouterr().out
    )
    run.train_csv.unlink()
    with pytest.raises(NoUsableState, match="cannot be read"):
        checkpoints.load_newest(run, IDENTITY, continues=True)
    assert checkpoints.load_newest(run, IDENTITY) is not None, "to evaluate, the weights are enough"


def test_a1_a_save_never_removes_what_a_later_attempt_saved(run: RunDirectory) -> None:
    save(run, 10, 20, 40, 50)
    save(run, 30)
    assert run.checkpoint_steps() == [30, 40, 50]
    checkpoints.discard_after(run, 30)
    assert run.checkpoint_steps() == [30]


def test_a_checkpoint_at_the_same_step_is_replaced(run: RunDirectory) -> None:
    save(run, 10)
    save(run, 10, state={"weights": np.ones(2)})
    checkpoint = checkpoints.load_newest(run, IDENTITY)
    assert checkpoint is not None and checkpoint.state["weights"].tolist() == [1, 1]


def test_other_parameters_are_named_one_by_one(run: RunDirectory) -> None:
    save(run, 10)
    other = {"seed": 1, "hyperparameters": {"clip": 0.2, "hidden_sizes": [32]}, "new": True}
    with pytest.raises(WrongDirectory) as caught:
        checkpoints.load_newest(run, other)
    expected = "seed: 0 there, 1 here; hyperparameters.hidden_sizes: [64, 64] there, [32] here; new: absent there, True here"
    assert str(caught.value).endswith(expected)


def forge(run: RunDirectory, step: int, **files: bytes) -> None:
    """Replace files and make the manifest agree."""
    path = run.checkpoint(step)
    for name, content in files.items():
        (path / {"tensors": TENSORS, "state": STATE}[name]).write_bytes(content)
    sums = {}
    for name in (TENSORS, STATE):
        content = (path / name).read_bytes()
        sums[name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (path / MANIFEST).write_text(json.dumps({"format": 1, "files": sums}))


def test_a_newer_format_names_both_versions(run: RunDirectory) -> None:
    save(run, 10, 20)
    document = json.loads((run.checkpoint(20) / STATE).read_text())
    forge(run, 20, state=json.dumps(document | {"format": 7}).encode())
    with pytest.raises(WrongDirectory, match="format 7, this program reads up to 1"):
        checkpoints.load_newest(run)


class Canary:
    """Touches a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_pickle_is_never_opened(run: RunDirectory, tmp_path: Path) -> None:
    save(run, 10, 20, 30)
    payload = pickle.dumps(Canary(tmp_path / "canary"))
    forge(run, 30, tensors=payload)
    forge(run, 20, state=payload)
    with pytest.raises(NoUsableState):
        checkpoints.load_newest(run)
    save(run, 40)
    (run.checkpoint(40) / "state.pkl").write_bytes(payload)
    (run.checkpoints / "000000000050.pkl").write_bytes(payload)
    with pytest.raises(NoUsableState, match=r"unexpected file state\.pkl"):
        checkpoints.load_newest(run)
    assert not (tmp_path / "canary").exists()


def header(document: Any, size: int | None = None) -> bytes:
    text = json.dumps(document).encode()
    return (len(text) if size is None else size).to_bytes(8, "little") + text


HOSTILE_TENSORS = [
    b"",
    b"\xff" * 8,
    header({}, size=2**63),
    header({}, size=10**9),
    header({"x": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}),
    header({"x": {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 0]}}),
    header({"x": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}) + b"abcd",
    header({"x": {"dtype": "nonsense", "shape": [1], "data_offsets": [0, 4]}}) + b"abcd",
]


@pytest.mark.parametrize("content", HOSTILE_TENSORS)
def test_absurd_tensors_are_an_error_in_bounded_memory(run: RunDirectory, content: bytes) -> None:
    save(run, 10, 20)
    forge(run, 20, tensors=content)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    checkpoint = checkpoints.load_newest(run, say=lambda text: None)
    assert checkpoint is not None
    assert checkpoint.step == 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


HOSTILE_STATES = [
    b"[" * 10**6,
    b"{}",
    b"[]",
    b"null",
    b"\x80\x04.",
    b'{"format": 1, "state": {"x": {"$tensor": "missing"}}}',
]


@pytest.mark.parametrize("content", HOSTILE_STATES)
def test_a_hostile_state_is_an_error(run: RunDirectory, content: bytes) -> None:
    save(run, 10, 20)
    forge(run, 20, state=content)
    checkpoint = checkpoints.load_newest(run, say=lambda text: None)
    assert checkpoint is not None
    assert checkpoint.step == 10


@pytest.mark.parametrize(
    "changed",
    [
        {"state": []},
        {"identity": [1]},
        {"record": []},
        {"record": {"epoch": "2"}},
        {"record": {"epoch": 2, "files": []}},
        {"record": {"epoch": 2, "files": {"train.csv": []}}},
        {"record": {"epoch": 2, "files": {"train.csv": {}}}},
        {"record": {"epoch": 2, "files": {"train.csv": {"bytes": "7"}}}},
        {"record": {"epoch": 2, "files": {"../../x": {"bytes": 7}}}},
        {"record": {"epoch": 2, "taken": [1]}},
        {"record": {"epoch": 2, "generation": "x"}},
        {"record": {"epoch": 2, "wall_s": None}},
        {"record": {"epoch": 2, "wall_s": float("nan")}},
        {"record": {"epoch": 2, "resources_csv": -7}},
        {"record": {"epoch": 2, "taken": {"a": "x"}}},
        {"record": {"epoch": 2, "files": {"x\0": {"bytes": 7}}}},
        {"record": {"epoch": True}},
        {"record": {"epoch": -1}},
        {"record": {"epoch": 2, "recorder": {}}},
        {"record": {"epoch": 2, "recorder": {"offset": "0", "recent": [], "interval": {}}}},
        {"record": {"epoch": 2, "recorder": {"offset": -1, "recent": [], "interval": {}}}},
        {"record": {"epoch": 2, "recorder": {"offset": 0, "recent": {}, "interval": {}}}},
        {"record": {"epoch": 2, "recorder": {"offset": 0, "recent": ["7"], "interval": {}}}},
        {"record": {"epoch": 2, "recorder": {"offset": 0, "recent": [], "interval": []}}},
        {"record": {"epoch": 2, "recorder": {"offset": 0, "recent": [], "interval": {"x": 1}}}},
        {
            "record": {
                "epoch": 2,
                "recorder": {"offset": 0, "recent": [], "interval": {"sums": [1]}},
            }
        },
        {
            "record": {
                "epoch": 2,
                "recorder": {"offset": 0, "recent": [], "interval": {"lengths": [None]}},
            }
        },
        {"record": {}},
    ],
    ids=str,
)
def test_a_list_where_a_mapping_belongs_is_damage(run: RunDirectory, changed: Any) -> None:
    save(run, 10, 20)
    document = json.loads((run.checkpoint(20) / STATE).read_text())
    forge(run, 20, state=json.dumps(document | changed).encode())
    checkpoint = checkpoints.load_newest(run, IDENTITY, continues=True, say=lambda text: None)
    assert checkpoint is not None
    assert checkpoint.step == 10


def test_a_sparse_terabyte_is_refused_by_its_size(run: RunDirectory) -> None:
    save(run, 10, 20)
    with (run.checkpoint(20) / STATE).open("ab") as file:
        file.truncate(2**40)
    began = time.monotonic()
    checkpoint = checkpoints.load_newest(run, say=lambda text: None)
    assert checkpoint is not None
    assert checkpoint.step == 10
    assert time.monotonic() - began < 5


def test_temporaries_of_dead_attempts_never_count_and_go(run: RunDirectory) -> None:
    save(run, 10)
    dead = run.checkpoints / ".000000000020.4711.tmp"
    dead.mkdir()
    (dead / TENSORS).write_bytes(b"half")
    assert run.checkpoint_steps() == [10]
    checkpoints.clean(run)
    assert not dead.exists()
    assert checkpoints.load_newest(run) is not None


def test_keys_of_a_state_are_text(run: RunDirectory) -> None:
    with pytest.raises(TypeError, match="keys are text"):
        save(run, 10, state={"weights": {1: np.zeros(1)}})
    assert run.checkpoint_steps() == []


def test_the_final_checkpoint_is_that_of_the_last_epoch(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_storage, "LAG_S", 0.1)
    resolved: Resolved = resolve("ppo", {"epochs": "2", "outdir": "/x"})
    with pytest.raises(BadInput, match=r"epoch 0 of 2.*train makes it"):
        checkpoints.load_final(run, resolved)
    for epoch in (1, 2):
        identity = json.loads(json.dumps(resolved.identity()))
        checkpoints.save(
            run, step=epoch * 100, state=TREE, identity=identity, record={"epoch": epoch}
        )
    assert checkpoints.load_final(run, resolved).step == 200
    flip(run.checkpoint(200) / TENSORS)
    write_status(run.status / "train.json", Status(task="train", state="succeeded", started=""))
    with pytest.raises(BadInput, match="epoch 1 of 2"):
        checkpoints.load_final(run, resolved)


def test_case_26_the_final_checkpoint_may_be_seen_late(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training says that it has succeeded; another machine's view of the directory lags behind by a
    few looks."""
    resolved: Resolved = resolve("ppo", {"epochs": "2", "outdir": "/x"})
    identity = json.loads(json.dumps(resolved.identity()))
    write_status(run.status / "train.json", Status(task="train", state="succeeded", started=""))
    looks: list[float] = []

    def look_again(pause_s: float) -> None:
        looks.append(pause_s)
        if len(looks) == 3:
            checkpoints.save(run, step=200, state=TREE, identity=identity, record={"epoch": 2})

    monkeypatch.setattr(checkpoints.time, "sleep", look_again)
    assert checkpoints.load_final(run, resolved).step == 200
    assert len(looks) == 3


def test_case_32_a_rename_never_leaves_its_directory(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A temporary elsewhere could lie on another file system, where a rename fails (EXDEV) or is a
    copy."""
    renamed: list[tuple[Path, Path]] = []
    rename, replace = Path.rename, Path.replace
    monkeypatch.setattr(
        Path, "rename", lambda self, to: (renamed.append((self, Path(to))), rename(self, to))[1]
    )
    monkeypatch.setattr(
        Path, "replace", lambda self, to: (renamed.append((self, Path(to))), replace(self, to))[1]
    )
    save(run, 10)
    Table(run.train_csv).append({"step": 1})
    write_atomically(run.evaluated(RETURN), "x")
    assert {to.name for _, to in renamed} == {
        run.checkpoint(10).name,
        "train.csv",
        "evaluation.csv",
    }
    assert [source for source, to in renamed if source.parent != to.parent] == []
