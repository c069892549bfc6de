"""Secrets and config maps that a manifest refers to. This machine has none: what is optional is left out,
and a required variable comes from this machine's environment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from workflows.local.errors import Refused

KEYS = {"secretKeyRef": "secret", "configMapKeyRef": "config map"}
WHOLE = {"secretRef": "secret", "configMapRef": "config map"}
FILES = {"secret": ("secret", "secretName"), "configMap": ("config map", "name")}
"""Field -> the kind of object in words; of volumes, also the field with its name."""


def from_here(container: Mapping[str, Any], here: Mapping[str, str]) -> dict[str, str]:
    """The container's variables by reference that this machine's environment has."""
    names = [str(one.get("name")) for one, *_ in _by_key(container)]
    return {name: here[name] for name in names if name in here}


def check_references(spec: Mapping[str, Any], here: Mapping[str, str]) -> None:
    """Raise `Refused`, with all of them in one line, if the manifest requires secrets or config maps
    that this machine's environment does not replace.
    """
    missing = list(_missing_volumes(spec))
    for template in spec.get("templates") or []:
        container = template.get("container") or {}
        missing += _missing_variables(container, here)
        missing += _missing_volumes(template)
    if missing:
        raise Refused(
            "this machine has no secrets and config maps of Kubernetes: "
            f"{'; '.join(dict.fromkeys(missing))}; allowed: those variables in the environment of "
            "this command, or references that are optional"
        )


def _missing_variables(container: Mapping[str, Any], here: Mapping[str, str]) -> Iterator[str]:
    for variable, kind, source in _by_key(container):
        name = str(variable.get("name"))
        if name not in here and not source.get("optional"):
            yield f"variable {name} ({kind} {source.get('name')!r}, key {source.get('key')!r})"
    for source in container.get("envFrom") or []:
        for field, kind in WHOLE.items():
            referred = source.get(field)
            if referred is not None and not referred.get("optional"):
                yield f"all keys of {kind} {referred.get('name')!r} as variables"


def _missing_volumes(holder: Mapping[str, Any]) -> Iterator[str]:
    volumes: Iterable[Mapping[str, Any]] = holder.get("volumes") or []
    for volume in volumes:
        for field, (kind, name) in FILES.items():
            source = volume.get(field)
            if source is not None and not source.get("optional"):
                yield f"{kind} {source.get(name)!r} as files"


def _by_key(
    container: Mapping[str, Any],
) -> Iterator[tuple[Mapping[str, Any], str, Mapping[str, Any]]]:
    """Each variable whose value stands under a key, with the kind of object, and the reference."""
    for variable in container.get("env") or []:
        for field, kind in KEYS.items():
            source = (variable.get("valueFrom") or {}).get(field)
            if source is not None:
                yield variable, kind, source
