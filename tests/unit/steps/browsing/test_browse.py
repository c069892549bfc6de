"""The overview: what it finds, what it says of it, and what it leaves alone."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from steps import browse, report
from steps.browsing import rows as rows_module
from steps.browsing.overview import Overview
from steps.browsing.places import DEEPEST, find_places
from steps.browsing.rows import Row
from steps.directory import owner, processes
from steps.directory.owner import Owner
from tests import synthetic, synthetic_studies

HOSTILE = "x\"><script>alert('taken')<"


def found(root: Path) -> dict[str, Row]:
    return {row.place.path.relative_to(root).as_posix(): row for row in Overview(root).rows()}


def owned(root: Path, **fields: object) -> Path:
    path = root / "owner.json"
    owner.claim(path, Owner(uid="one", workflow="wf", **fields))  # type: ignore[arg-type]
    return path


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root: Path = tmp_path_factory.mktemp("lab")
    whole = synthetic.experiment(root / "whole", ("complete",) * 3)
    synthetic.finish(whole, draw=False)
    assert report.main([f"--outdir={whole.root}"]) == 0
    synthetic.experiment(root / "deep/er/failed", ("failed",), learning_rate=0.01)
    synthetic.experiment(root / "deep/stopped", ("unfinished", "absent"))
    synthetic.experiment(root / "deep/paused", ("paused",) * 2)
    study = synthetic_studies.planned(root / "study", synthetic_studies.GRID)
    synthetic_studies.trained(study, 2, ("failed",))
    (root / "broken").mkdir()
    (root / "broken/experiment.yaml").write_text("format: [1\n")
    return root


def test_everything_below_is_found_and_what_lies_in_an_experiment_is_not(lab: Path) -> None:
    kinds = {one.path.relative_to(lab).as_posix(): one.kind for one in find_places(lab)}
    cells = {name for name in kinds if name.startswith("study/experiments/")}
    assert len(cells) == 2
    assert kinds == {
        "whole": "experiment", "deep/er/failed": "experiment", "deep/stopped": "experiment",
        "deep/paused": "experiment", "broken": "experiment", "study": "study",
        **dict.fromkeys(cells, "experiment"),
    }  # fmt: skip


def test_states_and_reasons(lab: Path) -> None:
    rows = found(lab)
    states = {name: row.state for name, row in rows.items() if "/experiments/" not in name}
    assert states == {
        "whole": "succeeded", "deep/er/failed": "failed", "deep/stopped": "stopped",
        "deep/paused": "paused", "broken": "damaged", "study": "failed",
    }  # fmt: skip
    assert "run 0: train: non-finite loss at epoch 58" in rows["deep/er/failed"].note
    assert "experiment.yaml cannot be read" in rows["broken"].note
    assert "\n" not in rows["broken"].note
    assert rows["study"].note == "2 of 8 experiments begun: 2 failed"


def test_the_headline_is_the_reports(lab: Path) -> None:
    row = found(lab)["whole"]
    page = (lab / "whole/report.html").read_text()
    assert f'<p class="value">{row.shown}</p>' in page
    assert row.interval in page and row.n == 3 and row.measure == "mean return"
    assert (row.epochs, row.runs, row.fraction) == ((588, 588), (3, 3), 1.0)
    assert row.report and row.cost.processor_h is not None


def test_a_study_is_the_sum_of_its_experiments(lab: Path) -> None:
    rows = found(lab)
    parts = [row for name, row in rows.items() if name.startswith("study/experiments/")]
    whole = rows["study"]
    assert whole.epochs == tuple(map(sum, zip(*(part.epochs for part in parts), strict=True)))
    assert whole.cost.processor_h == pytest.approx(sum(one.cost.processor_h for one in parts))
    assert (whole.algorithm, whole.game) == ("ppo", "cartpole")
    assert whole.fraction == pytest.approx(sum(one.fraction for one in parts) / 8)


def test_a_living_workflow_runs_and_a_silent_one_is_called_so(tmp_path: Path) -> None:
    made = synthetic.experiment(tmp_path / "a", ("unfinished",))
    path = owned(made.root)
    assert found(tmp_path)["a"].state == "running"
    long_ago = time.time() - 7200
    os.utime(path, (long_ago, long_ago))
    row = found(tmp_path)["a"]
    assert (row.state, row.note) == ("silent", "no sign of life for 2 h 0 min")
    owner.release(path, "one")
    assert found(tmp_path)["a"].state == "stopped"


def test_the_process_of_this_machine_decides_whatever_the_clock_says(tmp_path: Path) -> None:
    made = synthetic.experiment(tmp_path / "a", ("unfinished",))
    path = owned(made.root, process=processes.identity())
    os.utime(path, (0, 0))
    assert found(tmp_path)["a"].state == "running"


def test_only_what_has_changed_is_read_again(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overview = Overview(lab)
    before = overview.rows()
    read: list[Path] = []
    real = rows_module.read_facts
    monkeypatch.setattr(
        rows_module, "read_facts", lambda *given: (read.append(given[0].root), real(*given))[1]
    )
    assert overview.rows() == before and read == []
    synthetic.status(lab / "deep/stopped/status/prepare.json", state="succeeded")
    overview.rows()
    assert read == [lab / "deep/stopped"]


def test_links_are_not_followed_and_an_unreadable_folder_is_one_line(tmp_path: Path) -> None:
    outside = synthetic.experiment(tmp_path / "outside", ("failed",)).root
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(outside)
    (root / "loop").symlink_to(root)
    deep = root.joinpath(*["d"] * (DEEPEST + 3))
    deep.mkdir(parents=True)
    (row,) = found(root).values()
    assert row.state == "damaged" and "folders deep" in row.note
    if os.geteuid():
        (root / "closed").mkdir(mode=0)
        assert "Permission denied" in found(root)["closed"].note


@pytest.mark.parametrize("damage", ["folder", "fifo", "binary", "list", "algorithm", "huge"])
def test_no_damage_breaks_the_page(damage: str, tmp_path: Path) -> None:
    synthetic.experiment(tmp_path / "good", ("failed",))
    record = synthetic.experiment(tmp_path / "bad", ("complete",)).experiment_yaml
    text = record.read_text()
    record.unlink()
    if damage == "folder":
        record.mkdir()
    elif damage == "fifo":
        os.mkfifo(record)
    else:
        record.write_bytes(
            {
                "binary": b"\xff\x00" * 100,
                "list": b"- 1\n",
                "algorithm": text.replace("algorithm: ppo", "algorithm: no.such:THING").encode(),
                "huge": b"a: " + b"b" * 2**20,
            }[damage]
        )
    rows = found(tmp_path)
    assert (rows["good"].state, rows["bad"].state) == ("failed", "damaged")
    assert rows["bad"].note and "\n" not in rows["bad"].note
    assert str(tmp_path) not in rows["bad"].note
    assert browse.main([str(tmp_path)]) == 0


def test_hostile_names_and_values_stay_words(tmp_path: Path) -> None:
    root = tmp_path / "lab"
    synthetic.experiment(root / f"a:{HOSTILE}", ("failed",))
    (root / os.fsdecode(b"n\xff\n\xe2\x80\xae")).mkdir()
    (root / os.fsdecode(b"n\xff\n\xe2\x80\xae") / "experiment.yaml").write_text(f"{HOSTILE}: [")
    assert browse.main([str(root)]) == 0
    page = (root / "index.html").read_text()
    assert page.count("<script>") == 1 and "alert(" in page
    assert 'href="./a%3Ax%22' in page and "\\udcff" in page and "\u202e" not in page


def test_the_page_is_written_once_and_again(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert browse.main([str(lab)]) == 0
    assert f"7 experiments: {lab / 'index.html'}" in capsys.readouterr().out
    page = (lab / "index.html").read_text()
    for link in re.findall(r'href="(\./[^"]*)"', page):
        assert (lab / link).exists(), link
    assert browse.main([str(lab)]) == 0, "its own page is replaced"
    (lab / "index.html").unlink()


def test_refusals_are_one_line_and_write_nothing(
    lab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = tmp_path / "site"
    foreign.mkdir()
    (foreign / "index.html").write_text("mine")
    for given, words in (
        ([str(tmp_path / "none")], "allowed: a folder that exists"),
        ([str(foreign)], "was not written by this command"),
        ([str(lab / "whole")], "is the directory of one experiment"),
        ([str(lab / "study")], "is the directory of one study"),
        ([str(lab), "--port", "1"], "option --port needs --serve"),
        ([str(lab), "--serve", "--port", "99999"], "cannot listen on 127.0.0.1, port 99999"),
    ):
        assert browse.main(given) == 2
        said = capsys.readouterr().err
        assert words in said and said.count("\n") == 1
    assert (foreign / "index.html").read_text() == "mine"
    assert not (lab / "whole/index.html").exists()
