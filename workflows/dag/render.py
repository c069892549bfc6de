"""The manifest of an algorithm for a cluster: the committed file where it fits, else a fresh build.

    python -m workflows.dag.render FOLDER

renders every algorithm's manifest there, for the settings in config/cluster.yaml: `make manifests`.
Hera takes more than a second to import, so the committed file serves whenever it was made for these
cluster settings and these parameters.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from config.algorithms import ALGORITHMS
from config.cluster import Cluster, load_cluster
from config.described import parameters
from workflows.dag.manifest_yaml import Manifest, dump, load

FOLDER = Path(__file__).parents[1] / "manifests"
HEADER = """\
# Made by `make manifests` from config/ and workflows/; changes belong there.
# cluster settings: {fingerprint}
"""


def rendered(algorithm: str, cluster: Cluster) -> Manifest:
    """The manifest of an algorithm for a cluster, without Hera where the committed file fits."""
    committed = FOLDER / f"{algorithm}.yaml"
    if committed.is_file():
        text = committed.read_text()
        if text.startswith(HEADER.format(fingerprint=fingerprint(cluster))):
            manifest = load(text)
            if _offers(manifest) == [info.name for info in parameters(algorithm)]:
                return manifest
    return build_manifest(algorithm, cluster)


def build_manifest(algorithm: str, cluster: Cluster) -> Manifest:
    """Build the manifest with Hera."""
    from workflows.dag.experiment import build

    manifest: Manifest = build(algorithm, cluster).to_dict()
    return manifest


def to_yaml(manifest: Manifest, cluster: Cluster) -> str:
    """The manifest as a file: a header, the parameters first, templates last."""
    return HEADER.format(fingerprint=fingerprint(cluster)) + dump(manifest)


def with_values(
    manifest: Manifest, values: Mapping[str, str], *, name: str = "", deadline_s: int | None = None
) -> Manifest:
    """A copy of the manifest with `-p name=value` filled in as `argo submit` does it, a name, and a
    deadline.

    The deadline is an integer in the manifest, so it cannot be a parameter.
    """
    listed = [
        {**parameter, "value": values.get(parameter["name"], parameter["value"])}
        for parameter in manifest["spec"]["arguments"]["parameters"]
    ]
    metadata = dict(manifest["metadata"])
    spec = {**manifest["spec"], "arguments": {"parameters": listed}}
    if name:
        metadata.pop("generateName", None)
        metadata["name"] = name
    if deadline_s is not None:
        spec["activeDeadlineSeconds"] = deadline_s
    return {**manifest, "metadata": metadata, "spec": spec}


def fingerprint(cluster: Cluster) -> str:
    """A hash of all cluster settings, which tells what a committed manifest was made for."""
    settings = json.dumps(dataclasses.asdict(cluster), sort_keys=True)
    return hashlib.sha256(settings.encode()).hexdigest()[:16]


def _offers(manifest: Manifest) -> list[str]:
    return [parameter["name"] for parameter in manifest["spec"]["arguments"]["parameters"]]


def main(arguments: list[str]) -> int:
    """Render every algorithm's manifest into a folder."""
    folder = Path(*arguments)
    cluster = load_cluster()
    for algorithm in ALGORITHMS:
        text = to_yaml(build_manifest(algorithm, cluster), cluster)
        (folder / f"{algorithm}.yaml").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
