"""Amounts of memory as Kubernetes quantities, and the amount that this process may use."""

from __future__ import annotations

import math
import os
import resource
from typing import Any

from config.control_groups import own_groups, read

MEMORY: dict[str, Any] = {
    "pattern": r"[1-9][0-9]{0,14}(k|M|G|T|Ki|Mi|Gi|Ti)?",
    "form": "a quantity such as 4Gi",
}
"""The arguments of a parameter that is an amount of memory."""
SUFFIXES: dict[str, int] = {
    letter: 1000**power for power, letter in enumerate(("", "k", "M", "G", "T"))
}
SUFFIXES |= {f"{letter}i": 1024**power for power, letter in enumerate("KMGT", start=1)}


def in_bytes(quantity: str) -> int:
    """`4Gi` -> 4294967296, for a text that matches the pattern."""
    digits = quantity.rstrip("kKMGTi")
    return int(digits) * SUFFIXES[quantity[len(digits) :]]


def larger(one: str, other: str) -> str:
    """The larger of two quantities. An empty text counts as nothing."""
    return max((one, other), key=lambda text: in_bytes(text) if text else 0)


def shown(size_bytes: float) -> str:
    """Bytes for people: `6.6 GiB`."""
    return f"{size_bytes / 2**30:.1f} GiB"


def at_least(size_bytes: float) -> str:
    """The smallest quantity in whole `Gi` that holds this many bytes."""
    return f"{math.ceil(size_bytes / 2**30)}Gi"


def limit_bytes() -> int:
    """The memory that this process may use: the machine's, or less if its control groups or a limit
    of its address space allow less.
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    address_space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if address_space != resource.RLIM_INFINITY:
        limits.append(address_space)
    for group in own_groups("memory"):
        texts = (read(group / "memory.max"), read(group / "memory.limit_in_bytes"))
        limits += [int(text) for text in texts if text.strip().isdecimal()]
    return min(limits)
