"""tritonserver as one process group that never outlives its supervisor, and a watch on its stubs.

tritonserver and its stubs are a session of their own, so Ctrl-C reaches only the supervisor. Triton neither
restarts a dead stub nor says so, and its stubs outlive it, so: stubs are watched here, and a guard (a shell
blocked on a pipe) kills the group the moment the supervisor is gone, however it went.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import IO

import psutil

from naiad.server.shared_memory import Stub, find_stubs

__all__ = ["StubWatch", "TritonProcess"]

# End of file on stdin: the supervisor died. A line: it ended well, and so did the group.
_GUARD = 'read -r _ && exit 0; kill -s KILL -- "-$1"; sleep 0.2; rm -f -- /dev/shm/"$2"*'
_KILL_WAIT_S = 5.0
_RESCAN_S = 1.0
_log = logging.getLogger(__name__)


class TritonProcess:
    """A running tritonserver with its stubs."""

    def __init__(self, process: subprocess.Popen[bytes], guard: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._guard = guard

    @classmethod
    def start(cls, command: Sequence[str], environment: Mapping[str, str], shm_prefix: str) -> TritonProcess:
        """Start `command` in a session of its own, its output on `output`, under a guard.

        Args:
            command: tritonserver and its flags.
            environment: the whole environment.
            shm_prefix: prefix of its shared memory regions, which the guard removes.
        """
        process = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "naiad-guard", str(process.pid), shm_prefix],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        return cls(process, guard)

    @property
    def pid(self) -> int:
        """Tritonserver's process id, which is its group's as well."""
        return self._process.pid

    @property
    def output(self) -> IO[bytes]:
        """Stdout and stderr of tritonserver and its stubs; ends when the last of them does."""
        if self._process.stdout is None:
            raise ValueError("tritonserver was started without a pipe for its output")
        return self._process.stdout

    @property
    def exit_status(self) -> int | None:
        """None while it runs; negative: the signal that killed it."""
        return self._process.poll()

    def terminate(self) -> None:
        """Ask it to drain and stop: it refuses new requests at once. Does not wait."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the whole group at once, with every stub, and wait until it is gone."""
        self._signal_group(signal.SIGKILL)
        self._process.wait()
        deadline_s = time.monotonic() + _KILL_WAIT_S
        while self._has_living_member() and time.monotonic() < deadline_s:
            time.sleep(0.02)
        self._reap()
        self._dismiss_guard()

    def _signal_group(self, number: int) -> bool:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return False
        except PermissionError:  # a member changed its user: the others were signalled
            return True
        return True

    def _has_living_member(self) -> bool:
        """Whether a stub still runs; one that init has yet to collect does not."""
        if not self._signal_group(0):
            return False
        for pid in psutil.pids():
            try:
                if os.getpgid(pid) == self._process.pid and _alive(psutil.Process(pid)):
                    return True
            except (ProcessLookupError, psutil.NoSuchProcess):
                continue
        return False

    def _reap(self) -> None:
        """Collect stubs that became our children (when we are a container's first process)."""
        try:
            while os.waitpid(-self._process.pid, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            return

    def _dismiss_guard(self) -> None:
        if self._guard.poll() is not None:
            return
        try:
            self._guard.communicate(b"\n", timeout=_KILL_WAIT_S)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._guard.kill()
            self._guard.wait()


class StubWatch:
    """Notices stubs that die; reads one small file a stub a look, and all processes once a second."""

    def __init__(self, server_pid: int) -> None:
        self._server_pid = server_pid
        self._stubs: dict[int, Stub] = {}
        self._next_scan_s = 0.0

    def dead(self) -> list[Stub]:
        """Return the stubs that ended since the last call."""
        gone = [stub for stub in self._stubs.values() if not _alive(stub.process)]
        for stub in gone:
            del self._stubs[stub.process.pid]
        if time.monotonic() >= self._next_scan_s:
            self.scan()
        return gone

    def scan(self) -> None:
        """Find stubs that started since the last scan."""
        self._next_scan_s = time.monotonic() + _RESCAN_S
        try:
            children = psutil.Process(self._server_pid).children()
        except psutil.NoSuchProcess:
            return
        fresh = [child for child in children if child.pid not in self._stubs]
        self._stubs |= {stub.process.pid: stub for stub in find_stubs(fresh)}

    @property
    def stubs(self) -> tuple[Stub, ...]:
        """Those alive at the last look."""
        return tuple(self._stubs.values())


def _alive(process: psutil.Process) -> bool:
    try:
        # Triton does not collect a dead stub, so it stays as a zombie.
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
