"""containers/compose.yaml, which cannot run here: it is read as Docker reads it, and what it starts is
what the manifest starts."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from typing import Any

import pytest
import yaml

from config.algorithms import ppo
from config.cluster import load_cluster
from config.given import from_assignments
from config.resolve import resolve
from tests.outside import ROOT
from workflows.dag import render

COMPOSE = ROOT / "containers" / "compose.yaml"
WITH_ACTORS = replace(ppo.ALGORITHM, topology="actor-learner", actor="nowhere:make_actor")


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]
    return read


def command_of(template: dict[str, Any], **inputs: str) -> list[str]:
    container = template["container"]
    words = [*container["command"], *container["args"]]
    for name, value in inputs.items():
        words = [word.replace(f"{{{{inputs.parameters.{name}}}}}", value) for word in words]
    return words


def test_learner_and_actors_are_started_as_in_the_manifest(services: dict[str, Any]) -> None:
    templates = render.build_manifest(f"{__name__}:WITH_ACTORS", load_cluster())["spec"][
        "templates"
    ]
    learner, actor = (
        next(one for one in templates if one["name"] == name) for name in ("train", "train-actor")
    )
    where = {"outdir": "/storage/impala", "run": "0"}
    for name in ("learner", "gpu-learner"):
        assert services[name]["command"] == command_of(learner, **where)
    started = [*services["actor"]["entrypoint"], *services["actor"]["command"]]
    assert started == command_of(actor, **where, member="0")
    assert f"outdir={where['outdir']}" in services["prepare"]["command"]


def test_what_evaluates_afterwards_is_given_the_same_parameters(services: dict[str, Any]) -> None:
    """And so continues the directory that `prepare` has made."""
    (line,) = re.findall(r"run --rm experiment (python .* impala .*)", COMPOSE.read_text())
    afterwards, prepare = shlex.split(line), services["prepare"]["command"]
    given, prepared = (words[words.index("-p") :] for words in (afterwards, prepare))
    assert given == prepared
    assert afterwards[3] == prepare[4] == "impala"
    resolve("impala", from_assignments(prepared[1::2]))


def test_only_those_who_talk_have_a_network_and_nobody_has_the_outside(
    services: dict[str, Any],
) -> None:
    inside = {name for name, one in services.items() if "networks" in one}
    assert inside == {"learner", "gpu-learner", "actor"}
    assert {services[name].get("network_mode") for name in services.keys() - inside} == {"none"}
    whole = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))
    assert whole["networks"] == {"inside": {"internal": True}}
    for name in inside:
        assert services[name]["networks"] == ["inside"]
    for name in ("learner", "gpu-learner"):
        assert services[name]["environment"]["POD_IP"] == services[name]["hostname"] == "learner"


def test_every_container_is_as_restricted_as_a_pod(services: dict[str, Any]) -> None:
    for name, service in services.items():
        assert service["read_only"] and service["cap_drop"] == ["ALL"], name
        assert service["user"].endswith("1000:1000}"), name
        assert service["volumes"] == ["../storage:/storage"], name
