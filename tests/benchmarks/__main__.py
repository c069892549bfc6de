"""`make benchmark`: everything that is measured against limits and against others, or the cases that are
named: `python -m tests.benchmarks [CASE …]`. Exits with 1 when a bound is missed, 2 for a case that
nobody knows. What was measured is also written to docs/results.
"""

from __future__ import annotations

import sys

from tests.benchmarks import limits, search, self_play, throughput
from tests.benchmarks.recorded import FOLDER

ALONE = {"search": search.main, "self-play": self_play.main}
"""Cases that are a whole measurement each."""


def main(names: list[str]) -> int:
    """One after the other: each of them has the machine for itself."""
    known = [*throughput.CASES, *limits.CASES, *ALONE]
    if unknown := sorted(set(names) - set(known)):
        print(f"unknown: {', '.join(unknown)}; known: {', '.join(known)}", file=sys.stderr)
        return 2
    missed = 0
    for measured in (throughput, limits):
        chosen = [name for name in names or known if name in measured.CASES]
        if chosen:
            cases = [word for name in chosen for word in ("--case", name)]
            missed |= measured.main([*cases, "--record", str(FOLDER)])
    for name, measure in ALONE.items():
        if name in (names or known):
            missed |= measure([])
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
