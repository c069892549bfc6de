"""`python -m workflows.dag.committed FOLDER TEMPLATES`: make the files that are committed, for the
settings in config/cluster.yaml (`make manifests`).

The manifests of every algorithm, of studies and of searches go into the one folder, and the workflow
template of each into the other.
"""

from __future__ import annotations

import sys
from pathlib import Path

from config.algorithms import ALGORITHMS
from config.cluster import Cluster, load_cluster
from workflows.dag.installed import KINDS, template_name, workflow_template
from workflows.dag.manifest_yaml import dump
from workflows.dag.render import (
    MADE,
    build_manifest,
    build_study_manifest,
    study_to_yaml,
    to_yaml,
)


def main(arguments: list[str]) -> int:
    """Render everything."""
    folder, templates = map(Path, arguments)
    cluster = load_cluster()
    _render_manifests(folder, cluster)
    _render_templates(templates, cluster)
    return 0


def _render_manifests(folder: Path, cluster: Cluster) -> None:
    active = cluster.parallel_experiments
    for kind in KINDS:
        manifest = build_study_manifest(cluster, active, kind=kind)
        text = study_to_yaml(manifest, cluster, active, kind=kind)
        (folder / f"{kind}.yaml").write_text(text, encoding="utf-8")
    for algorithm in ALGORITHMS:
        text = to_yaml(build_manifest(algorithm, cluster), algorithm, cluster)
        (folder / f"{algorithm}.yaml").write_text(text, encoding="utf-8")


def _render_templates(folder: Path, cluster: Cluster) -> None:
    """Render the workflow templates, and the file with which `kubectl apply -k` installs them."""
    files = []
    for kind in (*ALGORITHMS, *KINDS):
        files.append(f"{template_name(kind)}.yaml")
        text = MADE + dump(workflow_template(kind, cluster))
        (folder / files[-1]).write_text(text, encoding="utf-8")
    listed = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": sorted(files),
    }
    (folder / "kustomization.yaml").write_text(MADE + dump(listed), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
