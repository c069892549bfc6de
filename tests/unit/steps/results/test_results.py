"""Results from Python: the frames against the files, policies that act, ONNX against torch; and the
line for what is missing."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from agents.interfaces import Policy
from agents.load import load_policy, make_trainer
from config.errors import BadInput, ExperimentError, WrongDirectory
from config.measures import RETURN
from config.resolve import resolve
from steps import export
from steps.directory import checkpoints
from steps.directory.layout import ExperimentDirectory
from steps.results import Results, TrainedAgent
from tests import synthetic

NOTEBOOK = Path(__file__).resolve().parents[4] / "steps" / "results" / "from_python.ipynb"
STATES = ("complete", "paused", "absent", "failed", "skipped")
COUNTED = ["run", "epoch", "step", "frame", "episodes"]
SHORT = {
    "num_envs": "2",
    "rollout_length": "32",
    "update_epochs": "1",
    "minibatches": "2",
    "epochs": "2",
}
CARTPOLE = np.array(
    [[0.0, 0.1, -0.2, 0.3], [1.0, -1.0, 0.1, 0.0], [-0.5, 0.2, 0.0, 2.0]], np.float32
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> ExperimentDirectory:
    """One run in each state; the complete one has a policy."""
    root = tmp_path_factory.mktemp("results") / "cartpole"
    made = synthetic.experiment(root, STATES, epochs=20, evaluate_above=470)
    with_policy(made)
    return made


def with_policy(directory: ExperimentDirectory) -> None:
    """Give run 0 the final checkpoint of a training that learnt nothing."""
    resolved, run = synthetic.resolved_of(directory), directory.run(0)
    trainer = make_trainer(resolved, run=0, device="cpu", precision="fp32")
    record = {"epoch": resolved.epochs}
    checkpoints.save(
        run,
        step=run.checkpoint_steps()[-1],
        state=trainer.state_dict(),
        identity=resolved.identity(),
        record=record,
    )
    trainer.close()


def trained(game: str) -> Policy:
    """After one epoch: its weights and its statistics of observations are no longer those of the
    start."""
    resolved = resolve("ppo", {"game": game, **SHORT})
    trainer = make_trainer(resolved, run=0, device="cpu", precision="fp32")
    next(iter(trainer.train()))
    policy = load_policy(resolved, trainer.state_dict())
    trainer.close()
    return policy


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def tree(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted(root.rglob("*"))
    }


def test_training_is_what_the_files_say(directory: ExperimentDirectory) -> None:
    frame = Results(directory.root).training
    assert list(frame)[:2] == ["run", "usable"]
    assert list(frame)[2:] == list(rows(directory.run(0).train_csv)[0])
    assert [name for name in frame if frame[name].dtype == np.int64] == COUNTED
    assert frame["usable"].dtype == bool and all(
        frame[name].dtype == np.float64 for name in frame if name not in [*COUNTED, "usable"]
    )
    assert dict(frame.groupby("run")["usable"].all()) == {0: True, 1: False, 3: False, 4: True}, (
        "a run that never started has no row"
    )
    for index in (0, 1, 3, 4):
        written = rows(directory.run(index).train_csv)
        read = frame[frame["run"] == index].reset_index(drop=True)
        for name in read.columns[2:]:
            expected = [float(row[name]) if row[name] else math.nan for row in written]
            np.testing.assert_array_equal(read[name], expected, err_msg=name)
        pd.testing.assert_frame_equal(read, Results(directory.root).runs[index].training)


def test_evaluation_is_what_the_files_say(directory: ExperimentDirectory) -> None:
    frame = Results(directory.root).evaluation
    assert list(frame) == ["run", "usable", "episode", "seed", "return", "length"]
    assert [str(kind) for kind in frame.dtypes] == [
        "int64",
        "bool",
        "int64",
        "int64",
        "float64",
        "int64",
    ]
    written = rows(directory.run(0).evaluated(RETURN))
    for name in ("episode", "seed", "return", "length"):
        assert frame[name].tolist() == [float(row[name]) for row in written]


def test_a_large_seed_is_exact(tmp_path: Path) -> None:
    made = synthetic.experiment(tmp_path, ("complete",), epochs=5)
    seed = 2**53 + 1
    made.run(0).evaluated(RETURN).write_text(f"episode,seed,return,length\n0,{seed},1.0,1\n")
    assert Results(tmp_path).evaluation["seed"].tolist() == [seed]
    assert int(float(seed)) != seed, "a column of floats would have lost it"


def test_summary_has_a_row_for_every_planned_run(directory: ExperimentDirectory) -> None:
    frame = Results(directory.root).summary
    assert frame["run"].tolist() == [0, 1, 2, 3, 4]
    assert frame["state"].tolist() == ["complete", "paused", "unfinished", "failed", "skipped"]
    assert frame["state"].dtype == "category" and frame["usable"].tolist() == [
        True,
        False,
        False,
        False,
        True,
    ]
    assert frame["reason"].isna().tolist() == [True, False, False, False, False]
    assert frame["reason"][2] == "train has not started" and frame["epoch"].tolist() == [
        20,
        10,
        0,
        6,
        20,
    ]
    returns = [float(row["return"]) for row in rows(directory.run(0).evaluated(RETURN))]
    assert frame["return_mean"][0] == pytest.approx(np.mean(returns)) and frame["return_sd"][
        0
    ] == pytest.approx(np.std(returns, ddof=1))
    assert (frame["return_min"][0], frame["return_max"][0], frame["episodes"][0]) == (
        min(returns),
        max(returns),
        len(returns),
    )
    assert frame["return_mean"].isna().tolist() == [False, True, True, True, True]


def test_a_summary_without_any_result_has_the_same_types(
    tmp_path: Path, directory: ExperimentDirectory
) -> None:
    synthetic.experiment(tmp_path, ("absent",) * 2, epochs=5)
    assert (
        Results(tmp_path).summary.dtypes.to_dict()
        == Results(directory.root).summary.dtypes.to_dict()
    )


def test_a_running_experiment_is_read_up_to_its_last_whole_line(tmp_path: Path) -> None:
    made = synthetic.experiment(tmp_path, ("complete", "unfinished"), epochs=20)
    table = made.run(1).train_csv
    table.write_bytes(table.read_bytes() + b"11,28")
    results = Results(tmp_path)
    assert len(results.training) == 30
    assert (
        results.runs[1].training["epoch"].tolist() == list(range(1, 11))
        and not results.runs[1].training["usable"].any()
    )
    assert results.summary["epoch"].tolist() == [20, 10]
    columns = len(rows(table)[0])
    table.write_bytes(table.read_bytes() + b"16,11,0" + b"," * (columns - 4) + b"\n")
    assert len(results.training) == 30 and len(Results(tmp_path).training) == 31, (
        "a new one sees what was added"
    )


def test_a_table_without_a_row_adds_none_and_changes_no_type(tmp_path: Path) -> None:
    made = synthetic.experiment(tmp_path, ("complete", "unfinished"), epochs=20)
    before = Results(tmp_path).training
    table = made.run(1).train_csv
    table.write_text(table.read_text().partition("\n")[0] + "\n")
    pd.testing.assert_frame_equal(Results(tmp_path).training, before[before["run"] == 0])


def test_rows_of_another_version_s_columns_are_nan_elsewhere(tmp_path: Path) -> None:
    made = synthetic.experiment(tmp_path, ("complete", "unfinished"), epochs=20)
    table = made.run(1).train_csv
    table.write_text(table.read_text().replace("value_loss", "other_loss", 1))
    frame = Results(tmp_path).training
    assert frame["value_loss"].isna().tolist() == [False] * 20 + [True] * 10
    assert frame["other_loss"].isna().tolist() == [True] * 20 + [False] * 10


def test_reading_writes_nothing(directory: ExperimentDirectory) -> None:
    before = tree(directory.root)
    results = Results(directory.root)
    assert len(results.training) and len(results.evaluation) and len(results.summary)
    results.runs[0].policy().act(CARTPOLE)
    assert tree(directory.root) == before


def removed(directory: ExperimentDirectory) -> Any:
    directory.experiment_yaml.unlink()
    return Results(directory.root)


def damaged(directory: ExperimentDirectory) -> Any:
    directory.run(0).train_csv.write_text("epoch,step\n1,256\n2,five\n")
    return Results(directory.root).training


def not_whole(directory: ExperimentDirectory) -> Any:
    directory.run(0).train_csv.write_text("epoch,step\n1,256\n2,\n")
    return Results(directory.root).training


def folder_instead(directory: ExperimentDirectory) -> Any:
    directory.run(0).evaluated(RETURN).unlink()
    directory.run(0).evaluated(RETURN).mkdir()
    return Results(directory.root).runs[0].evaluation


MISSING: dict[str, tuple[Callable[[ExperimentDirectory], Any], type[ExperimentError], str]] = {
    "no directory": (
        lambda made: Results(made.root / "nowhere"),
        BadInput,
        "no directory {root}/nowhere: prepare makes it",
    ),
    "no record": (removed, BadInput, "no file {root}/experiment.yaml: prepare makes it"),
    "a damaged table": (damaged, WrongDirectory, "{root}/runs/0/train.csv is no table: "),
    "an empty step": (
        not_whole,
        WrongDirectory,
        "{root}/runs/0/train.csv is no table: column 'step' holds what is no whole number",
    ),
    "a folder": (folder_instead, WrongDirectory, "cannot read {root}/runs/0/evaluation.csv: "),
    "no evaluation": (
        lambda made: Results(made.root).runs[1].evaluation,
        BadInput,
        "no file {root}/runs/1/evaluation.csv: evaluate makes it",
    ),
    "no training": (
        lambda made: Results(made.root).runs[2].training,
        BadInput,
        "no file {root}/runs/2/train.csv: train makes it",
    ),
    "no policy": (
        lambda made: Results(made.root).runs[2].policy(),
        BadInput,
        "no final checkpoint in {root}/runs/2/checkpoints (epoch 0 of 20): train makes it",
    ),
    "no snapshot": (
        lambda made: Results(made.root).runs[0].policy(12288),
        BadInput,
        "no snapshot '12288' of run 0: there is none, a training takes them with evaluations=2",
    ),
}


@pytest.mark.parametrize("case", MISSING)
def test_what_is_missing_is_one_line_that_names_who_makes_it(case: str, tmp_path: Path) -> None:
    made = synthetic.experiment(tmp_path, ("complete", "unfinished", "absent"), epochs=20)
    read, error, message = MISSING[case]
    with pytest.raises(error) as raised:
        read(made)
    assert str(raised.value).startswith(message.format(root=tmp_path)) and "\n" not in str(
        raised.value
    )


def test_an_experiment_before_its_first_row_says_so(tmp_path: Path) -> None:
    synthetic.experiment(tmp_path, ("absent",) * 2, epochs=20)
    results = Results(tmp_path)
    with pytest.raises(BadInput, match=r"no run of .* has a table yet: train makes it"):
        _ = results.training
    with pytest.raises(BadInput, match=r"no run of .* has a table yet: evaluate makes it"):
        _ = results.evaluation


@pytest.fixture(scope="module")
def agent(directory: ExperimentDirectory) -> TrainedAgent:
    return Results(directory.root).runs[0].policy()


def test_one_observation_gives_one_action_and_many_give_many(agent: TrainedAgent) -> None:
    many = agent.act(CARTPOLE)
    assert many.shape == (3,) and many.tolist() == agent.policy.act(CARTPOLE, sample=False).tolist()
    assert [agent.act(row).item() for row in CARTPOLE] == many.tolist() and agent.act(
        CARTPOLE[0]
    ).shape == ()
    assert agent.act(CARTPOLE.tolist()).tolist() == many.tolist()
    assert agent.step == 20 * 256


def test_a_seed_repeats_the_draws(agent: TrainedAgent) -> None:
    observations = np.zeros((200, 4), np.float32)

    def draws(seed: int | None) -> list[int]:
        found: list[int] = agent.act(observations, sample=True, seed=seed).tolist()
        return found

    first, second = draws(7), draws(None)
    assert set(first) == {0, 1} and first != second, "each row and each call draws anew"
    assert draws(7) == first and draws(None) == second
    assert draws(8) != first


WRONG: dict[str, tuple[Any, str]] = {
    "too short": (
        np.zeros(3),
        r"observation has the shape \(3,\); allowed: \(4,\), or N of them: \('N', 4\)",
    ),
    "a number": (1.0, r"observation has the shape \(\); allowed"),
    "too deep": (np.zeros((1, 2, 4)), r"observation has the shape \(1, 2, 4\); allowed"),
    "none": (np.zeros((0, 4)), r"observation has the shape \(0, 4\); allowed"),
    "uneven": ([[0, 0, 0, 0], [0, 0]], "observation is no array"),
    "text": (["a", "b", "c", "d"], "observation holds <U1; allowed: numbers"),
    "no number": ([float("nan")] * 4, "observation holds NaN or infinity; allowed: finite"),
    "infinite": (np.full((2, 4), np.inf), "observation holds NaN or infinity; allowed: finite"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_observation_is_refused(case: str, agent: TrainedAgent) -> None:
    observation, message = WRONG[case]
    with pytest.raises(BadInput, match=message):
        agent.act(observation)


@pytest.mark.parametrize("seed", [-1, 1.5, True, "1"])
def test_a_wrong_seed_is_refused(seed: Any, agent: TrainedAgent) -> None:
    with pytest.raises(BadInput, match=r"seed cannot be .*; allowed: an integer from 0"):
        agent.act(CARTPOLE, sample=True, seed=seed)


def test_an_image_has_the_environment_s_own_order_and_type() -> None:
    agent = TrainedAgent(trained("tests.own_games:Picture"), 64)
    assert agent.observation_shape == (50, 41, 3)
    assert agent.act(np.zeros((50, 41, 3), np.uint8)) in (1, 2, 3)
    with pytest.raises(BadInput, match="observation is an image of float64; allowed: uint8"):
        agent.act(np.zeros((50, 41, 3)))


def test_the_notebook_runs(
    directory: ExperimentDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import matplotlib.pyplot as plt

    plt.switch_backend("Agg")
    beside = tmp_path / "steps" / "results"
    beside.mkdir(parents=True)
    (tmp_path / "results").symlink_to(directory.root.parent)
    monkeypatch.chdir(beside)
    cells = [
        cell
        for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
        if cell["cell_type"] == "code"
    ]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells), (
        "kept without outputs"
    )
    names: dict[str, Any] = {}
    for number, cell in enumerate(cells, start=1):
        exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)  # noqa: S102 - our own file
    assert len(names["axes"].lines) == 4, "a curve for each run that has rows"
    assert 8 <= names["score"] <= 500
    plt.close("all")


ONNX_GAMES = ("cartpole", "pendulum", "tests.own_games:Picture")
"""Logits; a mean with observations normalised; images in the environment's own order, actions from
1."""


@pytest.fixture(scope="module")
def onnx_packages() -> Iterator[None]:
    for name in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(
            name, reason=f"{name} is not installed (no part of it is needed but for the export)"
        )
    yield


def test_the_command_exports_the_run_s_policy(
    directory: ExperimentDirectory,
    tmp_path: Path,
    onnx_packages: None,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """First, because torch's exporter says what it has to say once in a process."""
    import onnxruntime

    before, target = tree(directory.root), tmp_path / "new" / "policy.onnx"
    assert export.main([f"--outdir={directory.root}", "--run=0", f"--to={target}"]) == 0
    assert tuple(capfd.readouterr()) == (f"the policy of run 0 is in {target}\n", "")
    session = onnxruntime.InferenceSession(target, providers=["CPUExecutionProvider"])
    origin = session.get_modelmeta().custom_metadata_map
    assert (origin["algorithm"], origin["game"], origin["run"], origin["step"]) == (
        "ppo",
        "CartPole-v1",
        "0",
        str(20 * 256),
    )
    assert (
        session.run(["action"], {"observation": CARTPOLE})[0].tolist()
        == Results(directory.root).runs[0].policy().act(CARTPOLE).tolist()
    )
    assert tree(directory.root) == before and [path.name for path in target.parent.iterdir()] == [
        "policy.onnx"
    ]


@pytest.mark.parametrize(
    "game", [ONNX_GAMES[0], *(pytest.param(one, marks=pytest.mark.slow) for one in ONNX_GAMES[1:])]
)
def test_onnx_answers_as_torch_does(game: str, onnx_packages: None) -> None:
    import onnxruntime
    import torch

    from agents.evaluation.export import to_onnx

    policy = trained(game)
    spaces = policy.spaces
    session = onnxruntime.InferenceSession(
        to_onnx(policy, {"game": game}), providers=["CPUExecutionProvider"]
    )
    heads = ["logits"] if spaces.discrete else ["mean", "log_std"]
    assert [one.name for one in session.get_inputs()] == ["observation"]
    assert [one.name for one in session.get_outputs()] == ["action", *heads, "value"]
    assert session.get_modelmeta().custom_metadata_map == {"game": game}
    generator = np.random.default_rng(0)
    for count in (1, 5):
        observations = generator.normal(0, 2, (count, *spaces.environment_shape)).astype(np.float32)
        if spaces.image:
            observations = generator.integers(0, 256, observations.shape, np.uint8)
        answers = dict(
            zip(
                ["action", *heads, "value"],
                session.run(None, {"observation": observations}),
                strict=True,
            )
        )
        expected = policy.act(observations, sample=False)
        assert (
            answers["action"].shape == expected.shape and answers["action"].dtype == expected.dtype
        )
        np.testing.assert_allclose(answers["action"], expected, atol=1e-5)
        seen = observations if policy.normaliser is None else policy.normaliser(observations)
        with torch.inference_mode():
            head, value = policy.network(policy.network.encode(torch.from_numpy(seen)))
        np.testing.assert_allclose(
            np.concatenate([answers[name] for name in heads], axis=1), head, atol=1e-5
        )
        np.testing.assert_allclose(answers["value"], value, atol=1e-5)


def test_an_export_under_the_name_of_another_format_is_refused(
    directory: ExperimentDirectory, tmp_path: Path
) -> None:
    run = Results(directory.root).runs[0]
    for name in ("policy.pt", "policy"):
        with pytest.raises(BadInput, match=r"the format is ONNX; allowed: a name\.onnx"):
            run.export(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_policy_leaves_the_caller_s_threads_alone(directory: ExperimentDirectory) -> None:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        Results(directory.root).runs[0].policy().act(CARTPOLE)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_without_its_packages_the_export_says_what_to_install(
    package: str,
    directory: ExperimentDirectory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert (
        export.main([f"--outdir={directory.root}", "--run=0", f"--to={tmp_path}/policy.onnx"]) == 2
    )
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and said.endswith("pip install onnx onnxscript\n")
    assert list(tmp_path.iterdir()) == []


def test_the_command_refuses_a_run_that_is_not_planned(
    directory: ExperimentDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export.main([f"--outdir={directory.root}", "--run=5"]) == 2
    assert capsys.readouterr().err == "export: no run 5: the experiment has the runs 0 to 4\n"
