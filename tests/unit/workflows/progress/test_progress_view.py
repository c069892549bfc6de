"""What a person sees while an experiment runs: a table on a terminal, one line per change
elsewhere."""

from __future__ import annotations

import io
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from config.cluster import load_cluster
from config.numbers import clock, duration
from config.resolve import resolve
from config.resolved import Resolved
from steps.directory.layout import ExperimentDirectory
from steps.directory.status import Progress, Score, Status, printed, read_printed, write_status
from workflows.dag.layout import Layout
from workflows.dag.render import rendered
from workflows.dag.tasks import read_tasks
from workflows.progress.ending import end
from workflows.progress.view import ProgressView

ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def layout() -> Layout:
    return Layout.of(rendered("ppo", load_cluster()))


@pytest.fixture
def resolved() -> Resolved:
    return resolve("ppo", {"game": "cartpole", "runs": "3", "epochs": "100"})


@pytest.fixture
def directory(tmp_path: Path, resolved: Resolved) -> Path:
    """Run 0 is half way."""
    run = ExperimentDirectory(tmp_path).run(0)
    run.root.mkdir(parents=True)
    run.train_csv.write_text(
        f"epoch,step,return_mean\n49,1,30.5\n50,{resolved.total_steps // 2},123.44\n"
    )
    run.resources_csv.write_text("wall_s,step,steps_per_second\n1,5000,1280.0\n")
    return tmp_path


def status(**phases: str) -> dict[str, Any]:
    """`prepare=`, `train_0=`, …: a phase each."""
    names = {
        key: f"wf.{key}" if "_" not in key else "wf.runs({1}:{1}).{0}".format(*key.split("_"))
        for key in phases
    }
    nodes = {
        key: {
            "name": names[key],
            "type": "Retry",
            "phase": phase,
            "startedAt": "2026-11-21T12:00:00Z",
        }
        for key, phase in phases.items()
    }
    return {"phase": "Running", "nodes": nodes}


def show(
    out: io.StringIO,
    layout: Layout,
    resolved: Resolved,
    directory: Path | None,
    *statuses: dict[str, Any],
) -> str:
    view = ProgressView(
        workflow="wf", layout=layout, resolved=resolved, directory=directory, out=out
    )
    for one in statuses:
        view.update(one)
        view._draw_now()
    with view:
        pass
    return out.getvalue()


def last_table(written: str) -> list[str]:
    """The lines of the last drawing, as they stand on the screen."""
    drawn = written.rsplit("\x1b[J", 1)[-1]
    return [ESCAPE.sub("", line) for line in drawn.splitlines()]


def test_a_terminal_shows_a_table(layout: Layout, resolved: Resolved, directory: Path) -> None:
    written = show(
        Terminal(),
        layout,
        resolved,
        directory,
        status(prepare="Succeeded", train_0="Running", train_1="Pending"),
    )
    lines = last_table(written)
    assert len(lines) == 5 and lines[0].startswith("  ✔ prepare")
    assert lines[1].startswith(
        "  run 0  ● train  ━━━━━━━━━━━━━━  50 %  return 123.4  1,280 steps/s  0:10 left"
    )
    assert lines[2].startswith("  run 1  ◌ train  ○ evaluate  ○ play") and lines[3].startswith(
        "  run 2  ○ train"
    )
    assert lines[4] == "  ○ average  ○ plot-average  ○ report"


def test_the_table_is_drawn_in_place(layout: Layout, resolved: Resolved, directory: Path) -> None:
    written = show(
        Terminal(),
        layout,
        resolved,
        directory,
        status(prepare="Running"),
        status(prepare="Succeeded"),
    )
    assert written.count("\x1b[5F\x1b[J") >= 2 and "✔ prepare" in last_table(written)[0]


def test_a_message_stays_above_the_table(layout: Layout, resolved: Resolved) -> None:
    out = Terminal()
    view = ProgressView(workflow="wf", layout=layout, resolved=resolved, directory=None, out=out)
    view._draw_now()
    view.say("the server is away")
    view._draw_now()
    assert "\x1b[5F\x1b[Jthe server is away\n  ○ prepare" in ESCAPE.sub(
        lambda found: found[0] if found[0][-1] in "FJ" else "", out.getvalue()
    )


def test_no_colour_when_a_person_wants_none(
    layout: Layout, resolved: Resolved, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[36m" not in show(Terminal(), layout, resolved, None, status(prepare="Running"))


def test_narrow_and_low_terminals(
    layout: Layout, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "12")
    many = resolve("ppo", {"runs": "200"})
    lines = last_table(
        show(Terminal(), layout, many, directory, status(train_150="Running", train_3="Failed"))
    )
    assert len(lines) <= 11 and max(map(len, lines)) <= 40
    assert any(line.startswith("  run 150") for line in lines) and any(
        line.startswith("  run   3") for line in lines
    )
    assert any("more runs" in line for line in lines)


def test_elsewhere_one_line_for_each_change(
    layout: Layout, resolved: Resolved, directory: Path
) -> None:
    first, second = (
        status(prepare="Succeeded", train_0="Running"),
        status(prepare="Succeeded", train_0="Succeeded"),
    )
    written = show(io.StringIO(), layout, resolved, directory, first, first, first, second)
    said = [line.split("  ", 1)[1] for line in written.splitlines()]
    assert said == ["prepare succeeded", "run 0  train started", "run 0  train succeeded"]
    assert "\x1b" not in written


def test_how_a_training_stood_at_its_end_is_said_once(
    layout: Layout, resolved: Resolved, directory: Path
) -> None:
    """Also of one that was shorter than the ten seconds between two lines."""
    run, ended = ExperimentDirectory(directory).run(0), status(train_0="Succeeded")
    run.train_csv.write_text(
        f"epoch,step,return_mean\n1,256,19.8\n100,{resolved.total_steps},500.0\n"
    )
    written = show(
        io.StringIO(), layout, resolved, directory, status(train_0="Running"), ended, ended, ended
    )
    said = [line.split("  ", 1)[1] for line in written.splitlines()]
    assert said == [
        "run 0  train started",
        "run 0  train succeeded",
        "run 0  train 100 %  return 500.0  1,280 steps/s",
    ]


def test_waiting_is_said_only_with_an_uncommon_reason(layout: Layout, resolved: Resolved) -> None:
    waiting, stuck = status(train_0="Pending"), status(train_0="Pending")
    waiting["nodes"]["train_0"]["message"] = "ContainerCreating"
    stuck["nodes"]["train_0"]["message"] = "Unschedulable: insufficient nvidia.com/gpu"
    assert show(io.StringIO(), layout, resolved, None, waiting) == ""
    why = "run 0  train is waiting: Unschedulable: insufficient nvidia.com/gpu\n"
    assert why in show(io.StringIO(), layout, resolved, None, stuck)
    both = show(io.StringIO(), layout, resolved, None, waiting, stuck, waiting, stuck)
    assert both.count(why) == both.count("\n") == 1, "who waits may know why only a moment later"


def test_the_reason_of_a_failure_is_said_at_once_and_only_once(
    layout: Layout, resolved: Resolved, tmp_path: Path
) -> None:
    log = tmp_path / "pod.log"
    log.write_text("Traceback …\ntrain of run 0: failed: loss is not finite at step 512\n\n")

    def attempt(whole: str) -> dict[str, Any]:
        shown = status(train_0=whole)
        failed = {
            "name": "wf.runs(0:0).train(0)",
            "phase": "Failed",
            "message": "main: Error (exit code 3)",
            "logFile": str(log),
        }
        shown["nodes"]["attempt"] = failed
        return shown

    retrying, failed = attempt("Running"), attempt("Failed")
    said = [
        line.split("  ", 2)[2]
        for line in show(io.StringIO(), layout, resolved, None, retrying, failed).splitlines()
    ]
    assert said == [
        "train attempt 1 failed: loss is not finite at step 512 (main: Error (exit code 3))",
        "train failed",
    ]
    table = last_table(show(Terminal(), layout, resolved, None, retrying))
    assert table[1].startswith("  run 0  ↻ train  ○  ○  ○  ○  loss is not finite at step 512")


def test_elsewhere_a_training_does_not_flood(
    layout: Layout, resolved: Resolved, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workflows.progress.lines.SAY_AFTER_S", 0.0)
    running = status(train_0="Running")
    written = show(io.StringIO(), layout, resolved, directory, *[running] * 20)
    assert len(written.splitlines()) == 2
    assert "run 0  train  50 %  return 123.4  1,280 steps/s" in written


def test_a_finished_run_needs_no_names_on_a_narrow_terminal(
    layout: Layout, resolved: Resolved, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    phases = {
        "train_0": "Succeeded",
        "evaluate_0": "Succeeded",
        "play_0": "Running",
        "plot-training_0": "Failed",
    }
    monkeypatch.setenv("COLUMNS", "70")
    narrow = last_table(show(Terminal(), layout, resolved, directory, status(**phases)))
    assert narrow[1] == "  run 0  ✔ train  return 123.4  ✔  ● play  ✘ plot-training  ○"
    monkeypatch.setenv("COLUMNS", "120")
    wide = last_table(show(Terminal(), layout, resolved, directory, status(**phases)))
    assert (
        wide[1]
        == "  run 0  ✔ train  return 123.4  ✔ evaluate  ● play  ✘ plot-training  ○ plot-evaluation"
    )


def test_without_files_only_states(layout: Layout, resolved: Resolved, tmp_path: Path) -> None:
    for directory in (None, tmp_path / "nowhere"):
        lines = last_table(show(Terminal(), layout, resolved, directory, status(train_0="Running")))
        assert "● train" in lines[1] and "return" not in lines[1]


def test_damaged_files_do_not_end_the_view(
    layout: Layout, resolved: Resolved, directory: Path
) -> None:
    ExperimentDirectory(directory).run(0).train_csv.write_bytes(
        b"epoch,step,return_mean\n1,\xff\xfe,x\n"
    )
    assert (
        "● train"
        in last_table(show(Terminal(), layout, resolved, directory, status(train_0="Running")))[1]
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (31.4, "0:31"), (725, "12:05"), (10800, "3:00:00"), (-1, "0:00")],
)
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (4.2, "4.2 s"),
        (9.96, "10 s"),
        (59.6, "1 min 0 s"),
        (125, "2 min 5 s"),
        (11520, "3 h 12 min"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    "score",
    [
        None,
        Score("return", -1.2346e06, ""),
        Score("return", 0.5, ""),
        Score("return", 1e-05, ""),
        Score("win rate", 55.0, "%"),
        Score("mean of 3 trials", 8.25, "m/s"),
    ],
    ids=str,
)
@pytest.mark.parametrize("steps_per_second", [None, 5120.5])
def test_what_a_training_prints_can_be_read(
    score: Score | None, steps_per_second: float | None
) -> None:
    progress = Progress(
        step=248,
        total_steps=25600,
        epoch=1,
        epochs=100,
        score=score,
        steps_per_second=steps_per_second,
    )
    assert read_printed(printed(progress)) == progress
    assert read_printed(f"warning: {printed(progress)}") is read_printed("") is None


def waiting(message: str) -> dict[str, Any]:
    now = status(prepare="Pending")
    now["nodes"]["prepare"]["message"] = message
    return now


def test_each_kind_of_reason_for_waiting_is_said_once(layout: Layout, resolved: Resolved) -> None:
    """Kubernetes alternates between the last two."""
    back_off = 'ImagePullBackOff: Back-off pulling image "rl:cpu"'
    written = show(
        io.StringIO(),
        layout,
        resolved,
        None,
        waiting("Unschedulable: 0/1 nodes are available"),
        waiting("Unschedulable: 0/2 nodes are available"),
        waiting("PodInitializing"),
        waiting("ErrImagePull: not found"),
        waiting(back_off),
        waiting("ErrImagePull: not found"),
        waiting(back_off),
    )
    said = [line.split("  ", 1)[1] for line in written.splitlines()]
    assert said == [
        "prepare is waiting: Unschedulable: 0/1 nodes are available",
        "prepare is waiting: ErrImagePull: not found",
        f"prepare is waiting: {back_off}",
    ]


def test_a_duration_is_the_pod_s_and_not_that_of_our_polling(
    layout: Layout, resolved: Resolved, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node began 30 s before its end, of which it waited 10; we look every 7 s."""
    now_s = [0.0]
    monkeypatch.setattr("workflows.progress.view.time", SimpleNamespace(monotonic=lambda: now_s[0]))
    view = ProgressView(
        workflow="wf", layout=layout, resolved=resolved, directory=None, out=io.StringIO()
    )
    ended = status(prepare="Succeeded")
    ended["nodes"]["prepare"]["finishedAt"] = "2026-11-21T12:00:30Z"
    for at_s, shown in (
        (0.0, status(prepare="Pending")),
        (10.0, status(prepare="Running")),
        (37.0, ended),
        (44.0, ended),
    ):
        now_s[0] = at_s
        view.update(shown)
    assert view.tasks.inside[0].duration_s == 20


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("no OpenGL here", ["no film: run 0 play, run 2 play: no OpenGL here"]),
        ("video_episodes is 0", []),
    ],
)
def test_at_the_end_one_line_says_why_there_is_no_film(
    layout: Layout,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    reason: str,
    expected: list[str],
) -> None:
    """Its step has succeeded, and in the log of a pod nobody would look for it."""
    for index, state in ((0, "skipped"), (1, "succeeded"), (2, "skipped")):
        played = Status(
            task="play", state=state, started="", reason=reason if state == "skipped" else None
        )
        write_status(ExperimentDirectory(tmp_path).run(index).status / "play.json", played)
    tasks = read_tasks(
        status(play_0="Succeeded", play_1="Succeeded", play_2="Succeeded"), "wf", layout, 3
    )
    end(tasks, 5.0, lambda outdir: tmp_path, "/storage/x")
    _, *lines, last = capsys.readouterr().out.splitlines()
    assert lines == expected and last == f"Results: {tmp_path}"
