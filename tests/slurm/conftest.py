"""Tests on a real Slurm: skipped, with the reason, where it is not up."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm import cluster

# What a shell starts in the background ignores SIGINT, and so would every program that the tests
# interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if Path(__file__).parent in item.path.parents]
    reason = cluster.why_not() if here else None
    for item in here:
        item.add_marker(pytest.mark.slurm)
        item.add_marker(pytest.mark.timeout(900))
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Each test begins and ends with an empty queue."""
    cluster.empty_the_queue()
    yield
    cluster.empty_the_queue()
