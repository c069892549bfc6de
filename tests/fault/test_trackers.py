"""Whole experiments with real trackers: the server goes away and comes back, the pod is killed, the key is
wrong. The training never notices, and nothing is lost or sent twice.
"""

from __future__ import annotations

import http.server
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from steps.directory.layout import ExperimentDirectory
from steps.directory.status import Status, read_status
from tests import tracked_runs
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.slow
EPOCHS = 1500
CSV = ("train.csv", "evaluation.csv")
needs_mlflow = pytest.mark.skipif(
    importlib.util.find_spec("mlflow.server" if importlib.util.find_spec("mlflow") else "mlflow")
    is None,
    reason="mlflow is not installed: pip install '.[test-trackers]'",
)
needs_wandb = pytest.mark.skipif(
    importlib.util.find_spec("wandb") is None,
    reason="wandb is not installed: pip install '.[test-trackers]'",
)


class Server:
    """An MLflow server on this machine, which can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        words = [
            *("--backend-store-uri", f"sqlite:///{self._folder}/server.db"),
            *("--artifacts-destination", str(self._folder / "artifacts")),
            *("--host", "127.0.0.1", "--port", str(self._port), "--workers", "1"),
        ]
        log = (self._folder / "server.log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mlflow", "server", *words],
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self._folder,
                env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            )
        until(self._answers)

    def kill(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            return requests.get(f"{self.address}/health", timeout=2).ok
        except requests.RequestException:
            return False


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    folder = tmp_path / "server"
    folder.mkdir()
    made = Server(folder)
    made.start()
    yield made
    made.kill()


@pytest.fixture(scope="module")
def untracked(tmp_path_factory: pytest.TempPathFactory) -> ExperimentDirectory:
    outdir = tmp_path_factory.mktemp("untracked") / "experiment"
    started = submit(outdir)
    output, _ = started.communicate(timeout=PATIENCE_S)
    assert started.returncode == 0, output
    return ExperimentDirectory(outdir)


def submit(outdir: Path, track: str = "", **environment: str) -> subprocess.Popen[str]:
    given = [
        "game=cartpole", f"epochs={EPOCHS}", "checkpoint_interval=20", f"outdir={outdir}", f"track={track}",
    ]  # fmt: skip
    words = [word for one in given for word in ("-p", one)]
    return subprocess.Popen(
        [sys.executable, "-m", "workflows.submit", "ppo", "--local", *words],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **environment},
    )


def tracking(directory: ExperimentDirectory) -> Status | None:
    return read_status(directory.run(0).status / "track.json")


def confirmed(directory: ExperimentDirectory) -> int:
    try:
        return int(str(tracked_runs.journal(directory.run(0), "mlflow")["confirmed"]))
    except (FileNotFoundError, ValueError):
        return 0


def assert_same_bytes(one: ExperimentDirectory, other: ExperimentDirectory) -> None:
    for name in CSV:
        assert (one.run(0).root / name).read_bytes() == (other.run(0).root / name).read_bytes()


@needs_mlflow
def test_a_server_that_was_away_and_a_pod_that_was_killed(
    server: Server, untracked: ExperimentDirectory, tmp_path: Path
) -> None:
    directory = ExperimentDirectory(tmp_path / "experiment")
    started = submit(directory.root, "mlflow", MLFLOW_TRACKING_URI=server.address)
    until(lambda: confirmed(directory) > 0)
    server.kill()
    status = tracking(directory)
    assert status is not None
    time.sleep(3)
    os.kill(int(status.process.split(":")[1]), signal.SIGKILL)
    time.sleep(3)
    server.start()
    output, _ = started.communicate(timeout=PATIENCE_S)
    assert started.returncode == 0, output
    run = directory.run(0)
    ours = tracked_runs.mlflow_rows(server.address, str(tracked_runs.journal(run, "mlflow")["id"]))
    tables = [
        *tracked_runs.table(run.train_csv, "train", "step"),
        *tracked_runs.table(run.root / "evaluation.csv", "evaluation", "episode"),
    ]
    assert len(tables) == EPOCHS + 20
    assert sorted(ours, key=lambda row: row[:2]) == sorted(tables, key=lambda row: row[:2])
    assert_same_bytes(directory, untracked)


@needs_mlflow
def test_without_a_server_all_is_kept_and_sent_by_hand(
    server: Server, untracked: ExperimentDirectory, tmp_path: Path
) -> None:
    server.kill()
    directory = ExperimentDirectory(tmp_path / "experiment")
    started = submit(directory.root, "mlflow", MLFLOW_TRACKING_URI=server.address)
    output, _ = started.communicate(timeout=PATIENCE_S)
    assert started.returncode == 0, output
    assert_same_bytes(directory, untracked)
    log = (directory.run(0).logs / "track.log").read_text()
    assert sum(line.startswith("kept for later: ") for line in log.splitlines()) == 1
    assert "mlflow: 0 of 1 runs sent" in directory.report_html.read_text()
    server.start()
    done = subprocess.run(
        [sys.executable, "-m", "steps.track", f"--outdir={directory.root}"],
        env={**os.environ, "MLFLOW_TRACKING_URI": server.address},
        timeout=120,
    )
    assert done.returncode == 0
    id = str(tracked_runs.journal(directory.run(0), "mlflow")["id"])
    assert len(tracked_runs.mlflow_rows(server.address, id)) == EPOCHS + 20


class Refusing(http.server.BaseHTTPRequestHandler):
    """A server to which every key is wrong."""

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_POST = do_GET  # noqa: N815 - http.server's names

    def log_message(self, *arguments: object) -> None: ...


@pytest.fixture
def refusing() -> Iterator[str]:
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{made.server_port}"
    made.shutdown()
    made.server_close()


WRONG = "0123456789" * 4


@pytest.mark.parametrize(
    ("tracker", "address", "key"),
    [
        pytest.param("mlflow", "MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_TOKEN", marks=needs_mlflow),
        # On a slow machine W&B needs minutes to give up.
        pytest.param(
            "wandb", "WANDB_BASE_URL", "WANDB_API_KEY", marks=[needs_wandb, pytest.mark.soak]
        ),
    ],
)
def test_a_wrong_key_is_one_line_and_no_failure(
    tracker: str,
    address: str,
    key: str,
    refusing: str,
    untracked: ExperimentDirectory,
    tmp_path: Path,
) -> None:
    directory = ExperimentDirectory(tmp_path / "experiment")
    started = submit(directory.root, tracker, **{address: refusing, key: WRONG})
    output, _ = started.communicate(timeout=PATIENCE_S)
    assert started.returncode == 0, output
    assert_same_bytes(directory, untracked)
    log = (directory.run(0).logs / "track.log").read_text()
    assert sum(line.startswith("kept for later: ") for line in log.splitlines()) == 1
    for path in directory.root.rglob("*"):
        assert not path.is_file() or WRONG.encode() not in path.read_bytes(), path
