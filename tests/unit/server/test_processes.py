from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from naiad.server.processes import StubWatch, TritonProcess
from naiad.server.shared_memory import SHARED_MEMORY
from tests.harness.server import wait_until
from tests.unit.server.stub_process import stub_process

# A server that starts a child of its own and, like tritonserver, leaves it behind.
SERVER = 'trap "exit 3" TERM; sleep 60 & echo $!; wait'
SUPERVISOR = """
import os, sys, time
from naiad.server.processes import TritonProcess
server = TritonProcess.start(["/bin/sh", "-c", sys.argv[1]], dict(os.environ), sys.argv[2])
print(server.pid, server.output.readline().decode().strip(), flush=True)
time.sleep(60)
"""


def start() -> tuple[TritonProcess, int]:
    server = TritonProcess.start(["/bin/sh", "-c", SERVER], dict(os.environ), "naiad_test_none_")
    return server, int(server.output.readline())


@pytest.fixture
def server() -> Iterator[tuple[TritonProcess, int]]:
    process, child = start()
    yield process, child
    process.kill()
    process.output.close()


def living(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_kill_ends_the_server_and_its_children(server: tuple[TritonProcess, int]) -> None:
    process, child = server
    assert living(process.pid)
    process.kill()
    assert process.exit_status == -signal.SIGKILL
    assert not living(child)


def test_children_of_a_server_that_was_killed_are_ended_too(server: tuple[TritonProcess, int]) -> None:
    process, child = server
    os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: process.exit_status is not None, 5, "the server is gone")
    assert living(child)
    process.kill()
    assert not living(child)


def test_a_kill_may_be_repeated_and_a_termination_may_come_late(server: tuple[TritonProcess, int]) -> None:
    process, _ = server
    process.kill()
    process.kill()
    process.terminate()


def test_a_termination_lets_the_server_choose_its_status(server: tuple[TritonProcess, int]) -> None:
    process, _ = server
    process.terminate()
    wait_until(lambda: process.exit_status is not None, 5, "the server ends")
    assert process.exit_status == 3


def test_the_server_is_out_of_reach_of_the_terminals_interrupt(server: tuple[TritonProcess, int]) -> None:
    assert os.getsid(server[0].pid) == server[0].pid


def test_nothing_outlives_a_supervisor_that_is_killed() -> None:
    prefix = f"naiad_test_{os.getpid()}_"
    region = SHARED_MEMORY / f"{prefix}region"
    region.touch()
    with subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, SERVER, prefix], stdout=subprocess.PIPE, text=True
    ) as supervisor:
        assert supervisor.stdout is not None
        pids = [int(pid) for pid in supervisor.stdout.readline().split()]
        assert all(map(living, pids))
        supervisor.kill()
    wait_until(lambda: not any(map(living, pids)), 3, "server and child end")
    wait_until(lambda: not region.exists(), 3, "the region is removed")


def test_a_watch_reports_a_dead_stub_once_by_its_model(tmp_path: Path) -> None:
    watch = StubWatch(os.getpid())
    with (
        stub_process(tmp_path, "echo", "r1", os.getpid()) as echo,
        stub_process(tmp_path, "slow", "r2", os.getpid()),
    ):
        watch.scan()
        assert {stub.model for stub in watch.stubs} == {"echo", "slow"}
        assert watch.dead() == []
        echo.kill()
        # Nobody collects it: a zombie, as under tritonserver.
        wait_until(lambda: echo.status() == psutil.STATUS_ZOMBIE, 5, "it is dead")
        assert [stub.model for stub in watch.dead()] == ["echo"]
        assert watch.dead() == []
        assert [stub.model for stub in watch.stubs] == ["slow"]


def test_a_watch_finds_stubs_that_start_later(tmp_path: Path) -> None:
    watch = StubWatch(os.getpid())
    watch.scan()
    with stub_process(tmp_path, "late", "r", os.getpid()):
        wait_until(lambda: watch.dead() or watch.stubs, 5, "it is found")
        assert [stub.model for stub in watch.stubs] == ["late"]


def test_a_watch_on_a_server_that_is_gone_reports_nothing(server: tuple[TritonProcess, int]) -> None:
    process, _ = server
    watch = StubWatch(process.pid)
    process.kill()
    watch.scan()
    assert watch.dead() == []
