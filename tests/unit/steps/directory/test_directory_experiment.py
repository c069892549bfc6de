"""`experiment.yaml`: read back exactly, continued by the same identity, refused for another one,
and not believed when forged."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from pathlib import Path

import pytest

from config.errors import BadInput, WrongDirectory
from config.resolve import resolve
from steps.directory.experiment import (
    ADDED_LATER,
    RECORD_LIMIT_BYTES,
    ExperimentRecord,
    continued,
    difference,
    read_experiment,
    refuse_code_inside,
    write_experiment,
)
from steps.directory.layout import ExperimentDirectory
from steps.directory.status import Score, read_progress
from steps.directory.tables import Table


def record(
    started: str = "2026-01-01T00:00:00+00:00", image: str | None = None, **parameters: str
) -> ExperimentRecord:
    resolved = resolve(
        "ppo", {"outdir": "/storage/x", "epochs": "10", "hidden_sizes": "32,32", **parameters}
    )
    return ExperimentRecord(
        resolved=resolved,
        identity=resolved.identity(),
        identity_hash=resolved.identity_hash,
        versions={"python": "3.11.1"},
        source={"commit": "0123", "changed": False},
        image=image,
        started=started,
        workflow="ppo-1",
    )


@pytest.fixture
def directory(tmp_path: Path) -> ExperimentDirectory:
    return ExperimentDirectory(tmp_path)


def test_round_trip(directory: ExperimentDirectory) -> None:
    assert write_experiment(directory, record())
    assert read_experiment(directory) == record()
    assert not write_experiment(directory, record())


def test_a_directory_of_an_older_version_with_several_gpus_goes_on(
    directory: ExperimentDirectory,
) -> None:
    """They were accepted, and one of them was used."""
    write_experiment(directory, record(gpus="1"))
    path = directory.experiment_yaml
    assert "gpus: 1\n" in path.read_text()
    path.write_text(path.read_text().replace("gpus: 1\n", "gpus: 4\n"))
    assert read_experiment(directory) == record(gpus="1")


@pytest.mark.parametrize("line", [f"{name}: " for name in ADDED_LATER])
def test_a_directory_of_a_version_without_a_parameter_goes_on(
    directory: ExperimentDirectory, line: str
) -> None:
    write_experiment(directory, record())
    path = directory.experiment_yaml
    lines = path.read_text().splitlines(keepends=True)
    kept = [one for one in lines if not one.strip().startswith(line)]
    assert len(kept) < len(lines)
    path.write_text("".join(kept))
    assert read_experiment(directory) == record()


def test_the_same_again_changes_nothing() -> None:
    assert (
        continued(
            record(),
            record(
                started="2026-02-02T00:00:00+00:00",
                outdir="/storage/../storage/x".replace("/..", ""),
            ),
        )
        == record()
    )


def test_what_may_change_is_recorded(directory: ExperimentDirectory) -> None:
    later = continued(record(), record(started="later", runs="5", image="rl:2"))
    assert (later.started, later.resolved.experiment.runs, later.image) == (
        record().started,
        5,
        "rl:2",
    )
    assert later.history == (
        {
            "time": "later",
            "workflow": "ppo-1",
            "changed": {"parameters.experiment.runs": [1, 5], "image": [None, "rl:2"]},
        },
    )
    write_experiment(directory, later)
    assert read_experiment(directory) == later
    assert continued(later, record(started="last", runs="5", image="rl:2")) == later


def test_c19_any_number_of_changed_submissions_leaves_a_readable_file(
    directory: ExperimentDirectory,
) -> None:
    """Seen: after about 1100 the file was larger than what is read, and the directory of no use any
    more."""
    entry = {
        "time": record().started,
        "workflow": "ppo-1",
        "changed": {"image": ["registry.example/rl:1", "registry.example/rl:2"]},
    }
    now = dataclasses.replace(record(), history=(entry,) * 5000)
    for image in ("rl:3", "rl:4"):
        now = continued(now, record(image=image))
        write_experiment(directory, now)
        assert read_experiment(directory) == now
        assert directory.experiment_yaml.stat().st_size < RECORD_LIMIT_BYTES
        assert now.history[-1]["changed"]["image"][1] == image
    assert now.history[0]["left_out"] + len(now.history) == 5002
    assert len(now.history) > 100
    assert not any("left_out" in entry for entry in now.history[1:])


def test_an_entry_that_is_larger_than_the_history_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steps.directory.experiment.HISTORY_LIMIT_BYTES", 10)
    once = continued(record(), record(image="rl:2"))
    assert [entry.get("left_out") for entry in once.history] == [None]
    twice = continued(once, record(image="rl:3"))
    assert [entry["left_out"] for entry in twice.history] == [1]


def test_another_identity_is_refused_with_every_difference() -> None:
    with pytest.raises(WrongDirectory) as caught:
        continued(record(), record(seed="7", game="acrobot"))
    for words in (
        "game.id: 'CartPole-v1' in the directory, 'Acrobot-v1' now",
        "experiment.seed: 0 in the directory, 7 now",
    ):
        assert words in str(caught.value)


def test_a_missing_file_names_the_step_that_makes_it(directory: ExperimentDirectory) -> None:
    with pytest.raises(BadInput, match=r"no file .*experiment.yaml: prepare makes it"):
        read_experiment(directory)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "",
        lambda text: "[1]",
        lambda text: text.replace("format: 1", "format: 2"),
        lambda text: text.replace("clip: 0.2", "clip: 0.3"),
        lambda text: text.replace("started:", "begun:"),
        lambda text: text.replace("identity_hash: ", "identity_hash: 0"),
        lambda text: text + "started: again\n",
        lambda text: "a: &a [1]\nb: *a\n",
        lambda text: "!!python/object/apply:os.system [id]",
        lambda text: "[" * 100_000,
        lambda text: text + "#" * 10**6,
    ],
)
def test_a_file_that_prepare_did_not_write(directory: ExperimentDirectory, change) -> None:  # type: ignore[no-untyped-def]
    write_experiment(directory, record())
    text = directory.experiment_yaml.read_text()
    directory.experiment_yaml.write_text(change(text))
    with pytest.raises(WrongDirectory, match=r"experiment\.yaml"):
        read_experiment(directory)


def test_differences_are_named_by_their_path() -> None:
    assert (
        difference({"a": {"b": 1, "c": [1]}}, {"a": {"b": 2, "c": [1]}, "d": None})
        == "a.b: 1 there, 2 here; d: absent there, None here"
    )
    assert difference({"a": True}, {"a": 1}) == "a: True there, 1 here"
    assert difference({"a": {"b": 1}}, {"a": {"b": 1}}) == ""


def test_progress_is_read_from_the_ends_of_the_files(directory: ExperimentDirectory) -> None:
    resolved = dataclasses.replace(record()).resolved
    run = directory.run(0)
    nothing = read_progress(run, resolved)
    assert (
        nothing.step,
        nothing.epoch,
        nothing.score,
        nothing.steps_per_second,
        nothing.fraction,
    ) == (0, 0, None, None, 0.0)
    train, resources = Table(run.train_csv), Table(run.resources_csv)
    train.append({"epoch": 4, "step": 1000, "return_mean": 20.0})
    train.append({"epoch": 5, "step": 1250, "return_mean": None})
    resources.append({"step": 1000, "steps_per_second": 321.5})
    resources.append({"step": 1000, "steps_per_second": None})
    found = read_progress(run, resolved)
    assert (found.step, found.epoch, found.epochs, found.fraction) == (1250, 5, 10, 0.5)
    assert (found.score, found.steps_per_second, found.total_steps) == (
        Score("return", 20.0, ""),
        321.5,
        resolved.total_steps,
    )


@pytest.mark.parametrize("place", ["evil.py", "evil/__init__.py"])
@pytest.mark.parametrize("where", ["experiment", "runs", "elsewhere"])
def test_reading_runs_no_code_that_lies_among_the_results(
    directory: ExperimentDirectory, monkeypatch: pytest.MonkeyPatch, place: str, where: str
) -> None:
    """As `Results(".")` would in a directory that was downloaded."""
    write_experiment(directory, record())
    path = directory.experiment_yaml
    path.write_text(path.read_text().replace("algorithm: ppo", "algorithm: evil:ALGORITHM"))
    assert "evil:ALGORITHM" in path.read_text()
    folder = {"experiment": directory.root, "runs": directory.root / "runs"}.get(
        where, directory.root.parent / "own"
    )
    module = folder / place
    module.parent.mkdir(parents=True, exist_ok=True)
    module.write_text("import pathlib\npathlib.Path('ran').touch()\n")
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    monkeypatch.chdir(directory.root)
    monkeypatch.delitem(sys.modules, "evil", raising=False)
    importlib.invalidate_caches()
    with pytest.raises(WrongDirectory) as caught:
        read_experiment(directory)
    sys.modules.pop("evil", None)
    assert ("among the results" in str(caught.value)) == (where != "elsewhere")
    assert Path("ran").exists() == (where == "elsewhere")


def test_code_among_the_results_is_refused_also_in_a_package_without_a_file(
    directory: ExperimentDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A namespace package that something else has imported already."""
    folder = directory.root / "space_within"
    folder.mkdir(parents=True)
    (folder / "evil.py").touch()
    monkeypatch.setattr(sys, "path", [str(directory.root), *sys.path])
    importlib.invalidate_caches()
    monkeypatch.setitem(sys.modules, "space_within", importlib.import_module("space_within"))
    with pytest.raises(WrongDirectory, match="among the results"):
        refuse_code_inside("space_within.evil:ALGORITHM", directory.root)
