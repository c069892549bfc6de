"""What the transport costs: pulling 40 MB of weights (`pulling.py`), publishing them against copying
them, and small messages of unrolls per second.
`python -m tests.benchmarks.transport [--rounds 9]`
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from statistics import fmean

import numpy as np

from agents.distributed.exchange import Exchange
from agents.distributed.protocol import Columns
from agents.distributed.queues import BatchQueue
from agents.transport.client import Client
from tests.benchmarks.pulling import PARAMETERS, ends, pulling, seconds
from tests.plain_receiver import some_unrolls

SMALL_S = 2.0
"""For so long small messages are sent in every round."""


def publishing(rounds: int) -> list[float]:
    """How long a copy of 10M parameters takes, by how long it takes to publish them for all actors."""
    arrays: Columns = {"weights": np.ones(PARAMETERS, np.float32)}
    exchange = Exchange({}, identity="", queue=BatchQueue({}, 1))
    exchange.begin(1)
    copied, updates = np.empty_like(arrays["weights"]), itertools.count()

    def publish() -> float:
        return seconds(lambda: exchange.publish(next(updates), arrays))

    def copy() -> float:
        return seconds(lambda: np.copyto(copied, arrays["weights"]))

    for _ in range(3):  # into memory that was never touched
        publish()
        copy()
    return [
        fmean(copy() for _ in range(5)) / fmean(publish() for _ in range(5)) for _ in range(rounds)
    ]


def small_messages(client: Client) -> float:
    """A second."""
    unrolls, count, began = some_unrolls(), 0, time.perf_counter()
    while time.perf_counter() - began < SMALL_S:
        client.send(unrolls)
        count += 1
    return count / (time.perf_counter() - began)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    for name, found_ratios in pulling(rounds).items():
        print(f"pulling {name}: {statistics.median(found_ratios):.2f}")
    print(f"a copy is {statistics.median(publishing(rounds)):.2f} x publishing")
    with ends() as found:
        for name, client in (("TLS", found.tls), ("local", found.local)):
            rates = [small_messages(client) for _ in range(rounds)]
            print(f"small messages of unrolls, {name}: {statistics.median(rates):,.0f} a second")


if __name__ == "__main__":
    main()
