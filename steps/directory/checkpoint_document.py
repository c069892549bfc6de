"""What state.json of a checkpoint must hold, so that whoever reads it can rely on the types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from steps.directory.arrays import DamagedError

STATE = "state.json"

Kind = type | tuple[type, ...]

DOCUMENT_KINDS: Mapping[str, Kind] = {"step": int, "state": dict, "identity": dict, "record": dict}
"""The types of the entries that are always there, beside `format`."""

RECORD_KINDS: Mapping[str, Kind] = {
    "epoch": int,
    "generation": int,
    "files": dict,
    "taken": dict,
    "imitated": bool,
    "recorder": dict,
    "resources_csv": int,
    "wall_s": (int, float),
}
"""The types of the entries of `record`, which a step saves beside a trainer's state. All but the epoch
may be absent.
"""

RECORDER_KINDS: Mapping[str, Kind] = {"offset": int, "recent": list, "interval": dict}
INTERVAL_KINDS: Mapping[str, Kind] = {
    "epochs": int,
    "returns": list,
    "lengths": list,
    "sums": dict,
    "absent": dict,
}
"""The types inside of `record.recorder`, which `steps/training/recorder.py` saves, and inside of its
interval. Lists and mappings hold numbers.
"""


def check_document(document: Mapping[str, Any]) -> None:
    """Raise `DamagedError` unless what is read of a checkpoint's document has the types that were saved,
    and `KeyError` if one of its parts is missing.
    """
    for name, kind in DOCUMENT_KINDS.items():
        _expect(name, document[name], kind)
    record = document["record"]
    if "epoch" not in record:
        raise DamagedError(f"record in {STATE} has no epoch")
    for name, kind in RECORD_KINDS.items():
        if name in record:
            _expect(f"record.{name}", record[name], kind)
    for file, kept in record.get("files", {}).items():
        if "/" in file or "\0" in file:
            raise DamagedError(f"record.files in {STATE} names {file!r}, which is no file of a run")
        _expect(f"record.files.{file}", kept, dict)
        _expect(f"record.files.{file}.bytes", kept.get("bytes"), int)
    for name, count in record.get("taken", {}).items():
        _expect(f"record.taken.{name}", count, int)
    if "recorder" in record:
        _check_recorder(record["recorder"])


def _check_recorder(recorder: Mapping[str, Any]) -> None:
    within = "record.recorder"
    for name, kind in RECORDER_KINDS.items():
        _expect(f"{within}.{name}", recorder.get(name), kind)
    _expect_numbers(f"{within}.recent", recorder["recent"])
    for name, value in recorder["interval"].items():
        if name not in INTERVAL_KINDS:
            raise DamagedError(f"{within}.interval in {STATE} has {name!r}")
        _expect(f"{within}.interval.{name}", value, INTERVAL_KINDS[name])
        if isinstance(value, list):
            _expect_numbers(f"{within}.interval.{name}", value)
        elif isinstance(value, dict):
            _expect_numbers(f"{within}.interval.{name}", value.values())


def _expect(name: str, value: object, kind: Kind) -> None:
    """Raise `DamagedError` for a value of another type, and for a number that is negative or NaN."""
    is_truth_value = isinstance(value, bool) and kind is not bool
    if not isinstance(value, kind) or is_truth_value:
        raise DamagedError(f"{name} in {STATE} is a {type(value).__name__}")
    # This form of the condition refuses NaN, too.
    if isinstance(value, int | float) and not value >= 0:
        raise DamagedError(f"{name} in {STATE} is {value}")


def _expect_numbers(name: str, members: Iterable[object]) -> None:
    for member in members:
        if isinstance(member, bool) or not isinstance(member, int | float):
            raise DamagedError(f"{name} in {STATE} holds a {type(member).__name__}")
