"""`make benchmark`: everything that is measured against limits and against others, or the cases that are
named: `python -m tests.benchmarks [CASE …]`. Exits with 1 when a bound is missed, 2 for a case that
nobody knows.
"""

from __future__ import annotations

import sys

from tests.benchmarks import limits, search, throughput

SEARCH = "search"


def main(names: list[str]) -> int:
    """One after the other: each of them has the machine for itself."""
    known = [*throughput.CASES, *limits.CASES, SEARCH]
    if unknown := sorted(set(names) - set(known)):
        print(f"unknown: {', '.join(unknown)}; known: {', '.join(known)}", file=sys.stderr)
        return 2
    missed = 0
    for measured in (throughput, limits):
        chosen = [name for name in names or known if name in measured.CASES]
        if chosen:
            missed |= measured.main([word for name in chosen for word in ("--case", name)])
    if SEARCH in (names or known):
        missed |= search.main([])
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
