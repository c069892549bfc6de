"""The manifest of an algorithm for a cluster: the committed file where it fits, else a fresh build.

Hera takes about a second to import, so the committed file serves whenever it was made for these
cluster settings, these steps and these parameters, and is not older than the modules of this package.
Otherwise the manifest is built: to run here, no file has to be rendered again by hand.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from config import pipeline
from config.cluster import Cluster
from config.described import offered
from workflows.dag.manifest_yaml import Manifest, dump, load

FOLDER = Path(__file__).parents[1] / "manifests"
STUDY, SEARCH = "study", "search"
"""The names of the manifests that serve any study and any search."""
MADE = "# Made by `make manifests` from config/ and workflows/; changes belong there.\n"
HEADER = MADE + "# made for: {fingerprint}\n"


def rendered(algorithm: str, cluster: Cluster) -> Manifest:
    """The manifest of an algorithm for a cluster, without Hera where the committed file fits."""
    found = _committed(algorithm, fingerprint(algorithm, cluster))
    return build_manifest(algorithm, cluster) if found is None else found


def rendered_study(cluster: Cluster, active: int | None = None, *, kind: str = STUDY) -> Manifest:
    """The manifest of a study, or of a search, for a cluster, without Hera where the committed file fits.
    active: how many of its experiments are active at the same time, if not as many as for every study of this
    cluster. kind: STUDY or SEARCH.
    """
    count = cluster.parallel_experiments if active is None else active
    found = _committed(kind, fingerprint_of_study(cluster, count, kind=kind))
    return build_study_manifest(cluster, count, kind=kind) if found is None else found


def _committed(name: str, wanted: str) -> Manifest | None:
    """The committed manifest, if it was made for the wanted fingerprint and is not older than the
    modules of this package.
    """
    path = FOLDER / f"{name}.yaml"
    if not path.is_file():
        return None
    text = path.read_text()
    fits = text.startswith(HEADER.format(fingerprint=wanted)) and not _edited_since(path)
    return load(text) if fits else None


def build_study_manifest(cluster: Cluster, active: int, *, kind: str = STUDY) -> Manifest:
    """Build the manifest of a study, or of a search, with Hera."""
    from workflows.dag.search import build_search
    from workflows.dag.study import build_study

    build = build_search if kind == SEARCH else build_study
    manifest: Manifest = build(cluster, active).to_dict()
    return manifest


def build_manifest(algorithm: str, cluster: Cluster) -> Manifest:
    """Build the manifest with Hera."""
    from workflows.dag.experiment import build

    manifest: Manifest = build(algorithm, cluster).to_dict()
    return manifest


def to_yaml(manifest: Manifest, algorithm: str, cluster: Cluster) -> str:
    """The manifest as a file: a header, the parameters first, templates last."""
    return HEADER.format(fingerprint=fingerprint(algorithm, cluster)) + dump(manifest)


def study_to_yaml(manifest: Manifest, cluster: Cluster, active: int, *, kind: str = STUDY) -> str:
    """As `to_yaml`, of a study or a search."""
    wanted = fingerprint_of_study(cluster, active, kind=kind)
    return HEADER.format(fingerprint=wanted) + dump(manifest)


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


def fingerprint(algorithm: str, cluster: Cluster) -> str:
    """Changes with what a manifest is made of: the settings of the cluster, the steps of the
    pipeline, and the parameters of the algorithm with their help.
    """
    return _hash(cluster, parameters=[dataclasses.asdict(info) for info in offered(algorithm)])


def fingerprint_of_study(cluster: Cluster, active: int, *, kind: str = STUDY) -> str:
    """As `fingerprint`, of the manifest of a study or a search."""
    table = pipeline.SEARCH_STEPS if kind == SEARCH else pipeline.STUDY_STEPS
    return _hash(cluster, of_study=[dataclasses.asdict(step) for step in table], active=active)


def _hash(cluster: Cluster, **more: Any) -> str:
    made_of = {
        "cluster": dataclasses.asdict(cluster),
        "steps": [dataclasses.asdict(step) for step in (*pipeline.STEPS, pipeline.NOTICE)],
        **more,
    }
    return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:16]


def _edited_since(committed: Path) -> bool:
    """Whether a module of this package is newer than the file that it made."""
    made_s = committed.stat().st_mtime
    return any(path.stat().st_mtime > made_s for path in Path(__file__).parent.glob("*.py"))
