"""What a webhook is told, that it is told within bounds, and that it never changes a result."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from config.cluster import load_cluster
from config.errors import BadInput
from config.experiment import Experiment
from config.parameters import declared
from config.webhook import host_of
from steps import notify, report
from steps.directory import owner
from steps.directory.owner import Owner
from steps.web import webhook
from tests import synthetic, synthetic_studies
from workflows import submit
from workflows.dag.render import SEARCH, STUDY, rendered, rendered_study
from workflows.local import Capacity, run

SECRET = "T0KEN"


class Hook(ThreadingHTTPServer):
    """Answers with these statuses, the last one for ever, and keeps what it was told."""

    daemon_threads = True

    def __init__(self, *statuses: int, delay_s: float = 0.0) -> None:
        super().__init__(("127.0.0.1", 0), _Told)
        self.statuses = list(statuses)
        self.delay_s = delay_s
        self.told: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.address = f"http://127.0.0.1:{self.server_port}/{SECRET}?key={SECRET}"


class _Told(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        time.sleep(self.server.delay_s)
        self.server.told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.server.paths.append(self.path)
        left = self.server.statuses
        self.send_response(left.pop(0) if len(left) > 1 else left[0])
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Quiet."""


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Hook]]:
    monkeypatch.setattr(webhook, "WAITS_S", (0.0, 0.0))
    started: list[Hook] = []

    def start(*statuses: int, **options: float) -> Hook:
        server = Hook(*statuses, **options)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv(notify.ADDRESS_VARIABLE, server.address)
        started.append(server)
        return server

    yield start
    for server in started:
        server.shutdown()
        server.server_close()


def told(outdir: Path, reported: str = "Succeeded", status: str = "Succeeded") -> int:
    return notify.main(
        [f"--outdir={outdir}", f"--reported={reported}", f"--workflow-status={status}",
         "--duration=125.25"]
    )  # fmt: skip


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = synthetic.experiment(tmp_path_factory.mktemp("complete"), ("complete",) * 3)
    synthetic.finish(made, draw=False)
    return made.root


def test_a_complete_experiment(
    complete: Path, hook: Callable[..., Hook], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXPERIMENT_WORKFLOW", "ppo-cartpole-x")
    server = hook(200)
    before = {path: path.stat().st_mtime_ns for path in complete.rglob("*")}
    assert told(complete) == 0
    (one,) = server.told
    summary = json.loads((complete / "average/summary.json").read_text())["evaluation"]
    assert one["headline"] == {
        "measure": "mean return", "value": summary["mean"], "interval": summary["t_interval"], "n": 3
    }  # fmt: skip
    assert (one["experiment"], one["directory"]) == ("ppo-cartpole-x", str(complete))
    assert (one["state"], one["exit_code"], one["duration_s"]) == ("succeeded", 0, 125.2)
    assert one["runs"] == {"usable": 3, "planned": 3} and one["cost"]["processor_h"] > 0
    assert one["text"].startswith("ppo-cartpole-x: succeeded; mean return 487")
    assert one["text"].endswith("; n = 3; 2 min 5 s")
    assert {path: path.stat().st_mtime_ns for path in complete.rglob("*")} == before


def test_a_failed_report_stays_failed_and_is_told(
    tmp_path: Path, hook: Callable[..., Hook], capsys: pytest.CaptureFixture[str]
) -> None:
    made = synthetic.experiment(tmp_path, ("failed",))
    assert report.main([f"--outdir={tmp_path}", "--workflow-status=Failed"]) == 5
    server = hook(200)
    assert told(made.root, "Failed", "Failed") == 5
    (one,) = server.told
    assert (one["state"], one["exit_code"], one["headline"]) == ("failed", 5, None)
    assert "non-finite loss at epoch 58" in one["reason"]
    assert SECRET not in "".join(capsys.readouterr())


def test_a_stop_and_what_came_of_it(tmp_path: Path, hook: Callable[..., Hook]) -> None:
    server = hook(200)
    assert told(synthetic.experiment(tmp_path, ("unfinished",)).root, "Failed", "Failed") == 5
    assert server.told[0]["state"] == "stopped"


def test_a_workflow_that_failed_though_nothing_is_missing(
    complete: Path, hook: Callable[..., Hook]
) -> None:
    server = hook(200)
    assert told(complete, "Error") == 5
    assert (server.told[0]["state"], server.told[0]["exit_code"]) == ("incomplete", 5)


def test_no_directory_and_that_of_another_workflow(
    tmp_path: Path, hook: Callable[..., Hook], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = hook(200)
    assert told(tmp_path / "none", "Failed", "Failed") == 5
    monkeypatch.setenv("EXPERIMENT_OWNER", "mine")
    made = synthetic.experiment(tmp_path / "other", ("complete",))
    owner.claim(made.owner_json, Owner(uid="another"))
    assert told(made.root, "Failed", "Failed") == 5
    first, second = server.told
    assert (first["state"], first["reason"]) == ("failed", "nothing was written")
    assert (second["state"], second["reason"]) == (
        "failed", "the directory belongs to another workflow"
    )  # fmt: skip


def test_an_error_of_our_own_is_told_and_fails_nothing(
    complete: Path, hook: Callable[..., Hook], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: Path) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(notify, "Overview", broken)
    server = hook(200)
    assert told(complete) == 0
    (one,) = server.told
    assert (one["reason"], one["state"], one["exit_code"]) == ("unforeseen", "succeeded", 0)


def test_a_study(tmp_path: Path, hook: Callable[..., Hook]) -> None:
    server = hook(200)
    study = synthetic_studies.planned(tmp_path / "s", synthetic_studies.GRID)
    synthetic_studies.trained(study, 2, ("failed",))
    assert told(study.root, "Failed", "Succeeded") == 5
    assert server.told[0]["reason"] == "2 of 8 experiments begun: 2 failed"


@pytest.mark.parametrize(
    ("statuses", "tries", "said"),
    [
        ((500, 429, 200), 3, "told"),
        ((503,), 3, "not told: it answered 503"),
        ((404,), 1, "not told: it answered 404"),
        ((302,), 1, "not told: it answered 302"),
    ],
)
def test_what_may_pass_is_tried_again_and_what_fails_is_one_line(
    statuses: tuple[int, ...], tries: int, said: str, complete: Path, hook: Callable[..., Hook],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    server = hook(*statuses)
    assert told(complete) == 0, "the experiment's result is another matter"
    assert len(server.told) == tries and set(server.paths) == {f"/{SECRET}?key={SECRET}"}
    output = "".join(capsys.readouterr())
    assert output == f"notify: 127.0.0.1: {said}\n"


def test_nobody_there_and_nobody_who_answers(
    complete: Path,
    hook: Callable[..., Hook],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = hook(200, delay_s=30.0)
    monkeypatch.setattr(notify, "LONGEST_S", 0.3)
    assert told(complete) == 0
    assert capsys.readouterr().err == (
        "notify: 127.0.0.1: not told: it did not answer within 0.3 s\n"
    )
    server.server_close()
    monkeypatch.setattr(notify, "LONGEST_S", 20)
    monkeypatch.setenv(notify.ADDRESS_VARIABLE, f"http://127.0.0.1:1/{SECRET}")
    assert told(complete) == 0
    said = capsys.readouterr().err
    assert said.startswith("notify: 127.0.0.1: not told: ") and "refused" in said
    assert SECRET not in said and said.count("\n") == 1


@pytest.mark.parametrize(
    "text",
    [f"ftp://x/{SECRET}", f"hooks.example/{SECRET}", f"https:///{SECRET}", f"https://u:{SECRET}@x/",
     f"https://x/{SECRET}#a", f"https://x/{SECRET} b", f"https://x:port/{SECRET}",
     f"https://x/{{{{{SECRET}}}}}", f"https://x/$({SECRET})", f"https://ü/{SECRET}"],
)  # fmt: skip
def test_what_is_no_web_address_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(BadInput) as refused:
        declared(Experiment)["notify"].parse(text)
    assert SECRET not in str(refused.value) and "'notify'" in str(refused.value)


def test_a_plan_names_the_host_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["ppo", "--local", "--dry-run", "--notify", f"https://hooks.example/{SECRET}"]
    assert submit.main(words) == 0
    said = capsys.readouterr().out
    assert "* notify" in said and "an address at hooks.example" in said and SECRET not in said
    assert "average, plot-average, report, notify\n" in said
    assert submit.main(words[:3]) == 0
    assert "plot-average, report\n" in capsys.readouterr().out


def test_an_address_is_in_no_record_of_an_experiment() -> None:
    from config.resolve import resolve, resolved_from_dict

    address = f"https://hooks.example/{SECRET}"
    one = resolve("ppo", {"notify": address})
    assert one.experiment.notify == address and host_of(address) == "hooks.example"
    assert SECRET not in json.dumps(one.as_dict())
    assert one.identity_hash == resolve("ppo", {}).identity_hash
    assert resolved_from_dict(one.as_dict()).experiment.notify is None


MANIFESTS = {
    "report": lambda: rendered("ppo", load_cluster()),
    "report-study": lambda: rendered_study(load_cluster(), kind=STUDY),
    "report-search": lambda: rendered_study(load_cluster(), kind=SEARCH),
}


@pytest.mark.parametrize(
    ("kind", "code", "is_told"),
    [
        ("report", 0, True),
        ("report", 5, True),
        pytest.param("report", 5, False, marks=pytest.mark.slow),
        pytest.param("report", 0, False, marks=pytest.mark.slow),
        pytest.param("report-study", 5, True, marks=pytest.mark.slow),
        pytest.param("report-search", 5, True, marks=pytest.mark.slow),
    ],
)
def test_the_exit_handler_fails_with_its_report_whether_somebody_is_told_or_not(
    kind: str, code: int, is_told: bool, tmp_path: Path, hook: Callable[..., Hook]
) -> None:
    """The real manifest by the local engine, with a report that ends with the code."""
    server = hook(200)
    manifest = json.loads(json.dumps(MANIFESTS[kind]()))
    spec = manifest["spec"]
    (last,) = (one for one in spec["templates"] if one["name"] == kind)
    last["container"] |= {"command": ["python", "-c", f"raise SystemExit({code})"], "args": []}
    good = {"name": "good", "container": {"image": "x", "command": ["true"]}}
    reached = {"finish", "notify", "track-rest", "track-rest-alone", kind}
    spec["templates"] = [good, *(one for one in spec["templates"] if one["name"] in reached)]
    spec["entrypoint"] = "good"
    for parameter in spec["arguments"]["parameters"]:
        if parameter["name"] == "notify":
            parameter["value"] = server.address if is_told else ""
        if parameter["name"] == "outdir":
            parameter["value"] = "/storage/x"
    manifest["metadata"] = {"name": "w"}
    status = run(
        manifest,
        storage=tmp_path / "storage",
        logs=tmp_path / "logs",
        capacity=Capacity(4.0),
    )
    phases = {node.template: node.phase for node in status.nodes.values() if node.boundary}
    assert status.phase == ("Failed" if code else "Succeeded"), phases
    assert phases["notify"] == ("Skipped" if not is_told else "Failed" if code else "Succeeded")
    assert len(server.told) == is_told
    written = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(SECRET in text for text in written)
