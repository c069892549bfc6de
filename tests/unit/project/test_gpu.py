"""`make gpu` on a machine without a GPU: its checks on a pretended one, and what becomes of parts that
fail, hang or are cut off."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.algorithms import ALGORITHMS
from tests.gpu import __main__ as page
from tests.gpu.__main__ import Part, Report, absent, main, run
from tests.gpu.trainings import CASES
from tests.outside import ROOT
from tests.waiting import PATIENCE_S, until


@pytest.fixture
def report(tmp_path: Path) -> Iterator[Report]:
    with contextlib.closing(Report(tmp_path / "gpu.txt")) as opened:
        yield opened


def saying(name: str, code: str, longest_s: float = 60, **more: object) -> Part:
    return Part(name, (sys.executable, "-c", code), longest_s, **more)  # type: ignore[arg-type]


GOOD = "print('this is found')"
BAD = "print('before it fails'); raise SystemExit(3)"
HANGS = """
import time
print("before it hangs", flush=True)
for _ in range(600):
    time.sleep(1)
    print("and hangs", flush=True)
"""


def lines(path: Path) -> list[str]:
    """Without their times."""
    return [line.partition(" s  ")[2] for line in path.read_text().splitlines()]


def test_every_algorithm_is_compared_with_the_processor() -> None:
    assert {case.algorithm for case in CASES.values()} == set(ALGORITHMS)


@pytest.mark.slow
@pytest.mark.soak
def test_all_checks_pass_on_a_pretended_device() -> None:
    """Every algorithm's training on a device that refuses tensors of another one."""
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "tests/gpu", "-m", "gpu", "-q"],
        cwd=ROOT,
        env={**os.environ, "GPU_TESTS_DEVICE": "pretended"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-1000:]
    assert " passed" in ended.stdout and " failed" not in ended.stdout


@pytest.mark.slow
def test_the_pretended_device_refuses_what_cuda_refuses() -> None:
    code = """
from tests.gpu.pretended import install, waits
install()
import torch
there, here = torch.ones(3, device="pretended:0"), torch.ones(3)
for wrong in (
    lambda: there + here, lambda: torch.cat((there, here)), lambda: there.numpy(),
    lambda: there.normal_(generator=torch.Generator()), lambda: torch.nn.Linear(3, 1)(there),
):
    try:
        wrong()
    except (RuntimeError, TypeError):
        continue
    raise SystemExit("accepted")
assert (there + here.to("pretended:0")).tolist() == [2, 2, 2]
assert not waits["aten::_local_scalar_dense"] and float(there.sum()) == 3
assert waits["aten::_local_scalar_dense"] == 1
"""
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False)
    assert ended.returncode == 0


def test_a_part_that_fails_ends_no_other(report: Report, tmp_path: Path) -> None:
    parts = [saying("first", BAD), saying("second", GOOD)]
    assert run(parts, report, 600) == 1
    told = lines(tmp_path / "gpu.txt")
    assert "  before it fails" in told and "  this is found" in told
    assert any(line.startswith("part first: exit code 3") for line in told)
    assert any(line.startswith("part second: exit code 0") for line in told)
    assert told[-1] == "failed: first"


@pytest.mark.slow
def test_a_part_that_hangs_is_stopped_with_all_that_it_started(
    report: Report, tmp_path: Path
) -> None:
    child = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {HANGS!r}])\n{HANGS}"
    started = time.monotonic()
    assert run([saying("first", child, 3), saying("second", GOOD)], report, 600) == 1
    assert time.monotonic() - started < 60
    told = lines(tmp_path / "gpu.txt")
    assert told.count("  before it hangs") == 2
    assert any(line.startswith("part first: stopped after 3 s") for line in told)
    assert told[-1] == "failed: first"


def test_what_is_missing_is_named_and_left_out(report: Report, tmp_path: Path) -> None:
    parts = [saying("first", BAD, needs=("no_such_package", "os")), saying("second", GOOD)]
    assert run(parts, report, 600) == 0
    assert lines(tmp_path / "gpu.txt")[0] == "part first: left out, no no_such_package"
    assert absent(("os", "no_such_package")) == ["no_such_package"]


def test_without_time_a_part_is_not_begun(report: Report, tmp_path: Path) -> None:
    assert run([saying("first", BAD)], report, 1) == 0
    assert lines(tmp_path / "gpu.txt")[0].startswith("part first: left out, ")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_cut_off_it_leaves_what_it_had_found(tmp_path: Path, number: signal.Signals) -> None:
    path = tmp_path / "gpu.txt"
    code = f"""
from collections.abc import Iterator
from pathlib import Path
from tests.gpu import __main__ as page
from tests.unit.project.test_gpu import GOOD, HANGS, saying
page.table = lambda *given, **more: [saying("first", GOOD), saying("second", HANGS)]
page.facts = lambda device: []
raise SystemExit(page.main(["--device", "cpu", "--out", {str(tmp_path)!r}]))
"""
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    until(lambda: path.exists() and "  before it hangs" in lines(path), process)
    process.send_signal(number)
    assert process.wait(PATIENCE_S) == (130 if number == signal.SIGTERM else -signal.SIGKILL)
    told = lines(path)
    assert "  this is found" in told
    assert any(line.startswith("part first: exit code 0") for line in told)
    assert (told[-1] == "cut off") == (number == signal.SIGTERM)


def test_without_a_gpu_it_says_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "has_cuda", lambda: False)
    assert main(["--out", str(tmp_path / "x")]) == 2
    assert "torch finds no usable GPU; --device cpu tries it" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
@pytest.mark.soak
def test_all_parts_end_well_on_a_processor(tmp_path: Path) -> None:
    """As `make gpu` does it, but for the minutes."""
    command = [sys.executable, "-m", "tests.gpu", "--device", "cpu", "--quick", "--minutes", "12"]
    named = [
        word for part in ("checks", "pipeline", "speed", "others") for word in ("--part", part)
    ]
    ended = subprocess.run(
        [*command, *named, "--out", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout[-6000:]
    told = lines(tmp_path / "gpu.txt")
    assert told[-1] == "every part that ran ended well"
    assert not [line for line in told if "FAILED" in line or "MISSING" in line]
    assert sum("steps/s" in line for line in told) >= 10


@pytest.mark.slow
@pytest.mark.soak
def test_the_goals_are_measured_on_a_processor(tmp_path: Path) -> None:
    """What needs a GPU, or is not installed, is left out with its reason."""
    command = [sys.executable, "-m", "tests.gpu.goals", "--device", "cpu", "--quick"]
    ended = subprocess.run(
        [*command, "--out", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-2000:]
    figures = json.loads((tmp_path / "goals.json").read_text())
    for name in ("ppo 8", "actors", "impala, inference=actor", "impala, inference=learner"):
        assert figures.get(f"{name}: steps/s", figures.get(f"{name}: emulators alone, steps/s"))
    assert figures["returns, cpu, run 0"]["steps"] >= 256
    assert figures["leanrl is left out"]


@pytest.mark.slow
def test_breakout_goes_on_where_the_last_call_was_stopped(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.gpu.breakout", "--device", "cpu", "--quick"]
    told = [
        subprocess.run(
            [*command, "--out", str(tmp_path), "--seconds", "35"],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )
        for _ in range(2)
    ]  # fmt: skip
    assert [one.returncode for one in told] == [0, 0], told[-1].stdout
    now = [line for one in told for line in one.stdout.splitlines() if line.startswith("now: ")]
    before = [
        line for one in told for line in one.stdout.splitlines() if line.startswith("before: ")
    ]
    assert before[0].startswith("before: 0 of") and now[0] != now[1]
    assert before[1].split()[1] == now[0].split()[1]
