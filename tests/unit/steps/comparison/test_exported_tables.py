"""CSV files: exports of W&B's charts, and any table whose columns are named."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import pytest

from config.errors import BadInput
from steps.comparison.readers import read

FIRST = "CartPole-v1__ppo__1__1700000000"
SECOND = "CartPole-v1__ppo__2__1700000000"
OTHER = "Hopper-v4__ppo_continuous_action__1__1700000000"
RETURN = "charts/episodic_return"


def table(path: Path, header: Sequence[str], rows: Sequence[Sequence[object]]) -> Path:
    """As W&B writes it: every cell in quotes."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerows([header, *rows])
    return path


def exported(path: Path, step: str, lines: Sequence[str], rows: Sequence[Sequence[object]]) -> Path:
    """A chart's lines, each with its smallest and largest values, which are absurd here."""
    header = [step]
    for line in lines:
        header += [line, f"{line}__MIN", f"{line}__MAX"]
    filled = [[row[0], *(cell for value in row[1:] for cell in (value, -1e6, 1e6))] for row in rows]
    return table(path, header, filled)


def test_an_export_of_wandb(tmp_path: Path) -> None:
    lines = [f"{name} - {RETURN}" for name in (FIRST, SECOND, OTHER)]
    rows = [(0, 10.0, "", 5.0), (100, 20.0, 8.0, ""), (200, 60.0, 12.0, 7.0)]
    path = exported(tmp_path / "wandb.csv", "global_step", lines, rows)
    entries = read(str(path))
    assert [(one.label, one.game) for one in entries] == [
        ("ppo", "cartpole"),
        ("ppo_continuous_action", "Hopper-v4"),
    ]
    entry = entries[0]
    assert (entry.made_by, entry.remarks) == ("CleanRL", ())
    assert entry.evaluation == "last 2 to 3 training episodes" and entry.in_training
    assert [run.name for run in entry.runs] == [FIRST, SECOND]
    assert [run.score for run in entry.runs] == [30.0, 10.0]
    assert entry.runs[0].training.steps.tolist() == [0, 100, 200]
    assert entry.runs[1].training.values.tolist() == [8.0, 12.0]


def test_wandb_s_own_count_of_steps_is_remarked(tmp_path: Path) -> None:
    path = exported(tmp_path / "wandb.csv", "Step", [f"{FIRST} - {RETURN}"], [(0, 1.0), (1, 2.0)])
    (entry,) = read(str(path))
    assert entry.remarks == ("steps are the column Step of W&B",)


def test_its_own_columns_are_no_runs(tmp_path: Path) -> None:
    lines = [f"{FIRST} - {name}" for name in ("_step", "_runtime", "global_step", RETURN)]
    path = exported(tmp_path / "wandb.csv", "Step", lines, [(0, 1, 2, 3, 4.0)])
    (entry,) = read(str(path))
    assert [run.score for run in entry.runs] == [4.0]


def test_runs_of_one_name_stay_two(tmp_path: Path) -> None:
    lines = ["ppo - eval/mean_reward", "ppo - eval/mean_reward"]
    path = exported(tmp_path / "wandb.csv", "Step", lines, [(0, 1.0, 2.0)])
    (entry,) = read(f"{path}:label=PPO:game=cartpole")
    assert [(run.name, run.score) for run in entry.runs] == [("ppo", 1.0), ("ppo (2)", 2.0)]


def test_several_metrics_of_a_run_are_one_run(tmp_path: Path) -> None:
    lines = ["a - b - eval/mean_reward", "a - b - rollout/ep_rew_mean", "a - b - train/loss"]
    path = exported(tmp_path / "wandb.csv", "Step", lines, [(0, 1.0, 2.0, 3.0), (9, 4.0, 5.0, 6.0)])
    (entry,) = read(f"{path}:label=PPO:game=cartpole")
    (run,) = entry.runs
    assert (run.name, run.score, entry.evaluation) == (
        "a - b",
        4.0,
        "last evaluation, eval/mean_reward",
    )
    assert run.policy.values.tolist() == [1.0, 4.0] and run.training.values.tolist() == [2.0, 5.0]


def test_a_metric_that_is_not_known_must_be_explained(tmp_path: Path) -> None:
    path = exported(tmp_path / "wandb.csv", "Step", ["ppo - score"], [(0, 1.0), (9, 5.0)])
    source = f"{path}:label=PPO:game=cartpole"
    with pytest.raises(BadInput, match=r"has no value that is known: say it, value=NAME; .* score"):
        read(source)
    with pytest.raises(
        BadInput, match=r"what one value of 'score' in .* cannot be seen: say kind="
    ):
        read(f"{source}:value=score")
    (entry,) = read(f"{source}:value=score:kind=evaluation")
    assert entry.scores == [5.0] and not entry.in_training
    assert entry.made_by == "unknown, by an export of W&B"


def test_names_that_say_nothing_need_a_label(tmp_path: Path) -> None:
    path = exported(tmp_path / "wandb.csv", "Step", [f"fresh-dew-7 - {RETURN}"], [(0, 1.0)])
    with pytest.raises(BadInput, match=r"the label of run 'fresh-dew-7' in .* is unknown: say it"):
        read(str(path))
    with pytest.raises(BadInput, match=r"the game of run 'fresh-dew-7' in .* is unknown: say it"):
        read(f"{path}:label=PPO")


LONG = ("algo", "task", "seed", "t", "score")
ROWS = [
    ("PPO", "Hopper-v5", 1, 1e3, 10.0),
    ("PPO", "Hopper-v5", 1, 2e3, 20.0),
    ("PPO", "Hopper-v5", 2, 1e3, 12.0),
    ("PPO", "Hopper-v4", 1, 1e3, 14.0),
    ("SAC", "Hopper-v5", 1, 1e3, 16.0),
]
COLUMNS = ":step=t:value=score:run=seed:kind=evaluation"


def test_any_table_with_its_columns_named(tmp_path: Path) -> None:
    path = table(tmp_path / "scores.csv", LONG, ROWS)
    entries = read(f"{path}{COLUMNS}:label_column=algo:game_column=task")
    found = {(one.label, one.game): {run.name: run.score for run in one.runs} for one in entries}
    assert found == {
        ("PPO", "hopper"): {"1": 20.0, "2": 12.0},
        ("PPO", "Hopper-v4"): {"1": 14.0},
        ("SAC", "hopper"): {"1": 16.0},
    }
    assert entries[0].runs[0].policy.steps.tolist() == [1000, 2000]
    assert entries[0].made_by == "unknown, by a table"


def test_a_table_of_one_run(tmp_path: Path) -> None:
    path = table(
        tmp_path / "progress.csv", ("time/total_timesteps", "rollout/ep_rew_mean"), [(9, 5)]
    )
    source = f"{path}:step=time/total_timesteps:value=rollout/ep_rew_mean"
    (entry,) = read(f"{source}:label=PPO:game=cartpole")
    assert [(run.name, run.score, run.steps) for run in entry.runs] == [("0", 5.0, 9)]
    assert entry.made_by == "Stable-Baselines3" and entry.in_training


def test_a_column_that_looks_like_a_run_can_be_named_whole(tmp_path: Path) -> None:
    name = f"{FIRST} - {RETURN}"
    path = exported(tmp_path / "wandb.csv", "Step", [name], [(0, 1.0), (5, 3.0)])
    source = f"{path}:step=Step:value={name}:kind=episode:label=PPO:game=cartpole"
    assert [run.score for run in read(source)[0].runs] == [2.0]


WRONG = {
    "": "is no export of W&B (a column Step, and NAME - METRIC for each run): say its column step=; "
    "there are: algo, task, seed, t, score",
    ":step=t": "say its column value=; there are: algo",
    ":step=T:value=score": "unknown column (step=) of {path}: 'T'; did you mean 't'?",
    ":step=t:value=scores": "unknown column (value=) of {path}: 'scores'; did you mean 'score'?",
    ":step=t:value=score": "what one value of 'score' in {path} is cannot be seen",
    ":step=t:value=score:kind=mean": "the label of {path} is unknown",
    ":step=t:value=score:kind=mean:label=PPO": "the game of {path} is unknown",
    ":step=t:value=score:kind=mean:label=PPO:game_column=game": "unknown column (game_column=) of",
    ":step=t:value=score:kind=mean:label=PPO:label_column=algo:game=hopper": "exclude each other",
    ":step=algo:value=score:kind=mean:label=P:game=hopper": "row 2 has 'PPO'; allowed: a number",
    ":step=t:value=algo:kind=mean:label=P:game=hopper": "row 2 has 'PPO'; allowed: a number",
    ":step=t:value=score:kind=mean:label_column=algo:game=breakout": "say it, frames=4",
}


@pytest.mark.parametrize("options", WRONG)
def test_what_is_missing_or_wrong_is_one_line(options: str, tmp_path: Path) -> None:
    path = table(tmp_path / "scores.csv", LONG, ROWS)
    with pytest.raises(BadInput) as raised:
        read(f"{path}{options}")
    assert WRONG[options].format(path=path) in str(raised.value)
    assert "\n" not in str(raised.value)


BROKEN = {
    "empty": (b"", "is empty"),
    "bytes": (b"\xff\xfea,b\n", "is no CSV file: 'utf-8' codec can't decode"),
    "uneven": (b"a,b\n1\n", "row 2 has 1 cells, the first one 2"),
    "NUL": (b"a,b\n1,\0\n", "row 2 has '\\x00'; allowed: a number"),
    "huge cell": (b"a,b\n1," + b"9" * 200_000 + b"\n", "is no CSV file: field larger than"),
    "infinite step": (b"a,b\ninf,1\n", "row 2 has the step 'inf'; allowed: a number"),
    "no step": (b"a,b\n,1\n", "row 2 has the step ''; allowed: a number"),
    "no values": (b"a,b\n1,\n", "has no value in column 'b'"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_table_is_named(case: str, tmp_path: Path) -> None:
    content, message = BROKEN[case]
    (tmp_path / "scores.csv").write_bytes(content)
    with pytest.raises(BadInput) as raised:
        read(f"{tmp_path}/scores.csv:step=a:value=b:kind=mean:label=PPO:game=cartpole")
    assert str(tmp_path / "scores.csv") in str(raised.value) and message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_line_break_in_a_name_stays_one_line(tmp_path: Path) -> None:
    path = table(tmp_path / "scores.csv", ("a\nb", "c"), [(1, 2)])
    with pytest.raises(BadInput) as raised:
        read(str(path))
    assert "\n" not in str(raised.value)


def test_values_that_are_not_numbers_are_no_points(tmp_path: Path) -> None:
    path = table(tmp_path / "scores.csv", ("t", "score"), [(1, 5.0), (2, "NaN"), (3, 7.0)])
    (entry,) = read(f"{path}:step=t:value=score:kind=evaluation:label=PPO:game=cartpole")
    assert entry.runs[0].policy.values.tolist() == [5.0, 7.0] and entry.scores == [7.0]
