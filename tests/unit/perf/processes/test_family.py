"""Processor time and memory of a real process and its child."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from naiad_perf.processes.family import ProcessFamily

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

# The child takes 200 MB, gives them back, computes for 0.3 s and says so; its parent ends it with stdin.
CHILD = """
import time
taken = bytearray(200_000_000)
taken[::4096] = bytes([1]) * len(taken[::4096])
del taken
started = time.process_time()
while time.process_time() - started < 0.3: pass
print("done", flush=True)
time.sleep(600)
"""
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]])
sys.stdin.read()
child.kill()
"""


@pytest.fixture
def family() -> Iterator[ProcessFamily]:
    command = [sys.executable, "-c", PARENT, CHILD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "done\n"
        yield ProcessFamily(process.pid)
        process.stdin.close()
        process.wait()


def test_a_child_s_time_and_memory_are_the_family_s(family: ProcessFamily) -> None:
    assert len(family.members) == 2
    assert family.cpu_s() >= 0.3
    peak = family.peak_memory_bytes()
    assert peak is not None
    assert peak > 200_000_000, "given back, but it was there"


def test_a_forgotten_peak_is_what_is_there_now(family: ProcessFamily) -> None:
    family.reset_peak_memory()
    peak = family.peak_memory_bytes()
    assert peak is not None
    assert 1_000_000 < peak < 100_000_000


def test_who_is_gone_has_nothing() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    family = ProcessFamily(process.pid)
    family.reset_peak_memory()
    assert (family.members, family.cpu_s(), family.peak_memory_bytes()) == ([], 0.0, None)
