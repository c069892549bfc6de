"""What is made of an experiment whose files hold what they should not: the report always, the
averages without the run (A5, C17, C18)."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from config import pipeline
from config.errors import Diverged, WrongDirectory
from config.measures import RETURN
from steps import average, evaluate, plot_average, plot_evaluation, plot_training, report
from steps.directory import owner
from steps.directory.layout import ExperimentDirectory
from steps.directory.status import read_status
from steps.directory.usable import usability
from steps.page.verdict import spoken
from tests import synthetic

VALUES: tuple[Any, ...] = (
    None, [], {}, "text", "\x1b[2J", True, -1, 0, 1e308, math.nan, math.inf, 10**400, [None], {"a": {}}, "x" * 3000, [1, 2], ["a", "b"],
)  # fmt: skip
CONTENTS = (
    b"", b"\n", b"[]", b"null", b"17", b'"text"', b"{", b"\xff\xfe\n", b"\0\0\0\n", b"[" * 100_000, b"a,b\n1\n1,2,3\nx,y\n",
    b'"' + b"x" * 200_000 + b"\n", b"epoch,step,return_mean\nx,y,z\n", b"epoch,step,return_mean\n1,nan,inf\n2,inf,nan\n", b"\r\r\n,,,\n",
)  # fmt: skip
JSON_FILES = (
    *(f"runs/0/status/{task}.json" for task in pipeline.names("run")),
    *(f"status/{task}.json" for task in pipeline.names("experiment")),
    "average/summary.json",
)
CSV_FILES = tuple(
    f"runs/0/{name}.csv"
    for name in ("train", "evaluation", "resources", "evaluation-curve", "best-snapshot")
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> ExperimentDirectory:
    directory = synthetic.experiment(tmp_path_factory.mktemp("finished"), ("complete",) * 2)
    synthetic.finish(directory, draw=False)
    return directory


@pytest.fixture
def damaged(finished: ExperimentDirectory, tmp_path: Path) -> Iterator[ExperimentDirectory]:
    """A copy; `outdir` is no part of what a directory belongs to."""
    shutil.copytree(finished.root, tmp_path / "experiment")
    yield ExperimentDirectory(tmp_path / "experiment")


def page_of(directory: ExperimentDirectory) -> str:
    """The page after a report that ended as it may."""
    directory.report_html.unlink(missing_ok=True)
    assert report.main([f"--outdir={directory.root}", "--workflow-status=Succeeded"]) in (0, 5)
    return directory.report_html.read_text()


@pytest.mark.parametrize("name", [*JSON_FILES, *CSV_FILES])
def test_c17_the_report_is_made_whatever_a_file_holds(
    name: str, damaged: ExperimentDirectory
) -> None:
    for content in CONTENTS:
        (damaged.root / name).write_bytes(content)
        page = page_of(damaged)
        if name.endswith(".json") or content.startswith(
            (b"\xff", b'"xxx', b"epoch,step,return_mean\nx")
        ):
            assert f"<li>{name}: " in page, content[:40]


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    name=st.sampled_from(JSON_FILES),
    value=st.sampled_from(VALUES),
    choice=st.randoms(use_true_random=False),
)
def test_c17_the_report_is_made_whatever_a_field_holds(
    finished: ExperimentDirectory, name: str, value: Any, choice: Any
) -> None:
    path = finished.root / name
    before = path.read_bytes()
    document = json.loads(before)
    inner = [part for part in document.values() if isinstance(part, dict) and part]
    part = choice.choice([document, document, *inner])
    part[choice.choice(sorted(part))] = value
    try:
        path.write_text(json.dumps(document))
        page_of(finished)
    finally:
        path.write_bytes(before)


@pytest.mark.parametrize("field", ["n", "mean", "t_interval"])
def test_c17_a_summary_with_a_number_of_the_wrong_kind_is_named(
    field: str, damaged: ExperimentDirectory
) -> None:
    path = damaged.average / "summary.json"
    document = json.loads(path.read_text())
    for value in (None, "text", [], [1], ["a", "b"], {}, math.nan, True):
        path.write_text(
            json.dumps(document | {"evaluation": document["evaluation"] | {field: value}})
        )
        assert f"<li>average/summary.json: evaluation.{field} cannot be " in page_of(damaged), value


@pytest.mark.parametrize(
    "field",
    [
        {"details": []},
        {"duration_s": "text"},
        {"process": None},
        {"exit_code": []},
        {"attempt": None},
        {"state": "odd"},
        {"reason": 5},
    ],
)
def test_c17_a_field_of_the_wrong_kind_is_named(
    field: dict[str, Any], damaged: ExperimentDirectory
) -> None:
    path = damaged.run(0).status / "train.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | field))
    (name,) = field
    assert f"<li>runs/0/status/train.json: {name} cannot be" in page_of(damaged)
    assert "status/train.json cannot be read: " in (
        usability(damaged.run(0), synthetic.resolved_of(damaged)).reason or ""
    )


def test_c17_the_steps_after_training_go_on_over_a_damaged_run(
    damaged: ExperimentDirectory,
) -> None:
    for name in CSV_FILES:
        for content in CONTENTS:
            for one in CSV_FILES:
                intact = damaged.run(1).root / Path(one).name
                (damaged.root / one).unlink(missing_ok=True)
                if intact.exists():  # without `evaluations` there is no curve
                    shutil.copy(intact, damaged.root / one)
            (damaged.root / name).write_bytes(content)
            assert average.main([f"--outdir={damaged.root}"]) == 0, (name, content[:40])
    assert plot_average.main([f"--outdir={damaged.root}"]) == 0
    assert plot_training.main([f"--outdir={damaged.root}", "--run=0"]) == 0


@pytest.mark.parametrize(
    "field", [{"lease_s": 1e308}, {"lease_s": math.inf}, {"lease_s": math.nan}, {"lease_s": 0}, {"lease_s": "60"}, {"process": 5},
              {"uid": None}, {"released": "no"}, {"host": []}],
)  # fmt: skip
def test_c17_an_owner_that_is_none_is_refused_at_once(
    field: dict[str, Any], damaged: ExperimentDirectory
) -> None:
    present = {
        "uid": "u-1",
        "workflow": "w",
        "host": "elsewhere",
        "process": None,
        "lease_s": 60.0,
        "released": False,
    } | field
    damaged.owner_json.write_text(json.dumps(present))
    (name,) = field
    with pytest.raises(WrongDirectory, match=f"{name} cannot be"):
        owner.read_owner(damaged.owner_json)
    assert report.main([f"--outdir={damaged.root}"]) == 4


def test_c17_an_owner_that_breaks_under_the_report_leaves_its_exit_code(
    damaged: ExperimentDirectory, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    damaged.owner_json.write_text(json.dumps({"uid": "u-1"}))
    monkeypatch.setenv("EXPERIMENT_OWNER", "u-1")
    monkeypatch.setattr(
        report, "write_if_changed", lambda path, content: damaged.owner_json.write_text("[]")
    )
    assert report.main([f"--outdir={damaged.root}", "--workflow-status=Succeeded"]) in (0, 4)
    assert "not released" in capfd.readouterr().err


@pytest.mark.parametrize(
    "value",
    [
        *(pytest.param(one, marks=pytest.mark.slow) for one in (math.inf, -math.inf)),
        math.nan,
        1e200,
    ],
)
def test_a5_a_return_that_no_statistics_can_use_costs_one_run(
    value: float, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    directory = synthetic.experiment(tmp_path, ("complete",) * 6, min_runs=5)
    returns = [1.0] * 19 + [value]
    synthetic.evaluated(directory.run(2), returns)
    assert average.main([f"--outdir={tmp_path}"]) == 0
    summary = json.loads((directory.average / "summary.json").read_text())
    assert summary["used"] == [0, 1, 3, 4, 5]
    (excluded,) = summary["excluded"]
    assert (excluded["run"], excluded["state"]) == (
        2,
        "failed",
    ) and "the return of episode 19 is " in excluded["reason"]
    assert plot_average.main([f"--outdir={tmp_path}"]) == 0
    assert plot_evaluation.main([f"--outdir={tmp_path}", "--run=2"]) == 2
    assert "the return of episode 19 is" in capfd.readouterr().err
    page = page_of(directory)
    assert "the return of episode 19 is " in page


@pytest.mark.parametrize(
    "value",
    [*(pytest.param(one, marks=pytest.mark.slow) for one in ("inf", "-inf")), "nan", "1e300"],
)
def test_a5_a_training_return_that_no_statistics_can_use_is_left_out(
    value: str, tmp_path: Path
) -> None:
    directory = synthetic.experiment(tmp_path, ("complete",) * 2)
    path = directory.run(0).train_csv
    lines = path.read_text().splitlines()
    cells = lines[100].split(",")
    lines[100] = ",".join([*cells[:4], value, *cells[5:]])
    path.write_text("\n".join(lines) + "\n")
    assert average.main([f"--outdir={tmp_path}"]) == 0
    assert plot_average.main([f"--outdir={tmp_path}"]) == 0
    assert plot_training.main([f"--outdir={tmp_path}", "--run=0"]) == 0


class Alternating:
    """A policy that knows no observation."""

    def seed(self, seeds: Any) -> None:
        pass

    def act(self, observations: Any, *, sample: bool) -> list[int]:
        return [0] * len(observations)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"field": "reward"}, "gave the reward nan, which is not finite, at step 7"),
        ({"field": "observation"}, "gave the observation nan, which is not finite, at step 7"),
        ({"field": "sum"}, "has the return inf, beyond 1e+100"),
    ],
)
def test_a5_a_non_finite_number_ends_an_evaluation_with_its_name(
    options: dict[str, str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    from agents.evaluation import episodes as evaluation
    from tests import own_games

    directory = synthetic.experiment(tmp_path, ("complete",))
    directory.run(0).evaluated(RETURN).unlink()
    (directory.run(0).status / "evaluate.json").unlink()
    monkeypatch.setattr(evaluation, "make_environment", lambda *_: own_games.Broken(**options))
    monkeypatch.setattr(evaluate, "final_policy", lambda context: (Alternating(), 50176))
    assert evaluate.main([f"--outdir={tmp_path}", "--run=0"]) == 3
    assert (
        f"episode 0 (seed {evaluation.episode_seed(synthetic.resolved_of(directory), 0, 0)}) {said}"
        in capfd.readouterr().err
    )
    status = read_status(directory.run(0).status / "evaluate.json")
    assert status is not None and status.exit_code == Diverged.exit_code
    assert not directory.run(0).evaluated(RETURN).exists()


def test_c18_the_last_line_groups_what_is_missing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    directory = synthetic.experiment(tmp_path, ("complete",) * 100, epochs=2)
    for index in (4, 5, 8):
        synthetic.status(
            directory.run(index).status / "play.json",
            state="failed",
            exit_code=1,
            reason=f"reason {index}",
        )
    assert report.main([f"--outdir={tmp_path}"]) == 5
    last = capfd.readouterr().err.splitlines()[-1]
    assert "play of 97 runs (0-3, 6-7, 9-99): not started" in last
    assert "play of run 4: reason 4" in last
    assert len(last) < 700, last


@pytest.mark.parametrize(
    ("indices", "said"),
    [
        ([3], "run 3"),
        ([0, 1], "2 runs (0-1)"),
        ([0, 2, 3, 9], "4 runs (0, 2-3, 9)"),
        (list(range(0, 60, 2)), "30 runs (0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, …)"),
    ],
)
def test_c18_runs_as_a_person_says_them(indices: list[int], said: str) -> None:
    assert spoken(indices) == said
