"""The settings of a cluster: what Kubernetes needs to know and no experiment depends on. Defaults: `cluster.yaml`."""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config.errors import BadInput, shown, unknown
from config.experiment import IMAGE, KUBERNETES_NAME
from config.parameters import refuse_hostile
from config.strict_yaml import load_mapping

DEFAULT = Path(__file__).parent / "cluster.yaml"
QUANTITY = r"[0-9]{1,12}(\.[0-9]{1,6})?(m|k|M|G|T|Ki|Mi|Gi|Ti)?"


@dataclass(frozen=True, kw_only=True)
class Quantities:
    """Kubernetes quantities such as `1`, `500m`, `4Gi`; None: not said."""

    cpu: str | None = None
    memory: str | None = None


@dataclass(frozen=True, kw_only=True)
class Toleration:
    """A Kubernetes toleration."""

    key: str | None = None
    operator: str = "Equal"
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


@dataclass(frozen=True, kw_only=True)
class Pool:
    """The pods of one kind: what they ask for and where they may run."""

    requests: Quantities
    limits: Quantities
    node_selector: dict[str, str]
    tolerations: tuple[Toleration, ...]


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """namespace: None means the caller's; parallelism: runs active at once; grace_period_s: from SIGTERM to SIGKILL."""

    namespace: str | None
    service_account: str
    claim: str
    gpu_image: str
    cpu_image: str
    gpu_resource: str
    grace_period_s: int
    parallelism: int
    gpu: Pool
    cpu: Pool


def load_cluster(path: Path | None = None) -> Cluster:
    """The settings of a file, each that it leaves out from `cluster.yaml`; raises `BadInput`."""
    document = load_mapping(DEFAULT)
    if path is not None:
        document = _overlaid(document, load_mapping(path))
    try:
        cluster = _build(Cluster, document, "")
        _check(cluster)
    except BadInput as error:
        raise BadInput(f"{path or DEFAULT.name}: {error}") from None
    return typing.cast(Cluster, cluster)


def _overlaid(below: Any, above: Any) -> Any:
    """Sections are merged name by name; a node selector and a list are replaced whole."""
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return {**below, **{name: _overlaid(below.get(name), value) if name != "node_selector" else value for name, value in above.items()}}


def _build(hint: Any, value: Any, where: str) -> Any:
    """`value` as the annotated type, recursively; `where` is the dotted path for messages."""
    if isinstance(hint, types.UnionType):
        return None if value is None else _build(typing.get_args(hint)[0], value, where)
    if dataclasses.is_dataclass(hint):
        return _build_section(typing.cast(type, hint), value, where)
    if typing.get_origin(hint) is tuple and isinstance(value, list):
        return tuple(_build(typing.get_args(hint)[0], element, f"{where}[{index}]") for index, element in enumerate(value))
    if typing.get_origin(hint) is dict and isinstance(value, dict):
        return {_build(str, key, where): _build(str, element, f"{where}.{key}") for key, element in value.items()}
    if hint is int and type(value) is int:
        return value
    if hint is str and isinstance(value, str) and value:
        refuse_hostile(where, value)
        return value
    if hint is str and isinstance(value, bool | int | float):
        raise BadInput(f"{where} cannot be {shown(value)}; allowed: text, quote it")
    expected = {int: "an integer", str: "text"}.get(hint) or {dict: "a mapping", tuple: "a list"}[typing.get_origin(hint)]
    raise BadInput(f"{where} cannot be {shown(value)}; allowed: {expected}")


def _build_section(section: type[Any], value: Any, where: str) -> Any:
    hints = typing.get_type_hints(section)
    if not isinstance(value, dict):
        raise BadInput(f"{where} cannot be {shown(value)}; allowed: a mapping with {', '.join(hints)}")
    for name in value:
        if name not in hints:
            raise unknown("cluster setting", f"{where}.{name}".lstrip("."), [f"{where}.{one}".lstrip(".") for one in hints])
    for field in dataclasses.fields(section):
        if field.name not in value and field.default is dataclasses.MISSING:
            raise BadInput(f"{where}.{field.name} is missing".lstrip("."))
    return section(**{name: _build(hints[name], one, f"{where}.{name}".lstrip(".")) for name, one in value.items()})


def _check(cluster: Cluster) -> None:
    name, image = (KUBERNETES_NAME, "a Kubernetes name"), (IMAGE, "an image reference")
    texts = {"namespace": name, "service_account": name, "claim": name, "gpu_image": image, "cpu_image": image}
    texts["gpu_resource"] = (r"[a-z0-9.-]{1,253}/[A-Za-z0-9._-]{1,63}", "a resource such as nvidia.com/gpu")
    for setting, (pattern, form) in texts.items():
        value = getattr(cluster, setting)
        if value is not None:
            _match(setting, value, pattern, form)
    for setting, low, high in (("grace_period_s", 1, 86_400), ("parallelism", 1, 256)):
        if not low <= getattr(cluster, setting) <= high:
            raise BadInput(f"{setting} cannot be {getattr(cluster, setting)}; allowed: an integer from {low} to {high}")
    for pool_name, pool in (("gpu", cluster.gpu), ("cpu", cluster.cpu)):
        for part in ("requests", "limits"):
            for resource in ("cpu", "memory"):
                quantity = getattr(getattr(pool, part), resource)
                if quantity is not None:
                    _match(f"{pool_name}.{part}.{resource}", quantity, QUANTITY, "a quantity such as 500m or 4Gi")
        if pool.requests.cpu is None or pool.requests.memory is None or pool.limits.memory is None:
            raise BadInput(f"{pool_name}: requests.cpu, requests.memory and limits.memory are needed")


def _match(setting: str, value: str, pattern: str, form: str) -> None:
    if not re.fullmatch(pattern, value):
        raise BadInput(f"{setting} cannot be {shown(value)}; allowed: {form}")
