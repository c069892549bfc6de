"""The rendered manifests: equal to a fresh build, valid by a strict schema, true to every rule;
each rule with its negative twin."""

from __future__ import annotations

import copy
import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from argo_lint import lint
from manifest_rules import IS_TRAINED, RULES, Manifest, Rule, dags, leaves
from strict_schema import strict_schema

from config import pipeline
from config.algorithms import ALGORITHMS, find_algorithm, ppo
from config.cluster import load_cluster
from config.described import parameters
from config.errors import BadInput
from config.pod_labels import PODS_PER_GPU
from config.resolve import resolve
from workflows.dag import manifest_yaml, render
from workflows.local.language.tags import replace as replaced

WITH_ACTORS = replace(
    ppo.ALGORITHM, name="crowd", topology="actor-learner", actor="nowhere:make_actor"
)
CROWD = f"{__name__}:WITH_ACTORS"
OF_MANY = (render.STUDY, render.SEARCH)
MANIFESTS = (*ALGORITHMS, *OF_MANY)
OWN_CLUSTER = """
namespace: learning
gpu_image: registry.example/rl@sha256:{digest}
gpu_resource: amd.com/gpu
parallelism: 3
training_memory: 32Gi
gpu: {{limits: {{cpu: "8"}}, node_selector: {{pool: gpu}}, tolerations: [{{key: amd.com/gpu, operator: Exists}}]}}
cpu: {{requests: {{cpu: 500m, memory: 1Gi}}, node_selector: {{pool: cpu}}}}
""".format(digest="0" * 64)


def committed(algorithm: str) -> str:
    path = render.FOLDER / f"{algorithm}.yaml"
    return path.read_text() if path.is_file() else ""


@functools.cache
def built(algorithm: str) -> str:
    """A fresh build as text: what the rules hold for, so that a stale file breaks one test only."""
    cluster = load_cluster()
    if algorithm in OF_MANY:
        active = cluster.parallel_experiments
        made = render.build_study_manifest(cluster, active, kind=algorithm)
        return render.study_to_yaml(made, cluster, active, kind=algorithm)
    return render.to_yaml(render.build_manifest(algorithm, cluster), algorithm, cluster)


def fresh(algorithm: str) -> Manifest:
    cluster = load_cluster()
    if algorithm in OF_MANY:
        active = cluster.parallel_experiments
        return render.build_study_manifest(cluster, active, kind=algorithm)
    return render.build_manifest(algorithm, cluster)


@pytest.fixture(scope="module", name="strict_schema")
def validator() -> Any:
    return strict_schema()


@pytest.fixture(scope="module")
def own_cluster_manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    path = tmp_path_factory.mktemp("cluster") / "cluster.yaml"
    path.write_text(OWN_CLUSTER)
    return render.build_manifest("ppo", load_cluster(path))


@pytest.fixture
def manifest() -> Manifest:
    return manifest_yaml.load(built("ppo"))


@pytest.fixture(scope="module")
def built_with_actors() -> Manifest:
    return render.build_manifest(CROWD, load_cluster())


@pytest.fixture
def with_actors(built_with_actors: Manifest) -> Manifest:
    return copy.deepcopy(built_with_actors)


def test_the_committed_files_are_fresh_builds() -> None:
    stale = [name for name in MANIFESTS if committed(name) != built(name)]
    assert stale == [], "run `make manifests`"
    assert {path.stem for path in render.FOLDER.glob("*.yaml")} == set(MANIFESTS)


@pytest.mark.parametrize("algorithm", MANIFESTS)
def test_the_text_is_what_was_built(algorithm: str) -> None:
    assert manifest_yaml.load(built(algorithm)) == fresh(algorithm)


def test_a_new_step_or_parameter_needs_no_rendering_by_hand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The committed file knows nothing of it, whenever it was written."""
    monkeypatch.setattr(render, "_edited_since", lambda committed: False)
    monkeypatch.setattr(
        pipeline, "STEPS", (*pipeline.STEPS, pipeline.Step(name="tell", scope="experiment"))
    )
    assert leaf(render.rendered("ppo", load_cluster()), "tell")


def test_an_edited_module_needs_no_rendering_by_hand(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "ppo.yaml"
    path.write_text(built("ppo").replace("experiment", "stale"))
    monkeypatch.setattr(render, "FOLDER", tmp_path)
    assert render.rendered("ppo", load_cluster()) == manifest_yaml.load(path.read_text())
    os.utime(path, (0, 0))
    assert render.rendered("ppo", load_cluster()) == manifest_yaml.load(built("ppo"))


def test_what_can_be_listed_is_offered_with_the_empty_value_where_it_is_allowed(
    manifest: Manifest,
) -> None:
    offered = {
        one["name"]: one["enum"]
        for one in manifest["spec"]["arguments"]["parameters"]
        if "enum" in one
    }
    assert offered["device"] == ["auto", "cpu", "cuda"]
    assert offered["evaluation_policy"] == ["", "greedy", "sample"]
    assert offered["full_action_set"] == ["", "true", "false"]
    assert offered["clip_rewards"] == ["", "true", "false"], "empty: the preset's"
    for name, texts in offered.items():
        for text in texts:
            resolve(
                "ppo",
                {"game": "cartpole" if name == "normalise_observations" else "pong", name: text},
            )


def test_two_builds_in_one_process_are_equal() -> None:
    cluster = load_cluster()
    assert render.build_manifest("ppo", cluster) == render.build_manifest("ppo", cluster)


def test_the_render_command_writes_what_is_built(tmp_path: Path) -> None:
    made, templates = tmp_path / "made", tmp_path / "templates"
    made.mkdir()
    templates.mkdir()
    command = [sys.executable, "-m", "workflows.dag.committed", str(made), str(templates)]
    subprocess.run(command, check=True, timeout=60)
    assert {path.stem for path in made.iterdir()} == set(MANIFESTS)
    for algorithm in MANIFESTS:
        assert (made / f"{algorithm}.yaml").read_text() == built(algorithm)
    committed = render.FOLDER.parents[1] / "containers" / "kubernetes" / "templates"
    assert sorted(path.name for path in templates.iterdir()) == sorted(
        path.name for path in committed.iterdir()
    )
    for path in templates.iterdir():
        assert path.read_text() == (committed / path.name).read_text(), f"make manifests: {path}"


def test_the_committed_file_serves_only_its_own_cluster(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(OWN_CLUSTER)
    other, own = load_cluster(path), load_cluster()
    assert render.rendered("ppo", own) == manifest_yaml.load(built("ppo"))
    assert (
        render.rendered("ppo", other)
        == render.build_manifest("ppo", other)
        != render.rendered("ppo", own)
    )


@pytest.mark.parametrize("algorithm", MANIFESTS)
def test_schema(strict_schema: Any, algorithm: str) -> None:
    manifest = manifest_yaml.load(built(algorithm))
    assert [error.message for error in strict_schema.iter_errors(manifest)] == []


def test_schema_with_actors(strict_schema: Any, with_actors: Manifest) -> None:
    assert [error.message for error in strict_schema.iter_errors(with_actors)] == []


def test_schema_of_another_cluster(strict_schema: Any, own_cluster_manifest: Manifest) -> None:
    assert [error.message for error in strict_schema.iter_errors(own_cluster_manifest)] == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda manifest: manifest["spec"].update(entryPoint="experiment"),
        lambda manifest: leaves(manifest)[0]["container"].update(comand=["python"]),
        lambda manifest: leaves(manifest)[0]["retryStrategy"].update(limit=[20]),
        lambda manifest: dags(manifest)[0]["dag"]["tasks"][0].update(whenn="true"),
        lambda manifest: manifest["spec"]["volumes"][1]["emptyDir"].update(size="1Gi"),
        lambda manifest: manifest.pop("spec"),
    ],
)
def test_the_schema_catches_a_slip(
    strict_schema: Any, manifest: Manifest, damage: Callable[[Manifest], None]
) -> None:
    damage(manifest)
    assert list(strict_schema.iter_errors(manifest))


@pytest.mark.parametrize("algorithm", MANIFESTS)
def test_every_rule(algorithm: str) -> None:
    manifest = manifest_yaml.load(built(algorithm))
    assert {rule.__name__: list(rule(manifest)) for rule in RULES} == {
        rule.__name__: [] for rule in RULES
    }


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule_on_another_cluster(rule: Rule, own_cluster_manifest: Manifest) -> None:
    assert list(rule(own_cluster_manifest)) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule_with_actors(rule: Rule, with_actors: Manifest) -> None:
    assert list(rule(with_actors)) == []


def leaf(manifest: Manifest, name: str) -> dict[str, Any]:
    return next(template for template in leaves(manifest) if template["name"] == name)


def task(manifest: Manifest, name: str) -> dict[str, Any]:
    return next(one for dag in dags(manifest) for one in dag["dag"]["tasks"] if one["name"] == name)


def spec_without(name: str) -> Callable[[Manifest], None]:
    return lambda manifest: manifest["spec"].pop(name) and None


def spec_with(**values: Any) -> Callable[[Manifest], None]:
    return lambda manifest: manifest["spec"].update(values)


def set_in_leaf(name: str, *path: str, value: Any) -> Callable[[Manifest], None]:
    def change(manifest: Manifest) -> None:
        section = leaf(manifest, name)
        for key in path[:-1]:
            section = section[key]
        section[path[-1]] = value

    return change


def set_in_task(name: str, /, **values: Any) -> Callable[[Manifest], None]:
    return lambda manifest: task(manifest, name).update(values)


def argument(name: str, /, **values: Any) -> Callable[[Manifest], None]:
    def change(manifest: Manifest) -> None:
        next(
            one for one in manifest["spec"]["arguments"]["parameters"] if one["name"] == name
        ).update(values)

    return change


GPUS_ONLY = (
    '{"containers":[{"name":"main","resources":{"limits":{"nvidia.com/gpu":"1","memory":"4Gi"}}}]}'
)
OF_ACTORS = "actors_hold_nothing_back"
OF_HELPERS = "helpers_wait_for_their_training"
DAMAGES: dict[str, list[Callable[[Manifest], Any]]] = {
    "runs_a_step_without_a_shell": [
        set_in_leaf("train", "container", "command", value=["sh", "-c", "python -m steps.train {{workflow.parameters.game}}"]),
        set_in_leaf("train", "container", "command", value=["python", "-c", "import steps"]),
        set_in_leaf("train", "container", "command", value=[]),
        set_in_leaf("play", "container", "args", value=["bash", "-c", "true"]),
        set_in_leaf("play", "script", value={"source": "print(1)"}),
    ],
    "every_tag_resolves": [
        set_in_leaf("train", "container", "args", value=["--run={{inputs.parameters.rum}}"]),
        set_in_leaf("average", "container", "args", value=["--status={{workflow.status}}"]),
        set_in_task("runs", withParam="{{tasks.prepare.outputs.parameters.list}}"),
        set_in_task("average", arguments={"parameters": [{"name": "run", "value": "{{item}}"}]}),
        lambda manifest: manifest["spec"].update(serviceAccountName="{{workflow.parameters.account}}"),
        lambda manifest: dags(manifest)[0]["inputs"]["parameters"][1].update(default="{{workflow.parameters.all}}"),
    ],
    "every_task_and_argument_exists": [
        set_in_task("evaluate", template="evaluation"), set_in_task("evaluate", arguments={}),
        lambda manifest: manifest["spec"]["templates"].append({"name": "unused", "container": {}}),
        lambda manifest: manifest["spec"]["templates"].append(copy.deepcopy(leaf(manifest, "train"))),
    ],
    "entry_and_exit_have_their_inputs": [
        lambda manifest: dags(manifest)[0]["inputs"]["parameters"][1].pop("default"),
        lambda manifest: dags(manifest)[2].update(inputs={"parameters": [{"name": "outdir"}]}),
    ],
    "reads_only_ancestors": [set_in_task("evaluate", depends=""), set_in_task("average", when='"{{tasks.plot-average.status}}" == ""')],
    "conditions_read_outputs_with_a_default": [
        lambda manifest: leaf(manifest, "train")["outputs"]["parameters"][0]["valueFrom"].pop("default"),
    ],
    OF_ACTORS: [
        set_in_task("actor", continueOn={"failed": True}), set_in_task("actor", continueOn={}),
        set_in_task("evaluate", depends="train.Succeeded && train-actors.Succeeded"),
        lambda manifest: dags(manifest)[-1]["dag"]["tasks"].append({"name": "other", "template": "play"}),
    ],
    "never_reads_a_tolerated_producer": [
        set_in_task("evaluate", depends="train.Succeeded || train.Failed"),
        set_in_task("runs", depends="prepare.Errored"),
    ],
    "dependencies_name_a_result": [
        set_in_task("plot-evaluation", depends="evaluate"), set_in_task("plot-evaluation", depends="evaluate && train.Succeeded"),
        set_in_task("plot-evaluation", dependencies=["evaluate"]),
    ],
    OF_HELPERS: [
        set_in_task("actor", dependencies=[]),
        set_in_leaf("wait-for-training", "container", "resources", "requests", "cpu", value="1"),
    ],
    "an_image_that_cannot_be_pulled_ends": [
        lambda manifest: leaf(manifest, "prepare").pop("activeDeadlineSeconds"),
        lambda manifest: leaf(manifest, "train").update(activeDeadlineSeconds=1800),
    ],
    "only_leaves_are_retried": [
        lambda manifest: leaf(manifest, "evaluate").pop("retryStrategy"),
        lambda manifest: dags(manifest)[0].update(retryStrategy={"limit": "3"}),
        lambda manifest: manifest["spec"].update(templateDefaults={"retryStrategy": {"limit": "3"}}),
        set_in_leaf("train", "retryStrategy", "expression", value="true"),
        set_in_leaf("train", "retryStrategy", "retryPolicy", value="OnError"),
        set_in_leaf("train", "retryStrategy", "limit", value="1"),
    ],
    "pods_are_restricted": [
        lambda manifest: manifest["spec"]["securityContext"].update(runAsUser=0),
        lambda manifest: manifest["spec"]["securityContext"].update(runAsGroup=0),
        lambda manifest: manifest["spec"]["securityContext"].pop("seccompProfile"),
        set_in_leaf("train", "container", "securityContext", "allowPrivilegeEscalation", value=True),
        set_in_leaf("train", "container", "securityContext", "capabilities", value={}),
        set_in_leaf("train", "container", "securityContext", "readOnlyRootFilesystem", value=False),
        lambda manifest: manifest["spec"].update(hostNetwork=True),
        lambda manifest: manifest["spec"]["volumes"].append({"name": "host", "hostPath": {"path": "/"}}),
    ],
    "pods_have_an_account_of_their_own": [spec_without("serviceAccountName")],
    "pods_say_what_they_need": [
        lambda manifest: leaf(manifest, "play")["container"]["resources"].pop("limits"),
        lambda manifest: leaf(manifest, "play")["container"]["resources"]["requests"].pop("cpu"),
        lambda manifest: leaf(manifest, "train").pop("podSpecPatch"),
    ],
    "a_training_gets_the_memory_of_its_parameter": [
        lambda manifest: leaf(manifest, "train").pop("podSpecPatch"),
        lambda manifest: leaf(manifest, "train").update(podSpecPatch=GPUS_ONLY),
        lambda manifest: leaf(manifest, "play").update(podSpecPatch=leaf(manifest, "train")["podSpecPatch"]),
    ],
    "only_training_asks_for_gpus": [
        lambda manifest: leaf(manifest, "play").update(podSpecPatch=leaf(manifest, "train")["podSpecPatch"]),
        lambda manifest: leaf(manifest, "train").pop("podSpecPatch"),
        lambda manifest: leaf(manifest, "play")["container"]["resources"]["limits"].update({"nvidia.com/gpu": "1"}),
        lambda manifest: leaf(manifest, "play")["container"]["env"].remove({"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}),
    ],
    "images_are_parameters_with_a_version": [
        argument("gpu_image", value="rl:latest"), argument("cpu_image", value="registry:5000/rl"),
        set_in_leaf("play", "container", "image", value="python:3.11"),
    ],
    "mounts_are_known_and_declared": [
        lambda manifest: manifest["spec"]["volumes"].pop(0), lambda manifest: manifest["spec"]["volumes"][1].update(emptyDir={}),
        lambda manifest: leaf(manifest, "play")["container"]["volumeMounts"].pop(),
        lambda manifest: leaf(manifest, "train")["outputs"]["parameters"][0]["valueFrom"].update(path="/evaluate"),
    ],
    "cleans_up_after_itself": [spec_without("podGC"), spec_without("ttlStrategy"), spec_without("podSpecPatch")],
    "ends_with_a_report": [spec_without("onExit"), spec_with(onExit="average"), spec_with(onExit="report")],
    "names_fit": [
        lambda manifest: manifest["metadata"].update(generateName="p" * 60),
        lambda manifest: manifest["metadata"].update(namespace="argo"),
        set_in_task("play", name="plot_training"),
    ],
    "every_value_is_text": [
        argument("runs", value=3), argument("runs", description=""), argument("device", value="gpu"),
        argument("clip_rewards", enum=["true"]),
        set_in_leaf("play", "container", "env", value=[{"name": "OMP_NUM_THREADS", "value": 1}]),
    ],
}  # fmt: skip


EACH_DAMAGE = [
    pytest.param(rule, damage, id=f"{rule.__name__}-{index}")
    for rule in RULES
    for index, damage in enumerate(DAMAGES[rule.__name__])
]


@pytest.mark.parametrize(("rule", "damage"), EACH_DAMAGE)
def test_each_rule_can_fail(
    rule: Rule, damage: Callable[[Manifest], Any], manifest: Manifest, with_actors: Manifest
) -> None:
    damaged = with_actors if rule.__name__ in (OF_ACTORS, OF_HELPERS) else manifest
    damage(damaged)
    assert list(rule(damaged))


def members_of(parameter: str) -> str:
    """The number of members of a stage: as many as the parameter says, none of a trained run."""
    return f"{{{{={IS_TRAINED} ? 0 : asInt(inputs.parameters.{parameter})}}}}"


def test_the_actors_of_a_run_stand_beside_its_training(with_actors: Manifest) -> None:
    """Nothing else of the run is different from one process that trains."""
    alone = manifest_yaml.load(built("ppo"))
    run, alone_run = (
        next(dag for dag in dags(one) if dag["name"] == "run")["dag"]["tasks"]
        for one in (with_actors, alone)
    )
    (beside,) = [one for one in run if one not in alone_run]
    assert [one for one in run if one is not beside] == alone_run
    assert (beside["name"], beside.get("depends", "")) == ("train-actors", "")
    loop = task(with_actors, "actor")
    assert loop["withSequence"] == {"count": members_of("actors")}
    own = {"name": "member", "value": "{{item}}"}
    assert own in loop["arguments"]["parameters"]
    given = ["--outdir={{inputs.parameters.outdir}}", "--run={{inputs.parameters.run}}"]
    learner, actor = (leaf(with_actors, name) for name in ("train", "train-actor"))
    assert learner["container"]["args"] == [*given, "--role=learner"]
    member = "--member={{inputs.parameters.member}}"
    assert actor["container"]["args"] == [*given, "--role=actor", member]
    assert actor["container"]["command"] == learner["container"]["command"]
    assert int(actor["retryStrategy"]["limit"]) >= 100
    assert "outputs" not in actor


def test_the_workers_of_self_play_stand_beside_their_trainer_and_hold_nothing_back() -> None:
    """Evaluation, film and plots need the trainer alone; how a worker ends is nobody's failure."""
    manifest = manifest_yaml.load(built("alphazero"))
    tasks = next(dag for dag in dags(manifest) if dag["name"] == "run")["dag"]["tasks"]
    (beside,) = [one for one in tasks if one["name"].startswith("train-")]
    assert (beside["name"], beside.get("depends", "")) == ("train-workers", "")
    assert not [one for one in tasks if "train-workers" in one.get("depends", "")]
    loop = task(manifest, "worker")
    assert loop["withSequence"] == {"count": members_of("workers")}
    assert loop["continueOn"] == {"failed": True, "error": True}
    trainer, worker = (leaf(manifest, name) for name in ("train", "train-worker"))
    assert trainer["container"]["args"][-1] == "--role=trainer"
    given = trainer["container"]["args"][:-1]
    member = "--member={{inputs.parameters.member}}"
    assert worker["container"]["args"] == [*given, "--role=worker", member]
    assert "nvidia.com/gpu" in trainer["podSpecPatch"]
    assert int(worker["retryStrategy"]["limit"]) >= 100
    assert "outputs" not in worker


def test_further_learners_stand_beside_the_first_where_there_can_be_some() -> None:
    several, alone = (manifest_yaml.load(built(name)) for name in ("impala", "r2d2"))
    assert not [one for one in alone["spec"]["templates"] if "learner" in one["name"]]
    tasks = next(dag for dag in dags(several) if dag["name"] == "run")["dag"]["tasks"]
    assert {one["name"] for one in tasks} > {"train-learners", "train-actors"}
    assert not [one for one in tasks if "train-" in one.get("depends", "").replace("plot-", "")]
    loop = task(several, "learner")
    count = members_of("learners").removesuffix("}}")
    assert loop["withSequence"] == {"start": "1", "count": f"{count} - 1}}}}"}
    assert loop["continueOn"] == {"failed": True, "error": True}
    first, further = (leaf(several, name) for name in ("train", "train-learner"))
    member = "--member={{inputs.parameters.member}}"
    assert further["container"]["args"] == [*first["container"]["args"], member]
    for same in ("podSpecPatch", "retryStrategy", "tolerations"):
        assert further[same] == first[same]
    assert "outputs" not in further


def test_fewer_runs_are_active_where_they_have_actors(
    with_actors: Manifest, manifest: Manifest
) -> None:
    active, alone = (
        next(dag for dag in dags(one) if dag["name"] == "experiment")["parallelism"]
        for one in (with_actors, manifest)
    )
    assert active < alone


@pytest.mark.parametrize(("own", "image"), [("", "rl:1-cpu"), ("sim:2", "sim:2")])
def test_actors_have_an_image_of_their_own_if_they_are_given_one(
    with_actors: Manifest, own: str, image: str
) -> None:
    values = {
        "inputs.parameters.actor_image": own,
        "inputs.parameters.cpu_image": "rl:1-cpu",
        "inputs.parameters.actors": "3",
    }
    container = replaced(leaf(with_actors, "train-actor")["container"], values)
    assert container["image"] == image
    assert {"name": "EXPERIMENT_IMAGE", "value": image} in container["env"]


@pytest.mark.parametrize(("run", "asked"), [("0", "0"), ("2", "3"), ("10", "3"), ("11", "0")])
def test_a_run_that_is_trained_asks_for_no_gpu_and_no_actor(
    with_actors: Manifest, run: str, asked: str
) -> None:
    values = {
        "inputs.parameters.trained": ",0,1,11,", "inputs.parameters.run": run,
        "inputs.parameters.gpus": "3", "inputs.parameters.actors": "3",
        "inputs.parameters.runs_per_gpu": "1",
        "inputs.parameters.training_memory": "4Gi",
    }  # fmt: skip
    training = replaced(leaf(with_actors, "train"), values)
    (patched,) = json.loads(training["podSpecPatch"])["containers"]
    assert patched["resources"]["limits"]["nvidia.com/gpu"] == asked
    assert replaced(task(with_actors, "actor")["withSequence"], values) == {"count": asked}


@pytest.mark.parametrize("role", ["actor", "worker"])
@pytest.mark.parametrize(
    ("gpus", "per_gpu", "limits"),
    [
        ("0", "1", {"nvidia.com/gpu": "0"}), ("3", "1", {"nvidia.com/gpu": "1"}),
        ("3", "4", {"nvidia.com/gpu.shared": "1"}),
    ],
)  # fmt: skip
def test_an_actor_and_a_worker_ask_for_one_gpu_or_their_part_of_one(
    with_actors: Manifest, role: str, gpus: str, per_gpu: str, limits: dict[str, str]
) -> None:
    values = {
        f"inputs.parameters.{role}_gpus": gpus, f"inputs.parameters.{role}s_per_gpu": per_gpu,
    }  # fmt: skip
    manifests = {"actor": with_actors, "worker": manifest_yaml.load(built("alphazero"))}
    helper = replaced(leaf(manifests[role], f"train-{role}"), values)
    (patched,) = json.loads(helper["podSpecPatch"])["containers"]
    assert patched == {"name": "main", "resources": {"limits": limits}}
    assert helper["metadata"]["annotations"] == {PODS_PER_GPU: per_gpu}


@pytest.mark.parametrize(("gpus", "image"), [("0", "rl:1-cpu"), ("2", "rl:1-gpu")])
def test_workers_with_gpus_have_the_image_of_trainings(gpus: str, image: str) -> None:
    values = {
        "inputs.parameters.worker_gpus": gpus,
        "inputs.parameters.cpu_image": "rl:1-cpu",
        "inputs.parameters.gpu_image": "rl:1-gpu",
    }
    worker = leaf(manifest_yaml.load(built("alphazero")), "train-worker")
    assert replaced(worker["container"], values)["image"] == image


def test_parameters_of_actors_are_only_where_there_are_actors(
    with_actors: Manifest, manifest: Manifest
) -> None:
    offered, alone = (
        {one["name"]: one["value"] for one in found["spec"]["arguments"]["parameters"]}
        for found in (with_actors, manifest)
    )
    of_actors = {
        "actors": "2",
        "actor_image": "",
        "actor_command": "",
        "actor_gpus": "0",
        "actors_per_gpu": "1",
        "reconnect_timeout": "300",
        "no_data_timeout": "600",
        "envs_per_actor": "",
    }
    assert {name: offered[name] for name in offered.keys() - alone.keys()} == of_actors
    assert alone.keys() - offered.keys() == {"num_envs"}
    told = leaf(with_actors, "prepare")["container"]["args"]
    assert "actors={{workflow.parameters.actors}}" in told
    assert "actor_image={{workflow.parameters.actor_image}}" in told
    assert "actor_command={{workflow.parameters.actor_command}}" in told


def test_the_figure(manifest: Manifest) -> None:
    """The DAG of the design, edge by edge; a step that is added changes none of them."""
    edges = {
        one["name"]: one.get("depends", "") for dag in dags(manifest) for one in dag["dag"]["tasks"]
    }
    assert edges | {
        "prepare": "", "runs": "prepare.Succeeded", "average": "(runs.Succeeded || runs.Failed || runs.Errored)",
        "plot-average": "average.Succeeded", "train": "", "evaluate": "train.Succeeded", "play": "evaluate.Succeeded",
        "plot-training": "train.Succeeded", "plot-evaluation": "evaluate.Succeeded", "report": "",
        "notify": "(report.Succeeded || report.Failed || report.Errored)",
    } == edges  # fmt: skip
    conditional = {
        one["name"] for dag in dags(manifest) for one in dag["dag"]["tasks"] if "when" in one
    }
    assert conditional == {"evaluate", "notify", "track", "track-rest"}
    assert (manifest["spec"]["entrypoint"], manifest["spec"]["onExit"]) == ("experiment", "finish")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_parameters_are_those_of_config(algorithm: str) -> None:
    manifest = manifest_yaml.load(built(algorithm))
    offered = {one["name"]: one["value"] for one in manifest["spec"]["arguments"]["parameters"]}
    never_set = find_algorithm(algorithm).never_set
    assert offered == {
        info.name: info.default for info in parameters(algorithm) if info.name not in never_set
    }
    assert resolve(algorithm, offered).algorithm == algorithm, "argo submit as it stands"


OTHER_VALUES = {"evaluate_above": "0.5", "evaluation_policy": "sample", "learners": "2"}
"""Of the parameters that some algorithms refuse whatever else is set: a value that is not the default."""


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_manifest_offers_only_what_can_be_set(algorithm: str) -> None:
    manifest = manifest_yaml.load(built(algorithm))
    offered = {one["name"] for one in manifest["spec"]["arguments"]["parameters"]}
    known = {info.name for info in parameters(algorithm)}
    for name, value in OTHER_VALUES.items():
        try:
            resolve(algorithm, {name: value})
        except BadInput:
            assert name not in offered, f"{algorithm} refuses every {name} but the default"
        else:
            assert name in offered
    assert known - offered <= OTHER_VALUES.keys()


def test_every_step_runs_its_module(manifest: Manifest) -> None:
    modules = {one["name"]: one["container"]["command"][2] for one in leaves(manifest)}
    steps = (*pipeline.STEPS, pipeline.NOTICE)
    assert modules == {step.name: step.module for step in steps}
    assert (modules["train"], modules["plot-average"]) == ("steps.train", "steps.plot_average")


def test_cluster_settings_arrive(own_cluster_manifest: Manifest) -> None:
    train, play = leaf(own_cluster_manifest, "train"), leaf(own_cluster_manifest, "play")
    assert train["nodeSelector"] == {"pool": "gpu"} and play["nodeSelector"] == {"pool": "cpu"}
    assert (
        train["tolerations"] == [{"key": "amd.com/gpu", "operator": "Exists"}]
        and "tolerations" not in play
    )
    assert "amd.com/gpu" in train["podSpecPatch"]
    assert train["container"]["resources"]["limits"] == {"cpu": "8"}
    values = own_cluster_manifest["spec"]["arguments"]["parameters"]
    assert {one["name"]: one["value"] for one in values}["training_memory"] == "32Gi"
    assert play["container"]["resources"]["requests"] == {"cpu": "500m", "memory": "1Gi"}
    assert (
        next(dag for dag in dags(own_cluster_manifest) if dag["name"] == "experiment")[
            "parallelism"
        ]
        == 3
    )


class WithoutResolution(yaml.SafeLoader):
    """Reads every plain scalar as the text that stands there, as a person sees it."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012


# What some reader of YAML 1.1 or 1.2 (Go's among them) takes for a number, a boolean or null.
NOT_TEXT = re.compile(
    r"[-+]?(\.[0-9]|[0-9])[0-9_]*([.:][0-9_]*)*([eE][-+]?[0-9]+)?|0[xob][0-9a-fA-F_]+|~|null|(?i:y|yes|n|no|on|off|true|false)|[-+]?\.(?i:inf|nan)"
)


def plain_scalars(text: str) -> Iterator[tuple[str, str]]:
    def walk(node: yaml.Node, key: str) -> Iterator[tuple[str, str]]:
        if isinstance(node, yaml.MappingNode):
            for name, value in node.value:
                yield from walk(value, name.value)
        elif isinstance(node, yaml.SequenceNode):
            for value in node.value:
                yield from walk(value, key)
        elif isinstance(node, yaml.ScalarNode) and node.style is None:
            yield key, node.value

    yield from walk(yaml.compose(text, Loader=WithoutResolution), "")


NUMBERS_AND_BOOLEANS = {
    "parallelism", "fsGroup", "runAsGroup", "runAsUser", "secondsAfterCompletion", "runAsNonRoot", "allowPrivilegeEscalation",
    "readOnlyRootFilesystem", "error", "failed", "activeDeadlineSeconds", "optional",
}  # fmt: skip


@pytest.mark.parametrize("algorithm", MANIFESTS)
def test_no_text_looks_like_a_number(algorithm: str) -> None:
    assert [
        one
        for one in plain_scalars(built(algorithm))
        if NOT_TEXT.fullmatch(one[1]) and one[0] not in NUMBERS_AND_BOOLEANS
    ] == []


@pytest.mark.parametrize(
    "text",
    [
        "3e5",
        "1e-4",
        "0x10",
        "1_000",
        "on",
        "no",
        "010",
        "12:30:45",
        ".5",
        "1.",
        "",
        "~",
        "true",
        "2024-01-01",
    ],
)
def test_ambiguous_text_is_quoted(text: str) -> None:
    written = manifest_yaml.dump({"value": text})
    assert written == f"value: '{text}'\n"
    assert yaml.safe_load(written) == {"value": text}


def test_values_replace_defaults_as_argo_submit_does(manifest: Manifest) -> None:
    filled = render.with_values(
        manifest, {"runs": "3", "game": "breakout"}, name="ppo-1", deadline_s=60
    )
    values = {one["name"]: one["value"] for one in filled["spec"]["arguments"]["parameters"]}
    assert (values["runs"], values["game"], values["seed"]) == ("3", "breakout", "0")
    assert filled["metadata"] == {"name": "ppo-1"} and filled["spec"]["activeDeadlineSeconds"] == 60
    assert manifest == manifest_yaml.load(built("ppo")), "the original was changed"


def test_argo_lint(tmp_path: Path, own_cluster_manifest: Manifest) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(manifest_yaml.dump(own_cluster_manifest))
    for file in (*sorted(render.FOLDER.glob("*.yaml")), path):
        ended = lint(file)
        assert ended.returncode == 0, ended.stdout + ended.stderr


def test_argo_lint_can_fail(tmp_path: Path, manifest: Manifest) -> None:
    task(manifest, "average")["depends"] = "rums.Succeeded"
    path = tmp_path / "broken.yaml"
    path.write_text(manifest_yaml.dump(manifest))
    assert lint(path).returncode == 1
