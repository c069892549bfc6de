"""A cluster's settings: defaults, one's own file over them, and a message for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.cluster import DEFAULT, Cluster, Requests, Toleration, load_cluster
from config.errors import BadInput
from config.experiment import Experiment
from workflows.local.language.quantities import quantity


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.yaml"
    path.write_text(text)
    return path


WAIT_CONTAINER = 0.01
"""Processors that Argo's wait container asks for in every pod."""
OF_THE_NODE = 0.4
"""Processors that the pods of a small node's own, such as DNS and its network, ask for."""


def test_the_defaults_fit_one_small_node() -> None:
    """Two pods at a time on two processors, of any kind of step."""
    cluster = load_cluster()
    for pool in (cluster.gpu, cluster.cpu):
        assert 2 * (quantity(pool.requests.cpu) + WAIT_CONTAINER) <= 2 - OF_THE_NODE
    assert cluster.training_memory == "4Gi"
    assert cluster.cpu.limits.memory is not None
    assert cluster.gpu_resource == "nvidia.com/gpu"
    assert cluster.gpu.tolerations == (
        Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule"),
    )
    assert cluster.grace_period_s > 30
    assert cluster == load_cluster(DEFAULT)


def test_images_and_claim_are_the_defaults_of_the_parameters() -> None:
    cluster = load_cluster()
    assert (cluster.claim, cluster.gpu_image, cluster.cpu_image) == (
        Experiment.claim,
        Experiment.gpu_image,
        Experiment.cpu_image,
    )
    assert not cluster.gpu_image.endswith("latest")


def test_a_file_says_only_what_differs(tmp_path: Path) -> None:
    text = """
namespace: experiments
gpu:
  requests: {cpu: "8"}
  node_selector: {accelerator: h100, dedicated: "true"}
  tolerations: [{key: dedicated, value: gpu, effect: NoExecute, toleration_seconds: 60}, {operator: Exists}]
"""
    mine, default = load_cluster(written(tmp_path, text)), load_cluster()
    assert mine.namespace == "experiments"
    assert mine.gpu.requests == Requests(cpu="8", memory=default.gpu.requests.memory)
    assert mine.cpu.requests == default.cpu.requests
    assert mine.gpu.node_selector == {"accelerator": "h100", "dedicated": "true"}
    assert mine.gpu.tolerations == (
        Toleration(key="dedicated", value="gpu", effect="NoExecute", toleration_seconds=60),
        Toleration(operator="Exists"),
    )
    assert (mine.cpu, mine.claim) == (default.cpu, default.claim)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("namespce: x", "unknown cluster setting 'namespce'; did you mean 'namespace'"),
        (
            "gpu: {request: {}}",
            "unknown cluster setting 'gpu.request'; did you mean 'gpu.requests'",
        ),
        ("gpu: {requests: {gpu: '1'}}", "unknown cluster setting 'gpu.requests.gpu'"),
        (
            "gpu: {tolerations: [{keys: x}]}",
            r"unknown cluster setting 'gpu.tolerations\[0\].keys'; did you mean",
        ),
        (
            "gpu: {requests: {cpu: 2}}",
            "'gpu.requests.cpu' cannot be 2; allowed: a quantity such as 2 or 500m; quote it",
        ),
        ("gpu: {requests: {cpu: two}}", "'gpu.requests.cpu' cannot be 'two'; allowed: a quantity"),
        (
            "cpu: {limits: {memory: 4 GiB}}",
            "'cpu.limits.memory' cannot be '4 GiB'; allowed: a quantity",
        ),
        (
            "cpu: {limits: {memory: null}}",
            "empty value for 'cpu.limits.memory'; allowed: a quantity",
        ),
        (
            "gpu: {limits: {memory: 8Gi}}",
            "'gpu.limits.memory' cannot be '8Gi'; allowed: empty, and 'training_memory' for both",
        ),
        ("gpu: {requests: {memory: 8Gi}}", "'gpu.requests.memory' cannot be '8Gi'; allowed: empty"),
        ("training_memory: 8", "'training_memory' cannot be 8; allowed: a quantity"),
        ("training_memory: ''", "empty value for 'training_memory'; allowed: a quantity"),
        (
            "gpu: {node_selector: {dedicated: true}}",
            "gpu.node_selector.dedicated cannot be True; allowed: text, quote it",
        ),
        ("gpu: {node_selector: [x]}", r"'gpu.node_selector' cannot be \['x'\]; allowed: a mapping"),
        ("gpu: {tolerations: {key: x}}", "'gpu.tolerations' cannot be .*; allowed: a list"),
        (
            "gpu: {tolerations: [{operator: Maybe}]}",
            r"'gpu.tolerations\[0\].operator' cannot be 'Maybe'; allowed: Equal or Exists",
        ),
        (
            "gpu: {tolerations: [{effect: Never}]}",
            r"'gpu.tolerations\[0\].effect' cannot be 'Never'; allowed: NoSchedule or PreferNoSchedule or NoExecute",
        ),
        ("gpu: 3", "'gpu' cannot be 3; allowed: a mapping with requests, limits"),
        ("gpu: null", "'gpu' cannot be None; allowed: a mapping"),
        ("grace_period_s: 60s", "'grace_period_s' cannot be '60s'; allowed: an integer"),
        ("grace_period_s: 1.5", "'grace_period_s' cannot be 1.5; allowed: an integer"),
        ("grace_period_s: 0", "'grace_period_s' cannot be 0; allowed: an integer from 1 to 86400"),
        ("parallelism: true", "'parallelism' cannot be True; allowed: an integer"),
        ("parallelism: 1000", "'parallelism' cannot be 1000; allowed: an integer from 1 to 256"),
        ("claim: ''", "empty value for 'claim'; allowed: a Kubernetes name"),
        ("claim: Storage", "'claim' cannot be 'Storage'; allowed: a Kubernetes name"),
        ("namespace: a b", "'namespace' cannot be 'a b'; allowed: a Kubernetes name"),
        (
            "gpu_resource: gpu",
            "'gpu_resource' cannot be 'gpu'; allowed: a resource such as nvidia.com/gpu",
        ),
        ("service_account: '{{x}}'", "braces"),
        ("gpu: {node_selector: {'{{x}}': y}}", "braces"),
        ('gpu: {node_selector: {a: "b\\nc"}}', "control characters"),
        ("gpu_image: 'rl; id'", "allowed: an image reference"),
        ("[]", "a mapping is expected"),
        ("claim: a\nclaim: b", "stands twice"),
        ("claim: &a b", "anchors"),
    ],
)
def test_a_mistake_is_named(text: str, reason: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(BadInput, match=reason) as refusal:
        load_cluster(path)
    assert str(refusal.value).startswith(str(path))
    assert str(refusal.value).isprintable()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot read .*missing.yaml"):
        load_cluster(tmp_path / "missing.yaml")


def test_a_cluster_is_frozen() -> None:
    cluster: Cluster = load_cluster()
    with pytest.raises(AttributeError):
        cluster.claim = "x"  # type: ignore[misc]
