"""What `steps.prune` deletes, what it never touches, and what is known of it afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from config.errors import NoUsableState
from steps import prepare, prune, report, train
from steps.browsing.overview import Overview
from steps.directory import checkpoints, owner, processes
from steps.directory.experiment import read_experiment, write_experiment
from steps.directory.layout import ExperimentDirectory
from steps.directory.owner import Owner
from steps.directory.pruned import UNKNOWN, read_pruned, refuse_pruned, state_folders
from tests import synthetic, synthetic_studies

SEGMENT = "000000000000-0123456789abcdef.safetensors"


def made(root: Path, states: tuple[str, ...] = ("complete",), **given: object) -> Path:
    """An experiment with a state of 1,000 bytes in each run that has begun."""
    directory = synthetic.experiment(root, states, **given)
    for index, state in enumerate(states):
        if state != "absent":
            run = directory.run(index)
            (run.checkpoint(run.checkpoint_steps()[-1]) / "state.json").write_bytes(bytes(600))
            run.stream("replay").mkdir()
            (run.stream("replay") / SEGMENT).write_bytes(bytes(400))
    return root


def started(root: Path, time_: str) -> None:
    directory = ExperimentDirectory(root)
    record = read_experiment(directory)
    object.__setattr__(record, "started", time_)
    write_experiment(directory, record)


def files(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def test_it_says_first_and_deletes_then(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = made(tmp_path / "a", ("complete", "unfinished"))
    before = files(tmp_path)
    assert prune.main([str(tmp_path), "--keep=last=0"]) == 0
    said = capsys.readouterr().out
    assert said == (
        "delete  a: checkpoints, replay, 2.0 kB\n2.0 kB of 1 experiment would be deleted; --yes deletes\n"
    )
    assert files(tmp_path) == before
    assert prune.main([str(tmp_path), "--keep=last=0", "--yes"]) == 0
    assert "2.0 kB of 1 experiment deleted" in capsys.readouterr().out
    gone = before - files(tmp_path)
    assert len(gone) == 4 and all("/checkpoints/" in one or "/replay/" in one for one in gone)
    added = files(tmp_path) - before
    assert added == {"a/owner.json", "a/runs/0/pruned.json", "a/runs/1/pruned.json"}
    present = owner.read_owner(root / "owner.json")
    assert present is not None and present.released
    assert prune.main([str(tmp_path), "--keep=last=0", "--yes"]) == 0
    assert "keep    a: it has no state" in capsys.readouterr().out


def test_what_is_known_afterwards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = made(tmp_path / "a", ("complete",) * 2)
    directory = ExperimentDirectory(root)
    synthetic.finish(directory, draw=False)
    assert report.main([f"--outdir={root}", "--workflow-status=Succeeded"]) == 0
    shown = Overview(tmp_path).rows()[0].shown
    assert prune.main([str(tmp_path), "--keep=last=0", "--yes"]) == 0
    page = directory.report_html.read_text()
    assert "State deleted" in page and "of 2 runs (0-1) were deleted by steps.prune: 2.0 kB" in page
    assert "Workflow before this report: <strong>Succeeded</strong>" in page
    row = Overview(tmp_path).rows()[0]
    assert (row.state, row.shown) == ("succeeded", shown)
    capsys.readouterr()
    parameters = read_experiment(directory).resolved.experiment
    given = ("game=cartpole", "runs=2", f"epochs={parameters.epochs}", "evaluation_episodes=20")
    words = [word for one in (*given, f"outdir={root}") for word in ("-p", one)]
    for step, arguments in (
        (prepare, ["--algorithm=ppo", *words]),
        (train, [f"--outdir={root}", "--run=0"]),
    ):
        code = step.main(arguments)
        said = capsys.readouterr().err
        assert code == 4 and "was deleted by steps.prune" in said
    with pytest.raises(NoUsableState, match=r"choose another outdir"):
        checkpoints.load_final(directory.run(1), read_experiment(directory).resolved)


def test_a_damaged_mark_counts_as_one(tmp_path: Path) -> None:
    run = ExperimentDirectory(made(tmp_path)).run(0)
    refuse_pruned(run)
    run.pruned_json.write_text("{")
    found = read_pruned(run)
    assert found is not None and found.time == UNKNOWN
    with pytest.raises(NoUsableState):
        refuse_pruned(run)


def test_the_rules(tmp_path: Path) -> None:
    names = ("old", "new", "best")
    for name, state in zip(names, ("complete", "failed", "complete"), strict=True):
        made(tmp_path / name, (state,))
    for name in ("old", "best"):
        synthetic.evaluated(
            ExperimentDirectory(tmp_path / name).run(0), [500.0 if name == "best" else 9.0] * 20
        )
        synthetic.finish(ExperimentDirectory(tmp_path / name), draw=False)
    for name, when in zip(names, ("2026-01-01", "2026-03-01", "2026-02-01"), strict=True):
        started(tmp_path / name, f"{when}T00:00:00+00:00")

    def kept(*rules: str) -> set[str]:
        plans = prune.planned(tmp_path, rules, is_whole=False)
        return {one.path.name for one in plans if one.kept}

    assert kept("last=1") == {"new"}
    assert kept("best=1") == {"best"}, "what has no result is not the best"
    assert kept("last=1", "best=2") == {"new", "best", "old"}
    assert kept("days=1") == {"old", "new", "best"}
    long_ago = time.time() - 3 * 86400
    for path in [*(tmp_path / "old").rglob("*"), tmp_path / "old"]:
        os.utime(path, (long_ago, long_ago))
    assert kept("days=2") == {"new", "best"}


def test_whole_directories_go_and_studies_stay_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(tmp_path / "deep/a")
    study = synthetic_studies.planned(tmp_path / "study", synthetic_studies.GRID)
    synthetic_studies.trained(study, 1, ("complete",))
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "other").mkdir()
    assert prune.main([str(tmp_path), "--keep=last=0", "--what=all", "--yes"]) == 0
    said = capsys.readouterr().out
    assert "delete  deep/a: everything" in said
    assert "part of a study, which needs its files" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "deep",
        "notes.txt",
        "other",
        "study",
    ]
    assert list((tmp_path / "deep").iterdir()) == []
    assert len(list(study.experiments.glob("*/runs/0/checkpoints/*"))) == 1
    assert prune.main([str(tmp_path), "--keep=last=0", "--yes"]) == 0, "the state of a cell may go"
    assert list(study.experiments.glob("*/runs/0/checkpoints")) == []


@pytest.mark.parametrize("what", ["state", "all"])
def test_what_somebody_works_on_is_left_alone(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    owned = made(tmp_path / "owned")
    owner.claim(owned / "owner.json", Owner(uid="u", process=processes.identity()))
    by_hand = made(tmp_path / "by-hand", ("unfinished",))
    synthetic.status(
        by_hand / "runs/0/status/train.json", state="running", process=processes.identity()
    )
    damaged = made(tmp_path / "damaged")
    (damaged / "experiment.yaml").write_text("[")
    before = files(tmp_path)
    assert prune.main([str(tmp_path), "--keep=last=0", f"--what={what}", "--yes"]) == 0
    said = capsys.readouterr().out
    assert "keep    owned: running\n" in said and "keep    by-hand: running\n" in said
    assert "keep    damaged: damaged: " in said
    assert files(tmp_path) == before


def test_one_that_a_workflow_takes_meanwhile_is_refused_and_the_others_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = made(tmp_path / "one"), made(tmp_path / "other")
    real = prune.delete_state

    def taken(directory: ExperimentDirectory) -> None:
        if directory.root == one:
            owner.claim(one / "owner.json", Owner(uid="u", process=processes.identity()))
        real(directory)

    monkeypatch.setattr(prune, "delete_state", taken)
    assert prune.main([str(tmp_path), "--keep=last=0", "--yes"]) == 1
    printed = capsys.readouterr()
    assert "1 of 2 experiments not deleted" in printed.out
    assert "belongs to workflow" in printed.err and printed.err.count("\n") == 1
    assert state_folders(ExperimentDirectory(one).run(0))
    assert not state_folders(ExperimentDirectory(other).run(0))


def test_nothing_is_deleted_through_a_link(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outside = made(tmp_path / "outside")
    root = tmp_path / "root"
    linked = made(root / "linked")
    checkpoints_ = linked / "runs/0/checkpoints"
    checkpoints_.rename(tmp_path / "elsewhere")
    checkpoints_.symlink_to(tmp_path / "elsewhere")
    (root / "whole").symlink_to(outside)
    inside = made(root / "inside")
    (inside / "mine").symlink_to(outside)
    assert prune.main([str(root), "--keep=last=0", "--yes"]) == 0
    assert "keep    linked: " in capsys.readouterr().out
    assert list((tmp_path / "elsewhere").rglob("state.json"))
    assert prune.main([str(root), "--keep=last=0", "--what=all", "--yes"]) == 0
    assert not inside.exists() and len(list(outside.rglob("state.json"))) == 1


@pytest.mark.parametrize("what", ["state", "all"])
@pytest.mark.parametrize("hit", [1, 2, 3])
def test_killed_in_the_middle_and_run_again_it_ends_right(
    what: str, hit: int, tmp_path: Path
) -> None:
    made(tmp_path / "a", ("complete",) * 2)
    words = [
        sys.executable,
        "-m",
        "steps.prune",
        str(tmp_path),
        "--keep=last=0",
        f"--what={what}",
        "--yes",
    ]
    killed = subprocess.run(
        words, env=os.environ | {"EXPERIMENT_FAULT": f"before_delete:{hit}"}, check=False,
        capture_output=True,
    )  # fmt: skip
    assert killed.returncode == -9, killed.stderr
    if what == "state":
        with pytest.raises(NoUsableState):
            refuse_pruned(ExperimentDirectory(tmp_path / "a").run(0))
    again = subprocess.run(words, check=False, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    if what == "all":
        assert list(tmp_path.iterdir()) == []
    else:
        runs = [ExperimentDirectory(tmp_path / "a").run(index) for index in range(2)]
        assert [state_folders(run) for run in runs] == [[], []]
        assert all(read_pruned(run) is not None for run in runs)


def test_refusals_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(tmp_path / "a")
    for words, said in (
        ([str(tmp_path), "--keep=lost=3"], "unknown rule of --keep 'lost'; did you mean 'last'?"),
        ([str(tmp_path), "--keep=last"], "allowed: last=N, days=N or best=N"),
        ([str(tmp_path / "no"), "--keep=last=1"], "allowed: a folder that exists"),
        ([str(tmp_path / "a"), "--keep=last=0", "--what=all"], "a folder above it"),
    ):
        assert prune.main(words) == 2
        printed = capsys.readouterr().err
        assert said in printed and printed.count("\n") == 1
