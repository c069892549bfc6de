"""What every manifest of this project must be beyond the schema: one function per rule, yielding
one line per violation."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

Manifest = dict[str, Any]
Rule = Callable[[Manifest], Iterator[str]]

SHELLS = {"sh", "bash", "ash", "dash", "zsh", "env", "eval"}
RETRY_UNLESS_FINAL = "lastRetry.status == 'Error' || !(asInt(lastRetry.exitCode) in [2, 3, 4, 5])"
RETRY_UNLESS_LATE = (
    f"({RETRY_UNLESS_FINAL}) && "
    "!(lastRetry.message contains 'Pod was active on the node longer than the specified deadline')"
)
TAG = re.compile(r"\{\{\s*(.+?)\s*\}\}")
NAMED = re.compile(r"[a-z]+(?:\.[A-Za-z0-9_-]+)+")
GPU_IMAGE = "{{inputs.parameters.gpu_image}}"
IS_TRAINED = "inputs.parameters.trained contains (',' + inputs.parameters.run + ',')"
GPUS = f"{{{{={IS_TRAINED} ? '0' : inputs.parameters.gpus}}}}"
IMAGES_OF_HELPERS = {
    "train-actor": "{{=inputs.parameters.actor_image != '' ? inputs.parameters.actor_image"
    " : inputs.parameters.cpu_image}}",
    "train-worker": "{{=asInt(inputs.parameters.worker_gpus) == 0 ? inputs.parameters.cpu_image"
    " : inputs.parameters.gpu_image}}",
}
IMAGES_OF_HELPERS |= {f"{name}-until": image for name, image in IMAGES_OF_HELPERS.items()}
IMAGE_OF_WORKFLOW = "{{workflow.parameters.cpu_image}}"
OUTSIDE_OF_EXPERIMENTS = {
    f"steps.{name}"
    for name in (
        *("prepare", "plan", "decide", "compare", "plot_comparison", "report_study"),
        *("plan_search", "propose", "judge", "tell", "choose", "report_search", "notify"),
    )
}
"""What no experiment can name an image for: it does not exist yet, or there are many."""
FIRST_AND_LAST = {
    f"steps.{name}"
    for name in (
        *("prepare", "report", "track_rest", "plan", "decide", "report_study"),
        *("plan_search", "propose", "judge", "tell", "choose", "report_search", "notify"),
    )
}
GPUS_OF_HELPERS = {
    "train-actor": "{{=asInt(inputs.parameters.actor_gpus) == 0 ? '0' : '1'}}",
    "train-worker": "{{=asInt(inputs.parameters.worker_gpus) == 0 ? '0' : '1'}}",
}
GPUS_OF_HELPERS |= {f"{name}-until": gpus for name, gpus in GPUS_OF_HELPERS.items()}
LITERAL = re.compile(r"'[^']*'")
WORKFLOW_TAGS = {"workflow.name", "workflow.uid", "workflow.namespace", "workflow.parameters.json"}
WORKFLOW_TAGS |= {"workflow.duration"}
TOLERATED = {"failed": True, "error": True}
WAIT = "wait-for-training"
TRACKING = ("track", "track-rest")
NEEDED_MOUNTS = {"/storage", "/outputs", "/tmp"}  # noqa: S108
KNOWN_MOUNTS = NEEDED_MOUNTS | {"/dev/shm"}  # noqa: S108


def templates(manifest: Manifest) -> list[dict[str, Any]]:
    return manifest["spec"]["templates"]


def leaves(manifest: Manifest) -> list[dict[str, Any]]:
    return [template for template in templates(manifest) if "dag" not in template]


def dags(manifest: Manifest) -> list[dict[str, Any]]:
    return [template for template in templates(manifest) if "dag" in template]


def module(leaf: dict[str, Any]) -> str:
    """What a pod runs."""
    return str((leaf.get("container", {}).get("command") or [""])[-1])


def tags(value: Any) -> list[str]:
    """What is replaced; of an expression, `{{=a.b == 'x' ? c.d : e.f}}`, the names in it."""
    found = TAG.findall(json.dumps(value, ensure_ascii=False))
    return [
        name
        for tag in found
        for name in (NAMED.findall(LITERAL.sub("", tag)) if tag.startswith("=") else [tag])
    ]


def names_in(depends: str) -> set[str]:
    return set(re.findall(r"[A-Za-z0-9][-A-Za-z0-9]*(?=\.[A-Z])", depends))


def producers(value: Any, *, but: str = "no end of a tag") -> set[str]:
    """The tasks whose values are read. but: the end of a tag that has a value however they ended."""
    return {
        match.group(1)
        for tag in tags(value)
        if not tag.endswith(but) and (match := re.match(r"tasks\.([-A-Za-z0-9]+)\.", tag))
    }


def ancestors(tasks: list[dict[str, Any]], name: str) -> set[str]:
    direct = {task["name"]: names_in(task.get("depends", "")) for task in tasks}
    found: set[str] = set()
    waiting = list(direct[name])
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += direct.get(one, ())
    return found


OTHER_KINDS = frozenset(
    ("script", "steps", "containerSet", "data", "http", "plugin", "resource", "suspend")
)
"""Of templates: neither a container nor a DAG."""


def runs_a_step_without_a_shell(manifest: Manifest) -> Iterator[str]:
    for leaf in leaves(manifest):
        container = leaf.get("container")
        if container is None or set(leaf) & OTHER_KINDS:
            yield f"{leaf['name']}: is no plain container"
            continue
        command = container.get("command", [])
        if (
            command[:2] != ["python", "-m"]
            or len(command) != 3
            or not re.fullmatch(r"steps\.[a-z_]+", command[2])
        ):
            yield f"{leaf['name']}: command {command}"
        if SHELLS & {
            str(word).rsplit("/", 1)[-1] for word in [*command, *container.get("args", [])]
        }:
            yield f"{leaf['name']}: a shell in {command} {container.get('args')}"
        if "workflow.parameters." in json.dumps(command):
            yield f"{leaf['name']}: a parameter in its command"


def every_tag_resolves(manifest: Manifest) -> Iterator[str]:
    spec = manifest["spec"]
    everywhere = {
        f"workflow.parameters.{parameter['name']}" for parameter in spec["arguments"]["parameters"]
    } | WORKFLOW_TAGS
    outputs = {
        template["name"]: {
            parameter["name"] for parameter in template.get("outputs", {}).get("parameters", [])
        }
        for template in templates(manifest)
    }
    at_exit = {
        task["template"]
        for dag in dags(manifest)
        if dag["name"] == spec.get("onExit")
        for task in dag["dag"]["tasks"]
    }
    for template in templates(manifest):
        inputs = {
            f"inputs.parameters.{parameter['name']}"
            for parameter in template.get("inputs", {}).get("parameters", [])
        }
        known = (
            everywhere | inputs | ({"workflow.status"} if template["name"] in at_exit else set())
        )
        tasks = template.get("dag", {}).get("tasks", [])
        for task in tasks:
            loop = {"item"} if {"withParam", "withItems", "withSequence"} & set(task) else set()
            of_tasks = {
                f"tasks.{other['name']}.outputs.parameters.{name}"
                for other in tasks
                for name in outputs[other["template"]]
            } | {f"tasks.{other['name']}.status" for other in tasks}
            yield from (
                f"{template['name']}.{task['name']}: {{{{{tag}}}}}"
                for tag in tags(task)
                if tag not in known | loop | of_tasks
            )
        for parameter in template.get("inputs", {}).get("parameters", []):
            yield from (
                f"{template['name']}: {{{{{tag}}}}}"
                for tag in tags(parameter)
                if tag not in everywhere
            )
        if not tasks:
            yield from (
                f"{template['name']}: {{{{{tag}}}}}"
                for tag in tags(template)
                if tag not in known | {"node.name"}
            )
    rest = {key: value for key, value in spec.items() if key != "templates"}
    yield from (f"spec: {{{{{tag}}}}}" for tag in tags(rest) if tag not in everywhere)


def every_task_and_argument_exists(manifest: Manifest) -> Iterator[str]:
    inputs = {
        template["name"]: {
            parameter["name"] for parameter in template.get("inputs", {}).get("parameters", [])
        }
        for template in templates(manifest)
    }
    called = {manifest["spec"]["entrypoint"], manifest["spec"].get("onExit")}
    for dag in dags(manifest):
        for task in dag["dag"]["tasks"]:
            called.add(task["template"])
            given = {
                parameter["name"] for parameter in task.get("arguments", {}).get("parameters", [])
            }
            if task["template"] not in inputs or given != inputs[task["template"]]:
                yield f"{dag['name']}.{task['name']}: calls {task['template']} with {sorted(given)}"
    yield from (f"{name}: is never called" for name in set(inputs) - called)
    if len(inputs) != len(templates(manifest)):
        yield "two templates of one name"


def entry_and_exit_have_their_inputs(manifest: Manifest) -> Iterator[str]:
    """Nobody calls them: the entry has the workflow's parameters of the same names, else there is a
    default."""
    spec = manifest["spec"]
    names = {parameter["name"] for parameter in spec["arguments"]["parameters"]}
    supplied: dict[str, set[str]] = {spec.get("onExit"): set(), spec["entrypoint"]: names}
    for template in templates(manifest):
        for parameter in template.get("inputs", {}).get("parameters", []):
            given = supplied.get(template["name"], {parameter["name"]})
            if parameter["name"] not in given and "default" not in parameter:
                yield f"{template['name']}: nobody gives it {parameter['name']}"


def reads_only_ancestors(manifest: Manifest) -> Iterator[str]:
    for dag in dags(manifest):
        tasks = dag["dag"]["tasks"]
        for task in tasks:
            for producer in producers(task) - ancestors(tasks, task["name"]):
                yield f"{dag['name']}.{task['name']}: reads {producer}, which is not before it"


def conditions_read_outputs_with_a_default(manifest: Manifest) -> Iterator[str]:
    by_name = {template["name"]: template for template in templates(manifest)}
    for dag in dags(manifest):
        template_of = {task["name"]: task["template"] for task in dag["dag"]["tasks"]}
        for task in dag["dag"]["tasks"]:
            for tag in tags(task.get("when", "")):
                if tag.startswith(("inputs.", "workflow.parameters.")):
                    continue  # whoever calls the DAG, or submits the workflow, must give it
                _, producer, *_, parameter = tag.split(".")
                outputs = by_name[template_of[producer]].get("outputs", {}).get("parameters", [])
                if not any(
                    output["name"] == parameter and "default" in output.get("valueFrom", {})
                    for output in outputs
                ):
                    yield f"{dag['name']}.{task['name']}: {tag} has no default"


def never_reads_a_tolerated_producer(manifest: Manifest) -> Iterator[str]:
    for dag in dags(manifest):
        for task in dag["dag"]["tasks"]:
            tolerated = set(
                re.findall(
                    r"([A-Za-z0-9][-A-Za-z0-9]*)\.(?:Failed|Errored|AllFailed)",
                    task.get("depends", ""),
                )
            )
            for producer in producers(task, but=".status") & tolerated:
                yield f"{dag['name']}.{task['name']}: reads {producer}, which may have failed: the controller would wait for ever"


def dependencies_name_a_result(manifest: Manifest) -> Iterator[str]:
    for dag in dags(manifest):
        for task in dag["dag"]["tasks"]:
            words = re.findall(r"[A-Za-z0-9][-A-Za-z0-9.]*", task.get("depends", ""))
            yield from (
                f"{dag['name']}.{task['name']}: bare {word}" for word in words if "." not in word
            )
            # Where every end is tolerated, nothing depends on how a task ended.
            if "dependencies" in task and task.get("continueOn") != TOLERATED:
                yield f"{dag['name']}.{task['name']}: dependencies also accept what was skipped"


def helpers_wait_for_their_training(manifest: Manifest) -> Iterator[str]:
    """Actors and workers hold no processors while their learner or trainer waits for some."""
    for dag in dags(manifest):
        tasks = {task["name"]: task for task in dag["dag"]["tasks"]}
        for name in tasks.keys() & {"actor", "worker"}:
            if tasks[name].get("dependencies") != [WAIT] or WAIT not in tasks:
                yield f"{dag['name']}.{name}: does not wait for its training"
    for leaf in leaves(manifest):
        asks = leaf["container"]["resources"]
        if leaf["name"] == WAIT and asks["requests"] != {"cpu": "10m", "memory": "128Mi"}:
            yield f"{WAIT} asks for {asks['requests']}"


def only_leaves_are_retried(manifest: Manifest) -> Iterator[str]:
    if "retryStrategy" in manifest["spec"] or "templateDefaults" in manifest["spec"]:
        yield "the workflow retries whole DAGs"
    for dag in dags(manifest):
        if "retryStrategy" in dag:
            yield f"{dag['name']}: a DAG is retried"
    for leaf in leaves(manifest):
        strategy = leaf.get("retryStrategy", {})
        expected = RETRY_UNLESS_LATE if "activeDeadlineSeconds" in leaf else RETRY_UNLESS_FINAL
        if strategy.get("expression") != expected or strategy.get("retryPolicy") != "Always":
            yield f"{leaf['name']}: {strategy}"
        if int(strategy.get("limit", 0)) < 5 or not {"duration", "factor", "cap"} <= set(
            strategy.get("backoff", {})
        ):
            yield f"{leaf['name']}: no generous limit with backoff"


def an_image_that_cannot_be_pulled_ends(manifest: Manifest) -> Iterator[str]:
    """The first pod and the last one, of an experiment and of a study, have a deadline, which counts
    from when they are on a node. The others need what these have found, or may have to wait for as
    long as they like."""
    for leaf in leaves(manifest):
        if ("activeDeadlineSeconds" in leaf) != (module(leaf) in FIRST_AND_LAST):
            yield f"{leaf['name']}: deadline {leaf.get('activeDeadlineSeconds')}"


def actors_hold_nothing_back(manifest: Manifest) -> Iterator[str]:
    """What runs beside `train` is tolerated however it ends, and nothing in the run needs it; Argo
    refuses `continueOn` in a DAG with `depends`."""
    for dag in dags(manifest):
        tasks = dag["dag"]["tasks"]
        members = [task for task in tasks if "withSequence" in task or task["template"] in TRACKING]
        for task in members:
            alone = len(members) == len(tasks) and "depends" not in task
            if task.get("continueOn") != TOLERATED or not alone:
                yield f"{dag['name']}.{task['name']}: its end is not tolerated"
            for other in dags(manifest):
                names = [
                    one["name"] for one in other["dag"]["tasks"] if one["template"] == dag["name"]
                ]
                for one in other["dag"]["tasks"]:
                    if set(names) & names_in(one.get("depends", "")) or set(names) & producers(one):
                        yield f"{other['name']}.{one['name']}: waits for {names}"


def pods_are_restricted(manifest: Manifest) -> Iterator[str]:
    """Kubernetes' pod security standard *restricted*, and a read-only root."""
    pod = manifest["spec"].get("securityContext", {})
    if not (
        pod.get("runAsNonRoot")
        and pod.get("runAsUser", 1) > 0
        and pod.get("runAsGroup", 1) > 0
        and pod.get("fsGroup", 1) > 0
    ):
        yield "pods may run as root"
    if pod.get("seccompProfile") != {"type": "RuntimeDefault"}:
        yield "no seccomp profile"
    for leaf in leaves(manifest):
        own = leaf.get("container", {}).get("securityContext", {})
        if own.get("allowPrivilegeEscalation") is not False or own.get("capabilities") != {
            "drop": ["ALL"]
        }:
            yield f"{leaf['name']}: privileges {own}"
        if own.get("readOnlyRootFilesystem") is not True or own.get("privileged"):
            yield f"{leaf['name']}: may write to its root"
    for word in ("hostPath", "hostNetwork", "hostPID", "hostIPC", "hostPort"):
        if word in json.dumps(manifest):
            yield f"{word} in the manifest"


def pods_have_an_account_of_their_own(manifest: Manifest) -> Iterator[str]:
    if manifest["spec"].get("serviceAccountName", "default") == "default":
        yield "the namespace's default service account"


def pods_say_what_they_need(manifest: Manifest) -> Iterator[str]:
    for leaf in leaves(manifest):
        resources = leaf.get("container", {}).get("resources", {})
        patches = json.loads(leaf.get("podSpecPatch", "{}")).get("containers", [])
        requests, limits = (
            {
                name: value
                for part in (resources, *(patch["resources"] for patch in patches))
                for name, value in part.get(kind, {}).items()
            }
            for kind in ("requests", "limits")
        )
        if not {"cpu", "memory"} <= set(requests) or "memory" not in limits:
            yield f"{leaf['name']}: requests {requests}, limits {limits}"


def a_training_gets_the_memory_of_its_parameter(manifest: Manifest) -> Iterator[str]:
    """All of it at once: what is only promised may not be there when a replay has grown."""
    for leaf in leaves(manifest):
        patch = leaf.get("podSpecPatch", "")
        if leaf.get("container", {}).get("image") == GPU_IMAGE:
            if patch.count('"memory":"{{inputs.parameters.training_memory}}"') != 2:
                yield f"{leaf['name']}: {patch}"
        elif "memory" in patch:
            yield f"{leaf['name']}: {patch}"


def only_training_asks_for_gpus(manifest: Manifest) -> Iterator[str]:
    """And actors and workers, if they are to; all others see none. The device plugin's variable is nobody's who
    may ask."""
    for leaf in leaves(manifest):
        container, patch = leaf.get("container", {}), json.loads(leaf.get("podSpecPatch", "{}"))
        patched = [one.get("resources", {}) for one in patch.get("containers", [])]
        amounts = [
            amount
            for resources in (container.get("resources", {}), *patched)
            for kind in resources.values()
            for name, amount in kind.items()
            if "gpu" in name
        ]
        trains = container.get("image") == GPU_IMAGE
        helps = GPUS_OF_HELPERS.get(leaf["name"])
        asked = [helps] if helps else [GPUS] * trains
        if amounts != asked:
            yield f"{leaf['name']}: asks for {amounts} GPUs, not {asked}"
        hides = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in container.get("env", [])
        if hides == bool(asked):
            yield f"{leaf['name']}: NVIDIA_VISIBLE_DEVICES"


def images_are_parameters_with_a_version(manifest: Manifest) -> Iterator[str]:
    for leaf in leaves(manifest):
        image = leaf.get("container", {}).get("image", "")
        if module(leaf) in OUTSIDE_OF_EXPERIMENTS:
            is_allowed = image == IMAGE_OF_WORKFLOW
        else:
            is_allowed = image == IMAGES_OF_HELPERS.get(leaf["name"]) or re.fullmatch(
                r"\{\{inputs\.parameters\.(gpu|cpu)_image\}\}", image
            )
        if not is_allowed:
            yield f"{leaf['name']}: image {image}"
    for parameter in manifest["spec"]["arguments"]["parameters"]:
        may_be_empty = parameter["name"] == "actor_image" and parameter["value"] == ""
        if (
            parameter["name"].endswith("_image")
            and not may_be_empty
            and not re.search(r":(?!latest$)[^:/]+$|@sha256:", parameter["value"])
        ):
            yield f"{parameter['name']}: {parameter['value']}"


def mounts_are_known_and_declared(manifest: Manifest) -> Iterator[str]:
    volumes = {volume["name"] for volume in manifest["spec"]["volumes"]}
    own_volumes = [volume for leaf in leaves(manifest) for volume in leaf.get("volumes", [])]
    for volume in (*manifest["spec"]["volumes"], *own_volumes):
        if not {"persistentVolumeClaim", "emptyDir", "configMap", "secret"} & set(volume):
            yield f"volume {volume}"
        if "emptyDir" in volume and "sizeLimit" not in volume["emptyDir"]:
            yield f"volume {volume['name']} may fill its node"
    for leaf in leaves(manifest):
        own = {volume["name"] for volume in leaf.get("volumes", [])}
        listed = leaf.get("container", {}).get("volumeMounts", [])
        mounts = {mount["mountPath"]: mount["name"] for mount in listed}
        of_all = {path for path, name in mounts.items() if name not in own}
        is_known = NEEDED_MOUNTS <= of_all <= KNOWN_MOUNTS
        if not is_known or not set(mounts.values()) <= volumes | own or len(mounts) < len(listed):
            yield f"{leaf['name']}: mounts {mounts}"
        for output in leaf.get("outputs", {}).get("parameters", []):
            if not output["valueFrom"]["path"].startswith("/outputs/"):
                yield f"{leaf['name']}: output on the read-only root {output}"


def cleans_up_after_itself(manifest: Manifest) -> Iterator[str]:
    spec = manifest["spec"]
    if not spec.get("podGC", {}).get("strategy"):
        yield "no podGC"
    if not spec.get("ttlStrategy", {}).get("secondsAfterCompletion"):
        yield "no TTL"
    if json.loads(spec.get("podSpecPatch", "{}")).get("terminationGracePeriodSeconds", 30) < 60:
        yield "too little grace for a save"


def ends_with_a_report(manifest: Manifest) -> Iterator[str]:
    """By a DAG: after a deadline the controller fails a pending pod whose own node, and not its
    boundary, is the exit handler."""
    on_exit = manifest["spec"].get("onExit")
    called = {
        dag["name"]: [task["template"] for task in dag["dag"]["tasks"]] for dag in dags(manifest)
    }
    reports = called.pop(on_exit, [])
    if not reports or any(
        name in reports or name == on_exit for names in called.values() for name in names
    ):
        yield f"exit handler {on_exit}"


def names_fit(manifest: Manifest) -> Iterator[str]:
    metadata = manifest["metadata"]
    if len(metadata.get("name", metadata.get("generateName", "") + "xxxxx")) > 63:
        yield f"name {metadata}"
    if "namespace" in metadata:
        yield "a namespace in the manifest would win over `argo submit -n`"
    collisions: dict[str, str] = {}
    for dag in dags(manifest):
        for task in dag["dag"]["tasks"]:
            key = f"{dag['name']}.{task['name'].replace('-', '_')}"
            if collisions.setdefault(key, task["name"]) != task["name"] or not re.fullmatch(
                r"[a-zA-Z][-a-zA-Z0-9]{0,127}", task["name"]
            ):
                yield f"task {key}"


def every_value_is_text(manifest: Manifest) -> Iterator[str]:
    for parameter in manifest["spec"]["arguments"]["parameters"]:
        if not isinstance(parameter.get("value"), str) or not parameter.get("description"):
            yield f"parameter {parameter}"
        if parameter.get("value") not in parameter.get("enum", [parameter.get("value")]):
            yield f"parameter {parameter['name']}: its value is none of its enum, the controller refuses the workflow"
    for leaf in leaves(manifest):
        for entry in leaf.get("container", {}).get("env", []):
            if not isinstance(entry.get("value", ""), str):
                yield f"{leaf['name']}: {entry}"


RULES: tuple[Rule, ...] = (
    runs_a_step_without_a_shell, every_tag_resolves, every_task_and_argument_exists, entry_and_exit_have_their_inputs, reads_only_ancestors,
    conditions_read_outputs_with_a_default, actors_hold_nothing_back,
    never_reads_a_tolerated_producer, dependencies_name_a_result, helpers_wait_for_their_training, only_leaves_are_retried,
    an_image_that_cannot_be_pulled_ends,
    pods_are_restricted, pods_have_an_account_of_their_own, pods_say_what_they_need, only_training_asks_for_gpus,
    a_training_gets_the_memory_of_its_parameter,
    images_are_parameters_with_a_version, mounts_are_known_and_declared, cleans_up_after_itself, ends_with_a_report, names_fit,
    every_value_is_text,
)  # fmt: skip
