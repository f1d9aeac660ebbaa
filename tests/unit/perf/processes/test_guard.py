"""Processes end with the one that started them, however that one ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from naiad_perf.processes.guard import Guard
from tests.harness.polling import poll

PARENT = """
    import subprocess, sys, time
    from naiad_perf.processes.guard import Guard

    program = 'import signal, time; signal.signal(signal.SIGTERM, signal.{term}); time.sleep(600)'
    child = subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
    guard = Guard(child.pid, kill_group={kill})
    print(child.pid, flush=True)
    time.sleep(600)
"""


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@contextmanager
def guarded(*, term: str, kill: bool) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A parent with a guarded child that lets SIGTERM end it (SIG_DFL), or not (SIG_IGN)."""
    code = textwrap.dedent(PARENT).format(term=term, kill=kill)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            yield parent, child
        finally:
            parent.kill()
            if alive(child):
                os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize(("term", "kill"), [("SIG_DFL", False), ("SIG_IGN", True)])
def test_a_guarded_process_ends_when_its_parent_is_killed(term: str, kill: bool):
    with guarded(term=term, kill=kill) as (parent, child):
        assert alive(child)
        parent.kill()
        poll(lambda: not alive(child))


def test_a_dismissed_guard_leaves_the_process_alone_and_is_gone():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        guard = Guard(process.pid, kill_group=False)
        before = psutil.Process().children(recursive=True)
        guard.dismiss()
        guard.dismiss()
        assert process.poll() is None
        ours = [child for child in before if child.is_running() and child.pid != process.pid]
        assert not any("naiad-bench-guard" in child.cmdline() for child in ours)
        process.communicate(b"\n")
    assert process.returncode == 0
