"""Environments, games and manifests that once failed, each run as a person would run it.

They lie in a folder beside the checkout, or where FAILED_INPUTS says. Where there is none, the tests
of each protection say the same of inputs of this repository.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.fault.conftest import Start
from tests.outside import ROOT
from workflows.local.__main__ import main as run_manifest

FOLDER = Path(os.environ.get("FAILED_INPUTS", ROOT.parent / "shared" / "cases"))
TINY_PPO = {
    "epochs": "2",
    "rollout_length": "32",
    "minibatches": "1",
    "update_epochs": "1",
    "num_envs": "4",
    "evaluation_episodes": "2",
    "video_episodes": "0",
}
TINY_DQN = {
    "epochs": "2",
    "num_envs": "4",
    "train_every": "4",
    "learning_starts": "1000",
    "evaluation_episodes": "2",
    "video_episodes": "0",
}
TINY_SELF_PLAY = {
    "epochs": "2",
    "workers": "1",
    "games_per_worker": "8",
    "blocks": "0",
    "channels": "4",
    "simulations": "4",
    "cheap_simulations": "2",
    "generation_positions": "150",
    "learning_starts": "100",
    "batch_size": "32",
    "window": "1000",
    "evaluation_episodes": "2",
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no folder {FOLDER}; FAILED_INPUTS names one"),
]


@dataclass(frozen=True)
class Ends:
    """The step that must fail, with its exit code and what its last line must say."""

    step: str
    code: int
    says: str


@dataclass(frozen=True)
class Case:
    """game: `module:Class`. options: of the environment, `name=value,…`. ends: None where every step
    must succeed.
    """

    game: str
    options: str = ""
    ends: Ends | None = None
    algorithm: str = "ppo"
    parameters: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.game.partition(':')[0]}-{self.options or 'plain'}"


def whole(game: str, *options: str, **parameters: str) -> list[Case]:
    """Everything succeeds with each of the options."""
    return [Case(game, one, parameters=parameters) for one in options or ("",)]


def refused(game: str, says: str, *options: str) -> list[Case]:
    """`prepare` refuses each of the options, with a line that contains `says`."""
    return [Case(game, one, Ends("prepare", 2, says)) for one in options]


def fails(game: str, code: int, says: str, *options: str) -> list[Case]:
    """The training fails with each of the options."""
    return [Case(game, one, Ends("train", code, says)) for one in options]


def kinds(name: str, values: str) -> list[str]:
    """`name=value` for each of the words of `values`."""
    return [f"{name}={value}" for value in values.split()]


CASES = [
    *whole("a_largest_bounds:Wide"),
    *whole("b_float64_bounds:Strict"),
    *whole("c_info_shapes:Talks", *kinds("kind", "shapes none dict text")),
    *whole("e_reward_array:Pays", *kinds("kind", "one zero int bool float32")),
    *refused("e_reward_array:Pays", "a reward is one number", *kinds("kind", "two none")),
    *whole("f_never_ends:Waits", evaluation_steps="500"),
    *whole(
        "g_thin_picture:Corridor",
        "height=1,width=100",
        "height=100,width=1",
        "height=3,width=101",
        "height=1,width=1",
        "height=5000,width=9",
        video_episodes="1",
    ),
    *whole(
        "h_changing_picture:Grows", *kinds("kind", "grows none gray float list"), video_episodes="1"
    ),
    *refused("i_old_interface:Old", "reset() returns", *kinds("kind", "both reset")),
    *refused("i_old_interface:Old", "step() returns", "kind=step"),
    *refused("i_old_interface:Old", "reset() takes seed", "kind=seed"),
    *fails("j_leaves:Leaves", 1, "process", *kinds("after=40,kind", "exit code hard")),
    *whole(
        "k_elsewhere:Elsewhere",
        *kinds("kind", "chdir double nograd seed threads signals warnings"),
    ),
    *whole("m_lasting_thread:Lasts", *kinds("kind", "thread process")),
    Case(
        "n_nothing_pays:Empty",
        algorithm="dqn",
        parameters={"prioritised": "true", "discount": "0"},
    ),
    *whole("o_nothing_left:Runs", *kinds("ends", "terminated truncated")),
    *refused("o_nothing_left:Runs", "in step", "ends=middle"),
    *whole("p_small_units:Sign", normalise_observations="true"),
    Case(
        "q_many_states:Table",
        "states=200000",
        Ends("prepare", 2, "training_memory"),
        parameters={"rollout_length": "2048"},
    ),
    *whole("r_declared_pixels:Pixels", *kinds("kind", "float int list uint8")),
    *whole(
        "t_odd_boxes:Odd",
        *kinds("actions", "scalar one equal half matrix negative many huge bits half16"),
        *kinds("observations", "scalar big bool half text dict stack planes wide colum"),
    ),
    *refused("t_odd_boxes:Odd", "has actions", *kinds("actions", "none whole tuple")),
    *refused("t_odd_boxes:Odd", "has observations", *kinds("observations", "none sequence")),
    *refused("t_odd_boxes:Odd", "finite numbers", *kinds("observations", "infinite nan")),
    *refused("t_odd_boxes:Odd", "have the shape", "observations=shape"),
    *whole("w_talks:Talks"),
    *whole("x_one_at_a_time:One", num_envs="1", evaluation_episodes="20"),
]
TINY = {"ppo": TINY_PPO, "dqn": TINY_DQN}
BY_STRANGERS = {"PYTHONPATH": str(FOLDER / "environments"), "STORAGE": ""}


def _assigned(parameters: Mapping[str, str]) -> list[str]:
    return [word for name, value in parameters.items() for word in ("-p", f"{name}={value}")]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_environment(case: Case, start: Start, tmp_path: Path) -> None:
    outdir = str(tmp_path / "results")
    given = {**TINY[case.algorithm], **case.parameters, "game": case.game, "outdir": outdir}
    if case.options:
        given["env_options"] = case.options
    steps = {"prepare": ["--algorithm", case.algorithm, *_assigned(given)]}
    steps |= {name: ["--outdir", outdir, "--run", "0"] for name in ("train", "evaluate", "play")}
    for name, argv in steps.items():
        step = start(f"steps.{name}", argv, BY_STRANGERS)
        code = step.end()
        assert code not in (0, 2) or "Traceback" not in step.text
        if case.ends is not None and name == case.ends.step:
            assert (code, case.ends.says in step.text) == (case.ends.code, True), step.text
            return
        assert code == 0, step.text


@pytest.mark.parametrize(
    "game", ["Walk", pytest.param("Wide", marks=pytest.mark.soak), "Drawn", "Twice"]
)
def test_game(game: str, start: Start, tmp_path: Path) -> None:
    outdir = str(tmp_path / "results")
    given = {**TINY_SELF_PLAY, "game": f"s_games:{game}", "outdir": outdir}
    prepared = start("steps.prepare", ["--algorithm", "alphazero", *_assigned(given)], BY_STRANGERS)
    assert prepared.end() == 0, prepared.text
    run = ["--outdir", outdir, "--run", "0"]
    roles = (["--role", "trainer"], ["--role", "worker", "--member", "0"])
    for step in [start("steps.train", [*run, *role], BY_STRANGERS) for role in roles]:
        assert step.end() == 0, step.text
    evaluated = start("steps.evaluate", run, BY_STRANGERS)
    assert evaluated.end() == 0, evaluated.text


@pytest.mark.parametrize(
    ("game", "says"),
    [
        ("Stuck", "has no legal action"),
        ("Longer", "says longest = 8"),
        ("Askew", "with symmetry 1"),
    ],
)
def test_game_that_breaks_a_rule(game: str, says: str, start: Start, tmp_path: Path) -> None:
    given = {**TINY_SELF_PLAY, "game": f"s_games:{game}", "outdir": str(tmp_path / "results")}
    step = start("steps.prepare", ["--algorithm", "alphazero", *_assigned(given)], BY_STRANGERS)
    assert step.end() == 2
    assert "breaks a promise" in step.text
    assert says in step.text


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("expression-crash", 1, ("use: Error", "long: Succeeded", "onExit: Succeeded", ": Error")),
        ("expression-functions", 0, ("name=breakout list=[3,1,2,9] sorted=[1,2,3]", "sum=6")),
        ("expression-syntax", 2, ("refused: ",)),
        ("parameter-without-name", 1, ("spec.arguments.parameters[0].name is required",)),
        ("trailing-document", 0, ("Succeeded",)),
        ("yaml-numbers", 2, ("line 13: Argo reads 010",)),
    ],
)
def test_manifest(
    name: str,
    code: int,
    says: tuple[str, ...],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    manifest = str(FOLDER / "workflows" / f"{name}.yaml")
    assert run_manifest([manifest, "--status", str(tmp_path / "status.json")]) == code
    printed = "".join(capfd.readouterr())
    for text in says:
        assert text in printed
