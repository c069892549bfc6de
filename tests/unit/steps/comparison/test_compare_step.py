"""The command `steps.compare`: in a study's workflow, and for any directories."""

from __future__ import annotations

import csv
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from config.games import games
from config.score_ranges import known_ranges
from steps import compare
from steps.comparison.stored_comparison import read_comparison
from steps.directory.study import StudyDirectory
from tests import synthetic
from tests.synthetic_studies import GRID, planned, trained


def rows(directory: StudyDirectory, name: str) -> list[dict[str, str]]:
    with (directory.comparison / name).open(newline="") as file:
        return list(csv.DictReader(file))


def tree(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_a_study_is_compared_by_its_file(tmp_path: Path) -> None:
    directory = planned(tmp_path, GRID)
    trained(directory, 8, ("complete", "failed"))
    assert compare.main([f"--outdir={tmp_path}"]) == 0
    found = read_comparison(tmp_path)
    assert found.labels == (
        "ppo, learning_rate=0.0003",
        "ppo, learning_rate=0.001",
        "PPO, λ = 1, learning_rate=0.0003",
        "PPO, λ = 1, learning_rate=0.001",
    )
    assert found.games == ("cartpole", "acrobot") and found.baseline == "ppo"
    assert found.ranges == {"cartpole": (0, 500), "acrobot": (-500, 0)}
    assert {one.label: one.baseline for one in found.tests} == {
        "PPO, λ = 1, learning_rate=0.0003": "ppo, learning_rate=0.0003",
        "PPO, λ = 1, learning_rate=0.001": "ppo, learning_rate=0.001",
    }
    assert [one.n for one in found.standings.values()] == [1] * 8
    assert found.asked["learning_rate"] == "0.0003, 0.001" and found.asked["experiments"] == "8"
    assert len(rows(directory, "missing.csv")) == 8
    before = tree(tmp_path)
    assert compare.main([f"--outdir={tmp_path}"]) == 0
    assert tree(tmp_path) == before, "the same experiments: nothing is written again"


def test_all_are_compared_with_the_experiment_that_a_study_names(tmp_path: Path) -> None:
    named = "ppo-acrobot-0p0003"
    directory = planned(tmp_path, GRID.replace("baseline: ppo,", f"baseline: {named},"))
    trained(directory, 8, ("complete", "failed"))
    assert compare.main([f"--outdir={tmp_path}"]) == 0
    found = read_comparison(tmp_path)
    assert found.baseline == "ppo, learning_rate=0.0003"
    assert found.asked["baseline"] == named
    others = [label for label in found.labels if label != found.baseline]
    assert len(others) == 3
    assert {(one.label, one.game) for one in found.tests} == {
        (label, game) for label in others for game in found.games
    }
    assert {one.baseline for one in found.tests} == {found.baseline}
    shutil.rmtree(directory.experiment("ppo-acrobot-0p001").root)
    shutil.rmtree(directory.experiment("ppo-cartpole-0p001").root)
    assert compare.main([f"--outdir={tmp_path}"]) == 0
    found = read_comparison(tmp_path)
    assert found.baseline == "ppo", "no other setting of it is there"
    assert len(found.tests) == 4
    for game in ("cartpole", "acrobot"):
        shutil.rmtree(directory.experiment(f"ppo-{game}-0p0003").root)
    assert compare.main([f"--outdir={tmp_path}"]) == 0
    found = read_comparison(tmp_path)
    assert found.baseline is None and found.tests == ()
    assert f"the baseline, {named}, has no experiment yet, so nothing is tested" in found.missing


def test_a_study_that_has_just_begun(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = planned(tmp_path, GRID)
    assert compare.main([f"--outdir={tmp_path}"]) == 0
    found = read_comparison(tmp_path)
    assert (found.labels, found.baseline) == ((), None)
    assert found.missing[0] == "no run has a score yet, so there is nothing to compare"
    assert found.missing[1] == "ppo on cartpole (experiment ppo-cartpole-0p0003): not begun"
    assert found.missing[-1] == "the baseline, ppo, has no experiment yet, so nothing is tested"
    assert len(found.missing) == 10 and len(rows(directory, "missing.csv")) == 10
    assert "not begun" in capsys.readouterr().out
    trained(directory, 3, ("absent", "unfinished"))
    assert compare.main([f"--outdir={tmp_path}"]) == 0
    found = read_comparison(tmp_path)
    assert found.baseline == "ppo" and len(found.standings) == 3
    assert sum("left out" in sentence for sentence in found.missing) == 6
    assert sum("not begun" in sentence for sentence in found.missing) == 5


def test_labels_with_few_cells_are_not_mixed_up(tmp_path: Path) -> None:
    """One value on one game, the other value on the other: these are two settings."""
    directory = planned(tmp_path, GRID)
    trained(directory, 8, ("complete", "complete"))
    for name in ("ppo-cartpole-0p0003", "ppo-acrobot-0p001"):
        shutil.rmtree(directory.experiment(name).root)
    assert compare.main([f"--outdir={tmp_path}"]) == 0
    found = read_comparison(tmp_path)
    assert {place for place in found.standings if place[0].startswith("ppo")} == {
        ("ppo, learning_rate=0.001", "cartpole"),
        ("ppo, learning_rate=0.0003", "acrobot"),
    }
    assert len(found.tests) == 2


def test_a_damaged_experiment_is_missing(tmp_path: Path) -> None:
    directory = planned(tmp_path, GRID)
    trained(directory, 8, ("complete", "complete"))
    broken = directory.experiment("ppo-cartpole-0p001").experiment_yaml
    broken.write_text("runs: [")
    assert compare.main([f"--outdir={tmp_path}"]) == 0
    found = read_comparison(tmp_path)
    assert len(found.standings) == 7
    assert any(str(broken) in sentence for sentence in found.missing)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no file {root}/study.yaml: plan makes it"),
        (["--baseline=ppo"], "option --baseline needs directories or files to compare"),
        (["--score=cartpole=0,1"], "option --score needs directories or files to compare"),
        (["{root}/nowhere"], "no file or directory '"),
        (["{root}/a", "--baseline=dqn"], "unknown label of a baseline 'dqn'"),
        (["{root}/a", "{root}/b"], "are both 'ppo' on cartpole; allowed: a label of its own"),
        (["{root}/a", "--score=cartpole"], "option --score cannot be 'cartpole'; allowed: GAME="),
        (["{root}/a", "--score=acrobot=0,1"], "unknown game in --score 'acrobot'; known: cartpole"),
        (["{root}/a", "--score=cartpole=0"], "option --score cannot be 'cartpole=0'; allowed:"),
        (["{root}/a", "--score=cartpole=1,1"], "option --score cannot be 'cartpole=1,1'"),
        (["{root}/a", "--score=cartpole=nan,1"], "option --score cannot be 'cartpole=nan,1'"),
        (
            ["{root}/a", "--score=cartpole=0,1", "--score=CartPole-v1=0,2"],
            "option --score is given twice for 'cartpole'",
        ),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        synthetic.experiment(tmp_path / name, ("complete",), epochs=5)
    before = tree(tmp_path)
    given = [text.format(root=tmp_path) for text in arguments]
    outdir = tmp_path if not arguments or given[0].startswith("--") else tmp_path / "new"
    assert compare.main([*given, f"--outdir={outdir}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("compare: ") and message.format(root=tmp_path) in line
    assert tree(tmp_path) == before and not (tmp_path / "new").exists()


def test_the_outdir_is_of_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    synthetic.experiment(tmp_path / "a", ("complete",), epochs=5)
    planned(tmp_path / "study", GRID)
    for other in ("a", "study"):
        assert compare.main([str(tmp_path / "a"), f"--outdir={tmp_path / other}"]) == 2
        assert "allowed: a directory for this comparison alone" in capsys.readouterr().err


def test_directories_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        made = synthetic.experiment(tmp_path / name, ("complete",) * 3, epochs=20)
        made.report_html.write_text("<title>ppo</title>")
    table = tmp_path / "c.csv"
    table.write_text("step,value\n0,10\n100,20\n")
    sources = [
        "a",
        "b:label=other",
        "c.csv:label=C:game=cartpole:value=value:step=step:kind=evaluation",
    ]
    options = ["--baseline=other", "--score=CartPole-v1=0,400", "--title=Is it?"]
    assert compare.main([*sources, "--outdir=out/one", *options]) == 0
    found = read_comparison(tmp_path / "out" / "one")
    assert (found.title, found.labels) == ("Is it?", ("ppo", "other", "C"))
    assert found.ranges == {"cartpole": (0, 400)} and len(found.tests) == 2
    assert found.asked == {"sources": ", ".join(sources)}
    assert len(found.unequal) >= 2, "neither the evaluations nor the steps are the same"
    links = compare.links_from(tmp_path / "out" / "one", found)
    assert links == {
        ("ppo", "cartpole"): "../../a/report.html",
        ("other", "cartpole"): "../../b/report.html",
    }
    page = (tmp_path / "out" / "one" / "report.html").read_text()
    assert 'href="../../a/report.html"' in page
    assert (tmp_path / "out" / "one" / "comparison" / "plots" / "standings.png").is_file()


LARGE = """\
outdir: ROOT
runs: 10
algorithms: [LABELS]
games: [GAMES]
parameters: {epochs: 1000, evaluation_episodes: 20}
compare: {baseline: A}
"""


def large(root: Path) -> StudyDirectory:
    """26 games, 5 algorithms, 10 runs, 1000 rows."""
    labels = [f"{{ppo: {{gae_lambda: 0.9{at}}}, label: {one}}}" for at, one in enumerate("ABCDE")]
    atari = [name for name, game in games().items() if game.is_atari and name in known_ranges()]
    text = LARGE.replace("LABELS", ", ".join(labels)).replace("GAMES", ", ".join(atari[:26]))
    directory = planned(root, text)
    states = ("complete",) * 10
    template = synthetic.experiment(root / "template", states, game=atari[0], epochs=1000)
    trained(directory, 130, ("absent",) * 10)
    for experiment in directory.experiments.iterdir():
        shutil.copytree(template.root / "runs", experiment / "runs", copy_function=os.link)
    return directory


@pytest.mark.slow
def test_a_large_study_takes_half_a_minute_and_half_a_gigabyte(tmp_path: Path) -> None:
    directory = large(tmp_path / "study")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    script = (
        "import re, sys; from pathlib import Path; from steps import compare; "
        "code = compare.main(sys.argv[1:]); status = Path('/proc/self/status').read_text(); "
        # Not ru_maxrss, in which a new process begins with the memory of the one that started it.
        r"print(int(re.search(r'VmHWM:\s+(\d+) kB', status)[1]) // 1024); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, f"--outdir={directory.root}"],
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    used_mb = int(done.stdout.splitlines()[-1])
    # Of its processor, so that other processes of the machine do not count.
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{seconds:.1f} s, {used_mb} MB")
    found = read_comparison(directory.root)
    assert (len(found.standings), len(found.shared), len(found.tests)) == (130, 26, 104)
    assert {one.n for one in found.standings.values()} == {10}
    assert seconds <= 30 and used_mb <= 500
