"""The local engine and the real controller make the same of every small
workflow."""

from __future__ import annotations

import pytest

from tests.cluster.comparison import all_cases, batches, compare

BATCHES = batches(all_cases())


@pytest.mark.parametrize(
    "batch",
    BATCHES,
    ids=[f"{b[0]['metadata']['name']}-to-{b[-1]['metadata']['name']}" for b in BATCHES],
)
def test_both_engines_agree(batch: list[dict[str, object]], privileged: str) -> None:
    assert [line for lines in compare(batch).values() for line in lines] == []
