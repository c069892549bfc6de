"""Whole files, tables and status: what a reader sees at any moment."""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import math
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.errors import BadInput, ExperimentError, NoUsableState, WrongDirectory
from config.measures import RETURN
from steps.command.context import StepContext
from steps.command.main import write_outputs
from steps.command.stop import StopRequest
from steps.directory import files, owner, processes
from steps.directory.files import (
    read_bytes,
    remove_temporaries,
    temporary_beside,
    write_and_sync,
    write_atomically,
    write_if_changed,
)
from steps.directory.layout import ExperimentDirectory
from steps.directory.status import Status, read_status, write_status
from steps.directory.tables import (
    Table,
    format_table,
    last_row,
    read_columns,
    read_rows,
    whole_lines_bytes,
)
from steps.films import mp4


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "made" / "x.json"
    write_atomically(path, "one")
    inode = path.stat().st_ino
    write_atomically(path, b"two")
    assert path.read_text() == "two"
    assert path.stat().st_ino != inode
    assert [path.name for path in path.parent.iterdir()] == ["x.json"]


def test_an_unchanged_file_keeps_its_time(tmp_path: Path) -> None:
    path = tmp_path / "x"
    assert write_if_changed(path, "one")
    os.utime(path, ns=(1, 1))
    assert not write_if_changed(path, "one")
    assert path.stat().st_mtime_ns == 1
    assert write_if_changed(path, "two")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_explained_and_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    path = tmp_path / "x"
    write_atomically(path, "old")

    def full(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(ExperimentError, match=r"no space for .*x: 3 bytes needed, \d+ bytes free"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_kill_between_write_and_rename_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_atomically(path, "old")
    program = f"from pathlib import Path; from steps.directory.files import write_atomically as w; w(Path({str(path)!r}), 'new')"
    for point, content in (
        ("after_temporary", "old"),
        ("before_rename", "old"),
        ("after_rename", "new"),
    ):
        killed = subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"EXPERIMENT_FAULT": point},
            check=False,
        )
        assert killed.returncode == -9
        assert path.read_text() == content
    remove_temporaries(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a9_writers_with_equal_pids_do_not_share_a_temporary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pods have pid 1 or 7 everywhere: what another one writes at the same moment, here of the same
    process, is not ours."""
    path = tmp_path / "x"
    others = ["of another pod"]

    def meanwhile(point: str, path: Path) -> None:
        if point == "after_temporary" and others:
            write_atomically(path, others.pop())

    monkeypatch.setattr(files, "fault", meanwhile)
    write_atomically(path, "ours")
    assert path.read_text() == "ours"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_temporary_is_a_new_file_and_is_found_again(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("precious")
    temporary = temporary_beside(tmp_path / "x")
    temporary.symlink_to(tmp_path / "target")
    with pytest.raises(FileExistsError):
        write_and_sync(temporary, b"new")
    assert (tmp_path / "target").read_text() == "precious"
    remove_temporaries(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def _claim(path: Path) -> None:
    owner.claim(path, owner.Owner(uid="first"))


def _film(path: Path) -> None:
    context = StepContext(
        "play", ExperimentDirectory(path.parents[3]), 0, None, argparse.Namespace(), StopRequest()
    )
    frames = iter(np.zeros((3, 32, 32, 3), np.uint8))
    context.fence.claim()
    mp4.write_film(context, path, frames, 10)


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (lambda path: write_atomically(path, "content"), "status/train.json"),
        (_claim, "owner.json"),
        (_film, "x/runs/0/videos/episode-0.mp4"),
    ],
    ids=["whole file", "claim", "film"],
)
def test_c20_a_new_name_is_synced_with_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path], None], name: str
) -> None:
    """Without it, a power loss after the step has ended takes back what its status says is
    there."""
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    synced: list[tuple[str, bool]] = []
    really = os.fsync

    def fsync(descriptor: int) -> None:
        really(descriptor)
        synced.append((str(Path(f"/proc/self/fd/{descriptor}").readlink()), path.exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    write(path)
    assert (str(path.parent), True) in synced, "the directory, when the file has its name"
    assert any(Path(file).parent == path.parent and not named for file, named in synced), (
        "its content, before it has"
    )


def test_sizes_are_limited_before_reading(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with path.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(BadInput, match="1099511627776 bytes; at most"):
        read_bytes(path)


READ_IN_LITTLE_MEMORY = """
import resource, sys
from pathlib import Path
from steps.directory.checkpoints import TENSORS_LIMIT_BYTES
from steps.directory.files import read_bytes
resource.setrlimit(resource.RLIMIT_AS, (2**29, 2**29))
sys.stdout.buffer.write(read_bytes(Path(sys.argv[1]), TENSORS_LIMIT_BYTES))
"""


def test_a_limit_is_never_allocated(tmp_path: Path) -> None:
    """With `vm.overcommit_memory=1` any allocation is granted; an address space limit refuses it
    under every setting."""
    path = tmp_path / "x"
    path.write_bytes(b"content")
    command = [sys.executable, "-c", READ_IN_LITTLE_MEMORY, str(path)]
    read = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert (read.returncode, read.stdout) == (0, b"content"), read.stderr.decode()


def test_a_file_that_grows_while_it_is_read_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"0123456789")
    monkeypatch.setattr(
        files.os,
        "fstat",
        lambda descriptor: os.stat_result((stat.S_IFREG, 0, 0, 0, 0, 0, 4, 0, 0, 0)),
    )
    monkeypatch.setattr(files, "GROWTH_BYTES", 2)
    assert read_bytes(path) == b"0123456789"
    assert read_bytes(path, 10) == b"0123456789"
    with pytest.raises(BadInput, match="at most 9 are read"):
        read_bytes(path, 9)


@pytest.mark.parametrize("has_writer", [False, True])
def test_a_fifo_is_refused_and_not_read(tmp_path: Path, has_writer: bool) -> None:
    path = tmp_path / "x"
    os.mkfifo(path)
    with contextlib.ExitStack() as opened:
        if has_writer:
            opened.callback(os.close, os.open(path, os.O_RDWR))
        with pytest.raises(IsADirectoryError, match="no regular file"):
            files.open_regular(path)


def test_a_stale_handle_is_opened_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"content")
    original, failures = files.open_regular, [1]

    def stale(path: Path) -> object:
        if failures and failures.pop():
            raise OSError(errno.ESTALE, "Stale file handle")
        return original(path)

    monkeypatch.setattr(files, "open_regular", stale)
    assert read_bytes(path) == b"content"
    failures[:] = [1, 1]
    with pytest.raises(OSError, match="Stale"):
        read_bytes(path)


ROWS = [
    {"step": 1, "loss": 0.1, "return_mean": None},
    {"step": 2, "loss": 1 / 3, "return_mean": 5.0},
]


def test_rows_read_back_exactly(tmp_path: Path) -> None:
    table = Table(tmp_path / "x.csv")
    for row in ROWS:
        table.append(row)
    assert table.offset == (tmp_path / "x.csv").stat().st_size
    assert (tmp_path / "x.csv").read_text() == format_table(("step", "loss", "return_mean"), ROWS)
    columns = read_columns(tmp_path / "x.csv")
    assert columns["loss"].tolist() == [0.1, 1 / 3]
    assert math.isnan(columns["return_mean"][0])
    assert last_row(tmp_path / "x.csv") == {"step": "2", "loss": repr(1 / 3), "return_mean": "5.0"}


@settings(deadline=None)  # each waits for the disk
@given(st.lists(st.floats(), min_size=1, max_size=20))
def test_every_float_reads_back(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[float]
) -> None:
    path = tmp_path_factory.mktemp("table") / "x.csv"
    table = Table(path)
    for number in numbers:
        table.append({"x": number})
    table.close()
    assert repr(read_columns(path)["x"].tolist()) == repr(numbers)


def test_resume_cuts_back_and_each_row_appears_once(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    table = Table(path)
    table.append(ROWS[0])
    saved = table.offset
    table.append(ROWS[1])
    whole = path.read_bytes()
    with path.open("ab") as file:
        file.write(b"3,torn")
    (tmp_path / ".x.csv.0.tmp").touch()  # of an attempt that was killed while it took over
    resumed = Table(path, offset=saved)
    assert not (tmp_path / ".x.csv.0.tmp").exists()
    resumed.append(ROWS[1])
    assert path.read_bytes() == whole
    uncut = Table(
        path, offset=path.stat().st_size
    )  # the negative twin: without the cut the row stands twice
    uncut.append(ROWS[1])
    assert path.read_bytes() != whole
    assert [row["step"] for row in read_rows(path)] == ["1", "2", "2"]


def test_a_table_shorter_than_its_checkpoint_is_no_state(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("step\n1\n")
    with pytest.raises(NoUsableState, match="7 bytes, the checkpoint was taken at 100; delete"):
        Table(tmp_path / "x.csv", offset=100)


def test_other_columns_are_refused(tmp_path: Path) -> None:
    table = Table(tmp_path / "x.csv")
    table.append(ROWS[0])
    with pytest.raises(ValueError, match="has the columns"):
        table.append({"step": 1})
    resumed = Table(tmp_path / "x.csv", offset=table.offset)
    with pytest.raises(ValueError, match="has the columns"):
        resumed.append({"other": 1})


def test_a1_an_older_writer_is_shut_out_and_changes_nothing(tmp_path: Path) -> None:
    older = Table(tmp_path / "x.csv")
    older.append(ROWS[0])
    newer = Table(tmp_path / "x.csv", offset=older.offset)
    with pytest.raises(WrongDirectory, match="another attempt has put a new file in the place of"):
        older.append(ROWS[1])
    newer.append(ROWS[1])
    assert (tmp_path / "x.csv").read_text() == format_table(
        ("step", "loss", "return_mean"), ROWS[:2]
    )


def test_a1_a_writer_that_was_stopped_just_before_its_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGSTOP may come between the look and the write: the row then goes into a file without a
    name."""
    older = Table(tmp_path / "x.csv")
    older.append(ROWS[0])
    newer = Table(tmp_path / "x.csv", offset=older.offset)
    monkeypatch.setattr(older, "_require_ours", lambda: None)
    older.append(ROWS[1])
    newer.append(ROWS[1])
    assert (tmp_path / "x.csv").read_text() == format_table(
        ("step", "loss", "return_mean"), ROWS[:2]
    )


def test_a1_the_newest_writer_takes_its_place_back(tmp_path: Path) -> None:
    """An older attempt that stood still in the middle of its own start has put its file over
    ours."""
    newest = ["older"]

    def permitted(name: str) -> Callable[[], None]:
        def check() -> None:
            if newest[-1] != name:
                raise WrongDirectory("shut out")

        return check

    path = tmp_path / "x.csv"
    older = Table(path, permitted=permitted("older"))
    older.append(ROWS[0])
    stale = path.read_bytes()
    newest.append("newer")
    newer = Table(path, offset=older.offset, permitted=permitted("newer"))
    newer.append(ROWS[1])
    kept = newer.kept
    for _ in range(2):
        (tmp_path / "stale").write_bytes(stale)
        (tmp_path / "stale").replace(path)
        newer.sync()
        assert path.read_text() == format_table(("step", "loss", "return_mean"), ROWS[:2])
        assert newer.kept == kept
    with pytest.raises(WrongDirectory, match="shut out"):
        older.append(ROWS[1])
    with pytest.raises(WrongDirectory, match="shut out"):
        Table(path, permitted=permitted("older"))
    newer.append(ROWS[0])
    assert path.read_text() == format_table(("step", "loss", "return_mean"), [*ROWS[:2], ROWS[0]])


def test_a1_a_file_that_has_grown_by_itself_is_not_appended_to(tmp_path: Path) -> None:
    table = Table(tmp_path / "x.csv")
    table.append(ROWS[0])
    with (tmp_path / "x.csv").open("a") as file:
        file.write("from elsewhere\n")
    with pytest.raises(WrongDirectory, match="another process writes to it"):
        table.append(ROWS[1])
    (tmp_path / "x.csv").unlink()
    with pytest.raises(WrongDirectory, match="has been removed"):
        table.append(ROWS[1])


def test_b12_a_table_is_never_written_through_a_link(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("precious")
    (tmp_path / "x.csv").symlink_to(target)
    with pytest.raises(WrongDirectory, match="is a symbolic link"):
        Table(tmp_path / "x.csv", offset=3)
    Table(tmp_path / "x.csv").append(ROWS[0])  # anew: in the place of the link
    assert target.read_text() == "precious"
    assert not (tmp_path / "x.csv").is_symlink()


def test_a_growing_table_is_read_up_to_the_last_newline(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("step,x\n1,2\n2,3\n3,")
    assert [row["step"] for row in read_rows(path)] == ["1", "2"]
    assert whole_lines_bytes(path) == len("step,x\n1,2\n2,3\n")
    assert last_row(path) == {"step": "2", "x": "3"}
    path.write_text("step")
    assert (read_rows(path), last_row(path), last_row(tmp_path / "none.csv")) == ([], None, None)


def test_the_last_row_of_a_long_table(tmp_path: Path) -> None:
    table = Table(tmp_path / "x.csv")
    for number in range(20_000):
        table.append({"step": number, "return_mean": 7.0 if number == 19_000 else None})
    assert last_row(tmp_path / "x.csv") == {"step": "19999", "return_mean": ""}
    assert last_row(tmp_path / "x.csv", having="return_mean") == {
        "step": "19000",
        "return_mean": "7.0",
    }


def test_status_round_trip_and_what_is_no_status(tmp_path: Path) -> None:
    path = tmp_path / "status" / "train.json"
    assert read_status(path) is None
    status = Status(
        task="train",
        state="failed",
        started="now",
        exit_code=3,
        reason="diverged",
        details={"step": 3},
    )
    write_status(path, status)
    assert read_status(path) == status
    written = json.loads(path.read_text())
    path.write_text(json.dumps(written | {"from_a_newer_version": 1}))
    assert read_status(path) == status
    for content in ("", "[]", "{}", "[" * 100_000, "{" * 2_000_000):
        path.write_text(content)
        assert read_status(path) is None


def test_outputs_are_files_and_only_where_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OUTPUTS", raising=False)
    write_outputs({"runs": "[0]"})
    monkeypatch.setenv("OUTPUTS", str(tmp_path))
    write_outputs({"runs": "[0]"})
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("runs", "[0]")]


def test_a_file_of_a_step_that_has_succeeded_is_waited_for(tmp_path: Path) -> None:
    context = StepContext(
        "plot-evaluation",
        ExperimentDirectory(tmp_path),
        0,
        None,
        argparse.Namespace(),
        StopRequest(),
    )
    path = context.run.evaluated(RETURN)
    with pytest.raises(BadInput, match=r"no file .*evaluation\.csv: evaluate makes it"):
        context.require(path, "evaluate")
    write_status(
        context.run.status / "evaluate.json", Status(task="evaluate", state="succeeded", started="")
    )
    late = threading.Timer(0.3, lambda: path.write_text("episode\n"))
    late.start()
    assert context.require(path, "evaluate") == path
    late.join()


def test_checkpoint_names_sort_as_their_steps(tmp_path: Path) -> None:
    run = ExperimentDirectory(tmp_path).run(3)
    assert run.checkpoint_steps() == []
    for name in (
        "000000012000",
        "000000000500",
        ".000000099000.17.tmp",
        "99",
        "latest",
        ".nfs0001",
        "000000012000.pkl",
    ):
        (run.checkpoints / name).mkdir(parents=True)
    assert run.checkpoint_steps() == [500, 12000]
    assert run.checkpoint(12000).name == "000000012000"


def test_processes_are_told_apart() -> None:
    mine = processes.identity()
    host, pid, start, world = mine.rsplit(":", 3)
    assert int(pid) == os.getpid()
    assert processes.is_alive(mine) is True
    assert processes.is_alive(f"{host}:{pid}:{int(start) + 1}:{world}") is False
    assert processes.is_alive(f"another-{host}:{pid}:{start}:{world}") is None
    assert processes.is_alive("nonsense") is None
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    name = processes.identity(child.pid)
    assert processes.is_alive(name) is True
    assert child.stdin is not None
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert processes.is_alive(name) is False, "a zombie has ended"
    child.wait()
    assert processes.is_alive(name) is False


@pytest.mark.parametrize("number", [1, 2**31])
def test_a6_a_process_of_another_namespace_or_boot_is_unknown_not_dead(number: int) -> None:
    """Containers on the host's network share its name: the pid that they see is another process
    here, or none."""
    host, _, _, world = processes.identity().rsplit(":", 3)
    boot, namespace = world.split("-")
    elsewhere = (f"{boot}-{int(namespace) + 1}", f"{'f' * 8}-{namespace}")
    for other in elsewhere:
        assert processes.is_alive(f"{host}:{number}:77:{other}") is None
    assert processes.is_alive(f"{host}:{number}:77:{world}") is False
    assert processes.is_alive(f"{host}:{number}:77") is None, "as older versions wrote it"
