"""A learner and its actors by the commands of docs/actors.md and of containers/compose.yaml, as they stand
there, as real processes: only shorter, on a free port, and with the storage in a folder."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from steps.directory.layout import ExperimentDirectory
from steps.directory.status import read_status
from steps.directory.tables import read_rows
from steps.training.actor import NICENESS
from tests.outside import ROOT, outside
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
SHORT = ("-p", "epochs=6", "-p", "epoch_updates=8")


def of_the_page() -> list[list[str]]:
    """The words of each step's command on the page about actors."""
    page = (ROOT / "docs/actors.md").read_text(encoding="utf-8")
    lines = "\n".join(re.findall(r"```sh\n(.*?)```", page, re.DOTALL)).splitlines()
    return [
        shlex.split(line, comments=True) for line in lines if line.startswith("python -m steps")
    ]


class Started:
    """What was started; everything ends with the test."""

    def __init__(self, folder: Path, request: pytest.FixtureRequest) -> None:
        self._folder, self._request = folder, request

    def __call__(
        self, words: Sequence[str], changed: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """`python` is this one."""
        assert words[:2] == ["python", "-m"], words
        process = subprocess.Popen(
            [sys.executable, *words[1:]], cwd=self._folder, env=outside(**(changed or {})),
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self._request.addfinalizer(process.kill)
        return process


@pytest.fixture
def start(tmp_path: Path, request: pytest.FixtureRequest) -> Started:
    return Started(tmp_path, request)


def end(process: subprocess.Popen[str], code: int = 0) -> str:
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code, output
    return output


def niceness(pid: int) -> set[int]:
    """Of the threads that use a processor."""
    busy = [one.id for one in psutil.Process(pid).threads() if one.user_time >= 0.05]
    return {os.getpriority(os.PRIO_PROCESS, thread) for thread in busy}


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


def test_the_commands_of_the_page_in_its_order(tmp_path: Path, start: Started) -> None:
    """The learner is found through the directory; it is stopped, the same goes on at a port that it is
    told, and a further actor is told where that is.
    """
    prepare, learner, actor, at_port, told_where = of_the_page()
    assert at_port[:-2] == learner and told_where[:-3] == actor[:-1], "the same with options"
    run = ExperimentDirectory(tmp_path / "results/x").run(0)
    end(start([*prepare, *SHORT]))
    first, helper = start(learner), start(actor)
    until(lambda: run.train_csv.exists() and read_rows(run.train_csv), first, helper)
    usual, given_way = (niceness(one.pid) for one in (first, helper))
    assert given_way == {min(max(usual) + NICENESS, 19)}, "an actor beside its learner gives way"
    first.terminate()
    end(first, 75)
    assert not run.learner_json.exists()

    port = free_port()
    second = start([word.replace("7117", port) for word in at_port])
    until(run.learner_json.exists, second)
    further = start([word.replace("7117", port) for word in told_where])
    assert f"127.0.0.1:{port}" in end(second)
    end(helper)
    end(further)
    assert [int(row["epoch"]) for row in read_rows(run.train_csv)] == list(range(1, 7))
    for name in ("train", "train-actor-0", "train-actor-1"):
        status = read_status(run.status / f"{name}.json")
        assert status is not None and status.state == "succeeded", name


def test_the_commands_of_compose(tmp_path: Path, start: Started) -> None:
    """They are those of docs/actors.md, with another directory."""
    file = yaml.safe_load((ROOT / "containers" / "compose.yaml").read_text(encoding="utf-8"))
    services: dict[str, Any] = file["services"]
    storage = tmp_path / "storage"
    storage.mkdir()

    def words(service: str, *more: str) -> list[str]:
        one = services[service]
        return [
            word.replace("/storage", str(storage))
            for word in [*one.get("entrypoint", []), *(more or one["command"])]
        ]

    prepare, learner, actor, *_ = of_the_page()
    assert options(words("learner")) == options(learner) | {"--outdir": f"{storage}/impala"}
    assert options(words("actor")) == options(actor) | {"--outdir": f"{storage}/impala"}
    assert words("prepare")[:6] == prepare[:6], "prepare, its algorithm and option -p"
    variables = {"STORAGE": str(storage)}
    assert services["learner"]["environment"] == {"STORAGE": "/storage", "POD_IP": "learner"}
    assert services["actor"]["environment"] == services["prepare"]["environment"]
    end(start([*words("prepare"), *SHORT], variables))
    processes = [
        start(words("learner"), variables | {"POD_IP": "127.0.0.1"}),
        *(start(words("actor", f"--member={member}"), variables) for member in range(2)),
    ]
    for process in processes:
        end(process)
    run = ExperimentDirectory(storage / "impala").run(0)
    assert len(read_rows(run.train_csv)) == 6


def options(words: Sequence[str]) -> dict[str, str]:
    """`--run=0`, `--run 0` -> `{"--run": "0"}`, of a command whose options all have values."""
    rest = [part for word in words[3:] for part in word.split("=", 1)]
    return dict(zip(rest[::2], rest[1::2], strict=True)) | {"": " ".join(words[:3])}
