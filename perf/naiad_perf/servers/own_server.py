"""A server of the sweep's own: `naiad serve` with one profile.

It runs without the supervisor's canary, whose requests would be among those counted: the sweep asks for a
token itself before each run.
"""

from __future__ import annotations

import contextlib
import random
import socket
import subprocess
import sys
import time
from collections.abc import Hashable
from pathlib import Path

import psutil

from naiad.server.errors import ServerError
from naiad.server.state import ServerState, read_state
from naiad_perf.errors import PerfError
from naiad_perf.processes.family import ProcessFamily
from naiad_perf.processes.guard import Guard
from naiad_perf.servers.bench_server import BenchServer
from naiad_perf.servers.figures import read_metrics

__all__ = ["OwnServer"]

_STARTS_AT_MOST = 3
_POLL_S = 0.2
_STOP_LIMIT_S = 10.0
_PORTS = range(20_000, 30_000)  # below those that outgoing connections take, so that a restart gets them back


class OwnServer(BenchServer):
    """`naiad serve` in a process of its own; its supervisor restarts a failed tritonserver.

    Should the supervisor itself be gone, it is started again. It never outlives the sweep, however that ends.
    """

    def __init__(self, profile: str, artifacts: Path, log: Path) -> None:
        """Choose ports; nothing starts.

        Args:
            profile: deployment profile.
            artifacts: folder of the installed tritonserver.
            log: file for what the supervisor prints.
        """
        self._http, self._grpc, self._metrics = _free_ports(3)
        super().__init__(f"profile {profile}", f"127.0.0.1:{self._grpc}", f"127.0.0.1:{self._http}")
        self._profile = profile
        self._artifacts = artifacts
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: Guard | None = None
        self._starts_without_success = 0
        self._was_ready = False

    @property
    def pid(self) -> int:
        """The supervisor's process id; -1 before it is started."""
        return self._process.pid if self._process is not None else -1

    def start(self) -> None:
        """See `BenchServer.start`."""
        self._starts_without_success += 1
        command = [
            sys.executable, "-m", "naiad", "serve", "--profile", self._profile,
            "--http-port", str(self._http), "--grpc-port", str(self._grpc),
            "--metrics-port", str(self._metrics), "--artifacts", str(self._artifacts), "--canary-model", "",
        ]  # fmt: skip
        # A session of its own: Ctrl-C is for the sweep, which stops the server when the load is off it.
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._guard = Guard(self._process.pid, kill_group=False)

    def progress(self) -> str | None:
        """See `BenchServer.progress`; a supervisor that is gone is started again, if it worked before."""
        if self._process is None or self._process.poll() is not None:
            self._dismiss_guard()
            if not self._was_ready or self._starts_without_success >= _STARTS_AT_MOST:
                raise PerfError(f"the server for {self.name} does not start:\n{self._last_lines()}")
            self.start()
            return "starting"
        state = self._state()
        if state is None:
            return "starting"
        if state.ready:
            self._starts_without_success = 0
            self._was_ready = True
            return None
        return state.reason

    def incarnation(self) -> Hashable:
        """The processes of supervisor and tritonserver, alive or not."""
        state = self._state()
        if state is None or self._process is None:
            return None
        server = state.server_pid
        return self._process.pid, self._process.poll(), server, server is not None and _runs(server)

    def metrics(self) -> dict[str, float]:
        """See `BenchServer.metrics`."""
        return read_metrics(f"127.0.0.1:{self._metrics}")

    def cpu_s(self) -> float | None:
        """Sum over supervisor, tritonserver and the models' processes, living and waited for."""
        family = self._family
        return family.cpu_s() if family is not None and family.members else None

    def forget_memory(self) -> None:
        """See `BenchServer.forget_memory`."""
        if self._family is not None:
            self._family.reset_peak_memory()

    def memory_bytes(self) -> int | None:
        """Sum over the same processes, pages they share counted once."""
        return self._family.peak_memory_bytes() if self._family is not None else None

    @property
    def _family(self) -> ProcessFamily | None:
        return ProcessFamily(self._process.pid) if self._process is not None else None

    def stop(self, *, politely: bool) -> None:
        """End supervisor, tritonserver and models; at once, or as soon as nothing is in flight."""
        super().stop(politely=politely)
        process = self._process
        if process is None:
            return
        try:
            for _ in range(2 if politely else 1):  # a second SIGTERM ends at once
                process.terminate()
                if not politely:
                    time.sleep(_POLL_S)
                    process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=_STOP_LIMIT_S)
                    return
        finally:
            process.kill()  # tritonserver has a guard of its own
            process.wait()
            self._dismiss_guard()

    def _state(self) -> ServerState | None:
        """Return its state file's content; None while it has written none."""
        try:
            state = read_state(self._artifacts / "run" / f"serve-{self._http}.json")
        except ServerError:
            return None
        return state if self._process is not None and state.pid == self._process.pid else None

    def _last_lines(self) -> str:
        return "\n".join(self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-8:])

    def _dismiss_guard(self) -> None:
        if self._guard is not None:
            self._guard.dismiss()


def _runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on, of a range from which the system gives none away."""
    free: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):  # as many sweeps may start at once
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind(("127.0.0.1", port))
            free.append(port)
        if len(free) == count:
            return free
    raise PerfError("no free ports between 20000 and 29999: stop some servers")
