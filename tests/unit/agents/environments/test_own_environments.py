"""A person's own environment without a fork: its options and its wrappers, in training, evaluation
and film."""

from __future__ import annotations

import re
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from agents.environments.game_check import check_game
from agents.environments.games import make_environment
from agents.environments.training import TrainingEnvironments
from agents.environments.vectors import CartPoles, make_environments, reset
from agents.evaluation.episodes import evaluate
from agents.evaluation.rendering import Replay
from agents.load import load_policy, make_trainer
from config.errors import BadInput
from config.measures import RETURN
from config.resolve import resolve, resolved_from_dict
from config.resolved import Resolved
from steps import check, prepare
from steps.directory.experiment import read_experiment
from steps.directory.layout import ExperimentDirectory
from steps.directory.tables import read_rows
from workflows import local, submit
from workflows.dag import manifest_yaml

LAB = "tests.lab_environments"
ROOT = Path(__file__).resolve().parents[4]
CORRIDOR = f"{LAB}:Corridor"
SMALL = {"num_envs": "2", "rollout_length": "32", "minibatches": "1", "epochs": "2"}


def resolved_for(game: str, **given: str) -> Resolved:
    return resolve("ppo", {"game": game, **SMALL, **given})


def refusal_of(game: str, **given: str) -> str:
    with pytest.raises(BadInput) as refusal:
        check_game(resolved_for(game, **given))
    assert str(refusal.value).isprintable()
    return str(refusal.value)


def test_options_are_typed_and_written_in_one_form() -> None:
    resolved = resolved_for(CORRIDOR, env_options="slippery=true,length=7,cost=2e0,colour=blue")
    assert resolved.environment.env_options == "colour=blue,cost=2.0,length=7,slippery=true"
    options = resolved.environment.options
    assert options == {"colour": "blue", "cost": 2.0, "length": 7, "slippery": True}
    assert [type(options[name]) for name in sorted(options)] == [str, float, int, bool]
    other = resolved_for(CORRIDOR, env_options="length=7,cost=2.0,colour=blue,slippery=true")
    assert other.identity_hash == resolved.identity_hash
    assert resolved_for(CORRIDOR).identity_hash != resolved.identity_hash
    assert resolved_from_dict(resolved.as_dict()) == resolved


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("map", "'map' is no name=value"),
        ("map=4,", "'' is no name=value"),
        ("map=", "'map=' is no name=value"),
        ("map=4=5", "'map=4=5' is no name=value"),
        ("a-b=4", "'a-b=4' is no name=value"),
        ("map=4,map=5", "'map' is given twice"),
        ("map=1e999", "1e999 is too large"),
        ("render_mode=human", "'render_mode' is chosen by those who film"),
        ("map=[1,2]", "'[1' is no list; a list is [1;2;3]"),
        ("map=1]", "'1]' is no list"),
        ("map=[", "'[' is no list"),
        ("map=[1;]", "'[1;]' is no list"),
        ("map=[1;[2]]", "'[1;[2]]' is no list"),
        ("map=[1e999]", "1e999 is too large"),
        ("map={4}", "braces are not allowed in a value"),
    ],
)
def test_what_are_no_options(text: str, reason: str) -> None:
    message = refusal_of(CORRIDOR, env_options=text)
    assert message.startswith(f"parameter 'env_options' cannot be '{text}'")
    assert reason in message


def test_a_list_is_an_option() -> None:
    resolved = resolved_for(CORRIDOR, env_options="length=7,b=[],a=[1;2e0;true;red;-3]")
    assert resolved.environment.env_options == "a=[1;2.0;true;red;-3],b=[],length=7"
    assert resolved.environment.options == {"a": [1, 2.0, True, "red", -3], "b": [], "length": 7}
    again = resolved_for(CORRIDOR, env_options=resolved.environment.env_options)
    assert again.identity_hash == resolved.identity_hash
    assert resolved_from_dict(resolved.as_dict()) == resolved


@pytest.mark.slow
@pytest.mark.soak
def test_a_list_comes_through_submission_manifest_and_pod_to_the_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And `steps.check` takes the same."""
    options, wanted = "env_options=length=3,rests=[0;1;2]", {"prepare", "runs", "train", "evaluate"}
    given = [f"game={CORRIDOR}", "evaluation_episodes=2", "video_episodes=0", options]
    small = [f"{name}={value}" for name, value in SMALL.items()]
    assert submit.main(["ppo", "--manifest", *(f"-p{one}" for one in [*given, *small])]) == 0
    manifest = manifest_yaml.load(capsys.readouterr().out)
    del manifest["spec"]["onExit"]
    for dag in (one["dag"] for one in manifest["spec"]["templates"] if "dag" in one):
        dag["tasks"] = [task for task in dag["tasks"] if task["name"] in wanted] or dag["tasks"]
    ended = local.run(
        manifest,
        parameters={"outdir": "/storage/x", "runs": "1"},
        storage=tmp_path,
        logs=tmp_path / "logs",
        environment={"PYTHONPATH": str(ROOT)},
    )
    assert ended.phase == "Succeeded", ended.message
    directory = ExperimentDirectory(tmp_path / "x")
    assert read_experiment(directory).resolved.environment.options["rests"] == [0, 1, 2]
    for row in read_rows(directory.run(0).evaluated(RETURN)):
        assert float(row["return"]) >= -1 > -float(row["length"]), "only the last cell costs"
    assert check.main([CORRIDOR, "-p", options]) == 0
    assert check.main([CORRIDOR, "-p", "env_options=rests=[1"]) == 2
    assert "'[1' is no list; a list is [1;2;3]" in capsys.readouterr().err


@pytest.mark.parametrize("game", [CORRIDOR, f"{LAB}:LabCorridor-v0"])
def test_options_reach_training_evaluation_and_film(game: str) -> None:
    resolved = resolved_for(game, env_options="length=2,cost=3.0,colour=blue")
    training = TrainingEnvironments(resolved, 0)
    assert training.observation[:, 1].tolist() == pytest.approx([0.3, 0.3])
    training.close()
    trainer = make_trainer(resolved, run=0, device="cpu", precision="fp32")
    trainer.close()
    policy = load_policy(resolved, trainer.state_dict())
    for episode in evaluate(policy, resolved, 0, 3, True):
        assert episode.return_ == -3 * episode.length
        replay = Replay(resolved, episode.seed, episode.actions)
        frames = list(replay.frames())
        assert replay.difference(episode.return_, episode.length) is None
        assert frames[0].shape == (8, 24, 3) and frames[0][..., 2].max() == 255


@pytest.mark.parametrize("game", [CORRIDOR, f"{LAB}:LabCorridor-v0"])
def test_an_option_that_the_environment_does_not_know_is_named(game: str) -> None:
    message = refusal_of(game, env_options="lenght=4")
    asked = f"unknown option of '{game}' in 'env_options' 'lenght'; did you mean 'length'? known: "
    assert message.startswith(asked + "colour, cost, length, ")
    assert "'lenght'" in refusal_of(f"{LAB}:Anything", env_options="lenght=4")
    assert "AssertionError" in refusal_of(game, env_options="length=4.0")


def test_prepare_refuses_it_with_2(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    given = [f"game={CORRIDOR}", "env_options=lenght=4", f"outdir={tmp_path}/x"]
    arguments = [text for one in given for text in ("-p", one)]
    assert prepare.main(["--algorithm", "ppo", *arguments]) == 2
    assert re.search(r"unknown option .* 'lenght'; did you mean 'length'", capfd.readouterr().err)
    assert not list(tmp_path.iterdir())


def test_options_of_native_games() -> None:
    poles = make_environments(resolved_for("cartpole", env_options="max_episode_steps=7"), 2)
    assert isinstance(poles, CartPoles) and poles.max_episode_steps == 7
    alone = make_environment(
        resolved_for("cartpole").game,
        resolved_for("cartpole", env_options="max_episode_steps=7").environment,
    )
    assert alone.spec is not None and alone.spec.max_episode_steps == 7
    assert "unknown option of 'cartpole'" in refusal_of("cartpole", env_options="gravity=3.0")
    taller = resolved_for("breakout", env_options="img_height=100,stack_num=2")
    assert check_game(taller).observation_shape == (2, 100, 84)
    message = refusal_of("breakout", env_options="frameskip=2")
    assert message.startswith("unknown option of 'breakout' in 'env_options' 'frameskip'; known: ")


WRAPPED = f"{LAB}:Doubled,{LAB}:bonus_of_5"


def test_wrappers_are_applied_in_order_in_training_evaluation_and_film() -> None:
    resolved = resolved_for(CORRIDOR, wrappers=WRAPPED, env_options="length=3")
    training = TrainingEnvironments(resolved, 0)
    (transition,) = training.step(np.zeros(2, np.int64))
    training.close()
    assert transition.reward.tolist() == [3.0, 3.0], "-1 doubled, then 5 more"
    trainer = make_trainer(resolved, run=0, device="cpu", precision="fp32")
    trainer.close()
    policy = load_policy(resolved, trainer.state_dict())
    for episode in evaluate(policy, resolved, 0, 2, True):
        assert episode.return_ == 3 * episode.length
        replay = Replay(resolved, episode.seed, episode.actions)
        assert len(list(replay.frames())) == episode.length + 1
        assert replay.difference(episode.return_, episode.length) is None


def test_wrappers_and_their_packages_are_part_of_the_identity() -> None:
    resolved = resolved_for(CORRIDOR, wrappers=WRAPPED)
    other = resolved_for(CORRIDOR, wrappers=f"{LAB}:bonus_of_5,{LAB}:Doubled")
    assert resolved.identity_hash != other.identity_hash
    wrapped = resolved_for("acrobot", wrappers="pytest.wrappers:Crop")
    assert wrapped.packages.keys() == {"pytest"}


def test_a_wrapped_native_game_is_made_of_single_environments() -> None:
    resolved = resolved_for("cartpole", wrappers=f"{LAB}:Doubled")
    vector = make_environments(resolved, 2)
    assert isinstance(vector, gymnasium.vector.SyncVectorEnv)
    reset(vector, np.array([1, 2]))
    assert vector.step(np.zeros(2, np.int64))[1].tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    ("wrappers", "reason"),
    [
        ("lab", "parameter 'wrappers' cannot be 'lab': 'lab' is no import path; allowed: package."),
        (f"{LAB}:Doubled,", "'' is no import path"),
        ("no_such_lab:Crop", "wrapper 'no_such_lab:Crop' cannot be imported: ModuleNotFoundError"),
        (f"{LAB}:Missing", f"wrapper '{LAB}:Missing' cannot be imported: AttributeError"),
        (f"{LAB}:NUMBER", "TypeError: 'int' object is not callable"),
        (f"{LAB}:Bonus", "missing 1 required positional argument: 'bonus'; allowed: what takes an"),
        (f"{LAB}:number", f"wrapper '{LAB}:number' returned a int; allowed: a gymnasium.Env"),
    ],
)
def test_what_is_no_wrapper(wrappers: str, reason: str) -> None:
    assert reason in refusal_of(CORRIDOR, wrappers=wrappers)


def test_atari_games_have_no_single_environment_to_wrap() -> None:
    message = refusal_of("breakout", wrappers=f"{LAB}:Doubled")
    assert message.startswith(
        f"parameter 'wrappers' cannot be '{LAB}:Doubled': the environments of"
    )
    assert "allowed: empty, or game=package.module:function that makes and wraps" in message


@pytest.mark.parametrize(
    ("factory", "says"),
    [
        ("register_envs", "returned nothing, as a function does that only registers environments"),
        ("make_gymnasium", "makes a vector of environments, which the training does itself"),
        ("make_something", "is a list"),
    ],
)
def test_a_factory_of_something_else_says_what_to_give_instead(factory: str, says: str) -> None:
    """MinAtar's `register_envs`; envpool's `make_gymnasium`."""
    refused = refusal_of(f"{LAB}:{factory}")
    assert says in refused
    assert refused.endswith("or a function that returns one environment")


def test_a_module_that_registers_only_when_it_is_asked_is_asked() -> None:
    """MinAtar's `minatar.gym:MinAtar/Breakout-v1`, with and without options."""
    gymnasium.registry.pop("LabLate-v0", None)
    assert check_game(resolved_for(f"{LAB}:LabLate-v0")).actions == 2
    gymnasium.registry.pop("LabLate-v0")
    assert check_game(resolved_for(f"{LAB}:LabLate-v0", env_options="length=7")).actions == 2


def test_an_id_that_its_module_does_not_register() -> None:
    gymnasium.registry.pop("LabLate-v0", None)
    refused = refusal_of(f"{LAB}:LabNever-v0")
    assert f"'{LAB}' registers no 'LabNever-v0'; allowed: the module that registers it" in refused


def test_a_text_beside_numbers_is_left_out_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    """As MiniGrid's missions."""
    seen = check_game(resolved_for(f"{LAB}:Spoken")).observation_size
    assert seen == 7 * 7 * 3
    assert "left out, being text: mission" in capsys.readouterr().out


def test_observations_that_are_no_numbers_are_named() -> None:
    refused = refusal_of(f"{LAB}:OnlySpoken")
    assert "observations that cannot be made numbers: a Dict; allowed: a wrapper" in refused
