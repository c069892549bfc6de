"""What gRPC and the C library are told holds in a process of its own, and without a word of theirs."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from agents.transport.calls import ENVIRONMENT

CONNECTED = """
import os, sys
from pathlib import Path
from agents.transport.client import Client
from agents.transport.service import Server
from tests.plain_receiver import PlainReceiver, join_request, unpack_bytes

os.chdir(sys.argv[1])  # its own path may be longer than a socket's
receiver = PlainReceiver()
with Server(receiver, token="t", generation=1, environments=2, socket="s") as server:
    client = Client(lambda: server.address, unpack=unpack_bytes, reconnect_timeout_s=10)
    client.join(join_request(1))
    receiver.publish(1, bytes(5_000_000))
    for _ in range(20):
        assert client.weights(None) is not None
    switches = 0
    for task in Path("/proc/self/task").iterdir():
        if (task / "comm").read_text().startswith("event_engine"):
            switches += int((task / "schedstat").read_text().split()[2])
    print(switches)
    client.close()
"""
FAULTS = """
import resource, sys
if sys.argv[1:] == ["settled"]:
    import agents.transport

def used(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def work(): [bytearray(2**20) for _ in range(30)]

work()
before = used()
for _ in range(5):
    work()
print(used() - before)
"""


def ran(code: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in ENVIRONMENT}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment | variables,
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="this system does not say what threads did"
)
def test_grpc_reads_and_writes_in_the_threads_that_wait(tmp_path: Path) -> None:
    done = ran(CONNECTED, str(tmp_path))
    assert done.stderr == ""  # this version of gRPC knows all that it is told
    theirs = ran(CONNECTED, str(tmp_path), GRPC_EXPERIMENTS="")
    assert 2 * int(done.stdout) < int(theirs.stdout)  # how often its own threads had their turn


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc alone has such a setting")
def test_freed_memory_is_used_again() -> None:
    pages_of_a_round = 30 * 2**20 // os.sysconf("SC_PAGE_SIZE")
    assert int(ran(FAULTS).stdout) > 2 * pages_of_a_round
    assert int(ran(FAULTS, "settled").stdout) < pages_of_a_round / 10
