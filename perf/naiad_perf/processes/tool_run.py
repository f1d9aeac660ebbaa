"""Running a load generator: its processor time, its limits, and nothing left of it whatever happens."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from naiad_perf.errors import LoadError
from naiad_perf.processes.guard import Guard

__all__ = ["Ended", "last_lines", "run_tool"]

_POLL_S = 0.02
_LOOK_S = 1.0
_GRACE_S = 5.0
_DISCONNECTED_S = 10.0
_IDLE_CPU_S = 0.02
"""Less processor time than this in a second is a program that only waits; the system counts hundredths."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended.

    Attributes:
        status: exit status; minus the signal's number when one ended it.
        wall_s: seconds from start to end.
        cpu_s: processor time of it and of the processes it started and waited for.
    """

    status: int
    wall_s: float
    cpu_s: float


def run_tool(
    command: Sequence[str],
    *,
    name: str,
    log: Path,
    limit_s: float = math.inf,
    port: int | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    hopeless: Callable[[], bool] = lambda: False,
) -> Ended:
    """Run a program in a session of its own and wait for its end.

    No process of it survives this call, nor this process, even one that is killed.

    Args:
        command: the program and its arguments.
        name: what messages call it.
        log: file for all it prints.
        limit_s: seconds it may take.
        port: TCP port of the server that it works on: once its last connection there is gone, and it does
            nothing, it is stuck.
        env: its environment; this process's if None.
        cwd: its folder; this process's if None.
        hopeless: asked again and again; once true, the program has a few seconds left to end by itself.

    Raises:
        LoadError: it cannot be started, took too long, or is stuck.
    """
    started_s = time.monotonic()
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=cwd,
                start_new_session=True,
            )
        except OSError as error:
            raise LoadError(f"{name} does not start: {error}") from error
    guard = None
    try:
        guard = Guard(process.pid, kill_group=True)
        _watch(process.pid, name, started_s + limit_s, port, hopeless)
    finally:
        status, cpu_s = _end(process)
        if guard is not None:
            guard.dismiss()
    return Ended(status, time.monotonic() - started_s, cpu_s)


def last_lines(log: Path, count: int = 8) -> str:
    """Return the end of what a program printed, for an error message."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return "\n".join([line for line in lines if line.strip()][-count:])


def _watch(pid: int, name: str, deadline_s: float, port: int | None, hopeless: Callable[[], bool]) -> None:
    """Return once the process is over, or has been hopeless for a while."""
    end_by_s = math.inf
    connection = None if port is None else _Connection(pid, port)
    look_s = time.monotonic() + _LOOK_S
    while not _over(pid):
        now_s = time.monotonic()
        if now_s > deadline_s:
            raise LoadError(f"{name} did not end in time: is the server overloaded or stuck?")
        if now_s > end_by_s:
            return
        if now_s > look_s:
            look_s = now_s + _LOOK_S
            if end_by_s == math.inf and hopeless():
                end_by_s = now_s + _GRACE_S
            if connection is not None and connection.lost_for_s(now_s) > _DISCONNECTED_S:
                raise LoadError(
                    f"{name} lost its connection to the server and waits in vain: did it restart?"
                )
        time.sleep(_POLL_S)


class _Connection:
    """Whether a program still has a connection to a port, or anything else to do."""

    def __init__(self, pid: int, port: int) -> None:
        self._process = psutil.Process(pid)
        self._port = port
        self._seen = False
        self._cpu_s = 0.0
        self._lost_s: float | None = None

    def lost_for_s(self, now_s: float) -> float:
        """Return for how many seconds it has neither been connected, after it had been, nor been busy."""
        try:
            connected = any(
                connection.raddr and connection.raddr.port == self._port
                for connection in self._process.net_connections("tcp")
            )
            times = self._process.cpu_times()
        except psutil.Error:  # it is ending just now
            return 0.0
        cpu_s = float(times.user + times.system)
        idle = cpu_s - self._cpu_s < _IDLE_CPU_S
        self._cpu_s = cpu_s
        self._seen = self._seen or connected
        if connected or not idle or not self._seen:
            self._lost_s = None
        elif self._lost_s is None:
            self._lost_s = now_s
        return 0.0 if self._lost_s is None else now_s - self._lost_s


def _over(pid: int) -> bool:
    """Whether the process has ended; it stays a zombie, so that its number and its group stay its own."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end(process: subprocess.Popen[bytes]) -> tuple[int, float]:
    """End what is left of the process's group and return exit status and processor time."""
    if not _over(process.pid):
        os.killpg(process.pid, signal.SIGTERM)
        deadline_s = time.monotonic() + _GRACE_S
        while not _over(process.pid) and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
    os.killpg(process.pid, signal.SIGKILL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)  # so that Popen does not wait for it as well
    return process.returncode, usage.ru_utime + usage.ru_stime
