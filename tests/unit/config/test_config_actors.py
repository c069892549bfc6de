"""The parameters of experiments with actors: where they count, and which belong to the identity."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from config.actors import ActorSettings
from config.algorithms import find_algorithm, ppo
from config.algorithms.descriptor import Algorithm
from config.cluster import load_cluster
from config.described import further_parameters, parameters, section_title
from config.errors import BadInput
from config.presets import presets_of_file
from config.resolve import resolve, resolved_from_dict
from config.tables import parameter_tables
from steps.check import check
from workflows.request.listing import everything

WITH_ACTORS: Algorithm = replace(
    ppo.ALGORITHM, topology="actor-learner", actor="nowhere:make_actor"
)
CROWD = f"{__name__}:WITH_ACTORS"
NAMES = [
    "actors", "learners", "actor_image", "actor_command", "actor_gpus", "actors_per_gpu",
    "reconnect_timeout", "no_data_timeout", "envs_per_actor",
]  # fmt: skip


def test_they_are_parameters_of_algorithms_with_actors_alone() -> None:
    further = further_parameters(["ppo", CROWD])
    assert {names: [info.name for info in infos] for names, infos in further.items()} == {
        ("ppo",): ["num_envs"], (CROWD,): NAMES,
    }  # fmt: skip
    of_crowd, of_ppo = ({info.name for info in parameters(name)} for name in (CROWD, "ppo"))
    assert of_crowd - of_ppo == set(NAMES) and of_ppo - of_crowd == {"num_envs"}
    with pytest.raises(BadInput, match="unknown parameter 'actors'"):
        resolve("ppo", {"actors": "3"})
    assert resolve("ppo", {}).actor_settings is None
    with pytest.raises(ValueError, match="ppo has no actors"):
        _ = resolve("ppo", {}).actors


def test_they_are_read_checked_and_written() -> None:
    resolved = resolve(CROWD, {"actors": "7", "actor_image": "sim:2", "reconnect_timeout": "20"})
    assert resolved.actors == ActorSettings(
        actors=7, actor_image="sim:2", reconnect_timeout=20, no_data_timeout=600
    )
    written = json.loads(json.dumps(resolved.as_dict()))
    assert resolved_from_dict(written) == resolved
    with pytest.raises(BadInput, match="actor_settings missing"):
        resolved_from_dict({name: one for name, one in written.items() if name != "actor_settings"})
    of_ppo = resolve("ppo", {}).as_dict()
    assert "actor_settings" not in of_ppo
    with pytest.raises(BadInput, match="unknown entry of experiment 'actor_settings'"):
        resolved_from_dict({**of_ppo, "actor_settings": written["actor_settings"]})


@pytest.mark.parametrize(
    ("algorithm", "given", "meant"),
    [
        (CROWD, "num_envs", "envs_per_actor"), ("impala", "num_envs", "envs_per_actor"),
        ("ppo", "envs_per_actor", "num_envs"), ("a2c", "envs_per_actor", "num_envs"),
    ],
)  # fmt: skip
def test_the_number_of_environments_has_one_name_and_the_other_is_refused_with_it(
    algorithm: str, given: str, meant: str, tmp_path: Path
) -> None:
    refused = f"unknown parameter '{given}'; did you mean '{meant}'?"
    for value in ("3", ""):
        with pytest.raises(BadInput, match=re.escape(refused)):
            resolve(algorithm, {given: value})
    file = tmp_path / "mine.yaml"
    file.write_text(f"{find_algorithm(algorithm).name}: {{{given}: 3}}\n")
    with pytest.raises(BadInput, match=f"in a preset '{given}'; did you mean '{meant}'"):
        presets_of_file(file, algorithm)
    resolved = resolve(algorithm, {meant: "2"})
    assert resolved.environment.count == resolved.as_dict()["environment"][meant] == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [("actors", "0"), ("actors", "513"), ("actors", ""), ("actors", "two"), ("actor_image", "a b")],
)
def test_what_they_cannot_be(name: str, value: str) -> None:
    with pytest.raises(BadInput, match=f"'{name}'"):
        resolve(CROWD, {name: value})


def test_more_actors_continue_the_same_experiment_and_more_environments_do_not() -> None:
    before = resolve(CROWD, {}).identity_hash
    changed = {
        "actors": "64",
        "actor_image": "sim:2",
        "actor_command": "a b",
        "no_data_timeout": "5",
    }
    assert resolve(CROWD, changed).identity_hash == before
    assert resolve(CROWD, {"envs_per_actor": "16"}).identity_hash != before


def test_learners_belong_to_the_identity() -> None:
    one, two = (resolve("impala", {"actors": "4", "learners": count}) for count in "12")
    assert one.identity_hash != two.identity_hash
    assert two.identity()["actor_settings"] == {"learners": 2}
    assert "actor_settings" not in resolve("ppo", {}).identity()


@pytest.mark.parametrize(
    ("algorithm", "given", "refusal"),
    [
        ("impala", {"learners": "0"}, "'learners' cannot be '0'; allowed: an integer from 1 to 64"),
        ("impala", {"learners": "4"}, "'learners' cannot be 4; allowed: at most actors, 2"),
        (
            "impala",
            {"learners": "3", "actors": "3"},
            "'learners' cannot be 3; allowed: what divides batch_size, 8",
        ),
        (
            "r2d2",
            {"learners": "2"},
            "'learners' cannot be 2: r2d2 learns in one process; allowed: 1",
        ),
        (
            "async-sac",
            {"learners": "2"},
            "cannot be 2: async-sac learns in one process; allowed: 1",
        ),
        (CROWD, {"learners": "2"}, "learns in one process; allowed: 1"),
        ("ppo", {"learners": "2"}, "unknown parameter 'learners'"),
    ],
)
def test_several_learners_are_refused_where_they_cannot_share(
    algorithm: str, given: dict[str, str], refusal: str
) -> None:
    with pytest.raises(BadInput, match=refusal):
        resolve(algorithm, given)


def test_help_and_tables_have_a_section_for_them() -> None:
    assert section_title(CROWD, "actor_settings") == "Actors"
    assert f"\nActors of {CROWD}, -p name=value\n  actors " in everything(["ppo", CROWD])
    assert "Actors" not in everything(["ppo"]).replace("with actors", "")
    tables = parameter_tables(["ppo", CROWD])
    (heading,) = (title for title in tables if title.startswith("With actors"))
    assert "| `actors` | `2` | an integer from 1 to 512 |" in tables[heading]
    assert "| `envs_per_actor` | the preset's, else `8` |" in tables[heading]
    assert "| `num_envs` | the preset's, else `8` |" in tables["Without actors: `ppo`:"]
    assert not any("With actors" in title for title in parameter_tables(["ppo", "dqn"]))


def test_the_promises_of_one_process_are_not_those_of_a_learner() -> None:
    with pytest.raises(
        BadInput, match="has actor-learner processes; allowed: an algorithm that trains in one"
    ):
        check(CROWD, {})


def test_a_cluster_gives_actors_a_pool_of_their_own() -> None:
    cluster = load_cluster()
    assert cluster.actor.requests.memory == cluster.actor.limits.memory is not None
    assert cluster.parallelism_with_actors < cluster.parallelism
