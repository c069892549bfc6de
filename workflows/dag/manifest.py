"""A manifest as YAML: written so that people and Go's YAML reader agree on every value, and read without importing Hera.

Hera takes more than a second to import, so `rendered()` first looks for the committed file: it serves whenever it was made for these
cluster settings and these parameters.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from config.cluster import Cluster
from config.resolve import parameters

Manifest = dict[str, Any]
FOLDER = Path(__file__).parents[1] / "manifests"
HEADER = "# Made by `make manifests` from config/ and workflows/; changes belong there.\n# cluster settings: {fingerprint}\n"

# Go reads a plain 3e5, 0x10 or 1_000 as a number and `on` as true, PyYAML does not: such a text must be quoted whoever reads it.
AMBIGUOUS = re.compile(r"[-+.]?[0-9][0-9a-fox_.:+-]*|[-+]?\.(inf|nan)|y|yes|n|no|on|off|true|false|null|nan|inf|~|", re.IGNORECASE)


def rendered(algorithm: str, cluster: Cluster) -> Manifest:
    """The manifest of an algorithm for a cluster: the committed one where it fits, else a fresh build."""
    committed = FOLDER / f"{algorithm}.yaml"
    if committed.is_file():
        text = committed.read_text()
        if text.startswith(HEADER.format(fingerprint=fingerprint(cluster))):
            manifest = load(text)
            if _offers(manifest) == [info.name for info in parameters(algorithm)]:
                return manifest
    return build_manifest(algorithm, cluster)


def build_manifest(algorithm: str, cluster: Cluster) -> Manifest:
    """A fresh build with Hera."""
    from workflows.dag.experiment import build

    manifest: Manifest = build(algorithm, cluster).to_dict()
    return manifest


def to_yaml(manifest: Manifest, cluster: Cluster) -> str:
    """The manifest as a file: a header, the parameters first, templates last, ambiguous texts quoted."""
    return HEADER.format(fingerprint=fingerprint(cluster)) + dump(manifest)


def dump(manifest: Manifest) -> str:
    """YAML in reading order: names first, then plain values, then what is nested."""
    return yaml.dump(_in_reading_order(manifest), Dumper=_Dumper, sort_keys=False, width=140, allow_unicode=True)


def load(text: str) -> Manifest:
    """A manifest that we rendered ourselves; `workflows.local` reads those of others."""
    loaded: Manifest = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe loaders
    return loaded


def with_values(manifest: Manifest, values: Mapping[str, str], *, name: str = "", deadline_s: int | None = None) -> Manifest:
    """A copy with `-p name=value` filled in as `argo submit` does it, a name, and a deadline (an integer, so no parameter)."""
    listed = [
        {**parameter, "value": values.get(parameter["name"], parameter["value"])}
        for parameter in manifest["spec"]["arguments"]["parameters"]
    ]
    metadata = {**{key: value for key, value in manifest["metadata"].items() if not (name and key == "generateName")}}
    spec = {**manifest["spec"], "arguments": {"parameters": listed}}
    if name:
        metadata["name"] = name
    if deadline_s is not None:
        spec["activeDeadlineSeconds"] = deadline_s
    return {**manifest, "metadata": metadata, "spec": spec}


def fingerprint(cluster: Cluster) -> str:
    """Changes with every setting of the cluster: what a committed manifest was made for."""
    return hashlib.sha256(json.dumps(dataclasses.asdict(cluster), sort_keys=True).encode()).hexdigest()[:16]


def _offers(manifest: Manifest) -> list[str]:
    return [parameter["name"] for parameter in manifest["spec"]["arguments"]["parameters"]]


FIRST = ("apiVersion", "kind", "metadata", "name", "value", "description", "entrypoint", "onExit", "template", "depends", "when",
         "withParam", "arguments", "inputs", "outputs", "image", "command", "args")  # fmt: skip
LAST = ("container", "dag", "spec", "templates")


def _in_reading_order(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _in_reading_order(value[key]) for key in sorted(value, key=_rank)}
    if isinstance(value, list):
        return [_in_reading_order(item) for item in value]
    return value


def _rank(key: str) -> tuple[int, int, str]:
    if key in FIRST:
        return 0, FIRST.index(key), key
    return (2, LAST.index(key), key) if key in LAST else (1, 0, key)


class _Dumper(yaml.SafeDumper):
    """Indents lists under their key, and quotes what a reader could take for another type."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        return super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _sequence(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.SequenceNode:
    on_one_line = all(isinstance(item, str) for item in items) and sum(map(len, items)) < 100
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=on_one_line)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "'" if AMBIGUOUS.fullmatch(text) or "{" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(list, _sequence)
