"""`python -m workflows.submit study.yaml`: what it shows, what it sends, and what it refuses."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from config.cluster import load_cluster
from steps import plan, prepare
from steps.directory import processes
from steps.directory.owner import Owner, claim
from tests.outside import OF_A_WORKFLOW
from tests.study_runs import CELLS, TINY
from tests.unit.workflows.loopback_argo import LoopbackArgo
from workflows import on_cluster, studies, submit
from workflows.local import detect
from workflows.request.command_line import parse

Capture = pytest.CaptureFixture[str]
TWO_PARTS = "outdir: x\nruns: 256\nalgorithms: [ppo, dqn]\ngames: [cartpole, acrobot]\n"
"""More pods than one workflow may have."""
WITH_ACTORS = "outdir: x\nruns: 1\nalgorithms: [ppo, impala]\ngames: [cartpole, acrobot]\n"

STRANGE = "outdir: x\nruns: 1\nalgorithms: [ppo]\ngames: [cartpole, 'no.such.module:Game']\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the person is, with the study's file and without an Argo Server."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("ARGO_") or name in OF_A_WORKFLOW:
            monkeypatch.delenv(name)
    (tmp_path / "study.yaml").write_text(TINY)
    return tmp_path


def files() -> list[str]:
    return sorted(str(path) for path in Path().rglob("*"))


def parameters(manifest: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in manifest["spec"]["arguments"]["parameters"]}


def table(text: str) -> dict[str, list[str]]:
    """The rows of the plan that begin with the name of an experiment."""
    return {line.split()[0]: line.split() for line in text.splitlines() if line.split()}


def test_dry_run_shows_every_experiment_and_writes_nothing(capsys: Capture) -> None:
    assert submit.main(["study.yaml", "--dry-run"]) == 0
    rows = table(capsys.readouterr().out)
    assert rows["where"][1:] == ["this", "machine"]
    assert rows["directory"][1:] == ["results/tiny"]
    assert rows["total"][1:] == ["4", "experiments,", "8", "runs,", "56", "pods,", "4,640", "steps"]
    assert rows["ppo-cartpole"] == ["ppo-cartpole", "ppo", "cartpole", "2", "128", "14"]
    assert rows["dqn-acrobot"] == ["dqn-acrobot", "dqn", "acrobot", "2", "1,000", "14"]
    assert set(rows) > set(CELLS)
    assert files() == ["study.yaml"]


def test_parameters_of_the_command_hold_for_all(capsys: Capture) -> None:
    given = ["-p", "runs=3", "-p", "evaluations=2", "-p", "outdir=elsewhere/x"]
    assert submit.main(["study.yaml", "--dry-run", *given]) == 0
    rows = table(capsys.readouterr().out)
    assert rows["directory"][1:] == ["elsewhere/x"]
    assert {rows[name][3] for name in CELLS} == {"3"}
    assert {int(rows[name][5]) for name in CELLS} == {4 + 3 * (8 + 2)}


def test_the_directory_may_be_given_by_the_command_alone(folder: Path, capsys: Capture) -> None:
    (folder / "study.yaml").write_text(TINY.replace("outdir: results/tiny\n", ""))
    assert submit.main(["study.yaml", "--dry-run"]) == 2
    assert "the study has no outdir" in capsys.readouterr().err
    assert submit.main(["study.yaml", "--dry-run", "-p", "outdir=results/y"]) == 0
    assert table(capsys.readouterr().out)["directory"][1:] == ["results/y"]


def test_the_manifest_can_be_submitted_as_it_is(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`plan` in its pod understands what stands in it, and means the same experiments."""
    given = ["-p", "outdir=/storage/tiny", "-p", "seed=7", "-p", "cpu_image=own:2"]
    given += ["-p", "claim=disk", "--name", "mine", "--deadline", "60"]
    assert submit.main(["study.yaml", "--manifest", *given]) == 0
    manifest = yaml.safe_load(capsys.readouterr().out)
    assert manifest["metadata"] == {"name": "mine"}
    assert manifest["spec"]["activeDeadlineSeconds"] == 60
    told = parameters(manifest)
    assert (told["outdir"], told["part"], told["claim"]) == ("/storage/tiny", "1/1", "disk")
    assert told["cpu_image"] == "own:2"
    assert files() == ["study.yaml"]
    monkeypatch.setenv("STORAGE", str(folder / "disk"))
    monkeypatch.setenv("OUTPUTS", str(folder / "outputs"))
    (folder / "disk").mkdir()
    seen = told | {"outdir": f"{folder}/disk/tiny"}
    listed = [{"name": name, "value": value} for name, value in seen.items()]
    assert plan.main(["--outdir=", f"--workflow-parameters={json.dumps(listed)}"]) == 0
    assert json.loads((folder / "outputs" / "experiments").read_text()) == [*CELLS]
    cells = json.loads((folder / "disk" / "tiny" / "cells.json").read_text())
    assert {(one["given"]["seed"], one["given"]["cpu_image"]) for one in cells} == {("7", "own:2")}
    assert not [one for one in cells if "claim" in one["given"]], "the workflow's alone"


def test_a_manifest_without_a_name_is_for_many_submissions(capsys: Capture) -> None:
    assert submit.main(["study.yaml", "--manifest", "-p", "outdir=/storage/tiny"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["metadata"] == {"generateName": "study-"}


def test_the_study_says_how_many_experiments_are_active(folder: Path, capsys: Capture) -> None:
    for text, active in ((TINY, load_cluster().parallel_experiments), (TINY + AT_ONCE, 9)):
        (folder / "study.yaml").write_text(text)
        assert submit.main(["study.yaml", "--manifest", "-p", "outdir=/storage/x"]) == 0
        assert active_in(yaml.safe_load(capsys.readouterr().out)) == active


AT_ONCE = "parallel_experiments: 9\n"


def active_in(manifest: dict[str, Any]) -> int:
    (entry,) = (one for one in manifest["spec"]["templates"] if one["name"] == "round")
    return int(entry["parallelism"])


def test_a_study_that_is_too_large_is_several_workflows(folder: Path, capsys: Capture) -> None:
    (folder / "study.yaml").write_text(TWO_PARTS)
    given = ["-p", "outdir=/storage/x", "--name", "large"]
    assert submit.main(["study.yaml", "--manifest", *given]) == 0
    both = list(yaml.safe_load_all(capsys.readouterr().out))
    assert [one["metadata"]["name"] for one in both] == ["large-1", "large-2"]
    assert [parameters(one)["part"] for one in both] == ["1/2", "2/2"]
    assert submit.main(["study.yaml", "--dry-run"]) == 0
    assert table(capsys.readouterr().out)["workflows"] == ["workflows", "2"]


def test_the_parts_run_here_one_after_another_until_one_is_interrupted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`plan` would refuse them together."""
    (folder / "study.yaml").write_text(TWO_PARTS)
    ran = list[str]()
    for codes, expected in (([1, 0], 1), ([130], 130)):
        ran.clear()
        left = iter(codes)

        def run(submission: Any, left: Iterator[int] = left) -> int:
            ran.append(submission.parameters["part"])
            return next(left)

        monkeypatch.setattr("workflows.on_this_machine.run", run)
        assert submit.main(["study.yaml", "--local"]) == expected
        assert ran == ["1/2", "2/2"][: len(codes)]


@pytest.mark.parametrize(
    ("text", "processors", "active", "shared"),
    [
        (WITH_ACTORS, 1.0, 1, True),
        (WITH_ACTORS, 2.5, 1, False),
        (WITH_ACTORS, 64.0, 4, False),
        (TINY, 1.0, 4, False),
    ],
)
def test_learners_of_two_experiments_do_not_hold_what_their_actors_wait_for(
    text: str,
    processors: float,
    active: int,
    shared: bool,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of two learners on two processors would wait for experience for ever."""
    (folder / "study.yaml").write_text(text)
    small = replace(detect(), cpus=processors, gpus=())
    monkeypatch.setattr(studies, "detect", lambda: small)
    request = parse(["study.yaml", "--local"])
    (found,) = studies.checked(
        request, studies.read(request, local=True), load_cluster(), local=True
    )
    assert active_in(found.manifest) == active
    assert bool(found.sharing) == shared


REFUSED: list[tuple[list[str], str]] = [
    (["missing.yaml"], "missing.yaml cannot be read: "),
    (["folder.yaml"], "folder.yaml cannot be read: "),
    (["no.yaml"], "no.yaml: line 1"),
    (["binary.yaml"], "binary.yaml cannot be read: "),
    (["wrong.yaml"], "wrong.yaml: line 3: unknown algorithm 'pppo'; did you mean 'ppo'"),
    (["study.yaml", "-p", "rnus=3"], "unknown parameter 'rnus'; did you mean 'runs'?"),
    (["study.yaml", "-p", "runs=0"], "parameter 'runs' cannot be '0'"),
    (["study.yaml", "-p", "game=pong"], "games are listed under 'games'"),
    (["study.yaml", "-p", "clip=0.1"], "parameter 'clip' is unknown to dqn"),
    (["study.yaml", "-p", "outdir=../x"], "parameter 'outdir' cannot be '../x'"),
    (["study.yaml", "-p", "part=1/2"], "unknown parameter 'part'"),
    (["study.yaml", "-p", "claim={{x}}"], "parameter 'claim' cannot be"),
    (["study.yaml", "-p", "claim=No Claim"], "parameter 'claim' cannot be"),
    (["study.yaml", "--presets", "own.yaml"], "--presets is for one experiment"),
    (["study.yaml", "--name", "My_Name"], "--name cannot be 'My_Name'"),
    (["study.yaml", "--name", "x" * 64], "--name cannot be"),
    (["study.yaml", "--manifest"], "parameter 'outdir' cannot be 'results/tiny'; allowed: a directory below /storage"),
    (["study.yaml", "--argo"], "--argo needs an Argo Server"),
    (["study.yaml", "--local", "-p", "device=cuda"], "experiment ppo-cartpole: parameter 'device' cannot be 'cuda'"),
    (["claims.yaml"], "line 5: parameter 'claim' cannot be given to experiments"),
    (["strange.yaml"], "experiment ppo-no-such-module-game: game 'no.such.module:Game' cannot be made"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "said"), REFUSED)
def test_refused_in_one_line(
    arguments: list[str],
    said: str,
    folder: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("workflows.request.preflight.CUDA_PROBE", "raise SystemExit(1)")
    (folder / "folder.yaml").mkdir()
    (folder / "no.yaml").write_text("{")
    (folder / "binary.yaml").write_bytes(b"\xff\xfe")
    (folder / "wrong.yaml").write_text(TINY.replace("ppo:", "pppo:"))
    (folder / "claims.yaml").write_text(TINY.replace("video_episodes: 0", "claim: mine"))
    (folder / "strange.yaml").write_text(STRANGE)
    before = files()
    assert submit.main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and said in shown.err
    assert shown.err.startswith("refused: ") and shown.err.count("\n") == 1, shown.err
    assert files() == before


def alone(directory: Path, *given: str) -> None:
    """The experiment of a directory, prepared alone."""
    length = ["-pepochs=2", "-pnum_envs=2", "-prollout_length=32", "-pminibatches=2"]
    further = ["-pgame=cartpole", "-pupdate_epochs=1", "-pevaluation_episodes=1"]
    words = ["--algorithm=ppo", *length, *further, "-pvideo_episodes=0", f"-poutdir={directory}"]
    assert prepare.main([*words, *given]) == 0


def test_an_experiment_of_other_parameters_is_named_before_anything_runs(
    folder: Path, capsys: Capture
) -> None:
    directory = folder / "results/tiny/experiments/ppo-cartpole"
    alone(directory, "-pseed=1")
    capsys.readouterr()
    before = files()
    assert submit.main(["study.yaml", "--local"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("refused: experiment ppo-cartpole: ") and shown.count("\n") == 1
    assert "experiment.seed: 1 in the directory, 0 now" in shown
    assert files() == before


def test_directories_that_experiments_read_are_those_that_the_person_means(folder: Path) -> None:
    """Wherever they stand in the file: pods have another folder."""
    opponents = "alphazero: {opponents: 'minimax-4,results/b:1'}"
    (folder / "study.yaml").write_text(
        "outdir: results/further\nruns: 1\ngames: [tic-tac-toe, {connect-four: {start_from: results/c}}]\n"
        f"algorithms: [{{{opponents}}}, {{alphazero: {{start_from: /storage/d}}, label: other}}]\n"
        "grid: {imitate: [results/x/games.txt, null]}\n"
        "exclude: [{imitate: results/x/games.txt, label: other}]\n"
    )
    request = parse(["study.yaml", "--local"])
    found = studies.read(request, local=True)
    given = {cell.name: cell.given for cell in found.cells}
    here = str(folder.resolve() / "results")
    assert set(given) == {
        f"{label}-{game}-{value}"
        for label, value in (
            ("alphazero", "games-txt"),
            ("alphazero", "preset"),
            ("other", "preset"),
        )
        for game in ("tic-tac-toe", "connect-four")
    }
    one = given["alphazero-connect-four-games-txt"]
    assert one["opponents"] == f"minimax-4,{here}/b:1"
    assert (one["start_from"], one["imitate"]) == (f"{here}/c", f"{here}/x/games.txt")
    assert given["other-tic-tac-toe-preset"]["start_from"] == f"{here}/d"
    assert given["other-tic-tac-toe-preset"]["imitate"] == ""


def test_on_a_cluster_such_directories_lie_below_the_mount(folder: Path, capsys: Capture) -> None:
    words = ["study.yaml", "--manifest", "-p", "outdir=/storage/x"]
    assert submit.main([*words, "-p", "start_from=results/a"]) == 2
    assert "parameter 'start_from' cannot be 'results/a'" in capsys.readouterr().err
    with_dqn = TINY.replace("parameters: {", "parameters: {start_from: /storage/a, ")
    (folder / "study.yaml").write_text(with_dqn)
    assert submit.main(words) == 0
    told = parameters(yaml.safe_load(capsys.readouterr().out))
    assert yaml.safe_load(told["study"])["parameters"]["start_from"] == "/storage/a"


def test_an_experiment_that_a_running_workflow_owns_refuses_no_study(
    folder: Path, capsys: Capture
) -> None:
    """Its own `prepare` says so, and the other experiments do not depend on it."""
    directory = folder / "results/tiny/experiments/ppo-cartpole"
    alone(directory)
    claim(directory / "owner.json", Owner(uid="other", process=processes.identity()))
    assert submit.main(["study.yaml", "--local", "--dry-run"]) == 0
    assert submit.main(["ppo", "--local", "-p", "game=cartpole", "-p", f"outdir={directory}"]) == 2


def test_help_explains_the_command(capsys: Capture) -> None:
    assert submit.main(["study.yaml", "--help"]) == 0
    assert "study.yaml" in capsys.readouterr().out


@pytest.fixture
def argo(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackArgo]:
    with LoopbackArgo().running() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(on_cluster, "POLL_S", 0.02)
        server.statuses = [{"phase": "Succeeded"}]
        yield server


IMAGES = ["-p=gpu_image=registry.example/rl:1-gpu", "-p=cpu_image=registry.example/rl:1-cpu"]


@pytest.mark.filterwarnings("ignore:The `json` method is deprecated")
def test_a_study_is_sent_and_can_be_followed_again(argo: LoopbackArgo, capsys: Capture) -> None:
    sent = ["study.yaml", "-p", "outdir=/storage/tiny", "--name", "tiny", *IMAGES]
    assert submit.main(sent) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("Submitted tiny to ") and shown.err == ""
    assert "study of 4 experiments, 8 runs" in shown.out.splitlines()[0]
    assert shown.out.splitlines()[-1].startswith("Report: /storage/tiny/report.html")
    assert parameters(argo.workflows["tiny"])["cpu_image"] == "registry.example/rl:1-cpu"
    assert submit.main(["--follow", "tiny"]) == 0
    assert capsys.readouterr().out.startswith("Following tiny on ")


@pytest.mark.filterwarnings("ignore:The `json` method is deprecated")
def test_the_parts_of_a_large_study_are_sent_and_not_followed(
    argo: LoopbackArgo, folder: Path, capsys: Capture
) -> None:
    (folder / "study.yaml").write_text(TWO_PARTS)
    sent = ["study.yaml", "-p", "outdir=/storage/x", "--name", "large", *IMAGES]
    assert submit.main(sent) == 0
    assert set(argo.workflows) == {"large-1", "large-2"}
    shown = capsys.readouterr().out
    assert "part 2 of 2 of a study of 4 experiments" in shown
    assert "--follow large-1" in shown and "--follow large-2" in shown
