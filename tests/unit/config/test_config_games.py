"""Names of games are looked up or match a pattern; everything else is refused, and nothing is
imported for it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import gymnasium
import pytest
from ale_py import roms
from hypothesis import given
from hypothesis import strategies as st

from agents.environments.game_check import check_game
from agents.games.named import OURS, load_game
from config.described import parameters
from config.environment import EnvironmentSettings
from config.errors import BadInput
from config.games import (
    Game,
    find_game,
    games,
    is_well_formed,
    own_presets,
    preset,
)
from config.parameters import declared
from config.resolve import resolve
from config.suites import BOX2D_ID, check_installed

WITHOUT_SINGLE_PLAYER = {"combat", "joust", "maze_craze", "warlords"}


def test_every_game_of_ale_has_a_short_name_and_the_id_that_gymnasium_knows() -> None:
    import ale_py

    gymnasium.register_envs(ale_py)
    atari = {name: game for name, game in games().items() if game.kind == "atari"}
    assert set(atari) == set(roms.get_all_rom_ids()) - WITHOUT_SINGLE_PLAYER
    for name, game in atari.items():
        assert gymnasium.spec(game.id).kwargs["game"] == name
        assert gymnasium.spec(game.id).kwargs["frameskip"] == game.frames_per_step


def test_the_kinds_are_those_that_gymnasium_offers() -> None:
    for name in own_presets():
        game = find_game(name)
        if game.is_board:
            continue
        module, _, gymnasium_id = game.id.rpartition(":")
        if module:
            importlib.import_module(module)
        spec = gymnasium.spec(gymnasium_id)
        native = spec.vector_entry_point is not None
        assert (game.kind != "sync") == native, name
        if game.kind != "atari":
            assert game.solved == spec.reward_threshold
            assert game.frames_per_step == 1


def test_every_game_of_ours_knows_what_its_players_do() -> None:
    """As its action space says; without Box2D nobody can ask a game that needs it."""
    assert {game.family for game in games().values()} == {"discrete", "continuous", "board"}
    for name in own_presets():
        game = find_game(name)
        if game.is_board:
            assert load_game(game.id).name == name
            continue
        if not BOX2D_ID.fullmatch(game.id) or importlib.util.find_spec("Box2D"):
            assert check_game(resolve("ppo", {"game": name})).family == game.family, name
    assert find_game("CartPole-v0").family == find_game("my_lab.envs:Maze").family == ""


def test_the_board_games_are_those_of_self_play_and_only_its_algorithm_plays_them() -> None:
    assert {name for name, game in games().items() if game.is_board} == set(OURS)
    for name in (*OURS, "openspiel:hex", "openspiel:hex(board_size=5)"):
        assert resolve("alphazero", {"game": name}).game.id == name
        with pytest.raises(BadInput, match="a board game for two players; alphazero learns those"):
            resolve("ppo", {"game": name})
    for name in ("cartpole", "othello", "FrozenLake-v1"):
        with pytest.raises(BadInput, match="no board game for two players; allowed: connect-four,"):
            resolve("alphazero", {"game": name})
    with pytest.raises(BadInput, match=r"did you mean 'connect-four'\? known: connect-four, oth"):
        resolve("alphazero", {"game": "connect_four"})


def test_an_import_path_is_a_board_game_for_self_play_and_else_an_environment() -> None:
    own = resolve("alphazero", {"game": "my_lab.games:Nim"})
    assert own.game.is_board
    assert own.packages == {"my_lab": "no version"}
    assert not resolve("ppo", {"game": "my_lab.games:Nim"}).game.is_board
    (package,) = resolve("alphazero", {"game": "openspiel:hex"}).packages
    assert package.replace("-", "_") in ("open_spiel", "pyspiel"), "none where it is not installed"


@pytest.mark.parametrize("name", declared(EnvironmentSettings))
def test_self_play_has_no_settings_of_an_environment(name: str) -> None:
    with pytest.raises(BadInput, match=f"unknown parameter '{name}'"):
        resolve("alphazero", {name: ""})
    assert name in {info.name for info in parameters("ppo")}
    assert name not in {info.name for info in parameters("alphazero")}


def test_the_number_of_games_has_its_own_name_in_self_play() -> None:
    assert resolve("alphazero", {"games_per_worker": "3"}).environment.count == 3
    with pytest.raises(BadInput, match="'num_envs'; did you mean 'games_per_worker'"):
        resolve("alphazero", {"num_envs": "3"})


@pytest.mark.parametrize("name", ["cartpole", "breakout", "tic_tac_toe_3d"])
def test_an_id_of_a_known_game_is_that_game(name: str) -> None:
    assert find_game(games()[name].id) == games()[name]


@pytest.mark.parametrize(
    "text",
    [
        "Taxi-v4",
        "MountainCarContinuous-v0",
        "phys2d/CartPole-v1",
        "my_games.grid:Grid",
        "grid:Grid",
        "my_lab.envs:Maze-v0",
        "my_lab:rooms/Maze-Big.2-v12",
    ],
)
def test_any_gymnasium_id_and_any_own_environment_gets_the_fallback(text: str) -> None:
    game = find_game(text)
    assert (game.name, game.id, game.kind, game.frames_per_step) == (text, text, "sync", 1)
    assert preset(game)["ppo"]["normalise_observations"] is True


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("brekout", "breakout"), ("BREAKOUT", "breakout"), ("CartPole", "cartpole"), ("cart-pole", "cartpole"),
        ("lunar_lander", "lunarlander"),
        ("ms-pacman", "ms_pacman"), ("breakout; rm -rf /", "breakout"), ("pong'", "pong"), ("xyzzy", None),
        ("fallback", None), ("../games/pong", None), ("$(id)", None),
    ],
)  # fmt: skip
def test_an_unknown_name_is_refused_with_the_nearest(text: str, nearest: str | None) -> None:
    with pytest.raises(BadInput) as refusal:
        find_game(text)
    message = str(refusal.value)
    assert message.startswith("unknown game ")
    assert (
        "; known: acrobot, bipedalwalker, breakout" in message
        or f"; did you mean {nearest!r}? known: acrobot, bipedalwalker" in message
    )
    assert nearest is None or nearest in message
    assert len(message) < 500


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "breakout; rm -rf /", "$(id)", "`id`", "breakout\n", "a'b", 'a"b', "pong ", " pong", "PONG", "os:system('id')", "os:",
        ":Grid", "a..b:C", "a.b.C", "a-b:C", "a:b:C", "a/b/C-v0", "../C-v0", "/C-v0", "C-v", "C-v0 ", "C-v0;", "C-v99999", "ALE/Combat-v5",
        "ALE/Nothing-v5", "ale_py:ALE/Pong-v5", "a:b/c/D-v0", "a.b:-v0:C", "a..b:C-v0", "a b:C-v0", ":C-v0",
        "{{workflow.name}}-v0", "x" * 65 + "-v0", "pöng", "pong\0", "a\u202eb-v0", "__import__('os')", "x" * 100_000,
    ],
)  # fmt: skip
def test_hostile_names_are_refused_in_one_short_line(text: str) -> None:
    with pytest.raises(BadInput, match=r"^unknown game ") as refusal:
        find_game(text)
    assert str(refusal.value).isprintable()
    assert len(str(refusal.value)) < 400


@given(st.text())
def test_whatever_is_accepted_is_made_of_harmless_characters(text: str) -> None:
    try:
        game = find_game(text)
    except BadInput:
        return
    assert set(game.id) <= set(
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:"
    )


@pytest.mark.parametrize(
    "text",
    [
        "BreakoutNoFrameskip-v4",
        "Breakout-v4",
        "BreakoutDeterministic-v0",
        "Breakout-ramNoFrameskip-v4",
    ],
)
def test_the_old_atari_ids_are_explained(text: str) -> None:
    with pytest.raises(BadInput, match=r"did you mean game=breakout sticky_actions=0\?"):
        find_game(text)


@pytest.mark.parametrize(
    "text", ["lunarlander", "LunarLanderContinuous-v3", "BipedalWalkerHardcore-v3", "CarRacing-v3"]
)
def test_only_the_games_that_need_box2d_are_refused_without_it(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "Box2D", None)
    with pytest.raises(
        BadInput,
        match=r"needs the package Box2D, which is not installed .*; allowed: any other game",
    ):
        check_installed(text, find_game(text).id)
    for other in ("cartpole", "breakout", "FrozenLake-v1", "my_lab:LunarLanding-v0"):
        check_installed(other, find_game(other).id)
    monkeypatch.setitem(sys.modules, "Box2D", sys)
    check_installed(text, find_game(text).id)


def test_the_games_of_gymnasium_that_need_box2d_are_known() -> None:
    of_box2d = {
        name for name, spec in gymnasium.registry.items() if "envs.box2d" in str(spec.entry_point)
    }
    assert of_box2d
    assert {name for name in gymnasium.registry if BOX2D_ID.fullmatch(name)} == of_box2d


def test_an_atari_game_with_a_file_of_its_own_still_has_the_shared_preset() -> None:
    assert preset(find_game("breakout"))["ppo"] == preset(find_game("tetris"))["ppo"]


@pytest.mark.parametrize(
    "changed",
    [
        {"id": "os; rm"}, {"kind": "script"}, {"options": []}, {"frames_per_step": 0}, {"frames_per_step": True}, {"solved": "475"},
        {"name": 3}, {"id": None}, {"family": "discret"}, {"family": None},
    ],
)  # fmt: skip
def test_a_game_that_was_read_back_is_checked(changed: dict[str, object]) -> None:
    whole: dict[str, object] = {
        "name": "x",
        "id": "X-v0",
        "kind": "sync",
        "family": "discrete",
        "options": {},
        "frames_per_step": 1,
        "solved": None,
    }
    assert is_well_formed(Game(**whole))  # type: ignore[arg-type]
    assert not is_well_formed(Game(**(whole | changed)))  # type: ignore[arg-type]


def test_configuration_imports_nothing_heavy_and_no_game() -> None:
    program = (
        "import sys, config.resolve, config.cluster, config.given, config.tables; "
        "config.resolve.resolve('ppo', {'game': 'antigravity:Fly'}); config.resolve.resolve('ppo', {'game': 'pong'}); "
        "print(sorted({'torch', 'numpy', 'gymnasium', 'ale_py', 'hera', 'pandas', 'antigravity'} & set(sys.modules)))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout.strip() == "[]"
