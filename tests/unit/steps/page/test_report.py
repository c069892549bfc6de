"""The page and its verdict over synthetic experiments: complete, incomplete, stopped, hostile."""

from __future__ import annotations

import dataclasses
import html
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from config import pipeline
from config.cluster import load_cluster
from steps import report
from steps.directory import owner, processes
from steps.directory.experiment import read_experiment, write_experiment
from steps.directory.status import read_status
from steps.figures import style
from steps.page.facts import read_facts
from steps.page.media import DARK, Plots, on_dark_pages
from tests import synthetic
from workflows.dag.layout import Layout
from workflows.dag.render import rendered
from workflows.dag.tasks import read_tasks
from workflows.progress.ending import end


def run_report(directory, status: str = "Succeeded") -> tuple[int, str]:
    code = report.main([f"--outdir={directory.root}", f"--workflow-status={status}"])
    return code, directory.report_html.read_text()


def text_of(page: str) -> str:
    """What a reader sees, on one line."""
    body = re.sub(r"<(style|script)>.*?</\1>", "", page, flags=re.S)
    return " ".join(re.sub(r"<[^>]+>", " ", body).split())


class Links(HTMLParser):
    """Every address in the page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found += [
            value for name, value in attrs if name in ("href", "src", "poster", "action", "data")
        ]


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    directory = synthetic.experiment(
        tmp_path_factory.mktemp("complete"), ("complete",) * 2, learning_rate=0.002
    )
    synthetic.finish(directory, films=True)
    return directory


def test_a_complete_experiment(complete):
    code, page = run_report(complete)
    said = text_of(page)
    summary = json.loads((complete.average / "summary.json").read_text())["evaluation"]
    assert code == 0
    assert "Complete 2 of 2 planned runs usable" in said
    assert f"{summary['mean']:.4g}" in said
    assert "95 % t interval of the mean" in said
    assert "n = 2 of 2 runs, 20 fresh episodes each, greedy policy" in said
    assert page.count("<video ") == 3, "the first film once more beside the headline"
    assert "preset: <code>0.001</code>" in page
    assert "0123456789" in said


def test_every_link_leads_to_a_file_and_nothing_leads_out(complete):
    _, page = run_report(complete)
    links = Links(page).found
    assert len(links) > 50
    for link in links:
        if link.startswith("data:"):
            continue
        if link.startswith("#"):
            assert f'id="{link[1:]}"' in page, link
            continue
        assert not re.match(r"[a-z]+:|/|\.\.", link), link
        assert (complete.root / unquote(link)).exists(), link
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", page)
    assert "default-src 'none'" in html.unescape(page)


def test_a_repeat_leaves_the_page_untouched(complete):
    run_report(complete)
    before = {path: path.stat().st_mtime_ns for path in complete.root.rglob("*") if path.is_file()}
    assert run_report(complete)[0] == 0
    assert {
        path: path.stat().st_mtime_ns for path in complete.root.rglob("*") if path.is_file()
    } == before


def test_the_same_experiment_gives_the_same_page(tmp_path):
    pages = []
    for name in ("first", "second"):
        directory = synthetic.experiment(tmp_path / name, ("complete",))
        pages.append(run_report(directory)[1].replace(str(tmp_path / name), "OUTDIR"))
    assert pages[0] == pages[1]


def test_an_incomplete_repeat_keeps_the_page_and_its_exit_code(tmp_path):
    directory = synthetic.experiment(tmp_path, ("complete", "failed"))
    assert run_report(directory, "Failed")[0] == 5
    before = directory.report_html.stat()
    assert run_report(directory, "Failed")[0] == 5
    assert directory.report_html.stat() == before


def test_a_failed_run_is_a_failed_experiment_with_a_whole_page(tmp_path):
    directory = synthetic.experiment(tmp_path, ("complete", "failed", "complete"))
    synthetic.finish(directory, draw=False)
    code, page = run_report(directory)
    said = text_of(page)
    assert code == 5
    assert "Incomplete 2 of 3 runs usable, at least 3 needed" in said
    assert "n = 2 of 3 runs" in said
    assert "non-finite loss at epoch 58" in said
    assert "exit code 3" in said
    assert "epoch 58 of 196" in said, "the last lines of its log"
    status = read_status(directory.status / "report.json")
    assert status is not None
    assert (status.exit_code, status.state) == (5, "failed")


def test_min_runs_decides(tmp_path):
    directory = synthetic.experiment(tmp_path, ("complete", "failed"), min_runs=1)
    synthetic.finish(directory, draw=False)
    code, page = run_report(directory)
    assert code == 0
    assert "Complete 1 of 2 planned runs usable (at least 1 needed)" in text_of(page)
    assert "n = 1, no interval" in text_of(page)


DECIDE_USABILITY = (pipeline.TRAIN, pipeline.EVALUATE)
PRODUCTS = [step for step in pipeline.STEPS if step.required and step.name not in DECIDE_USABILITY]


@pytest.mark.parametrize("step", PRODUCTS, ids=lambda step: step.name)
def test_a_product_that_failed_for_good_makes_it_incomplete(step, tmp_path):
    directory = synthetic.experiment(tmp_path, ("complete",), evaluations=5)
    synthetic.succeed(directory.run(0), "run")
    synthetic.succeed(directory, "experiment")
    synthetic.status(
        (directory.run(0) if step.in_run else directory).status / f"{step.name}.json",
        state="failed",
        exit_code=1,
        reason="ValueError: no such thing",
    )
    code, page = run_report(directory)
    assert code == 5
    title = f"{step.name} of run 0" if step.in_run else step.name
    assert f"{title}: ValueError: no such thing" in text_of(page)


def test_a_stopped_workflow_shows_what_there_is(tmp_path):
    directory = synthetic.experiment(tmp_path, ("complete", "unfinished", "absent"))
    code, page = run_report(directory, "Failed")
    said = text_of(page)
    assert code == 5
    assert "Workflow before this report: Failed" in said
    assert "1 of 3 runs usable; average has not run over them" in said
    assert "preempted at step 25088" in said
    assert "train has not started" in said
    assert "average: not started" in said


def test_the_pods_that_share_a_step_say_how_it_ended(tmp_path):
    """It may have been started by hand while the training still ran, and stopped there."""
    directory = synthetic.experiment(tmp_path, ("complete",))
    status = directory.run(0).status
    synthetic.status(status / "evaluate-snapshots.json", state="preempted", exit_code=75)
    by_hand = read_facts(directory, read_experiment(directory), "Succeeded")
    assert by_hand.runs[0].tasks["evaluate-snapshots"].state == "preempted"
    synthetic.status(status / "evaluate-snapshots-part-0.json")
    shared = read_facts(directory, read_experiment(directory), "Succeeded")
    assert shared.runs[0].tasks["evaluate-snapshots"].state == "succeeded"


def test_no_usable_run(tmp_path):
    directory = synthetic.experiment(tmp_path, ("failed", "failed"))
    synthetic.finish(directory, draw=False)
    code, page = run_report(directory)
    assert code == 5
    assert "No usable run" in text_of(page)
    assert "nothing is averaged and nothing is claimed" in text_of(page)


def test_a_paused_run_is_neither_failed_nor_usable_and_says_so(tmp_path):
    directory = synthetic.experiment(tmp_path, ("complete", "paused", "complete", "paused"))
    synthetic.finish(directory, draw=False)
    code, page = run_report(directory)
    said = text_of(page)
    assert code == 5
    assert "2 of 4 runs usable, at least 4 needed" in said
    assert "2 runs (1, 3): paused at epoch 98 of 196" in said
    assert page.count('<span class="pill paused">paused</span>') == 2
    assert 'id="problems"' not in page


def test_runs_below_the_threshold_are_skipped_and_said_so(tmp_path):
    directory = synthetic.experiment(tmp_path, ("complete", "skipped"), evaluate_above=470)
    synthetic.finish(directory, draw=False)
    code, page = run_report(directory)
    assert code == 0, "a skipped run is usable"
    assert "n = 1 of 2 runs above the threshold" in text_of(page)
    assert "evaluate_above is 470" in text_of(page)


def test_averages_of_fewer_runs_than_are_usable_are_not_the_headline(tmp_path):
    directory = synthetic.experiment(tmp_path, ("complete", "unfinished"))
    synthetic.finish(directory, draw=False)
    synthetic.run(directory.run(1), synthetic.resolved_of(directory), "complete")
    synthetic.succeed(directory.run(1), "run")
    code, page = run_report(directory)
    assert code == 5
    assert "the averages are older than the runs" in text_of(page)
    assert "average has not run over them" in text_of(page)


def test_a_game_without_images_is_complete_without_films(tmp_path):
    directory = synthetic.experiment(tmp_path, ("complete",))
    synthetic.finish(directory, draw=False)
    synthetic.status(
        directory.run(0).status / "play.json",
        state="skipped",
        reason="'walker' gives no images: ImportError: pygame",
    )
    code, page = run_report(directory)
    assert code == 0
    assert "<video" not in page
    assert "play of run 0 'walker' gives no images" in text_of(page).replace("&#39;", "'")


HOSTILE = "</pre><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31m{{7*7}}'\"&"


def test_a_game_of_a_long_path_is_headed_by_its_short_name(tmp_path):
    directory = synthetic.experiment(tmp_path, ("unfinished",), game="cartpole-no-velocity")
    page = run_report(directory, "Failed")[1]
    assert "<h1>PPO <span>on</span> cartpole-no-velocity</h1>" in page
    assert "agents.environments.no_velocity:CartPoleNoVelocity-v1" in text_of(page), "as a fact"


def test_hostile_words_stay_words(tmp_path):
    directory = synthetic.experiment(tmp_path, ("failed",))
    run = directory.run(0)
    synthetic.status(
        run.status / "train.json",
        state="failed",
        exit_code=1,
        reason=HOSTILE,
        details={"device": HOSTILE},
    )
    (run.logs / "train.log").write_text(HOSTILE * 3)
    run.videos.mkdir()
    (run.videos / "episode-0.mp4<script>.mp4").write_bytes(b"x")
    code, page = run_report(directory, HOSTILE)
    assert code == 5
    assert page.count("<script>") == 1, "our own"
    assert "<img src=x" not in page
    assert "onerror=alert(2)&gt;" in page
    assert "\x1b" not in page.split("<pre>")[1].split("</pre>")[0]
    assert "{{7*7}}" in page, "a template is not evaluated twice"


@pytest.mark.parametrize("name", ["", "nowhere"])
def test_no_experiment_is_one_line_and_not_a_traceback(name, tmp_path):
    arguments = [f"--outdir={tmp_path / name}", "--workflow-status=Failed"]
    done = subprocess.run(
        [sys.executable, "-m", "steps.report", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert re.fullmatch(r"report: no (file|directory) \S+: prepare makes it\n", done.stderr)
    assert list(tmp_path.iterdir()) == []


def own(directory, uid: str) -> None:
    directory.root.mkdir(parents=True, exist_ok=True)
    owner.claim(
        directory.owner_json, owner.Owner(uid=uid, workflow="ppo", host=socket.gethostname())
    )


@pytest.mark.parametrize("states", [("complete",), ("failed",)])
def test_the_directory_is_released_whatever_the_verdict(states, tmp_path, monkeypatch):
    directory = synthetic.experiment(tmp_path, states)
    own(directory, "uid-1")
    monkeypatch.setenv("EXPERIMENT_OWNER", "uid-1")
    run_report(directory)
    present = owner.read_owner(directory.owner_json)
    assert present is not None
    assert present.released


def test_a_report_that_is_tried_again_finds_its_directory_owned(tmp_path, monkeypatch):
    directory = synthetic.experiment(tmp_path, ("complete",))
    own(directory, "uid-1")
    monkeypatch.setenv("EXPERIMENT_OWNER", "uid-1")
    with monkeypatch.context() as broken:
        broken.setattr(
            report,
            "write_if_changed",
            lambda *_: (_ for _ in ()).throw(OSError(5, "Input/output error")),
        )
        assert report.main([f"--outdir={tmp_path}"]) == 1
    assert not owner.read_owner(directory.owner_json).released
    assert report.main([f"--outdir={tmp_path}"]) == 5
    assert owner.read_owner(directory.owner_json).released


def test_a_killed_step_is_not_waited_for_after_a_workflow_that_succeeded(tmp_path):
    directory = synthetic.experiment(tmp_path, ("complete",))
    synthetic.finish(directory, draw=False)
    synthetic.status(
        directory.run(0).status / "play.json", state="running", process="another-machine:1:1"
    )
    began = time.monotonic()
    code, page = run_report(directory, "Succeeded")
    assert time.monotonic() - began < 20
    assert code == 5
    assert "play" in text_of(page)


def test_a_displaced_workflow_writes_no_page(tmp_path, monkeypatch):
    directory = synthetic.experiment(tmp_path, ("complete",))
    own(directory, "uid-1")
    monkeypatch.setenv("EXPERIMENT_OWNER", "uid-2")
    assert report.main([f"--outdir={tmp_path}"]) == 4
    assert not directory.report_html.exists()
    present = owner.read_owner(directory.owner_json)
    assert present is not None
    assert not present.released


def test_it_waits_for_a_training_that_is_still_saving(tmp_path):
    directory = synthetic.experiment(tmp_path, ("unfinished",))
    path = directory.run(0).status / "train.json"
    sleeper = subprocess.Popen([sys.executable, "-c", f"""
import sys, time
from pathlib import Path
from tests import synthetic
sys.stdin.readline()
synthetic.status(Path({str(path)!r}), state='preempted', exit_code=75, reason='saved at step 31337')
"""], stdin=subprocess.PIPE, text=True)  # fmt: skip
    synthetic.status(path, state="running", process=processes.identity(sleeper.pid))
    assert sleeper.stdin is not None
    reporter = subprocess.Popen(
        [sys.executable, "-m", "steps.report", f"--outdir={tmp_path}"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert reporter.stdout is not None
    for line in reporter.stdout:
        if "waiting for train of run 0" in line:
            assert not directory.report_html.exists()
            sleeper.stdin.write("\n")
            sleeper.stdin.flush()
            break
    assert reporter.wait(report.WAIT_S / 2) == 5
    assert sleeper.wait(report.WAIT_S / 2) == 0
    assert "saved at step 31337" in directory.report_html.read_text()
    sleeper.stdin.close()
    reporter.stdout.close()


def test_a_training_that_was_killed_is_not_waited_for(tmp_path):
    directory = synthetic.experiment(tmp_path, ("unfinished",))
    dead = subprocess.Popen([sys.executable, "-c", ""])
    identity = processes.identity(dead.pid)
    dead.wait()
    synthetic.status(directory.run(0).status / "train.json", state="running", process=identity)
    begun = time.monotonic()
    assert run_report(directory, "Failed")[0] == 5
    assert time.monotonic() - begun < report.WAIT_S / 2


def test_waiting_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "WAIT_S", 0.3)
    monkeypatch.setattr(report.wait_for_running, "__defaults__", (0.3,))
    directory = synthetic.experiment(tmp_path, ("unfinished",))
    synthetic.status(
        directory.run(0).status / "train.json", state="running", process="another-host:1:1"
    )
    assert run_report(directory, "Failed")[0] == 5
    assert "was running, or was killed" in directory.report_html.read_text()


def test_a_step_of_another_machine_is_waited_for_while_it_gives_signs_of_life(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(owner, "killed_after_s", lambda path: 1.0)
    directory = synthetic.experiment(tmp_path, ("unfinished",))
    status = directory.run(0).status / "train.json"
    synthetic.status(status, state="running", process="another-host:1:1")
    fence = owner.Fence(owner.fence_path(status))
    fence.claim()
    dies = time.monotonic() + 3

    def beat_until_it_dies():
        while time.monotonic() < dies:
            fence.beat()
            time.sleep(0.1)

    living = threading.Thread(target=beat_until_it_dies)
    living.start()
    begun = time.monotonic()
    assert run_report(directory, "Failed")[0] == 5
    took = time.monotonic() - begun
    living.join()
    assert begun + took > dies, "it was not waited for while it lived"
    assert took < report.WAIT_S / 2, "it was waited for when it was dead"
    assert "no sign of life for 1 s: train of run 0" in capsys.readouterr().out


def test_plots_beyond_the_budget_are_linked(complete):
    inline, linked = Plots(complete.root), Plots(complete.root, budget_bytes=1000)
    first, second = inline.get("average", "training"), linked.get("average", "training")
    assert first is not None
    assert second is not None
    assert first.source.startswith("data:image/svg+xml;base64,")
    assert second.source == "average/plots/training.svg"
    assert inline.get("average", "nothing") is None


def test_every_colour_of_a_plot_has_one_for_dark_pages(complete):
    svg = (complete.average / "plots" / "training.svg").read_text()
    for colour in (style.INK, style.GREY, style.RULE, style.BLUE):
        assert any(colour in before for before in DARK)
        assert colour in svg
    dark = on_dark_pages(svg)
    assert dark.count("prefers-color-scheme") == 1
    assert svg.replace("</style>", "", 1) in dark.replace(
        dark[dark.index("@media") : dark.index("</style>") + 8], ""
    )


def test_steps_after_training_import_no_torch(complete):
    for module in ("plot_training", "plot_evaluation", "average", "plot_average", "report"):
        arguments = [f"--outdir={complete.root}"] + (
            ["--run=0"] if module in ("plot_training", "plot_evaluation") else []
        )
        heavy = {"torch", "pandas", "gymnasium"} | (set() if module == "average" else {"scipy"})
        forbidden = f"bool({heavy!r} & set(sys.modules))"
        code = f"import sys; from steps import {module} as m; m.main({arguments!r}); sys.exit({forbidden})"
        assert (
            subprocess.run(
                [sys.executable, "-c", code], env={**os.environ, "OUTPUTS": ""}, timeout=60
            ).returncode
            == 0
        ), module


def test_the_page_needs_no_plot_library(complete):
    arguments = [f"--outdir={complete.root}", "--workflow-status=again"]
    code = f"import sys; from steps import report as m; m.main({arguments!r}); sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_a_log_is_shown_by_its_end(tmp_path: Path):
    directory = synthetic.experiment(tmp_path, ("failed",))
    (directory.run(0).logs / "train.log").write_text("".join(f"line {i}\n" for i in range(100_000)))
    page = run_report(directory)[1]
    assert "line 99999" in page
    assert "line 99000\n" not in page


@pytest.mark.parametrize("left_out", [None, 7])
def test_what_changed_between_submissions_is_listed(tmp_path, left_out):
    directory = synthetic.experiment(tmp_path, ("complete",) * 2)
    synthetic.finish(directory, draw=False)
    entry = {"time": "2026-11-22T08:00:00+00:00", "workflow": "w", "changed": {"runs": [1, 2]}}
    entry |= {} if left_out is None else {"left_out": left_out}
    record = dataclasses.replace(read_experiment(directory), history=(entry,))
    write_experiment(directory, record)
    _, page = run_report(directory)
    assert "Changed between submissions" in page and "<code>1</code> → <code>2</code>" in page
    assert ("older submissions are not listed" in page) == (left_out is not None)


@pytest.mark.slow
def test_the_last_line_and_the_page_show_the_same_number(tmp_path, capsys):
    directory = synthetic.experiment(tmp_path, ("complete",) * 5)
    synthetic.finish(directory)
    page = text_of(run_report(directory)[1])
    named = r"interquartile mean return of the final policies ([\d.]+) 95 %"
    (value,) = re.findall(named, page)
    node = {"name": "wf.average", "type": "Pod", "phase": "Succeeded"}
    layout = Layout.of(rendered("ppo", load_cluster()))
    tasks = read_tasks({"phase": "Succeeded", "nodes": {"a": node}}, "wf", layout, 5)
    capsys.readouterr()
    end(tasks, 9.0, lambda outdir: directory.root, "/storage/x")
    said = capsys.readouterr().out.splitlines()[0]
    assert said.endswith(f"; evaluation: interquartile mean return {value}, n = 5 of 5")


def test_an_interval_without_width_says_why(tmp_path):
    directory = synthetic.experiment(tmp_path, ("complete",) * 3)
    for index in range(3):
        synthetic.evaluated(directory.run(index), [500.0] * 20)
    synthetic.finish(directory, draw=False)
    said = html.unescape(text_of(run_report(directory)[1]))
    assert (
        "95 % t interval of the mean 500 to 500 (every run has the same score, as at a game's "
        "limit: this says nothing about further runs)"
    ) in said


def test_fewer_than_a_hundred_training_episodes_are_counted(complete):
    path = complete.run(0).status / "train.json"
    before = path.read_text()
    document = json.loads(before)
    document["details"]["training_episodes"] = 50
    path.write_text(json.dumps(document))
    try:
        said = text_of(run_report(complete)[1])
    finally:
        path.write_text(before)
    assert re.search(r"4[678]\d(\.\d)? of 50 ", said)
