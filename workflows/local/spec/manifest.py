"""A manifest as the engine uses it: checked field by field, with the caller's parameters filled in.

Templates stay plain JSON values, because Argo replaces tags in their text. Fields with a meaning of
their own are properties.
"""

from __future__ import annotations

import datetime
import re
import secrets
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from config.pod_references import POD_FIELDS
from config.strict_yaml import load_mapping
from workflows.local.errors import Refused
from workflows.local.language.go_values import parameter_text, to_json
from workflows.local.spec.fields import check_fields
from workflows.local.spec.go_yaml import GoLoader

Document = dict[str, Any]
NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")
POLICIES = ("Always", "OnFailure", "OnError")
SOURCES = ("emptyDir", "persistentVolumeClaim", "configMap", "secret")
"""Of volumes."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A workflow that can be run.

    parameters: name -> text, in the order of the manifest. accepted: groups of fields without
    effect on one machine.
    """

    name: str
    namespace: str
    uid: str
    created: datetime.datetime
    metadata: Document
    spec: Document
    parameters: list[Document]
    templates: dict[str, Document]
    accepted: list[str] = field(default_factory=list)

    @property
    def values(self) -> dict[str, str]:
        """The parameters' values by name."""
        return {
            str(parameter.get("name")): parameter["value"]
            for parameter in self.parameters
            if "value" in parameter
        }

    def globals(self) -> dict[str, str]:
        """The tags that have the same value everywhere in the workflow."""
        metadata = self.metadata
        created = self.created
        given = to_json(
            [
                {key: value for key, value in parameter.items() if value is not None}
                for parameter in self.parameters
            ]
        )
        values = {
            "workflow.name": self.name,
            "workflow.namespace": self.namespace,
            "workflow.uid": self.uid,
            "workflow.serviceAccountName": self.spec.get("serviceAccountName") or "default",
            "workflow.mainEntrypoint": self.spec.get("entrypoint") or "",
            "workflow.creationTimestamp": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "workflow.creationTimestamp.RFC3339": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "workflow.creationTimestamp.s": str(int(created.timestamp())),
            "workflow.parameters": given,
            "workflow.parameters.json": given,
            "workflow.duration": "0.000000",
        }
        values |= {
            f"workflow.creationTimestamp.{letter}": created.strftime(f"%{letter}")
            for letter in "YmdHMSyjaAbBpIwf"
        }
        for kind in ("labels", "annotations"):
            named = {str(key): str(value) for key, value in (metadata.get(kind) or {}).items()}
            values |= {f"workflow.{kind}.{key}": value for key, value in named.items()}
            values |= {f"workflow.{kind}": to_json(named), f"workflow.{kind}.json": to_json(named)}
        return values | {
            f"workflow.parameters.{name}": value for name, value in self.values.items()
        }


def read(path: Path) -> Document:
    """Read the workflow in a YAML file. Raises `BadInput` unless it is one plain document whose values
    are read alike by Argo.
    """
    return load_mapping(path, GoLoader)


def prepare(
    document: Document, *, parameters: Mapping[str, str] | None = None, name: str | None = None
) -> Manifest:
    """Check every field and fill in the parameters. Raises `Refused` with one line.

    As with `argo submit -p`, a parameter that the manifest does not declare is added.
    """
    kind = document.get("kind")
    version = document.get("apiVersion")
    if (kind, version) != ("Workflow", "argoproj.io/v1alpha1"):
        raise Refused(
            f"kind {kind!r}, apiVersion {version!r}: only Workflow of argoproj.io/v1alpha1 runs here"
        )
    accepted = check_fields(document)
    metadata = document.get("metadata") or {}
    spec = document.get("spec") or {}
    templates = _templates(spec)
    for template in templates.values():
        _check_template(template)
    _check_claims(spec, templates)
    given = {key: str(value) for key, value in (parameters or {}).items()}
    return Manifest(
        name=_name(name, metadata),
        namespace=metadata.get("namespace") or "default",
        uid=str(uuid.uuid4()),
        created=datetime.datetime.now(datetime.UTC),
        metadata=metadata,
        spec=spec,
        parameters=_parameters(spec, given),
        templates=templates,
        accepted=accepted,
    )


def _name(name: str | None, metadata: Document) -> str:
    chosen = name or metadata.get("name")
    if not chosen:
        chosen = f"{metadata.get('generateName') or 'workflow-'}{secrets.token_hex(3)[:5]}"
    if not NAME.fullmatch(chosen):
        raise Refused(
            f"workflow name {chosen!r}: at most 63 of a-z, 0-9, '-' and '.', beginning and ending with a letter or digit"
        )
    return str(chosen)


def _parameters(spec: Document, given: dict[str, str]) -> list[Document]:
    declared = (spec.get("arguments") or {}).get("parameters") or []
    parameters: list[Document] = []
    for parameter in declared:
        entry = {key: value for key, value in parameter.items() if key not in ("value", "default")}
        if parameter.get("value") is not None:
            own = parameter.get("value")
        else:
            own = parameter.get("default")
        # A parameter without a name is refused when the workflow is checked.
        name = parameter.get("name")
        value = given.get(str(name), own)
        # `argo submit -p` replaces a parameter together with its enum and description.
        if name in given:
            entry = {"name": name}
        if value is not None:
            entry["value"] = parameter_text(value)
        parameters.append(entry)
    names = {parameter.get("name") for parameter in declared}
    return parameters + [
        {"name": name, "value": value} for name, value in given.items() if name not in names
    ]


def _templates(spec: Document) -> dict[str, Document]:
    templates = spec.get("templates") or []
    for index, template in enumerate(templates):
        if not template.get("name"):
            raise Refused(f"spec.templates[{index}]: name is missing")
    return {template["name"]: template for template in templates}


def _check_template(template: Document) -> None:
    where = f"spec.templates[{template['name']}]"
    kinds = [kind for kind in ("container", "dag") if template.get(kind) is not None]
    if len(kinds) != 1:
        raise Refused(
            f"{where}: exactly one of container and dag is supported, here: {', '.join(kinds) or 'none'}"
        )
    if kinds == ["container"]:
        _check_container(template["container"], where)
        if template.get("parallelism") is not None:
            raise Refused(f"{where}.parallelism: only DAGs have one")
    else:
        _check_dag(template, where)
    retry = template.get("retryStrategy")
    if retry and (policy := retry.get("retryPolicy", "Always")) not in POLICIES:
        raise Refused(
            f"{where}.retryStrategy.retryPolicy: {policy!r} is not supported; supported: {', '.join(POLICIES)}"
        )


def _check_container(container: Document, where: str) -> None:
    if not container.get("command"):
        raise Refused(
            f"{where}.container.command is missing: without an image there is no other source of it"
        )
    if container.get("name", "main") != "main":
        raise Refused(
            f"{where}.container.name: {container['name']!r}; the only container is 'main'"
        )
    for variable in container.get("env") or []:
        source = (variable.get("valueFrom") or {}).get("fieldRef")
        if source and source.get("fieldPath") not in POD_FIELDS:
            raise Refused(
                f"{where}.container.env[{variable.get('name')}]: fieldPath {source.get('fieldPath')!r}; supported: {', '.join(POD_FIELDS)}"
            )


def _check_dag(template: Document, where: str) -> None:
    for unsupported in (
        "retryStrategy",
        "activeDeadlineSeconds",
        "timeout",
        "podSpecPatch",
        "volumes",
    ):
        if template.get(unsupported) is not None:
            raise Refused(f"{where}.{unsupported}: supported on containers only")
    for output in (template.get("outputs") or {}).get("parameters") or []:
        if (output.get("valueFrom") or {}).get("path"):
            raise Refused(
                f"{where}.outputs.parameters[{output.get('name')}].valueFrom.path: a DAG has no files"
            )


def _check_claims(spec: Document, templates: dict[str, Document]) -> None:
    volumes = [
        *(spec.get("volumes") or []),
        *(volume for template in templates.values() for volume in template.get("volumes") or []),
    ]
    for volume in volumes:
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", str(volume.get("name"))):
            raise Refused(f"volume {volume.get('name')!r}: a name of a-z, 0-9 and '-' is expected")
        if len([source for source in SOURCES if volume.get(source) is not None]) != 1:
            raise Refused(
                f"volume {volume.get('name')!r}: exactly one of {', '.join(SOURCES)} is supported"
            )
    claims = {
        volume["persistentVolumeClaim"].get("claimName")
        for volume in volumes
        if volume.get("persistentVolumeClaim") is not None
    }
    if len(claims) > 1:
        raise Refused(
            f"claims {', '.join(map(repr, sorted(map(str, claims))))}: the local engine has one storage folder, for one claim"
        )
