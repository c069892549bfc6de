"""`workflows.submit` where workflow templates are installed: a reference is sent, and only where it
does what the whole workflow would do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from config.cluster import Cluster, load_cluster
from tests.unit.workflows.loopback_argo import LoopbackArgo
from tests.unit.workflows.test_submit_argo import GAME, IMAGES, SHORT, argo, status  # noqa: F401
from workflows import submit
from workflows.dag.installed import MADE_OF, workflow_template
from workflows.dag.render import STUDY

pytestmark = pytest.mark.filterwarnings("ignore:The `json` method is deprecated")
ALLOWED_BY_STRICT = {"workflowTemplateRef", "arguments", "activeDeadlineSeconds"}
OWN = "gpu_image: registry.example/lab:gpu\ncpu_image: registry.example/lab:cpu\ntraining_memory: 6Gi\n"
STUDY_FILE = """\
outdir: /storage/two
algorithms: [ppo]
games: [cartpole]
runs: 2
parameters: {epochs: 20}
"""


def install(server: LoopbackArgo, kind: str = "ppo", cluster: Cluster | None = None) -> Any:
    made = workflow_template(kind, cluster or load_cluster())
    server.templates[made["metadata"]["name"]] = made
    return made


def sent(server: LoopbackArgo) -> dict[str, Any]:
    spec: dict[str, Any] = server.workflows["ppo-1"]["spec"]
    return spec


def arguments(server: LoopbackArgo) -> dict[str, str]:
    return {one["name"]: one["value"] for one in sent(server)["arguments"]["parameters"]}


def test_a_reference_with_the_arguments_alone(argo: LoopbackArgo) -> None:  # noqa: F811
    install(argo)
    assert submit.main([*SHORT, "--deadline", "60", "--detach"]) == 0
    assert set(sent(argo)) == ALLOWED_BY_STRICT
    assert sent(argo)["workflowTemplateRef"] == {"name": "rl-ppo"}
    assert arguments(argo) == {
        "game": "cartpole",
        "runs": "2",
        "epochs": "100",
        "outdir": "/storage/ppo-cartpole",
        "gpu_image": "registry.example/rl:1-gpu",
        "cpu_image": "registry.example/rl:1-cpu",
    }


def test_followed_as_the_whole_workflow_is(
    argo: LoopbackArgo,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = install(argo)
    argo.statuses = [status("Running", train_0="Running"), status("Succeeded")]
    assert submit.main(SHORT) == 0
    assert submit.main(["--follow", "ppo-1"]) == 0, "the template is read from the server"
    argo.templates.clear()
    stored = made["spec"] | sent(argo)  # with the reference, as the controller keeps it
    argo.workflows["ppo-1"]["status"] = {"storedWorkflowTemplateSpec": stored}
    capsys.readouterr()
    assert submit.main(["--follow", "ppo-1"]) == 0, "the status has what the template was"
    assert "/storage/ppo-cartpole/report.html" in capsys.readouterr().out
    argo.workflows["ppo-1"]["status"] = {}
    assert submit.main(["--follow", "ppo-1"]) == 2
    assert "workflow template 'rl-ppo', which is not in namespace" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "another_version", "said"),
    [("--whole", False, ""), ("", True, "note: template rl-ppo has version 0.0.9, not 0.1.0-")],
)
def test_the_whole_workflow_where_it_is_asked_for_or_the_template_is_another(
    argo: LoopbackArgo,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
    option: str,
    another_version: bool,
    said: str,
) -> None:
    made = install(argo)
    if another_version:
        made["metadata"]["annotations"][MADE_OF] = "0.0.9"
    assert submit.main([*SHORT, "--detach", *([option] if option else [])]) == 0
    assert sent(argo)["entrypoint"] == "experiment"
    assert said in capsys.readouterr().err


def test_other_cluster_settings_than_the_installed_ones_are_refused(
    argo: LoopbackArgo,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(OWN)
    with_own = [*GAME, "--detach", "--cluster", str(file)]
    install(argo)
    assert submit.main(with_own) == 2
    said = capsys.readouterr().err
    assert said.startswith("refused: --cluster cannot change what template 'rl-ppo' fixed")
    assert said.count("\n") == 1 and not argo.workflows
    install(argo, cluster=load_cluster(file))
    assert submit.main(with_own) == 0
    assert sent(argo)["workflowTemplateRef"] == {"name": "rl-ppo"}


def test_what_the_template_decides_is_not_sent(
    argo: LoopbackArgo,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """The images of the installed template have a registry; those of this machine's settings have none."""
    file = tmp_path / "own.yaml"
    file.write_text(OWN)
    install(argo, cluster=load_cluster(file))
    assert submit.main([*GAME, "--detach"]) == 0
    assert "gpu_image" not in arguments(argo)
    assert "warning" not in capsys.readouterr().err


@pytest.mark.parametrize("own", [False, True])
def test_a_study_is_a_reference_unless_it_decides_what_a_template_fixes(
    argo: LoopbackArgo,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    own: bool,
) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(STUDY_FILE + ("parallel_experiments: 1\n" if own else ""))
    install(argo, STUDY)
    assert submit.main([str(file), "--name", "ppo-1", "--detach", *IMAGES]) == 0
    assert ("workflowTemplateRef" in sent(argo)) != own
    assert ("does not have the parallel_experiments" in capsys.readouterr().err) == own


def test_the_templates_are_printed_for_kubectl(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(OWN)
    assert submit.main(["ppo", "--templates", "--cluster", str(file)]) == 0
    (made,) = yaml.safe_load_all(capsys.readouterr().out)
    values = {one["name"]: one["value"] for one in made["spec"]["arguments"]["parameters"]}
    assert (made["kind"], made["metadata"]["name"]) == ("WorkflowTemplate", "rl-ppo")
    assert values["gpu_image"] == "registry.example/lab:gpu"
    assert submit.main(["--templates"]) == 0
    kinds = [one["metadata"]["name"] for one in yaml.safe_load_all(capsys.readouterr().out)]
    assert {"rl-ppo", "rl-alphazero", "rl-study", "rl-search"} <= set(kinds)
