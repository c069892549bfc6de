"""From texts to one checked experiment: precedence, identity, and a refusal for everything that
cannot work."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config import games, presets
from config.algorithms import ALGORITHMS
from config.algorithms.ppo import PPO
from config.described import SECTIONS, ParameterInfo, parameters
from config.environment import OneProcess
from config.errors import BadInput
from config.experiment import LONGEST_TRAINING, Experiment
from config.other_names import OTHER_NAMES
from config.outdir import check_outdir
from config.parameters import declared, to_text
from config.presets import preset_values
from config.resolve import resolve, resolved_from_dict
from config.suites import SUITES


def refused(given_texts: dict[str, str], algorithm: str = "ppo") -> str:
    with pytest.raises(BadInput) as refusal:
        resolve(algorithm, given_texts)
    message = str(refusal.value)
    assert message.isprintable()
    return message


def test_nothing_given_is_the_cartpole_experiment() -> None:
    resolved = resolve("ppo", {})
    assert (resolved.game.id, resolved.experiment.runs, resolved.min_runs, resolved.topology) == (
        "CartPole-v1",
        1,
        1,
        "single",
    )
    assert (
        resolved.total_steps
        == resolved.epochs * resolved.environment.count * resolved.hyperparameters.rollout_length
    )


def test_precedence_dataclass_algorithm_game_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ppo.yaml").write_text("{steps: 9, clip: 0.11, discount: 0.12, gae_lambda: 0.13}")
    of_games = tmp_path / "games"
    of_games.mkdir()
    (of_games / "cartpole.yaml").write_text(
        "game: {id: CartPole-v1}\nppo: {discount: 0.22, gae_lambda: 0.23}"
    )
    monkeypatch.setattr(presets, "FOLDER", tmp_path)
    monkeypatch.setattr(games, "FOLDER", of_games)
    (of_games / "fallback.yaml").write_text("{}")
    for suite in SUITES:
        (of_games / f"{suite.name}.yaml").write_text("games: {}")
    caches = (presets._file, games._file, games.games, games.games_of, games.own_presets)
    for cache in caches:
        cache.cache_clear()
    try:
        chosen = resolve("ppo", {"gae_lambda": "0.33", "discount": ""}).hyperparameters
    finally:
        for cache in caches:
            cache.cache_clear()
    assert (chosen.value_coefficient, chosen.clip, chosen.discount, chosen.gae_lambda) == (
        PPO.value_coefficient,
        0.11,
        0.22,
        0.33,
    )


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        (
            "{lerning_rate: 1e-3}",
            "unknown parameter in a preset 'lerning_rate'; did you mean 'learning_rate'",
        ),
        ("{clip: 7}", "'clip' cannot be 7; allowed: a number from 0.001 to 1"),
        ("{anneal_clip: no}", "'anneal_clip' cannot be 'no'; allowed: true or false"),
        ("{num_envs: 010}", "'num_envs' cannot be '010'; allowed: an integer"),
        ("{steps: 0}", "'steps' cannot be 0"),
    ],
)
def test_a_mistake_in_a_preset_is_named(
    section: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ppo.yaml").write_text(section)
    monkeypatch.setattr(presets, "FOLDER", tmp_path)
    presets._file.cache_clear()
    try:
        message = refused({})
    finally:
        presets._file.cache_clear()
    assert reason in message


def test_a_goal_in_steps_is_rounded_up_to_whole_epochs() -> None:
    goal = preset_values("ppo", games.find_game("pendulum"))["steps"]
    resolved = resolve(
        "ppo", {"game": "pendulum", "num_envs": "3", "rollout_length": "100", "minibatches": "1"}
    )
    assert 0 <= resolved.total_steps - goal < 300
    assert resolve("ppo", {"game": "pendulum", "epochs": "7"}).epochs == 7


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("text", ["1e6", "1000000", "1.5e5", "1"])
def test_a_length_in_steps_is_rounded_up_to_whole_epochs(algorithm: str, text: str) -> None:
    resolved = resolve(algorithm, {"steps": text})
    missing = (
        float(text) - resolved.warm_up_steps - (resolved.epochs - 1) * resolved.steps_per_epoch
    )
    assert resolved.epochs == 1 or 0 < missing <= resolved.steps_per_epoch
    same = resolve(algorithm, {"epochs": str(resolved.epochs)})
    assert same == resolved, "however the length is given, it is the same experiment"
    assert resolved.value_of("experiment", "steps") == resolved.total_steps


def test_the_rollout_that_fills_the_statistics_counts() -> None:
    given = {"game": "pendulum", "num_envs": "3", "rollout_length": "100", "minibatches": "1"}
    normalised = resolve("ppo", given | {"normalise_observations": "true"})
    other = resolve("ppo", given | {"normalise_observations": "false"})
    assert (normalised.total_steps, normalised.epochs + 1) == (other.total_steps, other.epochs)


@pytest.mark.parametrize("epochs", [1, 10, 49, 50, 64, 196, 300_000])
def test_at_most_two_percent_is_ever_done_again(epochs: int) -> None:
    interval = resolve("ppo", {"game": "breakout", "epochs": str(epochs)}).checkpoint_interval
    assert interval == 1 or interval <= 0.02 * epochs
    assert interval * 1024 <= 250_000
    assert (
        resolve(
            "ppo", {"game": "breakout", "epochs": str(epochs), "checkpoint_interval": "1"}
        ).checkpoint_interval
        == 1
    )


def test_min_runs_is_all_of_them_unless_given() -> None:
    assert resolve("ppo", {"runs": "5"}).min_runs == 5
    assert resolve("ppo", {"runs": "5", "min_runs": "3"}).min_runs == 3


def test_atari_is_evaluated_with_sampled_actions_unless_given() -> None:
    assert resolve("ppo", {"game": "cartpole"}).experiment.evaluation_policy == "greedy"
    assert resolve("ppo", {"game": "breakout"}).experiment.evaluation_policy == "sample"
    assert (
        resolve(
            "ppo", {"game": "breakout", "evaluation_policy": "greedy"}
        ).experiment.evaluation_policy
        == "greedy"
    )


EXPECTED = {
    "runs": "an integer from 1 to 256",
    "seed": "an integer from 0 to 2147483647",
    "num_envs": "an integer from 1 to 1024",
    "discount": "a number from 0 to 1",
    "evaluation_policy": "greedy or sample, or empty",
    "device": "auto or cpu or cuda",
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("runs", "-1"), ("runs", "0"), ("runs", "257"), ("runs", "1000000000"), ("runs", "true"), ("runs", "1e3"), ("runs", "nan"),
        ("seed", str(2**70)), ("seed", "-1"), ("num_envs", "0"), ("num_envs", "1e9"), ("discount", "nan"), ("discount", "1.01"),
        ("evaluation_policy", "random"), ("device", "gpu"),
    ],
)  # fmt: skip
def test_out_of_range_is_refused_with_the_range(name: str, value: str) -> None:
    assert (
        refused({name: value})
        == f"parameter {name!r} cannot be {value!r}; allowed: {EXPECTED[name]}"
    )


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("epoch", "epochs"),
        ("learning-rate", "learning_rate"),
        ("Runs", "runs"),
        ("", None),
    ],
)
def test_an_unknown_parameter_is_refused_with_the_nearest_and_the_known(
    name: str, nearest: str | None
) -> None:
    message = refused({name: "1"})
    assert message.startswith(f"unknown parameter {name!r}; ")
    assert nearest is None or f"did you mean {nearest!r}?" in message
    assert "known: adam_epsilon, anneal_clip, " in message


@pytest.mark.parametrize(
    ("algorithm", "name", "answer"),
    [
        ("ppo", "total_timesteps", "'steps', which counts the steps of all environments?"),
        ("ppo", "Total-Timesteps", "'steps', which counts"),
        ("sac", "n_timesteps", "'steps', which counts"),
        ("ppo", "lr", "'learning_rate'?"),
        ("ppo", "env", "'game'?"),
        ("ppo", "n_envs", "'num_envs'?"),
        ("impala", "num_envs", "'envs_per_actor'?"),
        ("alphazero", "n_envs", "'games_per_worker'?"),
        ("dqn", "gamma", "'discount'?"),
        ("ppo", "ent_coef", "'entropy_coefficient'?"),
        ("sac", "ent_coef", "'alpha', which is learnt where it is empty?"),
        ("ppo", "batch_size", "'minibatches', which is their number: num_envs * rollout_length /"),
        ("ppo", "train_batch_size", "'rollout_length', which counts the steps of each environment"),
        ("sac", "train_batch_size", "'batch_size'?"),
        ("ppo", "n_steps", "'rollout_length'?"),
        ("impala", "num_steps", "'unroll_length'?"),
        ("dqn", "n_steps", "'n_step'?"),
        ("dqn", "buffer_size", "'replay_size'?"),
        ("ppo", "lam", "'gae_lambda'?"),
        ("ppo", "eval_freq", "'evaluations', which is their number over the whole training?"),
        ("td3", "policy_noise", "'target_noise'?"),
        ("td3", "policy_lr", "'learning_rate', which is that of policy and critics?"),
        ("r2d2", "num_workers", "'actors'?"),
        ("alphazero", "num_workers", "'workers'?"),
    ],
)
def test_a_name_of_another_library_is_answered_with_ours(
    algorithm: str, name: str, answer: str
) -> None:
    said = refused({name: "1"}, algorithm)
    assert said.startswith(f"unknown parameter {name!r}; did you mean {answer}")
    assert "? known: " in said


def test_every_name_of_others_leads_to_a_parameter_that_exists() -> None:
    known = {algorithm: {one.name for one in parameters(algorithm)} for algorithm in ALGORITHMS}
    for name, meant in OTHER_NAMES.items():
        assert all(any(ours in names for names in known.values()) for ours, _ in meant), name
        assert any(name not in names for names in known.values()), f"{name} is always ours"


def test_an_unknown_algorithm_is_refused_with_the_known() -> None:
    known = ", ".join(sorted(ALGORITHMS))
    refusal = f"unknown algorithm 'pppo'; did you mean 'ppo'? known: {known}"
    assert refused({}, "pppo") == refusal
    assert refused({}, "../ppo").startswith("unknown algorithm '../ppo'")


def test_hostile_names_and_values_never_reach_a_message_raw() -> None:
    hostile = ("{{=1}}", "a\nb", "\x1b[2J", "\0", "x" * 100_000, "\udc80", "\u2028")
    for text in hostile:
        assert len(refused({text: "1"})) < 1500
        for one in parameters("ppo"):
            assert len(refused({one.name: text})) < 400


@pytest.mark.parametrize(
    "name",
    [
        one.name
        for one in parameters("ppo")
        if one.section == "experiment" and not declared(Experiment)[one.name].optional
    ],
)
def test_an_empty_required_value_is_refused(name: str) -> None:
    assert refused({name: ""}).startswith(f"empty value for {name!r}; allowed: ")


@pytest.mark.parametrize("name", [one.name for one in parameters("ppo") if one.default == ""])
def test_where_the_default_is_empty_an_empty_value_changes_nothing(name: str) -> None:
    assert resolve("ppo", {name: ""}) == resolve("ppo", {})


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (
            {"minibatches": "7"},
            "parameter 'minibatches' cannot be 7; allowed: a divisor of num_envs * rollout_length = ",
        ),
        (
            {"num_envs": "8", "rollout_length": "32", "minibatches": "256"},
            "parameter 'minibatches' cannot be 256; allowed: ",
        ),
        (
            {"num_envs": "1024", "rollout_length": "65536"},
            "num_envs * rollout_length = 1024 * 65536 = 67108864 is too large; allowed: at most",
        ),
        (
            {"runs": "2", "min_runs": "3"},
            "parameter 'min_runs' cannot be 3; allowed: at most runs, 2",
        ),
        (
            {"evaluation_episodes": "2", "video_episodes": "3"},
            "parameter 'video_episodes' cannot be 3; allowed: at most evaluation_episodes, 2",
        ),
        (
            {"epochs": "5", "steps": "1e3"},
            "parameters 'epochs' and 'steps' cannot be given together: 5 and 1000; allowed: one",
        ),
        (
            {"steps": "1e11", "num_envs": "3", "minibatches": "1"},
            "parameter 'epochs' cannot be 1041666667; allowed: at most 1041666666, that",
        ),
        ({"min_runs": "0"}, "parameter 'min_runs' cannot be '0'; allowed: an integer from 1"),
        (
            {"device": "cuda", "gpus": "0"},
            "parameter 'device' cannot be 'cuda' with gpus=0; allowed: ",
        ),
        ({"epochs": "1000000000"}, "parameter 'epochs' cannot be 1000000000; allowed: at most "),
        (
            {"epochs": "10", "log_interval": "11"},
            "parameter 'log_interval' cannot be 11; allowed: at most epochs, 10",
        ),
        (
            {"epochs": "10", "checkpoint_interval": "11"},
            "parameter 'checkpoint_interval' cannot be 11; allowed: at most epochs, 10",
        ),
        (
            {"evaluate_above": "inf"},
            "parameter 'evaluate_above' cannot be 'inf'; allowed: a number, or empty",
        ),
        (
            {"sticky_actions": "0"},
            "parameter 'sticky_actions' cannot be 0: cartpole is no Atari game; allowed: 0.25",
        ),
        (
            {"full_action_set": "true"},
            "parameter 'full_action_set' cannot be true: cartpole is no Atari game; allowed: false",
        ),
        (
            {"episodic_life": "true"},
            "parameter 'episodic_life' cannot be true: cartpole is no Atari game",
        ),
        ({"noop_max": "0"}, "parameter 'noop_max' cannot be 0: cartpole is no Atari game"),
        (
            {"game": "pong", "normalise_observations": "true"},
            "parameter 'normalise_observations' cannot be true: pong shows images",
        ),
        (
            {"gpu_image": "rl:1 --privileged"},
            "parameter 'gpu_image' cannot be 'rl:1 --privileged'; allowed: an image reference",
        ),
        (
            {"claim": "Storage/../x"},
            "parameter 'claim' cannot be 'Storage/../x'; allowed: a Kubernetes name",
        ),
        (
            {"hidden_sizes": "64,0"},
            "parameter 'hidden_sizes' cannot be '64,0'; allowed: 1 to 8 integers from 1 to 8192",
        ),
    ],
)
def test_values_that_do_not_go_together_are_refused(texts: dict[str, str], message: str) -> None:
    assert refused(texts).startswith(message)


@pytest.mark.parametrize(
    "texts",
    [
        {"device": "cuda", "gpus": "1"}, {"device": "auto", "gpus": "0"}, {"runs": "3", "min_runs": "3"},
        {"game": "pong", "sticky_actions": "0"},
        {"epochs": "10", "log_interval": "10", "checkpoint_interval": "10"}, {"game": "pong", "full_action_set": "true", "noop_max": "0"},
        {"num_envs": "8", "rollout_length": "32", "minibatches": "128"}, {"sticky_actions": "0.25", "evaluate_above": "-1e6"},
    ],
)  # fmt: skip
def test_the_same_checks_let_the_neighbours_pass(texts: dict[str, str]) -> None:
    resolve("ppo", texts)


def test_a_training_is_bounded() -> None:
    per_epoch = resolve("ppo", {}).steps_per_epoch
    assert (
        resolve("ppo", {"epochs": str(LONGEST_TRAINING // per_epoch)}).total_steps
        <= LONGEST_TRAINING
    )
    assert len(str(LONGEST_TRAINING)) <= 12
    refused({"epochs": str(LONGEST_TRAINING // per_epoch + 1)})


def another_value(name: str, current: Any) -> str:
    one = {**declared(Experiment), **declared(OneProcess), **declared(PPO)}[name]
    if one.choices:
        return next(choice for choice in one.choices if choice != current)
    if one.kind is bool:
        return to_text(not current)
    special = {
        "game": "pong",
        "outdir": "/storage/other",
        "notify": "https://hooks.example/x",
        "minibatches": "8",
        "hidden_sizes": "32",
        "network": "my_lab.nets:Residual",
        "env_options": "stack_num=2",
        "wrappers": "gymnasium.wrappers:RecordEpisodeStatistics",
        "min_runs": "1",
        "training_memory": "8Gi",
        "checkpoint_interval": "2",
        "track": "wandb",
    }
    if name in special:
        return special[name]
    if one.kind is str:
        return "other"
    base = current if current is not None else 3
    return (
        to_text(base * 2)
        if one.high is None or (base * 2 <= one.high and base)
        else to_text(one.high if current != one.high else one.low)
    )


@pytest.mark.parametrize("info", parameters("ppo"), ids=lambda info: info.name)
def test_identity_changes_with_exactly_the_parameters_that_can_change_a_result(
    info: ParameterInfo,
) -> None:
    texts = {"game": "breakout"}
    if info.name in ("normalise_observations", "wrappers"):
        texts = {"game": "acrobot"}
    if info.name == "min_runs":
        texts["runs"] = "2"
    before = resolve("ppo", texts)
    section = getattr(before, info.section)
    after = resolve(
        "ppo", texts | {info.name: another_value(info.name, getattr(section, info.name))}
    )
    assert after != before
    assert (after.identity_hash != before.identity_hash) == info.identity


LATER = {
    "evaluation_episodes", "evaluation_policy", "evaluate_above", "video_episodes", "evaluation_steps",
}  # fmt: skip
UNTIED = {"game": "cartpole", "anneal_learning_rate": "false", "anneal_clip": "false"}


def test_the_length_is_part_of_the_identity_where_a_schedule_depends_on_it() -> None:
    tied = resolve("ppo", {**UNTIED, "anneal_clip": "true", "epochs": "10"})
    assert (tied.tied_to_length, tied.identity()["experiment"]["epochs"]) == (("anneal_clip",), 10)
    free = resolve("ppo", {**UNTIED, "epochs": "10"})
    assert free.tied_to_length == ()
    assert free.identity() == resolve("ppo", {**UNTIED, "epochs": "20"}).identity()


def test_a_longer_training_keeps_the_first_spacing() -> None:
    first, longer = (resolve("ppo", {**UNTIED, "epochs": epochs}) for epochs in ("1000", "5000"))
    grown = longer.continuing(first)
    assert (first.checkpoint_interval, longer.checkpoint_interval) == (19, 99)
    assert (grown.first_epochs, grown.checkpoint_interval) == (1000, 19)
    again = resolve("ppo", {**UNTIED, "epochs": "9000"}).continuing(grown)
    assert (again.first_epochs, again.checkpoint_interval) == (1000, 19)
    assert resolved_from_dict(again.as_dict()) == again
    given = resolve("ppo", {**UNTIED, "epochs": "5000", "checkpoint_interval": "7"})
    assert given.continuing(first).checkpoint_interval == 7
    assert "first_epochs" not in first.continuing(first).as_dict()
    for wrong in (-1, True, "10", None):
        with pytest.raises(BadInput, match="first_epochs cannot be"):
            resolved_from_dict({**again.as_dict(), "first_epochs": wrong})


def test_longer_self_play_keeps_networks_at_the_first_spacing() -> None:
    hyper = resolve("alphazero", {"kept_generations": "4"}).hyperparameters
    kept = [one for one in range(41) if hyper.is_kept(one, first=20, last=20)]
    assert kept == [0, 5, 10, 15, 20]
    grown = [one for one in range(41) if hyper.is_kept(one, first=20, last=39)]
    assert grown == [0, 5, 10, 15, 20, 25, 30, 35, 39]


@dataclasses.dataclass(frozen=True, kw_only=True)
class WithASchedule(PPO):
    """A subclass that does not say whether its schedule depends on the length."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Misnamed(PPO):
    def tied_to_length(self) -> list[str]:
        return ["anneal_something"]


def test_a_class_says_itself_what_ties_it_to_its_length() -> None:
    resolved = resolve("ppo", UNTIED)
    own = dataclasses.replace(resolved, hyperparameters=WithASchedule())
    assert own.tied_to_length is None
    assert "epochs" in own.identity()["experiment"]
    with pytest.raises(BadInput, match="names 'anneal_something', which is no hyperparameter"):
        dataclasses.replace(resolved, hyperparameters=Misnamed()).identity()


def test_what_is_no_part_of_the_identity() -> None:
    assert {one.name for one in parameters("ppo") if not one.identity} == {
        "outdir", "runs", "min_runs", "gpus", "runs_per_gpu", "gpu_image", "cpu_image", "claim", "training_memory", "vectorisation",
        "notify", "track",
        "trial_timeout", "checkpoint_interval", "evaluations", "snapshot_episodes", *LATER,
    }  # fmt: skip
    assert {one for section in resolve("ppo", {}).later().values() for one in section} == LATER
    of_self_play = resolve("alphazero", {}).later()
    assert set(of_self_play["hyperparameters"]) == {"evaluation_simulations"}


def test_the_presets_values_given_explicitly_are_the_same_experiment() -> None:
    for game in ("cartpole", "pendulum", "breakout", "FrozenLake-v1"):
        resolved = resolve("ppo", {"game": game})
        explicit = {
            info.name: to_text(getattr(getattr(resolved, info.section), info.name))
            for info in parameters("ppo")
            if info.name != "steps"
        }
        explicit["checkpoint_interval"] = str(resolved.checkpoint_interval)
        again = resolve("ppo", explicit)
        assert again.identity() == resolved.identity()
        assert again.identity_hash == resolved.identity_hash


def test_two_names_of_one_game_are_one_identity() -> None:
    assert (
        resolve("ppo", {"game": "CartPole-v1"}).identity_hash
        == resolve("ppo", {"game": "cartpole"}).identity_hash
    )
    assert (
        resolve("ppo", {"game": "pong"}).identity_hash
        != resolve("ppo", {"game": "breakout"}).identity_hash
    )


def test_the_hash_is_that_of_canonical_json_and_does_not_depend_on_the_order_given() -> None:
    import hashlib

    first = resolve("ppo", {"seed": "3", "clip": "0.3"})
    second = resolve("ppo", {"clip": "0.3", "seed": "3"})
    canonical = json.dumps(first.identity(), sort_keys=True, separators=(",", ":"))
    assert (
        first.identity_hash
        == second.identity_hash
        == hashlib.sha256(canonical.encode()).hexdigest()
    )


def valid_texts() -> st.SearchStrategy[dict[str, str]]:
    return st.fixed_dictionaries(
        {},
        optional={
            "game": st.sampled_from(
                ["cartpole", "pendulum", "breakout", "tetris", "Taxi-v4", "own.games:Grid"]
            ),
            "runs": st.integers(1, 256).map(str),
            "seed": st.integers(0, 2**31 - 1).map(str),
            "epochs": st.integers(1, 10**6).map(str),
            "evaluate_above": st.just("") | st.floats(-1e9, 1e9).map(to_text),
            "learning_rate": st.floats(1e-8, 1).map(to_text),
            "hidden_sizes": st.lists(st.integers(1, 8192), min_size=1, max_size=8).map(to_text),
            "anneal_clip": st.sampled_from(["true", "false", ""]),
        },
    )


@settings(max_examples=50)
@given(valid_texts())
def test_as_dict_survives_json_and_yaml_exactly(texts: dict[str, str]) -> None:
    from config.strict_yaml import dump, load

    resolved = resolve("ppo", texts)
    through_json = resolved_from_dict(json.loads(json.dumps(resolved.as_dict(), allow_nan=False)))
    through_yaml = resolved_from_dict(load(dump(resolved.as_dict()), "test"))
    assert through_json == through_yaml == resolved
    assert through_yaml.identity_hash == resolved.identity_hash
    assert through_yaml.as_dict() == resolved.as_dict()


def changed(path: str, value: object) -> dict[str, Any]:
    written = json.loads(json.dumps(resolve("ppo", {}).as_dict()))
    *sections, name = path.split(".")
    inner = written
    for section in sections:
        inner = inner[section]
    if value is ...:
        del inner[name]
    else:
        inner[name] = value
    return dict(written)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("algorithm", "dqn"), ("algorithm", None), ("algorithm", []), ("experiment", None), ("experiment", ...), ("extra", 1),
        ("hyperparameters", [1]),
        ("experiment.runs", 0), ("experiment.runs", ...), ("experiment.extra", 1), ("experiment.epochs", None),
        ("experiment.outdir", "../x"),
        ("hyperparameters.clip", "high"), ("hyperparameters.minibatches", 7), ("hyperparameters.clip", ...), ("game", "cartpole"),
        ("game.kind", "other"), ("game.family", "discret"), ("game.id", "a b"), ("game.id", ...), ("game.options", 1),
        ("environment.sticky_actions", 0.5), ("environment", ...), ("packages", None), ("packages.numpy", 2),
    ],
)  # fmt: skip
def test_a_record_that_was_changed_is_refused(path: str, value: object) -> None:
    with pytest.raises(BadInput) as refusal:
        resolved_from_dict(changed(path, value))
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize("written", [None, [], "x", {}])
def test_a_record_that_is_none_is_refused(written: Any) -> None:
    with pytest.raises(BadInput):
        resolved_from_dict(written)


def test_values_must_be_text() -> None:
    with pytest.raises(BadInput, match="parameter 'runs' cannot be 3; allowed: text"):
        resolve("ppo", {"runs": 3})  # type: ignore[dict-item]


def test_everything_is_frozen() -> None:
    resolved = resolve("ppo", {})
    for section, name in (
        (resolved, "game"),
        (resolved.experiment, "runs"),
        (resolved.hyperparameters, "clip"),
        (resolved.game, "id"),
    ):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(section, name, None)


@pytest.mark.parametrize("info", parameters("ppo"), ids=lambda info: info.name)
def test_every_parameter_says_what_it_is(info: ParameterInfo) -> None:
    assert len(info.help) > 5
    assert info.allowed
    assert info.allowed != "text"
    assert "{" not in info.help + info.default
    assert info.section in SECTIONS
    if info.default:
        resolve("ppo", {info.name: info.default})


def test_no_name_is_declared_twice() -> None:
    names = [info.name for info in parameters("ppo")]
    assert len(names) == len(set(names))


BAD_OUTDIRS = [
    "..",
    "../x",
    "a/../b",
    "/storage/../etc",
    "/storage/x/..",
    "~/x",
    "~root",
    "-x",
    "a\0b",
    "a\nb",
    "{{x}}",
    "/" + "a" * 256,
]


@pytest.mark.parametrize("outdir", BAD_OUTDIRS)
def test_an_outdir_that_escapes_is_refused_everywhere(outdir: str, tmp_path: Path) -> None:
    assert "outdir" in refused({"outdir": outdir})
    for root in (None, tmp_path):
        with pytest.raises(BadInput, match="outdir"):
            check_outdir(outdir, root)


def test_an_outdir_lies_below_the_storage_root(tmp_path: Path) -> None:
    root = tmp_path / "storage"
    root.mkdir()
    assert check_outdir(str(root / "a/b"), root) == root / "a/b"
    for outside in (
        str(tmp_path / "other"),
        "/etc",
        str(root),
        str(root) + "/",
        str(root) + "/.",
        str(root) + "-2/x",
        "relative",
        "",
    ):
        with pytest.raises(BadInput):
            check_outdir(outside, root)


def test_a_symbolic_link_does_not_lead_out(tmp_path: Path) -> None:
    root, outside = tmp_path / "storage", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "link").symlink_to(outside)
    (root / "inner").symlink_to(root / "real")
    (root / "loop").symlink_to(root / "loop")
    with pytest.raises(BadInput, match="allowed: a directory below"):
        check_outdir(str(root / "link/x"), root)
    assert check_outdir(str(root / "inner/x"), root) == root / "real/x"
    (tmp_path / "alias").symlink_to(root)
    assert check_outdir(str(root / "x"), tmp_path / "alias") == root / "x"


@pytest.mark.parametrize("root_too", [True, False])
def test_a_symbolic_link_that_leads_to_itself_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root_too: bool
) -> None:
    """`Path.resolve` raises up to Python 3.12 and answers with the link from 3.13 on: both ways
    must be refused."""
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "one").symlink_to(tmp_path / "other")
    (tmp_path / "other").symlink_to(tmp_path / "one")
    outdirs = [str(tmp_path / path) for path in ("loop", "loop/x", "one/x/y")]
    roots = [tmp_path if root_too else None, tmp_path / "loop"]
    for resolve_path in (Path.resolve, lambda path: Path(os.path.realpath(path))):
        monkeypatch.setattr(Path, "resolve", resolve_path)
        for outdir in outdirs:
            with pytest.raises(
                BadInput,
                match=r"parameter 'outdir' cannot be '.*: (the symbolic link|Symlink loop)",
            ) as refusal:
                check_outdir(outdir, roots[0])
            assert "\n" not in str(refusal.value)
        with pytest.raises(BadInput, match="outdir"):
            check_outdir(str(tmp_path / "x"), roots[1])


def test_c19_an_outdir_that_is_not_ascii_needs_file_names_in_utf_8(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under ISO-8859-1 the bytes of a UTF-8 terminal are other letters, and a pod's programs made
    another directory of them."""
    for outdir in ("größer", "結果"):
        assert check_outdir(str(tmp_path / outdir), tmp_path).name == outdir
        with monkeypatch.context() as patched:
            patched.setattr(sys, "getfilesystemencoding", lambda: "iso8859-1")
            with pytest.raises(
                BadInput,
                match=r"parameter 'outdir' cannot be '.* where names of files are iso8859-1; allowed: ASCII",
            ):
                check_outdir(str(tmp_path / outdir), tmp_path)
            assert check_outdir("/storage/plain", None).name == "plain"
    (tmp_path / os.fsdecode(b"gr\xf6")).mkdir()
    monkeypatch.chdir(tmp_path / os.fsdecode(b"gr\xf6"))
    with pytest.raises(BadInput, match="parameter 'outdir' cannot be"):
        check_outdir("results", None)


def test_without_a_storage_root_any_local_path_is_taken_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert check_outdir("results/x", None) == Path(os.path.realpath(tmp_path)) / "results/x"
    assert check_outdir("Ergebnisse/größer als vorher", None).name == "größer als vorher"
