"""The registry: a name, an installed package's entry point or an import path becomes a descriptor,
or one line."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from agents.environments.game_check import check_game
from config import algorithms
from config.algorithms import ALGORITHMS, algorithm_names, checked, find_algorithm
from config.algorithms.descriptor import Algorithm
from config.algorithms.ppo import PPO
from config.described import parameters, section_title, shared_parameters
from config.environment import EnvironmentSettings
from config.errors import BadInput
from config.imports import NO_VERSION, package_versions
from config.measures import RETURN
from config.parameters import parameter
from config.resolve import resolve, resolved_from_dict
from config.tables import parameter_tables, preset_table
from workflows.request.listing import everything

OWN, SHARING = f"{__name__}:GREEDY", f"{__name__}:CONTINUOUS"


@dataclass(frozen=True, kw_only=True)
class Greedy:
    """The hyperparameters of a person's own algorithm."""

    epoch_steps: int = parameter(1000, low=1, high=10**6, unit="steps", help="in one epoch")

    def steps_per_epoch(self, environment: EnvironmentSettings) -> int:
        return self.epoch_steps * environment.count

    def warm_up_steps(self, environment: EnvironmentSettings) -> int:
        return 0

    def check(self, environment: EnvironmentSettings) -> None:
        if environment.count == 7:
            raise BadInput("seven is not possible")


GREEDY = Algorithm(
    name="greedy",
    hyperparameters=Greedy,
    trainer=f"{__name__}:Greedy",
    policy=f"{__name__}:Greedy",
    families=("discrete",),
    presets={"any": {"steps": 12_000, "num_envs": 3}, "acrobot": {"epoch_steps": 5}},
)
CONTINUOUS = replace(GREEDY, families=("continuous",))
NO_ALGORITHM = 7


def refusal_of(*arguments: Any) -> str:
    with pytest.raises(BadInput) as refusal:
        resolve(*arguments)
    assert str(refusal.value).isprintable()
    return str(refusal.value)


def test_an_algorithm_by_import_path_is_resolved_with_its_presets_and_recorded() -> None:
    resolved = resolve(OWN, {"game": "cartpole"})
    assert (resolved.environment.count, resolved.epochs) == (3, 4)
    assert resolve(OWN, {"game": "acrobot"}).hyperparameters == Greedy(epoch_steps=5)
    assert resolve(OWN, {"epoch_steps": "7", "num_envs": "2"}).steps_per_epoch == 14
    assert resolved.identity()["packages"] == {__name__.partition(".")[0]: NO_VERSION}
    assert resolved_from_dict(resolved.as_dict()) == resolved
    assert "seven is not possible" in refusal_of(OWN, {"num_envs": "7"})
    assert "unknown parameter 'clip'" in refusal_of(OWN, {"clip": "0.2"})


def test_what_describes_an_algorithm_of_ones_own() -> None:
    assert "epoch_steps" in {info.name for info in parameters(OWN)}
    assert section_title(OWN, "hyperparameters") == "GREEDY"


def test_the_version_of_the_package_that_brought_it_is_part_of_the_identity() -> None:
    own = package_versions(["numpy.linalg:norm", "agents.algorithms.ppo:PPOTrainer"])
    assert own == {"numpy": importlib.metadata.version("numpy")}
    assert resolve("ppo", {"game": "cartpole"}).packages == {}
    assert resolve("ppo", {"game": "pytest.games:Grid"}).packages.keys() == {"pytest"}


def test_a_plain_name_by_an_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "lab-1.2.3.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: lab\nVersion: 1.2.3\n")
    (package / "entry_points.txt").write_text(f"[{algorithms.ENTRY_POINTS}]\nshy = {OWN}\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    find_algorithm.cache_clear()
    assert find_algorithm("shy") is GREEDY
    assert algorithm_names() == [*ALGORITHMS, "shy"]
    with pytest.raises(BadInput, match="did you mean 'shy'"):
        find_algorithm("shyy")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("pp0", "did you mean 'ppo'"),
        ("no_such_lab.ddqn:ALGORITHM", "cannot be imported: ModuleNotFoundError: No module named"),
        (f"{__name__}:MISSING", "cannot be imported: AttributeError"),
        (f"{__name__}:NO_ALGORITHM", "is a int; allowed: config.algorithms.descriptor.Algorithm"),
    ],
)
def test_what_is_no_algorithm(text: str, reason: str) -> None:
    assert reason in refusal_of(text, {})


def test_what_all_experiments_have_is_listed_once() -> None:
    """With the defaults of all; algorithms with the same hyperparameters share their table."""
    listed, tables = everything(["ppo", OWN]), parameter_tables(["ppo", OWN, SHARING])
    for info in shared_parameters(["ppo", OWN]):
        assert listed.count(f"\n  {info.name} ") == 1
    assert "default /storage/ppo or /storage/greedy" in " ".join(listed.split())
    assert list(tables) == ["Every experiment:", "`ppo`:", f"`{OWN}` and `{SHARING}`:"]
    assert "| `game` | `cartpole or pendulum` |" in tables["Every experiment:"]
    assert "| `outdir` | `/storage/ppo or /storage/greedy` |" in tables["Every experiment:"]
    for heading, table in tables.items():
        assert ("| `num_envs` |" in table) == (heading == "Every experiment:")
        assert ("| `clip` |" in table) == (heading == "`ppo`:")
        assert ("| `epoch_steps` |" in table) == (OWN in heading)
    assert everything([OWN]).count("/storage/") == 1


@dataclass(frozen=True, kw_only=True)
class Unmade(Greedy):
    depth: int = 3


@dataclass(frozen=True, kw_only=True)
class Taken(Greedy):
    seed: int = parameter(0, low=0, high=9, help="a parameter of every experiment")


class Nothing:
    pass


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"name": "My Lab"}, "name cannot be 'My Lab'; allowed: 1 to 40 of a-z, 0-9 and -"),
        ({"topology": "ring"}, "topology cannot be 'ring'; allowed: single or actor-learner"),
        ({"topology": "actor-learner"}, "actor cannot be ''; allowed: an import path"),
        ({"actor": "no path"}, "actor cannot be 'no path'; allowed: an import path"),
        ({"families": ()}, "families cannot be (); allowed: some of discrete, continuous"),
        ({"families": "discrete"}, "families cannot be 'discrete'; allowed: some of"),
        (
            {"families": ("continuous", "discret")},
            "unknown family 'discret'; did you mean 'discrete'",
        ),
        ({"families": (["discrete"],)}, "unknown family \"['discrete']\""),
        ({"measure": "Elo"}, "measure cannot be 'Elo'; allowed: config.measures.Measure"),
        ({"measure": replace(RETURN, name="wins, %")}, "measure.name cannot be 'wins, %'"),
        ({"measure": replace(RETURN, unit=None)}, "measure.unit cannot be None"),
        ({"measure": replace(RETURN, table="train.csv")}, "measure.table cannot be 'train.csv'"),
        ({"measure": replace(RETURN, column="seed")}, "measure.column cannot be 'seed'"),
        ({"measure": replace(RETURN, training_column="Elo")}, "training_column cannot be 'Elo'"),
        ({"trainer": "my_lab.ddqn"}, "trainer cannot be 'my_lab.ddqn'; allowed: an import path"),
        ({"policy": ""}, "policy cannot be ''; allowed: an import path"),
        ({"precision_probe": "x"}, "precision_probe cannot be 'x'"),
        ({"replay_bytes": "x"}, "replay_bytes cannot be 'x'; allowed: an import path"),
        ({"training_memory": "12 GB"}, "training_memory cannot be '12 GB'; allowed: a quantity"),
        ({"training_memory": 12}, "training_memory cannot be 12; allowed: a quantity such as 4Gi"),
        ({"hyperparameters": Nothing}, "allowed: a dataclass"),
        ({"hyperparameters": Unmade}, "are not made by config.parameters.parameter"),
        ({"hyperparameters": Taken}, "'seed' is a parameter of every experiment"),
    ],
)
def test_a_descriptor_that_breaks_a_promise(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadInput) as refusal:
        checked(dataclasses.replace(GREEDY, **changes), "lab:ALGORITHM")
    assert "algorithm 'lab:ALGORITHM'" in str(refusal.value)
    assert reason in str(refusal.value)
    assert str(refusal.value).isprintable()


def test_an_algorithm_says_what_it_plays() -> None:
    """To play everything is no default: a game that it cannot play would be found out in a pod."""
    said = {one.name: getattr(GREEDY, one.name) for one in dataclasses.fields(Algorithm)}
    del said["families"]
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'families'"):
        Algorithm(**said)


def test_a_method_that_the_hyperparameters_lack() -> None:
    half = dataclasses.make_dataclass("Half", [], frozen=True)
    with pytest.raises(BadInput, match="no method steps_per_epoch, warm_up_steps, check"):
        checked(dataclasses.replace(GREEDY, hyperparameters=half), "lab:ALGORITHM")


def test_a_mistake_in_a_preset_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(algorithms, "ALGORITHMS", {})
    wrong = dataclasses.replace(GREEDY, presets={"any": {"epoch_step": 5}})
    monkeypatch.setattr(sys.modules[__name__], "GREEDY", wrong)
    find_algorithm.cache_clear()
    assert "did you mean 'epoch_steps'" in refusal_of(OWN, {})
    find_algorithm.cache_clear()


@pytest.mark.parametrize(
    ("game", "given"),
    [
        ("pendulum", {"wrappers": "gymnasium.wrappers:ClipAction"}),
        ("MountainCarContinuous-v0", {}),
    ],
)
def test_a_game_that_an_algorithm_cannot_play(game: str, given: dict[str, str]) -> None:
    """One of ours is refused by name, every other when it is there, in the same words."""
    said = "the game's actions are continuous; greedy plays games whose actions are discrete"
    assert refusal_of(OWN, {"game": "pendulum"}) == f"{OWN} cannot play pendulum: {said}"
    with pytest.raises(BadInput) as refusal:
        check_game(resolve(OWN, {"game": game, **given}))
    assert str(refusal.value) == f"{OWN} cannot play {game}: {said}"
    assert not check_game(resolve("ppo", {"game": "pendulum"})).discrete


def test_options_and_wrappers_may_change_what_a_game_s_players_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only then is a game of ours made to see it; an Atari game's do not."""
    monkeypatch.setattr(sys.modules[__name__], "GREEDY", CONTINUOUS)
    find_algorithm.cache_clear()
    assert "cannot play lunarlander" in refusal_of(OWN, {"game": "lunarlander"})
    assert resolve(OWN, {"game": "lunarlander", "env_options": "continuous=true"}).family == ""
    assert resolve(OWN, {"game": "cartpole", "wrappers": "my_lab:Smooth"}).family == ""
    assert "cannot play pong" in refusal_of(OWN, {"game": "pong", "env_options": "img_width=96"})
    find_algorithm.cache_clear()


def test_the_game_of_an_experiment_that_names_none_is_one_that_it_plays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert resolve(OWN, {}).game.name == resolve("ppo", {}).game.name == "cartpole"
    monkeypatch.setattr(sys.modules[__name__], "GREEDY", CONTINUOUS)
    find_algorithm.cache_clear()
    assert resolve(OWN, {}).game.name == "pendulum"
    assert {info.name: info.default for info in parameters(OWN)}["game"] == "pendulum"
    find_algorithm.cache_clear()


def test_tables_and_lists_show_the_games_that_an_algorithm_plays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = preset_table(OWN).splitlines()[0]
    assert (
        shown
        == "|  | acrobot | cartpole | cartpole-no-velocity | frozenlake | lunarlander | mountaincar "
        "| Atari | MinAtar | MiniGrid | other |"
    )
    assert "pendulum" not in everything([OWN]) and "tetris" in everything([OWN])
    monkeypatch.setattr(sys.modules[__name__], "GREEDY", CONTINUOUS)
    find_algorithm.cache_clear()
    shown = preset_table(OWN).splitlines()[0]
    assert shown == (
        "|  | bipedalwalker | carracing | humanoid | lunarlander_continuous | pendulum "
        "| pendulum-no-velocity | swimmer | MuJoCo | dm_control | other |"
    )
    listed = everything([OWN])
    assert (
        f"games for {OWN}\n  bipedalwalker, carracing, humanoid, lunarlander_continuous," in listed
    )
    assert f"\nMuJoCo games for {OWN}\n  ant, halfcheetah, hopper, " in listed
    assert "Atari games" not in listed
    assert "\nAtari games for ppo\n" in everything(["ppo", OWN])
    find_algorithm.cache_clear()


def test_code_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = dataclasses.replace(GREEDY, trainer="no_such_lab:Trainer")
    monkeypatch.setattr(sys.modules[__name__], "GREEDY", wrong)
    find_algorithm.cache_clear()
    with pytest.raises(BadInput, match=r"the trainer of '.*:GREEDY' 'no_such_lab:Trainer' cannot"):
        check_game(resolve(OWN, {"game": "cartpole"}))
    find_algorithm.cache_clear()


def test_ours_keep_their_own_promises() -> None:
    for name, algorithm in ALGORITHMS.items():
        assert checked(algorithm, name) is algorithm
        assert algorithm.name == name
    assert ALGORITHMS["ppo"].hyperparameters is PPO
